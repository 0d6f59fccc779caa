//! One call in one shape, read character by character: name, id, and the arguments as JSON.

use std::sync::Arc;

use serde_json::Value;

use super::call_patterns::PatternItem;
use super::is_whitespace;
use crate::output::format::{Encoding, FormatText, IdForm};
use crate::output::parser::call_object::{ArgumentsKind, CallObject, MAX_NAME, ObjectProgress};
use crate::output::read::{self, ArgumentsReader, ReadStep};

/// What a reader needs to know of the request.
pub(super) trait Tools {
    /// The schema of a tool's arguments; None if the tool is not given or has no schema.
    fn schema(&self, name: &str) -> Option<&Value>;
}

/// Where a reader stands after a character.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum CallStatus {
    /// ReaderState the call.
    More,
    /// The arguments are complete; this character was their last.
    Closed,
    /// The arguments ended before this text.
    Ended(String),
    /// This is no call of this shape. So much of what was read, from its end, may begin something
    /// else.
    Broken(usize),
}

#[derive(Debug)]
enum ReaderState {
    /// Between two pieces, or in one that is matched character by character: bytes of the tag seen
    /// so far.
    Tag(usize),
    /// In a name or an id.
    Word(String),
    Object(Box<CallObject>),
    Arguments(Box<dyn ArgumentsReader>),
    /// Arguments ended without one parameter: a tag that closes the call must follow. What is held
    /// of it.
    Empty(String),
}

#[derive(Debug)]
pub(super) struct CallReader {
    items: Arc<[PatternItem]>,
    at: usize,
    inside: ReaderState,
    bracket: bool,
    pub(super) foreign: bool,
    /// Which of the patterns's list it reads.
    pub(super) shape: Option<usize>,
    /// A tag should stand behind the arguments.
    pub(super) closes: bool,
    name: Option<String>,
    id: Option<String>,
    out: String,
    certain: bool,
    followers: Arc<[FormatText]>,
}

impl CallReader {
    pub(super) fn new(
        items: &Arc<[PatternItem]>,
        at: usize,
        foreign: bool,
        followers: &Arc<[FormatText]>,
    ) -> CallReader {
        CallReader {
            items: Arc::clone(items),
            at,
            inside: ReaderState::Tag(0),
            bracket: false,
            foreign,
            shape: None,
            closes: false,
            name: None,
            id: None,
            out: String::new(),
            certain: false,
            followers: Arc::clone(followers),
        }
    }

    /// The header of a message has said which function is called.
    pub(super) fn named(mut self, name: &str) -> CallReader {
        self.name = Some(name.to_owned());
        self
    }

    pub(super) fn name(&self) -> Option<&str> {
        match &self.inside {
            ReaderState::Object(object) => object.name(),
            _ => self.name.as_deref(),
        }
    }

    pub(super) fn id(&self) -> Option<&str> {
        match &self.inside {
            ReaderState::Object(object) => object.id(),
            _ => self.id.as_deref(),
        }
    }

    /// The commit point: the name is known, and arguments have begun that can be shown as they
    /// come.
    pub(super) fn is_ready(&self) -> bool {
        match &self.inside {
            ReaderState::Object(object) => object.is_ready(),
            ReaderState::Arguments(reader) => self.name.is_some() && reader.is_certain(),
            _ => self.name.is_some() && self.certain,
        }
    }

    /// Whether the arguments have begun, though they may be shown only as a whole.
    pub(super) fn has_begun(&self) -> bool {
        match &self.inside {
            ReaderState::Object(object) => {
                object.name().is_some() && object.kind().is_some() && !object.arguments_complete()
            }
            ReaderState::Arguments(_) | ReaderState::Empty(_) => self.name.is_some(),
            _ => false,
        }
    }

    /// Whether a tag standing here would end the call, because nothing in it has a place for one.
    pub(super) fn is_between_values(&self) -> bool {
        match &self.inside {
            ReaderState::Object(object) => !object.in_string(),
            ReaderState::Arguments(reader) => reader.is_between_values(),
            _ => false,
        }
    }

    /// Whether the object holds members that no call has.
    pub(super) fn has_foreign_key(&self) -> bool {
        matches!(&self.inside, ReaderState::Object(object) if object.has_foreign_key())
    }

    /// Whether the arguments are one object, as far as it is known.
    pub(super) fn is_object(&self) -> bool {
        match &self.inside {
            ReaderState::Object(object) => {
                object.kind().is_none_or(|kind| kind == ArgumentsKind::Object)
            }
            _ => true,
        }
    }

