//! The events of a fetch, on the thread of its caller.

use std::time::{Duration, Instant};

/// At most ten a second.
const PAUSE: Duration = Duration::from_millis(100);

/// How far a fetch is, over all its files.
pub(super) struct FetchProgress<'a> {
    on_event: &'a mut dyn FnMut(&str),
    done: u64,
    total: u64,
    last: Option<(Instant, u64)>,
}

impl<'a> FetchProgress<'a> {
    pub(super) fn new(on_event: &'a mut dyn FnMut(&str)) -> FetchProgress<'a> {
        FetchProgress { on_event, done: 0, total: 0, last: None }
    }

    pub(super) fn emit(&mut self, event: &str) {
        (self.on_event)(event);
    }

    /// How many bytes there are to have.
    pub(super) fn expect(&mut self, total: u64) {
        self.total = total;
    }

    /// Bytes of all files that are here; this event is never left out.
    pub(super) fn stand(&mut self, done: u64) {
        self.done = done;
        self.tell();
    }

    /// Bytes of all files that are here.
    pub(super) fn at(&mut self, done: u64) {
        self.done = done;
        if self.last.is_none_or(|(at, _)| at.elapsed() >= PAUSE) {
            self.tell();
        }
    }

    fn tell(&mut self) {
        if self.last.is_some_and(|(_, done)| done == self.done) {
            return;
        }
        self.last = Some((Instant::now(), self.done));
        let event = format!("fetch_progress:{}/{}", self.done, self.total);
        self.emit(&event);
    }
}
