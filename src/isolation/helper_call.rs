//! A call to a helper: sends it, receives its reply, and ends it when it is cancelled, late or
//! without progress.
//!
//! The helper is not trusted. What it takes is read from /proc. If nobody can cancel a call, only
//! what must come to an end counts as its progress.

use std::io::{self, ErrorKind};
use std::os::fd::BorrowedFd;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::connection::Kind;
use super::helper::{GRACE, Helper, NumberedConnection, json_bytes};
use super::message::{Call, ListenerMessage, read_error};
use super::worker_use::{self, WorkerState};
use crate::error::{Error, Result};
use crate::process;
use crate::sync::lock;

/// How often a waiting call is looked at.
const TICK: Duration = Duration::from_millis(100);
/// The longest time between two looks that counts. The host itself was stopped during the rest.
const MAX_LOOK: Duration = Duration::from_secs(1);

/// The content of a call.
pub(super) struct Request<'a> {
    /// Builds the call from its number.
    pub(super) call: &'a dyn Fn(u64) -> Call,
    pub(super) text: Option<&'a str>,
    pub(super) descriptor: Option<BorrowedFd<'a>>,
}

/// Why a call to a helper failed.
pub(super) enum HelperError {
    /// An error that the helper sent, with the event if a create failed.
    Answered(Error, Option<&'static str>),
    /// The helper has ended. The host wrote the message.
    Ended(Error),
}

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

    /// The limits of a create that also encodes a first picture on one thread, with a projector of
    /// this size. A gigabyte takes 4 * 10^12 operations for each of them, of which a slow processor
    /// does 5 * 10^9 in a second.
    pub(super) fn with_first_picture(mut self, gigabytes: f64) -> ProgressLimits {
        let picture = Duration::from_secs_f64(60.0 + 800.0 * gigabytes);
        self.work = self.work.map(|work| work + picture);
        self
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

impl Helper {
    /// Runs a call and returns its reply. `on_frame` receives its events and pieces.
    pub(super) fn call(
        &self,
        request: &Request,
        limits: &HelperCallLimits,
        on_frame: &mut dyn FnMut(Kind, &str),
    ) -> Result<String, HelperError> {
        let number = self.last_call.fetch_add(1, Ordering::Relaxed) + 1;
        let ended = |_| HelperError::Ended(self.ended());
        let mut running = HelperCall { helper: self, number, connection: None, is_done: false };
        let is_cancellable = limits.progress.work.is_none();
        let _counted = is_cancellable.then(|| CountGuard::new(&self.n_cancellable));
        let connection = running.connection.insert(self.connect().map_err(ended)?);
        if let Some(end) = limits.end_reasoning {
            end.note_sent(connection.number, number).iter().for_each(|message| self.tell(message));
        }
        let mut watch = CallWatch::new(self, limits, number, connection.number);
        let connection = &mut connection.connection;
        let call = json_bytes(&(request.call)(number));
        connection
            .send(Kind::Call, &call, request.descriptor, &mut || watch.look())
            .map_err(ended)?;
        if let Some(text) = request.text {
            let sent = connection.send(Kind::Text, text.as_bytes(), None, &mut || watch.look());
            sent.map_err(|error| match error.kind() {
                ErrorKind::InvalidInput => {
                    self.kill("got a request that is too long");
                    HelperError::Answered(Error::invalid("request", error), None)
                }
                _ => ended(error),
            })?;
        }
        loop {
            let received = connection.receive(&mut || watch.look());
            let (kind, payload) = received.map_err(|error| self.unreadable(error))?;
            let text = String::from_utf8(payload).map_err(|_| self.invalid())?;
            match kind {
                Kind::Event | Kind::Piece => {
                    watch.note_frame(kind, &text);
                    let (start, callback) = (Instant::now(), CountGuard::new(&self.n_callbacks));
                    on_frame(kind, &text);
                    drop(callback);
                    watch.skip_callback(start);
                }
                Kind::Reply => {
                    running.is_done = true;
                    return Ok(text);
                }
                Kind::Failure | Kind::Refusal => {
                    running.is_done = true;
                    if kind == Kind::Refusal {
                        // The helper closes it.
                        running.connection = None;
                    }
                    let (error, event) =
                        read_error(text.as_bytes()).ok_or_else(|| self.invalid())?;
                    return Err(HelperError::Answered(error, event));
                }
                Kind::Call | Kind::Text => return Err(self.invalid()),
            }
        }
    }

    /// Ends the reasoning in the reply to the call of `end`, if it is still running.
    pub(super) fn end_reasoning(&self, end: &ReasoningEnd) {
        end.ask().iter().for_each(|message| self.tell(message));
    }

    fn invalid(&self) -> HelperError {
        self.kill("sent an invalid reply");
        HelperError::Ended(self.ended())
    }

    /// Ends the helper because no frame could be received from it.
    fn unreadable(&self, error: io::Error) -> HelperError {
        match error.kind() {
            ErrorKind::InvalidData => return self.invalid(),
            ErrorKind::OutOfMemory => self.kill("sent a reply that does not fit in memory"),
            _ => {}
        }
        HelperError::Ended(self.ended())
    }
}

/// A call on its connection. The connection is kept if the call is answered. Otherwise, even if a
/// callback of the host unwinds, the helper's call is cancelled.
struct HelperCall<'a> {
    helper: &'a Helper,
    number: u64,
    connection: Option<NumberedConnection>,
    is_done: bool,
}

impl Drop for HelperCall<'_> {
    fn drop(&mut self) {
        let Some(connection) = self.connection.take() else { return };
        if !self.is_done {
            return self.helper.cancel(connection.number, self.number);
        }
        self.helper.keep_idle(connection);
    }
}

