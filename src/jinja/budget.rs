//! Limits of one render: steps, time, live memory and nesting. Code whose cost grows with its input
//! asks here first.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use super::error::{Result, limit_error};

/// Limits of one render.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bounds {
    /// Maximum steps. An expression, an item and 256 bytes of text cost one step each.
    pub(crate) fuel: u64,
    /// Maximum bytes of the result.
    pub(crate) output_bytes: usize,
    /// Maximum depth of macro calls.
    pub(crate) recursion: usize,
    /// Maximum bytes of live values that the template created, including the result.
    pub(crate) memory_bytes: usize,
    /// Maximum processor time.
    pub(crate) time: Duration,
}

/// Maximum depth of statements, expressions and filters across all macro calls. It bounds the
/// stack.
const MAX_NESTING: usize = 12_000;
/// Steps between two clock reads.
const CLOCK_STEPS: u64 = 2_000;
/// Bytes of text that cost one step.
const BYTES_PER_STEP: usize = 256;
/// The stack that must be free at each level of nesting, and the size of a new stack segment.
/// Comparing, printing and dropping values need no more than the red zone.
const RED_ZONE: usize = 256 << 10;
const MORE_STACK: usize = 2 << 20;

/// The unused part of the [`Bounds`].
#[derive(Debug)]
pub(crate) struct Budget {
    bounds: Bounds,
    started: Duration,
    /// Steps remaining until the next clock read.
    until_clock: Cell<u64>,
    /// Steps remaining after `until_clock`.
    fuel: Cell<u64>,
    live: Cell<usize>,
    nesting: Cell<usize>,
    calls: Cell<usize>,
}

impl Budget {
    pub(crate) fn new(bounds: Bounds) -> Rc<Budget> {
        // Most renders end before the first clock read.
        let first = CLOCK_STEPS.min(bounds.fuel);
        Rc::new(Budget {
            bounds,
            started: thread_time(),
            until_clock: Cell::new(first),
            fuel: Cell::new(bounds.fuel - first),
            live: Cell::new(0),
            nesting: Cell::new(0),
            calls: Cell::new(0),
        })
    }

    /// Spends steps.
    #[inline]
    pub(crate) fn step(&self, steps: u64) -> Result<()> {
        match self.until_clock.get().checked_sub(steps) {
            Some(remaining) => {
                self.until_clock.set(remaining);
                Ok(())
            }
            None => self.refill(steps),
        }
    }

    #[cold]
    fn refill(&self, steps: u64) -> Result<()> {
        // Checks the total of the unchecked charges.
        self.can_allocate(0)?;
        if self.time() > self.bounds.time {
            return limit_error(format!(
                "the template runs longer than {} ms",
                self.bounds.time.as_millis()
            ));
        }
        let wanted =
            steps.saturating_sub(self.until_clock.get()).max(CLOCK_STEPS).min(self.fuel.get());
        let available = self.until_clock.get() + wanted;
        match available.checked_sub(steps) {
            Some(remaining) => {
                self.fuel.set(self.fuel.get() - wanted);
                self.until_clock.set(remaining);
                Ok(())
            }
            None => limit_error(format!("the template takes more than {} steps", self.bounds.fuel)),
        }
    }

    /// Spends the steps for reading or writing text of this length.
    #[inline]
    pub(crate) fn step_bytes(&self, bytes: usize) -> Result<()> {
        self.step(1 + (bytes / BYTES_PER_STEP) as u64)
    }

    /// Spends the steps for reading an operand of this length. Reading a short one is free, because
    /// evaluating it costs a step.
    #[inline]
    pub(crate) fn read(&self, bytes: usize) -> Result<()> {
        self.step((bytes / BYTES_PER_STEP) as u64)
    }

    /// The steps spent so far.
    pub(crate) fn spent(&self) -> u64 {
        self.bounds.fuel - self.fuel.get() - self.until_clock.get()
    }

    /// The processor time since the start.
    pub(crate) fn time(&self) -> Duration {
        thread_time().saturating_sub(self.started)
    }

    /// Bytes that may still be allocated.
    pub(crate) fn memory_remaining(&self) -> usize {
        self.bounds.memory_bytes.saturating_sub(self.live.get())
    }

    /// Fails if this many more bytes exceed the memory limit.
    pub(crate) fn can_allocate(&self, bytes: usize) -> Result<()> {
        if bytes > self.memory_remaining() || self.live.get() > self.bounds.memory_bytes {
            return limit_error(format!(
                "the template's values exceed {} bytes",
                self.bounds.memory_bytes
            ));
        }
        Ok(())
    }

    /// Accounts for memory until the charge is dropped.
    pub(crate) fn charge(self: &Rc<Budget>, bytes: usize) -> Result<Charge> {
        self.can_allocate(bytes)?;
        self.live.set(self.live.get() + bytes);
        Ok(Charge { budget: Some(Rc::clone(self)), bytes })
    }

    /// Like [`Budget::charge`], for one small value. Exceeding the limit fails at a later step.
    pub(crate) fn charge_unchecked(self: &Rc<Budget>, bytes: usize) -> Charge {
        self.live.set(self.live.get().saturating_add(bytes));
        Charge { budget: Some(Rc::clone(self)), bytes }
    }

    /// The maximum length of the result.
    pub(crate) fn output_bytes(&self) -> usize {
        self.bounds.output_bytes
    }

    /// Runs a closure one level deeper and grows the stack if needed.
    #[inline]
    pub(crate) fn nested<T>(&self, run: impl FnOnce() -> Result<T>) -> Result<T> {
        let nesting = self.nesting.get();
        if nesting >= MAX_NESTING {
            return limit_error(format!(
                "the template nests deeper than {MAX_NESTING} levels at run time"
            ));
        }
        self.nesting.set(nesting + 1);
        let result = stacker::maybe_grow(RED_ZONE, MORE_STACK, run);
        self.nesting.set(nesting);
        result
    }

    /// Runs a macro call.
    pub(crate) fn in_call<T>(&self, run: impl FnOnce() -> Result<T>) -> Result<T> {
        let calls = self.calls.get();
        if calls >= self.bounds.recursion {
            return limit_error(format!("macro calls nest deeper than {}", self.bounds.recursion));
        }
        self.calls.set(calls + 1);
        let result = run();
        self.calls.set(calls);
        result
    }
}

/// The processor time of this thread. Waiting on a busy machine does not count.
#[cfg(unix)]
pub(crate) fn thread_time() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(now).unwrap_or_default()
}

/// The wall-clock time where no thread clock is available.
#[cfg(not(unix))]
pub(crate) fn thread_time() -> Duration {
    static START: crate::process::Lazy<std::time::Instant> =
        crate::process::Lazy::new(std::time::Instant::now);
    START.elapsed()
}

/// Accounted memory, released on drop.
#[derive(Debug, Default)]
pub(crate) struct Charge {
    budget: Option<Rc<Budget>>,
    bytes: usize,
}

impl Charge {
    /// A charge for the caller's data, which is not accounted.
    pub(crate) fn none() -> Charge {
        Charge::default()
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        if let Some(budget) = &self.budget {
            budget.live.set(budget.live.get() - self.bytes);
        }
    }
}
