//! `template % value`.

use std::rc::Rc;

use num_traits::Signed;

use super::{FormatSpec, float_digits, pad_number, pad_text, repr};
use crate::jinja::budget::Budget;
use crate::jinja::error::{Result, TemplateError, type_error};
use crate::jinja::eval::arguments::integer;
use crate::jinja::eval::interpreter::Interpreter;
use crate::jinja::quote::quoted_string;
use crate::jinja::value::dict::Dict;
use crate::jinja::value::text::{Text, TextBuilder};
use crate::jinja::value::{Value, iterate, markup, number, print};

/// The right operand of `%`.
struct PercentArguments {
    values: Vec<Value>,
    used: usize,
    mapping: Option<Rc<Dict>>,
}

impl PercentArguments {
    fn next(&mut self) -> Result<Value> {
        let value = self
            .values
            .get(self.used)
            .cloned()
            .ok_or_else(|| TemplateError::value("not enough arguments for format string"))?;
        self.used += 1;
        Ok(value)
    }

    /// The integer argument of a `*`.
    fn next_integer(&mut self) -> Result<i64> {
        integer(&self.next()?).map_err(|_| TemplateError::value("* wants int"))
    }
}

/// One conversion, such as `%(key)-05.1f`.
struct Conversion {
    /// The value of the key, if there is one.
    value: Option<Value>,
    spec: FormatSpec,
    kind: char,
    /// The length after the `%`, in bytes.
    length: usize,
}

/// `template % value`
pub(crate) fn percent(
    interpreter: &mut Interpreter<'_>,
    template: &Text,
    value: &Value,
) -> Result<Value> {
    let budget = Rc::clone(&interpreter.budget);
    let mut arguments = PercentArguments {
        values: match value {
            Value::Tuple(_) => iterate::items(&budget, value)?,
            other => vec![other.clone()],
        },
        used: 0,
        mapping: match value {
            Value::Dict(dict) => Some(Rc::clone(dict)),
            _ => None,
        },
    };
    let mut out = TextBuilder::new(&budget);
    let source = template.as_str();
    let mut at = 0;
    while let Some(found) = source[at..].find('%') {
        out.push_text(&template.slice(at..at + found))?;
        at += found + 1;
        let mut conversion = parse_conversion(&budget, &source[at..], &mut arguments)?;
        let written = template.slice(at - 1..at + conversion.length);
        conversion.spec.origin = written.first_origin();
        at += conversion.length;
        if conversion.kind == '%' {
            out.push_from("%", conversion.spec.origin)?;
            continue;
        }
        let value = match conversion.value {
            Some(value) => value,
            None => arguments.next()?,
        };
        convert(&mut out, &budget, template, &value, conversion.kind, conversion.spec)?;
    }
    out.push_text(&template.slice(at..source.len()))?;
    // Containers with elements may remain unused.
    let keyed =
        matches!(value, Value::Dict(_) | Value::List(_) | Value::Range(_) | Value::Undefined(_));
    if arguments.used < arguments.values.len() && !keyed {
        return type_error("not all arguments converted during string formatting");
    }
    Ok(Value::Text(out.finish()?.with_safe(template.is_safe())))
}

fn parse_conversion(
    budget: &Rc<Budget>,
    source: &str,
    arguments: &mut PercentArguments,
) -> Result<Conversion> {
    let (value, mut rest) = if source.starts_with('(') {
        let (value, rest) = keyed_value(budget, source, arguments)?;
        (Some(value), rest)
    } else {
        (None, source)
    };
    let mut spec = FormatSpec::default();
    let mut zero = false;
    while let Some(flag) = next_if(&mut rest, |c| matches!(c, '-' | '+' | ' ' | '#' | '0')) {
        match flag {
            '-' => spec.align = Some('<'),
            '+' => spec.sign = Some('+'),
            ' ' => spec.sign = spec.sign.or(Some(' ')),
            '#' => spec.alternate = true,
            _ => zero = true,
        }
    }
    if next_if(&mut rest, |c| c == '*').is_some() {
        let width = arguments.next_integer()?;
        if width < 0 {
            spec.align = Some('<');
        }
        spec.width = usize::try_from(width.unsigned_abs()).unwrap_or(usize::MAX);
    } else {
        spec.width = digits(&mut rest, 0);
    }
    if next_if(&mut rest, |c| c == '.').is_some() {
        let mut precision = 0;
        if next_if(&mut rest, |c| c == '*').is_some() {
            precision = usize::try_from(arguments.next_integer()?).unwrap_or(0);
        }
        spec.precision = Some(digits(&mut rest, precision));
    }
    next_if(&mut rest, |c| matches!(c, 'h' | 'l' | 'L'));
    let Some(kind) = next_if(&mut rest, |_| true) else {
        return type_error("incomplete format");
    };
    if zero && spec.align.is_none() && !matches!(kind, 's' | 'r' | 'a' | 'c') {
        (spec.fill, spec.align) = (Some('0'), Some('='));
    }
    Ok(Conversion { value, spec, kind, length: source.len() - rest.len() })
}

/// Takes the next character if it is accepted.
fn next_if(rest: &mut &str, accepts: impl Fn(char) -> bool) -> Option<char> {
    let c = rest.chars().next().filter(|c| accepts(*c))?;
    *rest = &rest[c.len_utf8()..];
    Some(c)
}

