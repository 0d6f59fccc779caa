//! The running fetches: the flags that cancel them, and the events that their callers receive.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::error::{Code, Error, Result};
use crate::net::wait;
use crate::process::{Lazy, Shared};

/// The minimum time between two progress events.
const INTERVAL: Duration = Duration::from_millis(100);

type CancelFlag = Arc<AtomicBool>;

/// The flags of running fetches, by the model id in the request.
static RUNNING: Lazy<Shared<HashMap<String, Vec<CancelFlag>>>> =
    Lazy::new(|| Shared::new(HashMap::new()));

/// Cancels the fetches of a model: `org/name:quant` cancels those requested by exactly that text,
/// and `org/name` all of that model. They fail with `CANCELLED` within a tenth of a second, and the
/// next fetch resumes the download. May be called from any thread. An unknown id does nothing.
pub fn cancel(id: &str) {
    let running = RUNNING.lock();
    for (key, flags) in running.iter() {
        if key == id || key.split_once(':').is_some_and(|(model, _)| model == id) {
            flags.iter().for_each(|flag| flag.store(true, Ordering::Relaxed));
        }
    }
    drop(running);
    wait::wake();
}

/// Registers a fetch so that it can be cancelled, until this is dropped.
pub(super) struct CancelToken {
    id: String,
    flag: CancelFlag,
}

impl CancelToken {
    pub(super) fn register(id: &str) -> CancelToken {
        let flag = CancelFlag::default();
        let mut running = RUNNING.lock();
        running.entry(id.to_owned()).or_default().push(Arc::clone(&flag));
        CancelToken { id: id.to_owned(), flag }
    }

    pub(super) fn is_cancelled(&self) -> bool {
        self.flag.load(Ordering::Relaxed)
    }

    /// The error `CANCELLED`.
    pub(super) fn error(&self) -> Error {
        let message = format!(
            "the fetch of {} was cancelled; fetch it again to resume the download",
            self.id
        );
        Error::new(Code::Cancelled, message)
    }

    /// Fails with `CANCELLED` if the fetch was cancelled.
    pub(super) fn check(&self) -> Result<()> {
        if self.is_cancelled() { Err(self.error()) } else { Ok(()) }
    }

    /// Waits for this time, or fails as soon as the fetch is cancelled.
    pub(super) fn wait(&self, time: Duration) -> Result<()> {
        wait::pause(time, || self.is_cancelled());
        self.check()
    }
}

impl Drop for CancelToken {
    fn drop(&mut self) {
        let mut running = RUNNING.lock();
        if let Some(flags) = running.get_mut(&self.id) {
            flags.retain(|flag| !Arc::ptr_eq(flag, &self.flag));
            if flags.is_empty() {
                running.remove(&self.id);
            }
        }
    }
}

/// The progress over all files of a fetch, on the caller's thread.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_ends_its_own_fetches() {
        let fetches = ["o/cancel", "o/cancel:Q8_0", "o/cancel:Q4_0", "o/cancelled"]
            .map(CancelToken::register);
        let cancelled = || fetches.each_ref().map(|fetch| fetch.check().is_err());
        cancel("o/nobody");
        assert_eq!(cancelled(), [false; 4]);
        cancel("o/cancel:Q8_0");
        assert_eq!(cancelled(), [false, true, false, false]);
        cancel("o/cancel");
        assert_eq!(cancelled(), [true, true, true, false]);
        drop(fetches);
        assert!(CancelToken::register("o/cancel").check().is_ok());
    }
}
