//! Python's numbers: printing, parsing and arithmetic. The size of integers is limited by
//! [`MAX_BITS`].

use std::rc::Rc;

use num_bigint::BigInt;
use num_integer::Integer;
use num_traits::{FromPrimitive, One, Signed, ToPrimitive, Zero};

use super::Value;
use crate::jinja::budget::Budget;
use crate::jinja::error::{Result, TemplateError, type_error, unsupported};
use crate::jinja::syntax::ast::Arithmetic;
use crate::jinja::unicode;

/// The longest integer that arithmetic produces.
const MAX_BITS: u64 = 1 << 16;
/// Python's limit for converting integers to and from text.
const MAX_DIGITS: usize = 4300;

/// `repr` of a float: shortest digits, with an exponent below 1e-4 and from 1e16 on.
pub(crate) fn float(number: f64) -> String {
    if number.is_nan() {
        return "nan".to_owned();
    }
    if number.is_infinite() {
        return if number < 0.0 { "-inf" } else { "inf" }.to_owned();
    }
    let scientific = format!("{number:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..16).contains(&exponent) {
        let plain = number.to_string();
        return if plain.contains('.') { plain } else { plain + ".0" };
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}

/// The decimal digits of an integer.
pub(crate) fn digits(number: &BigInt) -> Result<String> {
    // Avoids converting numbers that certainly have too many digits.
    let text =
        if number.bits() < 4 * MAX_DIGITS as u64 { number.to_string() } else { String::new() };
    if text.is_empty() || text.trim_start_matches('-').len() > MAX_DIGITS {
        return type_error(format!(
            "Exceeds the limit ({MAX_DIGITS} digits) for integer string conversion"
        ));
    }
    Ok(text)
}

/// `int(text, base)`. Base 0 reads a prefix.
pub(crate) fn parse_int(text: &str, base: u32) -> Option<BigInt> {
    let text = text.trim_matches(unicode::is_space);
    let (negative, digits) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let prefixed = |prefix: &str| {
        digits.get(..2).filter(|start| start.eq_ignore_ascii_case(prefix)).map(|_| &digits[2..])
    };
    let (base, digits) = match base {
        0 => match (prefixed("0x"), prefixed("0o"), prefixed("0b")) {
            (Some(rest), _, _) => (16, rest.strip_prefix('_').unwrap_or(rest)),
            (_, Some(rest), _) => (8, rest.strip_prefix('_').unwrap_or(rest)),
            (_, _, Some(rest)) => (2, rest.strip_prefix('_').unwrap_or(rest)),
            _ if digits.starts_with('0')
                && digits.bytes().any(|b| b.is_ascii_digit() && b != b'0') =>
            {
                return None;
            }
            _ => (10, digits),
        },
        16 => (16, prefixed("0x").unwrap_or(digits)),
        8 => (8, prefixed("0o").unwrap_or(digits)),
        2 => (2, prefixed("0b").unwrap_or(digits)),
        base @ 2..=36 => (base, digits),
        _ => return None,
    };
    let mut plain = String::with_capacity(digits.len());
    let mut underscore = true;
    for c in digits.chars() {
        if c == '_' {
            if underscore {
                return None;
            }
            underscore = true;
        } else {
            plain.push(char::from_digit(unicode::digit(c).filter(|digit| *digit < base)?, 36)?);
            underscore = false;
        }
    }
    if underscore || plain.len() > MAX_DIGITS {
        return None;
    }
    let number = BigInt::parse_bytes(plain.as_bytes(), base)?;
    Some(if negative { -number } else { number })
}

/// `float(text)`.
pub(crate) fn parse_float(text: &str) -> Option<f64> {
    let text = text.trim_matches(unicode::is_space);
    let mut plain = String::with_capacity(text.len());
    let mut chars = text.chars().map(|c| unicode::decimal(c).unwrap_or(c)).peekable();
    let mut before = ' ';
    while let Some(c) = chars.next() {
        if c != '_' {
            plain.push(c);
        } else if !before.is_ascii_digit() || !chars.peek().is_some_and(char::is_ascii_digit) {
            return None;
        }
        before = c;
    }
    let unsigned = plain.strip_prefix(['+', '-']).unwrap_or(&plain);
    match unsigned.to_ascii_lowercase().as_str() {
        "inf" | "infinity" | "nan" => {}
        _ if unsigned.starts_with(|c: char| c.is_ascii_digit() || c == '.') => {}
        _ => return None,
    }
    plain.parse().ok()
}

/// An int or bool as a big integer.
pub(crate) fn big(value: &Value) -> Option<BigInt> {
    match value {
        Value::Int(number, _) => Some(BigInt::from(*number)),
        Value::Bool(flag) => Some(BigInt::from(*flag)),
        Value::Big(number) => Some((***number).clone()),
        _ => None,
    }
}

/// Whether a value is an int, bool or float.
pub(crate) fn is_number(value: &Value) -> bool {
    matches!(value, Value::Int(..) | Value::Bool(_) | Value::Big(_) | Value::Float(..))
}

/// `float(value)` of a number, otherwise None.
pub(crate) fn as_float(value: &Value) -> Result<Option<f64>> {
    Ok(Some(match value {
        Value::Float(number, _) => *number,
        #[expect(clippy::cast_precision_loss, reason = "as Python's float()")]
        Value::Int(number, _) => *number as f64,
        Value::Bool(flag) => f64::from(u8::from(*flag)),
        Value::Big(number) => quotient(number, &BigInt::one())
            .ok_or_else(|| TemplateError::value("int too large to convert to float"))?,
        _ => return Ok(None),
    }))
}

/// `int(float)`.
pub(crate) fn whole_part(number: f64) -> Result<BigInt> {
    if number.is_nan() {
        return type_error("cannot convert float NaN to integer");
    }
    BigInt::from_f64(number.trunc())
        .ok_or_else(|| TemplateError::value("cannot convert float infinity to integer"))
}

/// `int(float)` as a value.
pub(crate) fn truncate(budget: &Rc<Budget>, number: f64) -> Result<Value> {
    Ok(Value::charged_integer(budget, whole_part(number)?))
}

/// `a / b` with one rounding. None if the result does not fit a float.
pub(crate) fn quotient(a: &BigInt, b: &BigInt) -> Option<f64> {
    let bits = |number: &BigInt| i64::try_from(number.bits()).unwrap_or(i64::MAX);
    // Keeps at least 66 bits of the quotient. The last bit represents all bits below it. The shift
    // stops below the smallest float.
    let shift = (66 - (bits(a) - bits(b))).min(1_080);
    let (high, low) = (a.abs() << shift.max(0), b.abs() << (-shift).max(0));
    let (whole, rest) = high.div_rem(&low);
    let whole = whole.to_u128()? | u128::from(!rest.is_zero());
    let power = i32::try_from(-shift).ok()?;
    if power > 1_024 {
        return None;
    }
    #[expect(clippy::cast_precision_loss, reason = "rounds half to even, as Python does")]
    let number = whole as f64 * 2f64.powi(power / 2) * 2f64.powi(power - power / 2);
    number.is_finite().then_some(if a.is_negative() == b.is_negative() { number } else { -number })
}

/// The result for two numbers, with the origin of one of them. None if an operand is not a number.
pub(crate) fn arithmetic(
    budget: &Rc<Budget>,
    op: Arithmetic,
    left: &Value,
    right: &Value,
) -> Option<Result<Value>> {
    let result = plain_arithmetic(budget, op, left, right)?;
    match left.number_origin().or_else(|| right.number_origin()) {
        None => Some(result),
        origin => Some(result.map(|number| number.with_number_origin(origin))),
    }
}

fn plain_arithmetic(
    budget: &Rc<Budget>,
    op: Arithmetic,
    left: &Value,
    right: &Value,
) -> Option<Result<Value>> {
    if let (Some(a), Some(b)) = (left.as_int(), right.as_int())
        && let Some(result) = small(op, a, b)
    {
        return Some(Ok(result));
    }
    if let (Some(a), Some(b)) = (big(left), big(right)) {
        return Some(integers(budget, op, &a, &b));
    }
    if !is_number(left) || !is_number(right) {
        return None;
    }
    let both = || -> Result<Value> {
        match (as_float(left)?, as_float(right)?) {
            (Some(a), Some(b)) => floats(op, a, b),
            _ => Ok(Value::None),
        }
    };
    Some(both())
}

/// 64-bit arithmetic. None if the result does not fit.
fn small(op: Arithmetic, a: i64, b: i64) -> Option<Value> {
    match op {
        Arithmetic::Add => a.checked_add(b).map(Value::int),
        Arithmetic::Sub => a.checked_sub(b).map(Value::int),
        Arithmetic::Mul => a.checked_mul(b).map(Value::int),
        Arithmetic::FloorDiv if b != 0 && b != -1 => Some(Value::int(Integer::div_floor(&a, &b))),
        Arithmetic::Mod if b != 0 && b != -1 => Some(Value::int(Integer::mod_floor(&a, &b))),
        _ => None,
    }
}

fn integers(budget: &Rc<Budget>, op: Arithmetic, a: &BigInt, b: &BigInt) -> Result<Value> {
    if a.bits() > MAX_BITS || b.bits() > MAX_BITS {
        return Err(too_long());
    }
    // Multiplication and division visit all pairs of digits.
    budget.step(a.bits() * b.bits() / (1 << 18))?;
    let number = match op {
        Arithmetic::Add => a + b,
        Arithmetic::Sub => a - b,
        Arithmetic::Mul => a * b,
        Arithmetic::Div => {
            if b.is_zero() {
                return type_error("division by zero");
            }
            let quotient = quotient(a, b).ok_or_else(|| {
                TemplateError::value("integer division result too large for a float")
            })?;
            return Ok(Value::float(quotient));
        }
        Arithmetic::FloorDiv | Arithmetic::Mod if b.is_zero() => {
            return type_error("integer division or modulo by zero");
        }
        Arithmetic::FloorDiv => a.div_floor(b),
        Arithmetic::Mod => a.mod_floor(b),
        Arithmetic::Pow if b.is_negative() => {
            let float = |number: &BigInt| as_float(&Value::charged_integer(budget, number.clone()));
            return floats(op, float(a)?.unwrap_or_default(), float(b)?.unwrap_or_default());
        }
        Arithmetic::Pow => match b.to_u32() {
            Some(exponent) if u64::from(exponent).saturating_mul(a.bits()) <= MAX_BITS => {
                budget.step(MAX_BITS / 64)?;
                a.pow(exponent)
            }
            // Powers of 0, 1 and -1 stay small.
            _ if a.bits() <= 1 => a.pow(if b.is_even() { 2 } else { 1 }),
            _ => return Err(too_long()),
        },
    };
    budget.can_allocate(usize::try_from(number.bits() / 8).unwrap_or(usize::MAX))?;
    Ok(Value::charged_integer(budget, number))
}

fn too_long() -> TemplateError {
    TemplateError::limit(format!("an integer has more than {MAX_BITS} bits"))
}

fn floats(op: Arithmetic, a: f64, b: f64) -> Result<Value> {
    let number = match op {
        Arithmetic::Add => a + b,
        Arithmetic::Sub => a - b,
        Arithmetic::Mul => a * b,
        Arithmetic::Div if b == 0.0 => return type_error("float division by zero"),
        Arithmetic::Div => a / b,
        Arithmetic::FloorDiv if b == 0.0 => return type_error("float floor division by zero"),
        Arithmetic::Mod if b == 0.0 => return type_error("float modulo"),
        Arithmetic::FloorDiv => floor_divmod(a, b).0,
        Arithmetic::Mod => floor_divmod(a, b).1,
        Arithmetic::Pow => {
            if a == 0.0 && b < 0.0 {
                return type_error("0.0 cannot be raised to a negative power");
            }
            if a < 0.0 && b.fract() != 0.0 && b.is_finite() {
                return unsupported("complex numbers are not supported");
            }
            let power = a.powf(b);
            if power.is_infinite() && a.is_finite() && b.is_finite() {
                return type_error("(34, 'Numerical result out of range')");
            }
            power
        }
    };
    Ok(Value::float(number))
}

/// Python's `divmod` of floats. The remainder has the sign of the divisor.
fn floor_divmod(a: f64, b: f64) -> (f64, f64) {
    let mut remainder = a % b;
    let mut quotient = (a - remainder) / b;
    if remainder == 0.0 {
        remainder = 0.0f64.copysign(b);
    } else if (b < 0.0) != (remainder < 0.0) {
        remainder += b;
        quotient -= 1.0;
    }
    let floor = if quotient == 0.0 {
        0.0f64.copysign(a / b)
    } else {
        let floor = quotient.floor();
        if quotient - floor > 0.5 { floor + 1.0 } else { floor }
    };
    (floor, remainder)
}

/// `round(number, digits)` of a float: half to even on the exact decimal value.
pub(crate) fn round(number: f64, digits: i64) -> f64 {
    if !number.is_finite() || digits > 300 {
        return number;
    }
    if digits >= 0 {
        let digits = usize::try_from(digits).unwrap_or(0);
        // Formatting is exact and rounds half to even.
        return format!("{number:.digits$}").parse().unwrap_or(number);
    }
    if digits < -308 {
        return 0.0f64.copysign(number);
    }
    let scale = 10f64.powi(i32::try_from(-digits).unwrap_or(308));
    let scaled = number / scale;
    let rounded = scaled.round_ties_even() * scale;
    if rounded == 0.0 { 0.0f64.copysign(number) } else { rounded }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_print_as_in_python() {
        for (number, expected) in [
            (1.0, "1.0"),
            (0.1 + 0.2, "0.30000000000000004"),
            (1e16, "1e+16"),
            (1e15, "1000000000000000.0"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (1.5e-7, "1.5e-07"),
            (-0.0, "-0.0"),
            (1e300, "1e+300"),
            (f64::INFINITY, "inf"),
        ] {
            assert_eq!(float(number), expected);
        }
    }
}
