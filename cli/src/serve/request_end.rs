//! When the connection of a request is closed, whatever the request does meanwhile: the library may
//! be busy, or the client may read slowly.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

/// The time in which a request that has reached its time limit may still be answered.
const GRACE: Duration = Duration::from_secs(1);

/// The end of the request that a connection serves. All copies are the same one.
#[derive(Clone, Default)]
pub(crate) struct RequestEnd(Arc<EndState>);

#[derive(Default)]
struct EndState {
    deadline: watch::Sender<Option<Instant>>,
    /// Whether all of the request has arrived.
    is_received: AtomicBool,
    /// Whether the connection has all of the reply.
    is_answered: AtomicBool,
}

impl RequestEnd {
    /// Sets the deadline of a request that may take this long from now on. Its reply must be
    /// written by then.
    pub(super) fn set(&self, time: Duration) {
        self.0.deadline.send_replace(Instant::now().checked_add(time.saturating_add(GRACE)));
    }

    /// Sets the deadline if there is none.
    pub(super) fn set_default(&self, time: Duration) {
        if self.0.deadline.borrow().is_none() {
            self.set(time);
        }
    }

    /// Forgets the last request, because the next one begins.
    pub(super) fn begin(&self) {
        self.0.is_received.store(false, Ordering::Relaxed);
        self.0.is_answered.store(false, Ordering::Relaxed);
        self.0.deadline.send_replace(None);
    }

    /// Records that all of the request has arrived.
    pub(super) fn received(&self) {
        self.0.is_received.store(true, Ordering::Relaxed);
    }

    /// Whether all of the request has arrived. From then on, it is cancelled if the client leaves.
    pub(super) fn is_received(&self) -> bool {
        self.0.is_received.load(Ordering::Relaxed)
    }

    /// Records that the connection has all of the reply. The deadline holds until it is flushed.
    pub(super) fn answered(&self) {
        self.0.is_answered.store(true, Ordering::Relaxed);
    }

    /// Records that the client, or the system, has all that the connection had.
    pub(super) fn flushed(&self) {
        if self.0.is_answered.swap(false, Ordering::Relaxed) {
            self.0.deadline.send_replace(None);
        }
    }

    /// Waits until the deadline has passed.
    pub(super) async fn passed(&self) {
        let mut deadline = self.0.deadline.subscribe();
        loop {
            let end = *deadline.borrow_and_update();
            let end = async {
                match end {
                    Some(end) => tokio::time::sleep_until(end).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = end => return,
                changed = deadline.changed() => changed.expect("this is one of its senders"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_last_deadline_counts() {
        let end = RequestEnd::default();
        let waiting = tokio::spawn({
            let end = end.clone();
            async move { end.passed().await }
        });
        end.set(Duration::from_secs(3600));
        end.set_default(Duration::ZERO);
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        end.flushed();
        assert!(end.0.deadline.borrow().is_some());
        end.answered();
        end.flushed();
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        end.set_default(Duration::ZERO);
        waiting.await.expect("the deadline passes");
        // It has passed.
        end.passed().await;
        end.begin();
        end.set(Duration::MAX);
        assert!(end.0.deadline.borrow().is_none());
    }
}
