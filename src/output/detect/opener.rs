//! Where an assistant turn starts: in a prompt that ends with one, and in the history.

use crate::output::format::{Format, FormatText, ReasoningTags};
use crate::probing::diff::{after_last, common_prefix};

/// What opens an assistant turn in every prompt of one template.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TurnOpener(String);

impl TurnOpener {
    /// Compares three renders of one template: a user turn, the same with a generation prompt, and
    /// the same with an assistant turn. Only what the last two share opens every turn. A reasoning
    /// block does not.
    pub fn find(
        user: &str,
        with_prompt: &str,
        history: &str,
        format: Option<&Format>,
    ) -> TurnOpener {
        let start = common_prefix(user, with_prompt);
        let prompt = &with_prompt[start..];
        let shared = match common_prefix(with_prompt, history) {
            end if end > start && !with_prompt[start..end].trim().is_empty() => {
                &with_prompt[start..end]
            }
            // The history opens the turn in another way. Use what the prompt adds.
            _ => prompt,
        };
        // A marker that the prompt starts with belongs to the reply.
        let markers = format.into_iter().flat_map(reply_markers);
        let end = markers.filter_map(|marker| prompt.find(&*marker)).min().unwrap_or(prompt.len());
        TurnOpener(shared[..shared.len().min(end)].to_owned())
    }

    /// The text that opens a turn; may be empty.
    pub fn text(&self) -> &str {
        &self.0
    }

    /// The part of the assistant turn that a prompt ends with: an opened reasoning block, a header,
    /// or the text of a reply to continue. `prompt` may be only the end of one.
    pub fn turn<'a>(&self, prompt: &'a str, format: Option<&Format>) -> &'a str {
        let own = self.0.trim();
        if !own.is_empty()
            && let Some(at) = prompt.rfind(own)
        {
            let turn = &prompt[at + own.len()..];
            let whitespace = &self.0[self.0.trim_end().len()..];
            return turn.strip_prefix(whitespace).unwrap_or(turn);
        }
        if let Some(at) = format.and_then(|format| first_message(format, prompt)) {
            return &prompt[at..];
        }
        // A prompt without the opener may still end with a marker.
        let markers = format.into_iter().flat_map(reply_markers);
        let text = prompt.trim_end();
        markers
            .filter(|marker| text.ends_with(&**marker))
            .map(|marker| &prompt[text.len() - marker.len()..])
            .next()
            .unwrap_or("")
    }

    /// Where the reply starts in a history that ends with it. `user` is the render of the user turn
    /// alone, `user_text` the text of its message.
    pub fn start(&self, user: &str, history: &str, user_text: &str) -> usize {
        let after =
            common_prefix(user, history).max(history.len() - after_last(history, user_text).len());
        match (history[after..].find(self.0.as_str()), history[after..].find(self.0.trim())) {
            (Some(at), _) if !self.0.is_empty() => after + at + self.0.len(),
            (None, Some(at)) => after + at + self.0.trim().len(),
            _ => after,
        }
    }
}

/// Where the assistant's last messages start in a prompt whose messages have headers.
fn first_message(format: &Format, prompt: &str) -> Option<usize> {
    let turn = &*format.channels.as_ref()?.turn;
    let message = turn.trim_end_matches(char::is_alphanumeric);
    let mut first = prompt.rfind(turn)?;
    // Consecutive messages belong to one turn if no message of another role is between them.
    while let Some(at) = prompt[..first].rfind(turn)
        && !prompt[at + turn.len()..first].contains(message)
    {
        first = at;
    }
    Some(first)
}

/// Markers of the reply that a generation prompt may already contain.
fn reply_markers(format: &Format) -> Vec<FormatText> {
    let reasoning =
        format.reasoning.iter().flat_map(|ReasoningTags { open, close, .. }| [open, close]);
    let wrappers = format.wrappers.iter().map(|wrapper| &wrapper.open);
    let turn = format.channels.iter().map(|channels| &channels.turn);
    reasoning.chain(wrappers).chain(turn).filter(|marker| !marker.is_empty()).cloned().collect()
}
