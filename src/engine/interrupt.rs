//! The flags and the deadline that end a call early, or end its reasoning.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use crate::error::{Code, Error, Result};

/// The flags and the deadline of a call.
#[derive(Debug, Clone, Default)]
pub struct Interrupt {
    /// Set by any thread to cancel the call.
    pub cancel: Arc<AtomicBool>,
    /// Set by the receiver of the reply if it needs no more of it.
    pub enough: Arc<AtomicBool>,
    /// When the call is cancelled; `None` without a time-out.
    pub deadline: Option<Instant>,
    /// Set by any thread to end the reasoning block that the model is writing. The engine resets it
    /// when it reads it.
    pub end_reasoning: Arc<AtomicBool>,
}

impl Interrupt {
    /// Whether the call was cancelled, its deadline has passed, or no more of the reply is needed.
    pub fn is_over(&self) -> bool {
        self.cancel.load(Ordering::Relaxed)
            || self.enough.load(Ordering::Relaxed)
            || self.deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }

    /// For code that tokenizes: `CANCELLED` if the call is over.
    pub fn check(&self) -> Result<()> {
        if self.is_over() {
            return Err(Error::new(Code::Cancelled, "cancelled while the prompt was tokenized"));
        }
        Ok(())
    }
}
