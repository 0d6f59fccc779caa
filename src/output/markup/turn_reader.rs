//! Removes repeated role headers and ends of turns from a reply that arrives in pieces.
//!
//! A header is markup at the start of a reply and after an end. An end is markup at the end of the
//! text and before a header; elsewhere it is left to the reply parser. Text is held only while it
//! may become a header or an end.

use std::collections::VecDeque;
use std::sync::Arc;

use super::{ReplyPart, TurnMarkup, push_text};

/// The fewest bytes of an end that the end of the text cut off.
const MIN_HALF: usize = 3;

/// What a text begins with. Numbers are lengths in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Found {
    Header(usize),
    End(usize),
    NextTurn,
    /// More text is needed.
    Part,
    Nothing,
}

/// A control token in the held text.
#[derive(Debug, Clone, Copy)]
struct HeldControl {
    /// Its offset in [`TurnReader::buffer`].
    start: usize,
    length: usize,
    /// Whether the token occurs in the format.
    known: bool,
}

/// Reads one reply.
#[derive(Debug)]
pub(crate) struct TurnReader {
    markup: Arc<TurnMarkup>,
    /// Only markup was read so far, or since the last header.
    at_start: bool,
    /// A header was removed at that place.
    removed: bool,
    /// The last part was a control token that does not occur in the format.
    after_control: bool,
    /// Ends that were not followed by text yet, each with the whitespace before it.
    ends: Vec<ReplyPart>,
    /// The text that was read. The held text begins at `at`: it may become markup. The text before
    /// it is dropped once per piece, so the work is linear in the length of a piece.
    buffer: String,
    at: usize,
    /// The end of the whitespace at the start of the held text, as far as it is known.
    whitespace_end: usize,
    /// The control tokens in the held text, in order.
    controls: VecDeque<HeldControl>,
    /// The next turn has begun.
    over: bool,
}

impl TurnReader {
    pub(crate) fn new(markup: Arc<TurnMarkup>) -> TurnReader {
        TurnReader {
            markup,
            at_start: true,
            removed: false,
            after_control: false,
            ends: Vec::new(),
            buffer: String::new(),
            at: 0,
            whitespace_end: 0,
            controls: VecDeque::new(),
            over: false,
        }
    }

    /// Whether this text contains nothing that concerns this reader.
    pub(crate) fn passes(&self, text: &str) -> bool {
        let idle = !self.at_start && !self.over && self.ends.is_empty() && self.held().is_empty();
        let mut ends = self.markup.ends.iter().filter_map(|end| end.chars().next());
        idle && !ends.any(|first| text.contains(first))
    }

    /// Reads text and appends all parts that are now certain.
    pub(crate) fn push(&mut self, text: &str, out: &mut Vec<ReplyPart>) {
        self.buffer.push_str(text);
        self.advance(false, out);
    }

    /// Reads a control token. `known` says whether it occurs in the format.
    pub(crate) fn push_control(&mut self, text: &str, known: bool, out: &mut Vec<ReplyPart>) {
        let start = self.buffer.len();
        self.controls.push_back(HeldControl { start, length: text.len(), known });
        self.buffer.push_str(text);
        self.advance(false, out);
    }

    /// Decides the held text at the end of the reply.
    pub(crate) fn finish(&mut self, out: &mut Vec<ReplyPart>) {
        self.advance(true, out);
        if !self.ends.is_empty() || (self.at_start && self.removed) {
            self.skip(self.held().len());
        }
        self.confirm_ends(out);
        self.pass(self.held().len(), out);
    }

    fn advance(&mut self, last: bool, out: &mut Vec<ReplyPart>) {
        self.decide(last, out);
        self.buffer.drain(..self.at);
        self.controls.iter_mut().for_each(|control| control.start -= self.at);
        self.whitespace_end = self.whitespace_end.saturating_sub(self.at);
        self.at = 0;
    }