    pub(super) fn take_arguments(&mut self) -> String {
        if let ReaderState::Object(object) = &mut self.inside {
            self.out.push_str(&object.take_arguments());
        }
        std::mem::take(&mut self.out)
    }

    /// The same, left where it is.
    pub(super) fn arguments(&mut self) -> &str {
        self.out = self.take_arguments();
        &self.out
    }

    /// What was relaxed.
    pub(super) fn take_notes(&mut self) -> Vec<(&'static str, String)> {
        match &mut self.inside {
            ReaderState::Object(object) => object.take_notes(),
            ReaderState::Arguments(reader) => reader.take_notes(),
            _ => Vec::new(),
        }
    }

    /// What the call says twice.
    pub(super) fn take_leftover(&mut self) -> Vec<String> {
        match &mut self.inside {
            ReaderState::Arguments(reader) => reader.take_leftover(),
            _ => Vec::new(),
        }
    }

    /// Whether the object ended without arguments.
    pub(super) fn lacks_arguments(&self) -> bool {
        matches!(&self.inside, ReaderState::Object(object) if object.kind().is_none())
    }

    /// Ends what the text broke off; false when something is missing.
    pub(super) fn finish(&mut self) -> bool {
        match &mut self.inside {
            ReaderState::Object(object) if object.arguments_complete() => true,
            ReaderState::Object(object) => {
                object.cut();
                false
            }
            ReaderState::Arguments(reader) => reader.finish(&mut self.out),
            ReaderState::Empty(_) => false,
            _ => true,
        }
    }

    /// Whether the end of the arguments was read, though not that of the call.
    pub(super) fn is_closed(&self) -> bool {
        matches!(&self.inside, ReaderState::Object(object) if object.arguments_complete())
    }

    /// Text behind the arguments of an object that was not closed.
    pub(super) fn take_after(&mut self) -> String {
        match &mut self.inside {
            ReaderState::Object(object) if object.arguments_complete() => object.take_after(),
            _ => String::new(),
        }
    }

    pub(super) fn step(&mut self, c: char, tools: &dyn Tools) -> CallStatus {
        let mut again = Some(c);
        // A character that ends one piece is the first of the next: each turn moves on or returns.
        while let Some(c) = again.take() {
            match &mut self.inside {
                ReaderState::Tag(seen) => {
                    let seen = *seen;
                    let Some(item) = self.items.get(self.at) else {
                        return CallStatus::Broken(c.len_utf8());
                    };
                    match item {
                        PatternItem::Tag(tag) => {
                            let complete = seen + c.len_utf8() == tag.len();
                            if tag[seen..].starts_with(c) && complete {
                                self.next();
                            } else if tag[seen..].starts_with(c) {
                                self.inside = ReaderState::Tag(seen + c.len_utf8());
                            } else if seen == 0 && self.skips_to_arguments(c) {
                                again = Some(c);
                            } else if seen > 0 || !is_whitespace(c) {
                                return CallStatus::Broken(seen + c.len_utf8());
                            }
                        }
                        _ if is_whitespace(c) => {}
                        PatternItem::Name | PatternItem::Id(_) => {
                            // The list that some models write around one call.
                            if c == '[' && !self.bracket && self.is_first_value() {
                                self.bracket = true;
                            } else if is_name(c) {
                                self.inside = ReaderState::Word(String::new());
                                again = Some(c);
                            } else {
                                return CallStatus::Broken(c.len_utf8());
                            }
                        }
                        PatternItem::Object(_) if c == '[' && !self.bracket => self.bracket = true,
                        PatternItem::Object(_) if c == '{' => {
                            self.inside = ReaderState::Object(Box::default());
                            again = Some(c);
                        }
                        PatternItem::Object(_) => return CallStatus::Broken(c.len_utf8()),
                        PatternItem::Arguments(encoding) => {
                            let schema = self.name.as_deref().and_then(|name| tools.schema(name));
                            self.inside = ReaderState::Arguments(read::arguments_reader(
                                encoding,
                                &self.followers,
                                schema,
                            ));
                            again = Some(c);
                        }
                    }
                }
                ReaderState::Word(word) => {
                    let mut word = std::mem::take(word);
                    if is_name(c) && !self.tag_begins(c) && word.len() < MAX_NAME {
                        word.push(c);
                        self.inside = ReaderState::Word(word);
                        continue;
                    }
                    if word.len() >= MAX_NAME || !self.take_word(word) {
                        return CallStatus::Broken(c.len_utf8());
                    }
                    self.next();
                    again = Some(c);
                }
                ReaderState::Object(object) => {
                    let Some(PatternItem::Object(keys)) = self.items.get(self.at) else {
                        return CallStatus::Broken(c.len_utf8());
                    };
                    return match object.step(c, keys) {
                        ObjectProgress::More => CallStatus::More,
                        ObjectProgress::Closed => CallStatus::Closed,
                        ObjectProgress::Broken => CallStatus::Broken(c.len_utf8()),
                    };
                }
                ReaderState::Arguments(arguments) => {
                    match (arguments.is_certain(), arguments.step(c, &mut self.out)) {
                        (_, ReadStep::More) => {}
                        (_, ReadStep::Done) => {
                            self.certain = true;
                            return CallStatus::Closed;
                        }
                        (_, ReadStep::Broken) => return CallStatus::Broken(c.len_utf8()),
                        (certain, ReadStep::Ended(rest)) if certain || self.out != "{}" => {
                            self.certain = true;
                            return CallStatus::Ended(rest);
                        }
                        (_, ReadStep::Ended(rest)) => {
                            self.out.clear();
                            self.inside = ReaderState::Empty(String::new());
                            return self.close_empty(&rest);
                        }
                    }
                }
                ReaderState::Empty(_) => return self.close_empty(c.encode_utf8(&mut [0; 4])),
            }
        }
        CallStatus::More
    }

