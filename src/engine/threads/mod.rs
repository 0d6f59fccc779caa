//! How many threads compute a decode: as many as the machine has processors for.
//!
//! llama.cpp's threads wait for each other after each operation, in a loop. While one of them is not
//! running, because another program has its processor, all others wait: with one thread more than
//! there are free processors, a decode can take ten times as long. The number of threads therefore
//! follows what earlier decodes took (`level`), and engines of one process share the processors
//! (`share`).
//!
//! A decode that takes much longer than it should is given up and computed again with fewer threads.

mod level;
mod share;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use self::level::{Level, StepCost, StepPlan};
use self::share::EngineSeat;
use super::backend::{Backend, BatchEntry, Decoded};
use crate::error::Result;

/// The threads of a backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ThreadLimits {
    /// The most threads of a decode, at least 1. The number, if it is not adapted.
    pub most: usize,
    /// The processors of the machine that this process may use.
    pub processors: usize,
    /// Who decides.
    pub policy: ThreadPolicy,
}

/// Who decides on the number of threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ThreadPolicy {
    /// The caller: every decode has the most threads.
    Pinned,
    /// The controller.
    Adaptive,
    /// Nobody: a device computes, and the threads do little.
    Device,
}

/// What a finished decode had.
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

/// Decodes of one kind take about the same time per unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct StepKind {
    /// Whether some entries need no logits.
    is_prefill: bool,
    /// The power of two that is not less than the number of entries.
    size: usize,
}

impl StepKind {
    fn of(batch: &[BatchEntry]) -> StepKind {
        StepKind {
            is_prefill: batch.iter().any(|entry| !entry.logits),
            size: batch.len().next_power_of_two(),
        }
    }

    /// What the time of a decode is proportional to. The time of a small batch is that of reading
    /// the weights.
    fn units(batch: &[BatchEntry]) -> f64 {
        if batch.len() > 8 { batch.len() as f64 } else { 1.0 }
    }

    /// Whether its operations take longer than a thread waits for a processor. The others then do
    /// the part of the thread that waits, so more threads than processors hardly hurt
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
    /// The kind of the last decode whose operations are short.
    last_fine: Option<StepKind>,
    last_wall: Duration,
}

/// How long a thread was kept waiting is read twice for each decode, which takes a few
/// microseconds. It is not read for decodes that take less than this for each thread.
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

    /// [`Backend::decode`] with the number of threads that is best now. `Aborted` also if the decode
    /// took so long that it is to be tried again with another number.
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
        // What an aborted decode destroys is worth more than the time.
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

    /// There is nothing to decode for now.
    pub(crate) fn rest(&self) {
        self.seat.iter().for_each(EngineSeat::leave);
    }

    /// [`Backend::waited`], unless reading it would take a noticeable part of such short decodes.
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

    /// The first level of a kind: that of the kind before, and no slower than a larger batch.
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
