//! Stack space for llama.cpp's recursion, independent of the host thread's stack.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::error::{Code, Error, Result};
use crate::panic::Quiet;

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
