//! Filters for sequences and mappings.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::rc::Rc;

use num_traits::ToPrimitive;

use super::by_attribute::{AttributePath, charge_working_memory, is_set};
use crate::jinja::error::{ErrorKind, Result, TemplateError, type_error};
use crate::jinja::eval::attribute;
use crate::jinja::eval::interpreter::Interpreter;
use crate::jinja::syntax::ast::Arithmetic;
use crate::jinja::value::arguments::{Args, integer};
use crate::jinja::value::{Generator, Object, Undefined, Value, compare, operators, sequence};

pub(super) fn unique(interpreter: &mut Interpreter<'_>, value: Value, args: Args) -> Result<Value> {
    let [case_sensitive, attribute] = args.optional("unique", ["case_sensitive", "attribute"])?;
    let budget = Rc::clone(&interpreter.budget);
    let path = AttributePath::new(&budget, attribute.as_ref(), !is_set(case_sensitive))?;
    let items = match sequence::items(&budget, &value) {
        Ok(items) => items,
        Err(error) => return Generator::value(&budget, Vec::new(), Some(error)),
    };
    let _working_memory = charge_working_memory(&budget, items.len())?;
    let mut seen: HashMap<u64, Vec<Value>> = HashMap::new();
    let mut kept = Vec::new();
    for item in items {
        match is_new(interpreter, &mut seen, &path, &item) {
            Ok(true) => kept.push(item),
            Ok(false) => {}
            Err(error) => return Generator::value(&budget, kept, Some(error)),
        }
    }
    Generator::value(&budget, kept, None)
}

fn is_new(
    interpreter: &mut Interpreter<'_>,
    seen: &mut HashMap<u64, Vec<Value>>,
    path: &AttributePath,
    item: &Value,
) -> Result<bool> {
    let key = path.of(interpreter, item)?;
    let budget = &interpreter.budget;
    let known = seen.entry(compare::hash(budget, &key)?).or_default();
    for other in known.iter() {
        if compare::equal(budget, other, &key)? {
            return Ok(false);
        }
    }
    known.push(key);
    Ok(true)
}

pub(super) fn min(interpreter: &mut Interpreter<'_>, value: Value, args: Args) -> Result<Value> {
    extreme(interpreter, value, args, "min", Ordering::Less)
}

pub(super) fn max(interpreter: &mut Interpreter<'_>, value: Value, args: Args) -> Result<Value> {
    extreme(interpreter, value, args, "max", Ordering::Greater)
}

fn extreme(
    interpreter: &mut Interpreter<'_>,
    value: Value,
    args: Args,
    name: &str,
    wanted: Ordering,
) -> Result<Value> {
    let [case_sensitive, attribute] = args.optional(name, ["case_sensitive", "attribute"])?;
    let budget = Rc::clone(&interpreter.budget);
    let path = AttributePath::new(&budget, attribute.as_ref(), !is_set(case_sensitive))?;
    let mut best: Option<(Value, Value)> = None;
    for item in sequence::items(&budget, &value)? {
        let key = path.of(interpreter, &item)?;
        let better = match &best {
            None => true,
            Some((known, _)) => {
                let symbol = if wanted == Ordering::Less { "<" } else { ">" };
                compare::order(&budget, &key, known, symbol)? == Some(wanted)
            }
        };
        if better {
            best = Some((key, item));
        }
    }
    Ok(best.map_or_else(
        || Value::undefined(Undefined::Other("No aggregated item, sequence was empty.")),
        |(_, item)| item,
    ))
}

pub(super) fn sum(interpreter: &mut Interpreter<'_>, value: Value, args: Args) -> Result<Value> {
    let [attribute, start] = args.optional("sum", ["attribute", "start"])?;
    let budget = Rc::clone(&interpreter.budget);
    let path = AttributePath::new(&budget, attribute.as_ref(), false)?;
    let mut total = start.unwrap_or(Value::int(0));
    if total.as_text().is_some() {
        return type_error("sum() can't sum strings [use ''.join(seq) instead]");
    }
    for item in sequence::items(&budget, &value)? {
        let item = path.of(interpreter, &item)?;
        total = operators::arithmetic(&budget, Arithmetic::Add, &total, &item)?;
    }
    Ok(total)
}

pub(super) fn first(interpreter: &mut Interpreter<'_>, value: Value, args: Args) -> Result<Value> {
    args.expect_none("first")?;
    let first = match &value {
        Value::Object(object) => match &**object {
            Object::Generator(generator) => generator.next()?,
            _ => sequence::items(&interpreter.budget, &value)?.into_iter().next(),
        },
        Value::List(list) | Value::Tuple(list) => list.get(0),
        Value::Text(text) => {
            text.chars().next().map(|c| Value::Text(text.slice(0..c.len_utf8()).with_safe(false)))
        }
        other => sequence::items(&interpreter.budget, other)?.into_iter().next(),
    };
    Ok(first.unwrap_or_else(|| {
        Value::undefined(Undefined::Other("No first item, sequence was empty."))
    }))
}

pub(super) fn last(interpreter: &mut Interpreter<'_>, value: Value, args: Args) -> Result<Value> {
    args.expect_none("last")?;
    let last = match &value {
        Value::List(list) | Value::Tuple(list) => {
            list.len().checked_sub(1).and_then(|at| list.get(at))
        }
        Value::Text(text) => text.chars().next_back().map(|c| {
            Value::Text(text.slice(text.len() - c.len_utf8()..text.len()).with_safe(false))
        }),
        other => sequence::items(&interpreter.budget, reversible(other)?)?.pop(),
    };
    Ok(last
        .unwrap_or_else(|| Value::undefined(Undefined::Other("No last item, sequence was empty."))))
}

