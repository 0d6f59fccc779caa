//! `format(value, spec)`: the format specification mini-language.

use std::iter::Peekable;
use std::rc::Rc;
use std::str::Chars;

use num_bigint::BigInt;
use num_traits::{Signed, ToPrimitive};

use super::{FormatSpec, float_digits, pad_number, pad_text};
use crate::jinja::budget::Budget;
use crate::jinja::error::{Result, TemplateError, type_error};
use crate::jinja::value::text::{Text, TextBuilder};
use crate::jinja::value::{Value, number, print};

/// Parses a format specification. `default_align` depends on the type of the value.
fn parse_spec(text: &str, default_align: char) -> Result<FormatSpec> {
    let mut spec = FormatSpec::default();
    let mut chars = text.chars().peekable();
    let is_align = |c: &char| matches!(c, '<' | '>' | '=' | '^');
    let mut ahead = chars.clone();
    if let (Some(fill), Some(align)) = (ahead.next(), ahead.next().filter(is_align)) {
        (spec.fill, spec.align) = (Some(fill), Some(align));
        chars = ahead;
    } else {
        spec.align = chars.next_if(is_align);
    }
    spec.sign = chars.next_if(|c| matches!(c, '+' | '-' | ' '));
    spec.plain_zero = chars.next_if_eq(&'z').is_some();
    spec.alternate = chars.next_if_eq(&'#').is_some();
    if spec.fill.is_none() && chars.next_if_eq(&'0').is_some() {
        spec.fill = Some('0');
        if default_align == '>' {
            spec.align = spec.align.or(Some('='));
        }
    }
    spec.width = decimal(&mut chars).unwrap_or(0);
    spec.grouping = chars.next_if(|c| matches!(c, ',' | '_'));
    if chars.next_if_eq(&'.').is_some() {
        let precision = decimal(&mut chars)
            .ok_or_else(|| TemplateError::value("Format specifier missing precision"))?;
        spec.precision = Some(precision);
    }
    spec.kind = chars.next();
    if chars.next().is_some() {
        return type_error("Invalid format specifier");
    }
    spec.align = spec.align.or(Some(default_align));
    Ok(spec)
}

/// Parses a decimal number, if one follows.
fn decimal(chars: &mut Peekable<Chars<'_>>) -> Option<usize> {
    let mut number = None;
    while let Some(digit) = chars.peek().and_then(|c| c.to_digit(10)) {
        number = Some(number.unwrap_or(0usize).saturating_mul(10).saturating_add(digit as usize));
        chars.next();
    }
    number
}

/// `format(value, spec)`
pub(super) fn write_value(
    out: &mut TextBuilder,
    budget: &Rc<Budget>,
    value: &Value,
    spec: &Text,
) -> Result<()> {
    if spec.is_empty() {
        return print::write(out, budget, value);
    }
    budget.step_bytes(spec.len())?;
    let origin = spec.first_origin().or(value.number_origin());
    let spec = parse_spec(spec, if number::is_number(value) { '>' } else { '<' })?;
    let spec = FormatSpec { origin, ..spec };
    budget.can_allocate(spec.width)?;
    match value {
        Value::Text(text) => {
            budget.read(text.len())?;
            write_text(out, text, &spec)
        }
        Value::Int(..) | Value::Big(_) | Value::Bool(_) => write_integer(out, budget, value, spec),
        Value::Float(number, _) => match spec.kind {
            None | Some('e' | 'E' | 'f' | 'F' | 'g' | 'G' | 'n' | '%') => {
                float(out, budget, *number, spec)
            }
            Some(other) => Err(unknown_kind(value, other)),
        },
        other => type_error(format!(
            "unsupported format string passed to {}.__format__",
            other.type_name()
        )),
    }
}

fn unknown_kind(value: &Value, kind: char) -> TemplateError {
    TemplateError::value(format!(
        "Unknown format code '{kind}' for object of type '{}'",
        value.type_name()
    ))
}

