//! Chooses the number of threads for decodes of one kind.
//!
//! The input is the cost of each decode: its time, and how long its threads waited for a processor.
//! The cost shows how many other threads compete for the processors, and so how long a decode with
//! fewer threads would take. If that is shorter, the number is lowered.
//!
//! The number is raised by trial: one decode runs with more threads, and the number is kept if the
//! decode was faster. Failed trials take at most a small share of the time. While threads have to
//! wait for a processor, trials are rare.
//!
//! Nothing here reads a clock. Times are in seconds. The time of a decode is per unit of work.

use std::collections::BTreeMap;

/// The interval at which the number is reconsidered.
const WINDOW: f64 = 0.1;
/// A decode is calm if fewer threads of other programs than this kept its threads from running.
const CALM: f64 = 0.5;
/// If the threads run for less than the first share of the time, they compete with threads of other
/// programs. Above the second share they no longer do.
const HELD: f64 = 0.85;
const RELEASED: f64 = 0.95;
/// Estimated shares are never smaller than this.
const MIN_SHARE: f64 = 0.02;
/// The factor by which the time of decodes varies. It matters only where waiting has to be
/// estimated from the time.
const WALL_SLACK: f64 = 1.1;
/// The least share that is estimated from the time alone. Threads that wait for each other take
/// much longer than the share suggests.
const MIN_BY_WALL: f64 = 0.8;
/// A processor counts as free if others use less than this share of it.
const TOLERANCE: f64 = 0.3;
/// The number is lowered if fewer threads should be faster by this factor.
const LOWER: f64 = 1.05;
/// A trial succeeds if its time is below this multiple of the usual time.
const RAISE: f64 = 0.97;
/// A trial is given up after this multiple of the usual time.
const TRIAL_PATIENCE: f64 = 1.25;
/// Any other decode is given up after this multiple of the usual time plus `SLACK`.
const PATIENCE: f64 = 3.0;
const SLACK: f64 = 0.02;
/// The maximum share of time that failed trials may take.
const TRIAL_COST: f64 = 0.06;
/// The same limit while the threads have to wait for a processor.
const HELD_TRIAL_COST: f64 = 0.015;
/// The shortest pause between trials, and the longest: seconds, or multiples of the usual time.
const MIN_WAIT: f64 = 0.25;
const MAX_WAIT: f64 = 0.9;
const MAX_WAIT_USUAL: f64 = 20.0;
/// The shortest pause once the threads no longer have to wait.
const RELEASED_WAIT: f64 = 0.4;
/// The longest pause after the number was lowered soon after it had been raised.
const MAX_PENALTY: f64 = 0.8;
/// How long after a raise a lowering counts as soon.
const RECENTLY: f64 = 2.0;

/// How to compute the next decode.
#[derive(Debug, Clone, Copy)]
pub(super) struct StepPlan {
    pub(super) threads: usize,
    /// When to give the decode up; `None` for never.
    pub(super) patience: Option<f64>,
    is_trial: bool,
    units: f64,
}

/// The cost of a decode.
#[derive(Debug, Clone, Copy)]
pub(super) struct StepCost {
    pub(super) wall: f64,
    /// How long the threads waited for a processor, in total. `None` if the system does not report
    /// it.
    pub(super) waited: Option<f64>,
    /// Whether the decode was given up.
    pub(super) given_up: bool,
}

/// The decodes since the number was last reconsidered.
#[derive(Debug, Clone, Copy, Default)]
struct Window {
    decodes: f64,
    /// The work of the decodes, in units.
    units: f64,
    wall: f64,
    waited: Option<f64>,
}

/// The number of threads for one kind of decode, and the measurements it is based on.
#[derive(Debug)]
pub(super) struct Level {
    most: usize,
    processors: f64,
    /// Whether operations take long, so decodes of this kind are never given up.
    coarse: bool,
    threads: usize,
    /// The time of calm decodes, by number of threads.
    calm: BTreeMap<usize, f64>,
    /// The usual time of a decode with `threads` threads; `None` before the first.
    usual: Option<f64>,
    /// The time that the first decode should take at most.
    expected: Option<f64>,
    window: Window,
    /// Whether the threads had to wait for processors in the last window.
    held: bool,
    trials: Trials,
    /// The work of the last planned decode.
    units: f64,
}

/// The trials with more threads. Times are when something happened or may happen.
#[derive(Debug)]
struct Trials {
    /// How many threads the next trial adds.
    stride: usize,
    /// The next trial.
    next: f64,
    /// The next trial while the threads have to wait for processors.
    held_until: f64,
    /// The last trial that failed.
    failed: f64,
    /// The last trial that succeeded.
    raised: f64,
    /// The pause after the number was lowered.
    penalty: f64,
}

