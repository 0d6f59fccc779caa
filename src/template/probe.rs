//! Recording objects: what a template reads of its context.
//!
//! In: JSON. Out: values that note every member, index and iteration that the template asks for, under paths such as
//! `messages[1].tool_calls`. Strings, numbers, booleans and None cannot be wrapped; facts about them come from their
//! parent's notes or from markers in the output. Printing notes nothing. Only probes use this; renders get plain values.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use minijinja::value::{Enumerator, Object, ObjectRepr, Value};
use serde_json::Map;

use super::{tojson, value};

/// What was read, shared by all objects of one probe.
#[derive(Debug, Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Notes>>);

#[derive(Debug, Default)]
struct Notes {
    read: BTreeSet<String>,
    missing: Vec<String>,
}

impl Log {
    /// Whether this path was read.
    pub(crate) fn has(&self, path: &str) -> bool {
        self.notes(|notes| notes.read.contains(path))
    }

    /// Root variables that were looked up and not found, in order of their first look-up.
    pub(crate) fn missing(&self) -> Vec<String> {
        self.notes(|notes| notes.missing.clone())
    }

    fn note(&self, path: String) {
        self.notes(|notes| notes.read.insert(path));
    }

    fn note_missing(&self, name: &str) {
        self.notes(|notes| {
            if !notes.missing.iter().any(|known| known == name) {
                notes.missing.push(name.to_owned());
            }
        });
    }

    fn notes<T>(&self, f: impl FnOnce(&mut Notes) -> T) -> T {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A root context that records; `extra` members are given as they are.
pub(crate) fn root(members: &Map<String, serde_json::Value>, extra: Vec<(&'static str, Value)>, log: &Log) -> Value {
    let members = members.iter().map(|(name, json)| (name.clone(), recorded(json, name, log))).collect();
    Value::from_object(Root { members, extra, log: log.clone() })
}

fn recorded(json: &serde_json::Value, path: &str, log: &Log) -> Value {
    match json {
        serde_json::Value::Array(_) | serde_json::Value::Object(_) => {
            Value::from_object(Recorded { json: json.clone(), path: path.to_owned(), log: log.clone() })
        }
        scalar => value::from_json(scalar),
    }
}

/// The same value without recording; None when it does not record.
pub(crate) fn unrecorded(value: &Value) -> Option<Value> {
    value.downcast_object_ref::<Recorded>().map(|recorded| value::from_json(&recorded.json))
}

/// Notes a whole value as read: a filter turned all of it into text.
pub(crate) fn touch(value: &Value) {
    if value.downcast_object_ref::<Recorded>().is_some() {
        // Serialising asks for every member; the text itself is not wanted.
        let _ = tojson::plain(value);
    }
}

#[derive(Debug)]
struct Root {
    members: Vec<(String, Value)>,
    extra: Vec<(&'static str, Value)>,
    log: Log,
}

impl Object for Root {
    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        let name = key.as_str()?;
        if let Some((_, value)) = self.members.iter().find(|(known, _)| known == name) {
            self.log.note(name.to_owned());
            return Some(value.clone());
        }
        if let Some((_, value)) = self.extra.iter().find(|(known, _)| *known == name) {
            return Some(value.clone());
        }
        self.log.note_missing(name);
        None
    }
}

/// A list or an object.
struct Recorded {
    json: serde_json::Value,
    path: String,
    log: Log,
}

impl fmt::Debug for Recorded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&value::print(&value::from_json(&self.json)).map_err(|_| fmt::Error)?)
    }
}

impl Object for Recorded {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        if self.json.is_array() { ObjectRepr::Seq } else { ObjectRepr::Map }
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        let (path, child) = match &self.json {
            serde_json::Value::Array(items) => {
                let index = key.as_usize()?;
                (format!("{}[{index}]", self.path), items.get(index)?)
            }
            serde_json::Value::Object(members) => {
                let name = key.as_str()?;
                (format!("{}.{name}", self.path), members.get(name)?)
            }
            _ => return None,
        };
        let child = recorded(child, &path, &self.log);
        self.log.note(path);
        Some(child)
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        self.log.note(format!("{}#iter", self.path));
        match &self.json {
            serde_json::Value::Array(items) => Enumerator::Seq(items.len()),
            serde_json::Value::Object(members) => {
                Enumerator::Values(members.keys().map(|name| Value::from(name.as_str())).collect())
            }
            _ => Enumerator::NonEnumerable,
        }
    }

    fn enumerator_len(self: &Arc<Self>) -> Option<usize> {
        match &self.json {
            serde_json::Value::Array(items) => Some(items.len()),
            serde_json::Value::Object(members) => Some(members.len()),
            _ => None,
        }
    }

    fn render(self: &Arc<Self>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_ref(), f)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use serde_json::json;

    use super::*;
    use crate::template::env;
    use crate::template::limits::Limits;

    #[track_caller]
    fn check(source: &str, expected: &[&str]) {
        let limits = Limits::default();
        let mut jinja = env::environment(&limits);
        env::add(&mut jinja, "default", source).unwrap();
        let log = Log::default();
        let json = json!({"messages": [{"role": "user", "content": "hi"}, {"role": "tool", "calls": [{"a": {"b": 1}}]}]});
        let root = root(json.as_object().unwrap(), Vec::new(), &log);
        env::render(&jinja, "default", root, &limits).unwrap();
        let read = log.notes(|notes| notes.read.iter().cloned().collect::<Vec<_>>());
        assert_eq!(read, expected);
    }

    #[test]
    fn paths() {
        check("{{ messages[0].content }}", &["messages", "messages[0]", "messages[0].content"]);
        check("{{ messages[-1]['role'] }}", &["messages", "messages[1]", "messages[1].role"]);
        check("{% for m in messages %}{% endfor %}", &["messages", "messages#iter", "messages[0]", "messages[1]"]);
        check(
            "{% set m = (messages|list)[1] %}{{ m.calls[0].a is defined }}",
            &[
                "messages",
                "messages#iter",
                "messages[0]",
                "messages[1]",
                "messages[1].calls",
                "messages[1].calls[0]",
                "messages[1].calls[0].a",
            ],
        );
    }

    #[test]
    fn printing_notes_nothing_but_serialising_does() {
        check("{{ messages[1] }}{{ messages[1] ~ 'x' }}{{ messages|length }}", &["messages", "messages[1]"]);
        let all = [
            "messages",
            "messages[1]",
            "messages[1].calls",
            "messages[1].calls#iter",
            "messages[1].calls[0]",
            "messages[1].calls[0]#iter",
            "messages[1].calls[0].a",
            "messages[1].calls[0].a#iter",
            "messages[1].calls[0].a.b",
        ];
        check("{{ messages[1].calls|tojson }}", &all);
        check("{{ messages[1].calls|string }}", &all);
    }
}
