//! The parameter whose value is being read: what the value may contain, and where in it the reader
//! is.

use super::nested::NestedElements;
use crate::json_schema::TypeSet;
use crate::output::read::arguments::MarkMatch;
use crate::output::read::entities::EntityDecoder;
use crate::output::read::json_writer::JsonWriter;
use crate::output::read::typed_value::JsonString;

/// The parameter whose value is being read.
#[derive(Debug, Clone)]
pub(super) struct OpenParameter {
    pub(super) key: String,
    pub(super) types: Option<TypeSet>,
    /// Whether the markup states that the value is a string.
    pub(super) marked_string: Option<bool>,
    /// Whether the value is emitted as it arrives. Other values are collected in `raw`.
    pub(super) is_string: bool,
    pub(super) raw: String,
    pub(super) content: ValueContent,
    /// The string of the value that is being read.
    pub(super) json_string: JsonString,
    /// The first character of the value that is not whitespace.
    pub(super) first: Option<char>,
    /// Whether the value is empty so far.
    pub(super) at_start: bool,
    pub(super) cdata: bool,
    /// The word for the type of the value, if the markup states it.
    pub(super) word: Option<String>,
    /// Whether the value consists of nested elements.
    pub(super) is_nested: bool,
    /// The number of nested elements that are open.
    pub(super) open_elements: usize,
    /// Decodes the entities of the value, if the format writes them.
    pub(super) entities: Option<EntityDecoder>,
    /// Whether the line before the value ends in CRLF.
    pub(super) crlf: bool,
}

/// What a value may contain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ValueContent {
    /// Any text.
    Text,
    /// JSON with strings.
    Json,
    /// A number or a word.
    Word,
}

impl ValueContent {
    /// `marked_string` says whether the markup states that the value is a string.
    pub(super) fn new(types: Option<TypeSet>, marked_string: Option<bool>) -> ValueContent {
        let has = |kind| types.is_none_or(|types| types.has(kind));
        if marked_string.unwrap_or(has(TypeSet::STRING)) {
            ValueContent::Text
        } else if has(TypeSet::ARRAY) || has(TypeSet::OBJECT) {
            ValueContent::Json
        } else {
            ValueContent::Word
        }
    }
}

impl OpenParameter {
    /// Moves held text of nested elements to the value. `No` if it belongs to no nested element.
    pub(super) fn nested_step(&mut self, nested: &NestedElements, held: &mut String) -> MarkMatch {
        let start = MarkMatch::of(held, &nested.start);
        let end =
            if self.open_elements > 0 { MarkMatch::of(held, &nested.end) } else { MarkMatch::No };
        let used = match (start, end) {
            (MarkMatch::Full(used), _) => {
                self.is_nested = true;
                self.open_elements += 1;
                used
            }
            (_, MarkMatch::Full(used)) => {
                self.open_elements -= 1;
                used
            }
            (MarkMatch::No, MarkMatch::No) if self.open_elements > 0 => {
                held.chars().next().map_or(0, char::len_utf8)
            }
            (start, end) => return start.or(end),
        };
        self.raw.extend(held.drain(..used));
        MarkMatch::Full(used)
    }

    /// Whether quotes in the value are those of strings: in lists and objects without entities,
    /// which may stand for quotes.
    fn has_json_strings(&self) -> bool {
        self.content == ValueContent::Json
            && !self.cdata
            && !self.is_nested
            && self.entities.is_none()
            && matches!(self.first, Some('[' | '{'))
    }

    /// Whether a string of a JSON value is open. No tag in it ends the value.
    pub(super) fn is_in_json_string(&self) -> bool {
        self.json_string != JsonString::Outside
    }

    /// Adds a character to the value.
    pub(super) fn put(&mut self, c: char, writer: &mut JsonWriter) {
        self.at_start = false;
        self.first = self.first.or(Some(c).filter(|c| !c.is_whitespace()));
        self.json_string = match self.has_json_strings() {
            true => self.json_string.after(c),
            false => JsonString::Outside,
        };
        let OpenParameter { is_string, raw, entities, cdata, is_nested, .. } = self;
        let mut put = |c| if *is_string { writer.push(c) } else { raw.push(c) };
        match entities {
            // The entities of nested elements are decoded with them.
            Some(decoder) if !*cdata && !*is_nested => decoder.push(c, put),
            _ => put(c),
        }
    }

    /// Passes on the start of an entity, because the value ends.
    pub(super) fn finish(&mut self, writer: &mut JsonWriter) {
        let OpenParameter { is_string, raw, entities, .. } = self;
        if let Some(decoder) = entities {
            decoder.finish(|c| if *is_string { writer.push(c) } else { raw.push(c) });
        }
    }
}
