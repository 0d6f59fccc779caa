//! `value.name` and `value[index]`, and the sandbox: which attributes and methods a value has.

use super::interpreter::Interpreter;
use crate::jinja::error::{ErrorKind, Result, unsupported};
use crate::jinja::literals::quoted_string;
use crate::jinja::value::text::Text;
use crate::jinja::value::{LoopObject, Object, Undefined, Value, sequence, string_methods};

/// `of.name`: the attribute, or the element with this name. `text` returns the name as a value. It
/// is not called for a member of a dict, which is the common case.
pub(crate) fn attribute<'t>(
    interpreter: &mut Interpreter<'t>,
    of: &Value,
    name: &str,
    text: impl FnOnce(&mut Interpreter<'t>) -> Text,
) -> Result<Value> {
    match of {
        // The sandbox hides the attributes of every Python object.
        Value::Undefined(_) if is_unsafe(of, name) => {}
        Value::Undefined(why) => return Err(why.error()),
        Value::Dict(dict) if !has(of, name) && !is_unsafe(of, name) => {
            interpreter.budget.read(name.len())?;
            return Ok(match dict.get_name(name) {
                Some(value) => value.clone(),
                None => missing(of, &text(interpreter)),
            });
        }
        _ => {}
    }
    let name = text(interpreter);
    match own_attribute(interpreter, of, &name)? {
        Some(value) => Ok(value),
        None => Ok(missing(of, &name)),
    }
}

fn missing(of: &Value, name: &Text) -> Value {
    Value::undefined(Undefined::Attribute(of.owner_name(), name.clone()))
}

/// The attribute without the fallback to elements. None if it does not exist.
pub(crate) fn own_attribute(
    interpreter: &mut Interpreter<'_>,
    of: &Value,
    name: &Text,
) -> Result<Option<Value>> {
    interpreter.budget.read(name.len())?;
    refuse_unsupported(of, name)?;
    if is_unsafe(of, name) || changes_list(of, name) {
        return Ok(Some(Value::undefined(Undefined::Unsafe(of.type_name(), name.clone()))));
    }
    if has(of, name) {
        return Ok(Some(Value::object(Object::Method {
            receiver: of.clone(),
            name: name.clone(),
        })));
    }
    Ok(match of {
        Value::Namespace(namespace) => namespace.get(&interpreter.budget, name)?,
        Value::Tuple(list) if list.is_group() => match name.as_str() {
            "grouper" => list.get(0),
            "list" => list.get(1),
            _ => None,
        },
        Value::Int(..) | Value::Big(_) | Value::Bool(_) | Value::Float(..) => number(of, name),
        Value::Range(range) => match name.as_str() {
            "start" => Some(Value::int(range.start)),
            "stop" => Some(Value::int(range.stop)),
            "step" => Some(Value::int(range.step)),
            _ => None,
        },
        Value::Object(object) => match &**object {
            Object::Loop(of) => loop_attribute(interpreter, of, name)?,
            Object::Template => {
                interpreter.block(name)?.map(|block| Value::object(Object::Block(block)))
            }
            Object::Macro(of) => match name.as_str() {
                "name" => Some(of.name.clone().map_or(Value::None, Value::Text)),
                "arguments" => {
                    interpreter.budget.step(of.code.parameters.len() as u64)?;
                    let names = of
                        .code
                        .parameters
                        .iter()
                        .map(|(name, _)| Value::Text(interpreter.text(*name)))
                        .collect();
                    Some(Value::tuple(&interpreter.budget, names)?)
                }
                "catch_kwargs" => Some(Value::Bool(of.code.uses_kwargs)),
                "catch_varargs" => Some(Value::Bool(of.code.uses_varargs)),
                "caller" => Some(Value::Bool(of.code.uses_caller)),
                _ => None,
            },
            Object::Cycler { items, at, .. } => match name.as_str() {
                "current" => items.get(at.get()).cloned(),
                "pos" => Some(Value::count(at.get())),
                "items" => {
                    interpreter.budget.step(items.len() as u64)?;
                    Some(Value::tuple(&interpreter.budget, items.clone())?)
                }
                _ => None,
            },
            Object::Joiner { separator, used } => match name.as_str() {
                "sep" => Some(separator.clone()),
                "used" => Some(Value::Bool(used.get())),
                _ => None,
            },
            _ => None,
        },
        _ => None,
    })
}

