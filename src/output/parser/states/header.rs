//! The headers of replies that consist of several messages. A header says whether its message is
//! reasoning, content, or a call.

use super::{CommittedCall, Header, ParserState, Transition};
use crate::output::format::{Channels, FormatText};
use crate::output::message::Destination;
use crate::output::parser::context::{ParserContext, Source};
use crate::output::read::json_scanner::is_whitespace;

/// The maximum length of a header.
const MAX_HEADER: usize = 512;

impl Header {
    /// Whether the header begins with a marker or with the start of one.
    pub(crate) fn is_marked(&self) -> bool {
        !self.before.is_empty() || self.text.trim_start().starts_with("<|")
    }

    pub(super) fn step(&mut self, c: char, cx: &mut ParserContext) -> Transition {
        let Some(channels) = cx.settings.channels.clone() else { return Transition::text("") };
        self.text.push(c);
        if let Some(text) = self.text.strip_suffix(&*channels.body) {
            return self.end(text, &channels, cx);
        }
        if let Some(end) = channels.ends.iter().find(|end| self.text.ends_with(&***end)) {
            cx.message_ended(end);
            return Transition::text("");
        }
        let begun = self.text.trim_start();
        let starts = |marker: &str| {
            !marker.is_empty() && (marker.starts_with(begun) || begun.starts_with(marker))
        };
        let unmarked = channels.header.is_empty() && channels.recipient.is_empty();
        let may_be = starts(&channels.header)
            || starts(&channels.recipient)
            || starts(&channels.body)
            || (unmarked && may_name(&channels, begun, cx));
        if may_be && self.text.len() <= MAX_HEADER { Transition::Stay } else { self.reject(cx) }
    }

    /// Treats the header as text. The marker that begins it is not parsed again.
    pub(crate) fn reject(&self, cx: &mut ParserContext) -> Transition {
        cx.out.preceding.marker &= self.before.is_empty();
        if !self.primed {
            cx.out.push_text(&self.before);
        }
        let channels = cx.settings.channels.as_ref();
        let marker = channels.map_or("", |channels| &*channels.header);
        match self.text.strip_prefix(marker) {
            Some(rest) => {
                cx.out.push_text(marker);
                Transition::text(rest)
            }
            None => Transition::text(&*self.text),
        }
    }

    fn end(&self, text: &str, channels: &Channels, cx: &mut ParserContext) -> Transition {
        let words = words(text);
        let recipient = match &*channels.recipient {
            "" if words.len() == 1 => words.first().copied(),
            "" => None,
            prefix => words
                .iter()
                .find_map(|word| word.strip_prefix(prefix))
                .filter(|recipient| !recipient.is_empty()),
        };
        let kind = |word: &str| {
            let one_of = |names: &[FormatText]| names.iter().any(|known| known == word);
            match word {
                _ if one_of(&channels.reasoning) => Some(Destination::Reasoning),
                _ if one_of(&channels.content) => Some(Destination::Content),
                _ => None,
            }
        };
        let destination = words
            .iter()
            .rev()
            .find_map(|word| kind(word.strip_prefix(&*channels.recipient).unwrap_or(word)));
        let function = recipient.filter(|word| {
            kind(word).is_none() && !matches!(*word, "assistant" | "user" | "system" | "developer")
        });
        if let Some(name) = function {
            let own = name.strip_prefix(&*channels.function).filter(|own| !own.is_empty());
            let name = own.unwrap_or(name);
            let unmarked = channels.recipient.is_empty() && channels.header.is_empty();
            if unmarked && !cx.settings.tools.has(name) {
                return self.reject(cx);
            }
            return Transition::to(cx.message_to(name));
        }
        match destination {
            None if channels.recipient.is_empty() => return self.reject(cx),
            Some(Destination::Reasoning) if !cx.settings.splits_reasoning => {
                cx.out.destination = Destination::Content;
                cx.shown_header = true;
                cx.out.push_text(self.text.trim_start());
            }
            Some(Destination::Reasoning) => {
                cx.out.reasoning.opened_by_tag = false;
                cx.out.begin_reasoning();
            }
            _ => {
                cx.out.destination = Destination::Content;
                cx.out.marker_passed();
            }
        }
        Transition::text("")
    }
}

/// Whether a header without markers may be the name of a channel or tool. Other text is rejected at
/// once, because it would be read again from its second character on.
fn may_name(channels: &Channels, begun: &str, cx: &ParserContext) -> bool {
    let end = begun.find(char::is_whitespace).unwrap_or(begun.len());
    let (word, whitespace) = begun.split_at(end);
    let whole = !whitespace.is_empty();
    let fits = |name: &str| if whole { name == word } else { name.starts_with(word) };
    let own = word.strip_prefix(&*channels.function).unwrap_or(word);
    let tools = &cx.settings.tools;
    let is_tool = if whole { tools.is_name(own) } else { tools.is_begun(own) };
    channels.body.starts_with(whitespace)
        && (channels.reasoning.iter().chain(&channels.content).any(|name| fits(name))
            || is_tool
            || (!whole && channels.function.starts_with(word)))
}

impl ParserContext {
    /// Starts a message to a function.
    fn message_to(&mut self, name: &str) -> ParserState {
        self.out.marker_passed();
        if !self.calls_allowed() {
            if self.source != Source::Prompt {
                self.out.note(
                    "call_without_tools",
                    "the reply contains a message to a function, but the request allows no call",
                );
            }
            self.out.begin_leftover(Destination::Leftover);
            return ParserState::text();
        }
        self.out.destination = Destination::Content;
        let message_body = self.forms.current.patterns.message_body;
        let reader = self.forms.reader(0, message_body).with_name(name);
        let index = self.commit(&reader);
        let call = CommittedCall::new(reader, index, false);
        ParserState::Committed(Box::new(CommittedCall { message: Some(String::new()), ..call }))
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
