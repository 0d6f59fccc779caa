//! `template % value`.

use std::rc::Rc;

use num_traits::Signed;

use super::{FormatSpec, float_digits, pad_number, pad_text, repr};
use crate::jinja::budget::Budget;
use crate::jinja::error::{Result, TemplateError};
use crate::jinja::quote::quoted_string;
use crate::jinja::value::Value;
use crate::jinja::value::text::{Text, TextBuilder};
use crate::jinja::value::{iterate, markup, number, print};
use crate::jinja::vm::arguments::integer;
use crate::jinja::vm::interpreter::Interpreter;

/// `template % value`
pub(crate) fn percent(
    interpreter: &mut Interpreter<'_>,
    template: &Text,
    value: &Value,
) -> Result<Value> {
    let budget = Rc::clone(&interpreter.budget);
    let arguments = match value {
        Value::Tuple(_) => iterate::items(&budget, value)?,
        other => vec![other.clone()],
    };
    let mapping = match value {
        Value::Dict(dict) => Some(Rc::clone(dict)),
        _ => None,
    };
    let mut out = TextBuilder::new(&budget);
    let mut used = 0;
    let source = template.as_str();
    let mut at = 0;
    while let Some(found) = source[at..].find('%') {
        out.push_text(&template.slice(at..at + found))?;
        at += found + 1;
        let mut chars = source[at..].chars().peekable();
        let mut given = None;
        let mut rest = &source[at..];
        if rest.starts_with('(') {
            let mut depth = 0usize;
            let end = rest.char_indices().find(|(_, c)| {
                match c {
                    '(' => depth += 1,
                    ')' => depth -= 1,
                    _ => {}
                }
                depth == 0
            });
            let Some((end, _)) = end else {
                return Err(TemplateError::value("incomplete format key"));
            };
            let Some(mapping) = &mapping else {
                return Err(TemplateError::value("format requires a mapping"));
            };
            let key = &rest[1..end];
            budget.step_bytes(key.len())?;
            let Some(value) = mapping.get_name(key) else {
                return Err(TemplateError::value(quoted_string(key)));
            };
            given = Some(value.clone());
            rest = &rest[end + 1..];
            chars = rest.chars().peekable();
        }
        let mut next = || -> Result<Value> {
            let value = arguments
                .get(used)
                .cloned()
                .ok_or_else(|| TemplateError::value("not enough arguments for format string"))?;
            used += 1;
            Ok(value)
        };
        let mut spec = FormatSpec::default();
        let mut zero = false;
        let mut length = 0;
        while let Some(flag) = chars.peek() {
            match flag {
                '-' => spec.align = Some('<'),
                '+' => spec.sign = Some('+'),
                ' ' => spec.sign = spec.sign.or(Some(' ')),
                '#' => spec.alternate = true,
                '0' => zero = true,
                _ => break,
            }
            length += 1;
            chars.next();
        }
        if chars.peek() == Some(&'*') {
            chars.next();
            length += 1;
            let width = integer(&next()?).map_err(|_| TemplateError::value("* wants int"))?;
            if width < 0 {
                spec.align = Some('<');
            }
            spec.width = usize::try_from(width.unsigned_abs()).unwrap_or(usize::MAX);
        } else {
            while let Some(digit) = chars.peek().and_then(|c| c.to_digit(10)) {
                spec.width = spec.width.saturating_mul(10).saturating_add(digit as usize);
                length += 1;
                chars.next();
            }
        }
        if chars.peek() == Some(&'.') {
            chars.next();
            length += 1;
            let mut precision = 0usize;
            if chars.peek() == Some(&'*') {
                chars.next();
                length += 1;
                let given = integer(&next()?).map_err(|_| TemplateError::value("* wants int"))?;
                precision = usize::try_from(given).unwrap_or(0);
            }
            while let Some(digit) = chars.peek().and_then(|c| c.to_digit(10)) {
                precision = precision.saturating_mul(10).saturating_add(digit as usize);
                length += 1;
                chars.next();
            }
            spec.precision = Some(precision);
        }
        if matches!(chars.peek(), Some('h' | 'l' | 'L')) {
            length += 1;
            chars.next();
        }
        let Some(kind) = chars.next() else {
            return Err(TemplateError::value("incomplete format"));
        };
        at = source.len() - rest.len() + length + kind.len_utf8();
        if kind == '%' {
            out.push("%")?;
            continue;
        }
        let value = match given {
            Some(value) => value,
            None => next()?,
        };
        if zero && spec.align.is_none() && !matches!(kind, 's' | 'r' | 'a' | 'c') {
            (spec.fill, spec.align) = (Some('0'), Some('='));
        }
        one_percent(&mut out, &budget, template, &value, kind, spec)?;
    }
    out.push_text(&template.slice(at..source.len()))?;
    // What has elements by key may be left over.
    let keyed =
        matches!(value, Value::Dict(_) | Value::List(_) | Value::Range(_) | Value::Undefined(_));
    if used < arguments.len() && !keyed {
        return Err(TemplateError::value("not all arguments converted during string formatting"));
    }
    Ok(Value::Text(out.finish()?.with_safe(template.is_safe())))
}

fn one_percent(
    out: &mut TextBuilder,
    budget: &Rc<Budget>,
    template: &Text,
    value: &Value,
    kind: char,
    mut spec: FormatSpec,
) -> Result<()> {
    budget.can_allocate(spec.width)?;
    spec.align = spec.align.or(Some('>'));
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
        'c' => {
            let text = match value {
                Value::Text(text) if text.char_count() == 1 => text.clone(),
                Value::Text(_) => return Err(TemplateError::value("%c requires int or char")),
                other => {
                    let code = integer(other)
                        .map_err(|_| TemplateError::value("%c requires int or char"))?;
                    let c = u32::try_from(code).ok().and_then(char::from_u32);
                    let c =
                        c.ok_or_else(|| TemplateError::value("%c arg not in range(0x110000)"))?;
                    Text::plain(budget, c.to_string())?
                }
            };
            pad_text(out, &text, &spec)
        }
        'd' | 'i' | 'u' => {
            let number = match value.defined()? {
                Value::Float(float) => Some(number::whole_part(*float)?),
                other => number::big(other),
            };
            let Some(number) = number else {
                return Err(TemplateError::value(format!(
                    "%{kind} format: a real number is required, not {}",
                    value.type_name()
                )));
            };
            spec.kind = Some('d');
            let digits = at_least(budget, number::digits(&number.abs())?, spec.precision)?;
            pad_number(out, number.is_negative(), "", &digits, &spec)
        }
        'x' | 'X' | 'o' => {
            let Some(number) = number::big(value) else {
                return Err(TemplateError::value(format!(
                    "%{kind} format: an integer is required, not {}",
                    value.type_name()
                )));
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
            pad_number(out, number.is_negative(), prefix, &digits, &spec)
        }
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
        other => Err(TemplateError::value(format!(
            "unsupported format character '{other}' (0x{:x}) at index {}",
            u32::from(other),
            template.len().saturating_sub(1)
        ))),
    }
}

/// The digits with zeros before them.
fn at_least(budget: &Rc<Budget>, digits: String, count: Option<usize>) -> Result<String> {
    let zeros = count.unwrap_or(0).saturating_sub(digits.len());
    budget.step_bytes(zeros)?;
    budget.can_allocate(zeros.saturating_mul(4))?;
    Ok("0".repeat(zeros) + &digits)
}
