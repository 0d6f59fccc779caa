//! Reads one call by one pattern, character by character: name, id, and the arguments as JSON.

use std::sync::Arc;

use super::call_arguments::CallArguments;
use super::call_object::{CallObject, MAX_NAME, ObjectProgress};
use super::call_patterns::PatternItem;
use super::missing_arguments::MissingArguments;
use super::request_tools::RequestTools;
use crate::output::format::{Encoding, FENCE, FormatText, IdForm};
use crate::output::read::json_scanner::is_whitespace;
use crate::output::read::{self, ArgumentsReader, Followers, ReadStep};

/// The maximum number of lists that may surround a call.
const MAX_LISTS: usize = 2;

#[derive(Debug)]
enum ReaderState {
    /// Before an item, or inside a tag of which this many bytes were read.
    Item(usize),
    /// Inside the start of a fence around an object or the arguments.
    Fence(String),
    /// Inside a name or id.
    Word(String),
    /// Inside an object with name and arguments.
    Object(Box<CallObject>),
    Arguments(Box<dyn ArgumentsReader>),
    /// There are no arguments, so a tag that ends the call must follow.
    NoArguments(MissingArguments),
}

#[derive(Debug)]
pub(crate) struct CallReader {
    items: Arc<[PatternItem]>,
    /// The index of the current item.
    at: usize,
    state: ReaderState,
    /// The number of open list brackets around the call.
    brackets: usize,
    /// Whether the pattern belongs to another family.
    pub(crate) foreign: bool,
    /// The index of the pattern.
    pub(crate) pattern: Option<usize>,
    /// Whether the pattern has a tag after the arguments.
    pub(crate) has_closing_tag: bool,
    name: Option<String>,
    id: Option<String>,
    arguments: CallArguments,
    /// Whether the arguments are complete.
    complete: bool,
    /// Whether the call has ended, with complete arguments or without.
    ended: bool,
    followers: Arc<Followers>,
    /// The ends of turns, which also end a call without arguments.
    ends: Arc<[FormatText]>,
}

impl CallReader {
    /// A reader of the items from index `at` on.
    pub(crate) fn new(
        items: &Arc<[PatternItem]>,
        at: usize,
        followers: &Arc<Followers>,
        ends: &Arc<[FormatText]>,
    ) -> CallReader {
        CallReader {
            items: Arc::clone(items),
            at,
            state: ReaderState::Item(0),
            brackets: 0,
            foreign: false,
            pattern: None,
            has_closing_tag: false,
            name: None,
            id: None,
            arguments: CallArguments::default(),
            complete: false,
            ended: false,
            followers: Arc::clone(followers),
            ends: Arc::clone(ends),
        }
    }

    /// Sets the name that was read from the header of a message.
    pub(crate) fn with_name(mut self, name: &str) -> CallReader {
        self.name = Some(name.to_owned());
        self
    }

    pub(crate) fn name(&self) -> Option<&str> {
        match &self.state {
            ReaderState::Object(object) => object.name(),
            _ => self.name.as_deref(),
        }
    }

    pub(crate) fn id(&self) -> Option<&str> {
        match &self.state {
            ReaderState::Object(object) => object.id(),
            _ => self.id.as_deref(),
        }
    }

    /// Whether the commit point is reached: the name is known, and arguments have begun that can be
    /// emitted as they come.
    pub(crate) fn is_ready(&self) -> bool {
        match &self.state {
            ReaderState::Object(object) => object.is_ready(),
            ReaderState::Arguments(reader) => self.name.is_some() && reader.is_certain(),
            _ => self.name.is_some() && self.complete,
        }
    }

    /// Whether the name is known and the arguments have begun, even if they can only be emitted as
    /// a whole.
    pub(crate) fn has_begun(&self) -> bool {
        match &self.state {
            ReaderState::Object(object) => {
                object.name().is_some() && object.kind().is_some() && !object.arguments_complete()
            }
            ReaderState::Arguments(_) | ReaderState::NoArguments(_) => self.name.is_some(),
            _ => false,
        }
    }

    /// Whether a tag at this point would end the call, because no value is open.
    pub(crate) fn is_between_values(&self) -> bool {
        match &self.state {
            ReaderState::Object(object) => !object.in_string(),
            ReaderState::Arguments(reader) => reader.is_between_values(),
            _ => false,
        }
    }

