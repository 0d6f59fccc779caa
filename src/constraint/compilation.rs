//! Runs llguidance's compiler on a separate thread.
//!
//! In: a grammar in Lark. Out: its matcher in the start state, or the reason why it cannot be
//! enforced.
//!
//! The compiler recurses once for each rule or reference of a chain, and a host's thread may have
//! only 64 KiB of stack. The separate thread has as much stack as the grammar can need. The caller
//! waits only while its request lasts, and never longer than [`CompileTime::LIMIT`] for a running
//! compiler. A compiler that its caller has given up ends at its next step. Until then it does not
//! count among those that other callers wait for.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
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
/// The maximum number of compilers that callers wait for at the same time, for one model.
const MAX_RUNNING: usize = 4;
/// The same with those that were given up and have not ended yet.
const MAX_THREADS: usize = 8;
/// How often a waiting call checks whether its request is over.
const PAUSE: Duration = Duration::from_millis(10);

/// How long a call may wait for the grammars of its reply.
pub struct CompileTime<'a> {
    is_over: &'a dyn Fn() -> bool,
    /// How long compilers may still run for this caller.
    remaining: Cell<Duration>,
}

impl<'a> CompileTime<'a> {
    /// The maximum time for all grammars of a reply, without the time in which other compilers run.
    /// The largest accepted grammars take a few seconds.
    const LIMIT: Duration = Duration::from_secs(30);

    /// Starts now, and ends when the request is over.
    pub fn until(is_over: &'a dyn Fn() -> bool) -> CompileTime<'a> {
        CompileTime { is_over, remaining: Cell::new(Self::LIMIT) }
    }

    /// A time for tests, which no request ends.
    #[cfg(test)]
    pub(crate) fn unlimited() -> CompileTime<'static> {
        CompileTime::until(&|| false)
    }

    /// Fails with `CANCELLED` if the request is over.
    fn check(&self) -> Result<()> {
        if (self.is_over)() { Err(over()) } else { Ok(()) }
    }

    /// Fails with `CANCELLED` if the request is over, and with `SCHEMA_UNSUPPORTED` if a compiler
    /// that started at this time has reached the limit.
    fn check_since(&self, start: Instant) -> Result<()> {
        self.check()?;
        if start.elapsed() >= self.remaining.get() {
            let limit = Self::LIMIT.as_secs();
            return Err(unsupported(&format!("it does not compile within {limit} s")));
        }
        Ok(())
    }
}

fn over() -> Error {
    Error::new(Code::Cancelled, "the request ended before its grammar")
}

/// The error `SCHEMA_UNSUPPORTED` with this reason.
pub(super) fn unsupported(reason: &str) -> Error {
    Error::new(Code::SchemaUnsupported, format!("cannot be enforced: {reason}"))
}

/// The compilers of one model. Callers start them in the order of their arrival.
#[derive(Default)]
pub(super) struct Compilers {
    counts: Mutex<CompilerCounts>,
    changed: Condvar,
}

#[derive(Default)]
struct CompilerCounts {
    /// The compilers that callers wait for.
    running: usize,
    /// The compilers that were given up and have not ended.
    given_up: usize,
    /// The callers that wait until theirs may start, the first one first.
    waiting: VecDeque<u64>,
    last_caller: u64,
}

impl CompilerCounts {
    fn may_start(&self, caller: u64) -> bool {
        self.waiting.front() == Some(&caller)
            && self.running < MAX_RUNNING
            && self.running + self.given_up < MAX_THREADS
    }
}

impl Compilers {
    fn counts(&self) -> MutexGuard<'_, CompilerCounts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until another compiler may start.
    fn start(compilers: &Arc<Compilers>, time: &CompileTime) -> Result<RunningCompiler> {
        let mut counts = compilers.counts();
        counts.last_caller += 1;
        let caller = counts.last_caller;
        counts.waiting.push_back(caller);
        let may_start = loop {
            if counts.may_start(caller) {
                break Ok(());
            }
            if let Err(over) = time.check() {
                break Err(over);
            }
            let waited = compilers.changed.wait_timeout(counts, PAUSE);
            counts = waited.unwrap_or_else(PoisonError::into_inner).0;
        };
        counts.waiting.retain(|waiting| *waiting != caller);
        if may_start.is_ok() {
            counts.running += 1;
        }
        // The next caller may start too, or is the first one now.
        compilers.changed.notify_all();
        may_start?;
        let compilation = Arc::new(Compilation::default());
        Ok(RunningCompiler { compilers: Arc::clone(compilers), compilation })
    }
}

/// A compilation, as its compiler sees it.
#[derive(Default)]
pub(super) struct Compilation {
    is_given_up: AtomicBool,
    has_ended: AtomicBool,
}

impl Compilation {
    /// Fails if the caller does not wait any longer. A compiler asks between two steps.
    pub(super) fn check(&self) -> Result<()> {
        if self.is_given_up.load(Ordering::Relaxed) { Err(over()) } else { Ok(()) }
    }
}

/// A running compiler. It no longer counts when this is dropped.
struct RunningCompiler {
    compilers: Arc<Compilers>,
    compilation: Arc<Compilation>,
}

impl RunningCompiler {
    /// What the caller keeps.
    fn waiter(&self) -> CompilerWait {
        CompilerWait {
            compilers: Arc::clone(&self.compilers),
            compilation: Arc::clone(&self.compilation),
        }
    }
}

impl Drop for RunningCompiler {
    fn drop(&mut self) {
        let mut counts = self.compilers.counts();
        self.compilation.has_ended.store(true, Ordering::Relaxed);
        match self.compilation.is_given_up.load(Ordering::Relaxed) {
            true => counts.given_up -= 1,
            false => counts.running -= 1,
        }
        self.compilers.changed.notify_all();
    }
}

