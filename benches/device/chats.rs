//! Many chats at once through the C ABI.

use std::thread::scope;
use std::time::Instant;

use llb::ffi;
use serde_json::{Value, json};

use crate::chat::Chat;

/// Chats on one model.
pub(crate) struct Chats(Vec<Chat>);

impl Chats {
    /// Opens `count` chats that are decoded together.
    pub(crate) fn open(model: &str, count: usize, n_ctx: usize, n_gpu_layers: &Value) -> Chats {
        let options = json!({
            "model": model, "n_ctx": n_ctx, "n_parallel": count, "n_gpu_layers": n_gpu_layers,
            "tool_policy": "any",
        });
        Chats((0..count).map(|_| Chat::open(&options)).collect())
    }

    /// Tokens per second over all chats while all of them decode, for prompts of about `n_prompt`
    /// tokens and replies of `decoded` tokens. `members` are further members of the requests.
    pub(crate) fn rate(&self, n_prompt: usize, decoded: usize, members: &Value) -> f64 {
        let runs: Vec<Run> = scope(|scope| {
            let started: Vec<_> = self
                .0
                .iter()
                .enumerate()
                .map(|(salt, chat)| {
                    let mut request = json!({
                        "messages": [{ "role": "user", "content": prompt_of(chat, n_prompt, salt) }],
                        "max_tokens": decoded, "seed": salt, "cache_prompt": false,
                    });
                    let all = request.as_object_mut().expect("an object");
                    all.extend(members.as_object().expect("an object").clone());
                    scope.spawn(move || Run::of(chat, &request))
                })
                .collect();
            started.into_iter().map(|run| run.join().expect("no panic")).collect()
        });
        let begin = runs.iter().filter_map(|run| run.pieces.first()).max();
        let end = runs.iter().filter_map(|run| run.pieces.last()).min();
        let (Some(begin), Some(end)) = (begin, end) else { return f64::NAN };
        let tokens: f64 = runs.iter().map(|run| run.tokens_within(*begin, *end)).sum();
        tokens / end.saturating_duration_since(*begin).as_secs_f64()
    }
}

/// One reply.
struct Run {
    /// When each piece arrived.
    pieces: Vec<Instant>,
    tokens: f64,
}

impl Run {
    fn of(chat: &Chat, request: &Value) -> Run {
        let mut pieces = Vec::new();
        let reply = chat.stream(&request.to_string(), |_| pieces.push(Instant::now()));
        Run { pieces, tokens: reply["usage"]["completion_tokens"].as_f64().unwrap_or(f64::NAN) }
    }

    /// The tokens after `begin` up to `end`. A piece has the same part of them as any other one.
    fn tokens_within(&self, begin: Instant, end: Instant) -> f64 {
        let within = self.pieces.iter().filter(|piece| begin < **piece && **piece <= end).count();
        self.tokens / self.pieces.len() as f64 * within as f64
    }
}

/// A message whose prompt has about `tokens` tokens. Each `salt` gives a different beginning.
pub(crate) fn prompt_of(chat: &Chat, tokens: usize, salt: usize) -> String {
    let text = |lines: usize| {
        let line = |n| format!("Row {salt}, shelf {n}: {} boxes of nails.\n", n * 7 % 41);
        (0..lines).map(line).collect::<String>() + "Copy all lines three times, word by word."
    };
    let count = |lines: usize| {
        let request = json!({ "messages": [{ "role": "user", "content": text(lines) }] });
        let explained = chat.call(ffi::llb_chat_explain, &request.to_string());
        explained["prompt_tokens"].as_u64().unwrap_or_default() as usize
    };
    let (few, more) = (count(1), count(11));
    text(tokens.saturating_sub(few) * 10 / more.saturating_sub(few).max(1) + 1)
}
