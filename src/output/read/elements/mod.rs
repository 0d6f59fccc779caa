//! Arguments as nested elements -> JSON: with the prefix `P`, `P<a>1P</a>P<b>P<item>xP</item>P</b>`
//! is `{"a": 1, "b": ["x"]}`.
//!
//! The first tag or text in an element, and its schema, determine its content. A tag makes it an
//! object. The tag of an item, or a schema that requires it, makes it an array. Text makes it a
//! value of the schema's type. In a format whose items have no tag of their own, every element
//! whose schema requires an array is an item of it. In other formats too, an element that repeats,
//! or whose schema requires an array, is an item of an array: `P<a>1P</a>P<a>2P</a>` is `{"a": [1,
//! 2]}`.
//!
//! A string may contain tags. Only an end tag with the element's own name closes it, and only if
//! another tag follows. Inside a string of a value in JSON nothing ends the value. An element
//! without an end tag ends where its parent ends, or at an element that is known to be a sibling,
//! unless the value may be a text and tags have no prefix.
//!
//! An end tag that matches no open element ends the arguments. Inside text it is text, unless it
//! may follow the arguments and is itself followed by another such tag or the end of the text.

mod elements_writer;
mod tag;

use self::elements_writer::{ElementContent, ElementsWriter};
use self::tag::{ElementTag, after_tag, confirmed};
use super::arguments::{ArgumentsReader, Followers, MarkMatch, ReadStep};
use super::json_writer::JsonWriter;
use crate::json_schema::ArgumentsSchema;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ElementsState {
    Reading,
    /// After a tag in text that may be the end tag of the element.
    Closing,
    /// After a tag in text that may be the end tag of the call.
    Ending,
    Finished,
}

/// Reads nested elements.
#[derive(Debug)]
pub(super) struct ElementsReader {
    prefix: String,
    /// The tags that may follow the arguments.
    followers: Vec<String>,
    elements: ElementsWriter,
    state: ElementsState,
    /// Whitespace before the next tag, outside all elements.
    gap: String,
    /// Text that is not decided yet.
    held: String,
}

impl ElementsReader {
    /// `prefix` precedes every tag. `item` is the element of an array. `followers` are the tags
    /// that may follow the arguments.
    pub(super) fn new(
        prefix: &str,
        item: &str,
        followers: &Followers,
        schema: ArgumentsSchema,
    ) -> ElementsReader {
        ElementsReader {
            prefix: prefix.to_owned(),
            followers: followers.all().map(str::to_owned).collect(),
            elements: ElementsWriter::new(prefix, item, schema),
            state: ElementsState::Reading,
            gap: String::new(),
            held: String::new(),
        }
    }

    /// Reads a character. Returns whether the held text is not part of the arguments.
    fn read_char(&mut self, c: char) -> bool {
        self.held.push(c);
        while !self.held.is_empty() {
            if matches!(self.state, ElementsState::Closing | ElementsState::Ending) {
                match self.end_tag() {
                    (MarkMatch::Part, _) => return false,
                    (MarkMatch::Full(_), _) if self.state == ElementsState::Ending => return true,
                    (MarkMatch::Full(_), length) => {
                        self.held.drain(..length);
                        self.elements.close();
                    }
                    (MarkMatch::No, _) => self.first_as_text(),
                }
                self.state = ElementsState::Reading;
            }
            if self.elements.is_outside() {
                let whitespace = self.held.len() - self.held.trim_start().len();
                self.gap.extend(self.held.drain(..whitespace));
                if self.held.is_empty() {
                    return false;
                }
            }
            let tag = match self.elements.innermost().is_in_json_string() {
                true => ElementTag::No,
                false => ElementTag::parse(&self.held, &self.prefix),
            };
            match tag {
                ElementTag::Part => return false,
                ElementTag::Open(name) => return !self.open_tag(name),
                ElementTag::Close(name) => return !self.close_tag(&name),
                ElementTag::No if self.elements.is_outside() => return true,
                ElementTag::No => self.first_as_text(),
            }
        }
        false
    }

    /// Whether the held tag ends the element or the call, which requires another tag after it. Also
    /// returns its length.
    fn end_tag(&self) -> (MarkMatch, usize) {
        let after = after_tag(&self.held, &self.prefix);
        let found = match self.state {
            ElementsState::Ending => confirmed(after, &self.followers),
            _ => confirmed(after, [&self.prefix]),
        };
        (found, self.held.len() - after.len())
    }

