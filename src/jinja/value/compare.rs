//! Python's `==`, `<`, `in` and `hash`.

use std::cmp::Ordering;
use std::hash::{BuildHasher, RandomState};
use std::rc::Rc;

use num_traits::ToPrimitive;

use super::{Object, Value, ValueList, ViewKind, number, sequence};
use crate::jinja::budget::Budget;
use crate::jinja::error::{Result, TemplateError, type_error};
use crate::process::Lazy;

/// Maximum depth at which containers are compared, printed and hashed.
pub(crate) const MAX_DEPTH: usize = 200;

/// The error for containers deeper than [`MAX_DEPTH`].
pub(crate) fn too_deep() -> TemplateError {
    TemplateError::limit(format!("values nest deeper than {MAX_DEPTH}"))
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
        (Value::Text(a), Value::Text(b)) => {
            if a.len() != b.len() || a.is_same(b) {
                return Ok(a.len() == b.len());
            }
            budget.step_bytes(a.len())?;
            a.as_str() == b.as_str()
        }
        (Value::None, Value::None) | (Value::Undefined(_), Value::Undefined(_)) => true,
        (Value::Bool(a), Value::Bool(b)) => a == b,
        (Value::Int(a, _), Value::Int(b, _)) => a == b,
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
            a.len() == b.len()
                && (a.len() == 0 || a.start == b.start && (a.len() == 1 || a.step == b.step))
        }
        (Value::Namespace(a), Value::Namespace(b)) => Rc::ptr_eq(a, b),
        (Value::Object(a), Value::Object(b)) => {
            Rc::ptr_eq(a, b) || a.is_same(b) || same_views(budget, a, b, depth)?
        }
        _ => numeric_order(left, right) == Some(Some(Ordering::Equal)),
    })
}

