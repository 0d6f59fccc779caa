//! Control tokens of the format that the reply parser may treat as plain text. They are removed from
//! that text.

use crate::output::message::Destination;

/// Control tokens that were read and may still become text.
#[derive(Debug, Default)]
pub(crate) struct PendingControls {
    pub(super) spellings: Vec<String>,
    /// Text that may become a control token, and the part of the message it otherwise belongs to.
    pub(super) held: String,
    pub(super) destination: Option<Destination>,
    /// Whether a call was committed since the last token.
    pub(crate) committed: bool,
}

impl PendingControls {
    pub(crate) fn is_empty(&self) -> bool {
        self.spellings.is_empty()
    }

    pub(crate) fn contains(&self, text: &str) -> bool {
        self.spellings.iter().any(|spelling| spelling == text)
    }

    pub(crate) fn add(&mut self, text: &str) {
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
    pub(super) fn without(&mut self, text: &str, removed: &mut Vec<String>) -> String {
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
