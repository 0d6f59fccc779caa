//! The part of the reply that the prompt already contains.

use super::kept_opening::KeptOpening;
use super::{FailedOpening, ParserState, ReplyParser};
use crate::output::format::ReasoningTags;
use crate::output::message::ReplyBeginning;

impl ReplyParser {
    /// Reads the end of the prompt, starting with the last turn: a reasoning block or header that
    /// the generation prompt opens, and text that the reply continues. `shown` says whether that
    /// text is part of the message.
    pub fn prime(&mut self, turn: &str, shown: bool) {
        // A value that begins in the prompt is not searched for.
        let json = self.json_content.take();
        self.prime_turn(turn, shown);
        self.json_content = json.filter(|_| self.parsed.content.is_empty());
    }

    fn prime_turn(&mut self, turn: &str, shown: bool) {
        if let Some(tags) = self.unsplit_reasoning.clone() {
            return self.prime_unsplit(turn, &tags, shown);
        }
        if self.reasoning.as_ref().is_some_and(|tags| tags.open.is_empty()) {
            self.begin_reasoning();
        }
        let allowed = std::mem::take(&mut self.calls_allowed);
        self.priming = true;
        self.feed(turn);
        if let ParserState::Header(header) = &mut self.state {
            header.set_primed();
        }
        let tail = std::mem::take(&mut self.tail);
        self.push_text(&tail);
        self.calls_allowed = allowed;
        self.priming = false;
        self.opened_by_tag = false;
        self.failed_opening = FailedOpening::None;
        self.pending_close = false;
        self.parsed.diagnostics.clear();
        self.deltas.clear();
        if !shown {
            self.whitespace.clear();
            self.parsed.content.clear();
            self.parsed.reasoning = None;
        }
    }

    /// Takes the part of the message that the prompt contained. From then on the message has only
    /// the text after it.
    pub fn take_beginning(&mut self) -> ReplyBeginning {
        let reasoning_open = self.is_reasoning();
        let whitespace = std::mem::take(&mut self.whitespace);
        let mut content = std::mem::take(&mut self.parsed.content);
        let mut reasoning = self.parsed.reasoning.take().unwrap_or_default();
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
            self.kept_opening = Some(KeptOpening::new(&turn[at..], tags));
            return;
        }
        // Calls in the prompt are text.
        let allowed = std::mem::take(&mut self.calls_allowed);
        self.feed(text);
        self.calls_allowed = allowed;
        self.parsed.diagnostics.clear();
        self.deltas.clear();
        if !shown && open.is_none() {
            self.parsed.content.clear();
        }
    }
}
