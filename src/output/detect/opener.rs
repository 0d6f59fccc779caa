//! Where an assistant turn starts: in a prompt that ends with one, and in the history.

use std::ops::Range;

use super::infer::markers::snap_left;
use crate::output::format::{Format, FormatText, ReasoningTags, tags};
use crate::probing::diff::{after_last, common_prefix, common_suffix};

/// The fewest bytes of a header of the user's turn. Shorter texts are common in text.
const MIN_USER_HEADER: usize = 4;

/// The texts that open an assistant turn in the prompts of one template.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TurnOpener {
    /// The text that opens every turn.
    text: String,
    /// The texts before an answer in histories: after a user message, and after a tool result.
    before_answers: Vec<String>,
    /// The text before every user message, without whitespace around it. A prompt that has it after
    /// the start of an answer ends with a turn of the user. Empty if it may be the text of an
    /// answer.
    user_header: String,
}

impl TurnOpener {
    /// Compares three renders of one template: a user turn, the same with a generation prompt, and
    /// the same with an assistant turn. Only text that the last two share opens every turn, so a
    /// reasoning block is not part of it.
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
            // The history opens the turn differently, so the generation prompt is used.
            _ => prompt,
        };
        // A marker at the start of the generation prompt belongs to the reply.
        let end = before_reply(prompt, format).len();
        let text = shared[..shared.len().min(end)].to_owned();
        TurnOpener { text, ..TurnOpener::default() }
    }

    /// Adds the texts that histories have before an answer, up to the first marker of the reply. A
    /// prompt that continues an answer is recognised by them if there is no generation prompt, or
    /// if it differs. `is_safe` returns whether a text never occurs in replies of this template.
    pub(super) fn add_before_answers<'a>(
        &mut self,
        texts: impl Iterator<Item = &'a str>,
        format: Option<&Format>,
        is_safe: impl Fn(&str) -> bool,
    ) {
        // The messages of one turn have separate headers.
        if format.is_some_and(|format| format.channels.is_some()) {
            return;
        }
        for text in texts {
            let text = before_reply(text, format);
            let own = text.trim();
            // Texts of brackets and quotes alone occur too often elsewhere.
            let is_distinct = own.len() > 3 && own.contains(char::is_alphabetic);
            if is_distinct && is_safe(own) && !self.before_answers.iter().any(|known| known == text)
            {
                self.before_answers.push(text.to_owned());
            }
        }
    }

    /// Sets the text that opens the user's turns. `before` are the texts before two user messages,
    /// `end_of_turn` is what may end the turn before.
    pub(super) fn set_user_header(&mut self, before: [&str; 2], end_of_turn: &str) {
        let shared = common_suffix(before[0], before[1]);
        let header = before[0][before[0].len() - shared..].trim();
        let header = header.strip_prefix(end_of_turn).unwrap_or(header).trim();
        if header.len() >= MIN_USER_HEADER && header.contains(char::is_alphabetic) {
            self.user_header = header.to_owned();
        }
    }

    /// Whether a turn of the user opens in this text: a header with a tag anywhere, another one at
    /// the start of a line.
    fn opens_user_turn(&self, text: &str) -> bool {
        let is_marked = !tags(&self.user_header).is_empty();
        let mut starts = text.match_indices(&*self.user_header).map(|(at, _)| &text[..at]);
        !self.user_header.is_empty()
            && starts.any(|before| is_marked || before.is_empty() || before.ends_with('\n'))
    }

    /// The text that opens a turn. It may be empty.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The part of the assistant turn that a prompt ends with: an opened reasoning block, a header,
    /// or the text of a reply to continue. `prompt` may be only the last part of a prompt.
    pub fn turn<'a>(&self, prompt: &'a str, format: Option<&Format>) -> &'a str {
        let at = self.opened(prompt).map(|at| self.with_reasoning(prompt, at, format));
        let at = at.or_else(|| first_message(format?, prompt));
        // A prompt without the opener may still end with a marker.
        let turn = &prompt[at.unwrap_or_else(|| self.unopened(prompt, format))..];
        if self.opens_user_turn(turn) { &prompt[prompt.len()..] } else { turn }
    }

    /// Where the reply begins in a prompt that does not open a turn. Without a generation prompt,
    /// the template's histories have text before every answer. If that text is missing too, the
    /// whole prompt is the answer.
    fn unopened(&self, prompt: &str, format: Option<&Format>) -> usize {
        match self.text.trim().is_empty() && !self.before_answers.is_empty() {
            true => 0,
            false => last_marker(prompt, format),
        }
    }

    /// The start of the turn that opens at `at`. If the previous turn has only reasoning, the start
    /// of that turn.
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

    /// Like [`turn`](Self::turn), for a prompt that ends inside a message. `opening` are the bytes
    /// that the template wrote before the text of that message.
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

    /// The start of the last turn that a prompt opens.
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

    /// The start of the reply in a history that ends with it. `user` is the render of the user turn
    /// alone, `user_text` the text of its message.
    pub fn start(&self, user: &str, history: &str, user_text: &str, format: &Format) -> usize {
        let answer = history.len() - after_last(history, user_text).len();
        let after = snap_left(history, common_prefix(user, history).max(answer));
        let opened = |from: usize| {
            let texts = [self.text.as_str(), self.text.trim()].into_iter();
            let mut texts = texts.filter(|text| !text.is_empty());
            texts.find_map(|text| Some(from + history[from..].find(text)? + text.len()))
        };
        // What follows the user's turn elsewhere may begin as an answer does.
        let answer_opened = opened(after).or_else(|| opened(answer));
        answer_opened.unwrap_or_else(|| {
            // The end of every render may be the start of an answer.
            after.min(answer + before_reply(&history[answer..], Some(format)).len())
        })
    }
}

/// The start of the assistant's last messages in a prompt whose messages have headers.
fn first_message(format: &Format, prompt: &str) -> Option<usize> {
    let turn = &*format.channels.as_ref()?.turn;
    let message = match turn.split_once("assistant") {
        Some((marker, _)) => marker,
        None => turn.trim_end_matches(char::is_alphanumeric),
    };
    let mut first = prompt.rfind(turn)?;
    // Consecutive messages belong to one turn unless a message of another role is between them.
    while let Some(at) = prompt[..first].rfind(turn)
        && !prompt[at + turn.len()..first].contains(message)
    {
        first = at;
    }
    Some(first)
}

/// The start of the reply marker at the end of a text, else the end of the text.
fn last_marker(text: &str, format: Option<&Format>) -> usize {
    let own = text.trim_end();
    let marker = format.into_iter().flat_map(reply_markers).find(|marker| own.ends_with(&**marker));
    marker.map_or(text.len(), |marker| own.len() - marker.len())
}

/// The part of a text before the first marker of a reply.
pub(super) fn before_reply<'t>(text: &'t str, format: Option<&Format>) -> &'t str {
    let markers = format.into_iter().flat_map(reply_markers);
    let end = markers.filter_map(|marker| text.find(&*marker)).min();
    &text[..end.unwrap_or(text.len())]
}

/// Markers of the reply that a generation prompt may already contain.
fn reply_markers(format: &Format) -> Vec<FormatText> {
    let reasoning = format.reasoning.iter().flat_map(ReasoningTags::texts);
    let wrappers = format.wrappers.iter().map(|wrapper| &wrapper.open);
    let turn = format.channels.iter().map(|channels| &channels.turn);
    reasoning.chain(wrappers).chain(turn).filter(|marker| !marker.is_empty()).cloned().collect()
}
