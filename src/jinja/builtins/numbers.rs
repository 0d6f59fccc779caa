//! Filters for numbers.

use std::rc::Rc;

use num_bigint::BigInt;
use num_integer::Integer;
use num_traits::Signed;

use crate::jinja::error::{Result, TemplateError, type_error};
use crate::jinja::eval::interpreter::Interpreter;
use crate::jinja::value::arguments::{Args, integer};
use crate::jinja::value::text::Text;
use crate::jinja::value::{Value, number};

/// The origin of a number, or of a text that is read as one.
fn origin(value: &Value) -> Option<u32> {
    match value {
        Value::Text(text) => text.first_origin(),
        other => other.number_origin(),
    }
}

pub(super) fn abs(interpreter: &mut Interpreter<'_>, value: Value, args: Args) -> Result<Value> {
    args.expect_none("abs")?;
    match value.defined()? {
        Value::Float(number, origin) => Ok(Value::Float(number.abs(), *origin)),
        other => match number::big(other) {
            Some(number) => Ok(Value::charged_integer(&interpreter.budget, number.abs())
                .with_number_origin(value.number_origin())),
            None => type_error(format!("bad operand type for abs(): '{}'", other.type_name())),
        },
    }
}

pub(super) fn int(interpreter: &mut Interpreter<'_>, value: Value, args: Args) -> Result<Value> {
    let [default, base] = args.optional("int", ["default", "base"])?;
    let whole = match value.defined()? {
        Value::Text(text) => {
            interpreter.budget.step_bytes(text.len())?;
            // With an invalid base, the number is converted by `float()`.
            let base = base.map_or(Some(10), |base| base.as_int());
            let base = base.and_then(|base| u32::try_from(base).ok()).unwrap_or(1);
            let float =
                || number::parse_float(text).and_then(|float| number::whole_part(float).ok());
            number::parse_int(text, base).or_else(float)
        }
        Value::Float(number, _) => match number::whole_part(*number) {
            Ok(whole) => Some(whole),
            Err(error) if number.is_infinite() => return Err(error),
            Err(_) => None,
        },
        other => number::big(other),
    };
    let whole = whole.map(|whole| {
        Value::charged_integer(&interpreter.budget, whole).with_number_origin(origin(&value))
    });
    Ok(whole.or(default).unwrap_or(Value::int(0)))
}

pub(super) fn float(interpreter: &mut Interpreter<'_>, value: Value, args: Args) -> Result<Value> {
    let [default] = args.optional("float", ["default"])?;
    let number = match value.defined()? {
        Value::Text(text) => {
            interpreter.budget.step_bytes(text.len())?;
            number::parse_float(text)
        }
        other => number::as_float(other)?,
    };
    let number = number.map(|number| Value::Float(number, origin(&value)));
    Ok(number.or(default).unwrap_or(Value::float(0.0)))
}

pub(super) fn round(interpreter: &mut Interpreter<'_>, value: Value, args: Args) -> Result<Value> {
    let origin = origin(&value);
    rounded(interpreter, &value, args).map(|number| number.with_number_origin(origin))
}

fn rounded(interpreter: &mut Interpreter<'_>, value: &Value, args: Args) -> Result<Value> {
    let [precision, method] = args.optional("round", ["precision", "method"])?;
    let budget = Rc::clone(&interpreter.budget);
    let method = method.as_ref().map_or(Some("common"), Value::as_str);
    let Some(method @ ("common" | "ceil" | "floor")) = method else {
        return type_error("method must be common, ceil or floor");
    };
    let value = value.defined()?;
    let to_whole = matches!(precision, Some(Value::None)) && method == "common";
    let precision =
        precision.filter(|_| !to_whole).map_or(Ok(0), |precision| integer(&precision))?;
    let wrong = || {
        TemplateError::value(format!("type {} doesn't define __round__ method", value.type_name()))
    };
    match (method, value) {
        ("common", Value::Float(number, _)) if to_whole => {
            number::truncate(&budget, number.round_ties_even())
        }
        ("common", Value::Float(number, _)) if !number.is_finite() && precision == 0 => {
            Ok(value.clone())
        }
        ("common", Value::Float(number, _)) => Ok(Value::float(number::round(*number, precision))),
        ("common", _) => {
            let number = number::big(value).ok_or_else(wrong)?;
            Ok(Value::charged_integer(
                &budget,
                if precision < 0 { to_tens(&number, precision.unsigned_abs()) } else { number },
            ))
        }
        _ => {
            let number = number::as_float(value)?.ok_or_else(wrong)?;
            if precision >= 0 && number::big(value).is_some() {
                return Ok(Value::float(number));
            }
            let scale = 10f64.powi(i32::try_from(precision).unwrap_or(0));
            let scaled = number * scale;
            let whole = if method == "ceil" { scaled.ceil() } else { scaled.floor() };
            // Python converts to an integer here: negative zero is lost, and infinity fails.
            number::whole_part(whole)?;
            Ok(Value::float((whole + 0.0) / scale))
        }
    }
}

/// Rounds an integer to a power of ten, half to even.
fn to_tens(number: &BigInt, power: u64) -> BigInt {
    // A larger unit exceeds the number and rounds it to zero.
    let Some(power) = u32::try_from(power).ok().filter(|power| u64::from(*power) <= number.bits())
    else {
        return BigInt::ZERO;
    };
    let unit = BigInt::from(10).pow(power);
    let (whole, rest) = number.div_mod_floor(&unit);
    let twice = rest * 2;
    let up = twice > unit || twice == unit && whole.is_odd();
    (whole + i32::from(up)) * unit
}

pub(super) fn filesizeformat(
    interpreter: &mut Interpreter<'_>,
    value: Value,
    args: Args,
) -> Result<Value> {
    let [binary] = args.optional("filesizeformat", ["binary"])?;
    let binary = binary.is_some_and(|binary| binary.is_true());
    let number = match value.defined()? {
        Value::Text(text) => {
            interpreter.budget.read(text.len())?;
            number::parse_float(text).ok_or_else(|| {
                TemplateError::value(format!("could not convert string to float: {value:?}"))
            })?
        }
        other => number::as_float(other)?.ok_or_else(|| {
            TemplateError::value(format!(
                "float() argument must be a string or a real number, not '{}'",
                other.type_name()
            ))
        })?,
    };
    let base: u128 = if binary { 1024 } else { 1000 };
    #[expect(clippy::cast_precision_loss, reason = "as Python converts the integer beside a float")]
    let float = |number: u128| number as f64;
    let units = ["k", "M", "G", "T", "P", "E", "Z", "Y"];
    let text = if number == 1.0 {
        "1 Byte".to_owned()
    } else if number < float(base) {
        let whole = number::whole_part(number)?;
        format!("{whole} Bytes")
    } else {
        // Python compares integers here.
        let whole = number::whole_part(number)?;
        let mut unit = base * base;
        let mut position = 0;
        while whole >= BigInt::from(unit) && position + 1 < units.len() {
            unit *= base;
            position += 1;
        }
        let prefix = units[position];
        let name = match (binary, prefix) {
            (true, "k") => "KiB".to_owned(),
            (true, prefix) => format!("{prefix}iB"),
            (false, prefix) => format!("{prefix}B"),
        };
        format!("{:.1} {name}", float(base) * number / float(unit))
    };
    Ok(Value::Text(Text::with_origin(&interpreter.budget, &text, origin(&value))?))
}
