//! JSON that records the request members of its names, numbers and strings.

use std::sync::Arc;

use serde_json::{Number, Value};

use super::segmented_text::SegmentedText;
use crate::template::prompt::MAX_PATH;

/// The maximum length of `[index]`.
const MAX_INDEX: usize = 22;

#[derive(Debug, Clone, PartialEq)]
pub(in crate::template) enum Node {
    Null,
    Bool(bool),
    /// A number, and its path in the request.
    Number(Number, Arc<str>),
    Text(SegmentedText),
    List(Vec<Node>),
    Map(NodeMembers),
}

/// The members of an object, in order.
#[derive(Debug, Clone, PartialEq, Default)]
pub(in crate::template) struct NodeMembers(Vec<NodeMember>);

/// One member of an object.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::template) struct NodeMember {
    pub(in crate::template) name: String,
    /// The path in the request that the name came from; `None` for a name that a polyfill added.
    pub(in crate::template) path: Option<Arc<str>>,
    pub(in crate::template) node: Node,
}

impl Node {
    /// A value of the request at `path`. Strings and numbers get their own paths. The names of an
    /// object get the path of the object, and the numbers of a list get the path of the list.
    pub(super) fn from_member(value: &Value, path: &str) -> Node {
        Node::at(value, &Arc::from(path))
    }

    /// Like [`from_member`](Self::from_member), with a shared path.
    fn at(value: &Value, path: &Arc<str>) -> Node {
        match value {
            Value::Array(items) => {
                let item = |(index, item): (usize, &Value)| match item {
                    Value::Null | Value::Bool(_) | Value::Number(_) => {
                        Node::parsed_from(item, path)
                    }
                    item => {
                        let inner = || format!("{path}[{index}]");
                        Node::at(item, &inside(path, MAX_INDEX, inner))
                    }
                };
                Node::List(items.iter().enumerate().map(item).collect())
            }
            Value::Object(members) => {
                let member = |(name, value): (&String, &Value)| NodeMember {
                    name: name.clone(),
                    path: Some(Arc::clone(path)),
                    node: Node::at(
                        value,
                        &inside(path, 1 + name.len(), || format!("{path}.{name}")),
                    ),
                };
                Node::Map(NodeMembers(members.iter().map(member).collect()))
            }
            plain => Node::parsed_from(plain, path),
        }
    }

    /// A value parsed from the text of the member at `path`. Each part gets that path.
    pub(super) fn parsed_from(value: &Value, path: &Arc<str>) -> Node {
        match value {
            Value::Null => Node::Null,
            Value::Bool(flag) => Node::Bool(*flag),
            Value::Number(number) => Node::Number(number.clone(), Arc::clone(path)),
            Value::String(text) => Node::Text(SegmentedText::from_member(text.clone(), path)),
            Value::Array(items) => {
                Node::List(items.iter().map(|item| Node::parsed_from(item, path)).collect())
            }
            Value::Object(members) => {
                let member = |(name, value): (&String, &Value)| NodeMember {
                    name: name.clone(),
                    path: Some(Arc::clone(path)),
                    node: Node::parsed_from(value, path),
                };
                Node::Map(NodeMembers(members.iter().map(member).collect()))
            }
        }
    }

    /// Text that a polyfill adds.
    pub(super) fn literal(text: &str) -> Node {
        Node::Text(SegmentedText::literal(text))
    }

    /// An object whose names a polyfill adds.
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

    pub(in crate::template) fn as_map(&self) -> Option<&NodeMembers> {
        if let Node::Map(members) = self { Some(members) } else { None }
    }

    pub(super) fn as_map_mut(&mut self) -> Option<&mut NodeMembers> {
        if let Node::Map(members) = self { Some(members) } else { None }
    }

    pub(super) fn to_json(&self) -> Value {
        match self {
            Node::Null => Value::Null,
            Node::Bool(flag) => Value::Bool(*flag),
            Node::Number(number, _) => Value::Number(number.clone()),
            Node::Text(text) => Value::String(text.as_str().to_owned()),
            Node::List(items) => Value::Array(items.iter().map(Node::to_json).collect()),
            Node::Map(members) => members.to_json(),
        }
    }
}

/// The path of a value inside the value at `path`, or the same path if the step of up to this
/// length would make it too long.
fn inside(path: &Arc<str>, step: usize, inner: impl FnOnce() -> String) -> Arc<str> {
    if path.len() + step > MAX_PATH { Arc::clone(path) } else { inner().into() }
}

impl NodeMembers {
    /// Members whose names a polyfill adds.
    pub(super) fn of<'a>(members: impl IntoIterator<Item = (&'a str, Node)>) -> NodeMembers {
        NodeMembers(members.into_iter().map(|(name, node)| NodeMember::added(name, node)).collect())
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &NodeMember> {
        self.0.iter()
    }

    /// The member with this name. `index` is its usual position and is checked first.
    pub(in crate::template) fn member(&self, index: usize, name: &str) -> Option<&NodeMember> {
        let there = self.0.get(index).filter(|member| member.name == name);
        there.or_else(|| self.0.iter().find(|member| member.name == name))
    }

    /// The member, even if it is null.
    pub(super) fn get(&self, name: &str) -> Option<&Node> {
        self.0.iter().find(|member| member.name == name).map(|member| &member.node)
    }

    pub(super) fn get_mut(&mut self, name: &str) -> Option<&mut Node> {
        self.0.iter_mut().find(|member| member.name == name).map(|member| &mut member.node)
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

    /// Replaces a member including its name, or appends it.
    pub(super) fn replace(&mut self, member: NodeMember) {
        match self.0.iter_mut().find(|old| old.name == member.name) {
            Some(old) => *old = member,
            None => self.0.push(member),
        }
    }

    /// Replaces a member, or inserts it before `next`.
    pub(super) fn set_before(&mut self, next: &str, name: &str, node: Node) {
        let at = self.0.iter().position(|member| member.name == next);
        self.set_at(at.unwrap_or(self.0.len()), name, node);
    }

    /// Replaces a member, or inserts it after `previous`.
    pub(super) fn set_after(&mut self, previous: &str, name: &str, node: Node) {
        let at = self.0.iter().position(|member| member.name == previous);
        self.set_at(at.map_or(self.0.len(), |at| at + 1), name, node);
    }

    fn set_at(&mut self, at: usize, name: &str, node: Node) {
        match self.get_mut(name) {
            Some(old) => *old = node,
            None => self.0.insert(at, NodeMember::added(name, node)),
        }
    }

    pub(super) fn remove(&mut self, name: &str) -> Option<Node> {
        let at = self.0.iter().position(|member| member.name == name)?;
        Some(self.0.remove(at).node)
    }

    /// Keeps the members that `keep` accepts. Returns whether one was removed.
    pub(super) fn retain(&mut self, keep: impl Fn(&str, &Node) -> bool) -> bool {
        let before = self.0.len();
        self.0.retain(|member| keep(&member.name, &member.node));
        self.0.len() != before
    }

    pub(super) fn to_json(&self) -> Value {
        let member = |member: &NodeMember| (member.name.clone(), member.node.to_json());
        Value::Object(self.0.iter().map(member).collect())
    }
}

impl NodeMember {
    /// A member whose name a polyfill adds.
    fn added(name: &str, node: Node) -> NodeMember {
        NodeMember { name: name.to_owned(), path: None, node }
    }
}
