//! Converts JSON to values of the template engine: plain, with the origin of every string and key,
//! or recording reads for a probe.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use serde_json::{Map, Number};

use super::polyfill::{Node, NodeMember, NodeMembers, PolyfillMessage};
use super::prompt::{MAX_PATH, PathList, Paths};
use crate::api::ROLES;
use crate::jinja::{AccessLog, Mark, Text, Value, Watch};

/// The request members that marked bytes of a prompt come from; the `origin` of a mark is an index
/// into them.
#[derive(Debug, Default)]
pub(crate) struct Origins {
    paths: PathList,
    /// The origins of paths that several strings may share.
    shared: HashMap<Arc<str>, u32>,
}

impl Origins {
    /// The origin of a member that may already have one.
    fn of(&mut self, path: &Arc<str>) -> u32 {
        if let Some(known) = self.shared.get(path) {
            return *known;
        }
        let origin = self.paths.push(path);
        self.shared.insert(Arc::clone(path), origin);
        origin
    }

    /// The members, indexed by origin.
    pub(crate) fn into_paths(self) -> Paths {
        self.paths.finish()
    }
}

/// What to record besides the values.
pub(crate) enum ImportMode<'a> {
    /// Nothing.
    Plain,
    /// The origin of every string and every key.
    Origins(&'a mut Origins),
    /// Every read.
    Reads(&'a Rc<AccessLog>),
}

/// A value at this path.
pub(crate) fn value(json: &serde_json::Value, path: &str, mode: &mut ImportMode<'_>) -> Value {
    let mut import = Import::new(path, std::slice::from_ref(json), mode);
    import.collect(json, None);
    import.finish_gathering();
    import.value(json)
}

/// A list at this path.
pub(crate) fn list(items: &[serde_json::Value], path: &str, mode: &mut ImportMode<'_>) -> Value {
    let mut import = Import::new(path, items, mode);
    import.collect_items(items, None);
    import.finish_gathering();
    import.list(items)
}

/// The messages. `nodes` are the same messages with their origins, if polyfills changed them.
///
/// Unless `raw`, reasoning also gets the names that transformers 5.23 gives it: the first of
/// reasoning_content, thinking and reasoning that is not null becomes reasoning_content, and
/// thinking if there is no such member. Members that are null stay, since transformers renders them
/// as None.
pub(crate) fn messages(
    messages: &[serde_json::Value],
    nodes: Option<&[PolyfillMessage]>,
    raw: bool,
    mode: &mut ImportMode<'_>,
) -> Value {
    let mut import = Import::new("messages", messages, mode);
    if first_number(messages).is_some() {
        import.collect_number(None);
    }
    for (index, message) in messages.iter().enumerate() {
        let node = nodes.and_then(|nodes| nodes.get(index)).map(|message| &message.members);
        import.deeper(import.records_origins(), PathStep::Element(index), |import| match message {
            serde_json::Value::Object(members) => import.collect_members(members, node, true),
            message => import.collect(message, None),
        });
    }
    import.finish_gathering();
    import.items(messages, |import, message| match message {
        serde_json::Value::Object(members) if !raw => {
            let entries = with_reasoning(import.entries(members));
            Value::caller_dict(entries, import.watch())
        }
        message => import.value(message),
    })
}

/// The maximum length of `[index]`.
const MAX_INDEX: usize = 22;
/// The usual length in bytes of a path below the root.
const STEPS: usize = 64;

/// An import of one JSON tree. Its strings are first gathered in one buffer, and the values are
/// views of that buffer. A conversation has thousands of strings, and allocating each would take
/// longer than most renders.
struct Import<'w, 'a> {
    mode: &'w mut ImportMode<'a>,
    /// The current path, kept only when needed: for origins while strings are gathered, for reads
    /// while values are created.
    path: String,
    /// The origin of the current path, if it has one.
    path_origin: Option<u32>,
    gathered: String,
    marks: Vec<Mark>,
    buffer: Text,
    /// The number of bytes of the buffer that were handed out.
    taken: usize,
    /// The origins of the remaining numbers: one for each number that has a key, and one for all
    /// numbers of each list.
    number_origins: VecDeque<u32>,
    /// The origin of the next numbers.
    number_origin: Option<u32>,
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
        let (mut marks, mut origin) = (Vec::new(), None);
        if let ImportMode::Origins(origins) = &mut *mode {
            marks.reserve_exact(strings.number);
            origins.paths.reserve(strings.number + 1);
            origin = Some(origins.paths.push(path));
        }
        let mut from = String::with_capacity(path.len() + STEPS);
        from.push_str(path);
        let buffer = Text::uncharged("", Vec::new());
        Import {
            mode,
            path: from,
            path_origin: origin,
            gathered: String::with_capacity(strings.bytes),
            marks,
            buffer,
            taken: 0,
            number_origins: VecDeque::new(),
            number_origin: origin,
        }
    }

    /// Moves the gathered strings into the buffer.
    fn finish_gathering(&mut self) {
        self.buffer = Text::uncharged_string(
            std::mem::take(&mut self.gathered),
            std::mem::take(&mut self.marks),
        );
    }

    /// Gathers the keys and strings of a value. `node` is the same value with its origins, if a
    /// polyfill made it; otherwise all of it comes from the current path.
    fn collect(&mut self, json: &serde_json::Value, node: Option<&Node>) {
        match json {
            serde_json::Value::String(text) => {
                match node {
                    Some(Node::Text(composed)) if text.starts_with(composed.as_str()) => {
                        for segment in composed.segments() {
                            self.mark(segment.start..segment.end, Some(&segment.path));
                        }
                    }
                    _ => self.mark(0..text.len(), None),
                }
                self.gathered.push_str(text);
            }
            serde_json::Value::Array(items) => self.collect_items(items, node),
            serde_json::Value::Object(members) => {
                self.collect_members(members, node.and_then(Node::as_map), false);
            }
            _ => {}
        }
    }

    fn collect_items(&mut self, items: &[serde_json::Value], node: Option<&Node>) {
        let nodes = if let Some(Node::List(nodes)) = node { nodes.as_slice() } else { &[] };
        if let Some(first) = first_number(items) {
            self.collect_number(nodes.get(first));
        }
        for (index, item) in items.iter().enumerate() {
            self.deeper(self.records_origins(), PathStep::Element(index), |import| {
                import.collect(item, nodes.get(index))
            });
        }
    }

    /// Gathers the members of an object. If a message's role is one of OpenAI's, it is a choice
    /// among names that the template knows, so it has no origin. A marker that the template builds
    /// from it is then the special token that it spells.
    fn collect_members(
        &mut self,
        members: &Map<String, serde_json::Value>,
        nodes: Option<&NodeMembers>,
        of_message: bool,
    ) {
        for (index, (name, json)) in members.iter().enumerate() {
            let node = nodes.and_then(|nodes| nodes.member(index, name));
            match node {
                None => self.mark(0..name.len(), None),
                Some(NodeMember { path: Some(path), .. }) => self.mark(0..name.len(), Some(path)),
                Some(_) => {}
            }
            self.gathered.push_str(name);
            let node = node.map(|member| &member.node);
            self.deeper(self.records_origins(), PathStep::Member(name), |import| match json {
                serde_json::Value::String(role)
                    if of_message && name == "role" && ROLES.contains(&role.as_str()) =>
                {
                    import.gathered.push_str(role);
                }
                serde_json::Value::Number(_) => import.collect_number(node),
                json => import.collect(json, node),
            });
        }
    }

    /// Records the origin of the number at the current path, or of the numbers of the list there.
    fn collect_number(&mut self, node: Option<&Node>) {
        if let ImportMode::Origins(origins) = &mut *self.mode {
            let origin = match node {
                Some(Node::Number(_, path)) => origins.of(path),
                _ => *self.path_origin.get_or_insert_with(|| origins.paths.push(&self.path)),
            };
            self.number_origins.push_back(origin);
        }
    }

    /// Marks a range of the text that is gathered next as coming from the member at `path`, or from
    /// the current path.
    fn mark(&mut self, range: Range<usize>, path: Option<&Arc<str>>) {
        let ImportMode::Origins(origins) = &mut *self.mode else { return };
        if range.is_empty() {
            return;
        }
        let origin = match path {
            Some(path) => origins.of(path),
            // Keys have the path of their object.
            None => *self.path_origin.get_or_insert_with(|| origins.paths.push(&self.path)),
        };
        let at = |at: usize| u32::try_from(self.gathered.len() + at).unwrap_or(u32::MAX);
        let (start, end) = (at(range.start), at(range.end));
        match self.marks.last_mut() {
            Some(last) if last.end == start && last.origin == origin => last.end = end,
            _ => self.marks.push(Mark { start, end, origin }),
        }
    }

    /// The next text of this length. Strings are taken in the order they were gathered in.
    fn take(&mut self, text: &str) -> Text {
        let start = self.taken;
        self.taken = start + text.len();
        // Texts that do not fit into four gigabytes become empty.
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
            serde_json::Value::Number(number) => self::number(number, self.number_origin),
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
        let of_list = first_number(items).and_then(|_| self.number_origins.pop_front());
        for (index, item) in items.iter().enumerate() {
            self.number_origin = of_list;
            values.push(self.deeper(self.records_reads(), PathStep::Element(index), |import| {
                read(import, item)
            }));
        }
        Value::caller_list(values, self.watch())
    }

    fn entries(&mut self, members: &Map<String, serde_json::Value>) -> Vec<(Value, Value)> {
        let mut entries = Vec::with_capacity(members.len());
        for (name, json) in members {
            let key = self.take(name);
            if json.is_number() {
                self.number_origin = self.number_origins.pop_front();
            }
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

    /// Calls `run` one level deeper. `tracked` says whether the path is kept.
    fn deeper<T>(
        &mut self,
        tracked: bool,
        step: PathStep<'_>,
        run: impl FnOnce(&mut Self) -> T,
    ) -> T {
        let before = self.path.len();
        let is_too_long = match step {
            PathStep::Element(_) => before + MAX_INDEX > MAX_PATH,
            PathStep::Member(name) => before + 1 + name.len() > MAX_PATH,
        };
        if !tracked || is_too_long {
            return run(self);
        }
        let path_origin = self.path_origin.take();
        match step {
            PathStep::Element(index) => push_index(&mut self.path, index),
            PathStep::Member(name) => {
                self.path.push('.');
                self.path.push_str(name);
            }
        }
        let result = run(self);
        self.path.truncate(before);
        self.path_origin = path_origin;
        result
    }
}

/// The index of the first number in a list.
fn first_number(items: &[serde_json::Value]) -> Option<usize> {
    items.iter().position(serde_json::Value::is_number)
}

/// Appends `[index]`. Formatting would be too slow, because every message has an index.
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

/// The number of keys and strings, and their total length.
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
                self.number += 1;
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

fn number(number: &Number, origin: Option<u32>) -> Value {
    if let Some(small) = number.as_i64() {
        return Value::Int(small, origin);
    }
    let text = number.to_string();
    match text.parse() {
        Ok(integer) => Value::caller_integer(integer, origin),
        Err(_) => {
            let float = number.as_f64().or_else(|| text.parse().ok()).unwrap_or(f64::NAN);
            Value::Float(float, origin)
        }
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

/// Imports a plain value, for tests.
#[cfg(test)]
pub(super) fn plain(json: &serde_json::Value) -> Value {
    value(json, "", &mut ImportMode::Plain)
}
