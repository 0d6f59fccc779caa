//! JSON to values of the template engine: plain, with the source of every string, or watched by a probe.

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use serde_json::{Map, Number};

use crate::jinja::{Log, Mark, Text, Value, Watch};

/// Which member of the request each marked byte of a prompt came from: what the `source` of a mark counts.
#[derive(Debug, Default)]
pub(crate) struct Origins {
    paths: Vec<Arc<str>>,
    numbers: HashMap<Arc<str>, u32>,
    /// Marks of strings that are not simply their member's text, by path of the string.
    composed: HashMap<String, Vec<(usize, usize, u32)>>,
}

impl Origins {
    /// The number of a member.
    pub(crate) fn number(&mut self, path: &Arc<str>) -> u32 {
        if let Some(known) = self.numbers.get(path) {
            return *known;
        }
        let number = u32::try_from(self.paths.len()).unwrap_or(u32::MAX);
        self.paths.push(Arc::clone(path));
        self.numbers.insert(Arc::clone(path), number);
        number
    }

    /// Says where the bytes of the string at `place` came from; the bytes between are nobody's.
    pub(crate) fn compose(&mut self, place: String, parts: Vec<(usize, usize, u32)>) {
        self.composed.insert(place, parts);
    }

    pub(crate) fn path(&self, source: u32) -> Option<&Arc<str>> {
        self.paths.get(source as usize)
    }

    fn marks(&mut self, place: &str, text: &str) -> Vec<Mark> {
        let at = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
        if let Some(parts) = self.composed.get(place) {
            return parts
                .iter()
                .map(|(start, end, source)| Mark { start: at(*start), end: at(*end), source: *source })
                .collect();
        }
        if text.is_empty() {
            return Vec::new();
        }
        self.paths.push(place.into());
        vec![Mark { start: 0, end: at(text.len()), source: at(self.paths.len() - 1) }]
    }
}

/// What is wanted beside the values.
pub(crate) enum Wanted<'a> {
    /// Nothing.
    Values,
    /// The source of every string.
    Sources(&'a mut Origins),
    /// A note of every read.
    Reads(&'a Rc<Log>),
}

/// A value at this path.
pub(crate) fn value(json: &serde_json::Value, path: &str, wanted: &mut Wanted<'_>) -> Value {
    match json {
        serde_json::Value::Null => Value::None,
        serde_json::Value::Bool(flag) => Value::Bool(*flag),
        serde_json::Value::Number(number) => self::number(number),
        serde_json::Value::String(text) => Value::Text(self::text(text, path, wanted)),
        serde_json::Value::Array(items) => list(items, path, wanted),
        serde_json::Value::Object(members) => dict(members, path, wanted),
    }
}

/// A list at this path.
pub(crate) fn list(items: &[serde_json::Value], path: &str, wanted: &mut Wanted<'_>) -> Value {
    let values = items.iter().enumerate().map(|(index, item)| value(item, &element(path, index, wanted), wanted)).collect();
    Value::outer_list(values, watch(path, wanted))
}

fn dict(members: &Map<String, serde_json::Value>, path: &str, wanted: &mut Wanted<'_>) -> Value {
    Value::outer_dict(entries(members, path, wanted), watch(path, wanted))
}

fn entries(members: &Map<String, serde_json::Value>, path: &str, wanted: &mut Wanted<'_>) -> Vec<(Value, Value)> {
    members
        .iter()
        .map(|(name, json)| {
            let value = value(json, &member(path, name, wanted), wanted);
            (key(name), value)
        })
        .collect()
}

thread_local! {
    /// The names that nearly every member has, made once a thread.
    static KEYS: [(&'static str, Text); 12] = [
        "role", "content", "tool_calls", "tool_call_id", "type", "function", "name", "arguments", "description", "parameters",
        "properties", "id",
    ]
    .map(|name| (name, Text::outer(name, Vec::new())));
}

fn key(name: &str) -> Value {
    let known = KEYS.with(|keys| keys.iter().find(|(known, _)| *known == name).map(|(_, text)| text.clone()));
    Value::Text(known.unwrap_or_else(|| Text::outer(name, Vec::new())))
}

fn watch(path: &str, wanted: &Wanted<'_>) -> Option<Watch> {
    match wanted {
        Wanted::Reads(log) => Some(Watch::new(log, path)),
        _ => None,
    }
}

fn text(text: &str, path: &str, wanted: &mut Wanted<'_>) -> Text {
    match wanted {
        Wanted::Sources(sources) => {
            let marks = sources.marks(path, text);
            Text::outer(text, marks)
        }
        _ => Text::outer(text, Vec::new()),
    }
}

fn number(number: &Number) -> Value {
    if let Some(small) = number.as_i64() {
        return Value::Int(small);
    }
    let text = number.to_string();
    match text.parse() {
        Ok(integer) => Value::integer(integer),
        Err(_) => Value::Float(number.as_f64().or_else(|| text.parse().ok()).unwrap_or(f64::NAN)),
    }
}

/// Paths are only spelled out where somebody asks for them.
fn element(path: &str, index: usize, wanted: &Wanted<'_>) -> String {
    if matches!(wanted, Wanted::Values) { String::new() } else { format!("{path}[{index}]") }
}

fn member(path: &str, name: &str, wanted: &Wanted<'_>) -> String {
    if matches!(wanted, Wanted::Values) { String::new() } else { format!("{path}.{name}") }
}

/// The messages; `raw` leaves them as they are, else reasoning gets the names that transformers 5.23 gives it besides: the
/// first of reasoning_content, thinking and reasoning that is not null becomes reasoning_content, and thinking where there is
/// no such member. Members that are null stay: transformers' renders show them as None.
pub(crate) fn messages(messages: &[serde_json::Value], raw: bool, wanted: &mut Wanted<'_>) -> Value {
    let values = messages
        .iter()
        .enumerate()
        .map(|(index, json)| {
            let path = element("messages", index, wanted);
            match json {
                serde_json::Value::Object(members) if !raw => {
                    let entries = with_reasoning(entries(members, &path, wanted));
                    Value::outer_dict(entries, watch(&path, wanted))
                }
                json => value(json, &path, wanted),
            }
        })
        .collect();
    Value::outer_list(values, watch("messages", wanted))
}

fn with_reasoning(mut entries: Vec<(Value, Value)>) -> Vec<(Value, Value)> {
    let place = |entries: &[(Value, Value)], name: &str| entries.iter().position(|(key, _)| key.as_str() == Some(name));
    let given = ["reasoning_content", "thinking", "reasoning"].into_iter().find_map(|name| {
        let (_, value) = &entries[place(&entries, name)?];
        (!value.is_none()).then(|| value.clone())
    });
    let Some(reasoning) = given else { return entries };
    let name = |name: &str| Value::Text(Text::outer(name, Vec::new()));
    match place(&entries, "reasoning_content") {
        Some(at) => entries[at].1 = reasoning.clone(),
        None => entries.push((name("reasoning_content"), reasoning.clone())),
    }
    let thinking = match place(&entries, "thinking") {
        Some(at) => entries.remove(at),
        None => (name("thinking"), reasoning),
    };
    entries.insert(0, thinking);
    entries
}

/// A plain value, for tests.
#[cfg(test)]
pub(crate) fn plain(json: &serde_json::Value) -> Value {
    value(json, "", &mut Wanted::Values)
}