/// A caller that waits for a compiler.
struct CompilerWait {
    compilers: Arc<Compilers>,
    compilation: Arc<Compilation>,
}

impl CompilerWait {
    /// Gives the compiler up, unless it has ended.
    fn give_up(self) {
        let mut counts = self.compilers.counts();
        if !self.compilation.has_ended.load(Ordering::Relaxed) {
            self.compilation.is_given_up.store(true, Ordering::Relaxed);
            counts.running -= 1;
            counts.given_up += 1;
            self.compilers.changed.notify_all();
        }
    }
}

/// Runs `compile` for a grammar on a separate thread.
pub(super) fn run<T: Send + 'static>(
    lark: &str,
    compilers: &Arc<Compilers>,
    time: &CompileTime,
    compile: impl FnOnce(&Compilation) -> Result<T> + Send + 'static,
) -> Result<T> {
    let elements = elements(lark);
    if elements > MAX_ELEMENTS {
        return Err(unsupported(&format!(
            "the grammar has about {elements} rules, groups and items, more than {MAX_ELEMENTS}"
        )));
    }
    let running = Compilers::start(compilers, time)?;
    let started = Instant::now();
    let waiter = running.waiter();
    let (send, receive) = sync_channel(1);
    let work = move || {
        let compiled = compile(&running.compilation);
        drop(running);
        // If the request is over, the receiver no longer exists.
        let _ = send.send(compiled);
    };
    let stack = STACK + elements * STACK_OF_ELEMENT;
    let thread = spawn::thread_with_stack("llb-grammar", stack, work)?;
    let result = loop {
        match receive.recv_timeout(PAUSE) {
            Ok(compiled) => break compiled,
            Err(RecvTimeoutError::Timeout) => {
                if let Err(error) = time.check_since(started) {
                    waiter.give_up();
                    return Err(error);
                }
            }
            Err(RecvTimeoutError::Disconnected) => {
                let fault = thread.join().err();
                let fault = fault.as_deref().map_or("no result".to_owned(), panic::message);
                break Err(unsupported(&format!("llguidance failed: {fault}")));
            }
        }
    };
    time.remaining.set(time.remaining.get().saturating_sub(started.elapsed()));
    result
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test reports by panicking")]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;

    const GRAMMAR: &str = "start: \"a\"";

    /// A caller whose request is over at once, and a compiler that ends when told to.
    fn give_up(compilers: &Arc<Compilers>) -> (Result<()>, Sender<()>) {
        let (end, is_ended): (Sender<()>, Receiver<()>) = channel();
        let compile = move |compilation: &Compilation| {
            // If the test has failed, there is no sender.
            let _ = is_ended.recv();
            compilation.check()
        };
        (run(GRAMMAR, compilers, &CompileTime::until(&|| true), compile), end)
    }

    /// A caller whose request is over as soon as its compiler has started.
    fn start_and_give_up(compilers: &Arc<Compilers>) -> Sender<()> {
        let has_started = Arc::new(AtomicBool::new(false));
        let (end, is_ended): (Sender<()>, Receiver<()>) = channel();
        let started = Arc::clone(&has_started);
        let compile = move |compilation: &Compilation| {
            started.store(true, Ordering::Relaxed);
            let _ = is_ended.recv();
            compilation.check()
        };
        let is_over = || has_started.load(Ordering::Relaxed);
        let result = run(GRAMMAR, compilers, &CompileTime::until(&is_over), compile);
        assert_eq!(result.unwrap_err().code(), Code::Cancelled);
        end
    }

    #[test]
    fn compilers_that_were_given_up_do_not_hold_up_others() {
        let compilers = Arc::default();
        let ends: Vec<_> = (0..MAX_RUNNING).map(|_| start_and_give_up(&compilers)).collect();
        let compile = |_: &Compilation| Ok("compiled");
        let result = run(GRAMMAR, &compilers, &CompileTime::unlimited(), compile);
        assert_eq!(result.unwrap(), "compiled");
        drop(ends);
    }

    #[test]
    fn a_caller_waits_while_too_many_compilers_run() {
        let compilers = Arc::default();
        let mut ends: Vec<_> = (0..MAX_THREADS).map(|_| start_and_give_up(&compilers)).collect();
        // Nothing starts, and the caller does not wait longer than its request lasts.
        let (result, _end) = give_up(&compilers);
        assert_eq!(result.unwrap_err().code(), Code::Cancelled);
        assert!(compilers.counts().waiting.is_empty());
        // When one has ended, the next one starts.
        ends.pop();
        let result = run(GRAMMAR, &compilers, &CompileTime::unlimited(), |_| Ok(1));
        assert_eq!(result.unwrap(), 1);
    }

    #[test]
    fn a_compiler_learns_that_it_was_given_up() {
        let compilers = Arc::default();
        let (send, receive) = channel();
        let compile = move |compilation: &Compilation| {
            while compilation.check().is_ok() {
                std::thread::yield_now();
            }
            send.send(()).unwrap();
            Ok(())
        };
        let _ = run(GRAMMAR, &compilers, &CompileTime::until(&|| true), compile);
        // A caller whose request is over may leave before its compiler starts.
        let _ = receive.recv();
    }

    #[test]
    fn callers_start_in_the_order_of_their_arrival() {
        let mut counts =
            CompilerCounts { waiting: VecDeque::from([1, 2]), ..CompilerCounts::default() };
        assert!(counts.may_start(1) && !counts.may_start(2));
        counts.running = MAX_RUNNING;
        assert!(!counts.may_start(1));
        (counts.running, counts.given_up) = (0, MAX_THREADS);
        assert!(!counts.may_start(1));
    }
}
