//! Reads the text of a reply: as a message in the model's format, or as it is.

use crate::output::{Delta, ParsedReply, ReplyParser};

/// The reader of one reply.
pub(super) enum ReplyReader {
    /// A message, with reasoning and calls.
    Message(Box<ReplyParser>),
    /// The continuation of a plain prompt, so far.
    Plain(String),
}

impl ReplyReader {
    /// Lets calls that no grammar constrained count only if they are valid.
    pub(super) fn validate_unconstrained_calls(&mut self) {
        if let ReplyReader::Message(parser) = self {
            parser.validate_unconstrained_calls();
        }
    }

    /// States that a grammar constrains the model's own calls.
    pub(super) fn expect_constrained_calls(&mut self) {
        if let ReplyReader::Message(parser) = self {
            parser.expect_constrained_calls();
        }
    }

    /// Whether the current text belongs to a reasoning block.
    pub(super) fn is_reasoning(&self) -> bool {
        match self {
            ReplyReader::Message(parser) => parser.is_reasoning(),
            ReplyReader::Plain(_) => false,
        }
    }

    pub(super) fn push(&mut self, piece: &str) -> Vec<Delta> {
        match self {
            ReplyReader::Message(parser) => parser.push(piece),
            ReplyReader::Plain(_) if piece.is_empty() => Vec::new(),
            ReplyReader::Plain(text) => {
                text.push_str(piece);
                vec![Delta::Content(piece.to_owned())]
            }
        }
    }

    /// Reads a control token, which is no part of a plain text.
    pub(super) fn push_control(&mut self, control: &str) -> Vec<Delta> {
        match self {
            ReplyReader::Message(parser) => parser.push_control(control),
            ReplyReader::Plain(_) => Vec::new(),
        }
    }

    /// Marks the text as the beginning of a longer one.
    pub(super) fn expect_more(&mut self) {
        if let ReplyReader::Message(parser) = self {
            parser.expect_more();
        }
    }

    /// Ends the text. `early` is true if the model did not end it itself.
    pub(super) fn finish(self, early: bool) -> (Vec<Delta>, ParsedReply) {
        match self {
            ReplyReader::Message(parser) if early => parser.finish_early(),
            ReplyReader::Message(parser) => parser.finish(),
            ReplyReader::Plain(content) => {
                (Vec::new(), ParsedReply { content, complete: true, ..ParsedReply::default() })
            }
        }
    }
}
