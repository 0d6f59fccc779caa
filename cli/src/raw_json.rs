//! Members of JSON objects as text. A number of a reply takes about twelve bytes as text, and more
//! than two hundred as a JSON value, so long lists are passed on without being parsed.

use std::ops::Range;

use bytes::Bytes;
use serde_json::{Map, Value};

/// The text of a JSON object that the library wrote, and where its members are.
#[derive(Clone)]
pub(crate) struct RawObject {
    text: Bytes,
    /// The ranges of names, without quotes, and of values.
    members: Vec<(Range<usize>, Range<usize>)>,
}

impl RawObject {
    /// Finds the members. The text must be valid JSON. It has no members if it is not an object.
    pub(crate) fn parse(text: Bytes) -> RawObject {
        let mut members = Vec::new();
        let mut name = None;
        for value in top_values(&text) {
            let is_member = text.trim_ascii_start().first() == Some(&b'{');
            match name.take() {
                Some(name) => members.push((name, value)),
                None if is_member => name = Some(value.start + 1..value.end - 1),
                None => {}
            }
        }
        RawObject { text, members }
    }

    /// The JSON text of a member.
    pub(crate) fn text(&self, name: &str) -> Option<Bytes> {
        let (_, value) =
            self.members.iter().find(|(key, _)| self.text[key.clone()] == *name.as_bytes())?;
        Some(self.text.slice(value.clone()))
    }

    /// The value of a member, or null.
    pub(crate) fn value(&self, name: &str) -> Value {
        self.text(name).map_or(Value::Null, |text| parsed(&text))
    }

    /// An object with all members except one.
    pub(crate) fn value_without(&self, left_out: &str) -> Value {
        let members = self.members.iter().filter_map(|(name, value)| {
            let name = str::from_utf8(&self.text[name.clone()]).unwrap_or_default();
            (name != left_out).then(|| (name.to_owned(), parsed(&self.text[value.clone()])))
        });
        Value::Object(members.collect::<Map<String, Value>>())
    }
}

fn parsed(text: &[u8]) -> Value {
    crate::json::value(text).unwrap_or_default()
}

/// The elements of the text of a JSON array.
pub(crate) fn elements(array: &Bytes) -> impl Iterator<Item = Bytes> {
    top_values(array).into_iter().map(|element| array.slice(element))
}

