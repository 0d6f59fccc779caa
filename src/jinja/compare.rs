//! Python's `==`, `<`, `in` and `hash`.

use std::cmp::Ordering;
use std::hash::{BuildHasher, RandomState};
use std::rc::Rc;
use std::sync::OnceLock;

use num_traits::ToPrimitive;

use super::budget::Budget;
use super::error::{Error, Result};
use super::number;
use super::value::{List, Value};

/// How deep containers are compared, printed and hashed.
pub(crate) const MAX_DEPTH: usize = 200;

/// Containers that nest deeper than [`MAX_DEPTH`].
pub(crate) fn too_deep() -> Error {
    Error::limit(format!("values nest deeper than {MAX_DEPTH}"))
}

/// `left == right`.
pub(crate) fn equal(budget: &Rc<Budget>, left: &Value, right: &Value) -> Result<bool> {
    equal_at(budget, left, right, 0)
}

fn equal_at(budget: &Rc<Budget>, left: &Value, right: &Value, depth: usize) -> Result<bool> {
    if depth > MAX_DEPTH {
        return Err(too_deep());
    }
    budget.step(1)?;
    Ok(match (left, right) {
        (Value::Text(a), Value::Text(b)) => a.as_str() == b.as_str(),
        (Value::None, Value::None) | (Value::Undefined(_), Value::Undefined(_)) => true,
        (Value::Bool(a), Value::Bool(b)) => a == b,
        (Value::Int(a), Value::Int(b)) => a == b,
        (Value::List(a), Value::List(b)) | (Value::Tuple(a), Value::Tuple(b)) => {
            if Rc::ptr_eq(a, b) {
                return Ok(true);
            }
            if a.len() != b.len() {
                return Ok(false);
            }
            for (a, b) in a.items().iter().zip(b.items().iter()) {
                if !equal_at(budget, a, b, depth + 1)? {
                    return Ok(false);
                }
            }
            true
        }
        (Value::Dict(a), Value::Dict(b)) => {
            if Rc::ptr_eq(a, b) {
                return Ok(true);
            }
            if a.len() != b.len() {
                return Ok(false);
            }
            for (key, a) in a.entries() {
                match b.get(budget, key)? {
                    Some(b) if equal_at(budget, a, b, depth + 1)? => {}
                    _ => return Ok(false),
                }
            }
            true
        }
        (Value::Range(a), Value::Range(b)) => {
            a.len() == b.len() && (a.len() == 0 || a.start == b.start && (a.len() == 1 || a.step == b.step))
        }
        (Value::Namespace(a), Value::Namespace(b)) => Rc::ptr_eq(a, b),
        (Value::Object(a), Value::Object(b)) => Rc::ptr_eq(a, b) || a.is_same(b),
        _ => numeric_order(left, right) == Some(Some(Ordering::Equal)),
    })
}

/// The order of two numbers (None: not numbers; Some(None): NaN).
fn numeric_order(left: &Value, right: &Value) -> Option<Option<Ordering>> {
    if let (Some(a), Some(b)) = (left.as_int(), right.as_int()) {
        return Some(Some(a.cmp(&b)));
    }
    match (left, right) {
        (Value::Float(a), Value::Float(b)) => return Some(a.partial_cmp(b)),
        (Value::Float(a), b) => return Some(float_to_int(*a, b)?),
        (a, Value::Float(b)) => return Some(float_to_int(*b, a)?.map(Ordering::reverse)),
        _ => {}
    }
    Some(Some(number::big(left)?.cmp(&number::big(right)?)))
}

/// A float against an integer, exactly.
fn float_to_int(float: f64, integer: &Value) -> Option<Option<Ordering>> {
    let integer = number::big(integer)?;
    if float.is_nan() {
        return Some(None);
    }
    if float.is_infinite() {
        return Some(Some(if float > 0.0 { Ordering::Greater } else { Ordering::Less }));
    }
    let Ok(whole) = number::truncate(float) else { return Some(None) };
    let order = number::big(&whole)?.cmp(&integer);
    let fraction = float.fract();
    Some(Some(order.then(fraction.partial_cmp(&0.0).unwrap_or(Ordering::Equal))))
}

/// The order of two values; None for NaN, an error where Python has no order. `symbol` is for its message.
pub(crate) fn order(budget: &Rc<Budget>, left: &Value, right: &Value, symbol: &str) -> Result<Option<Ordering>> {
    order_at(budget, left, right, symbol, 0)
}

