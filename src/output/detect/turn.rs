//! Where an assistant's turn begins: in a prompt that ends with one, and in the history.

use crate::output::format::{Format, FormatText, ReasoningTags};

/// What opens an assistant's turn, in every prompt of one template.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Opener(String);

impl Opener {
    /// Reads it off three renders of one template: a user's turn, the same with a generation
    /// prompt, and the same with an assistant's turn. Only what the last two share opens every
    /// turn: a reasoning block does not.
    pub fn find(user: &str, with_prompt: &str, history: &str, format: Option<&Format>) -> Opener {
        let start = common(user, with_prompt);
        let prompt = &with_prompt[start..];
        let shared = match common(with_prompt, history) {
            end if end > start && !with_prompt[start..end].trim().is_empty() => {
                &with_prompt[start..end]
            }
            // The history is written in another way: then it is what the prompt adds.
            _ => prompt,
        };
        // A marker that the prompt begins with is the reply's.
        let markers = format.into_iter().flat_map(reply_markers);
        let end = markers.filter_map(|marker| prompt.find(&*marker)).min().unwrap_or(prompt.len());
        Opener(shared[..shared.len().min(end)].to_owned())
    }

    /// The text that opens a turn; may be empty.
    pub fn text(&self) -> &str {
        &self.0
    }

    /// What a prompt holds of the turn it ends with: an opened reasoning block, a header, the text
    /// of a reply that is to be continued. `prompt` may be the end of one.
    pub fn turn<'a>(&self, prompt: &'a str, format: Option<&Format>) -> &'a str {
        let own = self.0.trim();
        if !own.is_empty()
            && let Some(at) = prompt.rfind(own)
        {
            let turn = &prompt[at + own.len()..];
            let blanks = &self.0[self.0.trim_end().len()..];
            return turn.strip_prefix(blanks).unwrap_or(turn);
        }
        if let Some(at) = format.and_then(|format| first_message(format, prompt)) {
            return &prompt[at..];
        }
        // What is not opened in the usual way may still end with a marker.
        let markers = format.into_iter().flat_map(reply_markers);
        let text = prompt.trim_end();
        markers
            .filter(|marker| text.ends_with(&**marker))
            .map(|marker| &prompt[text.len() - marker.len()..])
            .next()
            .unwrap_or("")
    }

    /// Where the reply begins in a history that ends with it, behind the user's `words`.
    pub fn start(&self, user: &str, history: &str, words: &str) -> usize {
        let after = common(user, history).max(history.len() - behind(history, words).len());
        match (history[after..].find(self.0.as_str()), history[after..].find(self.0.trim())) {
            (Some(at), _) if !self.0.is_empty() => after + at + self.0.len(),
            (None, Some(at)) => after + at + self.0.trim().len(),
            _ => after,
        }
    }
}

/// Where the assistant's last messages begin, in a prompt whose messages have headers.
fn first_message(format: &Format, prompt: &str) -> Option<usize> {
    let turn = &*format.channels.as_ref()?.turn;
    let message = turn.trim_end_matches(char::is_alphanumeric);
    let mut first = prompt.rfind(turn)?;
    // Messages in a row belong to one turn: none of another role begins between them.
    while let Some(at) = prompt[..first].rfind(turn)
        && !prompt[at + turn.len()..first].contains(message)
    {
        first = at;
    }
    Some(first)
}

/// Markers that a generation prompt may end with, which belong to the reply.
fn reply_markers(format: &Format) -> Vec<FormatText> {
    let reasoning =
        format.reasoning.iter().flat_map(|ReasoningTags { open, close, .. }| [open, close]);
    let wrappers = format.wrappers.iter().map(|wrapper| &wrapper.open);
    let turn = format.channels.iter().map(|channels| &channels.turn);
    reasoning.chain(wrappers).chain(turn).filter(|marker| !marker.is_empty()).cloned().collect()
}

/// What stands behind these words; all of it, if they are not in it.
pub(crate) fn behind<'a>(text: &'a str, words: &str) -> &'a str {
    text.rsplit_once(words).map_or(text, |(_, after)| after)
}

/// The bytes that two texts begin with alike.
pub(crate) fn common(a: &str, b: &str) -> usize {
    let mut end = a.bytes().zip(b.bytes()).take_while(|(a, b)| a == b).count();
    while !a.is_char_boundary(end) || !b.is_char_boundary(end) {
        end -= 1;
    }
    end
}
