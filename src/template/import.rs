//! JSON to values of the template engine: plain, with the origin of every string, or watched by a
//! probe.

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use serde_json::{Map, Number};

use super::span::{PathList, Paths};
use crate::jinja::{AccessLog, Mark, Text, Value, Watch};

/// The request members that marked bytes of a prompt come from; the `origin` of a mark is an index
/// into them.
#[derive(Debug, Default)]
pub(crate) struct Origins {
    paths: PathList,
    numbers: HashMap<Arc<str>, u32>,
    /// Marks of strings that are not exactly their member's text, by path of the string.
    composed: HashMap<String, Vec<(usize, usize, u32)>>,
}

impl Origins {
    /// The number of a member.
    pub(crate) fn number(&mut self, path: &Arc<str>) -> u32 {
        if let Some(known) = self.numbers.get(path) {
            return *known;
        }
        let number = self.paths.push(path);
        self.numbers.insert(Arc::clone(path), number);
        number
    }

    /// Sets the origins of the parts of the string at `place`; bytes outside the parts have no
    /// origin.
    pub(crate) fn compose(&mut self, place: String, parts: Vec<(usize, usize, u32)>) {
        self.composed.insert(place, parts);
    }

    /// Reserves space for the paths of more strings.
    fn reserve(&mut self, strings: usize) {
        self.paths.reserve(strings);
    }

    /// The members by number.
    pub(crate) fn into_paths(self) -> Paths {
        self.paths.finish()
    }

    /// Adds the marks of the string at `place`, which starts at byte `start`.
    fn mark(&mut self, place: &str, text: &str, start: usize, marks: &mut Vec<Mark>) {
        let at = |at: usize| u32::try_from(start + at).unwrap_or(u32::MAX);
        if let Some(parts) = self.composed.get(place) {
            marks.extend(parts.iter().map(|(from, to, origin)| Mark {
                start: at(*from),
                end: at(*to),
                origin: *origin,
            }));
        } else if !text.is_empty() {
            marks.push(Mark { start: at(0), end: at(text.len()), origin: self.paths.push(place) });
        }
    }
}

