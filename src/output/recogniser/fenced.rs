//! Calls in a fenced block: only a block that holds one call of a given tool and nothing else. It is decided as a whole, but
//! goes back to text as soon as it cannot be that.

use super::tagged::Candidate;
use super::{FENCE, Recogniser, State, is_blank};
use crate::output::call::{Kind, Progress};

/// What may stand behind the backticks.
const LANGUAGES: [&str; 3] = ["json", "tool_call", "tool_code"];

/// Backticks at the start of a line.
#[derive(Debug)]
pub(super) struct Fence {
    pub(super) held: String,
    pub(super) language: String,
    /// Blanks follow: the language is complete.
    pub(super) named: bool,
}

impl Recogniser {
    pub(super) fn fence_step(&mut self, mut fence: Fence, c: char) {
        let known = fence.language.is_empty() || LANGUAGES.contains(&fence.language.as_str());
        if c == '{' && known {
            return self.fence_object_step(Candidate::new(fence.held, false, false), c);
        }
        let fits = if is_blank(c) {
            fence.named = true;
            known
        } else {
            fence.language.push(c);
            !fence.named && LANGUAGES.iter().any(|language| language.starts_with(&fence.language))
        };
        fence.held.push(c);
        if fits {
            self.state = State::Fence(fence);
        } else {
            self.give_back(&fence.held);
        }
    }

    pub(super) fn fence_object_step(&mut self, mut candidate: Box<Candidate>, c: char) {
        let Some(format) = &self.format else { return };
        candidate.held.push(c);
        let progress = candidate.call.step(c, format);
        let call = &candidate.call;
        let known = call.name().is_none_or(|name| self.tools.contains(name));
        let object = call.kind().is_none_or(|kind| kind == Kind::Object);
        if progress == Progress::Broken || !known || !object || call.has_foreign_key() {
            return self.give_back(&candidate.held);
        }
        if progress == Progress::More {
            self.state = State::FenceObject(candidate);
        } else if call.name().is_some() && call.arguments_complete() {
            self.state = State::FenceEnd(candidate);
        } else {
            self.text_all(&candidate.held);
        }
    }

    pub(super) fn fence_end_step(&mut self, mut candidate: Box<Candidate>, c: char) {
        let backtick = c == '`' && candidate.tail.trim_start().len() < FENCE.len();
        if backtick || (is_blank(c) && !candidate.tail.ends_with('`')) {
            candidate.tail.push(c);
            if candidate.tail.ends_with(FENCE) {
                self.commit_fence(candidate);
            } else {
                self.state = State::FenceEnd(candidate);
            }
            return;
        }
        self.note("call_like_content", "a fenced block begins with a call, but holds more; it was kept as text");
        self.text_all(&candidate.held);
        self.again(&candidate.tail);
        self.again(c.encode_utf8(&mut [0; 4]));
    }

    pub(super) fn commit_fence(&mut self, mut candidate: Box<Candidate>) {
        let Some(name) = candidate.call.name().map(str::to_owned) else { return };
        self.note("fenced_call", &format!("a fenced block that holds a call of `{name}` was taken as that call"));
        let index = self.commit(name);
        self.end_arguments(&mut candidate.call, index);
        self.call_closed();
    }
}
