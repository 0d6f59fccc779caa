//! The interface between the polyfill of calls and a model's format: writing calls of earlier turns
//! as text.

use std::ops::Range;

use serde_json::Value;

/// Writes calls as the text that the model itself would have written.
pub trait CallWriter: Send + Sync {
    /// The text of one message's calls; `None` if the format is unknown.
    fn write(&self, calls: &[SentCall<'_>]) -> Option<WrittenCalls>;

    /// The role in which the template shows tool results, if it is not `tool`.
    fn result_role(&self) -> Option<&str>;
}

/// A call of the request.
#[derive(Debug, Clone, Copy)]
pub struct SentCall<'a> {
    /// The function's name.
    pub name: &'a str,
    /// The arguments, an object.
    pub arguments: &'a Value,
    /// The call's id. It may be empty.
    pub id: &'a str,
}

/// Calls as text. Bytes outside of `members` belong to the format.
#[derive(Debug, Clone, Default)]
pub struct WrittenCalls {
    /// The text.
    pub text: String,
    /// The bytes that come from calls, in order.
    pub members: Vec<MemberBytes>,
}

/// Bytes that come from a member of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberBytes {
    /// The bytes of the text.
    pub bytes: Range<usize>,
    /// The index of the call.
    pub call: usize,
    /// `id`, `function.name` or `function.arguments`.
    pub member: &'static str,
}
