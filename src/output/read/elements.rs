//! Arguments as nested elements -> JSON: with the prefix `P`, `P<a>1P</a>P<b>P<item>xP</item>P</b>`
//! is `{"a": 1, "b": ["x"]}`.
//!
//! What an element holds is known by its first tag or text and by the schema of its place: a tag
//! makes it an object, the tag of an item (or a schema that wants one) an array, text a value of
//! the type the schema names. A string may hold tags: only an end tag with the element's own name
//! closes it, and only where another tag follows. An element without end tag ends where one around
//! it does, and where text runs into an element that is known to stand next to it.

use serde_json::Value;

use super::json_writer::{JsonWriter, MAX_DEPTH};
use super::types::{is_text, typed};
use super::{ArgumentsReader, ReadStep};
use crate::json_schema::{ArgumentsSchema, SchemaPointers, TypeSet};

/// Bytes a tag's name may have.
const MAX_NAME: usize = 128;
/// So many blanks after an end tag, and nothing else can be meant.
const MAX_WHITESPACE: usize = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ElementContent {
    /// Nothing but blanks so far.
    Unknown,
    Object,
    Array,
    /// Text that is collected.
    Raw,
    /// Text that is given out as it comes.
    Text,
}

/// An element that is open.
#[derive(Debug)]
struct Element {
    name: String,
    place: SchemaPointers,
    types: Option<TypeSet>,
    content: ElementContent,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ElementsState {
    Reading,
    /// Behind the end tag of a text, if it is one.
    Closing,
    Finished,
}

/// A tag without its prefix.
#[derive(Debug, PartialEq, Eq)]
enum Tag {
    No,
    Part,
    Open(String),
    Close(String),
}

/// Reads nested elements.
#[derive(Debug)]
pub(super) struct ElementsReader {
    prefix: String,
    item: String,
    schema: ArgumentsSchema,
    root: SchemaPointers,
    writer: JsonWriter,
    state: ElementsState,
    elements: Vec<Element>,
    /// Blanks before the next tag, outside every element.
    gap: String,
    /// Text not decided upon.
    held: String,
    /// In a text: its text so far, where that is not given out.
    raw: String,
    /// In a text: the tags opened in it.
    inner: Vec<String>,
    certain: bool,
}

impl ElementsReader {
    /// `prefix` stands before every tag; `item` is the element of an array.
    pub(super) fn new(prefix: &str, item: &str, schema: Option<&Value>) -> ElementsReader {
        let schema = ArgumentsSchema::new(schema);
        ElementsReader {
            prefix: prefix.to_owned(),
            item: item.to_owned(),
            root: schema.root(),
            schema,
            writer: JsonWriter::default(),
            state: ElementsState::Reading,
            elements: Vec::new(),
            gap: String::new(),
            held: String::new(),
            raw: String::new(),
            inner: Vec::new(),
            certain: false,
        }
    }

    /// Takes one character; true when what is held is none of ours.
    fn take(&mut self, c: char, out: &mut String) -> bool {
        self.held.push(c);
        while !self.held.is_empty() {
            if self.state == ElementsState::Closing && !self.confirm(out) {
                return false;
            }
            if self.elements.is_empty() {
                let blank = self.held.len() - self.held.trim_start().len();
                self.gap.extend(self.held.drain(..blank));
                if self.held.is_empty() {
                    return false;
                }
            }
            match self.tag() {
                Tag::Part => return false,
                Tag::Open(name) => return !self.open_tag(name, out),
                Tag::Close(name) => return !self.close_tag(&name, out),
                Tag::No if self.elements.is_empty() => return true,
                Tag::No => {
                    let c = self.held.remove(0);
                    self.text(c, out);
                }
            }
        }
        false
    }

    /// Reads the tag that is held.
    fn tag(&self) -> Tag {
        let text = self.held.as_str();
        let Some(rest) = text.strip_prefix(self.prefix.as_str()) else {
            return if self.prefix.starts_with(text) { Tag::Part } else { Tag::No };
        };
        if rest.is_empty() {
            return Tag::Part;
        }
        let Some(rest) = rest.strip_prefix('<') else { return Tag::No };
        let (name, closes) = match rest.strip_prefix('/') {
            Some(name) => (name, true),
            None => (rest, false),
        };
        let Some(name) = name.strip_suffix('>') else {
            return if name.len() > MAX_NAME || name.contains(['<', '\n', '>']) {
                Tag::No
            } else {
                Tag::Part
            };
        };
        match (name.trim(), closes) {
            ("", _) => Tag::No,
            (name, true) => Tag::Close(name.to_owned()),
            (name, false) => Tag::Open(name.to_owned()),
        }
    }

