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

mod tag;

use self::tag::{ElementTag, after_tag, is_confirmed};
use super::arguments::{ArgumentsReader, Followers, ReadStep};
use super::json_string::JsonString;
use super::json_writer::{JsonWriter, MAX_DEPTH};
use super::typed_value::{is_string, typed_value};
use crate::json_schema::{ArgumentsSchema, SchemaPointers, TypeSet};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ElementContent {
    /// Only whitespace so far.
    Unknown,
    Object,
    Array,
    /// Text that is collected.
    Raw,
    /// A string that is emitted as it arrives.
    Text,
}

/// The last member of an object, which the next element may repeat.
#[derive(Debug)]
struct LastMember {
    name: String,
    /// The JSON text of its value, if that is not written yet. Otherwise an array of its items is
    /// open.
    value: Option<String>,
}

/// An open element, or the arguments themselves.
#[derive(Debug)]
struct Element {
    name: String,
    /// Inside an object: the last member that may repeat.
    last: Option<LastMember>,
    pointers: SchemaPointers,
    types: Option<TypeSet>,
    content: ElementContent,
}

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
    item: String,
    /// The tags that may follow the arguments.
    followers: Vec<String>,
    schema: ArgumentsSchema,
    writer: JsonWriter,
    state: ElementsState,
    /// The arguments, and the elements that are open in them.
    elements: Vec<Element>,
    /// Whitespace before the next tag, outside all elements.
    gap: String,
    /// Text that is not decided yet.
    held: String,
    /// Inside text: the text so far, unless it is emitted as it arrives.
    raw: String,
    /// Inside text: the names of the tags that are open in it.
    inner: Vec<String>,
    /// Inside an array or an object in JSON: whether the reader is in a string of it.
    json_string: Option<JsonString>,
    certain: bool,
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
        let arguments = Element {
            name: String::new(),
            last: None,
            pointers: schema.root(),
            types: Some(TypeSet::OBJECT),
            content: ElementContent::Object,
        };
        ElementsReader {
            prefix: prefix.to_owned(),
            item: item.to_owned(),
            followers: followers.all().map(str::to_owned).collect(),
            schema,
            writer: JsonWriter::default(),
            state: ElementsState::Reading,
            elements: vec![arguments],
            gap: String::new(),
            held: String::new(),
            raw: String::new(),
            inner: Vec::new(),
            json_string: None,
            certain: false,
        }
    }

    /// Reads a character. Returns whether the held text is not part of the arguments.
    fn read_char(&mut self, c: char, out: &mut String) -> bool {
        self.held.push(c);
        while !self.held.is_empty() {
            if self.state == ElementsState::Closing && !self.confirm(out) {
                return false;
            }
            if self.state == ElementsState::Ending {
                let after = after_tag(&self.held, &self.prefix);
                match is_confirmed(after, self.followers.iter().map(String::as_str)) {
                    None => return false,
                    Some(true) => return true,
                    Some(false) => {
                        self.state = ElementsState::Reading;
                        self.first_as_text(out);
                    }
                }
            }
            if self.is_outside() {
                let whitespace = self.held.len() - self.held.trim_start().len();
                self.gap.extend(self.held.drain(..whitespace));
                if self.held.is_empty() {
                    return false;
                }
            }
            let in_string = self.json_string.is_some_and(|string| string != JsonString::Outside);
            let tag = match in_string {
                true => ElementTag::No,
                false => ElementTag::parse(&self.held, &self.prefix),
            };
            match tag {
                ElementTag::Part => return false,
                ElementTag::Open(name) => return !self.open_tag(name, out),
                ElementTag::Close(name) => return !self.close_tag(&name, out),
                ElementTag::No if self.is_outside() => return true,
                ElementTag::No => self.first_as_text(out),
            }
        }
        false
    }

    /// Whether no element is open.
    fn is_outside(&self) -> bool {
        self.elements.len() == 1
    }

    /// The innermost open element.
    fn innermost(&self) -> &Element {
        self.elements.last().expect("the arguments stay open")
    }

    /// The element around the innermost one, which is not the arguments.
    fn parent(&self) -> &Element {
        &self.elements[self.elements.len() - 2]
    }

    /// An opening tag. Returns whether it is part of the arguments.
    fn open_tag(&mut self, name: String, out: &mut String) -> bool {
        loop {
            let element = self.innermost();
            match element.content {
                ElementContent::Object | ElementContent::Array => break,
                ElementContent::Unknown if self.is_container(element) && !self.writer.is_full() => {
                    self.open_container(&name, out);
                    break;
                }
                // An end tag is missing, or the tag is part of the text.
                _ if self.inner.is_empty() && self.ends_without_tag(element, &name) => {
                    self.close_element(out)
                }
                _ => {
                    if self.writer.is_full() && element.content == ElementContent::Unknown {
                        self.writer.note(
                            "arguments_too_deep",
                            "the innermost elements were kept as text".to_owned(),
                        );
                    }
                    self.inner.push(name);
                    self.put_held(out);
                    return true;
                }
            }
        }
        let Element { pointers, content, .. } = self.innermost();
        let in_array = *content == ElementContent::Array;
        let key = if in_array { None } else { Some(self.schema.member(pointers, &name)) };
        let items = self.schema.items(key.as_ref().map_or(pointers, |key| &key.pointers));
        if let Some(key) = &key
            && self.is_outside()
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
        if !in_array && self.repeat(&name, out) {
            return self.push_element(name, items, out);
        }
        let pointers = match key {
            Some(key) => {
                if key.unknown {
                    self.writer.note("arg_unknown", format!("the schema has no key `{name}`"));
                }
                self.writer.key(&name, out);
                key.pointers
            }
            None => items.clone(),
        };
        let is_item = self.item.is_empty()
            && !in_array
            && self.schema.types(&pointers) == Some(TypeSet::ARRAY)
            && !self.writer.is_full();
        if is_item {
            self.writer.open_array(out);
            *self.last_member() = Some(LastMember { name: name.clone(), value: None });
            return self.push_element(name, items, out);
        }
        self.push_element(name, pointers, out)
    }

    /// Opens an element. Always returns true.
    fn push_element(&mut self, name: String, pointers: SchemaPointers, out: &mut String) -> bool {
        let types = self.schema.types(&pointers);
        let mut content = ElementContent::Unknown;
        if is_string(types, None) {
            self.writer.begin_string(out);
            content = ElementContent::Text;
        }
        self.elements.push(Element { name, last: None, pointers, types, content });
        true
    }

    /// The last member of the innermost object that may repeat.
    fn last_member(&mut self) -> &mut Option<LastMember> {
        &mut self.elements.last_mut().expect("the arguments stay open").last
    }

    /// Whether an element of this name repeats the last member, which is then an open array.
    /// Otherwise ends the last member.
    fn repeat(&mut self, name: &str, out: &mut String) -> bool {
        let Some(last) = self.last_member().take() else { return false };
        if last.name != name || last.value.is_some() && self.writer.is_full() {
            *self.last_member() = Some(last);
            self.end_member(out);
            return false;
        }
        if let Some(value) = last.value {
            self.writer.open_array(out);
            self.writer.value(&value, out);
        }
        *self.last_member() = Some(LastMember { name: last.name, value: None });
        true
    }

    /// Ends the last member of the innermost object, because nothing repeats it.
    fn end_member(&mut self, out: &mut String) {
        match self.last_member().take() {
            Some(LastMember { value: Some(value), .. }) => self.writer.value(&value, out),
            Some(LastMember { value: None, .. }) => self.writer.close(out),
            None => {}
        }
    }

    /// Whether the innermost element is a member of an object, not an item.
    fn is_member(&self) -> bool {
        let Element { last, content, .. } = self.parent();
        // While an array of repeated elements is open, its elements are items.
        last.is_none() && *content != ElementContent::Array
    }

    /// Whether tags in this element are its children. If it may be a string, they are text, as in
    /// llama.cpp.
    fn is_container(&self, element: &Element) -> bool {
        element.types.is_none_or(|types| types.has(TypeSet::ARRAY) || !types.has(TypeSet::STRING))
    }

    /// Makes the innermost element a container, from the name of its first child.
    fn open_container(&mut self, child: &str, out: &mut String) {
        let is_member = self.is_member();
        let Some(element) = self.elements.last_mut() else { return };
        let named_item = child == self.item;
        // The child is a member of the first item of an array of repeated elements.
        let items = self.schema.items(&element.pointers);
        if is_member
            && !named_item
            && element.types.is_some_and(|types| types.has(TypeSet::ARRAY))
            && !self.schema.member(&items, child).pointers.is_empty()
        {
            element.pointers = items;
            element.types = Some(TypeSet::OBJECT);
            let name = element.name.clone();
            let parent = self.elements.len() - 2;
            self.elements[parent].last = Some(LastMember { name, value: None });
            self.writer.open_array(out);
            return self.open_container(child, out);
        }
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

    /// Whether an element of this name shows that the innermost one lacks its end tag. Without a
    /// prefix, a text may well have such a tag.
    fn ends_without_tag(&self, element: &Element, name: &str) -> bool {
        let may_be_text = element.types.is_none_or(|types| types.has(TypeSet::STRING));
        !(self.prefix.is_empty() && may_be_text) && self.is_sibling(name)
    }

    /// Whether an element of this name is known to be a sibling of the innermost one.
    fn is_sibling(&self, name: &str) -> bool {
        let parent = self.parent();
        match parent.content {
            ElementContent::Array => name == self.item,
            _ => !self.schema.member(&parent.pointers, name).pointers.is_empty(),
        }
    }

    /// A closing tag. Returns whether it is part of the arguments.
    fn close_tag(&mut self, name: &str, out: &mut String) -> bool {
        if self.is_outside() {
            return false;
        }
        let element = self.innermost();
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
            let tag = format!("{}</{name}>", self.prefix);
            let follows = self.followers.contains(&tag);
            if is_text && follows {
                self.state = ElementsState::Ending;
                return true;
            }
            let may_be_text = is_text
                || element.content == ElementContent::Unknown
                    && element.types.is_none_or(|types| types.has(TypeSet::STRING));
            if may_be_text && !follows {
                self.put_held(out);
                return true;
            }
            return false;
        };
        self.held.clear();
        while self.elements.len() > depth {
            self.close_element(out);
        }
        true
    }

    /// Takes the first held character as text. Without it, a tag is text too.
    fn first_as_text(&mut self, out: &mut String) {
        let c = self.held.remove(0);
        self.text(c, out);
    }

    /// Confirms the held end tag, which requires another tag after it. Returns whether this is
    /// decided.
    fn confirm(&mut self, out: &mut String) -> bool {
        let after = after_tag(&self.held, &self.prefix);
        let Some(ends) = is_confirmed(after, std::iter::once(&*self.prefix)) else { return false };
        let length = self.held.len() - after.len();
        self.state = ElementsState::Reading;
        if ends {
            self.held.drain(..length);
            self.close_element(out);
        } else {
            self.first_as_text(out);
        }
        true
    }

    fn text(&mut self, c: char, out: &mut String) {
        let element = self.elements.last_mut().expect("the arguments stay open");
        match element.content {
            ElementContent::Text => self.writer.push(c, out),
            ElementContent::Raw => {
                self.raw.push(c);
                self.json_string = self.json_string.map(|string| string.after(c));
            }
            ElementContent::Unknown => {
                self.raw.push(c);
                if !c.is_whitespace() {
                    element.content = ElementContent::Raw;
                    let is_json = matches!(c, '[' | '{')
                        && element.types.is_some_and(|types| !types.has(TypeSet::STRING));
                    self.json_string = is_json.then(JsonString::default);
                }
            }
            ElementContent::Object | ElementContent::Array if c.is_whitespace() => {}
            ElementContent::Object | ElementContent::Array => {
                self.writer.note(
                    "arg_type_mismatch",
                    format!("text between the elements of `{}` was removed", element.name),
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
        self.end_member(out);
        let is_member = self.is_member();
        let element = self.elements.pop().expect("it is not the arguments");
        let has_tags = !self.inner.is_empty() || self.raw.contains(&format!("{}<", self.prefix));
        self.inner.clear();
        self.json_string = None;
        let raw = std::mem::take(&mut self.raw);
        let types = element.types.filter(|types| !types.has(TypeSet::STRING));
        let may_be = |kind| types.is_some_and(|types| types.has(kind));
        match element.content {
            ElementContent::Text => self.writer.end_string(out),
            ElementContent::Object | ElementContent::Array => self.writer.close(out),
            // Templates write empty strings, arrays and objects as nothing.
            ElementContent::Unknown if may_be(TypeSet::ARRAY) => self.writer.value("[]", out),
            ElementContent::Unknown if may_be(TypeSet::OBJECT) => self.writer.value("{}", out),
            ElementContent::Unknown | ElementContent::Raw => {
                let max_depth = MAX_DEPTH - self.writer.depth();
                let (mut text, mut note) = typed_value(&raw, element.types, None, max_depth);
                let is_item = is_member
                    && may_be(TypeSet::ARRAY)
                    && note == Some("arg_type_mismatch")
                    && !has_tags
                    && !self.writer.is_full();
                if is_item {
                    let items = self.schema.types(&self.schema.items(&element.pointers));
                    (text, note) = typed_value(&raw, items, None, max_depth);
                    self.writer.open_array(out);
                }
                // A model may write a whole array in place of its first item.
                let is_whole = self.item.is_empty()
                    && !is_member
                    && note == Some("arg_type_mismatch")
                    && text.starts_with('[')
                    && types.is_some_and(|types| !types.has(TypeSet::ARRAY));
                if is_whole {
                    let items = text[1..text.len() - 1].trim();
                    if !items.is_empty() {
                        self.writer.value(items, out);
                    }
                    return;
                }
                if let Some(code) = note {
                    self.writer.note(code, format!("the value of `{}`", element.name));
                }
                // Another element of the same name may follow. A value of a known type is alone.
                let waits = is_member && !is_item && element.types.is_none();
                if is_item || !waits {
                    self.writer.value(&text, out);
                }
                if is_item || waits {
                    let value = waits.then_some(text);
                    *self.last_member() = Some(LastMember { name: element.name, value });
                }
            }
        }
    }

    fn close_elements(&mut self, out: &mut String) {
        while !self.is_outside() {
            self.close_element(out);
        }
    }

    fn close_all(&mut self, out: &mut String) {
        self.close_elements(out);
        self.end_member(out);
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
        if !self.read_char(c, out) {
            return ReadStep::More;
        }
        self.close_all(out);
        ReadStep::Ended(std::mem::take(&mut self.gap) + &std::mem::take(&mut self.held))
    }

    fn finish(&mut self, out: &mut String) -> bool {
        if self.state == ElementsState::Finished {
            return true;
        }
        match self.state {
            ElementsState::Closing => self.close_element(out),
            ElementsState::Ending => self.close_elements(out),
            ElementsState::Reading | ElementsState::Finished => {}
        }
        if self.state != ElementsState::Reading {
            self.held.clear();
        }
        let complete = self.is_outside() && self.held.is_empty();
        // A single character is text. Several are the start of a tag.
        if !self.is_outside() && self.held.chars().count() == 1 {
            self.put_held(out);
        }
        self.close_all(out);
        complete
    }

    fn is_certain(&self) -> bool {
        self.certain
    }

    fn writer(&mut self) -> Option<&mut JsonWriter> {
        Some(&mut self.writer)
    }
}
