//! Threads that run tasks in parallel on the processors that a decode leaves idle.
//!
//! In: tasks that borrow from the caller. Out: their results in order. With few tasks or one
//! thread, everything runs on the caller's thread. A call returns when the threads are done with
//! its tasks, so they never outlive what they borrow. Where other programs keep the processors
//! busy, a call waits longer for these threads than they save: then some calls run without them.

use std::cell::{Cell, OnceCell};
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rayon_core::{ThreadPool, ThreadPoolBuilder};

use crate::spawn;
use crate::sync::lock;

/// The number of tasks per additional thread. Waking one takes as long as one or two draws.
const TASKS_PER_THREAD: usize = 4;

/// The least and the most calls without helpers after one that lost time.
const PAUSES: std::ops::RangeInclusive<u32> = 8..=1024;

/// Whether so many tasks are worth another thread.
pub(crate) fn is_worth_a_thread(tasks: usize) -> bool {
    tasks >= TASKS_PER_THREAD
}

/// Threads beside the engine's own. They start when they are first needed, because a new thread may
/// wait for a processor longer than a step takes. They sleep between calls, and end when this value
/// is dropped.
#[derive(Debug)]
pub(crate) struct HelperThreads {
    count: usize,
    started: OnceCell<Option<Started>>,
    pause: Pause,
}

/// How many of the next calls run without helpers.
#[derive(Debug, Default)]
struct Pause {
    remaining: Cell<u32>,
    /// The length of the last pause; less if helpers have saved time since.
    last: Cell<u32>,
}

impl Pause {
    /// Whether this call has helpers.
    fn is_over(&self) -> bool {
        let remaining = self.remaining.get();
        self.remaining.set(remaining.saturating_sub(1));
        remaining == 0
    }

    /// Takes into account a call that waited for helpers, and what their work would have taken on
    /// its own thread.
    fn judge(&self, waited: Duration, saved: Duration) {
        let last = self.last.get();
        if waited <= saved {
            return self.last.set(last / 2);
        }
        let next = last.saturating_mul(2).clamp(*PAUSES.start(), *PAUSES.end());
        self.last.set(next);
        self.remaining.set(next);
    }
}

#[derive(Debug)]
struct Started {
    pool: ThreadPool,
    threads: Vec<JoinHandle<()>>,
}

impl HelperThreads {
    /// At most `threads`, and no more than `tasks` at a time need. None of them starts yet.
    pub(crate) fn new(threads: usize, tasks: usize) -> HelperThreads {
        let count = threads.min(tasks / TASKS_PER_THREAD);
        HelperThreads { count, started: OnceCell::new(), pause: Pause::default() }
    }

    /// The started threads. `None` if `count` is 0, if the system cannot start them, or if this
    /// call is to do without them.
    fn pool(&self) -> Option<&ThreadPool> {
        if !self.pause.is_over() {
            return None;
        }
        let started = self.started.get_or_init(|| {
            let mut threads = Vec::new();
            let spawn = |thread: rayon_core::ThreadBuilder| {
                let thread = spawn::thread("llb-helper", || thread.run());
                threads.push(thread.map_err(std::io::Error::other)?);
                Ok(())
            };
            let builder = ThreadPoolBuilder::new().num_threads(self.count).spawn_handler(spawn);
            let pool = (self.count > 0).then(|| builder.build().ok()).flatten()?;
            Some(Started { pool, threads })
        });
        started.as_ref().map(|started| &started.pool)
    }

    /// Runs `run` on the caller's thread. Runs `aside` at the same time on a helper thread, or
    /// without helpers before `run`. If one of them panics, the caller panics too.
    pub(crate) fn join<R>(&self, aside: impl FnOnce() + Send, run: impl FnOnce() -> R) -> R {
        let Some(pool) = self.pool() else {
            aside();
            return run();
        };
        let took = Mutex::new(Duration::ZERO);
        let (result, end) = pool.in_place_scope(|scope| {
            scope.spawn(|_| {
                let begin = Instant::now();
                aside();
                *lock(&took) = begin.elapsed();
            });
            (run(), Instant::now())
        });
        self.pause.judge(end.elapsed(), *lock(&took));
        result
    }

