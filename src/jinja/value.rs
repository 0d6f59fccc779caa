//! The values of a render, with Python's types.
//!
//! They live on one thread and for one render. Containers drop without recursion, however deep they nest, and what may refer
//! to itself (lists that grow, namespaces) is emptied when the render ends.

use std::cell::{Cell, OnceCell, Ref, RefCell};
use std::collections::HashMap;
use std::fmt;
use std::rc::Rc;

use num_bigint::BigInt;

use super::budget::{Budget, Charge};
use super::compare;
use super::error::{Error, Result};
use super::object::Object;
use super::text::Text;
use super::watch::Watch;

/// A Python value.
#[derive(Clone)]
pub(crate) enum Value {
    Undefined(Rc<Undefined>),
    None,
    Bool(bool),
    Int(i64),
    /// An integer that does not fit 64 bits.
    Big(Rc<BigInt>),
    Float(f64),
    Text(Text),
    List(Rc<List>),
    Tuple(Rc<List>),
    Dict(Rc<Dict>),
    Range(Rc<Range>),
    Namespace(Rc<Namespace>),
    Object(Rc<Object>),
}

/// Why there is no value, for the message when it is used.
#[derive(Debug, Clone)]
pub(crate) enum Undefined {
    /// No variable has this name.
    Variable(Text),
    /// A value of this type has no such attribute.
    Attribute(&'static str, Text),
    /// A value of this type has no such element.
    Element(&'static str, Value),
    /// The sandbox does not give this attribute of this type.
    Unsafe(&'static str, Text),
    /// An expression without an `else`, an empty sequence, a missing macro argument.
    Other(&'static str),
    /// A parameter that a call did not fill.
    Parameter(Text),
}

/// The items of a list or tuple.
pub(crate) struct List {
    items: RefCell<Vec<Value>>,
    /// Lists that the template made may grow; the caller's data may not.
    own: bool,
    watch: Option<Watch>,
    charge: Cell<Option<Charge>>,
}

/// An immutable mapping in order of insertion.
pub(crate) struct Dict {
    entries: Vec<(Value, Value)>,
    index: OnceCell<HashMap<u64, Vec<u32>>>,
    watch: Option<Watch>,
    _charge: Charge,
}

/// `range(start, stop, step)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) start: i64,
    pub(crate) stop: i64,
    pub(crate) step: i64,
}

/// `namespace(...)`: attributes that can be set.
#[derive(Default)]
pub(crate) struct Namespace {
    attributes: RefCell<Vec<(Text, Value)>>,
}

/// Dicts of this size and more get a hash index.
const INDEXED: usize = 12;

impl Value {
    /// A list of the template's.
    pub(crate) fn list(budget: &Rc<Budget>, items: Vec<Value>) -> Result<Value> {
        Ok(Value::List(Rc::new(List::charged(budget, items)?)))
    }

    pub(crate) fn tuple(budget: &Rc<Budget>, items: Vec<Value>) -> Result<Value> {
        Ok(Value::Tuple(Rc::new(List::charged(budget, items)?)))
    }

    /// A dict of the template's; later entries replace earlier ones of the same key.
    pub(crate) fn dict(budget: &Rc<Budget>, entries: Vec<(Value, Value)>) -> Result<Value> {
        let charge = budget.charge(entries.len() * size_of::<(Value, Value)>() + size_of::<Dict>())?;
        let mut dict =
            Dict { entries: Vec::with_capacity(entries.len()), index: OnceCell::new(), watch: None, _charge: charge };
        let mut seen: HashMap<u64, Vec<u32>> = HashMap::new();
        for (key, value) in entries {
            let hash = compare::hash(&key)?;
            let places = seen.entry(hash).or_default();
            let mut known = None;
            for place in places.iter() {
                if compare::equal(budget, &dict.entries[*place as usize].0, &key)? {
                    known = Some(*place as usize);
                }
            }
            match known {
                Some(place) => dict.entries[place].1 = value,
                None => {
                    places.push(u32::try_from(dict.entries.len()).unwrap_or(u32::MAX));
                    dict.entries.push((key, value));
                }
            }
        }
        Ok(Value::Dict(Rc::new(dict)))
    }

    /// A list of the caller's data.
    pub(crate) fn outer_list(items: Vec<Value>, watch: Option<Watch>) -> Value {
        Value::List(Rc::new(List { items: RefCell::new(items), own: false, watch, charge: Cell::new(None) }))
    }

    /// A dict of the caller's data; keys are distinct strings.
    pub(crate) fn outer_dict(entries: Vec<(Value, Value)>, watch: Option<Watch>) -> Value {
        Value::Dict(Rc::new(Dict { entries, index: OnceCell::new(), watch, _charge: Charge::none() }))
    }

    pub(crate) fn text(budget: &Rc<Budget>, text: impl Into<String>) -> Result<Value> {
        Ok(Value::Text(Text::plain(budget, text)?))
    }

    pub(crate) fn undefined(why: Undefined) -> Value {
        Value::Undefined(Rc::new(why))
    }

    pub(crate) fn object(object: Object) -> Value {
        Value::Object(Rc::new(object))
    }

    /// An integer, small where it fits.
    pub(crate) fn integer(number: BigInt) -> Value {
        match i64::try_from(&number) {
            Ok(small) => Value::Int(small),
            Err(_) => Value::Big(Rc::new(number)),
        }
    }

    pub(crate) fn count(count: usize) -> Value {
        Value::Int(i64::try_from(count).unwrap_or(i64::MAX))
    }

    pub(crate) fn as_text(&self) -> Option<&Text> {
        match self {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    pub(crate) fn as_str(&self) -> Option<&str> {
        self.as_text().map(Text::as_str)
    }

    pub(crate) fn is_undefined(&self) -> bool {
        matches!(self, Value::Undefined(_))
    }

    pub(crate) fn is_none(&self) -> bool {
        matches!(self, Value::None)
    }

    /// The number of an int or bool that fits.
    pub(crate) fn as_int(&self) -> Option<i64> {
        match self {
            Value::Int(number) => Some(*number),
            Value::Bool(flag) => Some(i64::from(*flag)),
            _ => None,
        }
    }

    /// Python's truth.
    pub(crate) fn is_true(&self) -> bool {
        match self {
            Value::Undefined(_) | Value::None => false,
            Value::Bool(flag) => *flag,
            Value::Int(number) => *number != 0,
            Value::Big(_) | Value::Namespace(_) => true,
            Value::Float(number) => *number != 0.0,
            Value::Text(text) => !text.is_empty(),
            Value::List(list) | Value::Tuple(list) => list.len() != 0,
            Value::Dict(dict) => dict.len() != 0,
            Value::Range(range) => range.len() != 0,
            Value::Object(object) => object.is_true(),
        }
    }

    /// Python's `type(value).__name__`.
    pub(crate) fn type_name(&self) -> &'static str {
        match self {
            Value::Undefined(_) => "Undefined",
            Value::None => "NoneType",
            Value::Bool(_) => "bool",
            Value::Int(_) | Value::Big(_) => "int",
            Value::Float(_) => "float",
            Value::Text(text) => {
                if text.is_safe() {
                    "Markup"
                } else {
                    "str"
                }
            }
            Value::List(_) => "list",
            Value::Tuple(_) => "tuple",
            Value::Dict(_) => "dict",
            Value::Range(_) => "range",
            Value::Namespace(_) => "Namespace",
            Value::Object(object) => object.type_name(),
        }
    }

    /// How Jinja2 calls the owner of a missing attribute.
    pub(crate) fn owner_name(&self) -> &'static str {
        match self {
            Value::None => "None",
            Value::Bool(_) => "bool object",
            Value::Int(_) | Value::Big(_) => "int object",
            Value::Float(_) => "float object",
            Value::Text(text) if text.is_safe() => "markupsafe.Markup object",
            Value::Text(_) => "str object",
            Value::List(_) => "list object",
            Value::Tuple(_) => "tuple object",
            Value::Dict(_) => "dict object",
            Value::Range(_) => "range object",
            Value::Namespace(_) => "jinja2.utils.Namespace object",
            Value::Undefined(_) => "jinja2.runtime.Undefined object",
            Value::Object(object) => object.owner_name(),
        }
    }

    /// An error where the value is undefined: what Jinja2 says when it is used.
    pub(crate) fn defined(&self) -> Result<&Value> {
        match self {
            Value::Undefined(why) => Err(why.error()),
            value => Ok(value),
        }
    }
}

impl Undefined {
    /// What using it raises.
    pub(crate) fn error(&self) -> Error {
        match self {
            Undefined::Variable(name) => Error::undefined(format!("'{}' is undefined", name.as_str())),
            Undefined::Attribute(owner, name) => Error::undefined(format!("'{owner}' has no attribute '{}'", name.as_str())),
            Undefined::Element(owner, key) => Error::undefined(format!("{owner} has no element {key:?}")),
            Undefined::Unsafe(owner, name) => {
                Error::unsupported(format!("access to attribute '{}' of '{owner}' object is unsafe.", name.as_str()))
            }
            Undefined::Other(what) => Error::undefined(*what),
            Undefined::Parameter(name) => Error::undefined(format!("parameter '{}' was not provided", name.as_str())),
        }
    }
}

impl List {
    fn charged(budget: &Rc<Budget>, items: Vec<Value>) -> Result<List> {
        let charge = budget.charge(items.capacity() * size_of::<Value>() + size_of::<List>())?;
        Ok(List { items: RefCell::new(items), own: true, watch: None, charge: Cell::new(Some(charge)) })
    }

    pub(crate) fn items(&self) -> Ref<'_, Vec<Value>> {
        if let Some(watch) = &self.watch {
            watch.note_items(self.items.borrow().len());
        }
        self.items.borrow()
    }

    /// Whether reads of it are noted.
    pub(crate) fn is_watched(&self) -> bool {
        self.watch.is_some()
    }

    /// The items, without a note that they were read.
    pub(crate) fn unnoted(&self) -> Ref<'_, Vec<Value>> {
        self.items.borrow()
    }

    pub(crate) fn len(&self) -> usize {
        self.items.borrow().len()
    }

    /// The item at a place that exists.
    pub(crate) fn get(&self, index: usize) -> Option<Value> {
        let item = self.items.borrow().get(index).cloned()?;
        if let Some(watch) = &self.watch {
            watch.note_item(index);
        }
        Some(item)
    }

    /// Whether it may grow.
    pub(crate) fn is_own(&self) -> bool {
        self.own
    }

    /// Changes the items of a list that may grow.
    pub(crate) fn change<T>(&self, budget: &Rc<Budget>, change: impl FnOnce(&mut Vec<Value>) -> T) -> Result<T> {
        let mut items = self.items.borrow_mut();
        let before = items.capacity();
        if items.len() == before {
            let capacity = (before * 2).max(4);
            let charge = budget.charge(capacity * size_of::<Value>() + size_of::<List>())?;
            items.reserve_exact(capacity - before);
            self.charge.set(Some(charge));
        }
        Ok(change(&mut items))
    }

    /// Forgets the items; ends whatever circles there were.
    pub(crate) fn clear(&self) {
        let items = std::mem::take(&mut *self.items.borrow_mut());
        release(items);
    }
}

impl Dict {
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether reads of it are noted.
    pub(crate) fn is_watched(&self) -> bool {
        self.watch.is_some()
    }

