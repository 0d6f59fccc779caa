//! Watches a waiting call: ends it when it is cancelled, late or without progress.
//!
//! The helper is not trusted. What it takes is read from /proc. If nobody can cancel a call, only
//! what must come to an end counts as its progress.

use std::io::{self, ErrorKind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::connection::Kind;
use super::helper::Helper;
use super::reasoning_end::ReasoningEnd;
use super::worker_use::{self, WorkerState};
use crate::process;

/// How long a call may continue after it was cancelled or reached its deadline.
pub(super) const GRACE: Duration = Duration::from_secs(5);
/// How often a waiting call is looked at.
const TICK: Duration = Duration::from_millis(100);
/// The longest time between two looks that counts. The host itself was stopped during the rest.
const MAX_LOOK: Duration = Duration::from_secs(1);

/// What makes a call end early.
#[derive(Default)]
pub(super) struct HelperCallLimits<'a> {
    pub(super) cancel: Option<&'a AtomicBool>,
    pub(super) deadline: Option<Instant>,
    pub(super) progress: ProgressLimits,
    /// Ends the reasoning of the reply when the caller asks for it.
    pub(super) end_reasoning: Option<&'a ReasoningEnd>,
}

/// What a call may take between two steps of its progress.
#[derive(Debug, Clone, Copy)]
pub(super) struct ProgressLimits {
    /// Processor time.
    pub(super) work: Option<Duration>,
    /// Time in which a thread of the worker waits for a disk.
    pub(super) disk: Option<Duration>,
    /// Time in which no thread of the worker computes or waits for a disk: it sleeps, or it was
    /// stopped.
    pub(super) idle: Duration,
}

impl Default for ProgressLimits {
    /// The limits of a call that can be cancelled.
    fn default() -> ProgressLimits {
        ProgressLimits { work: None, disk: None, idle: Duration::from_secs(120) }
    }
}

impl ProgressLimits {
    /// The limits of a call that nobody can cancel: a base, and an allowance for each gigabyte that
    /// it reads. A slow disk gives 10 MB/s.
    pub(super) fn of_reading(gigabytes: f64) -> ProgressLimits {
        let seconds = |base: f64, each: f64| Some(Duration::from_secs_f64(base + each * gigabytes));
        ProgressLimits {
            work: seconds(8.0, 8.0),
            disk: seconds(600.0, 100.0),
            ..ProgressLimits::default()
        }
    }
}

/// What a call has taken since its last progress.
#[derive(Debug, Default)]
struct Taken {
    work: Duration,
    disk: Duration,
    idle: Duration,
}

impl Taken {
    /// Adds the time since the last look, and the processor time of all threads in it.
    fn add(&mut self, elapsed: Duration, work: Duration, state: impl FnOnce() -> WorkerState) {
        self.work += work;
        if work >= elapsed / 2 {
            return;
        }
        match state() {
            WorkerState::Runs => {}
            WorkerState::WaitsForDisk => self.disk += elapsed,
            WorkerState::Sleeps => self.idle += elapsed,
        }
    }

    /// What exceeds the limits, as a part of a message.
    fn excess(&self, limits: &ProgressLimits) -> Option<String> {
        let over = |taken: Duration, most: Option<Duration>| most.filter(|most| taken > *most);
        let told = |what: &str, most: Duration| format!("{what} for {:.0} s", most.as_secs_f64());
        if let Some(most) = over(self.work, limits.work) {
            return Some(told("computed", most) + " without progress");
        }
        if let Some(most) = over(self.disk, limits.disk) {
            return Some(told("waited for a disk", most) + " without progress");
        }
        over(self.idle, Some(limits.idle)).map(|most| told("did nothing", most))
    }
}

/// Watches one call.
pub(super) struct CallWatch<'a> {
    helper: &'a Helper,
    limits: &'a HelperCallLimits<'a>,
    call: u64,
    connection: u64,
    /// When the call was cancelled or reached its deadline.
    over: Option<Instant>,
    taken: Taken,
    /// The last percent of the file that was loaded.
    percent: Option<u8>,
    /// When the worker was last looked at, and its processor time then.
    looked: Instant,
    work: Option<Duration>,
}

impl<'a> CallWatch<'a> {
    pub(super) fn new(
        helper: &'a Helper,
        limits: &'a HelperCallLimits,
        call: u64,
        connection: u64,
    ) -> Self {
        CallWatch {
            helper,
            limits,
            call,
            connection,
            over: None,
            taken: Taken::default(),
            percent: None,
            looked: Instant::now(),
            work: worker_use::processor_time(helper.worker()),
        }
    }

    /// Returns when to look again. An error means that the call is over and the helper was ended.
    pub(super) fn look(&mut self) -> io::Result<Option<Instant>> {
        let now = Instant::now();
        let gone = || io::Error::from(ErrorKind::TimedOut);
        if process::is_exiting() {
            return Err(gone());
        }
        let is_late = self.limits.deadline.is_some_and(|deadline| now >= deadline);
        let is_cancelled = self.limits.cancel.is_some_and(|flag| flag.load(Ordering::Relaxed));
        if self.over.is_none() && (is_late || is_cancelled) {
            self.over = Some(now);
            self.helper.cancel(self.connection, self.call);
        }
        if self.over.is_some_and(|over| now >= over + GRACE) {
            let seconds = GRACE.as_secs();
            self.helper.kill(&format!("did not end a cancelled call within {seconds} s"));
            return Err(gone());
        }
        self.look_at_worker(now);
        if let Some(deed) = self.taken.excess(&self.limits.progress) {
            self.helper.kill(&deed);
            return Err(gone());
        }
        let tick = now + TICK;
        Ok(Some(
            self.limits.deadline.filter(|_| self.over.is_none()).map_or(tick, |at| at.min(tick)),
        ))
    }

    fn look_at_worker(&mut self, now: Instant) {
        let elapsed = now.saturating_duration_since(self.looked);
        if elapsed < TICK {
            return;
        }
        self.looked = now;
        let Some(work) = worker_use::processor_time(self.helper.worker()) else { return };
        let done = work.saturating_sub(self.work.replace(work).unwrap_or(work));
        let others = self.helper.other_calls();
        let own_work = if others.compute { Duration::ZERO } else { done };
        self.taken.add(elapsed.min(MAX_LOOK), own_work, || {
            // A helper whose call waits for a callback of the host may do nothing.
            if done >= elapsed / 2 || others.wait_for_host {
                return WorkerState::Runs;
            }
            worker_use::state(self.helper.worker())
        });
    }

    /// Notes a frame. Pieces are progress unless nobody can cancel the call. So is each percent of
    /// the file, but no other event: an endless series of them must not keep the call alive.
    pub(super) fn note_frame(&mut self, kind: Kind, text: &str) {
        let is_progress = match kind {
            Kind::Piece => self.limits.progress.work.is_none(),
            _ => {
                let percent = load_progress(text).map(|progress| (progress * 100.0) as u8);
                let grows = percent.is_some() && percent > self.percent;
                self.percent = self.percent.max(percent);
                grows
            }
        };
        if is_progress {
            self.taken = Taken::default();
        }
    }

    /// Leaves out the time of a callback of the host, which began at `start`.
    pub(super) fn skip_callback(&mut self, start: Instant) {
        self.looked += start.elapsed();
    }
}

/// The progress in an event, from 0 to 1; `None` if it is another event.
pub(super) fn load_progress(event: &str) -> Option<f64> {
    let progress = event.strip_prefix("load_progress:")?.parse::<f64>().ok()?;
    (!progress.is_nan()).then(|| progress.clamp(0.0, 1.0))
}
