//! The tests of the operator `is`.

use std::rc::Rc;

use crate::jinja::error::Result;
use crate::jinja::eval::interpreter::{Interpreter, Test};
use crate::jinja::syntax::ast::{Arithmetic, Comparison};
use crate::jinja::unicode;
use crate::jinja::value::arguments::Args;
use crate::jinja::value::{Object, Value, compare, number, operators, print};

/// All tests by name.
pub(super) static TESTS: [(&str, Test); 39] = [
    ("defined", |_, value, args| args.expect_none("defined").map(|()| !value.is_undefined())),
    ("undefined", |_, value, args| args.expect_none("undefined").map(|()| value.is_undefined())),
    ("none", |_, value, args| args.expect_none("none").map(|()| value.is_none())),
    ("boolean", |_, value, args| {
        args.expect_none("boolean").map(|()| matches!(value, Value::Bool(_)))
    }),
    ("true", |_, value, args| {
        args.expect_none("true").map(|()| matches!(value, Value::Bool(true)))
    }),
    ("false", |_, value, args| {
        args.expect_none("false").map(|()| matches!(value, Value::Bool(false)))
    }),
    ("integer", |_, value, args| {
        args.expect_none("integer").map(|()| matches!(value, Value::Int(..) | Value::Big(_)))
    }),
    ("float", |_, value, args| {
        args.expect_none("float").map(|()| matches!(value, Value::Float(..)))
    }),
    ("number", |_, value, args| args.expect_none("number").map(|()| number::is_number(value))),
    ("string", |_, value, args| {
        args.expect_none("string").map(|()| matches!(value, Value::Text(_)))
    }),
    ("mapping", |_, value, args| {
        args.expect_none("mapping").map(|()| matches!(value, Value::Dict(_)))
    }),
    ("sequence", |_, value, args| args.expect_none("sequence").map(|()| is_sequence(value))),
    ("iterable", |_, value, args| args.expect_none("iterable").map(|()| is_iterable(value))),
    ("callable", |_, value, args| args.expect_none("callable").map(|()| is_callable(value))),
    ("escaped", |_, value, args| {
        args.expect_none("escaped").map(|()| value.as_text().is_some_and(|text| text.is_safe()))
    }),
    ("lower", |interpreter, value, args| {
        args.expect_none("lower")?;
        let text = print::text(&interpreter.budget, value)?;
        Ok(unicode::is_case(&text, char::is_lowercase))
    }),
    ("upper", |interpreter, value, args| {
        args.expect_none("upper")?;
        let text = print::text(&interpreter.budget, value)?;
        Ok(unicode::is_case(&text, char::is_uppercase))
    }),
    ("even", |interpreter, value, args| {
        args.expect_none("even").and_then(|()| is_multiple(interpreter, value, &Value::int(2)))
    }),
    ("odd", |interpreter, value, args| {
        args.expect_none("odd")?;
        let rest = remainder(interpreter, value, &Value::int(2))?;
        compare::equal(&interpreter.budget, &rest, &Value::int(1))
    }),
    ("divisibleby", |interpreter, value, args| {
        let [number] = args.required("test_divisibleby", ["num"])?;
        is_multiple(interpreter, value, &number)
    }),
    ("sameas", |interpreter, value, args| {
        let [other] = args.required("test_sameas", ["other"])?;
        is_same(interpreter, value, &other)
    }),
    ("filter", |interpreter, value, args| {
        args.expect_none("test_filter")?;
        compare::hash(&interpreter.budget, value)?;
        Ok(value.as_str().is_some_and(|name| interpreter.builtins.filter(name).is_some()))
    }),
    ("test", |interpreter, value, args| {
        args.expect_none("test_test")?;
        compare::hash(&interpreter.budget, value)?;
        Ok(value.as_str().is_some_and(|name| interpreter.builtins.test(name).is_some()))
    }),
    ("in", |interpreter, value, args| {
        let [container] = args.required("test_in", ["seq"])?;
        operators::compare(&interpreter.budget, Comparison::In, value, &container)
    }),
    ("eq", |interpreter, value, args| compared(interpreter, Comparison::Equal, value, args)),
    ("equalto", |interpreter, value, args| compared(interpreter, Comparison::Equal, value, args)),
    ("==", |interpreter, value, args| compared(interpreter, Comparison::Equal, value, args)),
    ("ne", |interpreter, value, args| compared(interpreter, Comparison::NotEqual, value, args)),
    ("!=", |interpreter, value, args| compared(interpreter, Comparison::NotEqual, value, args)),
    ("lt", |interpreter, value, args| compared(interpreter, Comparison::Less, value, args)),
    ("lessthan", |interpreter, value, args| compared(interpreter, Comparison::Less, value, args)),
    ("<", |interpreter, value, args| compared(interpreter, Comparison::Less, value, args)),
    ("le", |interpreter, value, args| compared(interpreter, Comparison::LessEqual, value, args)),
    ("<=", |interpreter, value, args| compared(interpreter, Comparison::LessEqual, value, args)),
    ("gt", |interpreter, value, args| compared(interpreter, Comparison::Greater, value, args)),
    ("greaterthan", |interpreter, value, args| {
        compared(interpreter, Comparison::Greater, value, args)
    }),
    (">", |interpreter, value, args| compared(interpreter, Comparison::Greater, value, args)),
    ("ge", |interpreter, value, args| compared(interpreter, Comparison::GreaterEqual, value, args)),
    (">=", |interpreter, value, args| compared(interpreter, Comparison::GreaterEqual, value, args)),
];