/// Fails for values that Python cannot reverse.
fn reversible(value: &Value) -> Result<&Value> {
    match value {
        Value::Object(object) if matches!(**object, Object::Loop(_) | Object::Generator(_)) => {
            type_error(format!("'{}' object is not reversible", value.type_name()))
        }
        other => Ok(other),
    }
}

pub(super) fn list(interpreter: &mut Interpreter<'_>, value: Value, args: Args) -> Result<Value> {
    args.expect_none("list")?;
    let items = sequence::items(&interpreter.budget, &value)?;
    Value::list(&interpreter.budget, items)
}

pub(super) fn items(interpreter: &mut Interpreter<'_>, value: Value, args: Args) -> Result<Value> {
    args.expect_none("items")?;
    let budget = &interpreter.budget;
    match &value {
        Value::Undefined(_) => Generator::value(budget, Vec::new(), None),
        Value::Dict(dict) => Generator::value(budget, sequence::pairs(budget, dict)?, None),
        _ => Generator::value(
            budget,
            Vec::new(),
            Some(TemplateError::value("Can only get item pairs from a mapping.")),
        ),
    }
}

pub(super) fn reverse(
    interpreter: &mut Interpreter<'_>,
    value: Value,
    args: Args,
) -> Result<Value> {
    args.expect_none("reverse")?;
    let budget = Rc::clone(&interpreter.budget);
    let type_name = match &value {
        Value::Text(_) => {
            return sequence::slice(&budget, &value, &[Value::None, Value::None, Value::int(-1)]);
        }
        Value::List(_) => "list_reverseiterator",
        Value::Dict(_) => "dict_reversekeyiterator",
        Value::Range(_) => "range_iterator",
        _ => "reversed",
    };
    let mut items = match sequence::items(&budget, &value) {
        Ok(items) => items,
        Err(error) if matches!(error.kind(), ErrorKind::Limit | ErrorKind::Unsupported) => {
            return Err(error);
        }
        Err(_) => return type_error("argument must be iterable"),
    };
    items.reverse();
    // A value that cannot be read backwards becomes a list.
    let is_generator =
        matches!(&value, Value::Object(object) if matches!(**object, Object::Generator(_)));
    if is_generator || value.is_undefined() {
        return Value::list(&budget, items);
    }
    Ok(Value::object(Generator::object(&budget, items, None, type_name)?))
}

pub(super) fn batch(interpreter: &mut Interpreter<'_>, value: Value, args: Args) -> Result<Value> {
    let ([count], [fill]) = args.bind("batch", ["linecount"], ["fill_with"])?;
    let budget = Rc::clone(&interpreter.budget);
    // A count that is not an integer is never reached.
    let count = match count {
        Value::Float(number, _) if number.fract() == 0.0 => number.to_i64(),
        count => count.as_int(),
    };
    let mut batches = Vec::new();
    let mut batch: Vec<Value> = Vec::new();
    let items = match sequence::items(&budget, &value) {
        Ok(items) => items,
        Err(error) => return Generator::value(&budget, Vec::new(), Some(error)),
    };
    for item in items {
        if i64::try_from(batch.len()).ok() == count {
            batches.push(Value::list(&budget, std::mem::take(&mut batch))?);
        }
        batch.push(item);
    }
    if !batch.is_empty() {
        if let Some(fill) = fill.filter(|fill| !fill.is_none()) {
            let count =
                count.ok_or_else(|| TemplateError::value("can't multiply sequence by non-int"))?;
            let count = usize::try_from(count).unwrap_or(0).max(batch.len());
            budget.step(count as u64)?;
            budget.can_allocate(count.saturating_mul(4 * size_of::<Value>()))?;
            batch.resize(count, fill);
        }
        batches.push(Value::list(&budget, batch)?);
    }
    Generator::value(&budget, batches, None)
}

pub(super) fn slice(interpreter: &mut Interpreter<'_>, value: Value, args: Args) -> Result<Value> {
    let ([count], [fill]) = args.bind("slice", ["slices"], ["fill_with"])?;
    let budget = Rc::clone(&interpreter.budget);
    let fill = fill.filter(|fill| !fill.is_none());
    let count = integer(&count)?;
    let items = match sequence::items(&budget, &value) {
        Ok(items) => items,
        Err(error) => return Generator::value(&budget, Vec::new(), Some(error)),
    };
    if count == 0 {
        return Generator::value(
            &budget,
            Vec::new(),
            Some(TemplateError::value("integer division or modulo by zero")),
        );
    }
    let count = usize::try_from(count).unwrap_or(0);
    budget.can_allocate(count.saturating_mul(128))?;
    let mut slices = Vec::with_capacity(count);
    let mut start = 0;
    for number in 0..count {
        budget.step(1)?;
        let extra = usize::from(number < items.len() % count);
        let end = start + items.len() / count + extra;
        let mut part = items[start..end].to_vec();
        if let (0, Some(fill)) = (extra, &fill) {
            part.push(fill.clone());
        }
        slices.push(Value::list(&budget, part)?);
        start = end;
    }
    Generator::value(&budget, slices, None)
}

pub(super) fn attr(interpreter: &mut Interpreter<'_>, value: Value, args: Args) -> Result<Value> {
    let [name] = args.required("attr", ["name"])?;
    let Value::Text(name) = name else {
        return type_error("attribute name must be string");
    };
    if !attribute::is_unsafe(&value, &name) {
        value.defined()?;
    }
    let found = attribute::own_attribute(interpreter, &value, &name)?;
    Ok(found.unwrap_or_else(|| Value::undefined(Undefined::Attribute(value.owner_name(), name))))
}
