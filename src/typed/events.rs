//! The caller's closure for events.

use std::fmt;
use std::sync::Arc;

use crate::chat::EventSink;
use crate::error::{Code, Error};
use crate::panic;

/// A closure that receives events.
type EventFn = dyn Fn(&str) + Send + Sync;

/// A closure that receives events, or none.
#[derive(Clone, Default)]
pub(super) struct Events(Option<Arc<EventFn>>);

impl Events {
    pub(super) fn new(on_event: impl Fn(&str) + Send + Sync + 'static) -> Events {
        Events(Some(Arc::new(on_event)))
    }

    /// The sink of the library. A panic of the closure ends the call with `CANCELLED`, as an
    /// exception of a C callback does.
    pub(super) fn sink(&self) -> EventSink {
        let Events(on_event) = self.clone();
        Box::new(move |event| {
            let Some(on_event) = &on_event else { return };
            let called = panic::of_caller(|| on_event(event));
            if let Err(payload) = called
                && !std::thread::panicking()
            {
                let message = panic::message(&*payload);
                let problem = format!("the closure for events panicked: {message}");
                panic::stop(Error::new(Code::Cancelled, problem));
            }
        })
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Events(closure)" } else { "Events(none)" })
    }
}