/// The ranges of the elements of an array, or of the names and values of an object.
fn top_values(text: &[u8]) -> Vec<Range<usize>> {
    let mut values = Vec::new();
    let (mut depth, mut start, mut end, mut at) = (0_usize, None, 0, 0);
    while let Some(byte) = text.get(at) {
        let is_separator = depth == 1 && matches!(byte, b',' | b':' | b'}' | b']');
        if is_separator && let Some(start) = start.take() {
            values.push(start..end);
        }
        let is_value = depth > 0 && !is_separator && !byte.is_ascii_whitespace();
        if is_value && depth == 1 {
            start.get_or_insert(at);
        }
        match byte {
            b'"' => at = end_of_string(text, at),
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        at += 1;
        if is_value {
            end = at;
        }
    }
    values
}

/// The position of the quote that ends the string whose first quote is at `start`.
fn end_of_string(text: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while let Some(byte) = text.get(at) {
        match byte {
            b'"' => return at,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    text.len()
}

/// Texts that stand in a JSON value. The value has a marker for each, a string that nobody else can
/// know.
#[derive(Clone)]
pub(crate) struct RawValues {
    /// What all markers begin with.
    marker: String,
    texts: Vec<Bytes>,
}

impl RawValues {
    /// `unique` is text that no client can guess.
    pub(crate) fn new(unique: &str) -> RawValues {
        RawValues { marker: format!("{unique}-"), texts: Vec::new() }
    }

    /// The marker for a text, which must be JSON.
    pub(crate) fn add(&mut self, text: Bytes) -> Value {
        self.texts.push(text);
        format!("{}{}", self.marker, self.texts.len() - 1).into()
    }

    /// Removes the text that was added last. Its marker must not be used any more.
    pub(crate) fn remove_last(&mut self) {
        self.texts.pop();
    }

    /// The JSON text of a value, in which each text takes the place of its marker.
    pub(crate) fn parts(&self, value: &Value) -> Vec<Bytes> {
        let text = Bytes::from(value.to_string());
        if self.texts.is_empty() {
            return vec![text];
        }
        let (mut parts, mut rest) = (Vec::new(), text.clone());
        let opening = format!("\"{}", self.marker);
        let mut at = 0;
        let string = str::from_utf8(&text).unwrap_or_default();
        while let Some(found) = string[at..].find(&opening) {
            let number = at + found + opening.len();
            let end = string[number..].find('"').map_or(string.len(), |end| number + end);
            let raw = string[number..end].parse::<usize>().ok();
            if let Some(raw) = raw.and_then(|index| self.texts.get(index)) {
                let before = rest.len() - (text.len() - (at + found));
                parts.push(rest.split_to(before));
                parts.push(raw.clone());
                rest = text.slice((end + 1).min(text.len())..);
            }
            at = (end + 1).min(text.len());
        }
        parts.push(rest);
        parts
    }

    /// The same, as one text.
    pub(crate) fn text(&self, value: &Value) -> String {
        String::from_utf8(self.parts(value).concat()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(text: &str, names: &[&str]) {
        let object = RawObject::parse(Bytes::from(text.to_owned()));
        let value: Value = serde_json::from_str(text).unwrap();
        let found: Vec<&[u8]> =
            object.members.iter().map(|(name, _)| &object.text[name.clone()]).collect();
        assert_eq!(found, names.iter().map(|name| name.as_bytes()).collect::<Vec<_>>());
        for name in names {
            assert_eq!(object.value(name), value[name], "{name}");
        }
        assert_eq!(object.value_without(""), value);
    }

    #[test]
    fn members_are_found() {
        check("{}", &[]);
        check(r#"{"a":1}"#, &["a"]);
        check(r#" { "a" : [1, {"b":[]}] , "c" : "x\"},:[" , "d":-1.5e3 } "#, &["a", "c", "d"]);
        check(r#"{"a":{},"b":[],"c":"","d":null,"e":"\\"}"#, &["a", "b", "c", "d", "e"]);
        let object = RawObject::parse(Bytes::from_static(br#"{"type":"x","data":[1,[2]]}"#));
        assert_eq!(object.text("data").unwrap(), "[1,[2]]");
        assert!(object.text("1").is_none());
        assert_eq!(object.value_without("data"), json!({ "type": "x" }));
        assert!(RawObject::parse(Bytes::from_static(b"[\"a\",1]")).members.is_empty());
    }

    #[test]
    fn elements_are_those_of_the_array() {
        let all =
            |text: &'static str| elements(&Bytes::from_static(text.as_bytes())).collect::<Vec<_>>();
        assert!(all("[]").is_empty());
        assert_eq!(
            all(r#"[1, "a,]" ,{"b":[2,3]},[ ]]"#),
            [r"1", r#""a,]""#, r#"{"b":[2,3]}"#, "[ ]"]
        );
    }

    #[test]
    fn texts_take_the_places_of_their_markers() {
        let mut raws = RawValues::new("m\u{e9}");
        assert_eq!(raws.text(&json!({ "a": "m\u{e9}-0" })), "{\"a\":\"m\u{e9}-0\"}");
        let first = raws.add(Bytes::from_static(b"[1,2]"));
        let second = raws.add(Bytes::from_static(b"{\"x\":0}"));
        let value = json!({ "a": [second, "m\u{e9}-7", first], "b": first, "c": "m" });
        let expected = "{\"a\":[{\"x\":0},\"m\u{e9}-7\",[1,2]],\"b\":[1,2],\"c\":\"m\"}";
        assert_eq!(raws.text(&value), expected);
        let parts = raws.parts(&json!({ "z": first }));
        assert_eq!(parts, ["{\"z\":", "[1,2]", "}"]);
    }
}
