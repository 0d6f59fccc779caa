//! Iteration and length.

use std::rc::Rc;

use super::Value;
use super::runtime::{LoopSource, Object};
use crate::jinja::budget::Budget;
use crate::jinja::error::{Result, TemplateError, unsupported};

/// The maximum length of a range in Jinja2's sandbox.
pub(crate) const MAX_RANGE: usize = 100_000;

/// `list(value)` of any iterable. Consumes a generator.
pub(crate) fn items(budget: &Rc<Budget>, value: &Value) -> Result<Vec<Value>> {
    // Each item costs a step and is cloned.
    let ask = |count: usize| -> Result<()> {
        budget.step(count as u64)?;
        budget.can_allocate(count.saturating_mul(2 * size_of::<Value>()))
    };
    Ok(match value {
        Value::List(list) | Value::Tuple(list) => {
            ask(list.len())?;
            list.items().clone()
        }
        Value::Dict(dict) => {
            ask(dict.len())?;
            dict.keys().cloned().collect()
        }
        Value::Text(text) => {
            budget.step_bytes(text.len())?;
            let count = text.char_count();
            ask(count)?;
            let mut items = Vec::with_capacity(count);
            items
                .extend(text.char_indices().map(|(at, c)| {
                    Value::Text(text.slice(at..at + c.len_utf8()).with_safe(false))
                }));
            items
        }
        Value::Undefined(_) => Vec::new(),
        Value::Range(range) => {
            ask(range.len())?;
            (0..range.len()).map(|index| Value::int(range.get(index))).collect()
        }
        Value::Object(object) => match &**object {
            Object::View { items, .. } => {
                ask(items.len())?;
                items.clone()
            }
            Object::Generator(generator) => {
                budget.step(generator.len() as u64)?;
                generator.drain()?
            }
            Object::Loop(_) => return unsupported("only a loop goes over another loop"),
            other => return Err(not_iterable(other.type_name())),
        },
        other => return Err(not_iterable(other.type_name())),
    })
}

/// The items of a loop. Jinja2 rejects None. Here it counts as empty, so that templates that loop
/// over `tools` without a check work without tools.
pub(crate) fn source(budget: &Rc<Budget>, value: &Value) -> Result<LoopSource> {
    if let Value::Object(object) = value
        && matches!(**object, Object::Generator(_) | Object::Loop(_))
    {
        return Ok(LoopSource::Shared(Rc::clone(object)));
    }
    let items = if value.is_none() { Vec::new() } else { items(budget, value)? };
    let charge = budget.charge_values(items.len())?;
    Ok(LoopSource::Items { rest: items.into_iter(), _charge: charge })
}

fn not_iterable(type_name: &str) -> TemplateError {
    TemplateError::value(format!("'{type_name}' object is not iterable"))
}

/// `len(value)`.
pub(crate) fn length(budget: &Rc<Budget>, value: &Value) -> Result<usize> {
    Ok(match value {
        Value::Text(text) => {
            budget.step_bytes(text.len())?;
            text.char_count()
        }
        Value::List(list) | Value::Tuple(list) => list.len(),
        Value::Dict(dict) => dict.len(),
        Value::Range(range) => range.len(),
        Value::Undefined(_) => 0,
        Value::Object(object) => match &**object {
            Object::View { items, .. } => items.len(),
            // A Python generator has no length, but here its items are already computed.
            Object::Generator(generator) => generator.len(),
            Object::Loop(of) => of.known_length().ok_or_else(|| no_length(object.type_name()))?,
            other => return Err(no_length(other.type_name())),
        },
        other => return Err(no_length(other.type_name())),
    })
}

fn no_length(type_name: &str) -> TemplateError {
    TemplateError::value(format!("object of type '{type_name}' has no len()"))
}