    /// Runs all tasks on these threads and the caller's. If a task panics, the caller panics too.
    pub(crate) fn map<T: Send, R: Send>(
        &self,
        tasks: Vec<T>,
        run: impl Fn(T) -> R + Sync,
    ) -> Vec<R> {
        let helpers = (tasks.len() / TASKS_PER_THREAD).min(self.count);
        let pool = if helpers == 0 { None } else { self.pool() };
        let Some(pool) = pool else { return tasks.into_iter().map(run).collect() };
        let count = tasks.len();
        let tasks = Mutex::new(tasks.into_iter().enumerate());
        let done = Mutex::new(Vec::with_capacity(count));
        let work = || {
            let mut own = Vec::new();
            loop {
                let next = lock(&tasks).next();
                let Some((place, task)) = next else { break };
                own.push((place, run(task)));
            }
            let count = own.len();
            lock(&done).append(&mut own);
            count
        };
        let begin = Instant::now();
        let (own, took) = pool.in_place_scope(|scope| {
            for _ in 0..helpers {
                scope.spawn(|_| {
                    work();
                });
            }
            (work(), begin.elapsed())
        });
        // The time of the others' tasks if each takes as long as one of the caller's.
        if let Some(each) = took.checked_div(u32::try_from(own).unwrap_or(u32::MAX)) {
            let others = u32::try_from(count - own).unwrap_or(u32::MAX);
            self.pause.judge(begin.elapsed().saturating_sub(took), each.saturating_mul(others));
        }
        let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
        done.sort_unstable_by_key(|(place, _)| *place);
        done.into_iter().map(|(_, result)| result).collect()
    }
}

