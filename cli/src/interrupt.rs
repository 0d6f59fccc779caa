//! Handles Ctrl-C. It cancels the running work if possible, and otherwise ends the program. A
//! second Ctrl-C during the same work always ends it.

use std::sync::{Mutex, PoisonError};

use crate::failure::{Failure, INTERRUPTED, Result};

type Cancel = Box<dyn Fn() + Send>;

static RUNNING: Mutex<Option<Cancel>> = Mutex::new(None);

/// Installs the handler for Ctrl-C and SIGTERM.
pub(crate) fn install() -> Result<()> {
    ctrlc::set_handler(|| {
        let cancel = RUNNING.lock().unwrap_or_else(PoisonError::into_inner).take();
        match cancel {
            Some(cancel) => cancel(),
            None => std::process::exit(INTERRUPTED.into()),
        }
    })
    .map_err(|error| Failure::new(format!("cannot handle Ctrl-C: {error}")))
}

/// Runs `work`. On Ctrl-C, calls `cancel`, which should end it.
pub(crate) fn cancellable<T>(cancel: impl Fn() + Send + 'static, work: impl FnOnce() -> T) -> T {
    set(Some(Box::new(cancel)));
    let result = work();
    set(None);
    result
}

fn set(cancel: Option<Cancel>) {
    *RUNNING.lock().unwrap_or_else(PoisonError::into_inner) = cancel;
}
