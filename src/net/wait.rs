//! Waits that end with an item, at a deadline, or when the caller is cancelled, without polling.
//!
//! Each wait takes a closure that returns whether it was cancelled. Whoever changes that result
//! calls [`wake`] afterwards.

use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::process::Shared;

/// The notifiers of all threads that wait or are about to wait.
static WAITING: Shared<Vec<Arc<Notifier>>> = Shared::new(Vec::new());

/// Makes every wait check again whether it was cancelled. Any thread may call this after it has set
/// a cancel flag.
pub(crate) fn wake() {
    WAITING.lock().iter().for_each(|notifier| notifier.notify());
}

/// Waits for this long. Returns false if cancelled before.
pub(crate) fn pause(time: Duration, is_cancelled: impl Fn() -> bool) -> bool {
    let waiter = Waiter::enter();
    // A time beyond the range of the clock means no limit.
    let end = Instant::now().checked_add(time);
    loop {
        let seen = waiter.0.count();
        if is_cancelled() {
            return false;
        }
        if is_past(end) {
            return true;
        }
        waiter.0.wait(seen, end);
    }
}

/// A channel that holds up to `capacity` items. The reader may stop at any time.
pub(crate) fn channel<T>(capacity: usize) -> (WaitSender<T>, WaitReceiver<T>) {
    let (sender, items) = sync_channel(capacity);
    let waiter = Waiter::enter();
    let notifier = Arc::clone(&waiter.0);
    (WaitSender { items: Some(sender), notifier }, WaitReceiver { items, waiter })
}

/// The writer's end.
pub(crate) struct WaitSender<T> {
    /// `None` during drop.
    items: Option<SyncSender<T>>,
    notifier: Arc<Notifier>,
}

/// The reader's end.
pub(crate) struct WaitReceiver<T> {
    items: Receiver<T>,
    waiter: Waiter,
}

/// What ended a wait.
#[derive(Debug, PartialEq)]
pub(crate) enum WaitEnd<T> {
    /// The next item.
    Next(T),
    /// The sender was dropped, and all items have been read.
    Closed,
    Cancelled,
    /// The deadline has passed.
    Late,
}

impl<T> WaitSender<T> {
    /// Waits for room and sends the item. Returns false if the receiver was dropped.
    pub(crate) fn send(&self, item: T) -> bool {
        let sent = self.items.as_ref().is_some_and(|items| items.send(item).is_ok());
        self.notifier.notify();
        sent
    }
}

impl<T> Drop for WaitSender<T> {
    fn drop(&mut self) {
        // Close before notifying, so that the reader finds the channel closed.
        self.items = None;
        self.notifier.notify();
    }
}

impl<T> WaitReceiver<T> {
    /// Waits for the next item. Cancellation and the deadline take precedence over items that are
    /// ready, because these may never end.
    pub(crate) fn next(
        &self,
        deadline: Option<Instant>,
        is_cancelled: impl Fn() -> bool,
    ) -> WaitEnd<T> {
        loop {
            let seen = self.waiter.0.count();
            if is_cancelled() {
                return WaitEnd::Cancelled;
            }
            if is_past(deadline) {
                return WaitEnd::Late;
            }
            match self.items.try_recv() {
                Ok(item) => return WaitEnd::Next(item),
                Err(TryRecvError::Disconnected) => return WaitEnd::Closed,
                Err(TryRecvError::Empty) => self.waiter.0.wait(seen, deadline),
            }
        }
    }
}

/// Counts notifications, so that none is lost between a check and a wait.
#[derive(Default)]
struct Notifier {
    count: Mutex<u64>,
    changed: Condvar,
}

impl Notifier {
    fn notify(&self) {
        *lock(&self.count) += 1;
        self.changed.notify_all();
    }

    fn count(&self) -> u64 {
        *lock(&self.count)
    }

    /// Waits until the count differs from `seen`, or until `end`.
    fn wait(&self, seen: u64, end: Option<Instant>) {
        let mut count = lock(&self.count);
        while *count == seen {
            count = match end.map(|end| end.saturating_duration_since(Instant::now())) {
                None => self.changed.wait(count).unwrap_or_else(PoisonError::into_inner),
                Some(Duration::ZERO) => return,
                Some(remaining) => {
                    let waited = self.changed.wait_timeout(count, remaining);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }
}

/// A notifier that is registered with [`wake`] until this is dropped.
struct Waiter(Arc<Notifier>);

impl Waiter {
    fn enter() -> Waiter {
        let notifier = Arc::<Notifier>::default();
        WAITING.lock().push(Arc::clone(&notifier));
        Waiter(notifier)
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        WAITING.lock().retain(|notifier| !Arc::ptr_eq(notifier, &self.0));
    }
}

fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn is_past(end: Option<Instant>) -> bool {
    end.is_some_and(|end| Instant::now() >= end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn a_wait_ends_for_the_right_reason() {
        let (sender, receiver) = channel(2);
        let soon = Some(Instant::now());
        assert_eq!(receiver.next(soon, || false), WaitEnd::Late);
        assert!(sender.send(1) && sender.send(2));
        assert_eq!(
            (receiver.next(soon, || false), receiver.next(soon, || true)),
            (WaitEnd::Late, WaitEnd::Cancelled)
        );
        assert_eq!(
            (receiver.next(None, || false), receiver.next(None, || false)),
            (WaitEnd::Next(1), WaitEnd::Next(2))
        );
        assert!(sender.send(3));
        drop(sender);
        assert_eq!(
            (receiver.next(None, || false), receiver.next(None, || false)),
            (WaitEnd::Next(3), WaitEnd::Closed)
        );
        let (sender, receiver) = channel(1);
        drop(receiver);
        assert!(!sender.send(4));
        assert!(pause(Duration::ZERO, || false) && !pause(HOUR, || true));
    }

    /// A missed notification would make each wait an hour long or longer. `asked` signals that the
    /// wait has begun.
    #[test]
    fn a_notification_during_a_wait_is_not_missed() {
        for round in 0..200 {
            let (cancelled, asked) = (AtomicBool::new(false), AtomicUsize::new(0));
            let is_cancelled = &|| {
                asked.fetch_add(1, Ordering::SeqCst);
                cancelled.load(Ordering::SeqCst)
            };
            let ((sender, receiver), (silent, never)) = (channel(1), channel::<()>(1));
            std::thread::scope(|scope| {
                let end = Instant::now() + HOUR;
                let first = scope.spawn(move || {
                    (receiver.next(Some(end), || false), receiver.next(None, || false))
                });
                let second = scope.spawn(move || never.next(Some(end), is_cancelled));
                let third = scope.spawn(move || pause(HOUR, is_cancelled));
                while round % 2 == 0 && asked.load(Ordering::SeqCst) < 2 {
                    std::thread::yield_now();
                }
                assert!(sender.send(round));
                drop(sender);
                cancelled.store(true, Ordering::SeqCst);
                wake();
                assert_eq!(
                    first.join().expect("no panic"),
                    (WaitEnd::Next(round), WaitEnd::Closed)
                );
                assert_eq!(
                    (second.join().expect("no panic"), third.join().expect("no panic")),
                    (WaitEnd::Cancelled, false)
                );
            });
            drop(silent);
        }
    }
}
