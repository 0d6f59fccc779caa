//! Arithmetic on anything that Python adds or multiplies, slices, elements.

use std::rc::Rc;

use super::budget::Budget;
use super::error::{Error, Result};
use super::format;
use super::interpreter::Interpreter;
use super::markup;
use super::number::{self, Arithmetic};
use super::text::{Text, TextBuilder};
use super::value::Value;

/// `left op right`.
pub(crate) fn arithmetic(interpreter: &mut Interpreter<'_>, op: Arithmetic, left: &Value, right: &Value) -> Result<Value> {
    if let Some(result) = number::arithmetic(op, left, right) {
        return result;
    }
    if op == Arithmetic::Mod
        && let Value::Text(template) = left
    {
        return format::percent(interpreter, template, right);
    }
    let budget = &interpreter.budget;
    match (op, left, right) {
        (_, Value::Undefined(why), _) => Err(why.error()),
        (Arithmetic::Add, Value::Text(a), Value::Text(b)) => {
            let safe = a.is_safe() || b.is_safe();
            if safe && !(a.is_safe() && b.is_safe()) {
                let a = markup::escape_text(budget, a)?;
                let b = markup::escape_text(budget, b)?;
                return Ok(Value::Text(join(budget, &a, &b)?.with_safe(true)));
            }
            Ok(Value::Text(join(budget, a, b)?.with_safe(safe)))
        }
        (Arithmetic::Add, Value::List(a), Value::List(b)) => {
            let mut items = Vec::with_capacity(sum(budget, a.len(), b.len())?);
            items.extend(a.items().iter().cloned());
            items.extend(b.items().iter().cloned());
            budget.step(items.len() as u64)?;
            Value::list(budget, items)
        }
        (Arithmetic::Add, Value::Tuple(a), Value::Tuple(b)) => {
            let mut items = Vec::with_capacity(sum(budget, a.len(), b.len())?);
            items.extend(a.items().iter().cloned());
            items.extend(b.items().iter().cloned());
            budget.step(items.len() as u64)?;
            Value::tuple(budget, items)
        }
        (Arithmetic::Mul, Value::Text(_) | Value::List(_) | Value::Tuple(_), times) if times.as_int().is_some() => {
            repeat(budget, left, times.as_int().unwrap_or(0))
        }
        (Arithmetic::Mul, times, Value::Text(_) | Value::List(_) | Value::Tuple(_)) if times.as_int().is_some() => {
            repeat(budget, right, times.as_int().unwrap_or(0))
        }
        (Arithmetic::Add, Value::Text(_), other) => {
            other.defined()?;
            Err(Error::value(format!("can only concatenate str (not \"{}\") to str", other.type_name())))
        }
        (Arithmetic::Add, Value::List(_), other) => {
            other.defined()?;
            Err(Error::value(format!("can only concatenate list (not \"{}\") to list", other.type_name())))
        }
        (Arithmetic::Add, Value::Tuple(_), other) => {
            other.defined()?;
            Err(Error::value(format!("can only concatenate tuple (not \"{}\") to tuple", other.type_name())))
        }
        (Arithmetic::Mul, Value::Text(_) | Value::List(_) | Value::Tuple(_), other) => {
            other.defined()?;
            Err(Error::value(format!("can't multiply sequence by non-int of type '{}'", other.type_name())))
        }
        (Arithmetic::Mul, other, Value::Text(_) | Value::List(_) | Value::Tuple(_)) => {
            Err(Error::value(format!("can't multiply sequence by non-int of type '{}'", other.type_name())))
        }
        (Arithmetic::Add, Value::Dict(_), _) | (_, _, _) => {
            right.defined()?;
            Err(Error::value(format!(
                "unsupported operand type(s) for {}: '{}' and '{}'",
                op.symbol(),
                left.type_name(),
                right.type_name()
            )))
        }
    }
}

fn sum(budget: &Rc<Budget>, a: usize, b: usize) -> Result<usize> {
    let sum = a.saturating_add(b);
    budget.can_allocate(sum.saturating_mul(size_of::<Value>()))?;
    Ok(sum)
}

