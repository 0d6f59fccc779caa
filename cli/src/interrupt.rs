//! Handles Ctrl-C. It cancels the running work if possible, and otherwise ends the program. A
//! second Ctrl-C during the same work always ends it. A program that was started to use the terminal
//! handles Ctrl-C itself.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::failure::{Failure, INTERRUPTED, Result};

type Cancel = Box<dyn Fn() + Send>;

static RUNNING: Mutex<Option<Cancel>> = Mutex::new(None);
/// Whether another program has the terminal.
static IS_LENT: AtomicBool = AtomicBool::new(false);

/// Installs the handler for Ctrl-C and SIGTERM.
pub(crate) fn install() -> Result<()> {
    ctrlc::set_handler(|| {
        if IS_LENT.load(Ordering::Relaxed) {
            return;
        }
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

/// Ignores Ctrl-C and SIGTERM while another program, which gets them too, has the terminal.
pub(crate) fn lend_terminal() {
    IS_LENT.store(true, Ordering::Relaxed);
}