    /// An opening tag; false when it is none of ours.
    fn open_tag(&mut self, name: String, out: &mut String) -> bool {
        while let Some(element) = self.elements.last() {
            match element.content {
                ElementContent::Object | ElementContent::Array => break,
                ElementContent::Unknown if self.is_container(element) && !self.writer.is_full() => {
                    self.open_container(&name, out);
                    break;
                }
                // An end tag is missing, or the text talks about tags.
                _ if self.inner.is_empty() && self.is_sibling(&name) => self.close_element(out),
                _ => {
                    if self.writer.is_full() && element.content == ElementContent::Unknown {
                        self.writer.note(
                            "arguments_too_deep",
                            "the innermost elements are kept as text".to_owned(),
                        );
                    }
                    self.inner.push(name);
                    self.put_held(out);
                    return true;
                }
            }
        }
        let parent = self.elements.last();
        let (place, in_array) = match parent {
            Some(element) => (&element.place, element.content == ElementContent::Array),
            None => (&self.root, false),
        };
        let key = if in_array { None } else { Some(self.schema.member(place, &name)) };
        if let Some(key) = &key
            && parent.is_none()
            && name.contains([' ', '"', '=', '\t'])
            && key.pointers.is_empty()
        {
            return false;
        }
        self.held.clear();
        self.gap.clear();
        if !self.certain {
            self.certain = true;
            self.writer.open_object(out);
        }
        let place = match key {
            Some(key) => {
                if key.unknown {
                    self.writer.note("arg_unknown", format!("the schema has no key {name}"));
                }
                self.writer.key(&name, out);
                key.pointers
            }
            None => self.schema.items(place),
        };
        let types = self.schema.types(&place);
        let mut content = ElementContent::Unknown;
        if is_text(types, None) {
            self.writer.begin_string(out);
            content = ElementContent::Text;
        }
        self.elements.push(Element { name, place, types, content });
        true
    }

    /// Whether tags in this element are its children. Where it may be a string, they are text, as
    /// they are for llama.cpp.
    fn is_container(&self, element: &Element) -> bool {
        element.types.is_none_or(|types| types.has(TypeSet::ARRAY) || !types.has(TypeSet::STRING))
    }

    /// The element's first child has this name.
    fn open_container(&mut self, child: &str, out: &mut String) {
        let Some(element) = self.elements.last_mut() else { return };
        let named_item = child == self.item;
        let array = match element.types {
            Some(types) if types.has(TypeSet::ARRAY) && !types.has(TypeSet::OBJECT) => true,
            Some(types) if types.has(TypeSet::OBJECT) && !types.has(TypeSet::ARRAY) => false,
            _ => named_item,
        };
        if array {
            element.content = ElementContent::Array;
            self.writer.open_array(out);
        } else {
            element.content = ElementContent::Object;
            self.writer.open_object(out);
        }
        self.raw.clear();
    }

    /// Whether an element of this name is known to stand next to the innermost one.
    fn is_sibling(&self, name: &str) -> bool {
        let parent = self.elements.len().checked_sub(2).and_then(|index| self.elements.get(index));
        match parent {
            Some(parent) if parent.content == ElementContent::Array => name == self.item,
            Some(parent) => !self.schema.member(&parent.place, name).pointers.is_empty(),
            None => !self.schema.member(&self.root, name).pointers.is_empty(),
        }
    }

    /// A closing tag; false when it is none of ours.
    fn close_tag(&mut self, name: &str, out: &mut String) -> bool {
        let Some(element) = self.elements.last() else { return false };
        let is_text = matches!(element.content, ElementContent::Text | ElementContent::Raw);
        if is_text && self.inner.last().is_some_and(|inner| inner == name) {
            self.inner.pop();
            self.put_held(out);
            return true;
        }
        if element.name == name {
            if is_text {
                self.state = ElementsState::Closing;
            } else {
                self.held.clear();
                self.close_element(out);
            }
            return true;
        }
        let Some(depth) = self.elements.iter().rposition(|element| element.name == name) else {
            return false;
        };
        self.held.clear();
        while self.elements.len() > depth {
            self.close_element(out);
        }
        true
    }

