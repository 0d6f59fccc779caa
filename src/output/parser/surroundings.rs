//! Handles control tokens and the markup around the answer, before the reply parser reads the rest.
//! A control token that does not occur in the format is removed here. A token of the format is
//! passed on like text. If the parser treats it as plain text, it is removed then.

use std::sync::Arc;

use super::ReplyParser;
use super::states::ParserState;
use crate::output::markup::{ControlScanner, ControlSpellings, ReplyPart, TurnMarkup, TurnReader};
use crate::output::message::Destination;

impl ReplyParser {
    /// Sets the markup that the template writes around every answer.
    pub fn expect_turn_markup(&mut self, markup: &Arc<TurnMarkup>) {
        self.surroundings.turn = Some(TurnReader::new(Arc::clone(markup)));
    }

    /// Sets the control tokens to recognise by their spelling in text. Without them, only
    /// [`push_control`](Self::push_control) delivers control tokens.
    pub fn expect_control_spellings(&mut self, spellings: &Arc<ControlSpellings>) {
        self.surroundings.scanner = Some((Arc::clone(spellings), ControlScanner::default()));
    }

    /// Reads text of the model.
    pub(super) fn receive(&mut self, text: &str) {
        match &mut self.surroundings.scanner {
            Some((spellings, scanner)) if !scanner.passes(spellings, text) => {
                let mut parts = Vec::new();
                scanner.push(spellings, text, &mut parts);
                self.receive_scanned(parts);
            }
            _ => self.receive_text(text),
        }
        self.settle_controls();
    }

    fn receive_scanned(&mut self, parts: Vec<ReplyPart>) {
        for part in parts {
            match part {
                ReplyPart::Control(text) => self.receive_control(&text),
                ReplyPart::Text(text) => self.receive_text(&text),
                _ => {}
            }
        }
    }

    fn receive_text(&mut self, text: &str) {
        match &mut self.surroundings.turn {
            Some(turn) if !turn.passes(text) => {
                let mut parts = Vec::new();
                turn.push(text, &mut parts);
                self.receive_parts(parts);
            }
            _ => self.read(text),
        }
    }

    pub(super) fn receive_control(&mut self, text: &str) {
        let known = self.cx.settings.knows_control(text);
        match &mut self.surroundings.turn {
            Some(turn) => {
                let mut parts = Vec::new();
                turn.push_control(text, known, &mut parts);
                self.receive_parts(parts);
            }
            None => self.read_control(text),
        }
        self.settle_controls();
    }

    /// Decides the text that is held before the parser.
    pub(super) fn end_surroundings(&mut self) {
        if let Some((spellings, mut scanner)) = self.surroundings.scanner.take() {
            let mut parts = Vec::new();
            scanner.finish(&spellings, &mut parts);
            self.receive_scanned(parts);
        }
        if let Some(mut turn) = self.surroundings.turn.take() {
            let mut parts = Vec::new();
            turn.finish(&mut parts);
            self.receive_parts(parts);
        }
    }

    fn receive_parts(&mut self, parts: Vec<ReplyPart>) {
        for part in parts {
            match part {
                ReplyPart::Text(text) => self.read(&text),
                ReplyPart::Control(text) => self.read_control(&text),
                ReplyPart::Header(text) if self.opens_message(&text) => {
                    let turn = self.cx.settings.channels.as_ref().map(|it| it.turn.clone());
                    let at = turn.and_then(|turn| text.find(&*turn)).unwrap_or_default();
                    self.read(&text[at..]);
                }
                ReplyPart::Header(text) => {
                    let message = format!("`{}` opens the turn again and was removed", text.trim());
                    self.cx.out.note_once("role_header_removed", &message);
                    self.join_turns();
                }
                ReplyPart::End(text) => {
                    self.cx
                        .out
                        .note("eog_text_removed", &format!("`{text}` ends a turn and was removed"));
                    self.cx.out.preceding.removed = true;
                }
                ReplyPart::NextTurn(text) => self.leave_next_turn(text),
            }
        }
    }

    /// Whether a header at the start of the reply opens its first message. The prompt then did not.
    fn opens_message(&self, header: &str) -> bool {
        let turn = self.cx.settings.channels.as_ref().map(|channels| &channels.turn);
        turn.is_some_and(|turn| !turn.is_empty() && header.contains(&**turn))
            && matches!(&self.state, ParserState::Text(text) if text.tail.is_empty())
            && self.cx.out.is_empty()
            && self.cx.out.parsed.reasoning.is_none()
            && self.cx.out.destination == Destination::Content
    }

    /// The model continues in a further turn of its own. Its answers are joined to one message.
    fn join_turns(&mut self) {
        self.cx.turn_repeated = true;
        if self.cx.out.preceding.removed
            && matches!(self.state, ParserState::Text(_))
            && !self.cx.out.preceding.marker
            && !self.cx.out.parsed.content.is_empty()
        {
            self.cx.out.preceding.whitespace = "\n".to_owned();
        }
        self.cx.out.preceding.removed = true;
    }

    fn leave_next_turn(&mut self, text: String) {
        self.cx.out.preceding.removed = true;
        self.cx.out.note_next_turn();
        match self.cx.out.parsed.leftover.last_mut().filter(|_| self.surroundings.next_turn) {
            Some(last) => last.push_str(&text),
            None => self.cx.out.parsed.leftover.push(text),
        }
        self.surroundings.next_turn = true;
    }

    fn read(&mut self, text: &str) {
        if self.cx.out.controls.is_empty() {
            return self.read_answer(text);
        }
        // The next character may complete a control token; the text after it is plain text.
        for c in text.chars() {
            self.read_answer(c.encode_utf8(&mut [0; 4]));
            self.settle_controls();
        }
    }

    fn read_control(&mut self, text: &str) {
        if self.cx.settings.knows_control(text) {
            if !self.cx.settings.shows_control(text) {
                self.cx.out.controls.add(text);
            }
            self.read_answer(text);
        } else {
            self.cx.out.note_control(text);
            self.cx.out.preceding.removed = true;
        }
    }

    fn settle_controls(&mut self) {
        if self.cx.out.controls.is_empty() {
            return;
        }
        let decided = match &self.state {
            ParserState::Text(text) => text.tail.is_empty(),
            ParserState::Committed(_) => self.cx.out.controls.committed,
            ParserState::AfterCall(after) => after.tail.is_empty() && after.held.trim().is_empty(),
            _ => false,
        };
        if decided {
            self.cx.out.forget_controls();
        }
    }
}