    /// Whether the object has a member that calls do not have.
    pub(crate) fn has_foreign_key(&self) -> bool {
        matches!(&self.state, ReaderState::Object(object) if object.has_foreign_key())
    }

    /// The arguments since the last [`clear_arguments`](Self::clear_arguments).
    pub(crate) fn arguments(&mut self) -> &str {
        if let ReaderState::Object(object) = &mut self.state {
            object.move_arguments(&mut self.arguments.text);
        }
        self.arguments.certain(self.ended || self.complete || self.is_closed())
    }

    /// Forgets the arguments, which were emitted.
    pub(crate) fn clear_arguments(&mut self) {
        self.arguments.clear();
    }

    /// Like [`CallArguments::coerce`], for a complete call.
    pub(crate) fn coerce(&mut self, accepts: impl Fn(&str) -> bool) -> bool {
        self.arguments.coerce(accepts)
    }

    /// Makes all arguments certain, because none follow.
    pub(crate) fn end(&mut self) {
        self.ended = true;
    }

    /// Takes the diagnostics of accepted deviations.
    pub(crate) fn take_notes(&mut self) -> Vec<(&'static str, String)> {
        let mut notes = match &mut self.state {
            ReaderState::Object(object) => object.take_notes(),
            ReaderState::Arguments(reader) => reader.take_notes(),
            _ => Vec::new(),
        };
        self.arguments.add_notes(&mut notes);
        notes
    }

    /// Takes the values of repeated parameters.
    pub(crate) fn take_leftover(&mut self) -> Vec<String> {
        match &mut self.state {
            ReaderState::Arguments(reader) => reader.take_leftover(),
            _ => Vec::new(),
        }
    }

    /// Whether the name is known and only the arguments are missing.
    pub(crate) fn awaits_arguments(&self) -> bool {
        let at_arguments = matches!(self.items.get(self.at), Some(PatternItem::Arguments(_)));
        at_arguments && self.name.is_some() && matches!(self.state, ReaderState::Item(_))
    }

    /// Completes a call that has no arguments.
    pub(crate) fn omit_arguments(&mut self) {
        self.arguments.text.push_str("{}");
        self.complete = true;
    }

    /// Whether the object has no arguments.
    pub(crate) fn lacks_arguments(&self) -> bool {
        matches!(&self.state, ReaderState::Object(object) if object.kind().is_none())
    }

    /// Ends the text. Returns whether the arguments are complete.
    pub(crate) fn finish(&mut self) -> bool {
        self.end();
        match &mut self.state {
            ReaderState::Object(object) if object.arguments_complete() => true,
            ReaderState::Object(object) => {
                object.cut();
                false
            }
            ReaderState::Arguments(reader) => reader.finish(&mut self.arguments.text),
            ReaderState::NoArguments(_) => false,
            _ => true,
        }
    }

    /// Whether the arguments of an object are complete but the object is not.
    pub(crate) fn is_closed(&self) -> bool {
        matches!(&self.state, ReaderState::Object(object) if object.arguments_complete())
    }

    /// Takes the text after the arguments of an object that was not closed.
    pub(crate) fn take_after(&mut self) -> String {
        match &mut self.state {
            ReaderState::Object(object) if object.arguments_complete() => object.take_after(),
            _ => String::new(),
        }
    }

    pub(crate) fn step(&mut self, c: char, tools: &RequestTools) -> ReadStep {
        // The character that ends one item is also the first of the next item, so it is read again.
        // Each iteration moves to another item or returns.
        loop {
            let status = match &mut self.state {
                ReaderState::Item(matched) => {
                    let matched = *matched;
                    self.item_step(matched, c, tools)
                }
                ReaderState::Fence(_) => self.fence_step(c),
                ReaderState::Word(_) => self.word_step(c, tools),
                ReaderState::Object(_) => Some(self.object_step(c, tools)),
                ReaderState::Arguments(_) => Some(self.arguments_step(c, tools)),
                ReaderState::NoArguments(_) => {
                    Some(self.read_without_arguments(c.encode_utf8(&mut [0; 4])))
                }
            };
            if let Some(status) = status {
                return status;
            }
        }
    }

