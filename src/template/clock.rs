//! A local date and time, and Python's `strftime` for it. Reads the system clock only in
//! [`LocalTime::now`].

use std::time::{SystemTime, UNIX_EPOCH};

use crate::error::{Error, Result};

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const WEEKDAYS: [&str; 7] =
    ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

/// A local date and time without a zone, to the second, as `strftime_now` prints it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LocalTime {
    year: i32,
    month: u32,
    day: u32,
    hour: u32,
    minute: u32,
    second: u32,
}

impl LocalTime {
    /// Reads `2026-01-31T09:30:00`. Fractions of a second are dropped. A final `Z` is ignored,
    /// since the template gets the date and time as they are; any other zone is an error.
    pub fn parse(text: &str) -> Result<LocalTime> {
        Self::fields(text).ok_or_else(|| {
            Error::invalid(
                "now",
                format!("{text:?} is not a local date and time like 2026-01-31T09:30:00"),
            )
        })
    }

    fn fields(text: &str) -> Option<LocalTime> {
        let (date, time) = text.strip_suffix('Z').unwrap_or(text).split_once(['T', ' '])?;
        let mut date = date.split('-');
        let mut time = time.split(':');
        let next = |part: Option<&str>, digits: usize| -> Option<u32> {
            part.filter(|part| part.len() == digits && part.bytes().all(|b| b.is_ascii_digit()))?
                .parse()
                .ok()
        };
        let year = next(date.next(), 4)?;
        let month = next(date.next(), 2)?;
        let day = next(date.next(), 2)?;
        let hour = next(time.next(), 2)?;
        let minute = next(time.next(), 2)?;
        let (second, fraction) = match time.next() {
            Some(second) => second.split_once('.').unwrap_or((second, "")),
            None => ("00", ""),
        };
        let second = next(Some(second), 2)?;
        let whole = date.next().is_none()
            && time.next().is_none()
            && fraction.bytes().all(|b| b.is_ascii_digit());
        let year = i32::try_from(year).ok()?;
        let in_range = (1..=12).contains(&month)
            && (1..=days_in_month(year, month)).contains(&day)
            && hour < 24
            && minute < 60
            && second < 60
            && year > 0;
        (whole && in_range).then_some(LocalTime { year, month, day, hour, minute, second })
    }

    /// The date and time `seconds` after 1970-01-01T00:00:00, in a zone that is `offset` seconds
    /// east of UTC.
    pub fn from_unix_local(seconds: i64, offset: i32) -> LocalTime {
        let local = seconds.saturating_add(i64::from(offset));
        let (days, of_day) = (local.div_euclid(86_400), local.rem_euclid(86_400));
        let (year, month, day) = civil(days);
        let of_day = u32::try_from(of_day).unwrap_or(0);
        LocalTime {
            year,
            month,
            day,
            hour: of_day / 3600,
            minute: of_day / 60 % 60,
            second: of_day % 60,
        }
    }

    /// The system clock's date and time, **in UTC**. The standard library does not know the local
    /// zone, and this module makes no system calls. A host that wants local dates in prompts sends
    /// `now`.
    pub fn now() -> LocalTime {
        let seconds =
            SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_secs());
        LocalTime::from_unix_local(i64::try_from(seconds).unwrap_or(i64::MAX), 0)
    }

    /// Days since 1 January, from 1.
    fn day_of_year(&self) -> u32 {
        (1..self.month).map(|month| days_in_month(self.year, month)).sum::<u32>() + self.day
    }

    /// 0 is Sunday.
    fn weekday(&self) -> u32 {
        u32::try_from((days_from_civil(self.year, self.month, self.day) + 4).rem_euclid(7))
            .unwrap_or(0)
    }

    /// ISO 8601 year and week.
    fn iso_week(&self) -> (i32, u32) {
        let weekday = i64::from((self.weekday() + 6) % 7);
        let thursday = days_from_civil(self.year, self.month, self.day) - weekday + 3;
        let (year, _, _) = civil(thursday);
        let week = (thursday - days_from_civil(year, 1, 1)) / 7 + 1;
        (year, u32::try_from(week).unwrap_or(0))
    }

    /// Python's `strftime` with English names. An unknown directive is copied.
    pub fn strftime(&self, format: &str) -> String {
        let mut out = String::new();
        let mut chars = format.chars().peekable();
        while let Some(c) = chars.next() {
            if c != '%' {
                out.push(c);
                continue;
            }
            // glibc's `-` flag drops the padding.
            let bare = chars.next_if_eq(&'-').is_some();
            match chars.next() {
                Some(directive) => self.directive(&mut out, directive, bare),
                None => out.push_str(if bare { "%-" } else { "%" }),
            }
        }
        out
    }

    fn directive(&self, out: &mut String, directive: char, bare: bool) {
        let twelve = match self.hour % 12 {
            0 => 12,
            hour => hour,
        };
        let weekday = self.weekday();
        let month_name = MONTHS[(self.month as usize + 11) % 12];
        let day_name = WEEKDAYS[weekday as usize % 7];
        let mut padded = |number: u32, width: usize, fill: char| {
            let digits = number.to_string();
            if !bare {
                out.extend(std::iter::repeat_n(fill, width.saturating_sub(digits.len())));
            }
            out.push_str(&digits);
        };
        match directive {
            'd' => padded(self.day, 2, '0'),
            'e' => padded(self.day, 2, ' '),
            'm' => padded(self.month, 2, '0'),
            'H' => padded(self.hour, 2, '0'),
            'k' => padded(self.hour, 2, ' '),
            'I' => padded(twelve, 2, '0'),
            'l' => padded(twelve, 2, ' '),
            'M' => padded(self.minute, 2, '0'),
            'S' => padded(self.second, 2, '0'),
            'f' => padded(0, 6, '0'),
            'j' => padded(self.day_of_year(), 3, '0'),
            'y' => padded(self.year.unsigned_abs() % 100, 2, '0'),
            'C' => padded(self.year.unsigned_abs() / 100, 2, '0'),
            'u' => padded(if weekday == 0 { 7 } else { weekday }, 1, '0'),
            'w' => padded(weekday, 1, '0'),
            'U' => padded((self.day_of_year() + 6 - weekday) / 7, 2, '0'),
            'W' => padded((self.day_of_year() + 6 - (weekday + 6) % 7) / 7, 2, '0'),
            'V' => padded(self.iso_week().1, 2, '0'),
            'G' => out.push_str(&self.iso_week().0.to_string()),
            'Y' => out.push_str(&self.year.to_string()),
            'B' => out.push_str(month_name),
            'b' | 'h' => out.push_str(&month_name[..3]),
            'A' => out.push_str(day_name),
            'a' => out.push_str(&day_name[..3]),
            'p' => out.push_str(if self.hour < 12 { "AM" } else { "PM" }),
            'P' => out.push_str(if self.hour < 12 { "am" } else { "pm" }),
            'D' | 'x' => out.push_str(&self.strftime("%m/%d/%y")),
            'F' => out.push_str(&self.strftime("%Y-%m-%d")),
            'T' | 'X' => out.push_str(&self.strftime("%H:%M:%S")),
            'R' => out.push_str(&self.strftime("%H:%M")),
            'r' => out.push_str(&self.strftime("%I:%M:%S %p")),
            'c' => out.push_str(&self.strftime("%a %b %e %H:%M:%S %Y")),
            's' => {
                let days = days_from_civil(self.year, self.month, self.day);
                let of_day = self.hour * 3600 + self.minute * 60 + self.second;
                out.push_str(&(days * 86_400 + i64::from(of_day)).to_string());
            }
            // A time without a zone prints nothing here.
            'Z' | 'z' => {}
            'n' => out.push('\n'),
            't' => out.push('\t'),
            '%' => out.push('%'),
            unknown => {
                out.push('%');
                if bare {
                    out.push('-');
                }
                out.push(unknown);
            }
        }
    }
}