    /// All entries, noted as read.
    pub(crate) fn entries(&self) -> &[(Value, Value)] {
        if let Some(watch) = &self.watch {
            watch.note_iteration();
            for (key, _) in &self.entries {
                watch.note_member(key);
            }
        }
        &self.entries
    }

    /// All entries, without a note.
    pub(crate) fn unnoted(&self) -> &[(Value, Value)] {
        &self.entries
    }

    /// The keys, noted as an iteration.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &Value> {
        if let Some(watch) = &self.watch {
            watch.note_iteration();
        }
        self.entries.iter().map(|(key, _)| key)
    }

    /// The value of a key.
    pub(crate) fn get(&self, budget: &Rc<Budget>, key: &Value) -> Result<Option<&Value>> {
        if let Value::Text(name) = key {
            return Ok(self.get_name(name));
        }
        let hash = compare::hash(key)?;
        for place in self.places(hash) {
            if compare::equal(budget, &self.entries[place].0, key)? {
                return Ok(Some(&self.entries[place].1));
            }
        }
        Ok(None)
    }

    /// The value of a string key.
    pub(crate) fn get_name(&self, name: &str) -> Option<&Value> {
        let found = if self.entries.len() < INDEXED {
            self.entries.iter().find(|(key, _)| key.as_str() == Some(name))
        } else {
            self.places(compare::hash_str(name)).map(|place| &self.entries[place]).find(|(key, _)| key.as_str() == Some(name))
        };
        let (key, value) = found?;
        if let Some(watch) = &self.watch {
            watch.note_member(key);
        }
        Some(value)
    }

