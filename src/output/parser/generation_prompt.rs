//! The part of the reply that the prompt already contains.

use super::ReplyParser;
use super::context::{FailedOpening, Source};
use super::states::ParserState;
use crate::output::format::ReasoningTags;
use crate::output::message::ReplyBeginning;

impl ReplyParser {
    /// Reads the end of the prompt, starting with the last turn: a reasoning block or header that
    /// the generation prompt opens, and text that the reply continues. `shown` says whether that
    /// text is part of the message; whitespace alone never is.
    pub fn prime(&mut self, turn: &str, shown: bool) {
        let shown = shown && !turn.trim().is_empty();
        // A value that begins in the prompt is not searched for.
        let json = self.cx.out.json.take();
        self.prime_turn(turn, shown);
        self.cx.out.json = json.filter(|_| self.cx.out.parsed.content.is_empty());
    }

    fn prime_turn(&mut self, turn: &str, shown: bool) {
        if let Some(tags) = self.cx.settings.unsplit_reasoning().cloned() {
            return self.prime_unsplit(turn, &tags, shown);
        }
        if self.cx.settings.reasoning().is_some_and(|tags| tags.open.is_empty()) {
            self.cx.out.begin_reasoning();
        }
        self.cx.source = Source::Prompt;
        self.feed(turn);
        match &mut self.state {
            ParserState::Header(header) => header.primed = true,
            ParserState::Text(text) => self.cx.out.push_text(&std::mem::take(&mut text.tail)),
            _ => {}
        }
        self.cx.source = Source::Reply;
        self.cx.out.reasoning.opened_by_tag = false;
        self.cx.failed_opening = FailedOpening::None;
        self.cx.pending_close = false;
        self.cx.out.parsed.diagnostics.clear();
        self.cx.out.deltas.clear();
        if !shown {
            self.cx.out.preceding.whitespace.clear();
            self.cx.out.parsed.content.clear();
            self.cx.out.parsed.reasoning = None;
        }
    }

    /// Takes the part of the message that the prompt contained. From then on the message has only
    /// the text after it.
    pub fn take_beginning(&mut self) -> ReplyBeginning {
        let reasoning_open = self.is_reasoning();
        let whitespace = self.cx.out.take_whitespace();
        let mut content = std::mem::take(&mut self.cx.out.parsed.content);
        let mut reasoning = self.cx.out.parsed.reasoning.take().unwrap_or_default();
        let last = if reasoning_open { &mut reasoning } else { &mut content };
        last.push_str(&whitespace);
        ReplyBeginning { content, reasoning, reasoning_open }
    }

    /// Like [`prime`](Self::prime), for reasoning that stays in the content. If the prompt opens
    /// reasoning, the content begins at that tag.
    fn prime_unsplit(&mut self, turn: &str, tags: &ReasoningTags, shown: bool) {
        let open = if tags.open.is_empty() { None } else { turn.rfind(&*tags.open) };
        let open = open.filter(|at| !turn[*at..].contains(&*tags.close));
        let text = match open {
            Some(at) => &turn[at..],
            None => turn.rsplit_once(&*tags.close).map_or(turn, |(_, after)| after.trim_start()),
        };
        if let Some(at) = open.filter(|at| turn[at + tags.open.len()..].trim().is_empty()) {
            self.cx.out.kept_opening = Some(turn[at..].to_owned());
            self.held_start = Some(String::new());
            return;
        }
        self.cx.source = Source::Prompt;
        self.feed(text);
        self.cx.source = Source::Reply;
        self.cx.out.parsed.diagnostics.clear();
        self.cx.out.deltas.clear();
        if !shown && open.is_none() {
            self.cx.out.parsed.content.clear();
        }
    }

    /// Parses the text of the answer.
    pub(super) fn read_answer(&mut self, text: &str) {
        match self.held_start {
            Some(_) => self.read_start(text),
            None => self.feed(text),
        }
    }

    /// Reads the start of the reply. A closing tag ends an empty block, and a repeated opening tag
    /// is dropped.
    fn read_start(&mut self, text: &str) {
        for (at, c) in text.char_indices() {
            let (Some(held), Some(ReasoningTags { open, close, .. })) =
                (&mut self.held_start, self.cx.settings.unsplit_reasoning())
            else {
                return self.feed(&text[at..]);
            };
            held.push(c);
            let tag = held.trim_start();
            if tag == *close {
                self.held_start = None;
                self.cx.out.kept_opening = None;
                self.cx.out.marker_passed();
            } else if tag == *open {
                held.clear();
            } else if !open.starts_with(tag) && !close.starts_with(tag) {
                self.release_start();
            }
        }
    }

    /// Treats the held start of the reply as text.
    pub(super) fn release_start(&mut self) {
        let held = self.held_start.take();
        self.feed(&held.unwrap_or_default());
    }
}
