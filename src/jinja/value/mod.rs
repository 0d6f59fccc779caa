//! The values of a render, with Python's types.
//!
//! Values belong to one thread and one render. Containers drop without recursion. Lists and
//! namespaces that may contain themselves are emptied when the render ends.

pub(crate) mod access;
pub(crate) mod compare;
pub(crate) mod dict;
mod drop;
pub(crate) mod iterate;
mod list;
pub(crate) mod markup;
pub(crate) mod number;
pub(crate) mod print;
pub(crate) mod runtime;
pub(crate) mod text;

use std::cell::{Cell, Ref, RefCell};
use std::fmt;
use std::ops::Deref;
use std::rc::Rc;

use num_bigint::BigInt;

use super::budget::{Budget, Charge};
use super::error::{Result, TemplateError, shown};
use crate::jinja::quote::quoted_string;
use access::Watch;
use dict::Dict;
use runtime::Object;
use text::Text;

pub(super) use drop::{drop_iteratively, may_nest};
pub(crate) use list::ValueList;

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
    number: BigInt,
    origin: Option<u32>,
    _charge: Charge,
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

/// `namespace(...)`, whose attributes can be set.
pub(crate) struct Namespace {
    attributes: RefCell<Vec<(Text, Value)>>,
    tracked: Cell<bool>,
    _charge: Charge,
}

/// The accounted size of an item: the value, and the heap memory of a small one such as a range.
pub(super) const ITEM: usize = size_of::<Value>() + 40;
/// The accounted size of a container without items.
pub(super) const OVERHEAD: usize = 128;

impl Value {
    /// Creates a list of the template.
    pub(crate) fn list(budget: &Rc<Budget>, items: Vec<Value>) -> Result<Value> {
        Ok(Value::List(Rc::new(ValueList::charged(budget, items)?)))
    }

    /// Creates a group of `groupby`: the key and the items.
    pub(crate) fn group(budget: &Rc<Budget>, grouper: Value, items: Value) -> Result<Value> {
        let mut list = ValueList::charged(budget, vec![grouper, items])?;
        list.group = true;
        Ok(Value::Tuple(Rc::new(list)))
    }

    pub(crate) fn tuple(budget: &Rc<Budget>, items: Vec<Value>) -> Result<Value> {
        Ok(Value::Tuple(Rc::new(ValueList::charged(budget, items)?)))
    }

    /// Creates a dict of the template. A later entry replaces an earlier one with the same key.
    pub(crate) fn dict(budget: &Rc<Budget>, entries: Vec<(Value, Value)>) -> Result<Value> {
        Ok(Value::Dict(Rc::new(Dict::charged(budget, entries)?)))
    }

    /// Creates a list of the caller's data.
    pub(crate) fn caller_list(items: Vec<Value>, watch: Option<Watch>) -> Value {
        let mut list = ValueList::new(items, None);
        (list.growable, list.watch) = (false, watch);
        Value::List(Rc::new(list))
    }

    /// Creates a dict of the caller's data. Keys are distinct strings.
    pub(crate) fn caller_dict(entries: Vec<(Value, Value)>, watch: Option<Watch>) -> Value {
        Value::Dict(Rc::new(Dict::from_caller(entries, watch)))
    }

    pub(crate) fn text(budget: &Rc<Budget>, text: impl Into<String>) -> Result<Value> {
        Ok(Value::Text(Text::plain(budget, text)?))
    }

    pub(crate) fn object(object: Object) -> Value {
        Value::Object(Rc::new(object))
    }

    pub(crate) fn undefined(why: Undefined) -> Value {
        Value::Undefined(Rc::new(why))
    }

    /// Creates an integer of the caller's data.
    pub(crate) fn caller_integer(number: BigInt, origin: Option<u32>) -> Value {
        match i64::try_from(&number) {
            Ok(small) => Value::Int(small, origin),
            Err(_) => Value::Big(Rc::new(Big { number, origin, _charge: Charge::none() })),
        }
    }

    /// Creates a small integer of the template.
    pub(crate) fn int(number: i64) -> Value {
        Value::Int(number, None)
    }

    /// Creates a float of the template.
    pub(crate) fn float(number: f64) -> Value {
        Value::Float(number, None)
    }

    pub(crate) fn number_origin(&self) -> Option<u32> {
        match self {
            Value::Int(_, origin) | Value::Float(_, origin) => *origin,
            Value::Big(number) => number.origin,
            _ => None,
        }
    }

    /// The same value; a number gets this origin.
    pub(crate) fn with_number_origin(self, origin: Option<u32>) -> Value {
        match self {
            Value::Int(number, _) => Value::Int(number, origin),
            Value::Float(number, _) => Value::Float(number, origin),
            Value::Big(big) => match Rc::try_unwrap(big) {
                Ok(big) => Value::Big(Rc::new(Big { origin, ..big })),
                Err(shared) => Value::Big(Rc::new(Big {
                    number: shared.number.clone(),
                    origin,
                    _charge: Charge::none(),
                })),
            },
            other => other,
        }
    }

    /// Creates an integer of the template.
    pub(crate) fn charged_integer(budget: &Rc<Budget>, number: BigInt) -> Value {
        match i64::try_from(&number) {
            Ok(small) => Value::int(small),
            Err(_) => {
                let bytes = usize::try_from(number.bits() / 8).unwrap_or(usize::MAX);
                Value::Big(Rc::new(Big {
                    number,
                    origin: None,
                    _charge: budget.charge_unchecked(bytes.saturating_add(OVERHEAD)),
                }))
            }
        }
    }

