//! Compares the processor times of an operation on inputs of different sizes. The tests of the ABI
//! use this file too.

use std::time::Duration;

/// A time after which only a quarter of the elements are compared.
const LONG: Duration = Duration::from_millis(200);
/// The largest ratio of the times for the largest and the smallest size. It is about 4 if the time
/// is linear and 16 if it is quadratic.
const MAX_RATIO: f64 = 8.0;
const QUADRATIC: u32 = 16;
/// Times below this one are not compared, because they are mostly noise.
const SHORT: Duration = Duration::from_millis(100);
/// How often an operation is measured before its time counts as too long.
const ATTEMPTS: usize = 4;

/// Asserts that the time of an operation grows no faster than the size of its input. `time` runs it
/// on an input of this size, which is at most `largest`, and measures processor time.
#[track_caller]
pub(crate) fn check(name: &str, largest: usize, time: impl Fn(usize) -> Duration) {
    let first = time(largest / 4);
    if first < SHORT / QUADRATIC {
        return;
    }
    let largest = if first > LONG { largest / 4 } else { largest };
    let sizes = [largest / 4, largest / 2, largest];
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