fn write_text(out: &mut TextBuilder, text: &Text, spec: &FormatSpec) -> Result<()> {
    if let Some(kind) = spec.kind.filter(|kind| *kind != 's') {
        return Err(unknown_kind(&Value::Text(text.clone()), kind));
    }
    if let Some(separator) = spec.grouping {
        return type_error(format!("Cannot specify '{separator}' with 's'."));
    }
    if spec.alternate {
        return type_error("Alternate form (#) not allowed in string format specifier");
    }
    if spec.plain_zero {
        return type_error(
            "Negative zero coercion (z) not allowed in format specifier with string",
        );
    }
    if spec.sign.is_some() {
        return type_error("Sign not allowed in string format specifier");
    }
    if spec.align == Some('=') {
        return type_error("'=' alignment not allowed in string format specifier");
    }
    pad_text(out, text, spec)
}

fn write_integer(
    out: &mut TextBuilder,
    budget: &Rc<Budget>,
    value: &Value,
    spec: FormatSpec,
) -> Result<()> {
    let kind = spec.kind.unwrap_or('d');
    let number = number::big(value).unwrap_or_default();
    match (kind, spec.grouping) {
        ('b' | 'o' | 'x' | 'X' | 'c', Some(',')) | ('c' | 'n', Some(_)) => {
            return type_error(format!("Cannot specify a separator with '{kind}'."));
        }
        _ => {}
    }
    match kind {
        'c' if spec.sign.is_some() || spec.alternate => {
            type_error("Sign or alternate form not allowed with integer format specifier 'c'")
        }
        'd' | 'n' => integer(out, &number, 10, "", spec),
        'b' => integer(out, &number, 2, "0b", spec),
        'o' => integer(out, &number, 8, "0o", spec),
        'x' => integer(out, &number, 16, "0x", spec),
        'X' => integer(out, &number, 16, "0X", spec),
        'c' => {
            let c = number.to_u32().and_then(char::from_u32);
            let c = c.ok_or_else(|| TemplateError::value("%c arg not in range(0x110000)"))?;
            let c = Text::with_origin(budget, c.encode_utf8(&mut [0; 4]), spec.origin)?;
            pad_text(out, &c, &spec)
        }
        'e' | 'E' | 'f' | 'F' | 'g' | 'G' | '%' => {
            float(out, budget, number::as_float(value)?.unwrap_or_default(), spec)
        }
        other => Err(unknown_kind(value, other)),
    }
}

fn integer(
    out: &mut TextBuilder,
    number: &BigInt,
    radix: u32,
    prefix: &str,
    spec: FormatSpec,
) -> Result<()> {
    if spec.precision.is_some() {
        return type_error("Precision not allowed in integer format specifier");
    }
    if spec.plain_zero {
        return type_error(
            "Negative zero coercion (z) not allowed in format specifier with integer",
        );
    }
    let mut digits =
        if radix == 10 { number::digits(&number.abs())? } else { number.abs().to_str_radix(radix) };
    if prefix == "0X" {
        digits = digits.to_uppercase();
    }
    let prefix = if spec.alternate { prefix } else { "" };
    pad_number(out, number.is_negative(), prefix, &digits, &spec)
}

fn float(
    out: &mut TextBuilder,
    budget: &Rc<Budget>,
    number: f64,
    mut spec: FormatSpec,
) -> Result<()> {
    let negative = number.is_sign_negative() && !number.is_nan();
    let positive = number.abs();
    let digits = match (spec.kind, spec.precision) {
        (None, None) => number::float(positive),
        (None, Some(precision)) => {
            let digits = float_digits(budget, positive, 'g', precision, spec.alternate)?;
            // Unlike `g`, this format has at least one digit after the point.
            if digits.contains(['.', 'e', 'n', 'i']) { digits } else { digits + ".0" }
        }
        (Some('%'), precision) => {
            float_digits(budget, positive * 100.0, 'f', precision.unwrap_or(6), spec.alternate)?
                + "%"
        }
        (Some('n'), precision) => {
            float_digits(budget, positive, 'g', precision.unwrap_or(6), spec.alternate)?
        }
        (Some(kind), precision) => {
            float_digits(budget, positive, kind, precision.unwrap_or(6), spec.alternate)?
        }
    };
    spec.kind = Some('f');
    pad_number(out, negative, "", &digits, &spec)
}
