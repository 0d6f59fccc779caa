//! Compares the processor times of an operation on inputs of different sizes.

use std::time::Duration;

use super::conformance::thread_time;

/// The numbers of elements.
const SIZES: [usize; 3] = [10_000, 20_000, 40_000];
/// A time after which only a quarter of the elements are compared.
const LONG: Duration = Duration::from_millis(200);
/// The largest ratio of the times for the largest and the smallest size. It is about 4 if the time
/// is linear and 16 if it is quadratic.
const MAX_RATIO: f64 = 8.0;
/// Times below this one are not compared, because they are mostly noise.
const SHORT: Duration = Duration::from_millis(100);
/// How often an operation is measured before its time counts as too long.
const ATTEMPTS: usize = 4;

/// The processor time that `run` takes on this thread.
pub(crate) fn cpu_time(run: impl FnOnce()) -> Duration {
    let started = thread_time();
    run();
    thread_time().saturating_sub(started)
}

/// Asserts that the time of an operation grows no faster than the size of its input. `time` runs it
/// on an input of this size.
#[track_caller]
pub(crate) fn check(name: &str, time: impl Fn(usize) -> Duration) {
    let is_long = time(SIZES[0]) > LONG;
    let sizes = if is_long { SIZES.map(|size| size / 4) } else { SIZES };
    let mut seen = Vec::new();
    for _ in 0..ATTEMPTS {
        let times = sizes.map(&time);
        if times[2] < SHORT || times[2].as_secs_f64() < MAX_RATIO * times[0].as_secs_f64() {
            return;
        }
        seen.push(times);
    }
    panic!("{name}: {seen:?} for {sizes:?} elements");
}
