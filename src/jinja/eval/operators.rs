//! Arithmetic on numbers and sequences, slices and elements.

use std::rc::Rc;

use super::interpreter::Interpreter;
use crate::jinja::budget::Budget;
use crate::jinja::builtins::format;
use crate::jinja::error::{Result, TemplateError, type_error, unsupported};
use crate::jinja::syntax::ast::Arithmetic;
use crate::jinja::value::runtime::Object;
use crate::jinja::value::text::{Text, TextBuilder};
use crate::jinja::value::{Range, Value, ValueList, markup, number};

/// `left op right`.
pub(crate) fn arithmetic(
    interpreter: &mut Interpreter<'_>,
    op: Arithmetic,
    left: &Value,
    right: &Value,
) -> Result<Value> {
    if let Some(result) = number::arithmetic(&interpreter.budget, op, left, right) {
        return result;
    }
    if op == Arithmetic::Mod
        && let Value::Text(template) = left
    {
        return format::percent(interpreter, template, right);
    }
    let budget = &interpreter.budget;
    match op {
        _ if left.is_undefined() => {}
        Arithmetic::Add => {
            if let Some(sum) = add(budget, left, right) {
                return sum;
            }
        }
        Arithmetic::Mul => {
            if let Some(product) = multiply(budget, left, right) {
                return product;
            }
        }
        _ => {}
    }
    left.defined()?;
    right.defined()?;
    type_error(format!(
        "unsupported operand type(s) for {}: '{}' and '{}'",
        op.symbol(),
        left.type_name(),
        right.type_name()
    ))
}

/// `left + right` for a sequence on the left, otherwise None.
fn add(budget: &Rc<Budget>, left: &Value, right: &Value) -> Option<Result<Value>> {
    Some(match (left, right) {
        (Value::Text(a), Value::Text(b)) => add_texts(budget, a, b),
        (Value::List(a), Value::List(b)) => {
            join_items(budget, a, b).and_then(|items| Value::list(budget, items))
        }
        (Value::Tuple(a), Value::Tuple(b)) => {
            join_items(budget, a, b).and_then(|items| Value::tuple(budget, items))
        }
        (Value::Text(_), other) => Err(not_concatenable("str", other)),
        (Value::List(_), other) => Err(not_concatenable("list", other)),
        (Value::Tuple(_), other) => Err(not_concatenable("tuple", other)),
        _ => return None,
    })
}

fn not_concatenable(to: &str, other: &Value) -> TemplateError {
    match other {
        Value::Undefined(why) => why.error(),
        other => TemplateError::value(format!(
            "can only concatenate {to} (not \"{}\") to {to}",
            other.type_name()
        )),
    }
}

/// `left * right` where one operand is a sequence, otherwise None.
fn multiply(budget: &Rc<Budget>, left: &Value, right: &Value) -> Option<Result<Value>> {
    let is_sequence =
        |value: &Value| matches!(value, Value::Text(_) | Value::List(_) | Value::Tuple(_));
    if let Some(times) = right.as_int().filter(|_| is_sequence(left)) {
        return Some(repeat(budget, left, times));
    }
    if let Some(times) = left.as_int().filter(|_| is_sequence(right)) {
        return Some(repeat(budget, right, times));
    }
    let other = if is_sequence(left) {
        right
    } else if is_sequence(right) {
        left
    } else {
        return None;
    };
    Some(Err(match other {
        Value::Undefined(why) => why.error(),
        other => TemplateError::value(format!(
            "can't multiply sequence by non-int of type '{}'",
            other.type_name()
        )),
    }))
}

fn add_texts(budget: &Rc<Budget>, a: &Text, b: &Text) -> Result<Value> {
    let safe = a.is_safe() || b.is_safe();
    if safe && !(a.is_safe() && b.is_safe()) {
        let a = markup::escape_text(budget, a)?;
        let b = markup::escape_text(budget, b)?;
        return Ok(Value::Text(join(budget, &a, &b)?.with_safe(true)));
    }
    Ok(Value::Text(join(budget, a, b)?.with_safe(safe)))
}

fn join_items(budget: &Rc<Budget>, a: &ValueList, b: &ValueList) -> Result<Vec<Value>> {
    let length = a.len().saturating_add(b.len());
    budget.can_allocate(length.saturating_mul(size_of::<Value>()))?;
    let mut items = Vec::with_capacity(length);
    items.extend(a.items().iter().cloned());
    items.extend(b.items().iter().cloned());
    budget.step(items.len() as u64)?;
    Ok(items)
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
            out.push_repeated(text, times)?;
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
            if matches!(value, Value::List(_)) {
                Value::list(budget, items)
            } else {
                Value::tuple(budget, items)
            }
        }
        _ => Ok(Value::None),
    }
}

/// `-value`
pub(crate) fn negative(budget: &Rc<Budget>, value: &Value) -> Result<Value> {
    match value.defined()? {
        Value::Float(number, origin) => Ok(Value::Float(-number, *origin)),
        other => match number::big(other) {
            Some(number) => {
                Ok(Value::charged_integer(budget, -number)
                    .with_number_origin(value.number_origin()))
            }
            None => type_error(format!("bad operand type for unary -: '{}'", other.type_name())),
        },
    }
}

/// `+value`
pub(crate) fn positive(budget: &Rc<Budget>, value: &Value) -> Result<Value> {
    match value.defined()? {
        Value::Float(..) => Ok(value.clone()),
        other => match number::big(other) {
            Some(number) => {
                Ok(Value::charged_integer(budget, number).with_number_origin(value.number_origin()))
            }
            None => type_error(format!("bad operand type for unary +: '{}'", other.type_name())),
        },
    }
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
                _ => Ok(Value::undefined(crate::jinja::value::Undefined::Element(
                    other.owner_name(),
                    slice,
                ))),
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
            Ok(Some(if number.sign() == num_bigint::Sign::Minus { i64::MIN } else { i64::MAX }))
        }
        other => match other.defined()?.as_int() {
            Some(number) => Ok(Some(number)),
            None => {
                type_error("slice indices must be integers or None or have an __index__ method")
            }
        },
    }
}
