//! Several replies to one request: `n` choices, or several prompts. Each is a generation of its own,
//! which runs when the model has a place for it. The engine computes the beginning that their
//! prompts share once, and copies it.

use std::iter::Enumerate;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};
use std::vec::IntoIter;

use axum::http::StatusCode;
use serde_json::{Value, json};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::task::JoinSet;

use super::app::App;
use super::error::ApiError;
use super::fair_queue::Group;
use super::fields;
use super::generation::{Generated, Generation, Update, Updates};
use super::held_replies::HeldReply;
use super::library_request::LibraryRequest;
use super::log::RequestLog;
use super::memory_budget::RequestMemory;
use super::model::ServedModel;

/// The most choices of one request, as in OpenAI's API.
const MAX_CHOICES: u64 = 128;

/// `n` of a request: the number of choices for each prompt.
pub(super) fn count(body: &Value) -> Result<usize, ApiError> {
    let n = match fields::get(body, "n").map(|n| (n, n.as_f64())) {
        None => 1.0,
        Some((_, Some(n))) if n.fract() == 0.0 && (1.0..=MAX_CHOICES as f64).contains(&n) => n,
        Some((n, _)) => {
            let expected = format!("a whole number from 1 to {MAX_CHOICES}");
            return Err(fields::wrong("n", &expected, n));
        }
    };
    Ok(n as usize)
}

/// How long the choices of a request may take together: the last ones wait for the first, each up to
/// `wait`, but all of them end at the deadline of the request.
pub(super) fn time(
    requests: &[LibraryRequest],
    wait: Duration,
    deadline: Option<Instant>,
) -> Duration {
    let longest = requests.iter().map(LibraryRequest::time).max().unwrap_or_default();
    let time = longest.saturating_add(wait);
    deadline.map_or(time, |end| time.min(end.saturating_duration_since(Instant::now())))
}

/// Replies that are generated side by side. Dropping it cancels them.
pub(super) struct Choices {
    updates: Receiver<(usize, Update)>,
    _tasks: JoinSet<()>,
    _memory: RequestMemory,
    log: Arc<RequestLog>,
    /// The replies that have ended. Without a stream, they lack their log probabilities.
    ended: Vec<Option<Generated>>,
    /// Without a stream, the log probabilities of the replies in `order`.
    held: Option<HeldReply>,
    /// The indices of the replies whose log probabilities are held.
    order: Vec<usize>,
    /// How many choices each prompt has.
    n: usize,
}

impl Choices {
    /// Starts the requests. Each waits for its place for up to `wait`.
    pub(super) fn start(
        app: &Arc<App>,
        model: &Arc<ServedModel>,
        requests: Vec<LibraryRequest>,
        (n, wait, is_stream): (usize, Duration, bool),
        log: &Arc<RequestLog>,
        (group, memory): (Group, RequestMemory),
    ) -> Choices {
        // Chunks that the client has not read stay where their memory is counted.
        let (sender, updates) = channel(1);
        let mut tasks = JoinSet::new();
        let ended: Vec<Option<Generated>> = requests.iter().map(|_| None).collect();
        let runner = Runner {
            app: Arc::clone(app),
            model: Arc::clone(model),
            group,
            end: Instant::now().checked_add(wait),
            is_stream,
            log: Arc::clone(log),
            requests: Arc::new(Mutex::new(requests.into_iter().enumerate())),
            sender,
        };
        // No more of them wait in the queue than can run at once.
        for _ in 0..model.places().min(ended.len()) {
            tasks.spawn(runner.clone().run());
        }
        Choices {
            updates,
            _tasks: tasks,
            _memory: memory,
            log: Arc::clone(log),
            ended,
            held: (!is_stream).then(|| app.replies.begin()),
            order: Vec::new(),
            n,
        }
    }

    /// Waits for all replies.
    pub(super) async fn replies(mut self) -> Result<Vec<Generated>, ApiError> {
        loop {
            let update = std::future::poll_fn(|context| self.poll_next(context)).await;
            if let Update::End(result) = update {
                result?;
                return Ok(self.ended.into_iter().flatten().collect());
            }
        }
    }

    /// Keeps a reply until all have ended.
    fn keep(&mut self, index: usize, mut reply: Generated) -> Result<(), ApiError> {
        if let Some(held) = &self.held
            && let Some(logprobs) = reply.logprobs.take()
        {
            held.push(logprobs);
            self.order.push(index);
            if held.is_dropped() {
                return Err(too_large());
            }
        }
        self.ended[index] = Some(reply);
        Ok(())
    }

    /// All replies together, once the last one has ended.
    fn together(&mut self) -> Result<Generated, ApiError> {
        if let Some(held) = &self.held {
            for index in self.order.drain(..) {
                let logprobs = held.take_part().map_err(|_| too_large())?;
                if let Some(reply) = &mut self.ended[index] {
                    reply.logprobs = logprobs;
                }
            }
        }
        let value = together(self.ended.iter().flatten(), self.n);
        self.log.set_reply(&value);
        Ok(Generated { value, logprobs: None })
    }
}

/// Generates replies one after another, beside others that take from the same requests.
#[derive(Clone)]
struct Runner {
    app: Arc<App>,
    model: Arc<ServedModel>,
    group: Group,
    /// When the requests stop waiting for places.
    end: Option<Instant>,
    is_stream: bool,
    log: Arc<RequestLog>,
    requests: Arc<Mutex<Enumerate<IntoIter<LibraryRequest>>>>,
    sender: Sender<(usize, Update)>,
}