    /// Reads a character in a tag or before another item. `None` if the next state must read the
    /// character again.
    fn item_step(&mut self, matched: usize, c: char, tools: &RequestTools) -> Option<ReadStep> {
        let end = matched + c.len_utf8();
        let Some(item) = self.items.get(self.at) else {
            return Some(ReadStep::Broken(c.len_utf8()));
        };
        match item {
            PatternItem::Tag(tag) => {
                let matches = tag[matched..].starts_with(c);
                if matches && end == tag.len() {
                    self.next_item();
                } else if matches {
                    self.state = ReaderState::Item(end);
                } else if matched == 0 && self.skip_to_arguments(c) {
                    return None;
                } else if matched > 0 || !is_whitespace(c) {
                    return Some(ReadStep::Broken(end));
                }
            }
            _ if is_whitespace(c) => {}
            // Some models write one or two lists around a single call.
            PatternItem::Name | PatternItem::Id(_)
                if c == '[' && self.brackets < MAX_LISTS && self.is_first_value() =>
            {
                self.brackets += 1
            }
            PatternItem::Object(_) if c == '[' && self.brackets < MAX_LISTS => self.brackets += 1,
            PatternItem::Name | PatternItem::Id(_)
                if is_name(c) || self.begins_given_name("", c, tools) =>
            {
                self.state = ReaderState::Word(String::new());
                return None;
            }
            PatternItem::Object(_) if c == '{' => {
                self.state = ReaderState::Object(Box::default());
                return None;
            }
            PatternItem::Object(_) | PatternItem::Arguments(Encoding::Json) if c == '`' => {
                self.state = ReaderState::Fence(String::new());
                return None;
            }
            PatternItem::Arguments(Encoding::Json)
                if self.name.is_some() && !matches!(c, '{' | '"' | '\'' | 'n' | 'N') =>
            {
                self.state = ReaderState::NoArguments(self.missing_arguments(tools));
                return None;
            }
            PatternItem::Arguments(encoding) => {
                let schema = self.name.as_deref().map(|name| tools.arguments(name));
                if let Some(schema) = &schema {
                    self.arguments.expect(schema.clone());
                }
                self.state = ReaderState::Arguments(read::arguments_reader(
                    encoding,
                    &self.followers,
                    schema.unwrap_or_default(),
                ));
                return None;
            }
            _ => return Some(ReadStep::Broken(c.len_utf8())),
        }
        Some(ReadStep::More)
    }

    /// Reads a character in a fence around what follows. `None` if the item must read the
    /// character.
    fn fence_step(&mut self, c: char) -> Option<ReadStep> {
        let ReaderState::Fence(fence) = &mut self.state else { return None };
        let ticks = fence.len() - fence.trim_start_matches('`').len();
        let is_language = c.is_ascii_alphabetic() || c == '_';
        match c {
            '`' if fence.len() == ticks && ticks < FENCE.len() => fence.push(c),
            _ if ticks == FENCE.len() && is_language && fence.len() < MAX_NAME => fence.push(c),
            '{' | '[' | ' ' | '\t' | '\r' | '\n' if ticks == FENCE.len() => {
                self.state = ReaderState::Item(0);
                return None;
            }
            _ => return Some(ReadStep::Broken(c.len_utf8())),
        }
        Some(ReadStep::More)
    }

    /// Reads a character in a name or id. `None` if the next item must read the character again.
    fn word_step(&mut self, c: char, tools: &RequestTools) -> Option<ReadStep> {
        let ReaderState::Word(word) = &self.state else { return None };
        let is_usual = is_name(c) && !self.next_tag_begins(c);
        let continues = is_usual || self.begins_given_name(word, c, tools);
        let ReaderState::Word(word) = &mut self.state else { return None };
        let too_long = word.len() >= MAX_NAME;
        if continues && !too_long {
            word.push(c);
            return Some(ReadStep::More);
        }
        let word = std::mem::take(word);
        if too_long || !self.take_word(word) {
            return Some(ReadStep::Broken(c.len_utf8()));
        }
        self.next_item();
        None
    }

    fn object_step(&mut self, c: char, tools: &RequestTools) -> ReadStep {
        let (ReaderState::Object(object), Some(PatternItem::Object(keys))) =
            (&mut self.state, self.items.get(self.at))
        else {
            return ReadStep::Broken(c.len_utf8());
        };
        let progress = object.step(c, keys, |key| tools.has(key));
        if object.needs_schema() {
            let schema = object.name().map(|name| tools.arguments(name)).unwrap_or_default();
            self.arguments.expect(schema.clone());
            object.set_schema(schema);
        }
        match progress {
            ObjectProgress::More => ReadStep::More,
            ObjectProgress::Closed => {
                let name = object.name().map(str::to_owned);
                object.gather_others(|key| {
                    name.as_deref().is_some_and(|name| tools.has_parameter(name, key))
                });
                ReadStep::Closed
            }
            ObjectProgress::Broken => ReadStep::Broken(c.len_utf8()),
        }
    }