impl Drop for HelperThreads {
    fn drop(&mut self) {
        if let Some(Some(Started { pool, threads })) = self.started.take() {
            // This tells the threads to end, and does not wait for them.
            drop(pool);
            for thread in threads {
                // The panic of a task was the caller's.
                let _ = thread.join();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::HashSet;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc::channel;
    use std::sync::{Arc, Barrier, Condvar};
    use std::thread;
    use std::time::Duration;

    use super::*;
    use crate::panic::Quiet;

    #[test]
    fn results_are_in_order() {
        for (count, threads) in [(0, 3), (1, 3), (5, 3), (64, 0), (64, 3), (1000, 2)] {
            let tasks: Vec<usize> = (0..count).collect();
            let expected: Vec<usize> = (0..count).map(|task| task * task).collect();
            assert_eq!(HelperThreads::new(threads, count).map(tasks, |task| task * task), expected);
        }
    }

    #[test]
    fn many_tasks_run_side_by_side_and_few_on_the_callers_thread() {
        // Each task waits until two threads are running tasks, or for a time much longer than that
        // should take on any machine.
        let (seen, changed) = (Mutex::new(HashSet::new()), Condvar::new());
        HelperThreads::new(1, 12).map((0..12).collect(), |_: usize| {
            let mut threads = seen.lock().expect("no panic");
            threads.insert(thread::current().id());
            changed.notify_all();
            let one = |threads: &mut HashSet<_>| threads.len() < 2;
            drop(changed.wait_timeout_while(threads, Duration::from_secs(60), one));
        });
        assert_eq!(seen.into_inner().expect("no panic").len(), 2);
        for (count, threads) in [(TASKS_PER_THREAD - 1, 8), (100, 0)] {
            let helpers = HelperThreads::new(threads, 100);
            let used = helpers.map((0..count).collect(), |_: usize| thread::current().id());
            assert!(used.iter().all(|id| *id == thread::current().id()));
        }
    }

    #[test]
    fn two_tasks_run_at_the_same_time() {
        // Each of them waits for the other one.
        let barrier = Barrier::new(2);
        let aside = || {
            barrier.wait();
        };
        let run = || {
            barrier.wait();
            7
        };
        assert_eq!(HelperThreads::new(1, TASKS_PER_THREAD).join(aside, run), 7);
    }

    #[test]
    fn threads_that_lose_time_are_left_out_for_some_calls() {
        const TASKS: usize = 2 * TASKS_PER_THREAD;
        let helpers = HelperThreads::new(1, TASKS);
        let own = thread::current().id();
        let is_own = || thread::current().id() == own;
        // A helper has one task, which takes much longer than those of the caller, as if the helper
        // had no processor.
        let (begun, ended) = (Barrier::new(2), Barrier::new(2));
        let (own_tasks, start) = (AtomicUsize::new(0), Instant::now());
        let run = |_: usize| {
            if !is_own() {
                begun.wait();
                ended.wait();
                return thread::sleep(start.elapsed() + Duration::from_millis(400));
            }
            let before = own_tasks.fetch_add(1, Ordering::SeqCst);
            if before == 0 {
                begun.wait();
            } else if before == TASKS - 2 {
                ended.wait();
            }
        };
        helpers.map((0..TASKS).collect(), run);
        for _ in 0..*PAUSES.start() {
            // Long enough for a helper to take some of the tasks.
            let run = |_: usize| {
                thread::sleep(Duration::from_millis(5));
                is_own()
            };
            let alone = helpers.map((0..TASKS).collect(), run).into_iter().all(|own| own);
            assert!(alone, "the first call waited for a helper");
        }
    }

    #[test]
    fn a_rest_is_longer_each_time_and_ends() {
        let pause = Pause::default();
        let (short, long) = (Duration::from_millis(1), Duration::from_millis(9));
        let without = || (0..).take_while(|_| !pause.is_over()).count();
        pause.judge(short, long);
        assert_eq!(without(), 0);
        for expected in [8, 16, 32] {
            pause.judge(long, short);
            assert_eq!(without(), expected);
        }
        pause.judge(short, long);
        pause.judge(short, long);
        pause.judge(long, short);
        assert_eq!(without(), 16);
        (0..20).for_each(|_| pause.judge(long, short));
        assert_eq!(without(), 1024);
    }

    #[test]
    fn threads_stay_for_the_next_call_and_end_with_their_owner() {
        /// Counts the threads that have ended: it is dropped with its thread.
        struct Ended(Arc<AtomicUsize>);

        impl Drop for Ended {
            fn drop(&mut self) {
                // An owner that does not wait would be seen.
                thread::sleep(Duration::from_millis(50));
                self.0.fetch_add(1, Ordering::SeqCst);
            }
        }

        thread_local! {
            static ENDED: RefCell<Option<Ended>> = const { RefCell::new(None) };
        }
        let ended = Arc::new(AtomicUsize::new(0));
        let helpers = HelperThreads::new(1, TASKS_PER_THREAD);
        let id = || {
            // The machine may be busy, and then the last call has lost time.
            helpers.pause.remaining.set(0);
            let (sender, receiver) = channel();
            let aside = || {
                ENDED.set(Some(Ended(Arc::clone(&ended))));
                sender.send(thread::current().id()).expect("a receiver");
            };
            helpers.join(aside, || receiver.recv().expect("an id"))
        };
        let first = id();
        assert_ne!(first, thread::current().id());
        assert_eq!(id(), first);
        // The second call has replaced the first value.
        assert_eq!(ended.load(Ordering::SeqCst), 1);
        drop(helpers);
        assert_eq!(ended.load(Ordering::SeqCst), 2);
    }

    #[test]
    fn a_panic_is_the_callers() {
        let _quiet = Quiet::enter();
        let helpers = HelperThreads::new(3, 64);
        for place in [0, 40] {
            let run =
                || helpers.map((0..64).collect(), |task: i32| assert_ne!(task, place, "task"));
            let payload = catch_unwind(AssertUnwindSafe(run)).expect_err("a panic");
            let message = crate::panic::error(&*payload);
            assert!(message.message().contains("task"), "{message:?}");
        }
        for place in [0, 1] {
            let run =
                || helpers.join(|| assert_ne!(place, 0, "task"), || assert_ne!(place, 1, "task"));
            let payload = catch_unwind(AssertUnwindSafe(run)).expect_err("a panic");
            let message = crate::panic::error(&*payload);
            assert!(message.message().contains("task"), "{message:?}");
        }
    }
}