    pub(crate) fn count(count: usize) -> Value {
        Value::int(i64::try_from(count).unwrap_or(i64::MAX))
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

    /// Whether it is this string.
    pub(crate) fn is_text(&self, text: &str) -> bool {
        matches!(self, Value::Text(own) if own.eq_str(text))
    }

    pub(crate) fn is_undefined(&self) -> bool {
        matches!(self, Value::Undefined(_))
    }

    pub(crate) fn is_none(&self) -> bool {
        matches!(self, Value::None)
    }

    /// The value of an int or bool that fits 64 bits.
    pub(crate) fn as_int(&self) -> Option<i64> {
        match self {
            Value::Int(number, _) => Some(*number),
            Value::Bool(flag) => Some(i64::from(*flag)),
            _ => None,
        }
    }

    /// Python's truth value.
    pub(crate) fn is_true(&self) -> bool {
        match self {
            Value::Undefined(_) | Value::None => false,
            Value::Bool(flag) => *flag,
            Value::Int(number, _) => *number != 0,
            Value::Big(_) | Value::Namespace(_) => true,
            Value::Float(number, _) => *number != 0.0,
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
            Value::Int(..) | Value::Big(_) => "int",
            Value::Float(..) => "float",
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

    /// The name of the owner in Jinja2's message for a missing attribute.
    pub(crate) fn owner_name(&self) -> &'static str {
        match self {
            Value::None => "None",
            Value::Bool(_) => "bool object",
            Value::Int(..) | Value::Big(_) => "int object",
            Value::Float(..) => "float object",
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

    /// The value, or Jinja2's error if it is undefined.
    pub(crate) fn defined(&self) -> Result<&Value> {
        match self {
            Value::Undefined(why) => Err(why.error()),
            value => Ok(value),
        }
    }
}

impl Budget {
    /// Accounts for a number of values until the charge is dropped.
    pub(crate) fn charge_values(self: &Rc<Budget>, count: usize) -> Result<Charge> {
        self.charge(count.saturating_mul(size_of::<Value>()))
    }
}

impl Undefined {
    /// The error that using the value raises.
    pub(crate) fn error(&self) -> TemplateError {
        match self {
            Undefined::Variable(name) => {
                TemplateError::undefined(format!("'{}' is undefined", shown(name)))
            }
            Undefined::Attribute(owner, name) => {
                TemplateError::undefined(format!("'{owner}' has no attribute '{}'", shown(name)))
            }
            Undefined::Element(owner, key) => {
                TemplateError::undefined(format!("{owner} has no element {key:?}"))
            }
            Undefined::Unsafe(owner, name) => TemplateError::unsupported(format!(
                "access to attribute '{}' of '{owner}' object is unsafe.",
                shown(name)
            )),
            Undefined::Other(what) => TemplateError::undefined(*what),
            Undefined::Parameter(name) => {
                TemplateError::undefined(format!("parameter '{}' was not provided", shown(name)))
            }
        }
    }
}

impl Range {
    pub(crate) fn len(&self) -> usize {
        let (start, stop, step) =
            (i128::from(self.start), i128::from(self.stop), i128::from(self.step));
        let span = if step > 0 { stop - start } else { start - stop };
        if span <= 0 {
            0
        } else {
            usize::try_from((span - 1) / step.abs() + 1).unwrap_or(usize::MAX)
        }
    }

    pub(crate) fn get(&self, index: usize) -> i64 {
        self.start.wrapping_add(self.step.wrapping_mul(i64::try_from(index).unwrap_or(i64::MAX)))
    }

    pub(crate) fn contains(&self, number: i64) -> bool {
        let offset = i128::from(number) - i128::from(self.start);
        let inside = if self.step > 0 {
            number >= self.start && number < self.stop
        } else {
            number <= self.start && number > self.stop
        };
        inside && offset % i128::from(self.step) == 0
    }
}

impl Namespace {
    /// Creates a namespace. Attribute names are distinct.
    pub(crate) fn new(budget: &Rc<Budget>, attributes: Vec<(Text, Value)>) -> Result<Namespace> {
        let charge = budget.charge(attributes.len() * 2 * ITEM + OVERHEAD)?;
        let tracked = Cell::new(false);
        Ok(Namespace { attributes: RefCell::new(attributes), tracked, _charge: charge })
    }

    /// Marks it as tracked. Returns whether it was tracked before.
    pub(crate) fn mark_tracked(&self) -> bool {
        self.tracked.replace(true)
    }

    pub(crate) fn len(&self) -> usize {
        self.attributes.borrow().len()
    }

    pub(crate) fn get(&self, budget: &Budget, name: &str) -> Result<Option<Value>> {
        let attributes = self.attributes.borrow();
        budget.step(attributes.len() as u64 / 16)?;
        for (known, value) in attributes.iter() {
            if known.len() == name.len() {
                budget.read(name.len())?;
                if known.eq_str(name) {
                    return Ok(Some(value.clone()));
                }
            }
        }
        Ok(None)
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
        drop_iteratively(vec![old]);
    }

    pub(crate) fn attributes(&self) -> Ref<'_, Vec<(Text, Value)>> {
        self.attributes.borrow()
    }

    pub(crate) fn clear(&self) {
        let attributes = std::mem::take(&mut *self.attributes.borrow_mut());
        drop_iteratively(attributes.into_iter().map(|(_, value)| value).collect());
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Int(number, _) => write!(f, "{number}"),
            Value::Text(text) => {
                f.write_str(&quoted_string(&text.chars().take(60).collect::<String>()))
            }
            Value::None => f.write_str("None"),
            Value::Bool(true) => f.write_str("True"),
            Value::Bool(false) => f.write_str("False"),
            Value::Float(number, _) => f.write_str(&self::number::float(*number)),
            other => write!(f, "<{}>", other.type_name()),
        }
    }
}
