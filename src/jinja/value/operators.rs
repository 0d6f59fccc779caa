//! The operators: arithmetic on numbers and sequences, signs and comparisons.

use std::cmp::Ordering;
use std::rc::Rc;

use super::text::{Text, TextBuilder};
use super::{Value, ValueList, compare, format, markup, number};
use crate::jinja::budget::Budget;
use crate::jinja::error::{Result, TemplateError, type_error};
use crate::jinja::syntax::ast::{Arithmetic, Comparison};

/// `left op right`.
pub(crate) fn arithmetic(
    budget: &Rc<Budget>,
    op: Arithmetic,
    left: &Value,
    right: &Value,
) -> Result<Value> {
    if let Some(result) = number::arithmetic(budget, op, left, right) {
        return result;
    }
    if op == Arithmetic::Mod
        && let Value::Text(template) = left
    {
        return format::percent(budget, template, right);
    }
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

/// `left op right` for a comparison.
pub(crate) fn compare(
    budget: &Rc<Budget>,
    op: Comparison,
    left: &Value,
    right: &Value,
) -> Result<bool> {
    let ordered = |symbol, accepts: fn(Ordering) -> bool| -> Result<bool> {
        Ok(compare::order(budget, left, right, symbol)?.is_some_and(accepts))
    };
    match op {
        Comparison::Equal => compare::equal(budget, left, right),
        Comparison::NotEqual => Ok(!compare::equal(budget, left, right)?),
        Comparison::Less => ordered("<", Ordering::is_lt),
        Comparison::LessEqual => ordered("<=", Ordering::is_le),
        Comparison::Greater => ordered(">", Ordering::is_gt),
        Comparison::GreaterEqual => ordered(">=", Ordering::is_ge),
        Comparison::In => compare::contains(budget, right, left),
        Comparison::NotIn => Ok(!compare::contains(budget, right, left)?),
    }
}
