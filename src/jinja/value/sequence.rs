//! Iteration, length, elements and slices.

use std::rc::Rc;

use num_bigint::Sign;

use super::text::{Text, TextBuilder};
use super::{Dict, LoopSource, Object, Range, Undefined, Value};
use crate::jinja::budget::Budget;
use crate::jinja::error::{Result, TemplateError, type_error, unsupported};

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

/// The entries of a dict as tuples.
pub(crate) fn pairs(budget: &Rc<Budget>, dict: &Dict) -> Result<Vec<Value>> {
    budget.step(dict.len() as u64)?;
    budget.can_allocate(dict.len().saturating_mul(2 * size_of::<Value>()))?;
    dict.entries()
        .iter()
        .map(|(key, value)| Value::tuple(budget, vec![key.clone(), value.clone()]))
        .collect()
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

/// The position of an index. A negative index counts from the end.
fn position(index: i64, length: usize) -> Option<usize> {
    match usize::try_from(index) {
        Ok(index) => (index < length).then_some(index),
        Err(_) => length.checked_sub(usize::try_from(index.unsigned_abs()).unwrap_or(usize::MAX)),
    }
}

/// The element at an index, or None if there is none.
pub(crate) fn element(budget: &Rc<Budget>, of: &Value, index: i64) -> Result<Option<Value>> {
    if let Value::Text(text) = of {
        budget.step_bytes(text.len())?;
    }
    Ok(element_at(of, index))
}

fn element_at(of: &Value, index: i64) -> Option<Value> {
    match of {
        Value::List(list) | Value::Tuple(list) => list.get(position(index, list.len())?),
        Value::Text(text) => {
            let start = text.byte_of_char(position(index, text.char_count())?);
            let length = text[start..].chars().next()?.len_utf8();
            Some(Value::Text(text.slice(start..start + length)))
        }
        Value::Range(range) => Some(Value::int(range.get(position(index, range.len())?))),
        _ => None,
    }
}

/// `of[start:stop:step]`
pub(crate) fn slice(budget: &Rc<Budget>, of: &Value, bounds: &[Value; 3]) -> Result<Value> {
    let length = match of.defined()? {
        Value::Text(text) => {
            budget.step_bytes(text.len())?;
            text.char_count()
        }
        Value::List(list) | Value::Tuple(list) => list.len(),
        Value::Range(range) => range.len(),
        Value::Object(object) if matches!(**object, Object::Generator(_)) => {
            return type_error(format!("'{}' object is not subscriptable", object.type_name()));
        }
        Value::Dict(_) => return type_error("unhashable type: 'slice'"),
        other => {
            // Jinja2 looks up the attribute `slice`, which does not exist.
            let slice = Value::text(budget, "slice")?;
            return match other {
                Value::None
                | Value::Bool(_)
                | Value::Int(..)
                | Value::Big(_)
                | Value::Float(..) => {
                    type_error(format!("'{}' object is not subscriptable", other.type_name()))
                }
                _ => Ok(Value::undefined(Undefined::Element(other.owner_name(), slice))),
            };
        }
    };
    let indices = SliceIndices::new(bounds, length)?;
    budget.step(indices.count as u64 / 8)?;
    match of {
        Value::Text(text) => slice_text(budget, text, &indices),
        Value::List(list) | Value::Tuple(list) => {
            budget.can_allocate(indices.count * size_of::<Value>())?;
            let items = indices.iter().filter_map(|at| list.get(at)).collect();
            if matches!(of, Value::List(_)) {
                Value::list(budget, items)
            } else {
                Value::tuple(budget, items)
            }
        }
        Value::Range(range) => slice_range(range, &indices),
        _ => Ok(Value::None),
    }
}

fn slice_text(budget: &Rc<Budget>, text: &Text, indices: &SliceIndices) -> Result<Value> {
    if indices.step == 1 {
        let start = text.byte_of_char(usize::try_from(indices.start).unwrap_or(0));
        let rest = text.slice(start..text.len());
        let length = rest.byte_of_char(indices.count);
        return Ok(Value::Text(rest.slice(0..length)));
    }
    budget.can_allocate(text.char_count().saturating_mul(size_of::<usize>()))?;
    let bytes: Vec<usize> = text.char_indices().map(|(at, _)| at).collect();
    let mut out = TextBuilder::new(budget);
    for at in indices.iter() {
        let end = bytes.get(at + 1).copied().unwrap_or(text.len());
        out.push_text(&text.slice(bytes[at]..end))?;
    }
    Ok(Value::Text(out.finish()?.with_safe(text.is_safe())))
}

fn slice_range(range: &Range, indices: &SliceIndices) -> Result<Value> {
    let at = |index: i64| {
        range.step.checked_mul(index).and_then(|offset| range.start.checked_add(offset))
    };
    let step = if indices.exact_step { range.step.checked_mul(indices.step) } else { None };
    match (at(indices.start), at(indices.stop), step) {
        (Some(start), Some(stop), Some(step)) => {
            Ok(Value::Range(Rc::new(Range { start, stop, step })))
        }
        _ => unsupported("a range of numbers that do not fit 64 bits"),
    }
}

/// The indices that a slice selects: `count` of them from `start`, before `stop`.
struct SliceIndices {
    start: i64,
    stop: i64,
    step: i64,
    /// Whether the step is exact. A step outside 64 bits is clamped.
    exact_step: bool,
    count: usize,
}

impl SliceIndices {
    fn new(bounds: &[Value; 3], length: usize) -> Result<SliceIndices> {
        let step = bound(&bounds[2])?.unwrap_or(1);
        if step == 0 {
            return type_error("slice step cannot be zero");
        }
        let length = i64::try_from(length).unwrap_or(i64::MAX);
        let (lowest, highest) = if step > 0 { (0, length) } else { (-1, length - 1) };
        let clamp = |value: Option<i64>, default: i64| match value {
            None => default,
            Some(at) if at < 0 => at.saturating_add(length).max(lowest),
            Some(at) => at.min(highest),
        };
        let start = clamp(bound(&bounds[0])?, if step > 0 { lowest } else { highest });
        let stop = clamp(bound(&bounds[1])?, if step > 0 { highest } else { lowest });
        let span = if step > 0 { stop - start } else { start - stop };
        let stride = i64::try_from(step.unsigned_abs()).unwrap_or(i64::MAX);
        let count =
            if span <= 0 { 0 } else { usize::try_from((span - 1) / stride + 1).unwrap_or(0) };
        Ok(SliceIndices {
            start,
            stop,
            step,
            exact_step: !matches!(bounds[2], Value::Big(_)),
            count,
        })
    }

    fn iter(&self) -> impl Iterator<Item = usize> {
        // The products stay between `start` and `stop`.
        (0..self.count).filter_map(|index| {
            let offset = i64::try_from(index).ok()?.checked_mul(self.step)?;
            usize::try_from(self.start.checked_add(offset)?).ok()
        })
    }
}

/// A bound of a slice, clamped to 64 bits.
fn bound(value: &Value) -> Result<Option<i64>> {
    match value {
        Value::None => Ok(None),
        Value::Big(number) => {
            Ok(Some(if number.sign() == Sign::Minus { i64::MIN } else { i64::MAX }))
        }
        other => match other.defined()?.as_int() {
            Some(number) => Ok(Some(number)),
            None => {
                type_error("slice indices must be integers or None or have an __index__ method")
            }
        },
    }
}
