//! Stack space for llama.cpp, which needs more than a host's thread may have: for its recursion, and
//! for a load.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::exit;
use super::log::{self, LogQueue};
use crate::error::{Code, Error, Result};
use crate::panic::{self, Quiet};
use crate::spawn;

/// Runs `call` on this thread with at least this many bytes of stack. `OUT_OF_MEMORY` if they
/// cannot be allocated. `call` must not panic.
pub(crate) fn with_stack<T>(bytes: usize, call: impl FnOnce() -> Result<T>) -> Result<T> {
    if remaining() >= bytes {
        return call();
    }
    let _quiet = Quiet::enter();
    // stacker panics if it cannot map the memory.
    catch_unwind(AssertUnwindSafe(|| stacker::grow(bytes, call))).unwrap_or_else(|_| {
        let message = format!("no memory for a stack of {} MiB", bytes.div_ceil(1 << 20));
        Err(Error::new(Code::OutOfMemory, message))
    })
}

/// The bytes of stack left on this thread; 0 if unknown.
pub(crate) fn remaining() -> usize {
    stacker::remaining_stack().unwrap_or(0)
}

/// Runs a load on a thread of this name, which ends with the load. An error includes the reason that
/// llama.cpp logged there.
pub(crate) fn load_on_thread<T: Send + 'static>(
    name: &str,
    load: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let thread = spawn::thread(name, move || {
        let queue = Arc::new(LogQueue::default());
        log::collect_on_this_thread(Arc::clone(&queue));
        load().map_err(|error| queue.add_reason(error))
    })?;
    let loaded = thread.join().unwrap_or_else(|payload| Err(panic::error(&*payload)));
    exit::register();
    loaded
}
