//! Arrays and objects as nested elements that name their types -> JSON:
//! `<v name="a" type="raw">x</v>` inside an object, `<v type="raw">x</v>` inside an array.
//!
//! The text is complete. Text between elements is left out.

use crate::output::format::{Tagged, ValueKind};
use crate::output::read::entities::without_entities;
use crate::output::read::json_writer::{MAX_DEPTH, quoted};
use crate::output::read::typed_value::typed_value;

/// The texts of nested elements.
#[derive(Debug, Clone)]
pub(super) struct NestedElements {
    /// The text with which every element begins: `<v`.
    pub(super) start: String,
    /// The end tag.
    pub(super) end: String,
    /// The text of an item up to its type.
    item: String,
    open: String,
    after_key: String,
    kind: Box<ValueKind>,
    has_entities: bool,
    raw_json: bool,
}

impl NestedElements {
    /// None if arrays and objects are JSON.
    pub(super) fn new(tagged: &Tagged) -> Option<NestedElements> {
        let kind = tagged.kind.clone()?;
        let item = kind.item.as_ref()?.trim().to_owned();
        let start = &item[..item.find(char::is_whitespace).unwrap_or(item.len())];
        let end = tagged.close.trim();
        (!start.is_empty() && !end.is_empty()).then(|| NestedElements {
            start: start.to_owned(),
            end: end.to_owned(),
            open: tagged.open.trim().to_owned(),
            after_key: tagged.after_key.to_string(),
            has_entities: !tagged.entities.is_empty(),
            raw_json: tagged.raw_json,
            item: item.clone(),
            kind: kind.clone(),
        })
    }

    /// The JSON text of an empty container whose type has this word.
    pub(super) fn empty(&self, word: &str) -> Option<&'static str> {
        let words = &self.kind.words;
        if *word == *words.array {
            Some("[]")
        } else if *word == *words.object {
            Some("{}")
        } else {
            None
        }
    }

    /// The JSON text of the elements in a container. With keys, they are members of an object.
    /// None if the text is not such elements, or too deep.
    pub(super) fn value(&self, text: &str, depth: usize) -> Option<String> {
        if depth > MAX_DEPTH {
            return None;
        }
        let (mut parts, mut is_object) = (Vec::new(), false);
        let mut rest = text;
        while let Some(at) = rest.find(&self.start) {
            let element = &rest[at..];
            let length = self.length(element)?;
            let (key, value) = self.element(&element[..length - self.end.len()], depth)?;
            is_object |= key.is_some();
            parts.push(match key {
                Some(key) => format!("{}: {value}", quoted(&key)),
                None => value,
            });
            rest = &element[length..];
        }
        let parts = parts.join(", ");
        Some(if is_object { format!("{{{parts}}}") } else { format!("[{parts}]") })
    }

    /// The length of the element at the start of a text.
    fn length(&self, text: &str) -> Option<usize> {
        let (mut at, mut depth) = (0, 0_usize);
        loop {
            let rest = &text[at..];
            let start = rest.find(&self.start).unwrap_or(rest.len());
            let end = rest.find(&self.end)?;
            if start < end {
                (at, depth) = (at + start + self.start.len(), depth + 1);
            } else {
                (at, depth) = (at + end + self.end.len(), depth.checked_sub(1)?);
                if depth == 0 {
                    return Some(at);
                }
            }
        }
    }

    /// The key and the value of an element without its end tag.
    fn element(&self, text: &str, depth: usize) -> Option<(Option<String>, String)> {
        let (key, word, value) = match self.kind.before_key {
            true => self.head_with_type_first(text)?,
            false => self.head_with_key_first(text)?,
        };
        let key = key.map(|key| self.plain(key));
        if *word == *self.kind.words.string {
            return Some((key, quoted(&self.plain(value))));
        }
        let json = match (self.empty(word), value.trim()) {
            (Some(empty), "") => empty.to_owned(),
            (Some(_), own) if own.starts_with(&self.start) => self.value(own, depth + 1)?,
            (_, own) => {
                let own = if self.raw_json { own.to_owned() } else { self.plain(own) };
                typed_value(&own, None, Some(false), MAX_DEPTH - depth).0
            }
        };
        Some((key, json))
    }

    /// The key, the type and the value of an element whose key comes first.
    fn head_with_key_first<'t>(
        &self,
        text: &'t str,
    ) -> Option<(Option<&'t str>, &'t str, &'t str)> {
        let (key, rest) = match text.strip_prefix(&self.open) {
            Some(rest) => {
                let (key, rest) = rest.split_once(self.after_key.as_str())?;
                (Some(key), rest)
            }
            None => (None, text.strip_prefix(&self.item)?),
        };
        let (word, value) = rest.split_once(&*self.kind.after)?;
        Some((key, word, value))
    }

    /// The key, the type and the value of an element whose type comes first.
    fn head_with_type_first<'t>(
        &self,
        text: &'t str,
    ) -> Option<(Option<&'t str>, &'t str, &'t str)> {
        let of_item = self.kind.after_of_item(&self.after_key);
        let (word, value) = text.strip_prefix(&self.item)?.split_once(of_item)?;
        // An item has no key between its type and its value.
        let Some(rest) = text.strip_prefix(&self.open) else { return Some((None, word, value)) };
        match rest.split_once(&*self.kind.after).filter(|(named, _)| named.len() < word.len()) {
            Some((word, rest)) => {
                let (key, value) = rest.split_once(self.after_key.as_str())?;
                Some((Some(key), word, value))
            }
            None => Some((None, word, value)),
        }
    }

    fn plain(&self, text: &str) -> String {
        if self.has_entities { without_entities(text) } else { text.to_owned() }
    }
}
