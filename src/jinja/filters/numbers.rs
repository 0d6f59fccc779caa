//! Filters for numbers.

use std::rc::Rc;

use num_traits::Signed;

use crate::jinja::args::{Args, integer};
use crate::jinja::error::{Error, Result};
use crate::jinja::interpreter::Interpreter;
use crate::jinja::number;
use crate::jinja::value::Value;

pub(super) fn abs(_: &mut Interpreter<'_>, value: Value, args: Args) -> Result<Value> {
    args.none("abs")?;
    match value.defined()? {
        Value::Float(number) => Ok(Value::Float(number.abs())),
        other => match number::big(other) {
            Some(number) => Ok(Value::integer(number.abs())),
            None => Err(Error::value(format!("bad operand type for abs(): '{}'", other.type_name()))),
        },
    }
}

pub(super) fn int(_: &mut Interpreter<'_>, value: Value, args: Args) -> Result<Value> {
    let [default, base] = args.bind("int", ["default", "base"], 0)?;
    let base = base.map_or(Ok(10), |base| integer(&base))?;
    let whole = match value.defined()? {
        Value::Text(text) => {
            let base = u32::try_from(base).unwrap_or(1);
            number::parse_int(text, base).or_else(|| number::parse_float(text).and_then(|float| number::truncate(float).ok()))
        }
        Value::Float(number) => match number::truncate(*number) {
            Ok(whole) => Some(whole),
            Err(error) if number.is_infinite() => return Err(error),
            Err(_) => None,
        },
        other => number::big(other).map(Value::integer),
    };
    Ok(whole.or(default).unwrap_or(Value::Int(0)))
}

pub(super) fn float(_: &mut Interpreter<'_>, value: Value, args: Args) -> Result<Value> {
    let [default] = args.bind("float", ["default"], 0)?;
    let number = match value.defined()? {
        Value::Text(text) => number::parse_float(text),
        other => number::as_float(other),
    };
    Ok(number.map(Value::Float).or(default).unwrap_or(Value::Float(0.0)))
}

pub(super) fn round(_: &mut Interpreter<'_>, value: Value, args: Args) -> Result<Value> {
    let [precision, method] = args.bind("round", ["precision", "method"], 0)?;
    let precision = precision.map_or(Ok(0), |precision| integer(&precision))?;
    let method = method.as_ref().map_or(Some("common"), Value::as_str);
    let Some(method @ ("common" | "ceil" | "floor")) = method else {
        return Err(Error::value("method must be common, ceil or floor"));
    };
    let value = value.defined()?;
    let wrong = || Error::value(format!("type {} doesn't define __round__ method", value.type_name()));
    if method == "common" {
        return match value {
            Value::Float(number) if !number.is_finite() && precision == 0 => Ok(value.clone()),
            Value::Float(number) => Ok(Value::Float(number::round(*number, precision))),
            Value::Int(_) | Value::Big(_) | Value::Bool(_) if precision >= 0 => {
                Ok(number::big(value).map_or(Value::None, Value::integer))
            }
            Value::Int(number) => {
                // To tens, hundreds and so on, half to even.
                let Some(unit) = u32::try_from(-precision).ok().and_then(|power| 10i64.checked_pow(power)) else {
                    return Ok(Value::Int(0));
                };
                let (whole, rest) = (number.div_euclid(unit), number.rem_euclid(unit));
                let up = rest * 2 > unit || rest * 2 == unit && whole % 2 != 0;
                Ok(Value::Int((whole + i64::from(up)) * unit))
            }
            _ => Err(wrong()),
        };
    }
    let number = number::as_float(value).ok_or_else(wrong)?;
    let scale = 10f64.powi(i32::try_from(precision).unwrap_or(0));
    let scaled = number * scale;
    let whole = if method == "ceil" { scaled.ceil() } else { scaled.floor() };
    Ok(Value::Float(whole / scale))
}

pub(super) fn filesizeformat(interpreter: &mut Interpreter<'_>, value: Value, args: Args) -> Result<Value> {
    let [binary] = args.bind("filesizeformat", ["binary"], 0)?;
    let binary = binary.is_some_and(|binary| binary.is_true());
    let number = match value.defined()? {
        Value::Text(text) => {
            number::parse_float(text).ok_or_else(|| Error::value(format!("could not convert string to float: {value:?}")))?
        }
        other => number::as_float(other).ok_or_else(|| {
            Error::value(format!("float() argument must be a string or a real number, not '{}'", other.type_name()))
        })?,
    };
    let base: f64 = if binary { 1024.0 } else { 1000.0 };
    let units = ["k", "M", "G", "T", "P", "E", "Z", "Y"];
    let text = if number == 1.0 {
        "1 Byte".to_owned()
    } else if number < base {
        format!("{} Bytes", number.trunc())
    } else {
        let mut unit = base;
        let mut place = 0;
        while number >= unit * base && place + 1 < units.len() {
            unit *= base;
            place += 1;
        }
        let prefix = units[place];
        let name = match (binary, prefix) {
            (true, "k") => "KiB".to_owned(),
            (true, prefix) => format!("{prefix}iB"),
            (false, prefix) => format!("{prefix}B"),
        };
        format!("{:.1} {name}", base * number / (unit * base))
    };
    Value::text(&Rc::clone(&interpreter.budget), text)
}