    fn decide(&mut self, last: bool, out: &mut Vec<ReplyPart>) {
        loop {
            if self.over {
                let text = self.take(self.held().len());
                if !text.is_empty() {
                    out.push(ReplyPart::NextTurn(text));
                }
                return;
            }
            let boundary = self.at_start || !self.ends.is_empty();
            if !boundary {
                self.pass(self.next_place(), out);
            }
            let before = self.whitespace();
            if self.held().len() == before {
                return;
            }
            match self.find(before, last) {
                Found::Part => return,
                Found::Header(length) => {
                    self.confirm_ends(out);
                    self.skip(before);
                    out.push(ReplyPart::Header(self.take(length)));
                    self.at_start = true;
                    self.removed = true;
                    self.after_control = false;
                }
                Found::End(length) => self.hold_end(before, length),
                Found::NextTurn => {
                    self.confirm_ends(out);
                    self.over = true;
                }
                Found::Nothing if last && self.take_half(before, out) => return,
                Found::Nothing => self.pass_on(before, out),
            }
        }
    }

    /// The markup or text at the start of the held text, after the whitespace `before` it.
    fn find(&self, before: usize, last: bool) -> Found {
        let text = &self.held()[before..];
        let TurnMarkup { headers, ends, next_headers, only_first, role } = &*self.markup;
        let ended = !self.ends.is_empty();
        let may_open = (self.at_start && !ended) || (ended && !only_first);
        let headers =
            headers.iter().filter(|_| may_open).map(|form| (form, Found::Header(form.len())));
        let ends = ends.iter().map(|form| (form, Found::End(form.len())));
        let next = next_headers.iter().filter(|_| ended).map(|form| (form, Found::NextTurn));
        let (mut longest, mut best) = (0, Found::Nothing);
        for (form, found) in headers.chain(ends).chain(next) {
            // A word matches only as a whole.
            let word = form.ends_with(char::is_alphanumeric);
            let after = text.strip_prefix(form.as_str());
            if !last && (form.starts_with(text) && (form.len() > text.len() || word)) {
                return Found::Part;
            }
            let whole = |after: &str| !word || !after.starts_with(char::is_alphanumeric);
            if after.is_some_and(whole) && form.len() > longest {
                (longest, best) = (form.len(), found);
            }
        }
        let role = role.as_deref().filter(|_| self.after_control && may_open && longest == 0);
        role.map_or(best, |role| self.find_role(role, before, last))
    }

    /// Whether the text is the header's role on a separate line.
    fn find_role(&self, role: &str, before: usize, last: bool) -> Found {
        let text = &self.held()[before..];
        let Some(after) = text.strip_prefix(role) else {
            return if role.starts_with(text) && !last { Found::Part } else { Found::Nothing };
        };
        let end = self.at + before + role.len();
        let control = self.controls.iter().any(|control| control.start == end);
        match after.chars().next() {
            None if !last => Found::Part,
            None | Some('\n' | '\r') => Found::Header(role.len()),
            Some(_) if control => Found::Header(role.len()),
            Some(_) => Found::Nothing,
        }
    }

    fn hold_end(&mut self, before: usize, length: usize) {
        let whitespace = self.take(before);
        push_text(&whitespace, &mut self.ends);
        let control = self.controls.front().is_some_and(|control| control.start == self.at);
        let end = self.take(length);
        self.ends.push(if control { ReplyPart::Control(end) } else { ReplyPart::End(end) });
    }

    /// Treats the held ends as markup.
    fn confirm_ends(&mut self, out: &mut Vec<ReplyPart>) {
        let ends = self.ends.drain(..).filter_map(|part| match part {
            ReplyPart::Control(end) | ReplyPart::End(end) => Some(ReplyPart::End(end)),
            _ => None,
        });
        out.extend(ends);
    }