fn compared(
    interpreter: &mut Interpreter<'_>,
    op: Comparison,
    value: &Value,
    args: Args,
) -> Result<bool> {
    let [other] = args.required("operator", ["other"])?;
    operators::compare(&interpreter.budget, op, value, &other)
}

/// Whether the value has a length and elements.
fn is_sequence(value: &Value) -> bool {
    matches!(
        value,
        Value::Text(_)
            | Value::List(_)
            | Value::Tuple(_)
            | Value::Dict(_)
            | Value::Range(_)
            | Value::Undefined(_)
    )
}

fn is_iterable(value: &Value) -> bool {
    match value {
        Value::Object(object) => {
            matches!(**object, Object::View { .. } | Object::Generator(_) | Object::Loop(_))
        }
        other => is_sequence(other),
    }
}

fn is_callable(value: &Value) -> bool {
    match value {
        Value::Object(object) => object.is_callable(),
        // Undefined has a method in Jinja2 that raises when called.
        Value::Undefined(_) => true,
        _ => false,
    }
}

fn remainder(interpreter: &mut Interpreter<'_>, value: &Value, divisor: &Value) -> Result<Value> {
    operators::arithmetic(&interpreter.budget, Arithmetic::Mod, value, divisor)
}

fn is_multiple(interpreter: &mut Interpreter<'_>, value: &Value, divisor: &Value) -> Result<bool> {
    let rest = remainder(interpreter, value, divisor)?;
    compare::equal(&interpreter.budget, &rest, &Value::int(0))
}

/// `is`: identity. Small values are identical if they are equal.
fn is_same(interpreter: &mut Interpreter<'_>, value: &Value, other: &Value) -> Result<bool> {
    Ok(match (value, other) {
        (Value::List(a), Value::List(b)) | (Value::Tuple(a), Value::Tuple(b)) => Rc::ptr_eq(a, b),
        (Value::Dict(a), Value::Dict(b)) => Rc::ptr_eq(a, b),
        (Value::Undefined(a), Value::Undefined(b)) => Rc::ptr_eq(a, b),
        // Python shares strings of up to one character.
        (Value::Text(a), Value::Text(b)) => {
            a.is_safe() == b.is_safe()
                && (a.is_same(b) || !a.is_safe() && a.len() <= 1 && a.as_str() == b.as_str())
        }
        (Value::Bool(_), Value::Int(..)) | (Value::Int(..), Value::Bool(_)) => false,
        (Value::Float(..), Value::Int(..)) | (Value::Int(..), Value::Float(..)) => false,
        _ => {
            let same_type = value.type_name() == other.type_name();
            same_type && compare::equal(&interpreter.budget, value, other)?
        }
    })
}
