//! The least speed of a download. A server that sends a byte now and then is never silent, but would
//! keep a fetch for ever.
//!
//! In: the number of bytes that arrived, and when. Out: whether the download is too slow. A fast
//! part makes up for a slow one, but only up to the allowance: the average over any longer time is
//! at least the minimum.

use std::time::{Duration, Instant};

/// The minimum speed in bytes per second. A modem of 1996 has three times as much.
pub(super) const MIN_SPEED: u64 = 1024;
/// How many times the read time-out a download may be slower than that.
const ALLOWANCE: u32 = 10;

/// The pace of one download.
pub(super) struct Pace {
    allowance: Duration,
    /// How much longer the download may be too slow.
    left: Duration,
    /// Until when the time is counted.
    counted: Instant,
}

impl Pace {
    pub(super) fn new(read_timeout: Duration, now: Instant) -> Pace {
        let allowance = read_timeout * ALLOWANCE;
        Pace { allowance, left: allowance, counted: now }
    }

    /// Leaves out the time until now: the fetch itself has waited.
    pub(super) fn skip(&mut self, now: Instant) {
        self.counted = now;
    }

    /// Counts bytes that have arrived, and the time until now. Returns false if that is too slow.
    pub(super) fn count(&mut self, bytes: usize, now: Instant) -> bool {
        let earned = Duration::from_secs_f64(bytes as f64 / MIN_SPEED as f64);
        let spent = now.saturating_duration_since(self.counted);
        self.counted = now;
        self.left = (self.left + earned).saturating_sub(spent).min(self.allowance);
        !self.is_too_slow()
    }

    pub(super) fn is_too_slow(&self) -> bool {
        self.left.is_zero()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const READ_TIMEOUT: Duration = Duration::from_secs(30);
    const HOUR: u64 = 3600;

    /// How many seconds a download goes on that gets these bytes after each of these pauses, at most
    /// ten hours.
    fn seconds(bytes: usize, pause: Duration) -> u64 {
        let start = Instant::now();
        let (mut pace, mut now) = (Pace::new(READ_TIMEOUT, start), start);
        while now < start + Duration::from_secs(10 * HOUR) {
            now += pause;
            if !pace.count(bytes, now) {
                break;
            }
        }
        (now - start).as_secs()
    }

    #[test]
    fn bytes_now_and_then_are_too_slow() {
        for (bytes, pause) in [(1, 5.0), (1, 29.0), (1000, 1.5), (1023, 29.0)] {
            let took = seconds(bytes, Duration::from_secs_f64(pause));
            assert!((300..900).contains(&took), "{bytes} bytes every {pause} s: {took} s");
        }
    }

    #[test]
    fn slow_links_are_fast_enough() {
        for (bytes, pause) in [(1500, 1.0), (150, 0.1), (64 << 10, 29.0), (256 << 10, 200.0)] {
            let took = seconds(bytes, Duration::from_secs_f64(pause));
            assert!(took >= 10 * HOUR, "{bytes} bytes every {pause} s: {took} s");
        }
    }

    #[test]
    fn a_fast_start_earns_no_more_than_the_allowance() {
        let start = Instant::now();
        let mut pace = Pace::new(READ_TIMEOUT, start);
        assert!(pace.count(usize::MAX >> 20, start + Duration::from_secs(1)));
        assert!(pace.count(0, start + Duration::from_secs(300)));
        assert!(!pace.count(0, start + Duration::from_secs(301)));
        let mut pace = Pace::new(READ_TIMEOUT, start);
        pace.skip(start + Duration::from_secs(HOUR));
        assert!(pace.count(1, start + Duration::from_secs(HOUR + 1)));
    }
}
