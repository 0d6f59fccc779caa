//! Runs tasks in parallel on the processors that a decode leaves idle.
//!
//! In: tasks that borrow from the caller. Out: their results in order. With few tasks or one
//! thread, everything runs on the caller's thread. The threads end before the call returns, so they
//! never outlive what they borrow, and a process that exits or forks does not wait for them.

use std::panic::resume_unwind;
use std::sync::{Mutex, PoisonError};
use std::thread::{Builder, scope};

use crate::panic::Quiet;

/// The number of tasks per additional thread. Starting a thread takes as long as one to three
/// draws.
const TASKS_PER_THREAD: usize = 6;

/// Whether so many tasks are worth an additional thread.
pub(crate) fn is_worth_a_thread(tasks: usize) -> bool {
    tasks >= TASKS_PER_THREAD
}

/// Runs `run` on the caller's thread, and `aside` at the same time on another one, or before it if
/// the system cannot start a thread. If one of them panics, the caller panics too.
pub(crate) fn join<R>(aside: impl Fn() + Sync, run: impl FnOnce() -> R) -> R {
    scope(|scope| {
        let quiet = || {
            let _quiet = Quiet::enter();
            aside();
        };
        let thread = Builder::new().name("llb-writer".into()).spawn_scoped(scope, quiet);
        let Ok(thread) = thread else {
            aside();
            return run();
        };
        let result = run();
        thread.join().unwrap_or_else(|payload| resume_unwind(payload));
        result
    })
}

/// Runs all tasks on at most `threads` threads, including the caller's. If a task panics, the
/// caller panics too.
pub(crate) fn map<T: Send, R: Send>(
    tasks: Vec<T>,
    threads: usize,
    run: impl Fn(T) -> R + Sync,
) -> Vec<R> {
    let helpers = (tasks.len() / TASKS_PER_THREAD).min(threads.saturating_sub(1));
    if helpers == 0 {
        return tasks.into_iter().map(run).collect();
    }
    let count = tasks.len();
    let tasks = Mutex::new(tasks.into_iter().enumerate());
    let work = || {
        let mut done = Vec::new();
        loop {
            let next = tasks.lock().unwrap_or_else(PoisonError::into_inner).next();
            let Some((place, task)) = next else { return done };
            done.push((place, run(task)));
        }
    };
    let mut results: Vec<Option<R>> = (0..count).map(|_| None).collect();
    scope(|scope| {
        // If the system cannot start a thread, there is one thread less.
        let helpers: Vec<_> = (0..helpers)
            .map_while(|_| {
                let quiet = || {
                    let _quiet = Quiet::enter();
                    work()
                };
                Builder::new().name("llb-sampler".into()).spawn_scoped(scope, quiet).ok()
            })
            .collect();
        let mut keep = |done: Vec<(usize, R)>| {
            done.into_iter().for_each(|(place, result)| results[place] = Some(result));
        };
        keep(work());
        for helper in helpers {
            keep(helper.join().unwrap_or_else(|payload| resume_unwind(payload)));
        }
    });
    results.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Condvar;
    use std::thread;
    use std::time::Duration;

    use super::*;

    #[test]
    fn results_are_in_order() {
        for (count, threads) in [(0, 4), (1, 4), (5, 4), (64, 1), (64, 4), (1000, 3)] {
            let tasks: Vec<usize> = (0..count).collect();
            let expected: Vec<usize> = (0..count).map(|task| task * task).collect();
            assert_eq!(map(tasks, threads, |task| task * task), expected);
        }
    }

    #[test]
    fn many_tasks_run_side_by_side_and_few_on_the_callers_thread() {
        // Each task waits until two threads are running tasks, or for a time much longer than that
        // should take.
        let (seen, changed) = (Mutex::new(HashSet::new()), Condvar::new());
        map((0..12).collect(), 2, |_: usize| {
            let mut threads = seen.lock().expect("no panic");
            threads.insert(thread::current().id());
            changed.notify_all();
            let one = |threads: &mut HashSet<_>| threads.len() < 2;
            drop(changed.wait_timeout_while(threads, Duration::from_secs(10), one));
        });
        assert_eq!(seen.into_inner().expect("no panic").len(), 2);
        for (count, threads) in [(TASKS_PER_THREAD - 1, 8), (100, 1)] {
            let used = map((0..count).collect(), threads, |_: usize| thread::current().id());
            assert!(used.iter().all(|id| *id == thread::current().id()));
        }
    }

    #[test]
    fn two_tasks_run_at_the_same_time() {
        // Each of them waits for the other one.
        let barrier = std::sync::Barrier::new(2);
        let aside = || {
            barrier.wait();
        };
        let run = || {
            barrier.wait();
            7
        };
        assert_eq!(join(aside, run), 7);
    }

    #[test]
    fn a_panic_is_the_callers() {
        let _quiet = Quiet::enter();
        for place in [0, 40] {
            let run = || map((0..64).collect(), 4, |task: i32| assert_ne!(task, place, "task"));
            let payload = catch_unwind(AssertUnwindSafe(run)).expect_err("a panic");
            let message = crate::panic::error(&*payload);
            assert!(message.message().contains("task"), "{message:?}");
        }
        for place in [0, 1] {
            let run = || join(|| assert_ne!(place, 0, "task"), || assert_ne!(place, 1, "task"));
            let payload = catch_unwind(AssertUnwindSafe(run)).expect_err("a panic");
            let message = crate::panic::error(&*payload);
            assert!(message.message().contains("task"), "{message:?}");
        }
    }
}
