//! Waits that end when there is something, when it is too late, or when somebody cancels; none of
//! them looks in turns.
//!
//! What is cancelled is the caller's matter: a flag, which each wait is given as a question.
//! Whoever sets one calls [`wake`].

use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The bells of all that wait, or are about to.
static WAITING: Mutex<Vec<Arc<Notifier>>> = Mutex::new(Vec::new());

/// Lets everything that waits ask again whether it is over: to be called after a flag was set. Any
/// thread.
pub(crate) fn wake() {
    lock(&WAITING).iter().for_each(|bell| bell.ring());
}

/// Waits for a time; false if it was over before.
pub(crate) fn pause(time: Duration, is_over: impl Fn() -> bool) -> bool {
    let waiter = Waiter::enter();
    // A time that no clock reaches is no end.
    let end = Instant::now().checked_add(time);
    loop {
        let heard = waiter.0.count();
        if is_over() {
            return false;
        }
        if is_past(end) {
            return true;
        }
        waiter.0.wait(heard, end);
    }
}

/// A channel with room for so many pieces, whose reader can leave at any moment.
pub(crate) fn channel<T>(room: usize) -> (WaitSender<T>, WaitReceiver<T>) {
    let (sender, pieces) = sync_channel(room);
    let waiter = Waiter::enter();
    (
        WaitSender { pieces: Some(sender), bell: Arc::clone(&waiter.0) },
        WaitReceiver { pieces, waiter },
    )
}

/// The writer's end.
pub(crate) struct WaitSender<T> {
    /// None while it is dropped.
    pieces: Option<SyncSender<T>>,
    bell: Arc<Notifier>,
}

/// The reader's end.
pub(crate) struct WaitReceiver<T> {
    pieces: Receiver<T>,
    waiter: Waiter,
}

/// What ended a wait.
#[derive(Debug, PartialEq)]
pub(crate) enum WaitEnd<T> {
    /// The next piece.
    Next(T),
    /// The writer is gone, and everything was read.
    Gone,
    /// It was said to be over.
    Over,
    /// The time was up.
    Late,
}

impl<T> WaitSender<T> {
    /// Waits for room. False when nobody reads any more.
    pub(crate) fn send(&self, piece: T) -> bool {
        let sent = self.pieces.as_ref().is_some_and(|pieces| pieces.send(piece).is_ok());
        self.bell.ring();
        sent
    }
}

impl<T> Drop for WaitSender<T> {
    fn drop(&mut self) {
        // First gone, then told: the reader finds it gone.
        self.pieces = None;
        self.bell.ring();
    }
}

impl<T> WaitReceiver<T> {
    /// Waits for the next piece until `end`. What is over or late is told before pieces that are
    /// there, of which there may be no end.
    pub(crate) fn next(&self, end: Option<Instant>, is_over: impl Fn() -> bool) -> WaitEnd<T> {
        loop {
            let heard = self.waiter.0.count();
            if is_over() {
                return WaitEnd::Over;
            }
            if is_past(end) {
                return WaitEnd::Late;
            }
            match self.pieces.try_recv() {
                Ok(piece) => return WaitEnd::Next(piece),
                Err(TryRecvError::Disconnected) => return WaitEnd::Gone,
                Err(TryRecvError::Empty) => self.waiter.0.wait(heard, end),
            }
        }
    }
}

/// Counts how often it was rung, so that no ring is missed between a look and a wait.
#[derive(Default)]
struct Notifier {
    rings: Mutex<u64>,
    rung: Condvar,
}

impl Notifier {
    fn ring(&self) {
        *lock(&self.rings) += 1;
        self.rung.notify_all();
    }

    fn count(&self) -> u64 {
        *lock(&self.rings)
    }

    /// Waits until it was rung more often than `heard`, or until `end`.
    fn wait(&self, heard: u64, end: Option<Instant>) {
        let mut rings = lock(&self.rings);
        while *rings == heard {
            rings = match end.map(|end| end.saturating_duration_since(Instant::now())) {
                None => self.rung.wait(rings).unwrap_or_else(PoisonError::into_inner),
                Some(Duration::ZERO) => return,
                Some(left) => {
                    self.rung.wait_timeout(rings, left).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }
}

/// A bell that [`wake`] rings while this lives.
struct Waiter(Arc<Notifier>);

impl Waiter {
    fn enter() -> Waiter {
        let bell = Arc::<Notifier>::default();
        lock(&WAITING).push(Arc::clone(&bell));
        Waiter(bell)
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        lock(&WAITING).retain(|bell| !Arc::ptr_eq(bell, &self.0));
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
        let (outlet, inlet) = channel(2);
        let soon = Some(Instant::now());
        assert_eq!(inlet.next(soon, || false), WaitEnd::Late);
        assert!(outlet.send(1) && outlet.send(2));
        assert_eq!(
            (inlet.next(soon, || false), inlet.next(soon, || true)),
            (WaitEnd::Late, WaitEnd::Over)
        );
        assert_eq!(
            (inlet.next(None, || false), inlet.next(None, || false)),
            (WaitEnd::Next(1), WaitEnd::Next(2))
        );
        assert!(outlet.send(3));
        drop(outlet);
        assert_eq!(
            (inlet.next(None, || false), inlet.next(None, || false)),
            (WaitEnd::Next(3), WaitEnd::Gone)
        );
        let (outlet, inlet) = channel(1);
        drop(inlet);
        assert!(!outlet.send(4));
        assert!(pause(Duration::ZERO, || false) && !pause(HOUR, || true));
    }

    /// Each of these would take an hour, or for ever, did it miss its ring; `asked` says that the
    /// wait has begun.
    #[test]
    fn what_comes_later_is_heard() {
        for round in 0..200 {
            let (over, asked) = (AtomicBool::new(false), AtomicUsize::new(0));
            let is_over = &|| {
                asked.fetch_add(1, Ordering::SeqCst);
                over.load(Ordering::SeqCst)
            };
            let ((outlet, inlet), (silent, never)) = (channel(1), channel::<()>(1));
            std::thread::scope(|scope| {
                let end = Instant::now() + HOUR;
                let first = scope
                    .spawn(move || (inlet.next(Some(end), || false), inlet.next(None, || false)));
                let second = scope.spawn(move || never.next(Some(end), is_over));
                let third = scope.spawn(move || pause(HOUR, is_over));
                while round % 2 == 0 && asked.load(Ordering::SeqCst) < 2 {
                    std::thread::yield_now();
                }
                assert!(outlet.send(round));
                drop(outlet);
                over.store(true, Ordering::SeqCst);
                wake();
                assert_eq!(first.join().expect("no panic"), (WaitEnd::Next(round), WaitEnd::Gone));
                assert_eq!(
                    (second.join().expect("no panic"), third.join().expect("no panic")),
                    (WaitEnd::Over, false)
                );
            });
            drop(silent);
        }
    }
}
