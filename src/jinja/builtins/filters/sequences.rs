//! Filters for sequences and mappings.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::rc::Rc;

use num_traits::ToPrimitive;

use crate::jinja::budget::{Budget, Charge};
use crate::jinja::builtins::methods;
use crate::jinja::builtins::methods::pairs;
use crate::jinja::builtins::{filters, is_tests};
use crate::jinja::error::{ErrorKind, Result, TemplateError};
use crate::jinja::syntax::ast::Arithmetic;
use crate::jinja::value::runtime::{Generator, Object};
use crate::jinja::value::{Undefined, Value};
use crate::jinja::value::{compare, iterate};
use crate::jinja::vm::arguments::{Args, integer};
use crate::jinja::vm::interpreter::Interpreter;
use crate::jinja::vm::{attribute, operators};

/// What a filter returns that Python makes a generator of. A failure is kept for the one who goes
/// through it; a limit is not.
fn generator(
    budget: &Rc<Budget>,
    items: Vec<Value>,
    failure: Option<TemplateError>,
) -> Result<Value> {
    match failure {
        Some(error) if error.kind() == ErrorKind::Limit => Err(error),
        failure => Ok(Value::object(Generator::object(budget, items, failure, "generator")?)),
    }
}

/// The steps from an item to what a filter looks at: `a.b.0`.
pub(super) struct AttributePath {
    parts: Vec<Value>,
    default: Option<Value>,
    /// Compare strings without their case.
    fold: bool,
}

impl AttributePath {
    pub(super) fn new(
        budget: &Rc<Budget>,
        attribute: Option<&Value>,
        fold: bool,
    ) -> Result<AttributePath> {
        let parts = match attribute {
            None | Some(Value::None) => Vec::new(),
            Some(Value::Text(text)) => AttributePath::parts(budget, text)?,
            Some(other) => vec![other.clone()],
        };
        Ok(AttributePath { parts, default: None, fold })
    }

    fn parts(budget: &Rc<Budget>, path: &str) -> Result<Vec<Value>> {
        budget.step_bytes(path.len())?;
        path.split('.')
            .map(|part| match part.parse() {
                Ok(index) if part.bytes().all(|byte| byte.is_ascii_digit()) => {
                    Ok(Value::Int(index))
                }
                _ => Value::text(budget, part),
            })
            .collect()
    }

    pub(super) fn of(&self, interpreter: &mut Interpreter<'_>, item: &Value) -> Result<Value> {
        let mut value = item.clone();
        for part in &self.parts {
            value = attribute::item(interpreter, &value, part)?;
            if let (true, Some(default)) = (value.is_undefined(), &self.default) {
                value = default.clone();
            }
        }
        if self.fold { folded(&interpreter.budget, value) } else { Ok(value) }
    }
}

fn folded(budget: &Rc<Budget>, value: Value) -> Result<Value> {
    match &value {
        Value::Text(text) => {
            let lower = crate::jinja::builtins::methods::changed_case(budget, text, "lower")?;
            Ok(lower.map_or(value, Value::Text))
        }
        _ => Ok(value),
    }
}

fn is_set(value: Option<Value>) -> bool {
    value.is_some_and(|value| value.is_true())
}

/// Sorts by keys, stable, in either direction as Python does. `as_items` compares the keys as lists
/// do: equal ones first.
fn sort_by_keys(
    budget: &Rc<Budget>,
    mut keyed: Vec<(Value, Value)>,
    reverse: bool,
    as_items: bool,
) -> Result<Vec<(Value, Value)>> {
    let less = |(a, _): &(Value, Value), (b, _): &(Value, Value)| {
        if as_items && compare::equal(budget, a, b)? {
            Ok(false)
        } else {
            compare::less(budget, a, b)
        }
    };
    if !reverse {
        return compare::sorted(keyed, less);
    }
    // Python reverses before and after, so that equals keep their order.
    keyed.reverse();
    let mut sorted = compare::sorted(keyed, less)?;
    sorted.reverse();
    Ok(sorted)
}

