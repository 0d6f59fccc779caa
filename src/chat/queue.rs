//! Calls on one chat run one after another, in order of arrival, and can be cancelled while they
//! wait.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::error::{Code, Error, Result};

/// The queue of one chat.
#[derive(Default)]
pub(crate) struct Turns {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// The cancel flags of all calls; the first one's call has the turn.
    calls: VecDeque<Arc<AtomicBool>>,
    closed: bool,
}

/// While one lives, its call has the turn.
pub(crate) struct Turn<'a> {
    turns: &'a Turns,
    cancel: Arc<AtomicBool>,
}

impl Turns {
    /// Waits for the turn. None when the call was cancelled, or its time was up, before it got
    /// there; `ENGINE_CLOSED` after a close.
    pub(crate) fn enter(
        &self,
        cancel: &Arc<AtomicBool>,
        deadline: Option<Instant>,
    ) -> Result<Option<Turn<'_>>> {
        let mut state = self.lock();
        if state.closed {
            return Err(Error::new(Code::EngineClosed, "the chat is closed"));
        }
        state.calls.push_back(Arc::clone(cancel));
        let turn = Turn { turns: self, cancel: Arc::clone(cancel) };
        loop {
            let first = state.calls.front().is_some_and(|first| Arc::ptr_eq(first, cancel));
            let now = Instant::now();
            let late = deadline.is_some_and(|deadline| now >= deadline);
            if first || late || cancel.load(Ordering::Relaxed) {
                drop(state);
                return Ok(first.then_some(turn));
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

    /// Cancels the call that runs and those that wait.
    pub(crate) fn cancel_all(&self) {
        let state = self.lock();
        state.calls.iter().for_each(|cancel| cancel.store(true, Ordering::Relaxed));
        self.changed.notify_all();
        // A call that waits for a server does so elsewhere.
        #[cfg(feature = "remote")]
        crate::remote::wake();
    }

    /// Refuses further calls and cancels those that are there.
    pub(crate) fn refuse(&self) {
        self.lock().closed = true;
        self.cancel_all();
    }

    /// Refuses further calls, cancels those that are there, and waits until they are gone.
    pub(crate) fn close(&self) {
        self.refuse();
        let mut state = self.lock();
        while !state.calls.is_empty() {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut state = self.turns.lock();
        state.calls.retain(|cancel| !Arc::ptr_eq(cancel, &self.cancel));
        drop(state);
        self.turns.changed.notify_all();
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
        let turns = Turns::default();
        let first = turns.enter(&flag(), None).expect("open").expect("the turn");
        let (order, seen) = channel();
        std::thread::scope(|scope| {
            for number in 0..4 {
                let (order, turns) = (order.clone(), &turns);
                scope.spawn(move || {
                    let _turn = turns.enter(&flag(), None).expect("open").expect("the turn");
                    order.send(number).expect("the receiver lives");
                });
                while turns.lock().calls.len() < number + 2 {
                    std::thread::yield_now();
                }
            }
            drop(first);
        });
        assert_eq!(seen.try_iter().collect::<Vec<_>>(), [0, 1, 2, 3]);
    }

    #[test]
    fn a_waiting_call_can_be_cancelled_or_time_out() {
        let turns = Turns::default();
        let running = turns.enter(&flag(), None).expect("open").expect("the turn");
        let cancelled = flag();
        cancelled.store(true, Ordering::Relaxed);
        assert!(turns.enter(&cancelled, None).expect("open").is_none());
        let soon = Instant::now() + Duration::from_millis(1);
        assert!(turns.enter(&flag(), Some(soon)).expect("open").is_none());
        drop(running);
        assert!(turns.enter(&flag(), None).expect("open").is_some());
    }

    #[test]
    fn close_waits_and_later_calls_are_refused() {
        let turns = Turns::default();
        let cancel = flag();
        let running = turns.enter(&cancel, None).expect("open").expect("the turn");
        std::thread::scope(|scope| {
            scope.spawn(|| turns.close());
            while !cancel.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
            drop(running);
        });
        assert_eq!(
            turns.enter(&flag(), None).err().map(|error| error.code()),
            Some(Code::EngineClosed)
        );
    }
}
