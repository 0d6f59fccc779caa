//! Shares the processors among the engines of this process that are computing.
//!
//! Each engine gets an equal part of the threads, and those that the others do not use.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::process::{self, Shared};

/// An engine that pauses between two decodes still counts as computing for this long.
const PAUSE: Duration = Duration::from_millis(20);

/// An engine that is computing or has computed.
struct Busy {
    id: u64,
    /// The number of forks when the engine computed. A forked child has none of its parent's
    /// engines.
    forks: usize,
    threads: usize,
    /// When the last decode ended; `None` during a decode.
    ended: Option<Instant>,
}

static BUSY: Shared<Vec<Busy>> = Shared::new(Vec::new());

/// Identifies an engine among those of the process.
pub(super) struct EngineSeat {
    id: u64,
}

/// Marks a running decode. The decode ends when this is dropped.
pub(super) struct Turn<'a> {
    seat: &'a EngineSeat,
}

impl EngineSeat {
    pub(super) fn take() -> EngineSeat {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        EngineSeat { id: NEXT.fetch_add(1, Ordering::Relaxed) }
    }

    /// How many threads this engine may use now, if all processors together suffice for `most`.
    pub(super) fn allowed(&self, most: usize) -> usize {
        let now = Instant::now();
        let is_active = |busy: &&Busy| {
            busy.id != self.id
                && busy.forks == process::forks()
                && busy.ended.is_none_or(|ended| now.saturating_duration_since(ended) < PAUSE)
        };
        let others: Vec<usize> =
            BUSY.lock().iter().filter(is_active).map(|busy| busy.threads).collect();
        allowed_among(most, &others)
    }

    /// Marks that the engine has nothing to decode.
    pub(super) fn leave(&self) {
        BUSY.lock().retain(|busy| busy.id != self.id);
    }

    /// Begins a decode with this many threads.
    pub(super) fn begin(&self, threads: usize) -> Turn<'_> {
        let mut engines = BUSY.lock();
        engines.retain(|busy| busy.id != self.id);
        engines.push(Busy { id: self.id, forks: process::forks(), threads, ended: None });
        Turn { seat: self }
    }
}

impl Drop for EngineSeat {
    fn drop(&mut self) {
        self.leave();
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut engines = BUSY.lock();
        if let Some(busy) = engines.iter_mut().find(|busy| busy.id == self.seat.id) {
            busy.ended = Some(Instant::now());
        }
    }
}

/// An equal part of the threads, or what the others leave if that is more; at least 1.
fn allowed_among(most: usize, others: &[usize]) -> usize {
    let equal = most / (others.len() + 1);
    let remaining = most.saturating_sub(others.iter().sum());
    equal.max(remaining).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engines_share_the_threads() {
        assert_eq!(allowed_among(8, &[]), 8);
        // The first engine still uses all threads.
        assert_eq!(allowed_among(8, &[8]), 4);
        assert_eq!(allowed_among(8, &[4]), 4);
        assert_eq!(allowed_among(8, &[1]), 7);
        assert_eq!(allowed_among(8, &[4, 4]), 2);
        assert_eq!(allowed_among(2, &[1, 1]), 1);
        assert_eq!(allowed_among(1, &[1]), 1);
    }

    #[test]
    fn an_engine_counts_while_it_computes() {
        // Other tests may hold seats, but these two ask for more threads than they use.
        let (first, second) = (EngineSeat::take(), EngineSeat::take());
        let before = second.allowed(10_000);
        let turn = first.begin(9_000);
        assert!(second.allowed(10_000) < before);
        drop(turn);
        first.leave();
        assert!(second.allowed(10_000) >= before / 2);
    }
}
