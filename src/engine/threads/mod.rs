//! Chooses how many threads compute a decode: as many as there are free processors.
//!
//! llama.cpp's threads wait for each other in a loop after each operation. While another program
//! occupies the processor of one thread, all others wait. With one thread more than there are free
//! processors, a decode can take ten times as long. The number of threads therefore follows the
//! cost of earlier decodes (`level`), and the engines of a process share the processors (`share`).
//!
//! A decode that takes much longer than expected is given up and computed again with fewer threads.

mod level;
mod share;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use self::level::{Level, StepCost, StepPlan};
use self::share::EngineSeat;
use super::backend::{Backend, BatchEntry, Decoded, ThreadLimits, ThreadPolicy};
use crate::error::Result;

/// The threads of a finished decode, and its time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StepThreads {
    /// Its threads.
    pub(crate) threads: usize,
    /// Its time.
    pub(crate) wall: Duration,
}

/// The mean number of threads over the decodes of a reply, weighted by their time.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct MeanThreads {
    seconds: f64,
    thread_seconds: f64,
}

impl MeanThreads {
    pub(crate) fn add(&mut self, step: StepThreads) {
        let seconds = step.wall.as_secs_f64();
        self.seconds += seconds;
        self.thread_seconds += seconds * step.threads as f64;
    }

    /// `None` before the first decode.
    pub(crate) fn get(self) -> Option<f64> {
        (self.seconds > 0.0).then(|| self.thread_seconds / self.seconds)
    }
}

/// A kind of decode. Decodes of one kind take about the same time per unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct StepKind {
    /// Whether some entries need no logits.
    is_prefill: bool,
    /// The number of entries, rounded up to a power of two.
    size: usize,
}

impl StepKind {
    fn of(batch: &[BatchEntry]) -> StepKind {
        StepKind {
            is_prefill: batch.iter().any(|entry| !entry.logits),
            size: batch.len().next_power_of_two(),
        }
    }

    /// The work of a batch, to which its time is proportional. A small batch takes as long as
    /// reading the weights.
    fn units(batch: &[BatchEntry]) -> f64 {
        if batch.len() > 8 { batch.len() as f64 } else { 1.0 }
    }

    /// Whether an operation takes longer than a thread waits for a processor. The other threads
    /// then take over the work of the waiting thread, so more threads than processors hardly hurt
    /// (`docs/performance.md` has the figures).
    fn is_coarse(self) -> bool {
        self.size > 128
    }
}

/// Chooses the threads of each decode of one backend.
pub(crate) struct ThreadController {
    limits: ThreadLimits,
    seat: Option<EngineSeat>,
    start: Instant,
    levels: BTreeMap<StepKind, Level>,
    /// The kind of the last decode whose operations were short.
    last_fine: Option<StepKind>,
    last_wall: Duration,
}

/// Waiting times are read twice for each decode, which takes a few microseconds per thread. They
/// are not read for decodes that take less than this per thread.
const WORTH_READING: Duration = Duration::from_micros(400);

impl ThreadController {
    pub(crate) fn new(limits: ThreadLimits) -> Self {
        let shares = limits.policy != ThreadPolicy::Device;
        ThreadController {
            limits,
            seat: shares.then(EngineSeat::take),
            start: Instant::now(),
            levels: BTreeMap::new(),
            last_fine: None,
            last_wall: Duration::MAX,
        }
    }

    /// Runs [`Backend::decode`] with the number of threads that is best now. Also returns `Aborted`
    /// if the decode took so long that it should be tried again with another number.
    pub(crate) fn decode(
        &mut self,
        backend: &mut dyn Backend,
        batch: &[BatchEntry],
        abort: &(dyn Fn() -> bool + Sync),
    ) -> (Result<Decoded>, StepThreads) {
        let ThreadLimits { most, policy, .. } = self.limits;
        let start = Instant::now();
        if policy != ThreadPolicy::Adaptive || most == 1 {
            let turn = self.seat.as_ref().map(|seat| seat.begin(most));
            let decoded = backend.decode(batch, abort);
            drop(turn);
            return (decoded, StepThreads { threads: most, wall: start.elapsed() });
        }
        let allowed = self.seat.as_ref().map_or(most, |seat| seat.allowed(most));
        let kind = StepKind::of(batch);
        let now = start.duration_since(self.start).as_secs_f64();
        let plan = self.plan(kind, StepKind::units(batch), allowed, now);
        backend.set_threads(plan.threads);
        let turn = self.seat.as_ref().map(|seat| seat.begin(plan.threads));
        let before = self.waited(backend, plan.threads);
        let given_up = AtomicBool::new(false);
        // If an abort destroys states, they are worth more than the time that it saves.
        let patience = plan.patience.filter(|_| backend.is_divisible());
        let patience = patience.map(Duration::from_secs_f64);
        let is_over = || {
            if abort() {
                return true;
            }
            let is_late = patience.is_some_and(|patience| start.elapsed() > patience);
            if is_late {
                given_up.store(true, Ordering::Relaxed);
            }
            is_late
        };
        let decoded = backend.decode(batch, &is_over);
        let wall = start.elapsed();
        drop(turn);
        let given_up = given_up.into_inner() && matches!(decoded, Ok(Decoded::Aborted));
        if given_up || matches!(decoded, Ok(Decoded::Done)) {
            self.last_wall = wall;
            let waited = before.zip(before.and_then(|_| backend.waited(plan.threads)));
            let waited = waited.map(|(from, to)| to.saturating_sub(from).as_secs_f64());
            let wall = wall.as_secs_f64();
            self.record(kind, plan, StepCost { wall, waited, given_up }, now + wall);
        }
        (decoded, StepThreads { threads: plan.threads, wall })
    }

    /// Marks that there is nothing to decode for now.
    pub(crate) fn rest(&self) {
        self.seat.iter().for_each(EngineSeat::leave);
    }

    /// Reads [`Backend::waited`], unless that would take a noticeable part of such a short decode.
    fn waited(&self, backend: &dyn Backend, threads: usize) -> Option<Duration> {
        let is_cheap = self.last_wall >= WORTH_READING * threads as u32;
        if is_cheap { backend.waited(threads) } else { None }
    }

    /// The plan of the next decode. Times are in seconds.
    fn plan(&mut self, kind: StepKind, units: f64, allowed: usize, now: f64) -> StepPlan {
        if !self.levels.contains_key(&kind) {
            let level = self.new_level(kind, units);
            self.levels.insert(kind, level);
        }
        if !kind.is_coarse() {
            self.last_fine = Some(kind);
        }
        let level = self.levels.get_mut(&kind).expect("inserted above");
        level.next(units, allowed.min(self.limits.most), now)
    }

    /// The first level of a kind. It starts with the threads of the previous kind, and expects no
    /// more time than a larger batch takes.
    fn new_level(&self, kind: StepKind, units: f64) -> Level {
        let ThreadLimits { most, processors, .. } = self.limits;
        let mut level = Level::new(most, processors, kind.is_coarse());
        let last = self.last_fine.and_then(|last| self.levels.get(&last));
        if let (Some(last), false) = (last, kind.is_coarse()) {
            let larger = self.levels.iter().filter(|(other, _)| other.size >= kind.size);
            let expected = larger.filter_map(|(_, level)| level.expected()).reduce(f64::min);
            level.begin_like(last, expected.map(|seconds| seconds / units));
        }
        level
    }

    fn record(&mut self, kind: StepKind, plan: StepPlan, cost: StepCost, now: f64) {
        if let Some(level) = self.levels.get_mut(&kind) {
            level.record(plan, cost, now);
        }
    }
}
