//! What identifies a new object of a response: its id, and the time of its creation.

use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A unique id.
pub(super) fn id(prefix: &str) -> String {
    // Two hashes with random keys.
    let half = || RandomState::new().hash_one(prefix);
    format!("{prefix}{:016x}{:016x}", half(), half())
}

/// Seconds since 1970.
pub(super) fn now() -> u64 {
    since_1970().as_secs()
}

/// The time since 1970.
pub(super) fn since_1970() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// `2026-11-23T17:49:00.123Z`. The calendar date is computed as in
/// <https://howardhinnant.github.io/date_algorithms.html>.
pub(super) fn text(since_1970: Duration) -> String {
    let seconds = since_1970.as_secs();
    let days = i64::try_from(seconds / 86400).unwrap_or_default() + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    let milliseconds = since_1970.subsec_millis();
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milliseconds:03}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_calendar() {
        // `date -u -d @951827696`, `date -u -d @4107542399`
        let cases = [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_827_696, "2000-02-29T12:34:56.000Z"),
            (4_107_542_399, "2100-02-28T23:59:59.000Z"),
        ];
        for (seconds, expected) in cases {
            assert_eq!(text(Duration::from_secs(seconds)), expected);
        }
    }
}
