//! The `Retry-After` header: the delay that a server asks for.

use std::time::{Duration, SystemTime};

/// Reads seconds or a date (RFC 9110, 10.2.3). `date` is the response's `Date` header. A date is
/// relative to the server's clock if the server sends one, else to the local clock.
pub(crate) fn retry_after(value: &str, date: &str) -> Option<Duration> {
    let value = value.trim();
    if let Ok(seconds) = value.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let at = httpdate::parse_http_date(value).ok()?;
    let now = httpdate::parse_http_date(date.trim()).unwrap_or_else(|_| SystemTime::now());
    Some(at.duration_since(now).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_and_dates() {
        let date = "Sun, 06 Nov 1994 08:49:37 GMT";
        let cases = [
            ("7", Some(7)),
            (" 0 ", Some(0)),
            ("Sun, 06 Nov 1994 08:50:07 GMT", Some(30)),
            // The obsolete format of RFC 850.
            ("Sunday, 06-Nov-94 08:50:07 GMT", Some(30)),
            ("Sun, 06 Nov 1994 08:49:00 GMT", Some(0)),
            ("-1", None),
            ("1.5", None),
            ("soon", None),
            ("", None),
        ];
        for (value, expected) in cases {
            assert_eq!(retry_after(value, date), expected.map(Duration::from_secs), "{value}");
        }
        // Without the server's clock the local clock is used, and the date is long past.
        assert_eq!(retry_after(date, ""), Some(Duration::ZERO));
    }
}
