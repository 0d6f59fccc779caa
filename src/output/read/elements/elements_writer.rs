//! Elements -> JSON: the tree of open elements, and what each of them becomes.
//!
//! In: opening tags, text and ends. Out: JSON text. Which text is a tag is not decided here.

use crate::json_schema::{ArgumentsSchema, SchemaPointers, TypeSet};
use crate::output::read::json_writer::{JsonWriter, MAX_DEPTH};
use crate::output::read::typed_value::{JsonString, is_string, typed_value};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ElementContent {
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
pub(super) struct Element {
    pub(super) name: String,
    /// Inside an object: the last member that may repeat.
    last: Option<LastMember>,
    pointers: SchemaPointers,
    types: Option<TypeSet>,
    pub(super) content: ElementContent,
    /// The text so far, unless it is emitted as it arrives.
    raw: String,
    /// The names of the tags that are open in the text.
    pub(super) inner: Vec<String>,
    /// Inside an array or an object in JSON: whether a string of it is open.
    json_string: Option<JsonString>,
}

impl Element {
    fn new(
        name: String,
        pointers: SchemaPointers,
        types: Option<TypeSet>,
        content: ElementContent,
    ) -> Element {
        let (raw, inner) = (String::new(), Vec::new());
        Element { name, last: None, pointers, types, content, raw, inner, json_string: None }
    }

    /// Whether it has text.
    pub(super) fn is_text(&self) -> bool {
        matches!(self.content, ElementContent::Raw | ElementContent::Text)
    }

    /// Whether its value may be a string.
    pub(super) fn may_be_string(&self) -> bool {
        self.types.is_none_or(|types| types.has(TypeSet::STRING))
    }

    /// Whether tags in it are its children. If it may be a string, they are text, as in llama.cpp.
    pub(super) fn is_container(&self) -> bool {
        !self.may_be_string() || self.types.is_none_or(|types| types.has(TypeSet::ARRAY))
    }

    /// Whether a string of a value in JSON is open.
    pub(super) fn is_in_json_string(&self) -> bool {
        self.json_string.is_some_and(|string| string != JsonString::Outside)
    }
}

/// Writes the elements as JSON.
#[derive(Debug)]
pub(super) struct ElementsWriter {
    /// The element of an array.
    item: String,
    /// The text with which every tag begins.
    tag_start: String,
    schema: ArgumentsSchema,
    pub(super) json: JsonWriter,
    /// The arguments, and the elements that are open in them.
    elements: Vec<Element>,
    /// Whether an element was opened.
    pub(super) certain: bool,
}

impl ElementsWriter {
    pub(super) fn new(prefix: &str, item: &str, schema: ArgumentsSchema) -> ElementsWriter {
        let (types, content) = (Some(TypeSet::OBJECT), ElementContent::Object);
        ElementsWriter {
            item: item.to_owned(),
            tag_start: format!("{prefix}<"),
            elements: vec![Element::new(String::new(), schema.root(), types, content)],
            schema,
            json: JsonWriter::default(),
            certain: false,
        }
    }

    /// Whether no element is open.
    pub(super) fn is_outside(&self) -> bool {
        self.elements.len() == 1
    }

    /// The innermost open element.
    pub(super) fn innermost(&self) -> &Element {
        self.elements.last().expect("the arguments stay open")
    }

    pub(super) fn innermost_mut(&mut self) -> &mut Element {
        self.elements.last_mut().expect("the arguments stay open")
    }

    /// The element around the innermost one, which is not the arguments.
    fn parent(&self) -> &Element {
        &self.elements[self.elements.len() - 2]
    }

    /// Whether the innermost element is a member of an object, not an item.
    fn is_member(&self) -> bool {
        let Element { last, content, .. } = self.parent();
        // While an array of repeated elements is open, its elements are items.
        last.is_none() && *content != ElementContent::Array
    }

    /// Whether an element of this name is known to be a sibling of the innermost one.
    pub(super) fn is_sibling(&self, name: &str) -> bool {
        let parent = self.parent();
        match parent.content {
            ElementContent::Array => name == self.item,
            _ => !self.schema.member(&parent.pointers, name).pointers.is_empty(),
        }
    }

    /// Opens an element in the innermost container. Returns whether it is part of the arguments.
    pub(super) fn open(&mut self, name: String) -> bool {
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
        if !self.certain {
            self.certain = true;
            self.json.open_object();
        }
        if !in_array && self.repeat(&name) {
            self.push(name, items);
            return true;
        }
        let pointers = match key {
            Some(key) => {
                if key.unknown {
                    self.json.note("arg_unknown", format!("the schema has no key `{name}`"));
                }
                self.json.key(&name);
                key.pointers
            }
            None => items.clone(),
        };
        let is_item = self.item.is_empty()
            && !in_array
            && self.schema.types(&pointers) == Some(TypeSet::ARRAY)
            && !self.json.is_full();
        if is_item {
            self.json.open_array();
            self.innermost_mut().last = Some(LastMember { name: name.clone(), value: None });
        }
        self.push(name, if is_item { items } else { pointers });
        true
    }

    fn push(&mut self, name: String, pointers: SchemaPointers) {
        let types = self.schema.types(&pointers);
        let mut content = ElementContent::Unknown;
        if is_string(types, None) {
            self.json.begin_string();
            content = ElementContent::Text;
        }
        self.elements.push(Element::new(name, pointers, types, content));
    }

    /// Whether an element of this name repeats the last member, which is then an open array.
    /// Otherwise ends the last member.
    fn repeat(&mut self, name: &str) -> bool {
        let is_full = self.json.is_full();
        let last = &mut self.innermost_mut().last;
        let Some(last) =
            last.as_mut().filter(|last| last.name == name && !(last.value.is_some() && is_full))
        else {
            self.end_member();
            return false;
        };
        if let Some(value) = last.value.take() {
            self.json.open_array();
            self.json.value(&value);
        }
        true
    }

    /// Ends the last member of the innermost object, because nothing repeats it.
    fn end_member(&mut self) {
        match self.innermost_mut().last.take() {
            Some(LastMember { value: Some(value), .. }) => self.json.value(&value),
            Some(LastMember { value: None, .. }) => self.json.close(),
            None => {}
        }
    }

    /// Makes the innermost element a container, from the name of its first child.
    pub(super) fn open_container(&mut self, child: &str) {
        let is_member = self.is_member();
        let named_item = child == self.item;
        let Element { name, pointers, types, .. } = self.innermost();
        let types = *types;
        let has = |kind| types.is_some_and(|types| types.has(kind));
        // The child is a member of the first item of an array of repeated elements.
        let items = self.schema.items(pointers);
        if is_member
            && !named_item
            && has(TypeSet::ARRAY)
            && !self.schema.member(&items, child).pointers.is_empty()
        {
            let last = LastMember { name: name.clone(), value: None };
            let parent = self.elements.len() - 2;
            self.elements[parent].last = Some(last);
            let element = self.innermost_mut();
            (element.pointers, element.types) = (items, Some(TypeSet::OBJECT));
            self.json.open_array();
            return self.open_container(child);
        }
        let is_array = match (has(TypeSet::ARRAY), has(TypeSet::OBJECT)) {
            (true, false) => true,
            (false, true) => false,
            _ => named_item,
        };
        if is_array {
            self.innermost_mut().content = ElementContent::Array;
            self.json.open_array();
        } else {
            self.innermost_mut().content = ElementContent::Object;
            self.json.open_object();
        }
    }

    /// Adds a character of text to the innermost element.
    pub(super) fn text(&mut self, c: char) {
        let element = self.elements.last_mut().expect("the arguments stay open");
        match element.content {
            ElementContent::Text => self.json.push(c),
            ElementContent::Raw => {
                element.raw.push(c);
                element.json_string = element.json_string.map(|string| string.after(c));
            }
            ElementContent::Unknown => {
                element.raw.push(c);
                if !c.is_whitespace() {
                    element.content = ElementContent::Raw;
                    let is_json = matches!(c, '[' | '{') && !element.may_be_string();
                    element.json_string = is_json.then(JsonString::default);
                }
            }
            ElementContent::Object | ElementContent::Array if c.is_whitespace() => {}
            ElementContent::Object | ElementContent::Array => {
                let message =
                    format!("text between the elements of `{}` was removed", element.name);
                self.json.note("arg_type_mismatch", message);
            }
        }
    }

    /// Closes the innermost element.
    pub(super) fn close(&mut self) {
        self.end_member();
        let is_member = self.is_member();
        let element = self.elements.pop().expect("it is not the arguments");
        let types = element.types.filter(|_| !element.may_be_string());
        let may_be = |kind| types.is_some_and(|types| types.has(kind));
        match element.content {
            ElementContent::Text => self.json.end_string(),
            ElementContent::Object | ElementContent::Array => self.json.close(),
            // Templates write empty strings, arrays and objects as nothing.
            ElementContent::Unknown if may_be(TypeSet::ARRAY) => self.json.value("[]"),
            ElementContent::Unknown if may_be(TypeSet::OBJECT) => self.json.value("{}"),
            ElementContent::Unknown | ElementContent::Raw => {
                self.write_raw(element, is_member);
            }
        }
    }

    /// Writes the value of an element that had text.
    fn write_raw(&mut self, element: Element, is_member: bool) {
        const MISMATCH: Option<&str> = Some("arg_type_mismatch");
        let Element { name, pointers, types, raw, .. } = element;
        let known = types.filter(|types| !types.has(TypeSet::STRING));
        let may_be_array = known.is_some_and(|types| types.has(TypeSet::ARRAY));
        let max_depth = MAX_DEPTH - self.json.depth();
        let (mut text, mut note) = typed_value(&raw, types, None, max_depth);
        // The text is the first item of an array of repeated elements.
        let is_item = is_member
            && may_be_array
            && note == MISMATCH
            && !raw.contains(&self.tag_start)
            && !self.json.is_full();
        if is_item {
            let items = self.schema.types(&self.schema.items(&pointers));
            (text, note) = typed_value(&raw, items, None, max_depth);
            self.json.open_array();
        }
        // A model may write a whole array in place of its first item.
        let is_whole = self.item.is_empty()
            && !is_member
            && note == MISMATCH
            && text.starts_with('[')
            && known.is_some()
            && !may_be_array;
        if is_whole {
            let items = text[1..text.len() - 1].trim();
            if !items.is_empty() {
                self.json.value(items);
            }
            return;
        }
        if let Some(code) = note {
            self.json.note(code, format!("the value of `{name}`"));
        }
        // Another element of the same name may follow. A value of a known type is alone.
        let waits = is_member && !is_item && types.is_none();
        if !waits {
            self.json.value(&text);
        }
        if is_item || waits {
            let value = waits.then_some(text);
            self.innermost_mut().last = Some(LastMember { name, value });
        }
    }

    /// Closes the innermost element of this name, and the elements in it. Returns whether there is
    /// one.
    pub(super) fn close_named(&mut self, name: &str) -> bool {
        let depth = self.elements.iter().rposition(|element| element.name == name);
        while depth.is_some_and(|depth| self.elements.len() > depth) {
            self.close();
        }
        depth.is_some()
    }

    /// Closes all elements, but not the arguments.
    pub(super) fn close_elements(&mut self) {
        while !self.is_outside() {
            self.close();
        }
    }

    /// Ends the arguments.
    pub(super) fn close_all(&mut self) {
        self.close_elements();
        self.end_member();
        if !self.certain {
            self.json.open_object();
        }
        self.json.close_all();
    }
}
