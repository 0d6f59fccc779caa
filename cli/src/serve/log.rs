//! The facts about a request, and the access log. The log has one line per request on stderr. Of
//! the client's text it contains only the method, the path of a known route and the name of a
//! served model.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use serde_json::{Value, json};

use super::error::ApiError;
use super::stamp;

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
        let status = facts.status.map_or_else(|| "left".to_owned(), |status| status.to_string());
        let mut line =
            format!("{} {} {} {status}", stamp::text(stamp::since_1970()), self.method, self.route);
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