    /// An opening tag. Returns whether it is part of the arguments.
    fn open_tag(&mut self, name: String) -> bool {
        loop {
            let element = self.elements.innermost();
            let is_full = self.elements.json.is_full();
            match element.content {
                ElementContent::Object | ElementContent::Array => break,
                ElementContent::Unknown if element.is_container() && !is_full => {
                    self.elements.open_container(&name);
                    break;
                }
                // An end tag is missing, or the tag is part of the text.
                _ if element.inner.is_empty() && self.ends_without_tag(&name) => {
                    self.elements.close()
                }
                content => {
                    if is_full && content == ElementContent::Unknown {
                        self.elements.json.note(
                            "arguments_too_deep",
                            "the innermost elements were kept as text".to_owned(),
                        );
                    }
                    self.elements.innermost_mut().inner.push(name);
                    self.put_held();
                    return true;
                }
            }
        }
        let is_part = self.elements.open(name);
        if is_part {
            self.held.clear();
            self.gap.clear();
        }
        is_part
    }

    /// Whether an element of this name shows that the innermost one lacks its end tag. Without a
    /// prefix, a text may well have such a tag.
    fn ends_without_tag(&self, name: &str) -> bool {
        let may_have_tags = self.prefix.is_empty() && self.elements.innermost().may_be_string();
        !may_have_tags && self.elements.is_sibling(name)
    }

    /// A closing tag. Returns whether it is part of the arguments.
    fn close_tag(&mut self, name: &str) -> bool {
        if self.elements.is_outside() {
            return false;
        }
        let element = self.elements.innermost_mut();
        let is_text = element.is_text();
        let may_be_text =
            is_text || element.content == ElementContent::Unknown && element.may_be_string();
        if is_text && element.inner.pop_if(|inner| inner == name).is_some() {
            self.put_held();
            return true;
        }
        if is_text && element.name == name {
            self.state = ElementsState::Closing;
            return true;
        }
        if self.elements.close_named(name) {
            self.held.clear();
            return true;
        }
        let follows = self.followers.contains(&format!("{}</{name}>", self.prefix));
        if is_text && follows {
            self.state = ElementsState::Ending;
            return true;
        }
        if may_be_text && !follows {
            self.put_held();
            return true;
        }
        false
    }

    /// Takes the first held character as text. Without it, a tag is text too.
    fn first_as_text(&mut self) {
        let c = self.held.remove(0);
        self.elements.text(c);
    }

    fn put_held(&mut self) {
        let held = std::mem::take(&mut self.held);
        held.chars().for_each(|c| self.elements.text(c));
    }

    fn close_all(&mut self) {
        self.elements.close_all();
        self.state = ElementsState::Finished;
    }
}

impl ArgumentsReader for ElementsReader {
    fn step(&mut self, c: char, out: &mut String) -> ReadStep {
        if self.state == ElementsState::Finished {
            return ReadStep::Ended(c.to_string());
        }
        let has_ended = self.read_char(c);
        if has_ended {
            self.close_all();
        }
        self.elements.json.move_to(out);
        match has_ended {
            true => {
                ReadStep::Ended(std::mem::take(&mut self.gap) + &std::mem::take(&mut self.held))
            }
            false => ReadStep::More,
        }
    }

    fn finish(&mut self, out: &mut String) -> bool {
        match self.state {
            ElementsState::Reading => {}
            ElementsState::Closing => self.elements.close(),
            ElementsState::Ending => self.elements.close_elements(),
            ElementsState::Finished => return true,
        }
        if self.state != ElementsState::Reading {
            self.held.clear();
        }
        let is_outside = self.elements.is_outside();
        let complete = is_outside && self.held.is_empty();
        // A single character is text. Several are the start of a tag.
        if !is_outside && self.held.chars().count() == 1 {
            self.put_held();
        }
        self.close_all();
        self.elements.json.move_to(out);
        complete
    }

    fn is_certain(&self) -> bool {
        self.elements.certain
    }

    fn writer(&mut self) -> Option<&mut JsonWriter> {
        Some(&mut self.elements.json)
    }
}
