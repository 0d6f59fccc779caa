//! Calls the methods of Python's types that the sandbox allows.

use std::rc::Rc;

use num_bigint::BigInt;
use num_traits::Signed;

use super::interpreter::Interpreter;
use super::str_format;
use crate::jinja::budget::Budget;
use crate::jinja::error::{Result, shown, type_error};
use crate::jinja::value::arguments::{Args, integer};
use crate::jinja::value::text::{Text, TextBuilder};
use crate::jinja::value::{
    Dict, Object, Value, ValueList, ViewKind, compare, number, print, sequence, string_methods,
};

/// Calls a method that the value [has](super::attribute::has).
pub(crate) fn call(
    interpreter: &mut Interpreter<'_>,
    of: &Value,
    name: &Text,
    args: Args,
) -> Result<Value> {
    let budget = Rc::clone(&interpreter.budget);
    if !args.named.is_empty() && !takes_names(of, name) {
        return type_error(format!(
            "{}.{}() takes no keyword arguments",
            of.type_name(),
            name.as_str()
        ));
    }
    match of {
        Value::Text(text) => {
            budget.step_bytes(text.len())?;
            match name.as_str() {
                "format" => str_format::method(interpreter, text, args),
                "format_map" => str_format::method_map(interpreter, text, args),
                _ => string_methods::call(&budget, text, name, args),
            }
        }
        Value::List(list) => call_list(interpreter, of, list, name, args),
        Value::Tuple(list) => index_or_count(&budget, list, name, args),
        Value::Dict(dict) => call_dict(&budget, dict, name, args),
        Value::Range(_) => {
            let items = sequence::items(&budget, of)?;
            let [wanted] = args.required(name, ["value"])?;
            find(&budget, &items, name, &wanted, 0, items.len())
        }
        Value::Int(..) | Value::Big(_) | Value::Bool(_) => call_integer(&budget, of, name, args),
        Value::Float(number, _) => {
            args.expect_none(name)?;
            match name.as_str() {
                "is_integer" => Ok(Value::Bool(number.is_finite() && number.fract() == 0.0)),
                "as_integer_ratio" => ratio(&budget, *number, of.number_origin()),
                _ => Ok(of.clone()),
            }
        }
        Value::Object(object) => call_object(&budget, object, name, args),
        other => type_error(format!("'{}' object is not callable", other.type_name())),
    }
}

fn call_integer(budget: &Rc<Budget>, of: &Value, name: &Text, args: Args) -> Result<Value> {
    args.expect_none(name)?;
    let number = number::big(of).unwrap_or_default();
    match name.as_str() {
        "bit_length" => Ok(Value::count(usize::try_from(number.bits()).unwrap_or(usize::MAX))),
        "bit_count" => {
            let digits = number.abs().to_str_radix(2);
            Ok(Value::count(digits.bytes().filter(|digit| *digit == b'1').count()))
        }
        "as_integer_ratio" => {
            let numerator = Value::charged_integer(budget, number);
            let numerator = numerator.with_number_origin(of.number_origin());
            Value::tuple(budget, vec![numerator, Value::int(1)])
        }
        _ => Ok(Value::charged_integer(budget, number).with_number_origin(of.number_origin())),
    }
}

fn call_object(budget: &Rc<Budget>, object: &Object, name: &Text, args: Args) -> Result<Value> {
    match (object, name.as_str()) {
        (Object::Loop(of), "cycle") => {
            if args.positional.is_empty() {
                return type_error("no items for cycling given");
            }
            let at = of.index() % args.positional.len();
            Ok(args.positional[at].clone())
        }
        (Object::Loop(of), _) => {
            let now = Value::tuple(budget, args.positional)?;
            let before = of.last_changed.borrow().clone();
            let changed = match before {
                Some(before) => !compare::equal(budget, &before, &now)?,
                None => true,
            };
            if changed {
                of.last_changed.replace(Some(now));
            }
            Ok(Value::Bool(changed))
        }
        (Object::Cycler { items, at, .. }, "next") => {
            args.expect_none("next")?;
            let item = items[at.get()].clone();
            at.set((at.get() + 1) % items.len());
            Ok(item)
        }
        (Object::Cycler { at, .. }, _) => {
            args.expect_none("reset")?;
            at.set(0);
            Ok(Value::None)
        }
        (Object::Function(..), _) => from_keys(budget, args),
        _ => type_error(format!("'{}' object is not callable", object.type_name())),
    }
}

/// Whether a method takes keyword arguments. Most methods implemented in C do not.
fn takes_names(of: &Value, name: &str) -> bool {
    matches!(of, Value::Text(_))
        && matches!(name, "format" | "split" | "rsplit" | "splitlines" | "expandtabs")
}

/// `float.as_integer_ratio`.
fn ratio(budget: &Rc<Budget>, number: f64, origin: Option<u32>) -> Result<Value> {
    if number.is_nan() {
        return type_error("cannot convert NaN to integer ratio");
    }
    if number.is_infinite() {
        return type_error("cannot convert Infinity to integer ratio");
    }
    let mut numerator = number;
    let mut power = 0u32;
    while numerator.fract() != 0.0 {
        numerator *= 2.0;
        power += 1;
    }
    let denominator = Value::charged_integer(budget, BigInt::from(1) << power);
    let numerator = number::truncate(budget, numerator)?;
    let parts = [numerator, denominator].map(|part| part.with_number_origin(origin));
    Value::tuple(budget, parts.into())
}

/// `count` and `index` of a list or tuple.
fn index_or_count(budget: &Rc<Budget>, list: &ValueList, name: &Text, args: Args) -> Result<Value> {
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
fn find(
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
        let mut text = TextBuilder::new(budget);
        print::repr(&mut text, budget, wanted, 0)?;
        return type_error(format!("{} is not in list", shown(text.as_str())));
    }
    Ok(Value::count(count))
}

fn call_list(
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
            Value::list(&budget, sequence::items(&budget, value)?)
        }
        "append" => {
            let [item] = args.required("append", ["object"])?;
            interpreter.track_cycle(value, &item)?;
            list.change(&budget, |items| items.push(item))?;
            Ok(Value::None)
        }
        "extend" => {
            let [items] = args.required("extend", ["iterable"])?;
            let more = sequence::items(&budget, &items)?;
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
        _ => index_or_count(&budget, list, name, args),
    }
}

fn call_dict(budget: &Rc<Budget>, dict: &Rc<Dict>, name: &Text, args: Args) -> Result<Value> {
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
                _ => (ViewKind::Items, sequence::pairs(budget, dict)?),
            };
            Ok(Value::object(Object::View { kind, items, _charge: charge }))
        }
    }
}

/// `dict.fromkeys(keys, value)`
fn from_keys(budget: &Rc<Budget>, args: Args) -> Result<Value> {
    let ([keys], [value]) = args.bind("fromkeys", ["iterable"], ["value"])?;
    let value = value.unwrap_or(Value::None);
    let keys = sequence::items(budget, &keys)?;
    budget.can_allocate(keys.len().saturating_mul(4 * size_of::<(Value, Value)>()))?;
    Value::dict(budget, keys.into_iter().map(|key| (key, value.clone())).collect())
}
