//! JSON whose strings are [`SegmentedText`]s.

use std::sync::Arc;

use serde_json::{Number, Value};

use super::segmented_text::{Segment, SegmentedText};

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Node {
    Null,
    Bool(bool),
    Number(Number),
    Text(SegmentedText),
    List(Vec<Node>),
    Map(NodeMembers),
}

/// The members of an object, in order.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct NodeMembers(Vec<(String, Node)>);

impl Node {
    /// A value of the request at `path`. Each string gets its own path.
    pub(super) fn from_member(value: &Value, path: &str) -> Node {
        match value {
            Value::Array(items) => {
                let items = items.iter().enumerate();
                Node::List(
                    items
                        .map(|(index, item)| Node::from_member(item, &format!("{path}[{index}]")))
                        .collect(),
                )
            }
            Value::Object(members) => {
                let members = members.iter();
                Node::map(members.map(|(name, value)| {
                    (name.as_str(), Node::from_member(value, &format!("{path}.{name}")))
                }))
            }
            plain => Node::parsed_from(plain, &Arc::from(path)),
        }
    }

    /// A value parsed from the text of the member at `path`. Each string gets that path.
    pub(super) fn parsed_from(value: &Value, path: &Arc<str>) -> Node {
        match value {
            Value::Null => Node::Null,
            Value::Bool(flag) => Node::Bool(*flag),
            Value::Number(number) => Node::Number(number.clone()),
            Value::String(text) => Node::Text(SegmentedText::from_member(text.clone(), path)),
            Value::Array(items) => {
                Node::List(items.iter().map(|item| Node::parsed_from(item, path)).collect())
            }
            Value::Object(members) => Node::map(
                members.iter().map(|(name, value)| (name.as_str(), Node::parsed_from(value, path))),
            ),
        }
    }

    /// Text that a polyfill adds.
    pub(super) fn literal(text: &str) -> Node {
        Node::Text(SegmentedText::literal(text))
    }

    pub(super) fn map<'a>(members: impl IntoIterator<Item = (&'a str, Node)>) -> Node {
        Node::Map(NodeMembers::of(members))
    }

    /// A part of content: `{"type": kind, name: text}`.
    pub(super) fn part(kind: &str, name: &str, text: SegmentedText) -> Node {
        Node::map([("type", Node::literal(kind)), (name, Node::Text(text))])
    }

    pub(super) fn as_text(&self) -> Option<&SegmentedText> {
        if let Node::Text(text) = self { Some(text) } else { None }
    }

    pub(super) fn as_map(&self) -> Option<&NodeMembers> {
        if let Node::Map(members) = self { Some(members) } else { None }
    }

    pub(super) fn as_map_mut(&mut self) -> Option<&mut NodeMembers> {
        if let Node::Map(members) = self { Some(members) } else { None }
    }

    pub(super) fn to_json(&self) -> Value {
        match self {
            Node::Null => Value::Null,
            Node::Bool(flag) => Value::Bool(*flag),
            Node::Number(number) => Value::Number(number.clone()),
            Node::Text(text) => Value::String(text.as_str().to_owned()),
            Node::List(items) => Value::Array(items.iter().map(Node::to_json).collect()),
            Node::Map(members) => members.to_json(),
        }
    }

    /// Calls `visit(pointer, text, segments)` for every string. `pointer` is a JSON pointer (RFC
    /// 6901).
    pub(super) fn visit(
        &self,
        pointer: &mut String,
        visit: &mut dyn FnMut(&str, &str, &[Segment]),
    ) {
        match self {
            Node::Text(text) => visit(pointer, text.as_str(), text.segments()),
            Node::List(items) => {
                for (index, item) in items.iter().enumerate() {
                    with_token(pointer, &index.to_string(), |pointer| item.visit(pointer, visit));
                }
            }
            Node::Map(members) => members.visit(pointer, visit),
            Node::Null | Node::Bool(_) | Node::Number(_) => {}
        }
    }
}

impl NodeMembers {
    pub(super) fn of<'a>(members: impl IntoIterator<Item = (&'a str, Node)>) -> NodeMembers {
        NodeMembers(members.into_iter().map(|(name, node)| (name.to_owned(), node)).collect())
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &Node)> {
        self.0.iter().map(|(name, node)| (name.as_str(), node))
    }

    /// The member, null or not.
    pub(super) fn get(&self, name: &str) -> Option<&Node> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, node)| node)
    }

    pub(super) fn get_mut(&mut self, name: &str) -> Option<&mut Node> {
        self.0.iter_mut().find(|(key, _)| key == name).map(|(_, node)| node)
    }

    pub(super) fn text(&self, name: &str) -> Option<&SegmentedText> {
        self.get(name).and_then(Node::as_text)
    }

    pub(super) fn str(&self, name: &str) -> Option<&str> {
        self.text(name).map(SegmentedText::as_str)
    }

    /// Replaces a member, or appends it.
    pub(super) fn set(&mut self, name: &str, node: Node) {
        self.set_at(self.0.len(), name, node);
    }

    /// Replaces a member, or inserts it before `next`.
    pub(super) fn set_before(&mut self, next: &str, name: &str, node: Node) {
        let at = self.0.iter().position(|(key, _)| key == next);
        self.set_at(at.unwrap_or(self.0.len()), name, node);
    }

    /// Replaces a member, or inserts it after `previous`.
    pub(super) fn set_after(&mut self, previous: &str, name: &str, node: Node) {
        let at = self.0.iter().position(|(key, _)| key == previous);
        self.set_at(at.map_or(self.0.len(), |at| at + 1), name, node);
    }

    fn set_at(&mut self, at: usize, name: &str, node: Node) {
        match self.get_mut(name) {
            Some(old) => *old = node,
            None => self.0.insert(at, (name.to_owned(), node)),
        }
    }

    pub(super) fn remove(&mut self, name: &str) -> Option<Node> {
        let at = self.0.iter().position(|(key, _)| key == name)?;
        Some(self.0.remove(at).1)
    }

    /// Keeps the members that `keep` accepts; returns whether one was removed.
    pub(super) fn retain(&mut self, keep: impl Fn(&str, &Node) -> bool) -> bool {
        let before = self.0.len();
        self.0.retain(|(name, node)| keep(name, node));
        self.0.len() != before
    }

    pub(super) fn to_json(&self) -> Value {
        Value::Object(self.0.iter().map(|(name, node)| (name.clone(), node.to_json())).collect())
    }

    pub(super) fn visit(
        &self,
        pointer: &mut String,
        visit: &mut dyn FnMut(&str, &str, &[Segment]),
    ) {
        for (name, node) in &self.0 {
            with_token(pointer, &name.replace('~', "~0").replace('/', "~1"), |pointer| {
                node.visit(pointer, visit)
            });
        }
    }
}

fn with_token(pointer: &mut String, token: &str, then: impl FnOnce(&mut String)) {
    let end = pointer.len();
    pointer.push('/');
    pointer.push_str(token);
    then(pointer);
    pointer.truncate(end);
}