fn is_leap(year: i32) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

fn days_in_month(year: i32, month: u32) -> u32 {
    match month {
        2 if is_leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days since 1970-01-01 of a date in the Gregorian calendar.
fn days_from_civil(year: i32, month: u32, day: u32) -> i64 {
    let before = i64::from(year) - 1;
    let days_before_year =
        before * 365 + before.div_euclid(4) - before.div_euclid(100) + before.div_euclid(400);
    let of_year = (1..month).map(|month| days_in_month(year, month)).sum::<u32>() + day;
    days_before_year + i64::from(of_year) - 719_163
}

/// The date a number of days after 1970-01-01.
fn civil(days: i64) -> (i32, u32, u32) {
    // 400 years have exactly 146,097 days; the estimate is at most one year off.
    let estimate = 1970 + days.clamp(-700_000, 3_000_000) * 400 / 146_097;
    let mut year = i32::try_from(estimate).unwrap_or(1970);
    while days_from_civil(year, 1, 1) > days {
        year -= 1;
    }
    while year < 9999 && days_from_civil(year + 1, 1, 1) <= days {
        year += 1;
    }
    let mut rest = u32::try_from(days - days_from_civil(year, 1, 1)).unwrap_or(0).min(365);
    let mut month = 1;
    while month < 12 && rest >= days_in_month(year, month) {
        rest -= days_in_month(year, month);
        month += 1;
    }
    (year, month, rest + 1)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    #[track_caller]
    fn check(now: &str, format: &str, expected: &str) {
        assert_eq!(LocalTime::parse(now).unwrap().strftime(format), expected);
    }

    #[test]
    fn directives() {
        check("2026-01-31T09:30:00", "%d %B %Y", "31 January 2026");
        check("2024-07-26T00:00:00", "%A, %a %b %e %-d %j", "Friday, Fri Jul 26 26 208");
        check("2025-01-05T03:04:07", "%-d/%-m %e %I:%M %p %H%S", "5/1  5 03:04 AM 0307");
        check(
            "2025-01-05T15:04:07",
            "%F %T %I %y %w %u %U %W %V %G",
            "2025-01-05 15:04:07 03 25 0 7 01 00 01 2025",
        );
        check("2000-02-29T12:00:00", "%c|%x|%%|%Q", "Tue Feb 29 12:00:00 2000|02/29/00|%|%Q");
    }

    #[test]
    fn only_real_dates_parse() {
        for bad in [
            "",
            "2026-01-31",
            "2026-02-29T00:00:00",
            "2026-01-31T24:00:00",
            "2026-01-31T09:30:00+01:00",
            "26-1-3T1:2:3",
        ] {
            assert!(LocalTime::parse(bad).is_err(), "{bad}");
        }
        assert!(LocalTime::parse("2026-01-31T09:30:00.250").is_ok());
    }

    #[test]
    fn unix_seconds() {
        for (seconds, expected) in [
            (0, "1970-01-01T00:00:00"),
            (-1, "1969-12-31T23:59:59"),
            (951_827_696, "2000-02-29T12:34:56"),
            (1_721_952_000, "2024-07-26T00:00:00"),
            (4_102_444_799, "2099-12-31T23:59:59"),
        ] {
            assert_eq!(LocalTime::from_unix_local(seconds, 0), LocalTime::parse(expected).unwrap());
        }
        assert_eq!(LocalTime::from_unix_local(0, 3600).strftime("%H"), "01");
        assert_eq!(LocalTime::from_unix_local(i64::MAX, 0).strftime("%m").len(), 2);
    }
}