fn number(of: &Value, name: &Text) -> Option<Value> {
    let whole = match of {
        Value::Bool(flag) => Value::int(i64::from(*flag)),
        other => other.clone(),
    };
    match (name.as_str(), of) {
        ("real", _) => Some(whole),
        ("imag", Value::Float(..)) => Some(Value::float(0.0)),
        ("imag", _) => Some(Value::int(0)),
        ("numerator", Value::Int(..) | Value::Big(_) | Value::Bool(_)) => Some(whole),
        ("denominator", Value::Int(..) | Value::Big(_) | Value::Bool(_)) => Some(Value::int(1)),
        _ => None,
    }
}

fn loop_attribute(
    interpreter: &mut Interpreter<'_>,
    of: &LoopObject,
    name: &Text,
) -> Result<Option<Value>> {
    let neighbour = |item: Option<Value>, what| {
        item.unwrap_or_else(|| Value::undefined(Undefined::Other(what)))
    };
    Ok(Some(match name.as_str() {
        "index" => Value::count(of.count.get()),
        "index0" => Value::count(of.index()),
        "revindex" => Value::count(interpreter.loop_length(of)?.saturating_sub(of.index())),
        "revindex0" => Value::count(interpreter.loop_length(of)?.saturating_sub(of.count.get())),
        "first" => Value::Bool(of.index() == 0),
        "last" => Value::Bool(interpreter.peek(of)?.is_none()),
        "length" => Value::count(interpreter.loop_length(of)?),
        "depth" => Value::count(of.depth + 1),
        "depth0" => Value::count(of.depth),
        "previtem" => neighbour(of.previous.borrow().clone(), "there is no previous item"),
        "nextitem" => neighbour(interpreter.peek(of)?, "there is no next item"),
        _ => return Ok(None),
    }))
}

/// `of[index]`: the element. A string index falls back to the attribute of this name.
pub(crate) fn item(interpreter: &mut Interpreter<'_>, of: &Value, index: &Value) -> Result<Value> {
    let budget = &interpreter.budget;
    match of {
        Value::Undefined(why) => return Err(why.error()),
        Value::Dict(dict) => {
            // An unhashable key counts as missing.
            match dict.get(budget, index) {
                Ok(Some(value)) => return Ok(value.clone()),
                Err(error) if error.kind() == ErrorKind::Limit => return Err(error),
                _ => {}
            }
        }
        _ => {
            if let Some(at) = index.as_int()
                && let Some(value) = sequence::element(budget, of, at)?
            {
                return Ok(value);
            }
        }
    }
    if let Value::Text(name) = index {
        return Ok(own_attribute(interpreter, of, name)?.unwrap_or_else(|| missing(of, name)));
    }
    Ok(Value::undefined(Undefined::Element(of.owner_name(), index.clone())))
}

/// Rejects names that the sandbox of transformers reserves.
pub(crate) fn refuse_underscore(name: &Text) -> Result<()> {
    if !name.starts_with('_') {
        return Ok(());
    }
    unsupported(format!(
        "Chat templates cannot store underscore-prefixed attributes on a namespace, but got {}. \
         Please rename the attribute.",
        quoted_string(name)
    ))
}

/// Whether a value has a method of this name.
pub(crate) fn has(of: &Value, name: &str) -> bool {
    match of {
        Value::Text(text) => {
            matches!(name, "format" | "format_map") || string_methods::has(text, name)
        }
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

/// Whether `dict.name` certainly reads the member of this name. False for every underscore, because
/// the sandbox hides some of those names.
pub(crate) fn is_member(name: &str) -> bool {
    !name.starts_with('_') && !dict_has(name) && !dict_hides(name)
}

/// Whether this is a list method that a template may call but not read as an attribute.
fn changes_list(of: &Value, name: &str) -> bool {
    matches!(of, Value::List(_)) && matches!(name, "append" | "extend" | "insert" | "pop")
}

/// Rejects attributes that Python has and this interpreter lacks. Wrong text would be worse.
fn refuse_unsupported(of: &Value, name: &str) -> Result<()> {
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
