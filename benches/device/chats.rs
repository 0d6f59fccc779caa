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
            "tool_policy": "any", "kv_unified": crate::kv_unified(),
        });
        Chats((0..count).map(|_| Chat::open(&options)).collect())
    }

    /// Tokens per second over all chats while all of them decode, for prompts of about `n_prompt`
    /// tokens and replies of `decoded` tokens. `members` are further members of the requests. The
    /// prompts are computed before. Replies that the model ends early do not end the measurement.
    pub(crate) fn rate(&self, n_prompt: usize, decoded: usize, members: &Value) -> f64 {
        self.run(n_prompt, 1, members);
        let runs = self.run(n_prompt, decoded, members);
        let begin = runs.iter().filter_map(|run| run.pieces.first()).max();
        let full = runs.iter().filter(|run| run.is_full);
        let end = full.filter_map(|run| run.pieces.last()).min();
        let (Some(begin), Some(end)) = (begin, end) else { return f64::NAN };
        let tokens: f64 = runs.iter().map(|run| run.tokens_within(*begin, *end)).sum();
        tokens / end.saturating_duration_since(*begin).as_secs_f64()
    }

    /// A reply of each chat, all at the same time.
    fn run(&self, n_prompt: usize, max_tokens: usize, members: &Value) -> Vec<Run> {
        let each = self.0.iter().enumerate();
        let requests: Vec<(&Chat, String)> = each
            .map(|(salt, chat)| {
                let mut request = json!({
                    "messages": [{ "role": "user", "content": prompt_of(chat, n_prompt, salt) }],
                    "max_tokens": max_tokens, "seed": salt,
                });
                let all = request.as_object_mut().expect("an object");
                all.extend(members.as_object().expect("an object").clone());
                (chat, request.to_string())
            })
            .collect();
        scope(|scope| {
            let started: Vec<_> = requests
                .iter()
                .map(|(chat, request)| scope.spawn(|| Run::of(chat, request)))
                .collect();
            started.into_iter().map(|run| run.join().expect("no panic")).collect()
        })
    }
}

/// One reply.
struct Run {
    /// When each piece arrived.
    pieces: Vec<Instant>,
    tokens: f64,
    /// Whether it has all tokens that were requested.
    is_full: bool,
}

impl Run {
    fn of(chat: &Chat, request: &str) -> Run {
        let mut pieces = Vec::new();
        let reply = chat.stream(request, |_| pieces.push(Instant::now()));
        let tokens = reply["usage"]["completion_tokens"].as_f64().unwrap_or(f64::NAN);
        Run { pieces, tokens, is_full: reply["finish_reason"] == "length" }
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
    // Lines are of about the same length, but later ones have larger numbers.
    let mut lines = 10;
    for _ in 0..4 {
        lines = (lines * tokens / count(lines).max(1)).max(1);
    }
    text(lines)
}
