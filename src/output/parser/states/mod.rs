//! The states of the reply parser: what each of them holds, and what may follow a character.
//!
//! Each state reads a character at a time in its own file and returns the state that follows. A
//! state never reads text in place of another one: it returns the text to read again.

mod block;
mod candidate;
mod committed;
mod header;
mod text;

use super::calls::call_reader::CallReader;
use super::calls::envelope::Envelope;
use super::context::ParserContext;
use crate::diagnostic::Diagnostic;

/// The state of the parser.
#[derive(Debug)]
pub(super) enum ParserState {
    /// Content or reasoning.
    Text(TextState),
    /// The header of a message.
    Header(Header),
    /// Text that may be a call: after an opening tag, or after a brace where calls have no tag.
    Candidate(Box<Candidate>),
    /// A call after its commit point.
    Committed(Box<CommittedCall>),
    /// After a call. A closing tag, another call or text may follow.
    AfterCall(AfterCall),
    /// A block that may consist of calls without the format's own tags.
    Block(Box<CallBlock>),
    /// A JSON object that may be the whole reply, calls included.
    Envelope(Box<Envelope>),
    /// A call inside reasoning, from its commit point on, or the opening tag of the answer. If the
    /// reasoning never closes, it is that, otherwise text.
    Suspended(SuspendedText),
}

/// What follows a character. The text is read again; mostly it is empty.
#[derive(Debug)]
pub(super) enum Transition {
    /// The state continues.
    Stay,
    /// The state continues with this text.
    Again(String),
    /// Another state follows, and reads the text.
    To(ParserState, String),
}

impl Transition {
    pub(super) fn to(state: ParserState) -> Transition {
        Transition::To(state, String::new())
    }

    /// The text state follows.
    pub(super) fn text(again: impl Into<String>) -> Transition {
        Transition::To(ParserState::text(), again.into())
    }

    /// The same transition with more text to read.
    pub(super) fn then(self, more: &str) -> Transition {
        match self {
            Transition::Stay => Transition::Again(more.to_owned()),
            Transition::Again(again) => Transition::Again(again + more),
            Transition::To(state, again) => Transition::To(state, again + more),
        }
    }
}

impl ParserState {
    pub(super) fn text() -> ParserState {
        ParserState::Text(TextState::default())
    }

    pub(super) fn step(&mut self, c: char, cx: &mut ParserContext) -> Transition {
        match self {
            ParserState::Text(text) => text.step(c, cx),
            ParserState::Header(header) => header.step(c, cx),
            ParserState::Candidate(candidate) => candidate.step(c, cx),
            ParserState::Committed(call) => call.step(c, cx),
            ParserState::AfterCall(after) => after.step(c, cx),
            ParserState::Block(block) => block.step(c, cx),
            ParserState::Envelope(envelope) => envelope.step(c, cx),
            ParserState::Suspended(text) => text.step(c, cx),
        }
    }

    /// Whether no text is held back.
    pub(super) fn is_plain_text(&self) -> bool {
        matches!(self, ParserState::Text(text) if text.tail.is_empty())
    }

    /// Whether a call is being read.
    pub(super) fn is_call(&self) -> bool {
        matches!(
            self,
            ParserState::Candidate(_) | ParserState::Committed(_) | ParserState::AfterCall(_)
        )
    }
}

#[derive(Debug, Default)]
pub(super) struct TextState {
    /// Text that may become a marker.
    pub(super) tail: String,
}

/// The part of a header that was read.
#[derive(Debug, Default)]
pub(super) struct Header {
    /// The held text before the header, in case it turns out not to be a header.
    pub(super) before: String,
    pub(super) text: String,
    /// Whether the start of the header is in the prompt. `before` is then not part of the reply.
    pub(super) primed: bool,
}

