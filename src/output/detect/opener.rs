//! Where an assistant turn starts: in a prompt that ends with one, and in the history.

use std::ops::Range;

use crate::output::format::{Format, FormatText, ReasoningTags};
use crate::probing::diff::{after_last, common_prefix};

/// What opens an assistant turn in the prompts of one template.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TurnOpener {
    /// What opens every turn.
    text: String,
    /// What histories have before an answer: after a user message, after a result.
    before_answers: Vec<String>,
}

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
        let text = shared[..shared.len().min(end)].to_owned();
        TurnOpener { text, before_answers: Vec::new() }
    }

    /// Adds what histories have before an answer, up to the first marker of the reply. It opens a
    /// turn that a prompt continues, where there is no generation prompt or it differs. `is_safe`
    /// says whether a text is in no reply of this template.
    pub(super) fn add_before_answers<'a>(
        &mut self,
        texts: impl Iterator<Item = &'a str>,
        format: Option<&Format>,
        is_safe: impl Fn(&str) -> bool,
    ) {
        // Messages of one turn have headers of their own.
        if format.is_some_and(|format| format.channels.is_some()) {
            return;
        }
        for text in texts {
            let markers = format.into_iter().flat_map(reply_markers);
            let end = markers.filter_map(|marker| text.find(&*marker)).min().unwrap_or(text.len());
            let text = &text[..end];
            let own = text.trim();
            // Brackets and quotes alone are in many texts.
            let is_distinct = own.len() > 3 && own.contains(char::is_alphabetic);
            if is_distinct && is_safe(own) && !self.before_answers.iter().any(|known| known == text)
            {
                self.before_answers.push(text.to_owned());
            }
        }
    }

    /// The text that opens a turn; may be empty.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The part of the assistant turn that a prompt ends with: an opened reasoning block, a header,
    /// or the text of a reply to continue. `prompt` may be only the end of one.
    pub fn turn<'a>(&self, prompt: &'a str, format: Option<&Format>) -> &'a str {
        let at = self.opened(prompt).map(|at| self.with_reasoning(prompt, at, format));
        let at = at.or_else(|| first_message(format?, prompt));
        // A prompt without the opener may still end with a marker.
        &prompt[at.unwrap_or_else(|| self.unopened(prompt, format))..]
    }

    /// Where the reply begins in a prompt that opens no turn. In a template without a generation
    /// prompt, histories have text before every answer; a prompt without it is the answer alone.
    fn unopened(&self, prompt: &str, format: Option<&Format>) -> usize {
        match self.text.trim().is_empty() && !self.before_answers.is_empty() {
            true => 0,
            false => last_marker(prompt, format),
        }
    }

    /// Where a turn begins that opens at `at`, or the turn before it if that has only reasoning.
    fn with_reasoning(&self, prompt: &str, at: usize, format: Option<&Format>) -> usize {
        let Some(tags) = format.and_then(|format| format.reasoning.as_ref()) else { return at };
        let before = prompt[..at].trim_end().strip_suffix(self.text.trim());
        let Some(before) = before.filter(|_| !self.text.trim().is_empty()) else { return at };
        let Some(start) = self.opened(before) else { return at };
        let turn = before[start..].trim();
        match !tags.open.is_empty() && turn.starts_with(&*tags.open) && turn.ends_with(&*tags.close)
        {
            true => start,
            false => at,
        }
    }

    /// As [`turn`](Self::turn), for a prompt that ends inside a message. `opening` are the bytes
    /// that the template wrote before the text of the message.
    pub fn turn_of_message<'a>(
        &self,
        prompt: &'a str,
        opening: Range<usize>,
        format: Option<&Format>,
    ) -> &'a str {
        let (start, opening) = (opening.start, &prompt[opening]);
        let at = self.opened(opening).or_else(|| first_message(format?, opening));
        &prompt[start + at.unwrap_or_else(|| last_marker(opening, format))..]
    }

    /// Where the last turn starts that a prompt opens.
    fn opened(&self, prompt: &str) -> Option<usize> {
        let openers = std::iter::once(&self.text).chain(&self.before_answers);
        let starts = openers.filter_map(|opener| {
            let own = Some(opener.trim()).filter(|own| !own.is_empty())?;
            let end = prompt.rfind(own)? + own.len();
            let whitespace = &opener[opener.trim_end().len()..];
            let is_whole = prompt[end..].starts_with(whitespace);
            Some(if is_whole { end + whitespace.len() } else { end })
        });
        starts.max()
    }

    /// Where the reply starts in a history that ends with it. `user` is the render of the user turn
    /// alone, `user_text` the text of its message.
    pub fn start(&self, user: &str, history: &str, user_text: &str) -> usize {
        let after =
            common_prefix(user, history).max(history.len() - after_last(history, user_text).len());
        let text = self.text.as_str();
        match (history[after..].find(text), history[after..].find(text.trim())) {
            (Some(at), _) if !text.is_empty() => after + at + text.len(),
            (None, Some(at)) => after + at + text.trim().len(),
            _ => after,
        }
    }
}

/// Where the assistant's last messages start in a prompt whose messages have headers.
fn first_message(format: &Format, prompt: &str) -> Option<usize> {
    let turn = &*format.channels.as_ref()?.turn;
    let message = match turn.split_once("assistant") {
        Some((marker, _)) => marker,
        None => turn.trim_end_matches(char::is_alphanumeric),
    };
    let mut first = prompt.rfind(turn)?;
    // Consecutive messages belong to one turn if no message of another role is between them.
    while let Some(at) = prompt[..first].rfind(turn)
        && !prompt[at + turn.len()..first].contains(message)
    {
        first = at;
    }
    Some(first)
}

/// Where the marker of a reply starts that a text ends with; else the end of the text.
fn last_marker(text: &str, format: Option<&Format>) -> usize {
    let own = text.trim_end();
    let marker = format.into_iter().flat_map(reply_markers).find(|marker| own.ends_with(&**marker));
    marker.map_or(text.len(), |marker| own.len() - marker.len())
}

/// Markers of the reply that a generation prompt may already contain.
pub(super) fn reply_markers(format: &Format) -> Vec<FormatText> {
    let reasoning =
        format.reasoning.iter().flat_map(|ReasoningTags { open, close, .. }| [open, close]);
    let wrappers = format.wrappers.iter().map(|wrapper| &wrapper.open);
    let turn = format.channels.iter().map(|channels| &channels.turn);
    reasoning.chain(wrappers).chain(turn).filter(|marker| !marker.is_empty()).cloned().collect()
}
