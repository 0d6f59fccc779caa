//! `template.format(…)`: replacement fields, the values they name, and the format specification
//! mini-language.

use std::iter::Peekable;
use std::rc::Rc;
use std::str::Chars;

use num_bigint::BigInt;
use num_traits::{Signed, ToPrimitive};

use super::attribute;
use super::interpreter::Interpreter;
use crate::jinja::budget::Budget;
use crate::jinja::error::{Result, TemplateError, type_error};
use crate::jinja::literals::quoted_string;
use crate::jinja::value::arguments::Args;
use crate::jinja::value::format::{FormatSpec, float_digits, pad_number, pad_text, repr};
use crate::jinja::value::text::{Text, TextBuilder};
use crate::jinja::value::{Value, markup, number, print};

/// `template.format(*positional, **named)`
pub(super) fn method(interpreter: &mut Interpreter<'_>, text: &Text, args: Args) -> Result<Value> {
    let named = args.named.into_iter().map(|(name, value)| (Value::Text(name), value)).collect();
    let named = Value::dict(&interpreter.budget, named)?;
    format(interpreter, text, args.positional, named)
}

/// `template.format_map(mapping)`
pub(super) fn method_map(
    interpreter: &mut Interpreter<'_>,
    text: &Text,
    args: Args,
) -> Result<Value> {
    let [mapping] = args.required("format_map", ["mapping"])?;
    let Value::Dict(dict) = mapping else {
        return type_error("format_map() takes a mapping");
    };
    format(interpreter, text, Vec::new(), Value::Dict(dict))
}

fn format(
    interpreter: &mut Interpreter<'_>,
    template: &Text,
    positional: Vec<Value>,
    named: Value,
) -> Result<Value> {
    let budget = Rc::clone(&interpreter.budget);
    let mut out = TextBuilder::new(&budget);
    let mut arguments =
        FormatArguments { positional, named, next: Some(0), safe: template.is_safe() };
    write_format(interpreter, &mut out, template, &mut arguments, 2)?;
    Ok(Value::Text(out.finish()?.with_safe(template.is_safe())))
}

/// The arguments of a format call, and the state of field numbering.
struct FormatArguments {
    positional: Vec<Value>,
    /// A dict.
    named: Value,
    /// The next automatic number. None after a manual number.
    next: Option<usize>,
    safe: bool,
}

fn write_format(
    interpreter: &mut Interpreter<'_>,
    out: &mut TextBuilder,
    template: &Text,
    arguments: &mut FormatArguments,
    depth: usize,
) -> Result<()> {
    if depth == 0 {
        return type_error("Max string recursion exceeded");
    }
    let source = template.as_str();
    let mut at = 0;
    while let Some(found) = source[at..].find(['{', '}']) {
        out.push_text(&template.slice(at..at + found))?;
        at += found;
        let brace = &source[at..=at];
        if source[at + 1..].starts_with(brace) {
            out.push_from(brace, template.slice(at..at + 2).first_origin())?;
            at += 2;
            continue;
        }
        if brace == "}" {
            return type_error("Single '}' encountered in format string");
        }
        let field_start = at + 1;
        let mut open = 1usize;
        let end = source[field_start..].char_indices().find(|(_, c)| {
            match c {
                '{' => open += 1,
                '}' => open -= 1,
                _ => {}
            }
            open == 0
        });
        let Some((length, _)) = end else {
            let message = if source[field_start..].is_empty() {
                "Single '{' encountered in format string"
            } else {
                "expected '}' before end of string"
            };
            return type_error(message);
        };
        let field = template.slice(field_start..field_start + length);
        at = field_start + length + 1;
        write_field(interpreter, out, &field, arguments, depth)?;
    }
    out.push_text(&template.slice(at..source.len()))
}