    /// Where keys of this hash are.
    fn places(&self, hash: u64) -> impl Iterator<Item = usize> + '_ {
        let index = self.index.get_or_init(|| {
            let mut index: HashMap<u64, Vec<u32>> = HashMap::with_capacity(self.entries.len());
            for (place, (key, _)) in self.entries.iter().enumerate() {
                let hash = compare::hash(key).unwrap_or_default();
                index.entry(hash).or_default().push(u32::try_from(place).unwrap_or(u32::MAX));
            }
            index
        });
        index.get(&hash).into_iter().flatten().map(|place| *place as usize)
    }
}

impl Range {
    pub(crate) fn len(&self) -> usize {
        let (start, stop, step) = (i128::from(self.start), i128::from(self.stop), i128::from(self.step));
        let span = if step > 0 { stop - start } else { start - stop };
        if span <= 0 { 0 } else { usize::try_from((span - 1) / step.abs() + 1).unwrap_or(usize::MAX) }
    }

    pub(crate) fn get(&self, index: usize) -> i64 {
        self.start.wrapping_add(self.step.wrapping_mul(i64::try_from(index).unwrap_or(i64::MAX)))
    }

    pub(crate) fn contains(&self, number: i64) -> bool {
        let offset = i128::from(number) - i128::from(self.start);
        let inside =
            if self.step > 0 { number >= self.start && number < self.stop } else { number <= self.start && number > self.stop };
        inside && offset % i128::from(self.step) == 0
    }
}

