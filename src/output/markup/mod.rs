//! The markup around a reply: what its template writes before and after an answer, and the control
//! tokens of its vocabulary.
//!
//! In: text of a model, and control tokens where they are known. Out: the same text without
//! repeated role headers and ends of turns, in order. The reply parser handles everything inside
//! the answer.

mod control_spellings;
mod turn_markup;
mod turn_reader;

pub(super) use control_spellings::ControlScanner;
pub use control_spellings::ControlSpellings;
pub use turn_markup::TurnMarkup;
pub(super) use turn_reader::TurnReader;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ReplyPart {
    /// Text, which may contain markup of the format.
    Text(String),
    /// A control token.
    Control(String),
    /// A role header that opens the turn again.
    Header(String),
    /// The end of the turn, or the first half of one.
    End(String),
    /// Text of another turn that the model invented.
    NextTurn(String),
}

/// Appends text to the last part, if that is text too.
fn push_text(text: &str, out: &mut Vec<ReplyPart>) {
    match out.last_mut() {
        _ if text.is_empty() => {}
        Some(ReplyPart::Text(last)) => last.push_str(text),
        _ => out.push(ReplyPart::Text(text.to_owned())),
    }
}