    /// No parameter came: only a tag that closes the call says that there are none.
    fn close_empty(&mut self, text: &str) -> CallStatus {
        let ReaderState::Empty(held) = &mut self.inside else { return CallStatus::Broken(0) };
        held.push_str(text);
        let tag = held.trim_start();
        let closing_tags = || {
            let own = self.items[self.at..].iter().filter_map(|item| match item {
                PatternItem::Tag(tag) => Some(tag.as_str()),
                _ => None,
            });
            own.take(1).chain(self.followers.iter().map(|tag| &**tag))
        };
        if closing_tags().any(|closer| tag.starts_with(closer)) {
            self.out.push_str("{}");
            self.certain = true;
            return CallStatus::Ended(std::mem::take(held));
        }
        if closing_tags().any(|closer| closer.starts_with(tag)) {
            return CallStatus::More;
        }
        let length = held.len();
        CallStatus::Broken(length)
    }

    /// Whether nothing but tags stands before this item.
    fn is_first_value(&self) -> bool {
        self.items[..self.at].iter().all(|item| matches!(item, PatternItem::Tag(_)))
    }

    fn next(&mut self) {
        self.at += 1;
        self.inside = ReaderState::Tag(0);
    }

    /// Some models leave out the tag between name and arguments.
    fn skips_to_arguments(&mut self, c: char) -> bool {
        let next =
            self.items[self.at..].iter().position(|item| !matches!(item, PatternItem::Tag(_)));
        let Some(PatternItem::Arguments(Encoding::Json | Encoding::Pairs { .. })) =
            next.and_then(|n| self.items.get(self.at + n))
        else {
            return false;
        };
        if c != '{' || self.name.is_none() {
            return false;
        }
        self.at += next.unwrap_or(0);
        true
    }

    /// Whether the text behind a name begins here although the character could be part of a name.
    fn tag_begins(&self, c: char) -> bool {
        matches!(self.items.get(self.at + 1), Some(PatternItem::Tag(tag)) if tag.starts_with(c) && !c.is_alphanumeric() && c != '_')
    }

    fn take_word(&mut self, word: String) -> bool {
        match self.items.get(self.at) {
            Some(PatternItem::Name) if self.name.as_ref().is_none_or(|name| *name == word) => {
                self.name = Some(word)
            }
            Some(PatternItem::Id(IdForm::Named { prefix, infix })) => {
                let name = word.strip_prefix(&**prefix).unwrap_or(&word);
                let name = match name.rsplit_once(&**infix) {
                    Some((name, position)) if position.bytes().all(|b| b.is_ascii_digit()) => name,
                    _ => name,
                };
                if name.is_empty() {
                    return false;
                }
                self.name = Some(name.to_owned());
                self.id = Some(word);
            }
            Some(PatternItem::Id(_)) => self.id = Some(word),
            _ => return false,
        }
        true
    }
}

/// Characters of names and ids. OpenAI's own rule is narrower; servers of tools use dots, slashes
/// and colons too.
fn is_name(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | ':' | '/' | '$' | '@' | '#' | '+' | '~')
}
