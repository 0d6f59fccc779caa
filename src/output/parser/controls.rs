//! Handles control tokens and the markup around the answer, before the reply parser reads the rest.
//! A control token that does not occur in the format is removed here. A token of the format is
//! passed on like text. If the parser treats it as plain text, it is removed then.

use std::sync::Arc;

use super::{Destination, ParserState, ReplyParser};
use crate::output::markup::{ControlScanner, ControlSpellings, ReplyPart, TurnMarkup, TurnReader};

/// The readers of the markup around an answer.
#[derive(Debug, Default)]
pub(super) struct Surroundings {
    turn: Option<TurnReader>,
    /// Used when control tokens are recognised only by their spelling in text.
    scanner: Option<(Arc<ControlSpellings>, ControlScanner)>,
}

/// Control tokens that were read and may still become text.
#[derive(Debug, Default)]
pub(super) struct PendingControls {
    spellings: Vec<String>,
    /// Text that may become a control token, and the part of the message it otherwise belongs to.
    held: String,
    destination: Option<Destination>,
    /// Whether a call was committed since the last token.
    committed: bool,
}

impl PendingControls {
    pub(super) fn is_empty(&self) -> bool {
        self.spellings.is_empty()
    }

    pub(super) fn contains(&self, text: &str) -> bool {
        self.spellings.iter().any(|spelling| spelling == text)
    }

    /// Records that a call was committed, together with its opening tag.
    pub(super) fn committed(&mut self) {
        self.committed = true;
    }

    fn add(&mut self, text: &str) {
        self.committed = false;
        // In arguments, quotes and backslashes are escaped.
        let escaped = text.replace('\\', "\\\\").replace('"', "\\\"");
        for spelling in [text, &escaped] {
            if !self.spellings.iter().any(|known| known == spelling) {
                self.spellings.push(spelling.to_owned());
            }
        }
    }

    /// The text without its control tokens. These are appended to `removed`.
    fn without(&mut self, text: &str, removed: &mut Vec<String>) -> String {
        let mut shown = String::new();
        for c in text.chars() {
            self.held.push(c);
            // The held text begins at `at`. What precedes it is dropped once per character.
            let mut at = 0;
            while let Some(first) = self.held[at..].chars().next() {
                let held = &self.held[at..];
                if self.spellings.iter().any(|spelling| spelling == held) {
                    removed.push(held.to_owned());
                    at = self.held.len();
                } else if self.spellings.iter().any(|spelling| spelling.starts_with(held)) {
                    break;
                } else {
                    shown.push(first);
                    at += first.len_utf8();
                }
            }
            self.held.drain(..at);
        }
        shown
    }
}

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
        let known = self.knows_control(text);
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
                ReplyPart::Header(text) => {
                    let message = format!("`{}` opens the turn again and was removed", text.trim());
                    self.note_once("role_header_removed", &message);
                    self.join_turns();
                }
                ReplyPart::End(text) => {
                    self.note("eog_text_removed", &format!("`{text}` ends a turn and was removed"));
                    self.after_removed = true;
                }
                ReplyPart::NextTurn(text) => self.leave_next_turn(text),
            }
        }
    }

    /// The model continues in a further turn of its own. Its answers are joined to one message.
    fn join_turns(&mut self) {
        self.turn_repeated = true;
        if self.after_removed
            && matches!(self.state, ParserState::Text)
            && !self.after_marker
            && !self.parsed.content.is_empty()
        {
            self.whitespace = "\n".to_owned();
        }
        self.after_removed = true;
    }

    fn leave_next_turn(&mut self, text: String) {
        self.after_removed = true;
        self.note_once(
            "next_turn_removed",
            "the reply continues with a turn of another role, which was removed",
        );
        match self.parsed.leftover.last_mut().filter(|_| self.next_turn) {
            Some(last) => last.push_str(&text),
            None => self.parsed.leftover.push(text),
        }
        self.next_turn = true;
    }

    fn read(&mut self, text: &str) {
        if self.pending_controls.is_empty() {
            return self.read_answer(text);
        }
        // The next character may complete a control token; the text after it is plain text.
        for c in text.chars() {
            self.read_answer(c.encode_utf8(&mut [0; 4]));
            self.settle_controls();
        }
    }

    fn read_control(&mut self, text: &str) {
        if self.knows_control(text) {
            if !self.shows_control(text) {
                self.pending_controls.add(text);
            }
            self.read_answer(text);
        } else {
            self.note_control(text);
            self.after_removed = true;
        }
    }

    fn note_control(&mut self, text: &str) {
        self.note_once(
            "control_token_removed",
            &format!("the control token `{text}` is in no part of the format here and was removed"),
        );
    }

    fn knows_control(&self, text: &str) -> bool {
        let known = |texts: &[String]| texts.iter().any(|known| known.contains(text));
        known(&self.format_texts) || known(&self.special_openings)
    }

    /// Whether the token belongs to reasoning that stays in the content.
    fn shows_control(&self, text: &str) -> bool {
        let tags = self.unsplit_reasoning.as_ref();
        let in_tags =
            tags.is_some_and(|tags| tags.open.contains(text) || tags.close.contains(text));
        in_tags || (!self.splits_reasoning && self.channels.is_some())
    }

    /// The text for this part of the message, without pending control tokens.
    pub(super) fn without_controls(&mut self, destination: Destination, text: &str) -> String {
        if self.pending_controls.destination.is_some_and(|other| other != destination) {
            self.flush_controls();
        }
        self.pending_controls.destination = Some(destination);
        let mut removed = Vec::new();
        let shown = self.pending_controls.without(text, &mut removed);
        for text in removed {
            self.note_control(&text);
        }
        shown
    }

    /// A name or an id without pending control tokens.
    pub(super) fn word_without_controls(&mut self, mut word: String) -> String {
        for spelling in self.pending_controls.spellings.clone() {
            if word.contains(&spelling) {
                let rest = word.replace(&spelling, "");
                if !rest.is_empty() {
                    word = rest;
                    self.note_control(&spelling);
                }
            }
        }
        word
    }

    /// Forgets pending control tokens, because everything read so far is decided.
    pub(super) fn forget_controls(&mut self) {
        if !self.pending_controls.is_empty() {
            self.flush_controls();
            self.pending_controls.spellings.clear();
        }
    }

    fn flush_controls(&mut self) {
        let held = std::mem::take(&mut self.pending_controls.held);
        if let Some(destination) = self.pending_controls.destination.take() {
            self.append(destination, &held);
        }
    }

    fn settle_controls(&mut self) {
        if self.pending_controls.is_empty() {
            return;
        }
        let decided = match &self.state {
            ParserState::Text => self.tail.is_empty(),
            ParserState::Committed(_) => self.pending_controls.committed,
            ParserState::AfterCall(after) => after.tail.is_empty() && after.held.trim().is_empty(),
            _ => false,
        };
        if decided {
            self.forget_controls();
        }
    }
}
