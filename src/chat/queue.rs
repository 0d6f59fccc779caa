//! Runs the calls on one chat one after another, in order of arrival. A waiting call can be
//! cancelled.

use std::collections::VecDeque;
use std::sync::{Arc, PoisonError, Weak};
use std::time::Instant;

use crate::error::{Code, Error, Result};
use crate::process;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Condvar, Mutex, MutexGuard};

/// The queue of one chat.
#[derive(Default)]
pub(crate) struct RequestQueue {
    state: Mutex<QueueState>,
    changed: Condvar,
}

#[derive(Default)]
struct QueueState {
    /// The cancel flags of all calls. The running call comes first.
    calls: VecDeque<Arc<AtomicBool>>,
    /// The cancel flags of calls that run beside the queue.
    beside: Vec<Weak<AtomicBool>>,
    closed: bool,
}

/// A call at the head of the queue. Dropping this starts the next call.
pub(crate) struct QueueEntry<'a> {
    queue: &'a RequestQueue,
    cancel: Arc<AtomicBool>,
    forks: usize,
}

impl RequestQueue {
    /// Waits until all earlier calls have ended. Returns None if this call is cancelled or reaches
    /// its deadline first, and `ENGINE_CLOSED` after a close.
    pub(crate) fn enter(
        &self,
        cancel: &Arc<AtomicBool>,
        deadline: Option<Instant>,
    ) -> Result<Option<QueueEntry<'_>>> {
        let mut state = self.lock();
        if state.closed {
            return Err(closed());
        }
        state.calls.push_back(Arc::clone(cancel));
        let running =
            QueueEntry { queue: self, cancel: Arc::clone(cancel), forks: process::forks() };
        loop {
            let first = state.calls.front().is_some_and(|first| Arc::ptr_eq(first, cancel));
            let now = Instant::now();
            let late = deadline.is_some_and(|deadline| now >= deadline);
            if first || late || cancel.load(Ordering::Relaxed) {
                drop(state);
                return Ok(first.then_some(running));
            }
            state = match deadline {
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(deadline) => {
                    self.changed
                        .wait_timeout(state, deadline - now)
                        .unwrap_or_else(PoisonError::into_inner)
                        .0
                }
            };
        }
    }

    /// Makes a cancel reach a call that does not wait for earlier ones. `ENGINE_CLOSED` after a
    /// close, which does not wait for such a call.
    pub(crate) fn run_beside(&self, cancel: &Arc<AtomicBool>) -> Result<()> {
        let mut state = self.lock();
        if state.closed {
            return Err(closed());
        }
        state.beside.retain(|other| other.strong_count() > 0);
        state.beside.push(Arc::downgrade(cancel));
        Ok(())
    }

    /// Cancels the running call, all waiting calls, and the calls beside the queue.
    pub(crate) fn cancel_all(&self) {
        let state = self.lock();
        state.calls.iter().for_each(|cancel| cancel.store(true, Ordering::Relaxed));
        let beside = state.beside.iter().filter_map(Weak::upgrade);
        beside.for_each(|cancel| cancel.store(true, Ordering::Relaxed));
        self.changed.notify_all();
        // The running call may be waiting for a server.
        #[cfg(any(feature = "hub", feature = "remote"))]
        crate::net::wait::wake();
    }

    /// Cancels the running call, and starts the next one without waiting for its end.
    pub(crate) fn give_up(&self) {
        if let Some(running) = self.lock().calls.pop_front() {
            running.store(true, Ordering::Relaxed);
        }
        self.changed.notify_all();
    }

    /// Refuses further calls, and cancels all present ones.
    pub(crate) fn refuse(&self) {
        self.lock().closed = true;
        self.cancel_all();
    }

    /// Refuses further calls, cancels all present ones, and waits until they have ended. While the
    /// process exits, the wait is limited.
    pub(crate) fn close(&self) {
        self.refuse();
        let mut state = self.lock();
        while !state.calls.is_empty() {
            let Some(deadline) = process::exit_deadline() else {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let remaining = deadline.saturating_duration_since(Instant::now());
            if remaining.is_zero() {
                return;
            }
            state = self
                .changed
                .wait_timeout(state, remaining)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }

    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn closed() -> Error {
    Error::new(Code::EngineClosed, "the chat is closed")
}

impl Drop for QueueEntry<'_> {
    fn drop(&mut self) {
        if self.forks != process::forks() {
            // Another thread of the parent process may have held the lock.
            return;
        }
        let mut state = self.queue.lock();
        state.calls.retain(|cancel| !Arc::ptr_eq(cancel, &self.cancel));
        drop(state);
        self.queue.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    fn flag() -> Arc<AtomicBool> {
        Arc::new(AtomicBool::new(false))
    }

    #[test]
    fn calls_take_turns_in_order_of_arrival() {
        let queue = RequestQueue::default();
        let first = queue.enter(&flag(), None).expect("open").expect("not cancelled");
        let (order, seen) = channel();
        std::thread::scope(|scope| {
            for number in 0..4 {
                let (order, queue) = (order.clone(), &queue);
                scope.spawn(move || {
                    let _running =
                        queue.enter(&flag(), None).expect("open").expect("not cancelled");
                    order.send(number).expect("the receiver lives");
                });
                while queue.lock().calls.len() < number + 2 {
                    std::thread::yield_now();
                }
            }
            drop(first);
        });
        assert_eq!(seen.try_iter().collect::<Vec<_>>(), [0, 1, 2, 3]);
    }

    #[test]
    fn a_waiting_call_can_be_cancelled_or_time_out() {
        let queue = RequestQueue::default();
        let running = queue.enter(&flag(), None).expect("open").expect("not cancelled");
        let cancelled = flag();
        cancelled.store(true, Ordering::Relaxed);
        assert!(queue.enter(&cancelled, None).expect("open").is_none());
        let soon = Instant::now() + Duration::from_millis(1);
        assert!(queue.enter(&flag(), Some(soon)).expect("open").is_none());
        drop(running);
        assert!(queue.enter(&flag(), None).expect("open").is_some());
    }

    #[test]
    fn a_cancel_and_a_close_reach_the_calls_beside_the_queue() {
        let queue = RequestQueue::default();
        let (first, second) = (flag(), flag());
        queue.run_beside(&first).expect("open");
        queue.cancel_all();
        queue.run_beside(&second).expect("open");
        assert!(first.load(Ordering::Relaxed) && !second.load(Ordering::Relaxed));
        queue.close();
        assert!(second.load(Ordering::Relaxed));
        let refused = queue.run_beside(&flag()).expect_err("closed");
        assert_eq!(refused.code(), Code::EngineClosed);
    }

    #[test]
    fn close_waits_and_later_calls_are_refused() {
        let queue = RequestQueue::default();
        let cancel = flag();
        let running = queue.enter(&cancel, None).expect("open").expect("not cancelled");
        std::thread::scope(|scope| {
            scope.spawn(|| queue.close());
            while !cancel.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
            drop(running);
        });
        assert_eq!(
            queue.enter(&flag(), None).err().map(|error| error.code()),
            Some(Code::EngineClosed)
        );
    }
}
