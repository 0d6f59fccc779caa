//! The values of a render, with Python's types: how they are created, and what Python tells about
//! each of them. What Python does with them is in the other files.
//!
//! Values belong to one thread and one render. Containers drop without recursion. Lists and
//! namespaces that may contain themselves are emptied when the render ends.

pub(crate) mod access;
pub(crate) mod arguments;
pub(crate) mod compare;
mod containers;
pub(crate) mod format;
pub(crate) mod markup;
pub(crate) mod number;
pub(crate) mod operators;
pub(crate) mod print;
pub(crate) mod search;
pub(crate) mod sequence;
pub(crate) mod string_methods;
pub(crate) mod text;
mod types;

use std::cell::RefCell;
use std::rc::Rc;

use num_bigint::BigInt;

use super::budget::{Budget, Charge};
use super::error::{ErrorKind, Result, TemplateError, shown};
use access::Watch;
use text::Text;
use types::{Big, OVERHEAD};

pub(crate) use types::{
    Dict, Generator, LoopObject, LoopSource, MacroObject, Namespace, Object, Range, ScopeId,
    Undefined, Value, ValueList, ViewKind, may_nest,
};

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

impl ViewKind {
    pub(crate) fn type_name(self) -> &'static str {
        match self {
            ViewKind::Keys => "dict_keys",
            ViewKind::Values => "dict_values",
            ViewKind::Items => "dict_items",
        }
    }
}

impl LoopObject {
    /// The index of the current item.
    pub(crate) fn index(&self) -> usize {
        self.count.get().saturating_sub(1)
    }

    /// The number of items, if it is known without running the template.
    pub(crate) fn known_length(&self) -> Option<usize> {
        let rest = match &*self.source.borrow() {
            _ if self.code.test.is_some() => return None,
            LoopSource::Items { rest, .. } => rest.len(),
            LoopSource::Shared(object) => match &**object {
                Object::Generator(generator) => generator.len(),
                _ => return None,
            },
            LoopSource::Ended => 0,
        };
        Some(self.count.get() + self.lookahead.borrow().len() + rest)
    }
}

impl Generator {
    /// Creates a generator object.
    pub(crate) fn object(
        budget: &Rc<Budget>,
        mut items: Vec<Value>,
        failure: Option<TemplateError>,
        type_name: &'static str,
    ) -> Result<Object> {
        let failed = failure.as_ref().map_or(0, TemplateError::bytes);
        let charge = budget
            .charge(items.capacity() * size_of::<Value>() + size_of::<Generator>() + failed)?;
        items.reverse();
        let (rest, failure) = (RefCell::new(items), RefCell::new(failure));
        Ok(Object::Generator(Generator { rest, failure, type_name, _charge: charge }))
    }

    /// Creates the result of a filter that is a generator in Python. An error is raised on iteration,
    /// but a limit at once.
    pub(crate) fn value(
        budget: &Rc<Budget>,
        items: Vec<Value>,
        failure: Option<TemplateError>,
    ) -> Result<Value> {
        match failure {
            Some(error) if error.kind() == ErrorKind::Limit => Err(error),
            failure => Ok(Value::object(Generator::object(budget, items, failure, "generator")?)),
        }
    }

    /// Removes and returns the remaining items.
    pub(crate) fn drain(&self) -> Result<Vec<Value>> {
        let mut items = std::mem::take(&mut *self.rest.borrow_mut());
        items.reverse();
        self.failure.borrow_mut().take().map_or(Ok(items), Err)
    }

    /// The next item.
    pub(crate) fn next(&self) -> Result<Option<Value>> {
        match self.rest.borrow_mut().pop() {
            Some(item) => Ok(Some(item)),
            None => self.failure.borrow_mut().take().map_or(Ok(None), Err),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.rest.borrow().len()
    }

    /// The remaining items, without consuming them.
    pub(crate) fn remaining(&self) -> Vec<Value> {
        self.rest.borrow().iter().rev().cloned().collect()
    }
}

impl Object {
    pub(crate) fn type_name(&self) -> &'static str {
        match self {
            Object::Function("range" | "dict" | "namespace", _) => "type",
            Object::Function(..) => "function",
            Object::Method { .. } => "builtin_function_or_method",
            Object::Macro(_) => "Macro",
            Object::Loop(_) => "LoopContext",
            Object::View { kind, .. } => kind.type_name(),
            Object::Generator(generator) => generator.type_name,
            Object::Cycler { .. } => "Cycler",
            Object::Joiner { .. } => "Joiner",
            Object::Template => "TemplateReference",
            Object::Block(_) => "BlockReference",
        }
    }

    pub(crate) fn owner_name(&self) -> &'static str {
        match self {
            Object::Function(..) => "function object",
            Object::Method { .. } => "builtin_function_or_method object",
            Object::Macro(_) => "jinja2.runtime.Macro object",
            Object::Loop(_) => "jinja2.runtime.LoopContext object",
            Object::View { kind: ViewKind::Keys, .. } => "dict_keys object",
            Object::View { kind: ViewKind::Values, .. } => "dict_values object",
            Object::View { kind: ViewKind::Items, .. } => "dict_items object",
            Object::Generator(_) => "generator object",
            Object::Cycler { .. } => "jinja2.utils.Cycler object",
            Object::Joiner { .. } => "jinja2.utils.Joiner object",
            Object::Template => "jinja2.runtime.TemplateReference object",
            Object::Block(_) => "jinja2.runtime.BlockReference object",
        }
    }

    pub(crate) fn is_true(&self) -> bool {
        match self {
            Object::View { items, .. } => !items.is_empty(),
            _ => true,
        }
    }

    pub(crate) fn is_callable(&self) -> bool {
        !matches!(self, Object::View { .. } | Object::Generator(_) | Object::Template)
    }

    /// `repr` without addresses.
    pub(crate) fn describe(&self) -> String {
        match self {
            Object::Function(name, _) => format!("<function {name}>"),
            Object::Method { receiver, name } => {
                format!("<built-in method {} of {} object>", name.as_str(), receiver.type_name())
            }
            Object::Macro(MacroObject { name: Some(name), .. }) => {
                // A name has no character that Python would escape.
                format!("<Macro '{}'>", name.as_str())
            }
            Object::Macro(_) => "<Macro anonymous>".to_owned(),
            Object::Loop(of) => match of.known_length() {
                Some(length) => format!("<LoopContext {}/{length}>", of.count.get()),
                None => "<LoopContext>".to_owned(),
            },
            Object::Template => "<TemplateReference None>".to_owned(),
            Object::Block(_) => "<BlockReference>".to_owned(),
            Object::Cycler { .. } => "<jinja2.utils.Cycler object>".to_owned(),
            Object::Joiner { .. } => "<jinja2.utils.Joiner object>".to_owned(),
            Object::View { kind, .. } => kind.type_name().to_owned(),
            Object::Generator(generator) => format!("<{} object>", generator.type_name),
        }
    }

    /// Whether two distinct objects are equal.
    pub(crate) fn is_same(&self, other: &Object) -> bool {
        match (self, other) {
            (Object::Function(_, a), Object::Function(_, b)) => a == b,
            _ => false,
        }
    }
}
