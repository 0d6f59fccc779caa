//! A call of the library that runs on a thread. It ends early if its reply is no longer wanted.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::abi::{Chat, Embedder};

/// How often a cancel is repeated. Just before the call enters the library, it has no effect.
const REPEAT: Duration = Duration::from_millis(25);

/// A handle of the library whose call can be cancelled.
pub(super) trait Cancel: Send + Sync + 'static {
    fn cancel(&self);
}

impl Cancel for Chat {
    fn cancel(&self) {
        Chat::cancel(self);
    }
}

impl Cancel for Embedder {
    fn cancel(&self) {
        Embedder::cancel(self);
    }
}

/// The state that the thread of a call and the canceller share.
pub(super) struct RunningCall<H> {
    /// The handle while the call uses it. No other request gets this handle meanwhile.
    handle: Mutex<Option<Arc<H>>>,
    is_cancelled: AtomicBool,
    has_ended: AtomicBool,
}

impl<H> Default for RunningCall<H> {
    fn default() -> Self {
        let (is_cancelled, has_ended) = Default::default();
        RunningCall { handle: Mutex::default(), is_cancelled, has_ended }
    }
}

impl<H: Cancel> RunningCall<H> {
    pub(super) fn set_handle(&self, handle: Option<Arc<H>>) {
        *self.handle.lock().unwrap_or_else(PoisonError::into_inner) = handle;
    }

    pub(super) fn is_cancelled(&self) -> bool {
        self.is_cancelled.load(Ordering::Acquire)
    }

    /// Records the end of the thread when it is dropped, even after a panic.
    pub(super) fn end(&self) -> impl Drop + '_ {
        Ended(self)
    }

    /// Cancels the call, and repeats that until it has ended.
    pub(super) fn cancel(self: &Arc<Self>) {
        if self.has_ended.load(Ordering::Acquire) {
            return;
        }
        self.cancel_once();
        let call = Arc::clone(self);
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                while !call.has_ended.load(Ordering::Acquire) {
                    tokio::time::sleep(REPEAT).await;
                    call.cancel_once();
                }
            });
        }
    }

    fn cancel_once(&self) {
        self.is_cancelled.store(true, Ordering::Release);
        // The lock is held, so it cannot be a later request.
        if let Some(handle) = &*self.handle.lock().unwrap_or_else(PoisonError::into_inner) {
            handle.cancel();
        }
    }
}

struct Ended<'a, H: Cancel>(&'a RunningCall<H>);

impl<H: Cancel> Drop for Ended<'_, H> {
    fn drop(&mut self) {
        self.0.set_handle(None);
        self.0.has_ended.store(true, Ordering::Release);
    }
}
