//! Runs llguidance's compiler on a separate thread.
//!
//! In: a grammar in Lark. Out: its matcher in the start state, or the reason why it cannot be
//! enforced.
//!
//! The compiler recurses once for each rule or reference of a chain, and a host's thread may have
//! only 64 KiB of stack. The separate thread has as much stack as the grammar can need. Nothing can
//! stop the compiler, so the caller waits only while its request lasts, and never longer than
//! [`CompileTime::LIMIT`]. If the caller has given up, the result still goes to the cache.

use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::request_grammar::elements;
use crate::error::{Code, Error, Result};
use crate::panic;
use crate::spawn;

/// The stack for a small grammar, in bytes.
const STACK: usize = 4 << 20;
/// The stack for each element of a grammar, in bytes. Chains of rules, terminals, groups and
/// references were measured with llguidance 1.9.1 and need at most 3.1 KiB.
const STACK_OF_ELEMENT: usize = 5 << 10;
/// The maximum number of elements in a grammar. It corresponds to 1 GiB of stack, of which only the
/// used part takes memory.
const MAX_ELEMENTS: usize = 200_000;
/// The maximum number of compilers that run at the same time for one model.
const MAX_RUNNING: usize = 4;
/// How often a waiting call checks whether its request is over.
const PAUSE: Duration = Duration::from_millis(10);

/// How long a call may wait for the grammars of its reply.
pub struct CompileTime<'a> {
    is_over: &'a dyn Fn() -> bool,
    end: Instant,
}

impl<'a> CompileTime<'a> {
    /// The maximum time for all grammars of a reply. The largest accepted grammars take a few
    /// seconds. Intersections of regular expressions have no known bound.
    const LIMIT: Duration = Duration::from_secs(30);

    /// Starts now, and ends when the request is over.
    pub fn until(is_over: &'a dyn Fn() -> bool) -> CompileTime<'a> {
        CompileTime { is_over, end: Instant::now() + Self::LIMIT }
    }

    /// A time for tests, which no request ends.
    #[cfg(test)]
    pub(crate) fn unlimited() -> CompileTime<'static> {
        CompileTime::until(&|| false)
    }

    /// Fails with `CANCELLED` if the request is over, and with `SCHEMA_UNSUPPORTED` after the
    /// limit.
    fn check(&self) -> Result<()> {
        if (self.is_over)() {
            return Err(Error::new(Code::Cancelled, "the request ended before its grammar"));
        }
        if Instant::now() >= self.end {
            let limit = Self::LIMIT.as_secs();
            return Err(unsupported(&format!("it does not compile within {limit} s")));
        }
        Ok(())
    }
}

/// The error `SCHEMA_UNSUPPORTED` with this reason.
pub(super) fn unsupported(reason: &str) -> Error {
    Error::new(Code::SchemaUnsupported, format!("cannot be enforced: {reason}"))
}

/// Counts the running compilers of one model.
#[derive(Default)]
pub(super) struct RunningCompilers {
    count: Mutex<usize>,
    ended: Condvar,
}

impl RunningCompilers {
    /// Waits until another compiler may start.
    fn enter(&self, time: &CompileTime) -> Result<()> {
        let mut count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        while *count >= MAX_RUNNING {
            time.check()?;
            let waited = self.ended.wait_timeout(count, PAUSE);
            count = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        *count += 1;
        Ok(())
    }

    fn leave(&self) {
        *self.count.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        self.ended.notify_one();
    }
}

/// Runs `compile` for a grammar on a separate thread.
pub(super) fn run<T: Send + 'static>(
    lark: &str,
    running: &Arc<RunningCompilers>,
    time: &CompileTime,
    compile: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let elements = elements(lark);
    if elements > MAX_ELEMENTS {
        return Err(unsupported(&format!(
            "the grammar has about {elements} rules, groups and items, more than {MAX_ELEMENTS}"
        )));
    }
    running.enter(time)?;
    let (send, receive) = sync_channel(1);
    let running = Entered(Arc::clone(running));
    let work = move || {
        let compiled = compile();
        drop(running);
        // If the request is over, the receiver no longer exists.
        let _ = send.send(compiled);
    };
    let stack = STACK + elements * STACK_OF_ELEMENT;
    let thread = spawn::thread_with_stack("llb-grammar", stack, work)?;
    loop {
        match receive.recv_timeout(PAUSE) {
            Ok(compiled) => return compiled,
            Err(RecvTimeoutError::Timeout) => time.check()?,
            Err(RecvTimeoutError::Disconnected) => {
                let fault = thread.join().err();
                let fault = fault.as_deref().map_or("no result".to_owned(), panic::message);
                return Err(unsupported(&format!("llguidance failed: {fault}")));
            }
        }
    }
}

/// Represents a running compiler. It no longer counts when this is dropped.
struct Entered(Arc<RunningCompilers>);

impl Drop for Entered {
    fn drop(&mut self) {
        self.0.leave();
    }
}