impl Level {
    /// Starts with the maximum number of threads.
    pub(super) fn new(most: usize, processors: usize, coarse: bool) -> Level {
        Level {
            most,
            processors: processors.max(most) as f64,
            coarse,
            threads: most,
            calm: BTreeMap::new(),
            usual: None,
            expected: None,
            window: Window::default(),
            held: false,
            trials: Trials {
                stride: 1,
                next: 0.0,
                held_until: 0.0,
                failed: f64::NEG_INFINITY,
                raised: f64::NEG_INFINITY,
                penalty: MIN_WAIT,
            },
            units: 1.0,
        }
    }

    /// Starts with the number of threads of another kind. A decode should take at most `expected`.
    pub(super) fn begin_like(&mut self, other: &Level, expected: Option<f64>) {
        self.threads = other.threads;
        self.expected = expected;
        self.held = other.held;
        self.trials.next = other.trials.next;
        self.trials.held_until = other.trials.held_until;
    }

    /// The usual time of the last decode, for all its units.
    pub(super) fn expected(&self) -> Option<f64> {
        self.usual.map(|usual| usual * self.units)
    }

    /// Plans the next decode, of this many units and with at most `allowed` threads.
    pub(super) fn next(&mut self, units: f64, allowed: usize, now: f64) -> StepPlan {
        let allowed = allowed.clamp(1, self.most);
        if allowed < self.threads {
            // Another engine is computing. When it has ended, all threads are tried at once.
            self.trials.stride = self.most;
            self.trials.next = now;
            self.set(allowed);
        }
        self.units = units;
        let usual = self.usual.map(|usual| usual * units);
        let is_due = now >= self.trials.next && (!self.held || now >= self.trials.held_until);
        let is_trial = usual.is_some() && self.threads < allowed && is_due;
        let threads =
            if is_trial { (self.threads + self.trials.stride).min(allowed) } else { self.threads };
        let expected = usual.or(self.expected.map(|expected| expected * units));
        let patience = expected.filter(|_| !self.coarse && threads > 1).map(|usual| {
            if is_trial { usual * TRIAL_PATIENCE + SLACK / 10.0 } else { usual * PATIENCE + SLACK }
        });
        StepPlan { threads, patience, is_trial, units }
    }

    /// Records the cost of a planned decode.
    pub(super) fn record(&mut self, plan: StepPlan, cost: StepCost, now: f64) {
        let wall = cost.wall / plan.units;
        if wall <= 0.0 {
            return;
        }
        let waited = cost.waited.map(|waited| waited / plan.units);
        if plan.is_trial {
            return self.end_trial(plan.threads, wall, waited, cost.given_up, now);
        }
        if plan.threads != self.threads {
            return;
        }
        if cost.given_up {
            let presence = self.presence(wall, waited);
            if waited.is_some() && presence >= self.calm_share() {
                // The decode did not wait, so decodes have become longer.
                self.usual = Some(wall);
                return;
            }
            return self.lower(self.free(presence), now);
        }
        self.learn(wall, waited);
        self.usual = Some(self.usual.map_or(wall, |usual| usual + 0.3 * (wall - usual)));
        self.window.add(plan.units, cost);
        if self.window.wall >= WINDOW {
            let window = std::mem::take(&mut self.window);
            self.reconsider(window, now);
        }
    }

    /// The share of the decode's time for which its threads had processors.
    fn presence(&self, wall: f64, waited: Option<f64>) -> f64 {
        if let Some(waited) = waited {
            let share = 1.0 - waited / (wall * self.threads as f64);
            return share.clamp(MIN_SHARE, 1.0);
        }
        let by_wall = self.calm.get(&self.threads).map_or(1.0, |calm| WALL_SLACK * calm / wall);
        if by_wall < self.calm_share() { by_wall.max(MIN_BY_WALL) } else { 1.0 }
    }

    /// The least share of its time for which the threads of a calm decode have processors.
    fn calm_share(&self) -> f64 {
        1.0 - CALM / (self.threads + 1) as f64
    }

