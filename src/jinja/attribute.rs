//! `value.name` and `value[index]`, within the sandbox.

use std::rc::Rc;

use super::budget::Budget;
use super::error::Result;
use super::interpreter::Interpreter;
use super::methods;
use super::object::{self, LoopObject, Object};
use super::operators;
use super::text::Text;
use super::value::{Undefined, Value};

/// `of.name`: the attribute, else the element of this name.
pub(crate) fn attribute(interpreter: &mut Interpreter<'_>, of: &Value, name: &Text) -> Result<Value> {
    match of {
        Value::Undefined(why) => return Err(why.error()),
        Value::Dict(dict) if !methods::has(of, name) && !methods::is_unsafe(of, name) => {
            return Ok(match dict.get_name(name) {
                Some(value) => value.clone(),
                None => missing(of, name),
            });
        }
        _ => {}
    }
    match own(&interpreter.budget, of, name)? {
        Some(value) => Ok(value),
        None => Ok(missing(of, name)),
    }
}

fn missing(of: &Value, name: &Text) -> Value {
    Value::undefined(Undefined::Attribute(of.owner_name(), name.clone()))
}

/// The attribute itself; None if there is none.
pub(crate) fn own(budget: &Rc<Budget>, of: &Value, name: &Text) -> Result<Option<Value>> {
    if methods::is_unsafe(of, name) {
        return Ok(Some(Value::undefined(Undefined::Unsafe(of.type_name(), name.clone()))));
    }
    if methods::has(of, name) {
        return Ok(Some(object::value(Object::Method { receiver: of.clone(), name: name.clone() })));
    }
    Ok(match of {
        Value::Namespace(namespace) => match namespace.get(name) {
            Some(_) if name.starts_with('_') => Some(Value::undefined(Undefined::Unsafe(of.type_name(), name.clone()))),
            found => found,
        },
        Value::Int(_) | Value::Big(_) | Value::Bool(_) | Value::Float(_) => number(of, name),
        Value::Range(range) => match name.as_str() {
            "start" => Some(Value::Int(range.start)),
            "stop" => Some(Value::Int(range.stop)),
            "step" => Some(Value::Int(range.step)),
            _ => None,
        },
        Value::Object(object) => match &**object {
            Object::Loop(of) => loop_attribute(budget, of, name)?,
            Object::Macro(of) => match name.as_str() {
                "name" => Some(of.name.clone().map_or(Value::None, Value::Text)),
                "catch_kwargs" => Some(Value::Bool(of.code.uses_kwargs)),
                "catch_varargs" => Some(Value::Bool(of.code.uses_varargs)),
                "caller" => Some(Value::Bool(of.code.uses_caller)),
                _ => None,
            },
            Object::Cycler { items, at } if name.as_str() == "current" => items.get(at.get()).cloned(),
            _ => None,
        },
        _ => None,
    })
}

fn number(of: &Value, name: &Text) -> Option<Value> {
    let whole = match of {
        Value::Bool(flag) => Value::Int(i64::from(*flag)),
        other => other.clone(),
    };
    match (name.as_str(), of) {
        ("real", _) => Some(whole),
        ("imag", Value::Float(_)) => Some(Value::Float(0.0)),
        ("imag", _) => Some(Value::Int(0)),
        ("numerator", Value::Int(_) | Value::Big(_) | Value::Bool(_)) => Some(whole),
        ("denominator", Value::Int(_) | Value::Big(_) | Value::Bool(_)) => Some(Value::Int(1)),
        _ => None,
    }
}

fn loop_attribute(budget: &Rc<Budget>, of: &LoopObject, name: &Text) -> Result<Option<Value>> {
    let (index, length) = (of.index.get(), of.len());
    let neighbour = |item: Option<&Value>, what| item.cloned().unwrap_or_else(|| Value::undefined(Undefined::Other(what)));
    let _ = budget;
    Ok(Some(match name.as_str() {
        "index" => Value::count(index + 1),
        "index0" => Value::count(index),
        "revindex" => Value::count(length - index),
        "revindex0" => Value::count(length - index - 1),
        "first" => Value::Bool(index == 0),
        "last" => Value::Bool(index + 1 == length),
        "length" => Value::count(length),
        "depth" => Value::count(of.depth + 1),
        "depth0" => Value::count(of.depth),
        "previtem" => neighbour(index.checked_sub(1).and_then(|before| of.items.get(before)), "there is no previous item"),
        "nextitem" => neighbour(of.items.get(index + 1), "there is no next item"),
        _ => return Ok(None),
    }))
}

/// `of[index]`: the element, else, for a string, the attribute of this name.
pub(crate) fn item(interpreter: &mut Interpreter<'_>, of: &Value, index: &Value) -> Result<Value> {
    let budget = &interpreter.budget;
    match of {
        Value::Undefined(why) => return Err(why.error()),
        Value::Dict(dict) => {
            // A key that has no hash finds nothing.
            if let Ok(Some(value)) = dict.get(budget, index) {
                return Ok(value.clone());
            }
        }
        _ => {
            if let Some(at) = index.as_int()
                && let Some(value) = operators::element(of, at)
            {
                return Ok(value);
            }
        }
    }
    if let Value::Text(name) = index {
        return Ok(own(budget, of, name)?.unwrap_or_else(|| missing(of, name)));
    }
    Ok(Value::undefined(Undefined::Element(of.owner_name(), index.clone())))
}
