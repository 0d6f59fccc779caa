//! The methods of Python's types that the sandbox allows.

mod case;
mod containers;
mod html;
mod search;
mod split;
mod text;

pub(crate) use case::changed_case;
pub(crate) use containers::pairs;
pub(crate) use html::strip_tags;
pub(crate) use split::line_parts;
pub(crate) use text::{pad, replace, trim};

use std::rc::Rc;

use num_traits::Signed;

use crate::jinja::budget::Budget;
use crate::jinja::error::{Result, type_error, unsupported};
use crate::jinja::eval::arguments::Args;
use crate::jinja::eval::interpreter::Interpreter;
use crate::jinja::value::runtime::Object;
use crate::jinja::value::text::Text;
use crate::jinja::value::{Value, compare, iterate, number};

/// Whether a value has a method of this name.
pub(crate) fn has(of: &Value, name: &str) -> bool {
    match of {
        Value::Text(text) => self::text::has(text, name),
        Value::List(list) => {
            matches!(name, "count" | "index" | "copy")
                || list.is_growable() && matches!(name, "append" | "extend" | "insert" | "pop")
        }
        Value::Tuple(_) | Value::Range(_) => matches!(name, "count" | "index"),
        Value::Dict(_) => dict_has(name),
        Value::Int(..) | Value::Big(_) | Value::Bool(_) => {
            matches!(name, "bit_length" | "bit_count" | "conjugate" | "as_integer_ratio")
        }
        Value::Float(..) => matches!(name, "is_integer" | "conjugate" | "as_integer_ratio"),
        Value::Object(object) => match &**object {
            Object::Loop(_) => matches!(name, "cycle" | "changed"),
            Object::Cycler { .. } => matches!(name, "next" | "reset"),
            Object::Function("dict", _) => name == "fromkeys",
            _ => false,
        },
        _ => false,
    }
}

/// Whether the sandbox hides an attribute.
pub(crate) fn is_unsafe(of: &Value, name: &str) -> bool {
    let mutates = match of {
        Value::List(list) => {
            matches!(name, "clear" | "remove" | "reverse" | "sort")
                || !list.is_growable() && matches!(name, "append" | "extend" | "insert" | "pop")
        }
        Value::Dict(_) => dict_hides(name),
        _ => false,
    };
    mutates || name.starts_with('_') && is_dunder(of, name)
}

fn dict_has(name: &str) -> bool {
    matches!(name, "get" | "items" | "keys" | "values" | "copy" | "fromkeys")
}

fn dict_hides(name: &str) -> bool {
    matches!(name, "clear" | "pop" | "popitem" | "setdefault" | "update")
}

/// Whether an attribute of this name on a dict can only be a member.
pub(crate) fn is_member(name: &str) -> bool {
    !name.starts_with('_') && !dict_has(name) && !dict_hides(name)
}

/// Whether this is a list method that a template may call but not read as an attribute.
pub(crate) fn changes_list(of: &Value, name: &str) -> bool {
    matches!(of, Value::List(_)) && matches!(name, "append" | "extend" | "insert" | "pop")
}

/// Rejects attributes that Python has and this interpreter lacks. Wrong text would be worse.
pub(crate) fn refuse_unsupported(of: &Value, name: &str) -> Result<()> {
    let lacks = match of {
        Value::Text(_) => matches!(name, "encode" | "translate" | "maketrans"),
        Value::Int(..) | Value::Big(_) | Value::Bool(_) => {
            matches!(name, "to_bytes" | "from_bytes")
        }
        Value::Float(..) => matches!(name, "hex" | "fromhex"),
        Value::Object(object) => match &**object {
            Object::View { .. } => matches!(name, "isdisjoint" | "mapping"),
            Object::Generator(_) => matches!(name, "close" | "send" | "throw"),
            _ => false,
        },
        _ => false,
    };
    if lacks {
        return unsupported(format!(
            "the attribute '{name}' of '{}' is not supported",
            of.type_name()
        ));
    }
    Ok(())
}

/// Whether every Python object has the attribute.
fn is_dunder(of: &Value, name: &str) -> bool {
    let every = [
        "__class__",
        "__doc__",
        "__dir__",
        "__eq__",
        "__ne__",
        "__lt__",
        "__le__",
        "__gt__",
        "__ge__",
        "__hash__",
        "__init__",
        "__init_subclass__",
        "__new__",
        "__reduce__",
        "__reduce_ex__",
        "__repr__",
        "__setattr__",
        "__delattr__",
        "__getattribute__",
        "__sizeof__",
        "__str__",
        "__subclasshook__",
        "__format__",
    ];
    // Private attributes of Jinja2's `Undefined`.
    let undefined =
        ["_undefined_hint", "_undefined_obj", "_undefined_name", "_undefined_exception"];
    every.contains(&name)
        || matches!(of, Value::Undefined(_)) && undefined.contains(&name)
        || matches!(of, Value::Text(_) | Value::List(_) | Value::Tuple(_) | Value::Dict(_))
            && ["__len__", "__iter__", "__contains__", "__getitem__"].contains(&name)
}

/// Calls a method that the value [`has`].
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
        Value::Text(text) => self::text::call(interpreter, text, name, args),
        Value::List(list) => containers::list(interpreter, of, list, name, args),
        Value::Tuple(list) => containers::sequence(&budget, list, name, args),
        Value::Dict(dict) => containers::dict(interpreter, dict, name, args),
        Value::Range(_) => {
            let items = iterate::items(&budget, of)?;
            let [wanted] = args.required(name, ["value"])?;
            containers::find(&budget, &items, name, &wanted, 0, items.len())
        }
        Value::Int(..) | Value::Big(_) | Value::Bool(_) => call_integer(&budget, of, name, args),
        Value::Float(number, _) => {
            args.expect_none(name)?;
            match name.as_str() {
                "is_integer" => Ok(Value::Bool(number.is_finite() && number.fract() == 0.0)),
                "as_integer_ratio" => ratio(interpreter, *number, of.number_origin()),
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
        (Object::Function(..), _) => containers::from_keys(budget, args),
        _ => type_error(format!("'{}' object is not callable", object.type_name())),
    }
}

/// Whether a method takes keyword arguments. Most methods implemented in C do not.
fn takes_names(of: &Value, name: &str) -> bool {
    matches!(of, Value::Text(_))
        && matches!(name, "format" | "split" | "rsplit" | "splitlines" | "expandtabs")
}

/// `float.as_integer_ratio`.
fn ratio(interpreter: &mut Interpreter<'_>, number: f64, origin: Option<u32>) -> Result<Value> {
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
    let budget = &interpreter.budget;
    let denominator = Value::charged_integer(budget, num_bigint::BigInt::from(1) << power);
    let numerator = number::truncate(budget, numerator)?;
    let parts = [numerator, denominator].map(|part| part.with_number_origin(origin));
    Value::tuple(budget, parts.into())
}
