//! Runs a load on its own thread, which ends with the load. llama.cpp needs more stack than a
//! host's thread may have, and logs to the thread that calls it.

use std::sync::Arc;

use super::exit;
use super::log::{self, LogQueue};
use crate::error::Result;
use crate::panic;
use crate::spawn;

/// Runs `load` on a new thread. An error includes the reason that llama.cpp logged.
pub(super) fn run<T: Send + 'static>(
    load: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let thread = spawn::thread("llb-load", move || {
        let queue = Arc::new(LogQueue::default());
        log::collect_on_this_thread(Arc::clone(&queue));
        load().map_err(|error| queue.add_reason(error))
    })?;
    let loaded = thread.join().unwrap_or_else(|payload| Err(panic::error(&*payload)));
    exit::register();
    loaded
}
