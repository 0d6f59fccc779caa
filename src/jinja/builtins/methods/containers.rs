//! Methods of lists, tuples and dicts.

use std::rc::Rc;

use crate::jinja::budget::Budget;
use crate::jinja::error::{Result, shown, type_error};
use crate::jinja::eval::arguments::{Args, integer};
use crate::jinja::eval::interpreter::Interpreter;
use crate::jinja::value::dict::Dict;
use crate::jinja::value::runtime::{Object, ViewKind};
use crate::jinja::value::text::Text;
use crate::jinja::value::{Value, ValueList, compare, iterate};

/// `count` and `index` of a list or tuple.
pub(super) fn sequence(
    budget: &Rc<Budget>,
    list: &ValueList,
    name: &Text,
    args: Args,
) -> Result<Value> {
    let ([wanted], [start, stop]) = args.bind(name, ["value"], ["start", "stop"])?;
    let items = list.items();
    let bound = |value: Option<Value>, default: usize| -> Result<usize> {
        let Some(value) = value else { return Ok(default) };
        let at = integer(&value)?;
        let length = i64::try_from(items.len()).unwrap_or(i64::MAX);
        let at = if at < 0 { at.saturating_add(length).max(0) } else { at.min(length) };
        Ok(usize::try_from(at).unwrap_or(0))
    };
    let (start, stop) = (bound(start, 0)?, bound(stop, items.len())?);
    find(budget, &items, name, &wanted, start, stop)
}

/// The number of occurrences of a value, or the index of the first.
pub(super) fn find(
    budget: &Rc<Budget>,
    items: &[Value],
    name: &Text,
    wanted: &Value,
    start: usize,
    stop: usize,
) -> Result<Value> {
    let mut count = 0;
    for (index, item) in items.iter().enumerate().take(stop).skip(start) {
        if compare::equal(budget, item, wanted)? {
            if name.as_str() == "index" {
                return Ok(Value::count(index));
            }
            count += 1;
        }
    }
    if name.as_str() == "index" {
        let mut text = crate::jinja::value::text::TextBuilder::new(budget);
        crate::jinja::value::print::repr(&mut text, budget, wanted, 0)?;
        return type_error(format!("{} is not in list", shown(text.as_str())));
    }
    Ok(Value::count(count))
}

pub(super) fn list(
    interpreter: &mut Interpreter<'_>,
    value: &Value,
    list: &Rc<ValueList>,
    name: &Text,
    args: Args,
) -> Result<Value> {
    let budget = Rc::clone(&interpreter.budget);
    match name.as_str() {
        "copy" => {
            args.expect_none("copy")?;
            Value::list(&budget, iterate::items(&budget, value)?)
        }
        "append" => {
            let [item] = args.required("append", ["object"])?;
            interpreter.track_cycle(value, &item)?;
            list.change(&budget, |items| items.push(item))?;
            Ok(Value::None)
        }
        "extend" => {
            let [items] = args.required("extend", ["iterable"])?;
            let more = iterate::items(&budget, &items)?;
            for item in more {
                interpreter.track_cycle(value, &item)?;
                list.change(&budget, |items| items.push(item))?;
            }
            Ok(Value::None)
        }
        "insert" => {
            let [index, item] = args.required("insert", ["index", "object"])?;
            let index = integer(&index)?;
            interpreter.track_cycle(value, &item)?;
            // All later items move.
            budget.step_bytes(list.len() * size_of::<Value>())?;
            list.change(&budget, |items| {
                let length = i64::try_from(items.len()).unwrap_or(i64::MAX);
                let at =
                    if index < 0 { index.saturating_add(length).max(0) } else { index.min(length) };
                items.insert(usize::try_from(at).unwrap_or(0), item);
            })?;
            Ok(Value::None)
        }
        "pop" => {
            let [index] = args.optional("pop", ["index"])?;
            let index = index.map_or(Ok(-1), |index| integer(&index))?;
            let length = i64::try_from(list.len()).unwrap_or(i64::MAX);
            let at = if index < 0 { index.saturating_add(length) } else { index };
            if length == 0 {
                return type_error("pop from empty list");
            }
            match usize::try_from(at) {
                Ok(at) if at < list.len() => {
                    budget.step_bytes((list.len() - at) * size_of::<Value>())?;
                    list.change(&budget, |items| items.remove(at))
                }
                _ => type_error("pop index out of range"),
            }
        }
        _ => sequence(&budget, list, name, args),
    }
}

pub(super) fn dict(
    interpreter: &mut Interpreter<'_>,
    dict: &Rc<Dict>,
    name: &Text,
    args: Args,
) -> Result<Value> {
    let budget = &interpreter.budget;
    match name.as_str() {
        "get" => {
            let ([key], [default]) = args.bind("get", ["key"], ["default"])?;
            let found = dict.get(budget, &key)?;
            Ok(found.cloned().or(default).unwrap_or(Value::None))
        }
        "copy" => {
            args.expect_none("copy")?;
            budget.can_allocate(dict.len() * 4 * size_of::<(Value, Value)>())?;
            Value::dict(budget, dict.entries().to_vec())
        }
        "fromkeys" => from_keys(budget, args),
        view => {
            args.expect_none(view)?;
            budget.step(dict.len() as u64)?;
            // Includes the view itself.
            let charge = budget.charge_values(dict.len() + 8)?;
            let (kind, items) = match view {
                "keys" => (ViewKind::Keys, dict.keys().cloned().collect()),
                "values" => (
                    ViewKind::Values,
                    dict.entries().iter().map(|(_, value)| value.clone()).collect(),
                ),
                _ => (ViewKind::Items, pairs(budget, dict)?),
            };
            Ok(Value::object(Object::View { kind, items, _charge: charge }))
        }
    }
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

/// `dict.fromkeys(keys, value)`
pub(super) fn from_keys(budget: &Rc<Budget>, args: Args) -> Result<Value> {
    let ([keys], [value]) = args.bind("fromkeys", ["iterable"], ["value"])?;
    let value = value.unwrap_or(Value::None);
    let keys = iterate::items(budget, &keys)?;
    budget.can_allocate(keys.len().saturating_mul(4 * size_of::<(Value, Value)>()))?;
    Value::dict(budget, keys.into_iter().map(|key| (key, value.clone())).collect())
}
