//! What a loop goes over.

use std::rc::Rc;

use super::budget::Budget;
use super::error::{Error, Result};
use super::object::Object;
use super::value::Value;

/// The most numbers a range may have: the sandbox's bound.
pub(crate) const MAX_RANGE: usize = 100_000;

/// `list(value)`: everything that Python iterates over. A generator is used up by it.
pub(crate) fn items(budget: &Rc<Budget>, value: &Value) -> Result<Vec<Value>> {
    let items = match value {
        Value::List(list) | Value::Tuple(list) => {
            budget.can_allocate(list.len() * size_of::<Value>())?;
            list.items().clone()
        }
        Value::Dict(dict) => dict.keys().cloned().collect(),
        Value::Text(text) => {
            budget.can_allocate(text.len() * size_of::<Value>())?;
            let mut items = Vec::with_capacity(text.len());
            let mut at = 0;
            for c in text.chars() {
                items.push(Value::Text(text.slice(at..at + c.len_utf8()).with_safe(false)));
                at += c.len_utf8();
            }
            items
        }
        Value::Undefined(_) => Vec::new(),
        Value::Range(range) => {
            budget.can_allocate(range.len() * size_of::<Value>())?;
            (0..range.len()).map(|index| Value::Int(range.get(index))).collect()
        }
        Value::Object(object) => match &**object {
            Object::View { items, .. } => items.clone(),
            Object::Generator(generator) => generator.drain()?,
            Object::Loop(of) => of.rest(),
            other => return Err(not_iterable(other.type_name())),
        },
        other => return Err(not_iterable(other.type_name())),
    };
    budget.step(items.len() as u64)?;
    Ok(items)
}

/// As [`items`], for loops and filters of a template: None is taken for nothing, which Jinja2 refuses. Templates that loop
/// over `tools` without asking whether there are any then work without tools.
pub(crate) fn loop_items(budget: &Rc<Budget>, value: &Value) -> Result<Vec<Value>> {
    if value.is_none() { Ok(Vec::new()) } else { items(budget, value) }
}

fn not_iterable(type_name: &str) -> Error {
    Error::value(format!("'{type_name}' object is not iterable"))
}

/// `len(value)`.
pub(crate) fn length(value: &Value) -> Result<usize> {
    Ok(match value {
        Value::Text(text) => text.char_count(),
        Value::List(list) | Value::Tuple(list) => list.len(),
        Value::Dict(dict) => dict.len(),
        Value::Range(range) => range.len(),
        Value::Undefined(_) => 0,
        Value::Object(object) => match &**object {
            Object::View { items, .. } => items.len(),
            // Python's generators have no length; ours are lists in waiting.
            Object::Generator(generator) => generator.len(),
            Object::Loop(of) => of.len(),
            other => return Err(no_length(other.type_name())),
        },
        other => return Err(no_length(other.type_name())),
    })
}

fn no_length(type_name: &str) -> Error {
    Error::value(format!("object of type '{type_name}' has no len()"))
}