fn order_at(budget: &Rc<Budget>, left: &Value, right: &Value, symbol: &str, depth: usize) -> Result<Option<Ordering>> {
    if depth > MAX_DEPTH {
        return Err(too_deep());
    }
    budget.step(1)?;
    if let Some(order) = numeric_order(left, right) {
        return Ok(order);
    }
    match (left, right) {
        (Value::Text(a), Value::Text(b)) => Ok(Some(a.as_str().cmp(b.as_str()))),
        (Value::List(a), Value::List(b)) | (Value::Tuple(a), Value::Tuple(b)) => {
            for (a, b) in a.items().iter().zip(b.items().iter()) {
                if !equal_at(budget, a, b, depth + 1)? {
                    return order_at(budget, a, b, symbol, depth + 1);
                }
            }
            Ok(Some(a.len().cmp(&b.len())))
        }
        _ => {
            left.defined()?;
            right.defined()?;
            Err(Error::value(format!(
                "'{symbol}' not supported between instances of '{}' and '{}'",
                left.type_name(),
                right.type_name()
            )))
        }
    }
}

/// `needle in haystack`.
pub(crate) fn contains(budget: &Rc<Budget>, haystack: &Value, needle: &Value) -> Result<bool> {
    match haystack {
        Value::Text(text) => match needle {
            Value::Text(part) => {
                budget.read(text.len())?;
                Ok(text.contains(part.as_str()))
            }
            other => Err(Error::value(format!("'in <string>' requires string as left operand, not {}", other.type_name()))),
        },
        Value::List(list) | Value::Tuple(list) => {
            for item in list.items().iter() {
                if equal(budget, item, needle)? {
                    return Ok(true);
                }
            }
            Ok(false)
        }
        Value::Dict(dict) => Ok(dict.get(budget, needle)?.is_some()),
        Value::Range(range) => Ok(match needle {
            Value::Float(number) => number.fract() == 0.0 && number.to_i64().is_some_and(|number| range.contains(number)),
            other => other.as_int().is_some_and(|number| range.contains(number)),
        }),
        Value::Undefined(_) => Ok(false),
        other => match super::iterate::items(budget, other) {
            Ok(items) => {
                for item in items {
                    if equal(budget, &item, needle)? {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
            Err(_) => Err(Error::value(format!("argument of type '{}' is not iterable", other.type_name()))),
        },
    }
}

fn hasher() -> &'static RandomState {
    static HASHER: OnceLock<RandomState> = OnceLock::new();
    HASHER.get_or_init(RandomState::new)
}

/// The hash of a string key.
pub(crate) fn hash_str(text: &str) -> u64 {
    hasher().hash_one(text)
}

/// `hash(value)`: equal values have equal hashes; lists and dicts have none.
pub(crate) fn hash(value: &Value) -> Result<u64> {
    hash_at(value, 0)
}

fn hash_at(value: &Value, depth: usize) -> Result<u64> {
    if depth > MAX_DEPTH {
        return Err(too_deep());
    }
    Ok(match value {
        Value::Text(text) => hash_str(text),
        Value::None => 1,
        Value::Undefined(_) => 2,
        Value::Bool(_) | Value::Int(_) => hasher().hash_one(value.as_int()),
        Value::Big(number) => hasher().hash_one(&**number),
        Value::Float(number) => match number::truncate(*number) {
            Ok(whole) if number.fract() == 0.0 => return hash_at(&whole, depth + 1),
            _ => hasher().hash_one(number.to_bits()),
        },
        Value::Tuple(items) => hash_items(items, depth)?,
        Value::Range(range) => hasher().hash_one((range.len(), range.start, range.step)),
        Value::Namespace(namespace) => hasher().hash_one(Rc::as_ptr(namespace) as usize),
        Value::Object(object) => hasher().hash_one(object.type_name()),
        Value::List(_) | Value::Dict(_) => {
            return Err(Error::value(format!("unhashable type: '{}'", value.type_name())));
        }
    })
}

fn hash_items(items: &List, depth: usize) -> Result<u64> {
    let mut hashes = Vec::with_capacity(items.len());
    for item in items.items().iter() {
        hashes.push(hash_at(item, depth + 1)?);
    }
    Ok(hasher().hash_one(hashes))
}