    /// An end tag is held, and what follows it: it counts if that is a tag. False while that is
    /// open.
    fn confirm(&mut self, out: &mut String) -> bool {
        let name = self.prefix.len();
        let end = self.held[name..].find('>').map_or(self.held.len(), |at| name + at + 1);
        let rest = self.held[end..].trim_start();
        let blanks = self.held.len() - end - rest.len();
        if rest.len() < self.prefix.len()
            && self.prefix.starts_with(rest)
            && blanks <= MAX_WHITESPACE
        {
            return false;
        }
        self.state = ElementsState::Reading;
        if rest.starts_with(self.prefix.as_str()) || blanks > MAX_WHITESPACE {
            self.held.drain(..end);
            self.close_element(out);
        } else {
            // The prefix of a tag that is text goes first; what is left of it is none.
            let c = self.held.remove(0);
            self.text(c, out);
        }
        true
    }

    fn text(&mut self, c: char, out: &mut String) {
        let Some(element) = self.elements.last_mut() else { return };
        match element.content {
            ElementContent::Text => self.writer.push(c, out),
            ElementContent::Raw => self.raw.push(c),
            ElementContent::Unknown => {
                self.raw.push(c);
                if !c.is_whitespace() {
                    element.content = ElementContent::Raw;
                }
            }
            ElementContent::Object | ElementContent::Array if c.is_whitespace() => {}
            ElementContent::Object | ElementContent::Array => {
                self.writer.note(
                    "arg_type_mismatch",
                    format!("text between the elements of {} is left out", element.name),
                );
            }
        }
    }

    fn put_held(&mut self, out: &mut String) {
        let held = std::mem::take(&mut self.held);
        held.chars().for_each(|c| self.text(c, out));
    }

    /// Closes the innermost element.
    fn close_element(&mut self, out: &mut String) {
        let Some(element) = self.elements.pop() else { return };
        self.inner.clear();
        let raw = std::mem::take(&mut self.raw);
        match element.content {
            ElementContent::Text => self.writer.end_string(out),
            ElementContent::Object | ElementContent::Array => self.writer.close(out),
            // Nothing is how the template writes an empty string, an empty array and an empty
            // object.
            ElementContent::Unknown
                if element.types.is_some_and(|types| {
                    !types.has(TypeSet::STRING) && types.has(TypeSet::ARRAY)
                }) =>
            {
                self.writer.value("[]", out);
            }
            ElementContent::Unknown
                if element.types.is_some_and(|types| {
                    !types.has(TypeSet::STRING) && types.has(TypeSet::OBJECT)
                }) =>
            {
                self.writer.value("{}", out);
            }
            ElementContent::Unknown | ElementContent::Raw => {
                let room = MAX_DEPTH - self.writer.depth();
                let (text, note) = typed(&raw, element.types, None, room);
                if let Some(code) = note {
                    self.writer.note(code, format!("the value of {}", element.name));
                }
                self.writer.value(&text, out);
            }
        }
    }

    fn close_all(&mut self, out: &mut String) {
        while !self.elements.is_empty() {
            self.close_element(out);
        }
        if !self.certain {
            self.writer.open_object(out);
        }
        self.writer.close_all(out);
        self.state = ElementsState::Finished;
    }
}

impl ArgumentsReader for ElementsReader {
    fn step(&mut self, c: char, out: &mut String) -> ReadStep {
        if self.state == ElementsState::Finished {
            return ReadStep::Ended(c.to_string());
        }
        if !self.take(c, out) {
            return ReadStep::More;
        }
        self.close_all(out);
        ReadStep::Ended(std::mem::take(&mut self.gap) + &std::mem::take(&mut self.held))
    }

    fn finish(&mut self, out: &mut String) -> bool {
        if self.state == ElementsState::Finished {
            return true;
        }
        if self.state == ElementsState::Closing {
            self.close_element(out);
            self.held.clear();
        }
        let complete = self.elements.is_empty() && self.held.is_empty();
        // One character may well be text; more of them are the beginning of a tag.
        if self.held.chars().count() == 1 {
            self.put_held(out);
        }
        self.close_all(out);
        complete
    }

    fn is_certain(&self) -> bool {
        self.certain
    }

    fn take_notes(&mut self) -> Vec<(&'static str, String)> {
        self.writer.take_notes()
    }

    fn take_leftover(&mut self) -> Vec<String> {
        self.writer.take_leftover()
    }
}
