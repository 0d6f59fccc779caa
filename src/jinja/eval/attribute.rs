//! `value.name` and `value[index]`, subject to the sandbox.

use super::interpreter::Interpreter;
use super::operators;
use crate::jinja::builtins::methods;
use crate::jinja::error::{ErrorKind, Result, unsupported};
use crate::jinja::quote::quoted_string;
use crate::jinja::value::runtime::{LoopObject, Object};
use crate::jinja::value::text::Text;
use crate::jinja::value::{Undefined, Value};

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
        Value::Undefined(_) if methods::is_unsafe(of, name) => {}
        Value::Undefined(why) => return Err(why.error()),
        Value::Dict(dict) if !methods::has(of, name) && !methods::is_unsafe(of, name) => {
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
    methods::refuse_unsupported(of, name)?;
    if methods::is_unsafe(of, name) || methods::changes_list(of, name) {
        return Ok(Some(Value::undefined(Undefined::Unsafe(of.type_name(), name.clone()))));
    }
    if methods::has(of, name) {
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
                && let Some(value) = operators::element(budget, of, at)?
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
        "Chat templates cannot store underscore-prefixed attributes on a namespace, but got {}. Please rename the attribute.",
        quoted_string(name)
    ))
}