/// Room for what stands beside so many items while they are sorted or told apart.
fn charge_working_memory(budget: &Rc<Budget>, count: usize) -> Result<Charge> {
    budget.charge_values(count.saturating_mul(4))
}

fn keyed(
    interpreter: &mut Interpreter<'_>,
    items: Vec<Value>,
    path: &AttributePath,
) -> Result<Vec<(Value, Value)>> {
    let mut keyed = Vec::with_capacity(items.len());
    for item in items {
        interpreter.budget.step(1)?;
        keyed.push((path.of(interpreter, &item)?, item));
    }
    Ok(keyed)
}

pub(super) fn sort(interpreter: &mut Interpreter<'_>, value: Value, args: Args) -> Result<Value> {
    let [reverse, case_sensitive, attribute] =
        args.bind("sort", ["reverse", "case_sensitive", "attribute"], 0)?;
    let budget = Rc::clone(&interpreter.budget);
    let fold = !is_set(case_sensitive);
    let items = iterate::items(&budget, &value)?;
    let _working_memory = charge_working_memory(&budget, items.len())?;
    let sorted = match &attribute {
        Some(Value::Text(names)) if names.contains(',') => {
            let mut paths = Vec::new();
            for name in names.split(',') {
                paths.push(AttributePath {
                    parts: AttributePath::parts(&budget, name)?,
                    default: None,
                    fold,
                });
            }
            let mut sorted = Vec::with_capacity(items.len());
            for item in items {
                let keys = paths
                    .iter()
                    .map(|path| path.of(interpreter, &item))
                    .collect::<Result<Vec<_>>>()?;
                sorted.push((Value::list(&budget, keys)?, item));
            }
            sorted
        }
        attribute => {
            let path = AttributePath::new(&budget, attribute.as_ref(), fold)?;
            keyed(interpreter, items, &path)?
        }
    };
    let sorted = sort_by_keys(&budget, sorted, is_set(reverse), true)?;
    Value::list(&budget, sorted.into_iter().map(|(_, item)| item).collect())
}

pub(super) fn dictsort(
    interpreter: &mut Interpreter<'_>,
    value: Value,
    args: Args,
) -> Result<Value> {
    let [case_sensitive, by, reverse] =
        args.bind("dictsort", ["case_sensitive", "by", "reverse"], 0)?;
    let budget = Rc::clone(&interpreter.budget);
    let by_value = match by.as_ref().map_or(Some("key"), Value::as_str) {
        Some("key") => false,
        Some("value") => true,
        _ => return Err(TemplateError::value("You can only sort by either \"key\" or \"value\"")),
    };
    let Value::Dict(dict) = value.defined()? else {
        return Err(TemplateError::undefined(format!(
            "'{}' has no attribute 'items'",
            value.owner_name()
        )));
    };
    let fold = !is_set(case_sensitive);
    let _working_memory = charge_working_memory(&budget, dict.len())?;
    let mut sorted = Vec::with_capacity(dict.len());
    for ((key, member), pair) in dict.entries().iter().zip(pairs(&budget, dict)?) {
        let by = if by_value { member.clone() } else { key.clone() };
        sorted.push((if fold { folded(&budget, by)? } else { by }, pair));
    }
    let sorted = sort_by_keys(&budget, sorted, is_set(reverse), false)?;
    Value::list(&budget, sorted.into_iter().map(|(_, pair)| pair).collect())
}