    fn learn(&mut self, wall: f64, waited: Option<f64>) {
        let is_calm = self.presence(wall, waited) >= self.calm_share();
        // A single thread does the same work, no matter how long it waits.
        let (wall, is_calm) = match waited {
            Some(waited) if self.threads == 1 => ((wall - waited).max(0.0), true),
            _ => (wall, is_calm),
        };
        match self.calm.get_mut(&self.threads) {
            Some(calm) if is_calm => *calm += 0.2 * (wall - *calm),
            // The time alone does not distinguish a slow drift from waiting.
            Some(calm) if waited.is_none() => *calm += 0.02 * (wall - *calm),
            None if is_calm => drop(self.calm.insert(self.threads, wall)),
            _ => {}
        }
    }

    /// How many threads can run beside the threads of other programs, which have kept the present
    /// ones waiting.
    fn free(&self, presence: f64) -> usize {
        let free = self.processors - self.competitors(presence) + TOLERANCE;
        free.clamp(1.0, self.most as f64) as usize
    }

    /// The estimated number of threads of other programs. The system gives all runnable threads an
    /// equal part of the processors.
    fn competitors(&self, presence: f64) -> f64 {
        let threads = self.threads as f64;
        let running = threads * presence;
        threads * (self.processors - running).max(0.0) / running
    }

    /// The expected time of a calm decode with this many threads; `None` before the first calm
    /// decode.
    fn seconds(&self, threads: usize) -> Option<f64> {
        let below = self.calm.range(..=threads).next_back();
        let (known, calm) = below.or_else(|| self.calm.range(threads..).next())?;
        Some(calm * *known as f64 / threads as f64)
    }

    fn reconsider(&mut self, window: Window, now: f64) {
        let wall = window.wall / window.units;
        let waited = window.waited.map(|waited| waited / window.units);
        let presence = self.presence(wall, waited);
        if self.held && presence >= RELEASED {
            self.held = false;
            self.trials.next = self.trials.next.min(self.trials.failed + RELEASED_WAIT);
        } else if !self.held && presence < HELD {
            self.held = true;
            self.hold(now);
        }
        if presence >= self.calm_share() || self.threads == 1 {
            return;
        }
        let fewer = self.free(presence).min(self.threads - 1);
        let waiting = (fewer as f64 + self.competitors(presence)) / self.processors;
        match self.seconds(fewer) {
            Some(seconds) if wall > LOWER * seconds * waiting.max(1.0) => self.lower(fewer, now),
            None if !self.coarse => {
                self.lower(fewer, now);
                self.trials.next = now;
            }
            _ => {}
        }
    }

    fn lower(&mut self, threads: usize, now: f64) {
        let again = now - self.trials.raised < RECENTLY;
        self.trials.penalty =
            if again { (self.trials.penalty * 2.0).min(MAX_PENALTY) } else { MIN_WAIT };
        self.trials.next = now + self.trials.penalty;
        self.trials.stride = 1;
        self.set(threads.clamp(1, self.threads.max(2) - 1));
    }

    fn set(&mut self, threads: usize) {
        let fewer = self.threads as f64 / threads as f64;
        self.expected = self.usual.take().or(self.expected).map(|usual| usual * fewer);
        self.threads = threads;
        self.window = Window::default();
        self.held = false;
    }

    /// Allows no trial for as long as a failed one would cost too much.
    fn hold(&mut self, now: f64) {
        let usual = self.usual.unwrap_or_default() * self.units;
        self.trials.held_until = now + (usual * TRIAL_PATIENCE / HELD_TRIAL_COST).max(MIN_WAIT);
    }

    fn end_trial(
        &mut self,
        threads: usize,
        wall: f64,
        waited: Option<f64>,
        given_up: bool,
        now: f64,
    ) {
        let usual = self.usual.unwrap_or(wall);
        if !given_up && wall < RAISE * usual {
            let stride = self.trials.stride.saturating_mul(2);
            self.set(threads);
            self.learn(wall, waited);
            self.usual = Some(wall);
            (self.trials.stride, self.trials.next, self.trials.raised) = (stride, now, now);
            return;
        }
        let lost = if given_up { wall } else { (wall - usual).max(0.0) } * self.units;
        let most = MAX_WAIT.max(MAX_WAIT_USUAL * usual * self.units);
        self.trials.next = now + (lost / TRIAL_COST).clamp(MIN_WAIT, most);
        self.trials.failed = now;
        self.hold(now);
        self.trials.stride = 1;
    }
}

impl Window {
    fn add(&mut self, units: f64, cost: StepCost) {
        let sum = if self.decodes == 0.0 { Some(0.0) } else { self.waited };
        self.waited = sum.zip(cost.waited).map(|(sum, own)| sum + own);
        self.decodes += 1.0;
        self.units += units;
        self.wall += cost.wall;
    }
}
