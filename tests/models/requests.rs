//! Models the request queue: one call runs at a time, a cancel reaches all calls, and a close waits
//! for all.

use std::sync::Arc;

use crate::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use shuttle::thread;

#[path = "../../src/chat/queue.rs"]
mod queue;

use queue::RequestQueue;

#[derive(Default)]
struct Chat {
    queue: RequestQueue,
    inside: AtomicUsize,
    cancels: AtomicUsize,
}

/// How a call ended.
#[derive(PartialEq)]
enum Call {
    Ran,
    Cancelled,
    Refused,
}

impl Chat {
    fn call(&self) -> Call {
        let cancel = Arc::new(AtomicBool::new(false));
        match self.queue.enter(&cancel, None) {
            Ok(Some(running)) => {
                assert_eq!(self.inside.fetch_add(1, Ordering::SeqCst), 0, "two calls at once");
                thread::yield_now();
                self.inside.fetch_sub(1, Ordering::SeqCst);
                drop(running);
                Call::Ran
            }
            Ok(None) => {
                assert!(cancel.load(Ordering::SeqCst), "a call ended without a cancel");
                Call::Cancelled
            }
            Err(_) => Call::Refused,
        }
    }
}

pub fn cancel_and_close() {
    let chat = Arc::new(Chat::default());
    let callers = (0..3).map(|_| {
        let chat = Arc::clone(&chat);
        thread::spawn(move || {
            for _ in 0..2 {
                if chat.call() == Call::Cancelled {
                    assert!(chat.cancels.load(Ordering::SeqCst) > 0, "no one cancelled");
                }
            }
        })
    });
    let mut threads: Vec<_> = callers.collect();
    for close in [false, true] {
        let chat = Arc::clone(&chat);
        threads.push(thread::spawn(move || {
            chat.cancels.fetch_add(1, Ordering::SeqCst);
            if close {
                chat.queue.close();
                assert_eq!(chat.inside.load(Ordering::SeqCst), 0, "close has not waited");
                assert!(chat.call() == Call::Refused, "a call after the close");
            } else {
                chat.queue.cancel_all();
            }
        }));
    }
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

/// A waiting call ends by a cancel while the call before it is still running.
pub fn cancel_waiting() {
    let chat = Arc::new(Chat::default());
    let cancel = Arc::new(AtomicBool::new(false));
    let running = chat.queue.enter(&cancel, None).ok().flatten().expect("the first call runs");
    let waiting = {
        let chat = Arc::clone(&chat);
        thread::spawn(move || assert!(chat.call() != Call::Ran, "it runs beside the first"))
    };
    chat.queue.refuse();
    waiting.join().unwrap();
    drop(running);
    chat.queue.close();
}

/// A thread leaves its call without ending it, as `longjmp` out of a callback does. The other calls
/// continue.
pub fn give_up() {
    let chat = Arc::new(Chat::default());
    let cancel = Arc::new(AtomicBool::new(false));
    let left = chat.queue.enter(&cancel, None).ok().flatten().expect("the first call runs");
    std::mem::forget(left);
    let callers = (0..2).map(|_| {
        let chat = Arc::clone(&chat);
        thread::spawn(move || assert!(chat.call() == Call::Ran, "the next call does not run"))
    });
    let callers: Vec<_> = callers.collect();
    chat.queue.give_up();
    assert!(cancel.load(Ordering::SeqCst), "the call that was left is not cancelled");
    callers.into_iter().for_each(|thread| thread.join().unwrap());
    chat.queue.close();
}
