//! The headers of replies that consist of several messages. A header says whether its message is
//! reasoning, content, or a call.

use super::committed::CommittedCall;
use super::marker_set::Marker;
use super::{Destination, ParserState, ReplyParser, is_whitespace};
use crate::output::format::Channels;

/// The maximum length of a header.
const MAX_HEADER: usize = 512;

/// The part of a header that was read.
#[derive(Debug, Default)]
pub(super) struct Header {
    /// The held text before the header, in case it turns out not to be a header.
    before: String,
    text: String,
    /// Whether the start of the header is in the prompt. `before` is then not part of the reply.
    primed: bool,
}

impl Header {
    /// The text of a header that the end of the text cut off, unless it is whitespace.
    pub(super) fn into_text(self) -> Option<String> {
        Some(self.text).filter(|text| !text.trim().is_empty())
    }

    pub(super) fn set_primed(&mut self) {
        self.primed = true;
    }

    /// Whether the header begins with a marker or with the start of one.
    pub(super) fn is_marked(&self) -> bool {
        !self.before.is_empty() || self.text.trim_start().starts_with("<|")
    }
}

impl ReplyParser {
    pub(super) fn open_header(&mut self, text: String, before: &str) {
        let mut held = std::mem::take(&mut self.whitespace);
        held.push_str(before);
        self.after_marker = true;
        self.state = ParserState::Header(Header { before: held, text, primed: false });
    }

    pub(super) fn header_step(&mut self, mut header: Header, c: char) {
        let Some(channels) = self.channels.clone() else { return };
        header.text.push(c);
        if let Some(text) = header.text.strip_suffix(&*channels.body) {
            let text = text.to_owned();
            return self.end_header(&header, &text);
        }
        if let Some(end) = channels.ends.iter().find(|end| header.text.ends_with(&***end)) {
            self.state = ParserState::Text;
            return self.on_marker(Marker::End, end);
        }
        let begun = header.text.trim_start();
        let starts = |marker: &str| {
            !marker.is_empty() && (marker.starts_with(begun) || begun.starts_with(marker))
        };
        let unmarked = channels.header.is_empty() && channels.recipient.is_empty();
        let may_be = starts(&channels.header)
            || starts(&channels.recipient)
            || starts(&channels.body)
            || (unmarked && self.may_name(&channels, begun));
        if may_be && header.text.len() <= MAX_HEADER {
            self.state = ParserState::Header(header);
        } else {
            self.not_a_header(&header);
        }
    }

    /// Whether a header without markers may be the name of a channel or tool. Other text is
    /// rejected at once, because it would be read again from its second character on.
    fn may_name(&self, channels: &Channels, begun: &str) -> bool {
        let end = begun.find(char::is_whitespace).unwrap_or(begun.len());
        let (word, whitespace) = begun.split_at(end);
        let whole = !whitespace.is_empty();
        let fits =
            |name: &str, word: &str| if whole { name == word } else { name.starts_with(word) };
        let own = word.strip_prefix(&*channels.function).unwrap_or(word);
        channels.body.starts_with(whitespace)
            && (channels.reasoning.iter().chain(&channels.content).any(|name| fits(name, word))
                || self.tools.names().any(|name| fits(name, own))
                || (!whole && channels.function.starts_with(word)))
    }

    /// Treats the header as text. The marker that begins it is not parsed again.
    pub(super) fn not_a_header(&mut self, header: &Header) {
        self.state = ParserState::Text;
        self.after_marker &= header.before.is_empty();
        if !header.primed {
            self.push_text(&header.before);
        }
        let channels = self.channels.as_ref();
        let marker = channels
            .map(|channels| channels.header.clone())
            .filter(|marker| header.text.starts_with(&**marker));
        let marker = marker.unwrap_or_default();
        self.push_text(&marker);
        self.feed(&header.text[marker.len()..]);
    }

    fn end_header(&mut self, header: &Header, text: &str) {
        let Some(channels) = self.channels.clone() else { return };
        let words = words(text);
        let recipient = match &*channels.recipient {
            "" if words.len() == 1 => words.first().copied(),
            "" => None,
            prefix => words
                .iter()
                .find_map(|word| word.strip_prefix(prefix))
                .filter(|recipient| !recipient.is_empty()),
        };
        let mut destination = None;
        for word in words
            .iter()
            .copied()
            .map(|word| word.strip_prefix(&*channels.recipient).unwrap_or(word))
        {
            if channels.reasoning.iter().any(|known| known == word) {
                destination = Some(Destination::Reasoning);
            } else if channels.content.iter().any(|known| known == word) {
                destination = Some(Destination::Content);
            }
        }
        let known = |word: &str| {
            channels.reasoning.iter().chain(&channels.content).any(|known| known == word)
        };
        let function = recipient.filter(|word| {
            !known(word) && !matches!(*word, "assistant" | "user" | "system" | "developer")
        });
        self.state = ParserState::Text;
        match function {
            Some(name) => {
                let own = name.strip_prefix(&*channels.function).filter(|own| !own.is_empty());
                let name = own.unwrap_or(name).to_owned();
                if channels.recipient.is_empty()
                    && channels.header.is_empty()
                    && !self.tools.has(&name)
                {
                    return self.not_a_header(header);
                }
                self.message_to(&name);
            }
            None if destination.is_none() && channels.recipient.is_empty() => {
                self.not_a_header(header)
            }
            None if destination == Some(Destination::Reasoning) && !self.splits_reasoning => {
                self.destination = Destination::Content;
                self.shown_header = true;
                self.push_text(header.text.trim_start());
            }
            None if destination == Some(Destination::Reasoning) => {
                self.opened_by_tag = false;
                self.begin_reasoning();
            }
            None => {
                self.destination = Destination::Content;
                self.marker_passed();
            }
        }
    }

    /// Starts a message to a function.
    fn message_to(&mut self, name: &str) {
        self.marker_passed();
        if !self.calls_allowed {
            if !self.priming {
                self.note(
                    "call_without_tools",
                    "the reply contains a message to a function, but the request allows no call",
                );
            }
            self.destination = Destination::Leftover;
            self.parsed.leftover.push(String::new());
            return;
        }
        self.destination = Destination::Content;
        let reader = self.reader(0, self.patterns.message_body).with_name(name);
        let index = self.commit(name.to_owned(), None);
        self.state = ParserState::Committed(Box::new(CommittedCall::message(reader, index)));
    }
}

/// The words of a header, without its markers.
fn words(header: &str) -> Vec<&str> {
    let mut words = Vec::new();
    for part in header.split("<|") {
        let part = part.split_once("|>").map_or(part, |(_, after)| after);
        words.extend(part.split(is_whitespace).filter(|word| !word.is_empty()));
    }
    words
}