/// Takes decimal digits and appends them to a number.
fn digits(rest: &mut &str, mut number: usize) -> usize {
    while let Some(digit) = next_if(rest, |c| c.is_ascii_digit()).and_then(|c| c.to_digit(10)) {
        number = number.saturating_mul(10).saturating_add(digit as usize);
    }
    number
}

/// The value of `(key)`, and the source after it.
fn keyed_value<'s>(
    budget: &Rc<Budget>,
    source: &'s str,
    arguments: &PercentArguments,
) -> Result<(Value, &'s str)> {
    let mut depth = 0usize;
    let end = source.char_indices().find(|(_, c)| {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        depth == 0
    });
    let Some((end, _)) = end else { return type_error("incomplete format key") };
    let Some(mapping) = &arguments.mapping else {
        return type_error("format requires a mapping");
    };
    let key = &source[1..end];
    budget.step_bytes(key.len())?;
    match mapping.get_name(key) {
        Some(value) => Ok((value.clone(), &source[end + 1..])),
        None => type_error(quoted_string(key)),
    }
}

fn convert(
    out: &mut TextBuilder,
    budget: &Rc<Budget>,
    template: &Text,
    value: &Value,
    kind: char,
    mut spec: FormatSpec,
) -> Result<()> {
    budget.can_allocate(spec.width)?;
    spec.align = spec.align.or(Some('>'));
    spec.origin = spec.origin.or(value.number_origin());
    match kind {
        's' | 'r' | 'a' => {
            let mut text = match kind {
                's' => print::text(budget, value)?,
                _ => repr(budget, value, kind == 'a')?,
            };
            if template.is_safe() {
                text = markup::escape_text(budget, &text)?;
            }
            pad_text(out, &text, &spec)
        }
        'c' => pad_text(out, &character(budget, value)?, &spec),
        'd' | 'i' | 'u' => decimal_integer(out, budget, value, kind, spec),
        'x' | 'X' | 'o' => radix_integer(out, budget, value, kind, &spec),
        'e' | 'E' | 'f' | 'F' | 'g' | 'G' => {
            let number = number::as_float(value.defined()?)?.ok_or_else(|| {
                TemplateError::value(format!("must be real number, not {}", value.type_name()))
            })?;
            let digits = float_digits(
                budget,
                number.abs(),
                kind,
                spec.precision.unwrap_or(6),
                spec.alternate,
            )?;
            pad_number(out, number.is_sign_negative() && !number.is_nan(), "", &digits, &spec)
        }
        other => type_error(format!(
            "unsupported format character '{other}' (0x{:x}) at index {}",
            u32::from(other),
            template.len().saturating_sub(1)
        )),
    }
}

fn is_char(text: &str) -> bool {
    let mut chars = text.chars();
    chars.next().is_some() && chars.next().is_none()
}

/// The character of `%c`.
fn character(budget: &Rc<Budget>, value: &Value) -> Result<Text> {
    match value {
        Value::Text(text) if is_char(text) => Ok(text.clone()),
        Value::Text(_) => type_error("%c requires int or char"),
        other => {
            let code =
                integer(other).map_err(|_| TemplateError::value("%c requires int or char"))?;
            let c = u32::try_from(code).ok().and_then(char::from_u32);
            let c = c.ok_or_else(|| TemplateError::value("%c arg not in range(0x110000)"))?;
            Text::with_origin(budget, c.encode_utf8(&mut [0; 4]), value.number_origin())
        }
    }
}

fn decimal_integer(
    out: &mut TextBuilder,
    budget: &Rc<Budget>,
    value: &Value,
    kind: char,
    mut spec: FormatSpec,
) -> Result<()> {
    let number = match value.defined()? {
        Value::Float(float, _) => Some(number::whole_part(*float)?),
        other => number::big(other),
    };
    let Some(number) = number else {
        return type_error(format!(
            "%{kind} format: a real number is required, not {}",
            value.type_name()
        ));
    };
    spec.kind = Some('d');
    let digits = at_least(budget, number::digits(&number.abs())?, spec.precision)?;
    pad_number(out, number.is_negative(), "", &digits, &spec)
}

fn radix_integer(
    out: &mut TextBuilder,
    budget: &Rc<Budget>,
    value: &Value,
    kind: char,
    spec: &FormatSpec,
) -> Result<()> {
    let Some(number) = number::big(value) else {
        return type_error(format!(
            "%{kind} format: an integer is required, not {}",
            value.type_name()
        ));
    };
    let digits = match kind {
        'x' => number.abs().to_str_radix(16),
        'X' => number.abs().to_str_radix(16).to_uppercase(),
        _ => number.abs().to_str_radix(8),
    };
    let prefix = match kind {
        _ if !spec.alternate => "",
        'x' => "0x",
        'X' => "0X",
        _ => "0o",
    };
    let digits = at_least(budget, digits, spec.precision)?;
    pad_number(out, number.is_negative(), prefix, &digits, spec)
}

/// Pads digits with zeros on the left.
fn at_least(budget: &Rc<Budget>, digits: String, count: Option<usize>) -> Result<String> {
    let zeros = count.unwrap_or(0).saturating_sub(digits.len());
    budget.step_bytes(zeros)?;
    budget.can_allocate(zeros.saturating_mul(4))?;
    Ok("0".repeat(zeros) + &digits)
}