pub(super) fn groupby(
    interpreter: &mut Interpreter<'_>,
    value: Value,
    args: Args,
) -> Result<Value> {
    let [attribute, default, case_sensitive] =
        args.bind("groupby", ["attribute", "default", "case_sensitive"], 1)?;
    let budget = Rc::clone(&interpreter.budget);
    let default = default.filter(|default| !default.is_none());
    let path = AttributePath {
        default: default.clone(),
        ..AttributePath::new(&budget, attribute.as_ref(), !is_set(case_sensitive))?
    };
    let plain =
        AttributePath { default, ..AttributePath::new(&budget, attribute.as_ref(), false)? };
    let items = iterate::items(&budget, &value)?;
    let _working_memory = charge_working_memory(&budget, items.len())?;
    let sorted = sort_by_keys(&budget, keyed(interpreter, items, &path)?, false, false)?;
    let mut groups: Vec<(Value, Vec<Value>)> = Vec::new();
    for (key, item) in sorted {
        match groups.last_mut() {
            Some((last, items)) if compare::equal(&budget, last, &key)? => items.push(item),
            _ => groups.push((key, vec![item])),
        }
    }
    let mut out = Vec::with_capacity(groups.len());
    for (_, items) in groups {
        let key = plain.of(interpreter, &items[0])?;
        let items = Value::list(&budget, items)?;
        out.push(Value::group(&budget, key, items)?);
    }
    Value::list(&budget, out)
}

