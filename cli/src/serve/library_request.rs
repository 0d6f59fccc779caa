//! A request of the library that waits for its turn, as text, with the memory that it takes. Several
//! replies to one request share its text.

use std::fmt::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::error::ApiError;
use super::memory_budget::RequestMemory;
use super::pictures::PicturePaths;
use crate::failure::Failure;

pub(crate) struct LibraryRequest {
    /// JSON without the members that have fields of their own.
    text: Arc<str>,
    /// The JSON of `prompt`, if it is one of several.
    prompt: Option<Arc<str>>,
    /// A `seed` that is not negative.
    seed: Option<i64>,
    /// How long it may run.
    timeout: Duration,
    /// When it must have ended.
    deadline: Option<Instant>,
    /// Another template than the model's.
    pub(super) chat_template: Option<Arc<str>>,
    pictures: Arc<PicturePaths>,
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
        let seed = request["seed"].as_i64().filter(|seed| *seed >= 0);
        if seed.is_some() {
            request.as_object_mut().and_then(|it| it.shift_remove("seed"));
        }
        LibraryRequest {
            text: request.to_string().into(),
            prompt: None,
            seed,
            timeout: Duration::from_millis(timeout),
            deadline: None,
            chat_template: template.and_then(|text| text.as_str().map(Arc::from)),
            pictures: Arc::new(pictures),
            memory: RequestMemory::default(),
        }
    }

    /// The same request, which has no prompt, for this prompt.
    pub(super) fn with_prompt(&self, prompt: &Value) -> LibraryRequest {
        LibraryRequest { prompt: Some(prompt.to_string().into()), ..self.copy() }
    }

    /// The requests of `n` choices. Each has another seed, if the request sets one.
    pub(super) fn choices(self, n: usize) -> impl Iterator<Item = LibraryRequest> {
        (0_i64..).take(n).map(move |index| {
            let seed = self.seed.map(|seed| seed.wrapping_add(index).max(0));
            LibraryRequest { seed, ..self.copy() }
        })
    }

    /// The same request without its memory.
    fn copy(&self) -> LibraryRequest {
        LibraryRequest {
            text: Arc::clone(&self.text),
            prompt: self.prompt.clone(),
            seed: self.seed,
            timeout: self.timeout,
            deadline: self.deadline,
            chat_template: self.chat_template.clone(),
            pictures: Arc::clone(&self.pictures),
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
        let mut text = format!("{{\"timeout_ms\":{timeout}");
        if let Some(seed) = self.seed {
            // Writing to a string does not fail.
            let _ = write!(text, ",\"seed\":{seed}");
        }
        if let Some(prompt) = &self.prompt {
            text.push_str(",\"prompt\":");
            text.push_str(prompt);
        }
        let members = self.text.strip_prefix('{').unwrap_or(&self.text);
        if members != "}" {
            text.push(',');
        }
        text.push_str(members);
        text
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
        let seeds = json!({ "timeout_ms": 7, "seed": 3, "a": 1 });
        check(seeds.clone(), None, seeds);
        let random = json!({ "timeout_ms": 7, "seed": -1 });
        check(random.clone(), None, random);
    }

    #[test]
    fn choices_share_the_text_of_their_request() {
        let request = LibraryRequest::new(json!({ "timeout_ms": 7, "seed": 3, "a": "b" }));
        let text = Arc::clone(&request.text);
        let of_prompts = ["x", "y"].map(|prompt| request.with_prompt(&prompt.into()).choices(2));
        let requests: Vec<LibraryRequest> = of_prompts.into_iter().flatten().collect();
        let values = requests.iter().map(|it| serde_json::from_str::<Value>(&it.text()).unwrap());
        let expected = |prompt: &str, seed: u64| json!({ "timeout_ms": 7, "seed": seed, "prompt": prompt, "a": "b" });
        assert_eq!(
            values.collect::<Vec<_>>(),
            [expected("x", 3), expected("x", 4), expected("y", 3), expected("y", 4)]
        );
        assert!(requests.iter().all(|it| Arc::ptr_eq(&it.text, &text)));
        let same = |pair: &[LibraryRequest]| {
            let [Some(first), Some(second)] = [0, 1].map(|index| pair[index].prompt.as_ref())
            else {
                return false;
            };
            Arc::ptr_eq(first, second)
        };
        assert!(requests.chunks(2).all(same));
    }
}