    fn arguments_step(&mut self, c: char, tools: &RequestTools) -> ReadStep {
        let ReaderState::Arguments(reader) = &mut self.state else {
            return ReadStep::Broken(c.len_utf8());
        };
        let certain = reader.is_certain();
        let step = reader.step(c, &mut self.arguments.text);
        match step {
            ReadStep::Ended(rest) if !certain && self.arguments.text == "{}" => {
                self.arguments.text.clear();
                self.state = ReaderState::NoArguments(self.missing_arguments(tools));
                return self.read_without_arguments(&rest);
            }
            ReadStep::Closed | ReadStep::Ended(_) => self.complete = true,
            ReadStep::More | ReadStep::Broken(_) => {}
        }
        step
    }

    /// A call without parameters counts only if a tag closes it. The tag of another call or the end
    /// of the turn closes it too, but elements and other families' calls only if the tool requires
    /// none.
    fn missing_arguments(&self, tools: &RequestTools) -> MissingArguments {
        let has_elements = matches!(
            self.items.get(self.at),
            Some(PatternItem::Arguments(Encoding::Tagged(_) | Encoding::Elements { .. }))
        );
        let name = self.name.as_deref().unwrap_or_default();
        let needs_end = (has_elements || self.foreign) && tools.has(name);
        let may_lack_end = !needs_end || tools.needs_no_arguments(name);
        let turn_ends = may_lack_end.then_some(&*self.ends);
        MissingArguments::new(&self.items, self.at, &self.followers, turn_ends)
    }

    fn read_without_arguments(&mut self, text: &str) -> ReadStep {
        let ReaderState::NoArguments(missing) = &mut self.state else {
            return ReadStep::Broken(text.len());
        };
        let step = missing.read(text);
        if matches!(step, ReadStep::Ended(_)) {
            self.omit_arguments();
        }
        step
    }

    /// Whether only tags precede the current item.
    fn is_first_value(&self) -> bool {
        self.items[..self.at].iter().all(|item| item.tag().is_some())
    }

    fn next_item(&mut self) {
        self.at += 1;
        self.state = ReaderState::Item(0);
    }

    /// Moves to the arguments if they begin here. Some models omit the tag between name and
    /// arguments.
    fn skip_to_arguments(&mut self, c: char) -> bool {
        let next = self.items[self.at..].iter().position(|item| item.tag().is_none());
        let Some(next) = next.filter(|_| c == '{' && self.name.is_some()) else { return false };
        let begins_with_brace = matches!(
            self.items[self.at + next],
            PatternItem::Arguments(Encoding::Json | Encoding::Pairs { .. })
        );
        if begins_with_brace {
            self.at += next;
        }
        begins_with_brace
    }

    /// Whether the character begins the tag after a name, even though names may contain it.
    fn next_tag_begins(&self, c: char) -> bool {
        let next = self.items.get(self.at + 1).and_then(PatternItem::tag);
        next.is_some_and(|tag| tag.starts_with(c)) && !c.is_alphanumeric() && c != '_'
    }

    /// Whether a given tool has a name that begins with this word and character. Such names may
    /// contain any character. The first given name that is complete ends the word.
    fn begins_given_name(&self, word: &str, c: char, tools: &RequestTools) -> bool {
        let word = match self.items.get(self.at) {
            Some(PatternItem::Name) => word,
            Some(PatternItem::Id(IdForm::Named { prefix, .. })) => {
                let Some(word) = word.strip_prefix(&**prefix) else { return false };
                word
            }
            _ => return false,
        };
        !tools.is_name(word) && tools.is_begun(&format!("{word}{c}"))
    }

    /// Stores a complete name or id. Returns whether it is valid.
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

/// Whether a character may occur in names and ids. OpenAI's rule is narrower, but tool servers also
/// use dots, slashes and colons.
fn is_name(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | ':' | '/' | '$' | '@' | '#' | '+' | '~')
}
