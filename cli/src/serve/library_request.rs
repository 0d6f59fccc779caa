//! A request of the library that waits for its turn, as text, with the memory that it takes.

use std::time::{Duration, Instant};

use serde_json::Value;

use super::error::ApiError;
use super::memory_budget::RequestMemory;
use super::pictures::PicturePaths;
use crate::failure::Failure;

pub(crate) struct LibraryRequest {
    /// JSON without `timeout_ms`.
    text: String,
    /// How long it may run.
    timeout: Duration,
    /// When it must have ended.
    deadline: Option<Instant>,
    /// Another template than the model's.
    pub(super) chat_template: Option<String>,
    pictures: PicturePaths,
    memory: RequestMemory,
}

impl LibraryRequest {
    /// Takes `timeout_ms` of the request, if it has one, for the time that it may run, and
    /// `chat_template`, which is an option of chats.
    pub(super) fn new(mut request: Value) -> LibraryRequest {
        let pictures = PicturePaths::take(&mut request);
        let mut take = |name| request.as_object_mut().and_then(|it| it.shift_remove(name));
        let timeout = take("timeout_ms").and_then(|timeout| timeout.as_u64()).unwrap_or(u64::MAX);
        let template = take("chat_template");
        LibraryRequest {
            text: request.to_string(),
            timeout: Duration::from_millis(timeout),
            deadline: None,
            chat_template: template.and_then(|text| text.as_str().map(str::to_owned)),
            pictures,
            memory: RequestMemory::default(),
        }
    }

    /// The error for a failure of this request.
    pub(super) fn error(&self, failure: &Failure) -> ApiError {
        self.pictures.error(failure)
    }

    /// Holds its memory until the request is dropped. It runs until `deadline` at most.
    pub(super) fn hold(&mut self, memory: RequestMemory, deadline: Option<Instant>) {
        self.memory = memory;
        self.deadline = deadline;
    }

    /// The time that remains for the run.
    pub(super) fn time(&self) -> Duration {
        let until = self.deadline.map(|end| end.saturating_duration_since(Instant::now()));
        until.map_or(self.timeout, |until| until.min(self.timeout))
    }

    /// The JSON, with the time that remains for the run.
    pub(super) fn text(&self) -> String {
        let timeout = self.time();
        let timeout = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX).max(1);
        let members = self.text.strip_prefix('{').unwrap_or(&self.text);
        let comma = if members == "}" { "" } else { "," };
        format!("{{\"timeout_ms\":{timeout}{comma}{members}")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(request: Value, deadline: Option<Instant>, expected: Value) {
        let mut request = LibraryRequest::new(request);
        request.hold(RequestMemory::default(), deadline);
        assert_eq!(serde_json::from_str::<Value>(&request.text()).unwrap(), expected);
    }

    #[test]
    fn the_time_that_remains_is_added() {
        let members = json!({ "a": [{}], "timeout_ms": 500 });
        check(members.clone(), None, members.clone());
        check(members.clone(), Some(Instant::now() + Duration::from_secs(60)), members.clone());
        check(members, Some(Instant::now()), json!({ "a": [{}], "timeout_ms": 1 }));
        check(json!({ "timeout_ms": 7 }), None, json!({ "timeout_ms": 7 }));
    }
}