impl Runner {
    async fn run(self) {
        while let Some((index, request)) = self.next() {
            let mut generation = match self.start(request).await {
                Ok(generation) => generation,
                Err(error) => {
                    return drop(self.sender.send((index, Update::End(Err(error)))).await);
                }
            };
            loop {
                let update = generation.next().await;
                let is_end = matches!(update, Update::End(_));
                if self.sender.send((index, update)).await.is_err() {
                    return;
                }
                if is_end {
                    break;
                }
            }
        }
    }

    fn next(&self) -> Option<(usize, LibraryRequest)> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).next()
    }

    /// Starts a request when it has a place.
    async fn start(&self, request: LibraryRequest) -> Result<Generation, ApiError> {
        let remaining = |end: Instant| end.saturating_duration_since(Instant::now());
        let wait = self.end.map_or(Duration::MAX, remaining);
        let slot = self.app.pool.slot(&self.model, self.group, wait).await?;
        let held = self.is_stream.then(|| self.app.replies.begin());
        let (metrics, log) = (Arc::clone(&self.app.metrics), Arc::clone(&self.log));
        Ok(Generation::start(slot, request, metrics, log, held))
    }
}

impl Updates for Choices {
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Update> {
        loop {
            let update = match ready!(self.updates.poll_recv(context)) {
                Some((index, Update::Chunk(mut chunk))) => {
                    chunk.value["choices"][0]["index"] = index.into();
                    Update::Chunk(chunk)
                }
                Some((index, Update::End(Ok(reply)))) => match self.keep(index, reply) {
                    Ok(()) if self.ended.iter().any(Option::is_none) => continue,
                    kept => Update::End(kept.and_then(|()| self.together())),
                },
                Some((_, end)) => end,
                None => {
                    let message = "the server is stopping";
                    Update::End(Err(ApiError::new(StatusCode::SERVICE_UNAVAILABLE, message)))
                }
            };
            return Poll::Ready(update);
        }
    }
}

fn too_large() -> ApiError {
    let message = "the log probabilities of the choices take more memory than the server has for \
                   replies (`--reply-memory`); ask for fewer of them, or stream the reply";
    ApiError::new(StatusCode::SERVICE_UNAVAILABLE, message)
}

/// What the replies have together. Each prompt is counted once. Replies that ran side by side have no
/// common `timings`.
pub(super) fn together<'a>(replies: impl Iterator<Item = &'a Generated>, n: usize) -> Value {
    let mut sums = [0; 3];
    let (mut diagnostics, mut reason, mut ignored) = (Vec::new(), Value::Null, None);
    let mut timings = None;
    for (index, reply) in replies.enumerate() {
        let value = &reply.value;
        let number = |path: &str| value.pointer(path).and_then(Value::as_u64).unwrap_or_default();
        if index.is_multiple_of(n) {
            sums[0] += number("/usage/prompt_tokens");
            sums[1] += number("/usage/prompt_tokens_details/cached_tokens");
        }
        sums[2] += number("/usage/completion_tokens");
        timings = value.get("timings").filter(|_| index == 0);
        diagnostics.extend(value["diagnostics"].as_array().into_iter().flatten().cloned());
        ignored = ignored.or(value.get("ignored_keys"));
        if reason.is_null() {
            reason = value["finish_reason"].clone();
        }
    }
    let [prompt, cached, completion] = sums;
    let mut together = json!({
        "finish_reason": reason,
        "diagnostics": diagnostics,
        "usage": {
            "prompt_tokens": prompt, "completion_tokens": completion,
            "total_tokens": prompt + completion,
            "prompt_tokens_details": { "cached_tokens": cached },
        },
    });
    if let Some(timings) = timings {
        together["timings"] = timings.clone();
    }
    if let Some(names) = ignored {
        together["ignored_keys"] = names.clone();
    }
    together
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn n_is_a_count() {
        for (n, expected) in [(json!(null), 1), (json!(3), 3), (json!(2.0), 2), (json!(128), 128)] {
            assert_eq!(count(&json!({ "n": n })).unwrap(), expected);
        }
        for n in [json!(0), json!(129), json!(1.5), json!("1"), json!(-1)] {
            assert!(count(&json!({ "n": n })).unwrap_err().message.starts_with("n: "), "{n}");
        }
    }

    #[test]
    fn a_deadline_is_not_waited_for_twice() {
        let hour = Duration::from_secs(3600);
        let requests = |deadline| -> Vec<LibraryRequest> {
            let request = LibraryRequest::new(json!({ "timeout_ms": 3_600_000 }));
            let mut requests: Vec<_> = request.choices(2).collect();
            requests
                .iter_mut()
                .for_each(|request| request.hold(RequestMemory::default(), deadline));
            requests
        };
        assert_eq!(time(&requests(None), hour, None), 2 * hour);
        let deadline = Some(Instant::now() + hour);
        assert!(time(&requests(deadline), hour, deadline) <= hour);
    }

    #[test]
    fn each_prompt_is_counted_once() {
        let reply = |prompt: u64, completion: u64| Generated {
            value: json!({
                "finish_reason": "stop",
                "usage": { "prompt_tokens": prompt, "completion_tokens": completion },
            }),
            logprobs: None,
        };
        let replies = [reply(5, 1), reply(5, 2), reply(7, 3), reply(7, 4)];
        let usage = together(replies.iter(), 2)["usage"].clone();
        assert_eq!(
            (&usage["prompt_tokens"], &usage["completion_tokens"]),
            (&json!(12), &json!(10))
        );
        assert_eq!(usage["total_tokens"], 22);
    }
}