impl Namespace {
    pub(crate) fn get(&self, name: &str) -> Option<Value> {
        self.attributes.borrow().iter().find(|(known, _)| known.as_str() == name).map(|(_, value)| value.clone())
    }

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
        release(vec![old]);
    }

    pub(crate) fn attributes(&self) -> Ref<'_, Vec<(Text, Value)>> {
        self.attributes.borrow()
    }

    pub(crate) fn clear(&self) {
        let attributes = std::mem::take(&mut *self.attributes.borrow_mut());
        release(attributes.into_iter().map(|(_, value)| value).collect());
    }
}

/// Drops values one after another: nesting a million deep must not use a million frames of the stack.
pub(crate) fn release(mut values: Vec<Value>) {
    while let Some(value) = values.pop() {
        match value {
            Value::List(list) | Value::Tuple(list) => {
                if let Some(list) = Rc::into_inner(list) {
                    values.append(&mut list.items.borrow_mut());
                }
            }
            Value::Dict(dict) => {
                if let Some(mut dict) = Rc::into_inner(dict) {
                    values.extend(std::mem::take(&mut dict.entries).into_iter().flat_map(|(key, value)| [key, value]));
                }
            }
            Value::Namespace(namespace) => {
                if let Some(namespace) = Rc::into_inner(namespace) {
                    values.extend(std::mem::take(&mut *namespace.attributes.borrow_mut()).into_iter().map(|(_, value)| value));
                }
            }
            Value::Object(object) => {
                if let Some(mut object) = Rc::into_inner(object) {
                    object.take_values(&mut values);
                }
            }
            Value::Undefined(why) => {
                if let Some(Undefined::Element(_, key)) = Rc::into_inner(why) {
                    values.push(key);
                }
            }
            _ => {}
        }
    }
}

/// Whether dropping a value can lead to dropping others.
fn nests(value: &Value) -> bool {
    matches!(value, Value::List(_) | Value::Tuple(_) | Value::Dict(_) | Value::Namespace(_) | Value::Object(_))
}

impl Drop for List {
    fn drop(&mut self) {
        let items = self.items.get_mut();
        if items.iter().any(nests) {
            release(std::mem::take(items));
        }
    }
}

impl Drop for Dict {
    fn drop(&mut self) {
        if self.entries.iter().any(|(key, value)| nests(key) || nests(value)) {
            release(std::mem::take(&mut self.entries).into_iter().flat_map(|(key, value)| [key, value]).collect());
        }
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        self.clear();
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Int(number) => write!(f, "{number}"),
            Value::Text(text) => f.write_str(&super::print::quoted_string(&text.chars().take(60).collect::<String>())),
            Value::None => f.write_str("None"),
            Value::Bool(true) => f.write_str("True"),
            Value::Bool(false) => f.write_str("False"),
            Value::Float(number) => f.write_str(&super::number::float(*number)),
            other => write!(f, "<{}>", other.type_name()),
        }
    }
}