/// Text that may be a call.
#[derive(Debug, Default)]
pub(super) struct Candidate {
    /// All text since the opening tag, with the whitespace before it.
    pub(super) held: String,
    /// One reader for each pattern that is still possible.
    pub(super) readers: Vec<CallReader>,
    /// The text after the opening tag and whitespace, up to the length of a tag.
    pub(super) after_tag: String,
    /// The number of opening tags read.
    pub(super) tags: usize,
    /// Whether there was no opening tag. The call then counts only if it names a given tool.
    pub(super) untagged: bool,
    /// Whether the text follows a call whose closing tag is still missing.
    pub(super) after_open_call: bool,
    /// Whether a fence directly precedes the opening tag.
    pub(super) fenced: bool,
    /// The number of bytes of `held` between that call and this one.
    pub(super) gap: usize,
    /// Why the validator refused the call of one of the readers.
    pub(super) misfit: Option<Diagnostic>,
}

/// A call that is part of the message.
#[derive(Debug)]
pub(super) struct CommittedCall {
    pub(super) reader: CallReader,
    /// Its index in the message.
    pub(super) index: usize,
    /// Whether the call had no opening tag.
    pub(super) untagged: bool,
    /// For a message to a function: the text before the arguments. If no arguments follow, this
    /// text becomes the arguments.
    pub(super) message: Option<String>,
    /// Text that may be a tag, at a place where the arguments cannot contain one.
    pub(super) tail: String,
}

/// The text after a call, until it is clear what it is.
#[derive(Debug, Default)]
pub(super) struct AfterCall {
    pub(super) held: String,
    pub(super) tail: String,
    /// Whether the call's closing tag was read.
    pub(super) closed: bool,
    /// Whether the call had no opening tag.
    pub(super) untagged: bool,
    /// Whether the call requires a closing tag.
    pub(super) has_closing_tag: bool,
    /// Whether the next call needs an opening tag, because a closing tag was read.
    pub(super) over: bool,
    pub(super) pattern: Option<usize>,
}

/// How a block of calls begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum BlockOpening {
    /// With its first object or list.
    #[default]
    Bare,
    Fence,
    /// With the opening tag of an element: `<json>`.
    Element,
}

/// The part of a block that is being read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum BlockPart {
    /// The fence's language, or the element's tag.
    Opening,
    /// Before the first call.
    #[default]
    Start,
    /// Text that may be the format's own opening tag.
    Tag,
    Call,
    /// After a call.
    After,
}

/// Text from the start of a line that may consist of calls.
#[derive(Debug, Default)]
pub(super) struct CallBlock {
    /// The text up to the end of the last call.
    pub(super) held: String,
    pub(super) opening: BlockOpening,
    pub(super) part: BlockPart,
    /// Whether the fence may close code that is open.
    pub(super) in_code: bool,
    /// The fence's language, or the element's tag without its end.
    pub(super) word: String,
    /// Whether the calls are in a list, and whether it is closed.
    pub(super) list: bool,
    pub(super) list_closed: bool,
    /// Whether a comma or semicolon follows the last call.
    pub(super) separated: bool,
    /// The readers of the block's calls. The last one reads the current call.
    pub(super) calls: Vec<CallReader>,
    /// The number of parentheses that must still close.
    pub(super) parentheses: usize,
    /// Text that may be the opening tag of a call.
    pub(super) tag: String,
    /// The block's object as a whole, which may contain calls.
    pub(super) envelope: Option<Box<Envelope>>,
    /// The text after the last call.
    pub(super) tail: String,
    /// Text that may close the block, after `tail`.
    pub(super) closer: String,
    /// Whether the closing fence or tag was read.
    pub(super) closed: bool,
}

#[derive(Debug, Default)]
pub(super) struct SuspendedText {
    pub(super) held: String,
    /// The start of what may close the reasoning.
    pub(super) tail: String,
    /// Whether this is what may end the model's reasoning. It then counts however the text ends.
    pub(super) ends_reasoning: bool,
}