fn write_field(
    interpreter: &mut Interpreter<'_>,
    out: &mut TextBuilder,
    field: &Text,
    arguments: &mut FormatArguments,
    depth: usize,
) -> Result<()> {
    let budget = Rc::clone(&interpreter.budget);
    let source = field.as_str();
    let name_end = source.find(['!', ':']).unwrap_or(source.len());
    let (name, rest) = source.split_at(name_end);
    let (conversion, spec) = match rest.strip_prefix('!') {
        Some(rest) => {
            let mut chars = rest.chars();
            let Some(conversion) = chars.next() else {
                return type_error("end of string while looking for conversion specifier");
            };
            let spec = chars.as_str();
            match spec.strip_prefix(':') {
                Some(spec) => (Some(conversion), spec),
                None if spec.is_empty() => (Some(conversion), spec),
                None => return type_error("expected ':' after conversion specifier"),
            }
        }
        None => (None, rest.strip_prefix(':').unwrap_or(rest)),
    };
    let value = lookup(interpreter, name, arguments)?;
    let value = match conversion {
        None => value,
        Some('s') => Value::Text(print::text(&budget, &value)?),
        Some(kind @ ('r' | 'a')) => Value::Text(repr(&budget, &value, kind == 'a')?),
        Some(other) => {
            return type_error(format!("Unknown conversion specifier '{other}'"));
        }
    };
    let spec_text = if spec.contains(['{', '}']) {
        let mut expanded = TextBuilder::new(&budget);
        write_format(interpreter, &mut expanded, &field.part(spec), arguments, depth - 1)?;
        expanded.finish()?
    } else {
        field.part(spec)
    };
    if arguments.safe {
        let mut plain = TextBuilder::new(&budget);
        write_value(&mut plain, &budget, &value, &spec_text)?;
        let plain = plain.finish()?.with_safe(value.as_text().is_some_and(Text::is_safe));
        return out.push_text(&markup::escape_text(&budget, &plain)?);
    }
    write_value(out, &budget, &value, &spec_text)
}

/// The value that a field names: `0`, `name`, `name.attribute`, `name[element]`.
fn lookup(
    interpreter: &mut Interpreter<'_>,
    name: &str,
    arguments: &mut FormatArguments,
) -> Result<Value> {
    let budget = Rc::clone(&interpreter.budget);
    let first_end = name.find(['.', '[']).unwrap_or(name.len());
    let (first, rest) = name.split_at(first_end);
    // Only a bare number switches to manual numbering.
    let index = if name.is_empty() {
        let Some(next) = arguments.next else {
            return type_error(
                "cannot switch from manual field specification to automatic field numbering",
            );
        };
        arguments.next = Some(next + 1);
        Some(next)
    } else if !first.is_empty() && first.bytes().all(|byte| byte.is_ascii_digit()) {
        if rest.is_empty() {
            if arguments.next.is_some_and(|next| next > 0) {
                return type_error(
                    "cannot switch from automatic field numbering to manual field specification",
                );
            }
            arguments.next = None;
        }
        Some(
            first
                .parse()
                .map_err(|_| TemplateError::value("Too many decimal digits in format string"))?,
        )
    } else {
        None
    };
    let value = match index {
        Some(index) => {
            let message =
                || format!("Replacement index {index} out of range for positional args tuple");
            arguments
                .positional
                .get(index)
                .cloned()
                .ok_or_else(|| TemplateError::value(message()))?
        }
        None => {
            budget.step_bytes(first.len())?;
            let found = match &arguments.named {
                Value::Dict(dict) => dict.get_name(first).cloned(),
                _ => None,
            };
            found.ok_or_else(|| TemplateError::value(quoted_string(first)))?
        }
    };
    follow(interpreter, value, rest)
}

/// Resolves the attributes and elements after the first name of a field.
fn follow(interpreter: &mut Interpreter<'_>, mut value: Value, mut rest: &str) -> Result<Value> {
    let budget = Rc::clone(&interpreter.budget);
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix('.') {
            let end = after.find(['.', '[']).unwrap_or(after.len());
            let (name, after) = after.split_at(end);
            if name.is_empty() {
                return type_error("Empty attribute in format string");
            }
            let name = Text::plain(&budget, name)?;
            value = attribute::attribute(interpreter, &value, &name, |_| name.clone())?;
            rest = after;
        } else if let Some(after) = rest.strip_prefix('[') {
            let Some((key, after)) = after.split_once(']') else {
                return type_error("Missing ']' in format string");
            };
            if key.is_empty() {
                return type_error("Empty attribute in format string");
            }
            let key = match key.parse::<i64>() {
                Ok(index) if key.bytes().all(|byte| byte.is_ascii_digit()) => Value::int(index),
                _ => Value::text(&budget, key)?,
            };
            value = attribute::item(interpreter, &value, &key)?;
            if !after.is_empty() && !after.starts_with(['.', '[']) {
                return type_error("Only '.' or '[' may follow ']' in format field specifier");
            }
            rest = after;
        } else {
            return type_error("Only '.' or '[' may follow ']' in format field specifier");
        }
    }
    Ok(value)
}

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
fn write_value(
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
