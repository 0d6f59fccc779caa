//! The types of values and of the containers that hold values, which drop without recursion.
//!
//! Containers of the template are accounted. Those of the caller are not.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::VecDeque;
use std::ops::Deref;
use std::rc::Rc;
use std::sync::Arc;

use num_bigint::BigInt;

use super::access::Watch;
use super::text::Text;
use crate::jinja::budget::Charge;
use crate::jinja::error::TemplateError;
use crate::jinja::syntax::ast::{Block, BuiltinId, For, Macro};

/// A Python value.
#[derive(Clone)]
pub(crate) enum Value {
    Undefined(Rc<Undefined>),
    None,
    Bool(bool),
    /// An integer, and the origin of one that comes from the caller's data.
    Int(i64, Option<u32>),
    /// An integer outside 64 bits.
    Big(Rc<Big>),
    /// A float, and the origin of one that comes from the caller's data.
    Float(f64, Option<u32>),
    Text(Text),
    List(Rc<ValueList>),
    Tuple(Rc<ValueList>),
    Dict(Rc<Dict>),
    Range(Rc<Range>),
    Namespace(Rc<Namespace>),
    Object(Rc<Object>),
}

/// Why a value is undefined, for the message when it is used.
#[derive(Debug, Clone)]
pub(crate) enum Undefined {
    /// There is no such variable.
    Variable(Text),
    /// The type has no such attribute.
    Attribute(&'static str, Text),
    /// The value has no such element.
    Element(&'static str, Value),
    /// The sandbox hides the attribute of this type.
    Unsafe(&'static str, Text),
    /// The result of a condition without `else`, an empty sequence, or a missing neighbour or
    /// caller.
    Other(&'static str),
    /// The call did not pass this parameter.
    Parameter(Text),
}

/// An integer outside 64 bits.
#[derive(Debug)]
pub(crate) struct Big {
    pub(super) number: BigInt,
    pub(super) origin: Option<u32>,
    pub(super) _charge: Charge,
}

impl Deref for Big {
    type Target = BigInt;

    fn deref(&self) -> &BigInt {
        &self.number
    }
}

/// `range(start, stop, step)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) start: i64,
    pub(crate) stop: i64,
    pub(crate) step: i64,
}

/// The items of a list or tuple.
pub(crate) struct ValueList {
    pub(super) items: RefCell<Vec<Value>>,
    /// Lists of the template may grow. Lists of the caller may not.
    pub(super) growable: bool,
    pub(super) watch: Option<Watch>,
    /// Whether it is a group of `groupby`, whose items have names.
    pub(super) group: bool,
    /// Whether the interpreter tracks it as a possible cycle.
    pub(super) tracked: Cell<bool>,
    pub(super) charge: Cell<Option<Charge>>,
}

/// An immutable mapping in insertion order.
pub(crate) struct Dict {
    pub(super) entries: Vec<(Value, Value)>,
    /// Sorted hashes of the keys, with the positions of their entries.
    pub(super) index: OnceCell<Vec<(u64, u32)>>,
    pub(super) watch: Option<Watch>,
    pub(super) _charge: Charge,
}

/// `namespace(...)`, whose attributes can be set.
pub(crate) struct Namespace {
    pub(super) attributes: RefCell<Vec<(Text, Value)>>,
    pub(super) tracked: Cell<bool>,
    pub(super) _charge: Charge,
}

pub(crate) enum Object {
    /// A global function: its name, and its index in the table of functions.
    Function(&'static str, BuiltinId),
    /// A bound method.
    Method {
        receiver: Value,
        name: Text,
    },
    Macro(MacroObject),
    Loop(LoopObject),
    /// A view that `keys()`, `values()` or `items()` of a dict returns.
    View {
        kind: ViewKind,
        items: Vec<Value>,
        _charge: Charge,
    },
    /// `self`: the template with its blocks.
    Template,
    /// `self.name`: a block that can be called.
    Block(Arc<Block>),
    /// The result of filters such as `map`, which can be iterated once.
    Generator(Generator),
    Cycler {
        items: Vec<Value>,
        at: Cell<usize>,
        _charge: Charge,
    },
    Joiner {
        separator: Value,
        used: Cell<bool>,
    },
}

/// A scope, by its index in the interpreter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ScopeId(pub(crate) usize);

/// A macro and the scope of its definition.
pub(crate) struct MacroObject {
    pub(crate) code: Arc<Macro>,
    pub(crate) name: Option<Text>,
    pub(crate) scope: ScopeId,
    /// Whether the body escapes what it prints.
    pub(crate) autoescape: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ViewKind {
    Keys,
    Values,
    Items,
}

/// `loop`: the state of a loop. Items are pulled one by one, as late as in Jinja2.
pub(crate) struct LoopObject {
    pub(crate) code: Arc<For>,
    /// The scope that contains the loop.
    pub(crate) scope: ScopeId,
    pub(crate) source: RefCell<LoopSource>,
    /// Items that were pulled before their turn.
    pub(crate) lookahead: RefCell<VecDeque<Value>>,
    pub(crate) previous: RefCell<Option<Value>>,
    pub(crate) current: RefCell<Option<Value>>,
    /// The number of items so far, including the current one.
    pub(crate) count: Cell<usize>,
    /// The number of enclosing calls of a recursive loop.
    pub(crate) depth: usize,
    /// The last arguments of `loop.changed`.
    pub(crate) last_changed: RefCell<Option<Value>>,
}

/// Where the items of a loop come from.
pub(crate) enum LoopSource {
    Items {
        rest: std::vec::IntoIter<Value>,
        _charge: Charge,
    },
    /// A generator or another loop.
    Shared(Rc<Object>),
    Ended,
}

/// Items that are yielded once, optionally followed by an error.
pub(crate) struct Generator {
    /// In reverse order.
    pub(super) rest: RefCell<Vec<Value>>,
    pub(super) failure: RefCell<Option<TemplateError>>,
    pub(super) type_name: &'static str,
    pub(super) _charge: Charge,
}

/// The accounted size of an item: the value, and the heap memory of a small one such as a range.
pub(super) const ITEM: usize = size_of::<Value>() + 40;
/// The accounted size of a container without items.
pub(super) const OVERHEAD: usize = 128;

/// Drops values iteratively. A nesting depth of a million must not need a million stack frames.
fn drop_iteratively(mut values: Vec<Value>) {
    while let Some(value) = values.pop() {
        match value {
            Value::List(list) | Value::Tuple(list) => {
                if let Some(list) = Rc::into_inner(list) {
                    values.append(&mut list.items.borrow_mut());
                }
            }
            Value::Dict(dict) => {
                // A dict without nested containers drops directly.
                if let Some(mut dict) = Rc::into_inner(dict)
                    && dict.may_nest()
                {
                    values.extend(dict.take_values());
                }
            }
            Value::Namespace(namespace) => {
                if let Some(namespace) = Rc::into_inner(namespace) {
                    values.extend(
                        std::mem::take(&mut *namespace.attributes.borrow_mut())
                            .into_iter()
                            .map(|(_, value)| value),
                    );
                }
            }
            Value::Object(object) => {
                if let Some(mut object) = Rc::into_inner(object) {
                    object.take_values(&mut values);
                }
            }
            Value::Undefined(why) => {
                if let Some(mut why) = Rc::into_inner(why) {
                    values.extend(why.take_key());
                }
            }
            _ => {}
        }
    }
}

/// Whether dropping a value may drop other values.
pub(crate) fn may_nest(value: &Value) -> bool {
    match value {
        Value::List(_)
        | Value::Tuple(_)
        | Value::Dict(_)
        | Value::Namespace(_)
        | Value::Object(_) => true,
        Value::Undefined(why) => matches!(**why, Undefined::Element(..)),
        _ => false,
    }
}

impl Undefined {
    /// The missing key, if it is a container.
    fn take_key(&mut self) -> Option<Value> {
        match self {
            Undefined::Element(_, key) if may_nest(key) => {
                Some(std::mem::replace(key, Value::None))
            }
            _ => None,
        }
    }
}

impl Drop for Undefined {
    fn drop(&mut self) {
        if let Some(key) = self.take_key() {
            drop_iteratively(vec![key]);
        }
    }
}

impl ValueList {
    /// Removes the items, which breaks reference cycles.
    pub(crate) fn clear(&self) {
        let items = std::mem::take(&mut *self.items.borrow_mut());
        drop_iteratively(items);
    }
}

impl Drop for ValueList {
    fn drop(&mut self) {
        let items = self.items.get_mut();
        if items.iter().any(may_nest) {
            drop_iteratively(std::mem::take(items));
        }
    }
}

impl Dict {
    /// Removes and returns all keys and values.
    fn take_values(&mut self) -> impl Iterator<Item = Value> + use<> {
        std::mem::take(&mut self.entries).into_iter().flat_map(|(key, value)| [key, value])
    }

    /// Whether dropping the dict may drop other containers.
    fn may_nest(&self) -> bool {
        self.entries.iter().any(|(key, value)| may_nest(key) || may_nest(value))
    }
}

impl Drop for Dict {
    fn drop(&mut self) {
        if self.may_nest() {
            drop_iteratively(self.take_values().collect());
        }
    }
}

impl Namespace {
    pub(crate) fn set(&self, name: &Text, value: Value) {
        let mut attributes = self.attributes.borrow_mut();
        let old = match attributes.iter_mut().find(|(known, _)| known.as_str() == name.as_str()) {
            Some((_, old)) => std::mem::replace(old, value),
            None => {
                attributes.push((name.clone(), value));
                return;
            }
        };
        drop(attributes);
        drop_iteratively(vec![old]);
    }

    /// Removes the attributes, which breaks reference cycles.
    pub(crate) fn clear(&self) {
        let attributes = std::mem::take(&mut *self.attributes.borrow_mut());
        drop_iteratively(attributes.into_iter().map(|(_, value)| value).collect());
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        self.clear();
    }
}

impl Object {
    /// Moves the contained values to a list of values to drop.
    fn take_values(&mut self, values: &mut Vec<Value>) {
        match self {
            Object::Method { receiver, .. } => {
                values.push(std::mem::replace(receiver, Value::None))
            }
            Object::Loop(of) => {
                if let LoopSource::Items { rest, .. } = of.source.get_mut() {
                    values.extend(rest);
                }
                values.extend(of.lookahead.get_mut().drain(..));
                values.extend(
                    of.previous
                        .take()
                        .into_iter()
                        .chain(of.current.take())
                        .chain(of.last_changed.take()),
                );
            }
            Object::View { items, .. } | Object::Cycler { items, .. } => values.append(items),
            Object::Generator(generator) => values.append(&mut generator.rest.borrow_mut()),
            Object::Joiner { separator, .. } => {
                values.push(std::mem::replace(separator, Value::None))
            }
            Object::Function(..) | Object::Macro(_) | Object::Template | Object::Block(_) => {}
        }
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        let mut values = Vec::new();
        self.take_values(&mut values);
        drop_iteratively(values);
    }
}
