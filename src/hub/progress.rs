//! The events of a fetch, on the caller's thread.

use std::time::{Duration, Instant};

/// The minimum time between two progress events.
const INTERVAL: Duration = Duration::from_millis(100);

/// The progress over all files of a fetch.
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

    pub(super) fn set_total(&mut self, total: u64) {
        self.total = total;
    }

    /// Sets how many bytes are present, and always emits an event.
    pub(super) fn report(&mut self, done: u64) {
        self.done = done;
        self.emit_progress();
    }

    /// Sets how many bytes are present, and emits an event unless the last one is recent.
    pub(super) fn update(&mut self, done: u64) {
        self.done = done;
        if self.last.is_none_or(|(at, _)| at.elapsed() >= INTERVAL) {
            self.emit_progress();
        }
    }

    fn emit_progress(&mut self) {
        if self.last.is_some_and(|(_, done)| done == self.done) {
            return;
        }
        self.last = Some((Instant::now(), self.done));
        let event = format!("fetch_progress:{}/{}", self.done, self.total);
        self.emit(&event);
    }
}
