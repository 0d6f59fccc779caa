//! The flags and the deadline that end a call early, or end its reasoning.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use super::job::is_over;
use crate::error::{Code, Error, Result};

/// The flags and the deadline of a call.
#[derive(Debug, Default)]
pub struct Interrupt {
    /// Set by any thread to cancel the call.
    pub cancel: Arc<AtomicBool>,
    /// When the call is cancelled; `None` without a time-out.
    pub deadline: Option<Instant>,
    /// Set by any thread to end the reasoning block that the model is writing.
    pub end_reasoning: Arc<AtomicBool>,
}

impl Interrupt {
    /// Whether the call was cancelled or its deadline has passed.
    pub fn is_over(&self) -> bool {
        is_over(&self.cancel, self.deadline)
    }

    /// Returns `CANCELLED` if the call was cancelled or its deadline has passed.
    pub fn check(&self) -> Result<()> {
        if self.is_over() {
            return Err(Error::new(Code::Cancelled, "cancelled while the prompt was tokenized"));
        }
        Ok(())
    }
}
