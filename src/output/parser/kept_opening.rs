//! A reasoning block that the prompt opened, in replies whose reasoning stays in the content with
//! its tags. The opening tag is emitted with the first text of the block. An empty block is not
//! emitted.

use super::{Destination, ReplyParser};
use crate::output::format::{FormatText, ReasoningTags};

/// The opening tag, until the block has text.
#[derive(Debug)]
pub(super) struct KeptOpening {
    /// The end of the prompt, starting with the tag.
    text: String,
    open: FormatText,
    close: FormatText,
    /// The start of the reply while it may still be one of the tags; `None` after that.
    held: Option<String>,
}

impl KeptOpening {
    pub(super) fn new(text: &str, tags: &ReasoningTags) -> KeptOpening {
        let (open, close) = (tags.open.clone(), tags.close.clone());
        KeptOpening { text: text.to_owned(), open, close, held: Some(String::new()) }
    }

    /// Whether the reply may still close the block immediately.
    pub(super) fn is_undecided(&self) -> bool {
        self.held.is_some()
    }
}

impl ReplyParser {
    /// Reads the start of the reply. A closing tag ends an empty block, and a repeated opening tag
    /// is dropped.
    pub(super) fn receive_after_opening(&mut self, text: &str) {
        for (at, c) in text.char_indices() {
            let Some(KeptOpening { open, close, held: Some(held), .. }) = &mut self.kept_opening
            else {
                return self.feed(&text[at..]);
            };
            held.push(c);
            let tag = held.trim_start();
            if tag == *close {
                self.kept_opening = None;
                self.marker_passed();
            } else if tag == *open {
                held.clear();
            } else if !open.starts_with(tag) && !close.starts_with(tag) {
                self.end_kept_opening();
            }
        }
    }

    /// Treats the held start of the reply as text.
    pub(super) fn end_kept_opening(&mut self) {
        let held = self.kept_opening.as_mut().and_then(|opening| opening.held.take());
        self.feed(&held.unwrap_or_default());
    }

    /// Puts the opening tag before the first text. The prompt contains the tag, so it is in no
    /// delta.
    pub(super) fn show_kept_opening(&mut self) {
        if self.destination == Destination::Content
            && let Some(opening) = self.kept_opening.take()
        {
            self.parsed.content.push_str(&opening.text);
        }
    }
}