fn join(budget: &Rc<Budget>, a: &Text, b: &Text) -> Result<Text> {
    let mut out = TextBuilder::new(budget);
    out.reserve(a.len() + b.len())?;
    out.push_text(a)?;
    out.push_text(b)?;
    out.finish()
}

fn repeat(budget: &Rc<Budget>, value: &Value, times: i64) -> Result<Value> {
    let times = usize::try_from(times).unwrap_or(0);
    match value {
        Value::Text(text) => {
            if text.is_empty() || times == 0 {
                return Ok(Value::Text(text.slice(0..0)));
            }
            let mut out = TextBuilder::new(budget);
            out.reserve(text.len().saturating_mul(times))?;
            for _ in 0..times {
                out.push_text(text)?;
            }
            Ok(Value::Text(out.finish()?.with_safe(text.is_safe())))
        }
        Value::List(list) | Value::Tuple(list) => {
            let times = if list.len() == 0 { 0 } else { times };
            let length = list.len().saturating_mul(times);
            budget.can_allocate(length.saturating_mul(size_of::<Value>()))?;
            budget.step(length as u64)?;
            let mut items = Vec::with_capacity(length);
            for _ in 0..times {
                items.extend(list.items().iter().cloned());
            }
            if matches!(value, Value::List(_)) { Value::list(budget, items) } else { Value::tuple(budget, items) }
        }
        _ => Ok(Value::None),
    }
}

/// `-value`
pub(crate) fn negative(value: &Value) -> Result<Value> {
    match value.defined()? {
        Value::Float(number) => Ok(Value::Float(-number)),
        other => match number::big(other) {
            Some(number) => Ok(Value::integer(-number)),
            None => Err(Error::value(format!("bad operand type for unary -: '{}'", other.type_name()))),
        },
    }
}

/// `+value`
pub(crate) fn positive(value: &Value) -> Result<Value> {
    match value.defined()? {
        Value::Float(number) => Ok(Value::Float(*number)),
        other => match number::big(other) {
            Some(number) => Ok(Value::integer(number)),
            None => Err(Error::value(format!("bad operand type for unary +: '{}'", other.type_name()))),
        },
    }
}

/// The place of an index, which counts from the end if negative.
fn place(index: i64, length: usize) -> Option<usize> {
    match usize::try_from(index) {
        Ok(index) => (index < length).then_some(index),
        Err(_) => length.checked_sub(usize::try_from(index.unsigned_abs()).unwrap_or(usize::MAX)),
    }
}

/// The element at an index; None if there is none, or if the value has none at all.
pub(crate) fn element(of: &Value, index: i64) -> Option<Value> {
    match of {
        Value::List(list) | Value::Tuple(list) => list.get(place(index, list.len())?),
        Value::Text(text) => {
            if text.is_ascii() {
                let at = place(index, text.len())?;
                return Some(Value::Text(text.slice(at..at + 1)));
            }
            let at = place(index, text.char_count())?;
            let (start, c) = text.char_indices().nth(at)?;
            Some(Value::Text(text.slice(start..start + c.len_utf8())))
        }
        Value::Range(range) => Some(Value::Int(range.get(place(index, range.len())?))),
        _ => None,
    }
}

