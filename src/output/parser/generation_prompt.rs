//! What a prompt already holds of the reply to it.

use super::{FailedOpening, ParserState, ReplyParser};
use crate::output::format::ReasoningTags;

impl ReplyParser {
    /// Reads what the prompt already holds of the reply: a reasoning block or a header that its
    /// generation prompt opens, and text that the reply continues. `shown` says whether that text
    /// belongs to the message.
    pub fn prime(&mut self, turn: &str, shown: bool) {
        if let Some(tags) = self.unsplit_reasoning.clone() {
            return self.prime_untold(turn, &tags, shown);
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

    /// Reasoning stays in the content: of the prompt's part, all from the tag that is still open.
    fn prime_untold(&mut self, turn: &str, tags: &ReasoningTags, shown: bool) {
        let open = if tags.open.is_empty() { None } else { turn.rfind(&*tags.open) };
        let open = open.filter(|at| !turn[*at..].contains(&*tags.close));
        let text = match open {
            Some(at) => &turn[at..],
            None => turn.rsplit_once(&*tags.close).map_or(turn, |(_, after)| after.trim_start()),
        };
        // What the prompt says calls nothing.
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
