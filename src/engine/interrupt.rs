//! Ends a call early.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use super::job::is_over;
use crate::error::{Code, Error, Result};

/// The cancel flag and the deadline of a call.
#[derive(Debug, Default)]
pub struct Interrupt {
    /// Set by a cancel.
    pub cancel: Arc<AtomicBool>,
    /// None if the call has no time-out.
    pub deadline: Option<Instant>,
}

impl Interrupt {
    /// Whether the call should end.
    pub fn is_over(&self) -> bool {
        is_over(&self.cancel, self.deadline)
    }

    /// `CANCELLED` if the call should end.
    pub fn check(&self) -> Result<()> {
        if self.is_over() {
            return Err(Error::new(Code::Cancelled, "cancelled while the prompt was tokenized"));
        }
        Ok(())
    }
}