pub(super) fn unique(interpreter: &mut Interpreter<'_>, value: Value, args: Args) -> Result<Value> {
    let [case_sensitive, attribute] = args.bind("unique", ["case_sensitive", "attribute"], 0)?;
    let budget = Rc::clone(&interpreter.budget);
    let path = AttributePath::new(&budget, attribute.as_ref(), !is_set(case_sensitive))?;
    let items = match iterate::items(&budget, &value) {
        Ok(items) => items,
        Err(error) => return generator(&budget, Vec::new(), Some(error)),
    };
    let _working_memory = charge_working_memory(&budget, items.len())?;
    let mut seen: HashMap<u64, Vec<Value>> = HashMap::new();
    let mut kept = Vec::new();
    for item in items {
        match is_new(interpreter, &mut seen, &path, &item) {
            Ok(true) => kept.push(item),
            Ok(false) => {}
            Err(error) => return generator(&budget, kept, Some(error)),
        }
    }
    generator(&budget, kept, None)
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
    let [case_sensitive, attribute] = args.bind(name, ["case_sensitive", "attribute"], 0)?;
    let budget = Rc::clone(&interpreter.budget);
    let path = AttributePath::new(&budget, attribute.as_ref(), !is_set(case_sensitive))?;
    let mut best: Option<(Value, Value)> = None;
    for item in iterate::items(&budget, &value)? {
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
    let [attribute, start] = args.bind("sum", ["attribute", "start"], 0)?;
    let budget = Rc::clone(&interpreter.budget);
    let path = AttributePath::new(&budget, attribute.as_ref(), false)?;
    let mut total = start.unwrap_or(Value::Int(0));
    if total.as_text().is_some() {
        return Err(TemplateError::value("sum() can't sum strings [use ''.join(seq) instead]"));
    }
    for item in iterate::items(&budget, &value)? {
        let item = path.of(interpreter, &item)?;
        total = operators::arithmetic(interpreter, Arithmetic::Add, &total, &item)?;
    }
    Ok(total)
}

pub(super) fn first(interpreter: &mut Interpreter<'_>, value: Value, args: Args) -> Result<Value> {
    args.expect_none("first")?;
    let first = match &value {
        Value::Object(object) => match &**object {
            Object::Generator(generator) => generator.next()?,
            _ => iterate::items(&interpreter.budget, &value)?.into_iter().next(),
        },
        Value::List(list) | Value::Tuple(list) => list.get(0),
        Value::Text(text) => {
            text.chars().next().map(|c| Value::Text(text.slice(0..c.len_utf8()).with_safe(false)))
        }
        other => iterate::items(&interpreter.budget, other)?.into_iter().next(),
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
        other => iterate::items(&interpreter.budget, reversible(other)?)?.pop(),
    };
    Ok(last
        .unwrap_or_else(|| Value::undefined(Undefined::Other("No last item, sequence was empty."))))
}

/// What has an end to start from.
fn reversible(value: &Value) -> Result<&Value> {
    match value {
        Value::Object(object) if matches!(**object, Object::Loop(_) | Object::Generator(_)) => {
            Err(TemplateError::value(format!("'{}' object is not reversible", value.type_name())))
        }
        other => Ok(other),
    }
}

pub(super) fn list(interpreter: &mut Interpreter<'_>, value: Value, args: Args) -> Result<Value> {
    args.expect_none("list")?;
    let items = iterate::items(&interpreter.budget, &value)?;
    Value::list(&interpreter.budget, items)
}

pub(super) fn items(interpreter: &mut Interpreter<'_>, value: Value, args: Args) -> Result<Value> {
    args.expect_none("items")?;
    let budget = &interpreter.budget;
    match &value {
        Value::Undefined(_) => generator(budget, Vec::new(), None),
        Value::Dict(dict) => generator(budget, pairs(budget, dict)?, None),
        _ => generator(
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
            return operators::slice(&budget, &value, &[Value::None, Value::None, Value::Int(-1)]);
        }
        Value::List(_) => "list_reverseiterator",
        Value::Dict(_) => "dict_reversekeyiterator",
        Value::Range(_) => "range_iterator",
        _ => "reversed",
    };
    let mut items = match iterate::items(&budget, &value) {
        Ok(items) => items,
        Err(error) if matches!(error.kind(), ErrorKind::Limit | ErrorKind::Unsupported) => {
            return Err(error);
        }
        Err(_) => return Err(TemplateError::value("argument must be iterable")),
    };
    items.reverse();
    // What has no end to start from becomes a list.
    let is_generator =
        matches!(&value, Value::Object(object) if matches!(**object, Object::Generator(_)));
    if is_generator || value.is_undefined() {
        return Value::list(&budget, items);
    }
    Ok(Value::object(Generator::object(&budget, items, None, type_name)?))
}

pub(super) fn batch(interpreter: &mut Interpreter<'_>, value: Value, args: Args) -> Result<Value> {
    let [count, fill] = args.bind("batch", ["linecount", "fill_with"], 1)?;
    let budget = Rc::clone(&interpreter.budget);
    // No batch is as long as something that is not a whole number.
    let count = match count {
        Some(Value::Float(number)) if number.fract() == 0.0 => number.to_i64(),
        count => count.and_then(|count| count.as_int()),
    };
    let mut batches = Vec::new();
    let mut batch: Vec<Value> = Vec::new();
    let items = match iterate::items(&budget, &value) {
        Ok(items) => items,
        Err(error) => return generator(&budget, Vec::new(), Some(error)),
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
    generator(&budget, batches, None)
}

pub(super) fn slice(interpreter: &mut Interpreter<'_>, value: Value, args: Args) -> Result<Value> {
    let [count, fill] = args.bind("slice", ["slices", "fill_with"], 1)?;
    let budget = Rc::clone(&interpreter.budget);
    let fill = fill.filter(|fill| !fill.is_none());
    let count = integer(&count.unwrap_or(Value::None))?;
    let items = match iterate::items(&budget, &value) {
        Ok(items) => items,
        Err(error) => return generator(&budget, Vec::new(), Some(error)),
    };
    if count == 0 {
        return generator(
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
    generator(&budget, slices, None)
}

pub(super) fn attr(interpreter: &mut Interpreter<'_>, value: Value, args: Args) -> Result<Value> {
    let [name] = args.bind("attr", ["name"], 1)?;
    let Some(Value::Text(name)) = name else {
        return Err(TemplateError::value("attribute name must be string"));
    };
    if !methods::is_unsafe(&value, &name) {
        value.defined()?;
    }
    let found = attribute::own_attribute(interpreter, &value, &name)?;
    Ok(found.unwrap_or_else(|| Value::undefined(Undefined::Attribute(value.owner_name(), name))))
}

/// Applies to each item, with copies of so many arguments; stops at the first failure. Filters that
/// apply filters nest.
fn apply_to_each(
    interpreter: &mut Interpreter<'_>,
    value: &Value,
    arguments: usize,
    mut apply: impl FnMut(&mut Interpreter<'_>, Value) -> Result<Option<Value>>,
) -> Result<Value> {
    let budget = Rc::clone(&interpreter.budget);
    if !value.is_true() {
        return generator(&budget, Vec::new(), None);
    }
    let items = match iterate::items(&budget, value) {
        Ok(items) => items,
        Err(error) => return generator(&budget, Vec::new(), Some(error)),
    };
    let _working_memory = budget.charge_values(items.len().saturating_add(2 * arguments))?;
    budget.nested(|| {
        let mut out = Vec::new();
        for item in items {
            budget.step(1 + arguments as u64)?;
            match apply(interpreter, item) {
                Ok(item) => out.extend(item),
                Err(error) => return generator(&budget, out, Some(error)),
            }
        }
        generator(&budget, out, None)
    })
}

pub(super) fn map(
    interpreter: &mut Interpreter<'_>,
    value: Value,
    mut args: Args,
) -> Result<Value> {
    let budget = Rc::clone(&interpreter.budget);
    let take = |args: &mut Args, name: &str| -> Option<Value> {
        let place = args.named.iter().position(|(known, _)| known.as_str() == name)?;
        Some(args.named.remove(place).1)
    };
    if args.positional.is_empty()
        && let Some(attribute) = take(&mut args, "attribute")
    {
        let default = take(&mut args, "default").filter(|default| !default.is_none());
        if let Some((name, _)) = args.named.first() {
            return Err(TemplateError::value(format!(
                "Unexpected keyword argument '{}'",
                name.as_str()
            )));
        }
        let path =
            AttributePath { default, ..AttributePath::new(&budget, Some(&attribute), false)? };
        return apply_to_each(interpreter, &value, 0, |interpreter, item| {
            path.of(interpreter, &item).map(Some)
        });
    }
    if args.positional.is_empty() {
        return generator(
            &budget,
            Vec::new(),
            Some(TemplateError::value("map requires a filter argument")),
        );
    }
    let name = args.positional.remove(0);
    let arguments = args.positional.len() + args.named.len();
    apply_to_each(interpreter, &value, arguments, |interpreter, item| {
        let filter = name
            .as_str()
            .and_then(filters::find)
            .ok_or_else(|| TemplateError::unsupported(format!("No filter named {name:?}.")))?;
        filter(interpreter, item, args.clone()).map(Some)
    })
}

pub(super) fn select(interpreter: &mut Interpreter<'_>, value: Value, args: Args) -> Result<Value> {
    select_items(interpreter, &value, args, false, true)
}

pub(super) fn reject(interpreter: &mut Interpreter<'_>, value: Value, args: Args) -> Result<Value> {
    select_items(interpreter, &value, args, false, false)
}

pub(super) fn selectattr(
    interpreter: &mut Interpreter<'_>,
    value: Value,
    args: Args,
) -> Result<Value> {
    select_items(interpreter, &value, args, true, true)
}

pub(super) fn rejectattr(
    interpreter: &mut Interpreter<'_>,
    value: Value,
    args: Args,
) -> Result<Value> {
    select_items(interpreter, &value, args, true, false)
}

fn select_items(
    interpreter: &mut Interpreter<'_>,
    value: &Value,
    mut args: Args,
    by_attribute: bool,
    wanted: bool,
) -> Result<Value> {
    let budget = Rc::clone(&interpreter.budget);
    let path = if by_attribute {
        if args.positional.is_empty() {
            return generator(
                &budget,
                Vec::new(),
                Some(TemplateError::value("Missing parameter for attribute name")),
            );
        }
        AttributePath::new(&budget, Some(&args.positional.remove(0)), false)?
    } else {
        AttributePath::new(&budget, None, false)?
    };
    let test: Option<Value> = (!args.positional.is_empty()).then(|| args.positional.remove(0));
    let arguments = args.positional.len() + args.named.len();
    apply_to_each(interpreter, value, arguments, |interpreter, item| {
        let subject = path.of(interpreter, &item)?;
        let holds = match &test {
            None => subject.is_true(),
            Some(name) => {
                let test = name.as_str().and_then(is_tests::find);
                let test = test.ok_or_else(|| {
                    TemplateError::unsupported(format!("No test named {name:?}."))
                })?;
                test(interpreter, &subject, args.clone())?
            }
        };
        Ok((holds == wanted).then_some(item))
    })
}
