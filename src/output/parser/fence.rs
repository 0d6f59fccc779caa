//! Calls in fenced blocks. A block counts if it contains one call of a given tool and nothing else.
//! It is decided as a whole, but becomes text as soon as it cannot be a call.

use std::sync::Arc;

use super::call_object::CallKeys;
use super::call_patterns::PatternItem;
use super::call_reader::{CallReader, CallStatus};
use super::{FENCE, ParserState, ReplyParser, is_whitespace};

/// The languages that a fence may name.
const LANGUAGES: [&str; 3] = ["json", "tool_call", "tool_code"];

/// A fence at the start of a line, and the text after it.
#[derive(Debug)]
pub(super) struct Fence {
    pub(super) held: String,
    language: String,
    /// Whitespace follows the language, so it is complete.
    named: bool,
    /// The reader of the block's object, once it has begun.
    reader: Option<CallReader>,
    /// The text after the object.
    tail: String,
}

impl Fence {
    pub(super) fn new(held: String) -> Fence {
        Fence { held, language: String::new(), named: false, reader: None, tail: String::new() }
    }
}

impl ReplyParser {
    pub(super) fn fence_step(&mut self, mut fence: Box<Fence>, c: char) {
        fence.held.push(c);
        if fence.reader.is_some() {
            return self.fence_object_step(fence, c);
        }
        let known = fence.language.is_empty() || LANGUAGES.contains(&fence.language.as_str());
        if c == '{' && known {
            let items: Arc<[PatternItem]> =
                [PatternItem::Object(Arc::new(CallKeys::default()))].into();
            fence.reader = Some(CallReader::new(&items, 0, &self.followers));
            return self.fence_object_step(fence, c);
        }
        let fits = if is_whitespace(c) {
            fence.named = true;
            known
        } else {
            fence.language.push(c);
            !fence.named && LANGUAGES.iter().any(|language| language.starts_with(&fence.language))
        };
        if fits {
            self.state = ParserState::Fence(fence);
        } else {
            self.release(&fence.held, c.len_utf8());
        }
    }

    fn fence_object_step(&mut self, mut fence: Box<Fence>, c: char) {
        let Some(reader) = &mut fence.reader else { return };
        let status = reader.step(c, &self.tools);
        let known = reader.name().is_none_or(|name| self.tools.has(name));
        if !known
            || !reader.is_object()
            || reader.has_foreign_key()
            || matches!(status, CallStatus::Broken(_))
        {
            return self.release(&fence.held, c.len_utf8());
        }
        if status == CallStatus::More {
            self.state = ParserState::Fence(fence);
        } else if reader.name().is_some() && !reader.lacks_arguments() {
            self.state = ParserState::FenceEnd(fence);
        } else {
            self.push_text(&fence.held);
        }
    }

    pub(super) fn fence_end_step(&mut self, mut fence: Box<Fence>, c: char) {
        let backtick = c == '`' && fence.tail.trim_start().len() < FENCE.len();
        if backtick || (is_whitespace(c) && !fence.tail.ends_with('`')) {
            fence.tail.push(c);
            if fence.tail.ends_with(FENCE) {
                self.commit_fence(fence);
            } else {
                self.state = ParserState::FenceEnd(fence);
            }
            return;
        }
        self.note(
            "call_like_content",
            "a fenced block contains a call and more text; it was kept as text",
        );
        self.push_text(&fence.held);
        self.feed(&fence.tail);
        self.feed(c.encode_utf8(&mut [0; 4]));
    }

    pub(super) fn commit_fence(&mut self, fence: Box<Fence>) {
        let Some(mut reader) = fence.reader else { return };
        let Some(name) = reader.name().map(str::to_owned) else { return };
        if !self.passes_validator(&mut reader) {
            self.note(
                "call_like_content",
                "the arguments of a fenced call violate their schema; it was kept as text",
            );
            return self.push_text(&(fence.held + &fence.tail));
        }
        self.note("fenced_call", &format!("a fenced block was read as a call of `{name}`"));
        let index = self.commit(name, reader.id().map(str::to_owned));
        self.end_arguments(&mut reader, index);
        self.call_closed();
    }
}
