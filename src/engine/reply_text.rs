//! The text of a reply. In: its tokens. Out: pieces that are cut at UTF-8 boundaries and contain no
//! part of a stop string. Never sends them.

use super::backend::TokenId;
use super::job::JobUpdate;
use super::logprobs::{PendingLogprobs, SampledLogprobs};
use super::stop::StopMatcher;
use super::vocab::Vocab;

/// The text of one reply, up to what was returned for sending.
#[derive(Debug)]
pub(crate) struct ReplyText {
    utf8: Utf8Assembler,
    stop: StopMatcher,
    unsent: PendingLogprobs,
    /// The number of tokens so far.
    tokens: usize,
}

impl ReplyText {
    pub(crate) fn new(stop: Vec<String>) -> ReplyText {
        ReplyText {
            utf8: Utf8Assembler::default(),
            stop: StopMatcher::new(stop),
            unsent: PendingLogprobs::default(),
            tokens: 0,
        }
    }

    /// Whether no incomplete character is held back.
    pub(crate) fn is_between_characters(&self) -> bool {
        self.utf8.is_between_characters()
    }

    /// Adds a token. Returns the piece to send, if there is one, and the index of the stop string
    /// that was found. `visible` is whether a control token prints its spelling.
    pub(crate) fn push(
        &mut self,
        token: TokenId,
        logprobs: Option<SampledLogprobs>,
        visible: bool,
        vocab: &dyn Vocab,
    ) -> (Option<JobUpdate>, Option<usize>) {
        self.tokens += 1;
        let bytes = vocab.piece(token, visible);
        let text = self.utf8.push(&bytes);
        let control = ControlText::of(token, &bytes, visible, vocab);
        if let Some(logprobs) = logprobs {
            self.unsent.push(logprobs, &text, self.utf8.is_between_characters());
        }
        let (shown, stopped) = self.stop.push(&text);
        let logprobs = self.unsent.shown(&shown);
        if stopped.is_some() {
            // The held bytes belong to the stop string.
            self.utf8 = Utf8Assembler::default();
        }
        (self.piece(shown, logprobs, control), stopped)
    }

    /// The piece with what was held back, if there is any.
    pub(crate) fn finish(&mut self) -> Option<JobUpdate> {
        let (shown, stopped) = self.stop.push(self.utf8.finish());
        let held = if stopped.is_some() { String::new() } else { self.stop.finish() };
        let logprobs = self.unsent.rest();
        self.piece(shown + &held, logprobs, None)
    }

    /// The piece with this text, and a control token that ends the text or printed nothing.
    fn piece(
        &self,
        mut text: String,
        logprobs: Vec<SampledLogprobs>,
        mut control: Option<ControlText>,
    ) -> Option<JobUpdate> {
        if let Some(ControlText { spelling, visible: true }) = &control {
            match text.strip_suffix(spelling.as_str()) {
                Some(before) => text.truncate(before.len()),
                // The stop matcher holds back the end of the spelling, so the token is sent as
                // text.
                None => control = None,
            }
        }
        let control = control.map(|control| control.spelling);
        let is_empty = text.is_empty() && logprobs.is_empty() && control.is_none();
        let tokens = self.tokens;
        (!is_empty).then_some(JobUpdate::Piece { text, logprobs, control, tokens })
    }
}

/// A control token that prints only its own spelling, or nothing.
struct ControlText {
    spelling: String,
    /// Whether the spelling is part of the text.
    visible: bool,
}

impl ControlText {
    /// `bytes` is what the token prints. Returns `None` if it prints text without `special`, as any
    /// token does that is not a control token.
    fn of(token: TokenId, bytes: &[u8], visible: bool, vocab: &dyn Vocab) -> Option<ControlText> {
        let prints =
            if visible { !vocab.piece(token, false).is_empty() } else { !bytes.is_empty() };
        if prints {
            return None;
        }
        let spelling = String::from_utf8(vocab.piece(token, true)).ok()?;
        (!spelling.is_empty()).then_some(ControlText { spelling, visible })
    }
}

/// Converts the bytes of tokens to text, and holds back the bytes of an incomplete character.
///
/// NUL becomes U+FFFD. C strings cannot contain NUL, and the pieces of a stream must add up to the
/// reply.
#[derive(Debug, Default)]
struct Utf8Assembler {
    held: Vec<u8>,
}

impl Utf8Assembler {
    /// Adds bytes and returns the text that is complete. Invalid bytes become U+FFFD, as in
    /// `String::from_utf8_lossy`.
    fn push(&mut self, bytes: &[u8]) -> String {
        self.held.extend_from_slice(bytes);
        let text = self.complete();
        if text.contains('\0') { text.replace('\0', "\u{FFFD}") } else { text }
    }

    fn complete(&mut self) -> String {
        let mut text = String::new();
        loop {
            match std::str::from_utf8(&self.held) {
                Ok(rest) => {
                    text.push_str(rest);
                    self.held.clear();
                    return text;
                }
                Err(error) => {
                    let (valid, rest) = self.held.split_at(error.valid_up_to());
                    text.push_str(&String::from_utf8_lossy(valid));
                    let Some(bad) = error.error_len() else {
                        self.held = rest.to_vec();
                        return text;
                    };
                    text.push(char::REPLACEMENT_CHARACTER);
                    self.held = rest[bad..].to_vec();
                }
            }
        }
    }

    /// Whether no incomplete character is held back.
    fn is_between_characters(&self) -> bool {
        self.held.is_empty()
    }

    /// Ends the text and returns what was held back: an incomplete character becomes one U+FFFD.
    fn finish(&mut self) -> &'static str {
        let incomplete = !self.held.is_empty();
        self.held.clear();
        if incomplete { "\u{FFFD}" } else { "" }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(bytes: &[u8], expected: &str) {
        for split in 0..=bytes.len() {
            let mut assembler = Utf8Assembler::default();
            let mut text = assembler.push(&bytes[..split]);
            text += &assembler.push(&bytes[split..]);
            text += assembler.finish();
            assert_eq!(text, expected, "split at {split}");
        }
        let mut assembler = Utf8Assembler::default();
        let mut text: String = bytes.iter().map(|b| assembler.push(&[*b])).collect();
        text += assembler.finish();
        assert_eq!(text, expected, "byte by byte");
    }

    #[test]
    fn every_split_gives_the_same_text() {
        check("plain".as_bytes(), "plain");
        check(
            "gr\u{fc}n \u{1F600} \u{4f60}\u{597d}".as_bytes(),
            "gr\u{fc}n \u{1F600} \u{4f60}\u{597d}",
        );
        check(b"", "");
    }

    #[test]
    fn broken_bytes_become_replacement_characters() {
        check(b"a\xFFb", "a\u{FFFD}b");
        check(b"a\xE4\xBD", "a\u{FFFD}");
        check(b"\x80\x80", "\u{FFFD}\u{FFFD}");
        check(b"\xF0\x9F\x98x", "\u{FFFD}x");
        check(b"a\0b", "a\u{FFFD}b");
    }
}