/// `of[start:stop:step]`
pub(crate) fn slice(budget: &Rc<Budget>, of: &Value, bounds: &[Value; 3]) -> Result<Value> {
    let length = match of.defined()? {
        Value::Text(text) => text.char_count(),
        Value::List(list) | Value::Tuple(list) => list.len(),
        Value::Range(range) => range.len(),
        Value::Dict(_) => return Err(Error::value("unhashable type: 'slice'")),
        other => {
            // Jinja2 looks for an attribute of this name, and finds none.
            let slice = Value::text(budget, "slice")?;
            return match other {
                Value::None | Value::Bool(_) | Value::Int(_) | Value::Big(_) | Value::Float(_) => {
                    Err(Error::value(format!("'{}' object is not subscriptable", other.type_name())))
                }
                _ => Ok(Value::undefined(super::value::Undefined::Element(other.owner_name(), slice))),
            };
        }
    };
    let (places, step) = places(bounds, length)?;
    budget.step(places.len() as u64 / 8)?;
    match of {
        Value::Text(text) if step == 1 => {
            let (Some(first), Some(last)) = (places.first(), places.last()) else { return Ok(Value::Text(text.slice(0..0))) };
            let (first, last) = (*first, *last);
            if text.is_ascii() {
                return Ok(Value::Text(text.slice(first..last + 1)));
            }
            let byte = |at: usize| text.char_indices().nth(at).map_or(text.len(), |(byte, _)| byte);
            Ok(Value::Text(text.slice(byte(first)..byte(last + 1))))
        }
        Value::Text(text) => {
            let bytes: Vec<usize> = text.char_indices().map(|(at, _)| at).collect();
            let mut out = TextBuilder::new(budget);
            for at in places.iter() {
                let start = bytes[at];
                let end = bytes.get(at + 1).copied().unwrap_or(text.len());
                out.push_text(&text.slice(start..end))?;
            }
            Ok(Value::Text(out.finish()?.with_safe(text.is_safe())))
        }
        Value::List(list) | Value::Tuple(list) => {
            budget.can_allocate(places.len() * size_of::<Value>())?;
            let items = places.iter().filter_map(|at| list.get(at)).collect();
            if matches!(of, Value::List(_)) { Value::list(budget, items) } else { Value::tuple(budget, items) }
        }
        Value::Range(range) => {
            let at = |index: usize| range.get(index);
            let start = places.first().map_or(range.start, |first| at(*first));
            let step = range.step.saturating_mul(step);
            let count = i64::try_from(places.len()).unwrap_or(i64::MAX);
            Ok(Value::Range(Rc::new(super::value::Range { start, stop: start + step * count, step })))
        }
        _ => Ok(Value::None),
    }
}

/// The places that a slice selects.
struct Places {
    first: Option<usize>,
    last: Option<usize>,
    step: i64,
    count: usize,
}

impl Places {
    fn first(&self) -> Option<&usize> {
        self.first.as_ref()
    }

    fn last(&self) -> Option<&usize> {
        self.last.as_ref()
    }

    fn len(&self) -> usize {
        self.count
    }

    fn iter(&self) -> impl Iterator<Item = usize> {
        let start = i64::try_from(self.first.unwrap_or(0)).unwrap_or(0);
        let step = self.step;
        (0..self.count).filter_map(move |index| {
            let offset = i64::try_from(index).ok()?.checked_mul(step)?;
            usize::try_from(start + offset).ok()
        })
    }
}

fn places(bounds: &[Value; 3], length: usize) -> Result<(Places, i64)> {
    let bound = |value: &Value| -> Result<Option<i64>> {
        match value {
            Value::None => Ok(None),
            Value::Big(number) => Ok(Some(if number.sign() == num_bigint::Sign::Minus { i64::MIN } else { i64::MAX })),
            other => match other.defined()?.as_int() {
                Some(number) => Ok(Some(number)),
                None => Err(Error::value("slice indices must be integers or None or have an __index__ method")),
            },
        }
    };
    let step = bound(&bounds[2])?.unwrap_or(1);
    if step == 0 {
        return Err(Error::value("slice step cannot be zero"));
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
    let span = if step > 0 { stop.saturating_sub(start) } else { start.saturating_sub(stop) };
    let stride = i64::try_from(step.unsigned_abs()).unwrap_or(i64::MAX);
    let count = if span <= 0 { 0 } else { (span - 1) / stride + 1 };
    let at = |index: i64| usize::try_from(start + step.saturating_mul(index)).ok();
    let (first, last) = if count == 0 { (None, None) } else { (at(0), at(count - 1)) };
    Ok((Places { first, last, step, count: usize::try_from(count).unwrap_or(0) }, step))
}