/// Whether two views of keys or items are equal as sets.
fn same_views(budget: &Rc<Budget>, a: &Object, b: &Object, depth: usize) -> Result<bool> {
    let (Object::View { kind: a_kind, items: a, .. }, Object::View { kind: b_kind, items: b, .. }) =
        (a, b)
    else {
        return Ok(false);
    };
    if *a_kind == ViewKind::Values || *b_kind == ViewKind::Values || a.len() != b.len() {
        return Ok(false);
    }
    for item in a {
        let mut found = false;
        for other in b {
            found = found || equal_at(budget, item, other, depth + 1)?;
        }
        if !found {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The order of two numbers. None if one is not a number, Some(None) for NaN.
fn numeric_order(left: &Value, right: &Value) -> Option<Option<Ordering>> {
    if let (Some(a), Some(b)) = (left.as_int(), right.as_int()) {
        return Some(Some(a.cmp(&b)));
    }
    match (left, right) {
        (Value::Float(a, _), Value::Float(b, _)) => return Some(a.partial_cmp(b)),
        (Value::Float(a, _), b) => return float_to_int(*a, b),
        (a, Value::Float(b, _)) => return Some(float_to_int(*b, a)?.map(Ordering::reverse)),
        _ => {}
    }
    Some(Some(number::big(left)?.cmp(&number::big(right)?)))
}

/// Compares a float with an integer exactly.
fn float_to_int(float: f64, integer: &Value) -> Option<Option<Ordering>> {
    let integer = number::big(integer)?;
    if float.is_nan() {
        return Some(None);
    }
    if float.is_infinite() {
        return Some(Some(if float > 0.0 { Ordering::Greater } else { Ordering::Less }));
    }
    let Ok(whole) = number::whole_part(float) else { return Some(None) };
    let order = whole.cmp(&integer);
    let fraction = float.fract();
    Some(Some(order.then(fraction.partial_cmp(&0.0).unwrap_or(Ordering::Equal))))
}

/// The order of two values, None for NaN. Fails for types without an order; the message names
/// `symbol`.
pub(crate) fn order(
    budget: &Rc<Budget>,
    left: &Value,
    right: &Value,
    symbol: &str,
) -> Result<Option<Ordering>> {
    order_at(budget, left, right, symbol, 0)
}

/// `left < right`.
pub(crate) fn less(budget: &Rc<Budget>, left: &Value, right: &Value) -> Result<bool> {
    Ok(order(budget, left, right, "<")? == Some(Ordering::Less))
}

fn order_at(
    budget: &Rc<Budget>,
    left: &Value,
    right: &Value,
    symbol: &str,
    depth: usize,
) -> Result<Option<Ordering>> {
    if depth > MAX_DEPTH {
        return Err(too_deep());
    }
    budget.step(1)?;
    if let Some(order) = numeric_order(left, right) {
        return Ok(order);
    }
    match (left, right) {
        (Value::Text(a), Value::Text(b)) => {
            budget.step_bytes(a.len().min(b.len()))?;
            Ok(Some(a.as_str().cmp(b.as_str())))
        }
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
            type_error(format!(
                "'{symbol}' not supported between instances of '{}' and '{}'",
                left.type_name(),
                right.type_name()
            ))
        }
    }
}

/// `needle in haystack`.
pub(crate) fn contains(budget: &Rc<Budget>, haystack: &Value, needle: &Value) -> Result<bool> {
    match haystack {
        Value::Text(text) => match needle {
            Value::Text(part) => {
                budget.step_bytes(text.len())?;
                budget.read(part.len())?;
                Ok(part.len() <= text.len() && text.contains(part.as_str()))
            }
            other => type_error(format!(
                "'in <string>' requires string as left operand, not {}",
                other.type_name()
            )),
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
            Value::Float(number, _) => {
                number.fract() == 0.0
                    && number.to_i64().is_some_and(|number| range.contains(number))
            }
            other => other.as_int().is_some_and(|number| range.contains(number)),
        }),
        Value::Undefined(_) => Ok(false),
        // Searching consumes the generator up to the match.
        Value::Object(object) if let Object::Generator(generator) = &**object => {
            while let Some(item) = generator.next()? {
                if equal(budget, &item, needle)? {
                    return Ok(true);
                }
            }
            Ok(false)
        }
        other => match sequence::items(budget, other) {
            Ok(items) => {
                for item in items {
                    if equal(budget, &item, needle)? {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
            Err(_) => {
                type_error(format!("argument of type '{}' is not iterable", other.type_name()))
            }
        },
    }
}

/// A stable sort that uses only `<`, as in Python, and stops at the first error. With NaN the order
/// is unspecified.
pub(crate) fn sorted<T>(
    items: Vec<T>,
    mut less: impl FnMut(&T, &T) -> Result<bool>,
) -> Result<Vec<T>> {
    let mut positions: Vec<usize> = (0..items.len()).collect();
    let mut merged = Vec::with_capacity(items.len());
    let mut width = 1;
    while width < items.len() {
        merged.clear();
        for pair in positions.chunks(2 * width) {
            let (mut left, mut right) = pair.split_at(width.min(pair.len()));
            while let ([first_left, rest_left @ ..], [first_right, rest_right @ ..]) = (left, right)
            {
                if less(&items[*first_right], &items[*first_left])? {
                    merged.push(*first_right);
                    right = rest_right;
                } else {
                    merged.push(*first_left);
                    left = rest_left;
                }
            }
            merged.extend(left.iter().chain(right));
        }
        std::mem::swap(&mut positions, &mut merged);
        width *= 2;
    }
    let mut items: Vec<Option<T>> = items.into_iter().map(Some).collect();
    Ok(positions.into_iter().filter_map(|position| items[position].take()).collect())
}

fn hasher() -> &'static RandomState {
    static HASHER: Lazy<RandomState> = Lazy::new(RandomState::new);
    &HASHER
}

/// The hash of a string key.
pub(crate) fn hash_str(text: &str) -> u64 {
    hasher().hash_one(text)
}

/// `hash(value)`: equal values have equal hashes. Lists and dicts are unhashable.
pub(crate) fn hash(budget: &Rc<Budget>, value: &Value) -> Result<u64> {
    hash_at(Some(budget), value, 0)
}

/// The hash of a hashable key.
pub(crate) fn known_hash(key: &Value) -> u64 {
    hash_at(None, key, 0).unwrap_or_default()
}

fn hash_at(budget: Option<&Rc<Budget>>, value: &Value, depth: usize) -> Result<u64> {
    if depth > MAX_DEPTH {
        return Err(too_deep());
    }
    if let Some(budget) = budget {
        budget.step_bytes(value.as_text().map_or(0, |text| text.len()))?;
    }
    Ok(match value {
        Value::Text(text) => hash_str(text),
        Value::None => 1,
        Value::Undefined(_) => 2,
        Value::Bool(_) | Value::Int(..) => hasher().hash_one(value.as_int()),
        Value::Big(number) => hasher().hash_one(&***number),
        // A whole float hashes like the integer.
        Value::Float(number, _) => match number::whole_part(*number) {
            Ok(whole) if number.fract() == 0.0 => match whole.to_i64() {
                Some(small) => hasher().hash_one(Some(small)),
                None => hasher().hash_one(whole),
            },
            _ => hasher().hash_one(number.to_bits()),
        },
        Value::Tuple(items) => hash_items(budget, items, depth)?,
        Value::Range(range) => match range.len() {
            0 => hasher().hash_one(0),
            1 => hasher().hash_one((1, range.start)),
            length => hasher().hash_one((length, range.start, range.step)),
        },
        Value::Namespace(namespace) => hasher().hash_one(Rc::as_ptr(namespace) as usize),
        Value::Object(object) => hasher().hash_one(object.type_name()),
        Value::List(_) | Value::Dict(_) => {
            return type_error(format!("unhashable type: '{}'", value.type_name()));
        }
    })
}

fn hash_items(budget: Option<&Rc<Budget>>, items: &ValueList, depth: usize) -> Result<u64> {
    let mut hashes = Vec::with_capacity(items.len());
    for item in items.items().iter() {
        hashes.push(hash_at(budget, item, depth + 1)?);
    }
    Ok(hasher().hash_one(hashes))
}
