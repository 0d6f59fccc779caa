//! The facts about a request, and the access log. The log has one line per request on stderr. Of
//! the client's text it contains only the method, the path of a known route and the name of a
//! served model.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use super::error::ApiError;

/// Numeric members of a request that the log keeps.
const SETTINGS: [&str; 9] = [
    "max_tokens",
    "max_completion_tokens",
    "temperature",
    "top_p",
    "top_k",
    "frequency_penalty",
    "presence_penalty",
    "seed",
    "dimensions",
];

/// Collects the facts about a request. The line is written when the request has ended.
pub(crate) struct RequestLog {
    is_on: bool,
    pub(super) method: String,
    pub(super) route: &'static str,
    pub(super) started: Instant,
    started_at: SystemTime,
    facts: Mutex<Facts>,
}

#[derive(Clone, Default)]
pub(super) struct Facts {
    pub(super) status: Option<u16>,
    pub(super) model: Option<String>,
    /// The library's error code.
    pub(super) code: Option<String>,
    /// The error code that clients see, or else the status.
    pub(super) error: Option<String>,
    /// The numbers of the request, `stream`, and `is_json` if the reply must be JSON.
    pub(super) settings: Value,
    pub(super) wait: Option<Wait>,
    /// The usage of the reply, or null.
    pub(super) usage: Value,
    pub(super) finish_reason: Option<String>,
    /// The time from the start of the generation to the first token.
    pub(super) first_token: Option<Duration>,
    pub(super) first_token_at: Option<Instant>,
}

/// The wait for a slot of the model.
#[derive(Clone)]
pub(super) struct Wait {
    pub(super) begin: Instant,
    /// `None` if the client left while waiting.
    pub(super) end: Option<Instant>,
    /// Whether the model was in memory when the wait began.
    pub(super) was_loaded: bool,
}

impl RequestLog {
    pub(crate) fn new(is_on: bool, method: &str, route: &'static str) -> RequestLog {
        RequestLog {
            is_on,
            method: method.to_owned(),
            route,
            started: Instant::now(),
            started_at: SystemTime::now(),
            facts: Mutex::default(),
        }
    }

    /// The time of a moment since the start.
    pub(super) fn time_of(&self, moment: Instant) -> SystemTime {
        self.started_at + moment.saturating_duration_since(self.started)
    }

    /// All facts known so far.
    pub(super) fn facts(&self) -> Facts {
        self.facts.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// Records facts.
    pub(super) fn set(&self, change: impl FnOnce(&mut Facts)) {
        change(&mut self.facts.lock().unwrap_or_else(PoisonError::into_inner));
    }

    pub(super) fn set_model(&self, model: &str) {
        self.set(|facts| facts.model = Some(model.to_owned()));
    }

    /// Records an error in the response, or in the middle of a stream.
    pub(crate) fn set_error(&self, error: &ApiError) {
        let name = error.code.clone().unwrap_or_else(|| error.status.as_u16().to_string());
        self.set(|facts| facts.error = Some(name));
    }

    /// Records the numbers of a library request, and none of the client's text.
    pub(crate) fn set_settings(&self, request: &Value, is_streamed: bool) {
        let mut settings = json!({ "stream": is_streamed });
        for name in SETTINGS {
            if let Some(number) = request.get(name).filter(|value| value.is_number()) {
                settings[name] = number.clone();
            }
        }
        let form = request["response_format"]["type"].as_str();
        if matches!(form, Some("json_object" | "json_schema")) {
            settings["is_json"] = true.into();
        }
        self.set(|facts| facts.settings = settings);
    }

    pub(crate) fn set_reply(&self, reply: &Value) {
        let usage = reply["usage"].clone();
        let reason = reply["finish_reason"].as_str().map(str::to_owned);
        self.set(|facts| {
            facts.usage = usage;
            facts.finish_reason = reason;
        });
    }

    /// Writes the line.
    pub(crate) fn write(&self) {
        if !self.is_on {
            return;
        }
        let facts = self.facts();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let status = facts.status.map_or_else(|| "left".to_owned(), |status| status.to_string());
        let mut line = format!("{} {} {} {status}", time(now), self.method, self.route);
        line += &format!(" ms={}", self.started.elapsed().as_millis());
        if let Some(model) = &facts.model {
            line += &format!(" model={model}");
        }
        for (name, path) in [
            ("prompt", "/prompt_tokens"),
            ("cached", "/prompt_tokens_details/cached_tokens"),
            ("completion", "/completion_tokens"),
        ] {
            if let Some(count) = facts.usage.pointer(path) {
                line += &format!(" {name}={count}");
            }
        }
        if let Some(first) = facts.first_token {
            line += &format!(" first_ms={}", first.as_millis());
        }
        for (name, value) in [("finish", &facts.finish_reason), ("code", &facts.code)] {
            if let Some(value) = value {
                line += &format!(" {name}={value}");
            }
        }
        say!("{line}");
    }
}

/// `2026-11-23T17:49:00.123Z`. The calendar date is computed as in
/// <https://howardhinnant.github.io/date_algorithms.html>.
fn time(since_1970: Duration) -> String {
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
        for (seconds, text) in cases {
            assert_eq!(time(Duration::from_secs(seconds)), text);
        }
    }
}