/// Raises a count until it is dropped.
struct CountGuard<'a>(&'a AtomicUsize);

impl<'a> CountGuard<'a> {
    fn new(count: &'a AtomicUsize) -> CountGuard<'a> {
        count.fetch_add(1, Ordering::Relaxed);
        CountGuard(count)
    }
}

impl Drop for CountGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Watches one call.
struct CallWatch<'a> {
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
    fn new(helper: &'a Helper, limits: &'a HelperCallLimits, call: u64, connection: u64) -> Self {
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
    fn look(&mut self) -> io::Result<Option<Instant>> {
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
    fn note_frame(&mut self, kind: Kind, text: &str) {
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
    fn skip_callback(&mut self, start: Instant) {
        self.looked += start.elapsed();
    }
}

/// The progress in an event, from 0 to 1; `None` if it is another event.
pub(super) fn load_progress(event: &str) -> Option<f64> {
    let progress = event.strip_prefix("load_progress:")?.parse::<f64>().ok()?;
    (!progress.is_nan()).then(|| progress.clamp(0.0, 1.0))
}

/// A request to end the reasoning of one call's reply. Any thread may make it, even before the call
/// is sent.
#[derive(Default)]
pub(super) struct ReasoningEnd(Mutex<EndState>);

#[derive(Default, Clone, Copy)]
enum EndState {
    #[default]
    NotSent,
    /// Requested before the call was sent. The request goes out with the call.
    Asked,
    /// The call was sent.
    Sent { connection: u64, call: u64 },
}

impl ReasoningEnd {
    /// Requests the end. Returns the message to send now, if the call was already sent.
    pub(super) fn ask(&self) -> Option<ListenerMessage> {
        let mut state = lock(&self.0);
        if let EndState::Sent { connection, call } = *state {
            return Some(ListenerMessage::EndReasoning { connection, call });
        }
        *state = EndState::Asked;
        None
    }

    /// Notes that the call was sent. If the end was already requested, returns the message to send
    /// after it.
    pub(super) fn note_sent(&self, connection: u64, call: u64) -> Option<ListenerMessage> {
        let mut state = lock(&self.0);
        let before = std::mem::replace(&mut *state, EndState::Sent { connection, call });
        matches!(before, EndState::Asked)
            .then_some(ListenerMessage::EndReasoning { connection, call })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_before_the_call_goes_with_it() {
        let sent = |message: Option<ListenerMessage>| message.map(|message| message.to_bytes());
        let expected = ListenerMessage::EndReasoning { connection: 3, call: 7 }.to_bytes();
        let early = ReasoningEnd::default();
        assert_eq!(sent(early.ask()), None);
        assert_eq!(sent(early.note_sent(3, 7)), Some(expected));
        let late = ReasoningEnd::default();
        assert_eq!(sent(late.note_sent(3, 7)), None);
        assert_eq!(sent(late.ask()), Some(expected));
    }
}