    /// Treats the held ends as text, because text follows them. The reply parser handles those that
    /// occur in the format.
    fn release_ends(&mut self, out: &mut Vec<ReplyPart>) {
        for part in self.ends.drain(..) {
            match part {
                ReplyPart::End(text) | ReplyPart::Text(text) => push_text(&text, out),
                part => out.push(part),
            }
        }
    }

    /// Removes the first part of an end, or of a header after an end, that the end of the text cut
    /// off.
    fn take_half(&mut self, before: usize, out: &mut Vec<ReplyPart>) -> bool {
        let text = &self.held()[before..];
        let halves = |forms: &[String]| forms.iter().any(|form| form.starts_with(text));
        let TurnMarkup { headers, ends, next_headers, .. } = &*self.markup;
        let is_long = text.len() >= MIN_HALF && text.contains(char::is_alphanumeric);
        let half_end = is_long && halves(ends);
        if !half_end && (self.ends.is_empty() || !halves(headers) && !halves(next_headers)) {
            return false;
        }
        self.confirm_ends(out);
        self.skip(before);
        let half = self.take(self.held().len());
        out.push(if half_end { ReplyPart::End(half) } else { ReplyPart::Header(half) });
        true
    }

    /// Passes on the whitespace, and the control token or character after it.
    fn pass_on(&mut self, before: usize, out: &mut Vec<ReplyPart>) {
        let start = self.at + before;
        let control = self.controls.front().copied().filter(|control| control.start == start);
        match control {
            // A token that only ends or opens turns does not begin the answer.
            Some(HeldControl { length, known: false, .. })
                if self.at_start || !self.ends.is_empty() =>
            {
                if self.ends.is_empty() && !self.removed {
                    self.pass(before, out);
                } else {
                    self.skip(before);
                }
                out.push(ReplyPart::Control(self.take(length)));
                self.after_control = true;
            }
            Some(HeldControl { length, .. }) => {
                self.release_ends(out);
                self.pass(before, out);
                out.push(ReplyPart::Control(self.take(length)));
                self.at_start = false;
            }
            None => {
                self.release_ends(out);
                // Whitespace next to markup belongs to it.
                let dropped = if self.at_start && self.removed { before } else { 0 };
                self.skip(dropped);
                let before = before - dropped;
                let first = self.held()[before..].chars().next().map_or(0, char::len_utf8);
                self.pass(before + first, out);
                self.at_start = false;
                self.after_control = false;
            }
        }
    }

    /// The first position in the held text at which an end or a control token may begin.
    fn next_place(&self) -> usize {
        let held = self.held();
        let control = self.controls.front().map_or(held.len(), |control| control.start - self.at);
        let may_begin = |at: usize| {
            let rest = &held[at..];
            self.markup.ends.iter().any(|end| end.starts_with(rest) || rest.starts_with(&**end))
        };
        let mut places = held[..control].char_indices().map(|(at, _)| at);
        places.find(|at| may_begin(*at)).unwrap_or(control)
    }

    fn held(&self) -> &str {
        &self.buffer[self.at..]
    }

    /// The length of the whitespace at the start of the held text.
    fn whitespace(&mut self) -> usize {
        let after = &self.buffer[self.whitespace_end.max(self.at)..];
        self.whitespace_end = self.buffer.len() - after.trim_start().len();
        self.whitespace_end - self.at
    }

    /// Removes the first bytes of the held text.
    fn skip(&mut self, length: usize) {
        self.at += length;
        while self.controls.front().is_some_and(|control| control.start < self.at) {
            self.controls.pop_front();
        }
    }

    /// Removes and returns the first bytes of the held text.
    fn take(&mut self, length: usize) -> String {
        let text = self.held()[..length].to_owned();
        self.skip(length);
        text
    }

    /// Passes on the first bytes of the held text as text.
    fn pass(&mut self, length: usize, out: &mut Vec<ReplyPart>) {
        push_text(&self.held()[..length], out);
        self.skip(length);
    }
}