/// What is recorded besides the values.
pub(crate) enum ImportMode<'a> {
    /// Nothing.
    Plain,
    /// The origin of every string.
    Origins(&'a mut Origins),
    /// Every read.
    Reads(&'a Rc<AccessLog>),
}

/// A value at this path.
pub(crate) fn value(json: &serde_json::Value, path: &str, mode: &mut ImportMode<'_>) -> Value {
    let mut import = Import::new(path, std::slice::from_ref(json), mode);
    import.collect(json);
    import.finish_gathering();
    import.value(json)
}

/// A list at this path.
pub(crate) fn list(items: &[serde_json::Value], path: &str, mode: &mut ImportMode<'_>) -> Value {
    let mut import = Import::new(path, items, mode);
    import.collect_items(items);
    import.finish_gathering();
    import.list(items)
}

/// The messages. Unless `raw`, reasoning also gets the names that transformers 5.23 gives it: the
/// first of reasoning_content, thinking and reasoning that is not null becomes reasoning_content,
/// and thinking if there is no such member. Members that are null stay, since transformers renders
/// them as None.
pub(crate) fn messages(
    messages: &[serde_json::Value],
    raw: bool,
    mode: &mut ImportMode<'_>,
) -> Value {
    let mut import = Import::new("messages", messages, mode);
    import.collect_items(messages);
    import.finish_gathering();
    import.items(messages, |import, message| match message {
        serde_json::Value::Object(members) if !raw => {
            let entries = with_reasoning(import.entries(members));
            Value::caller_dict(entries, import.watch())
        }
        message => import.value(message),
    })
}

/// Usual bytes of a path below the root.
const STEPS: usize = 64;

/// An import of one JSON tree. Its strings are gathered in one buffer first, and the values are
/// views of it. A conversation has thousands of strings; an allocation for each would take longer
/// than most renders.
struct Import<'w, 'a> {
    mode: &'w mut ImportMode<'a>,
    /// The current path, kept only if it is used: origins need it while strings are gathered, reads
    /// while values are made.
    path: String,
    gathered: String,
    marks: Vec<Mark>,
    buffer: Text,
    /// Bytes of the buffer that were handed out.
    taken: usize,
}

impl<'w, 'a> Import<'w, 'a> {
    /// An import at this path, with space for the strings of `items`.
    fn new(
        path: &str,
        items: &[serde_json::Value],
        mode: &'w mut ImportMode<'a>,
    ) -> Import<'w, 'a> {
        let mut strings = Strings::default();
        items.iter().for_each(|item| strings.count(item));
        let mut marks = Vec::new();
        if let ImportMode::Origins(origins) = &mut *mode {
            marks.reserve_exact(strings.number);
            origins.reserve(strings.number);
        }
        let mut from = String::with_capacity(path.len() + STEPS);
        from.push_str(path);
        let buffer = Text::uncharged("", Vec::new());
        Import {
            mode,
            path: from,
            gathered: String::with_capacity(strings.bytes),
            marks,
            buffer,
            taken: 0,
        }
    }

    /// Moves the gathered strings into the buffer.
    fn finish_gathering(&mut self) {
        self.buffer = Text::uncharged_string(
            std::mem::take(&mut self.gathered),
            std::mem::take(&mut self.marks),
        );
    }

    fn collect(&mut self, json: &serde_json::Value) {
        match json {
            serde_json::Value::String(text) => {
                if let ImportMode::Origins(origins) = &mut *self.mode {
                    origins.mark(&self.path, text, self.gathered.len(), &mut self.marks);
                }
                self.gathered.push_str(text);
            }
            serde_json::Value::Array(items) => self.collect_items(items),
            serde_json::Value::Object(members) => {
                for (name, json) in members {
                    if known_key(name).is_none() {
                        self.gathered.push_str(name);
                    }
                    self.deeper(self.records_origins(), PathStep::Member(name), |import| {
                        import.collect(json)
                    });
                }
            }
            _ => {}
        }
    }

    fn collect_items(&mut self, items: &[serde_json::Value]) {
        for (index, item) in items.iter().enumerate() {
            self.deeper(self.records_origins(), PathStep::Element(index), |import| {
                import.collect(item)
            });
        }
    }

    /// The next text of this length. Strings are taken in the order they were gathered in.
    fn take(&mut self, text: &str) -> Text {
        let start = self.taken;
        self.taken = start + text.len();
        // Texts beyond four gigabytes are empty.
        if self.taken <= self.buffer.len() {
            self.buffer.slice(start..self.taken)
        } else {
            self.buffer.slice(0..0)
        }
    }

    fn value(&mut self, json: &serde_json::Value) -> Value {
        match json {
            serde_json::Value::Null => Value::None,
            serde_json::Value::Bool(flag) => Value::Bool(*flag),
            serde_json::Value::Number(number) => self::number(number),
            serde_json::Value::String(text) => Value::Text(self.take(text)),
            serde_json::Value::Array(items) => self.list(items),
            serde_json::Value::Object(members) => {
                let entries = self.entries(members);
                Value::caller_dict(entries, self.watch())
            }
        }
    }

    fn list(&mut self, items: &[serde_json::Value]) -> Value {
        self.items(items, Self::value)
    }

    fn items(
        &mut self,
        items: &[serde_json::Value],
        read: impl Fn(&mut Self, &serde_json::Value) -> Value,
    ) -> Value {
        let mut values = Vec::with_capacity(items.len());
        for (index, item) in items.iter().enumerate() {
            values.push(self.deeper(self.records_reads(), PathStep::Element(index), |import| {
                read(import, item)
            }));
        }
        Value::caller_list(values, self.watch())
    }

    fn entries(&mut self, members: &Map<String, serde_json::Value>) -> Vec<(Value, Value)> {
        let mut entries = Vec::with_capacity(members.len());
        for (name, json) in members {
            let key = known_key(name).unwrap_or_else(|| self.take(name));
            let value = self
                .deeper(self.records_reads(), PathStep::Member(name), |import| import.value(json));
            entries.push((Value::Text(key), value));
        }
        entries
    }

    fn watch(&self) -> Option<Watch> {
        match &*self.mode {
            ImportMode::Reads(log) => Some(Watch::new(log, &self.path)),
            _ => None,
        }
    }

    fn records_origins(&self) -> bool {
        matches!(self.mode, ImportMode::Origins(_))
    }

    fn records_reads(&self) -> bool {
        matches!(self.mode, ImportMode::Reads(_))
    }

    /// Calls `run` one level deeper; `tracked` means that the path is kept.
    fn deeper<T>(
        &mut self,
        tracked: bool,
        step: PathStep<'_>,
        run: impl FnOnce(&mut Self) -> T,
    ) -> T {
        if !tracked {
            return run(self);
        }
        let before = self.path.len();
        match step {
            PathStep::Element(index) => push_index(&mut self.path, index),
            PathStep::Member(name) => {
                self.path.push('.');
                self.path.push_str(name);
            }
        }
        let result = run(self);
        self.path.truncate(before);
        result
    }
}

/// Appends `[index]` without the cost of formatting, since every message has an index.
fn push_index(path: &mut String, index: usize) {
    let mut digits = [0; 20];
    let mut first = digits.len();
    let mut rest = index;
    loop {
        first -= 1;
        digits[first] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    path.push('[');
    path.extend(digits[first..].iter().copied().map(char::from));
    path.push(']');
}

/// The number of strings and their total length.
#[derive(Default)]
struct Strings {
    number: usize,
    bytes: usize,
}

impl Strings {
    fn count(&mut self, json: &serde_json::Value) {
        match json {
            serde_json::Value::String(text) => {
                self.number += 1;
                self.bytes += text.len();
            }
            serde_json::Value::Array(items) => items.iter().for_each(|item| self.count(item)),
            serde_json::Value::Object(members) => members.iter().for_each(|(name, json)| {
                // Known keys are not gathered; the space reserved for them is small.
                self.bytes += name.len();
                self.count(json);
            }),
            _ => {}
        }
    }
}

/// A step from a value to a value inside it.
enum PathStep<'n> {
    Element(usize),
    Member(&'n str),
}

thread_local! {
    /// The most frequent keys, made once per thread.
    static KEYS: [(&'static str, Text); 12] = [
        "role", "content", "tool_calls", "tool_call_id", "type", "function", "name", "arguments", "description", "parameters",
        "properties", "id",
    ]
    .map(|name| (name, Text::uncharged(name, Vec::new())));
}

fn known_key(name: &str) -> Option<Text> {
    // The keys are gone while the thread ends.
    let find = |keys: &[(&str, Text); 12]| {
        keys.iter().find(|(known, _)| *known == name).map(|(_, text)| text.clone())
    };
    KEYS.try_with(find).ok().flatten()
}

fn number(number: &Number) -> Value {
    if let Some(small) = number.as_i64() {
        return Value::Int(small);
    }
    let text = number.to_string();
    match text.parse() {
        Ok(integer) => Value::caller_integer(integer),
        Err(_) => Value::Float(number.as_f64().or_else(|| text.parse().ok()).unwrap_or(f64::NAN)),
    }
}

fn with_reasoning(mut entries: Vec<(Value, Value)>) -> Vec<(Value, Value)> {
    let place = |entries: &[(Value, Value)], name: &str| {
        entries.iter().position(|(key, _)| key.is_text(name))
    };
    let given = ["reasoning_content", "thinking", "reasoning"].into_iter().find_map(|name| {
        let (_, value) = &entries[place(&entries, name)?];
        (!value.is_none()).then(|| value.clone())
    });
    let Some(reasoning) = given else { return entries };
    let name = |name: &str| Value::Text(Text::uncharged(name, Vec::new()));
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
pub(super) fn plain(json: &serde_json::Value) -> Value {
    value(json, "", &mut ImportMode::Plain)
}
