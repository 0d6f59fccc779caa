//! `'…' % value` and `'…'.format(…)`.

use std::rc::Rc;

use num_bigint::BigInt;
use num_traits::{Signed, ToPrimitive};

use super::args::Args;
use super::attribute;
use super::budget::Budget;
use super::error::{Error, Result};
use super::interpreter::Interpreter;
use super::markup;
use super::number;
use super::print;
use super::text::{Text, TextBuilder};
use super::value::Value;

/// How one value is laid out: the flags of both styles.
#[derive(Debug, Default, Clone)]
struct Spec {
    fill: Option<char>,
    align: Option<char>,
    sign: Option<char>,
    alternate: bool,
    zero: bool,
    grouping: Option<char>,
    width: usize,
    precision: Option<usize>,
    kind: Option<char>,
}

/// `template % value`
pub(crate) fn percent(interpreter: &mut Interpreter<'_>, template: &Text, value: &Value) -> Result<Value> {
    let budget = Rc::clone(&interpreter.budget);
    let arguments = match value {
        Value::Tuple(items) => items.items().clone(),
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
            let Some((end, _)) = end else { return Err(Error::value("incomplete format key")) };
            let Some(mapping) = &mapping else { return Err(Error::value("format requires a mapping")) };
            let key = &rest[1..end];
            let Some(value) = mapping.get_name(key) else {
                return Err(Error::value(print::quoted_string(key)));
            };
            given = Some(value.clone());
            rest = &rest[end + 1..];
            chars = rest.chars().peekable();
        }
        let mut next = || -> Result<Value> {
            let value = arguments.get(used).cloned().ok_or_else(|| Error::value("not enough arguments for format string"))?;
            used += 1;
            Ok(value)
        };
        let mut spec = Spec::default();
        let mut length = 0;
        while let Some(flag) = chars.peek() {
            match flag {
                '-' => spec.align = Some('<'),
                '+' => spec.sign = Some('+'),
                ' ' => spec.sign = spec.sign.or(Some(' ')),
                '#' => spec.alternate = true,
                '0' => spec.zero = true,
                _ => break,
            }
            length += 1;
            chars.next();
        }
        if chars.peek() == Some(&'*') {
            chars.next();
            length += 1;
            let width = super::args::integer(&next()?).map_err(|_| Error::value("* wants int"))?;
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
                let given = super::args::integer(&next()?).map_err(|_| Error::value("* wants int"))?;
                precision = usize::try_from(given).unwrap_or(0);
            }
            while let Some(digit) = chars.peek().and_then(|c| c.to_digit(10)) {
                precision = precision.saturating_mul(10).saturating_add(digit as usize);
                length += 1;
                chars.next();
            }
            spec.precision = Some(precision);
        }
        while matches!(chars.peek(), Some('h' | 'l' | 'L')) {
            length += 1;
            chars.next();
        }
        let Some(kind) = chars.next() else { return Err(Error::value("incomplete format")) };
        at = source.len() - rest.len() + length + kind.len_utf8();
        if kind == '%' {
            out.push("%")?;
            continue;
        }
        let value = match given {
            Some(value) => value,
            None if mapping.is_some() && arguments.len() == 1 => next()?,
            None => next()?,
        };
        one_percent(&mut out, &budget, template, &value, kind, spec)?;
    }
    out.push_text(&template.slice(at..source.len()))?;
    if used < arguments.len() && mapping.is_none() && !matches!(value, Value::List(_)) {
        return Err(Error::value("not all arguments converted during string formatting"));
    }
    Ok(Value::Text(out.finish()?.with_safe(template.is_safe())))
}

fn one_percent(
    out: &mut TextBuilder,
    budget: &Rc<Budget>,
    template: &Text,
    value: &Value,
    kind: char,
    mut spec: Spec,
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
            spec.zero = false;
            pad_text(out, &text, &spec)
        }
        'c' => {
            let text = match value {
                Value::Text(text) if text.char_count() == 1 => text.clone(),
                Value::Text(_) => return Err(Error::value("%c requires int or char")),
                other => {
                    let code = super::args::integer(other).map_err(|_| Error::value("%c requires int or char"))?;
                    let c = u32::try_from(code).ok().and_then(char::from_u32);
                    let c = c.ok_or_else(|| Error::value("%c arg not in range(0x110000)"))?;
                    Text::plain(budget, c.to_string())?
                }
            };
            spec.zero = false;
            pad_text(out, &text, &spec)
        }
        'd' | 'i' | 'u' => {
            let number = match value.defined()? {
                Value::Float(float) => number::truncate(*float)?,
                other => other.clone(),
            };
            let Some(number) = number::big(&number) else {
                return Err(Error::value(format!("%{kind} format: a real number is required, not {}", value.type_name())));
            };
            spec.kind = Some('d');
            let digits = at_least(number.abs().to_string(), spec.precision);
            spec.precision = None;
            pad_number(out, number.is_negative(), "", &digits, &spec)
        }
        'x' | 'X' | 'o' => {
            let Some(number) = number::big(value) else {
                return Err(Error::value(format!("%{kind} format: an integer is required, not {}", value.type_name())));
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
            let digits = at_least(digits, spec.precision);
            pad_number(out, number.is_negative(), prefix, &digits, &spec)
        }
        'e' | 'E' | 'f' | 'F' | 'g' | 'G' => {
            let number = number::as_float(value.defined()?)
                .ok_or_else(|| Error::value(format!("must be real number, not {}", value.type_name())))?;
            let digits = float_digits(budget, number.abs(), kind, spec.precision.unwrap_or(6), spec.alternate)?;
            pad_number(out, number.is_sign_negative() && !number.is_nan(), "", &digits, &spec)
        }
        other => Err(Error::value(format!(
            "unsupported format character '{other}' (0x{:x}) at index {}",
            u32::from(other),
            template.len().saturating_sub(1)
        ))),
    }
}

fn at_least(digits: String, count: Option<usize>) -> String {
    match count {
        Some(count) if digits.len() < count.min(1 << 16) => "0".repeat(count.min(1 << 16) - digits.len()) + &digits,
        _ => digits,
    }
}

fn repr(budget: &Rc<Budget>, value: &Value, ascii: bool) -> Result<Text> {
    let mut out = TextBuilder::new(budget);
    print::repr(&mut out, budget, value, 0)?;
    let text = out.finish()?;
    if !ascii || text.is_ascii() {
        return Ok(text);
    }
    text.map_chars(budget, |_, c, out| match u32::from(c) {
        ..=0x7e => out.push(c),
        code @ ..=0xff => out.push_str(&format!("\\x{code:02x}")),
        code @ ..=0xffff => out.push_str(&format!("\\u{code:04x}")),
        code => out.push_str(&format!("\\U{code:08x}")),
    })
}

/// The digits of a positive float, laid out as `e`, `f` or `g`.
fn float_digits(budget: &Rc<Budget>, number: f64, kind: char, precision: usize, alternate: bool) -> Result<String> {
    budget.can_allocate(precision)?;
    if precision > 10_000 {
        return Err(Error::limit("a float is printed with more than 10000 digits"));
    }
    let upper = kind.is_ascii_uppercase();
    let text = if number.is_nan() {
        "nan".to_owned()
    } else if number.is_infinite() {
        "inf".to_owned()
    } else {
        match kind.to_ascii_lowercase() {
            'f' => {
                let mut text = format!("{number:.precision$}");
                if alternate && precision == 0 {
                    text.push('.');
                }
                text
            }
            'e' => exponential(&format!("{number:.precision$e}")),
            _ => general(number, precision, alternate),
        }
    };
    Ok(if upper { text.to_uppercase() } else { text })
}

/// `1.5e7` as `1.5e+07`.
fn exponential(text: &str) -> String {
    let (digits, exponent) = text.split_once('e').unwrap_or((text, "0"));
    let power: i32 = exponent.parse().unwrap_or(0);
    format!("{digits}e{}{:02}", if power < 0 { '-' } else { '+' }, power.abs())
}

fn general(number: f64, precision: usize, alternate: bool) -> String {
    let precision = precision.max(1);
    let scientific = format!("{number:.*e}", precision - 1);
    let exponent: i64 = scientific.split_once('e').and_then(|(_, power)| power.parse().ok()).unwrap_or(0);
    let limit = i64::try_from(precision).unwrap_or(i64::MAX);
    let strip = |text: &str| -> String {
        if alternate || !text.contains('.') {
            return text.to_owned();
        }
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    };
    if number != 0.0 && (exponent < -4 || exponent >= limit) {
        let (digits, power) = scientific.split_once('e').unwrap_or((&scientific, "0"));
        return exponential(&format!("{}e{power}", strip(digits)));
    }
    let decimals = usize::try_from(limit - 1 - exponent).unwrap_or(0);
    strip(&format!("{number:.decimals$}"))
}

fn pad_text(out: &mut TextBuilder, text: &Text, spec: &Spec) -> Result<()> {
    let mut text = text.clone();
    let mut count = text.char_count();
    if let Some(precision) = spec.precision
        && precision < count
    {
        let end = text.char_indices().nth(precision).map_or(text.len(), |(at, _)| at);
        text = text.slice(0..end);
        count = precision;
    }
    let padding = spec.width.saturating_sub(count);
    let (left, right) = match spec.align {
        Some('>' | '=') => (padding, 0),
        Some('^') => (padding / 2, padding - padding / 2),
        _ => (0, padding),
    };
    let fill = spec.fill.unwrap_or(' ');
    out.reserve(padding.saturating_mul(fill.len_utf8()))?;
    for _ in 0..left {
        out.push_char(fill)?;
    }
    out.push_text(&text)?;
    for _ in 0..right {
        out.push_char(fill)?;
    }
    Ok(())
}

fn pad_number(out: &mut TextBuilder, negative: bool, prefix: &str, digits: &str, spec: &Spec) -> Result<()> {
    let sign = match (negative, spec.sign) {
        (true, _) => "-",
        (false, Some('+')) => "+",
        (false, Some(' ')) => " ",
        _ => "",
    };
    let mut digits = digits.to_owned();
    if let Some(separator) = spec.grouping {
        let every = if matches!(spec.kind, Some('b' | 'o' | 'x' | 'X')) { 4 } else { 3 };
        digits = grouped(&digits, separator, every);
    }
    let width = sign.len() + prefix.len() + digits.chars().count();
    let padding = spec.width.saturating_sub(width);
    let zero = spec.zero && spec.align != Some('<') && spec.align != Some('^') && (spec.fill.is_none());
    let fill = if zero { '0' } else { spec.fill.unwrap_or(' ') };
    out.reserve(padding.saturating_mul(fill.len_utf8()) + width)?;
    let (left, inner, right) = match spec.align {
        Some('<') => (0, 0, padding),
        Some('^') => (padding / 2, 0, padding - padding / 2),
        Some('=') => (0, padding, 0),
        _ if zero => (0, padding, 0),
        _ => (padding, 0, 0),
    };
    for _ in 0..left {
        out.push_char(fill)?;
    }
    out.push(sign)?;
    out.push(prefix)?;
    for _ in 0..inner {
        out.push_char(fill)?;
    }
    out.push(&digits)?;
    for _ in 0..right {
        out.push_char(fill)?;
    }
    Ok(())
}

fn grouped(digits: &str, separator: char, every: usize) -> String {
    let end = digits.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(digits.len());
    let (whole, rest) = digits.split_at(end);
    let mut out = String::new();
    for (index, c) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index).is_multiple_of(every) {
            out.push(separator);
        }
        out.push(c);
    }
    out + rest
}

/// `template.format(*positional, **named)`
pub(crate) fn format(interpreter: &mut Interpreter<'_>, template: &Text, args: Args) -> Result<Value> {
    let budget = Rc::clone(&interpreter.budget);
    let mut out = TextBuilder::new(&budget);
    let mut fields = Fields { args, next: Some(0), safe: template.is_safe() };
    write_format(interpreter, &mut out, template, &mut fields, 2)?;
    Ok(Value::Text(out.finish()?.with_safe(template.is_safe())))
}

/// The arguments of a format, and how they were asked for so far.
struct Fields {
    args: Args,
    /// The next automatic number; None after a manual one.
    next: Option<usize>,
    safe: bool,
}

fn write_format(
    interpreter: &mut Interpreter<'_>,
    out: &mut TextBuilder,
    template: &Text,
    fields: &mut Fields,
    depth: usize,
) -> Result<()> {
    if depth == 0 {
        return Err(Error::value("Max string recursion exceeded"));
    }
    let source = template.as_str();
    let mut at = 0;
    while let Some(found) = source[at..].find(['{', '}']) {
        out.push_text(&template.slice(at..at + found))?;
        at += found;
        let brace = &source[at..=at];
        if source[at + 1..].starts_with(brace) {
            out.push(brace)?;
            at += 2;
            continue;
        }
        if brace == "}" {
            return Err(Error::value("Single '}' encountered in format string"));
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
            return Err(Error::value(message));
        };
        let field = template.slice(field_start..field_start + length);
        at = field_start + length + 1;
        write_field(interpreter, out, &field, fields, depth)?;
    }
    out.push_text(&template.slice(at..source.len()))
}

fn write_field(
    interpreter: &mut Interpreter<'_>,
    out: &mut TextBuilder,
    field: &Text,
    fields: &mut Fields,
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
                return Err(Error::value("end of string while looking for conversion specifier"));
            };
            let spec = chars.as_str();
            match spec.strip_prefix(':') {
                Some(spec) => (Some(conversion), spec),
                None if spec.is_empty() => (Some(conversion), spec),
                None => return Err(Error::value("expected ':' after conversion specifier")),
            }
        }
        None => (None, rest.strip_prefix(':').unwrap_or(rest)),
    };
    let value = lookup(interpreter, name, fields)?;
    let value = match conversion {
        None => value,
        Some('s') => Value::Text(print::text(&budget, &value)?),
        Some(kind @ ('r' | 'a')) => Value::Text(repr(&budget, &value, kind == 'a')?),
        Some(other) => return Err(Error::value(format!("Unknown conversion specifier '{other}'"))),
    };
    let spec_text = if spec.contains(['{', '}']) {
        let mut expanded = TextBuilder::new(&budget);
        write_format(interpreter, &mut expanded, &field.part(spec), fields, depth - 1)?;
        expanded.finish()?
    } else {
        field.part(spec)
    };
    if fields.safe {
        let mut plain = TextBuilder::new(&budget);
        write_value(&mut plain, &budget, &value, &spec_text)?;
        let plain = plain.finish()?.with_safe(value.as_text().is_some_and(Text::is_safe));
        return out.push_text(&markup::escape_text(&budget, &plain)?);
    }
    write_value(out, &budget, &value, &spec_text)
}

/// The value that a field names: `0`, `name`, `name.attribute`, `name[element]`.
fn lookup(interpreter: &mut Interpreter<'_>, name: &str, fields: &mut Fields) -> Result<Value> {
    let budget = Rc::clone(&interpreter.budget);
    let first_end = name.find(['.', '[']).unwrap_or(name.len());
    let (first, mut rest) = name.split_at(first_end);
    let index = if first.is_empty() {
        let Some(next) = fields.next else {
            return Err(Error::value("cannot switch from manual field specification to automatic field numbering"));
        };
        fields.next = Some(next + 1);
        Some(next)
    } else if first.bytes().all(|byte| byte.is_ascii_digit()) {
        if fields.next.is_some_and(|next| next > 0) {
            return Err(Error::value("cannot switch from automatic field numbering to manual field specification"));
        }
        fields.next = None;
        Some(first.parse().map_err(|_| Error::value("Too many decimal digits in format string"))?)
    } else {
        None
    };
    let mut value = match index {
        Some(index) => {
            let message = "Replacement index {} out of range for positional args tuple".replace("{}", &index.to_string());
            fields.args.positional.get(index).cloned().ok_or_else(|| Error::value(message))?
        }
        None => {
            let found = fields.args.named.iter().find(|(known, _)| known.as_str() == first);
            found.map(|(_, value)| value.clone()).ok_or_else(|| Error::value(print::quoted_string(first)))?
        }
    };
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix('.') {
            let end = after.find(['.', '[']).unwrap_or(after.len());
            let (name, after) = after.split_at(end);
            if name.is_empty() {
                return Err(Error::value("Empty attribute in format string"));
            }
            let name = Text::plain(&budget, name)?;
            value = attribute::attribute(interpreter, &value, &name)?;
            rest = after;
        } else if let Some(after) = rest.strip_prefix('[') {
            let Some((key, after)) = after.split_once(']') else {
                return Err(Error::value("Missing ']' in format string"));
            };
            if key.is_empty() {
                return Err(Error::value("Empty attribute in format string"));
            }
            let key = match key.parse::<i64>() {
                Ok(index) if key.bytes().all(|byte| byte.is_ascii_digit()) => Value::Int(index),
                _ => Value::text(&budget, key)?,
            };
            value = attribute::item(interpreter, &value, &key)?;
            if !after.is_empty() && !after.starts_with(['.', '[']) {
                return Err(Error::value("Only '.' or '[' may follow ']' in format field specifier"));
            }
            rest = after;
        } else {
            return Err(Error::value("Only '.' or '[' may follow ']' in format field specifier"));
        }
    }
    Ok(value)
}

fn parse_spec(text: &str) -> Result<Spec> {
    let mut spec = Spec::default();
    let chars: Vec<char> = text.chars().collect();
    let mut at = 0;
    let is_align = |c: Option<&char>| matches!(c, Some('<' | '>' | '=' | '^'));
    if is_align(chars.get(1)) {
        (spec.fill, spec.align) = (Some(chars[0]), Some(chars[1]));
        at = 2;
    } else if is_align(chars.first()) {
        spec.align = Some(chars[0]);
        at = 1;
    }
    if let Some(sign @ ('+' | '-' | ' ')) = chars.get(at) {
        spec.sign = Some(*sign);
        at += 1;
    }
    if chars.get(at) == Some(&'#') {
        spec.alternate = true;
        at += 1;
    }
    if chars.get(at) == Some(&'0') && spec.fill.is_none() {
        spec.zero = true;
        at += 1;
    }
    while let Some(digit) = chars.get(at).and_then(|c| c.to_digit(10)) {
        spec.width = spec.width.saturating_mul(10).saturating_add(digit as usize);
        at += 1;
    }
    if let Some(separator @ (',' | '_')) = chars.get(at) {
        spec.grouping = Some(*separator);
        at += 1;
    }
    if chars.get(at) == Some(&'.') {
        at += 1;
        let start = at;
        let mut precision = 0usize;
        while let Some(digit) = chars.get(at).and_then(|c| c.to_digit(10)) {
            precision = precision.saturating_mul(10).saturating_add(digit as usize);
            at += 1;
        }
        if at == start {
            return Err(Error::value("Format specifier missing precision"));
        }
        spec.precision = Some(precision);
    }
    if let Some(kind) = chars.get(at) {
        spec.kind = Some(*kind);
        at += 1;
    }
    if at < chars.len() {
        return Err(Error::value("Invalid format specifier"));
    }
    Ok(spec)
}

/// `format(value, spec)`
fn write_value(out: &mut TextBuilder, budget: &Rc<Budget>, value: &Value, spec: &Text) -> Result<()> {
    if spec.is_empty() {
        return print::write(out, budget, value);
    }
    let mut spec = parse_spec(spec)?;
    budget.can_allocate(spec.width)?;
    let unknown = |kind: char| Error::value(format!("Unknown format code '{kind}' for object of type '{}'", value.type_name()));
    match value {
        Value::Text(text) => {
            if let Some(kind) = spec.kind.filter(|kind| *kind != 's') {
                return Err(unknown(kind));
            }
            if spec.sign.is_some() {
                return Err(Error::value("Sign not allowed in string format specifier"));
            }
            if spec.align == Some('=') {
                return Err(Error::value("'=' alignment not allowed in string format specifier"));
            }
            if spec.zero {
                spec.fill = spec.fill.or(Some('0'));
            }
            pad_text(out, text, &spec)
        }
        Value::Int(_) | Value::Big(_) | Value::Bool(_) => {
            if let (Value::Bool(flag), None) = (value, spec.kind) {
                if spec.zero {
                    spec.fill = Some('0');
                }
                let text = Text::plain(budget, if *flag { "True" } else { "False" })?;
                let _ = text;
            }
            let kind = spec.kind.unwrap_or('d');
            let number = number::big(value).unwrap_or_default();
            match kind {
                'd' | 'n' => integer(out, &number, 10, "", spec),
                'b' => integer(out, &number, 2, "0b", spec),
                'o' => integer(out, &number, 8, "0o", spec),
                'x' => integer(out, &number, 16, "0x", spec),
                'X' => integer(out, &number, 16, "0X", spec),
                'c' => {
                    let c = number.to_u32().and_then(char::from_u32);
                    let c = c.ok_or_else(|| Error::value("%c arg not in range(0x110000)"))?;
                    pad_text(out, &Text::plain(budget, c.to_string())?, &spec)
                }
                'e' | 'E' | 'f' | 'F' | 'g' | 'G' | '%' => float(out, budget, number.to_f64().unwrap_or(f64::INFINITY), spec),
                other => Err(unknown(other)),
            }
        }
        Value::Float(number) => match spec.kind {
            None | Some('e' | 'E' | 'f' | 'F' | 'g' | 'G' | 'n' | '%') => float(out, budget, *number, spec),
            Some(other) => Err(unknown(other)),
        },
        other => Err(Error::value(format!("unsupported format string passed to {}.__format__", other.type_name()))),
    }
}

fn integer(out: &mut TextBuilder, number: &BigInt, radix: u32, prefix: &str, spec: Spec) -> Result<()> {
    if spec.precision.is_some() {
        return Err(Error::value("Precision not allowed in integer format specifier"));
    }
    let mut digits = number.abs().to_str_radix(radix);
    if prefix == "0X" {
        digits = digits.to_uppercase();
    }
    let prefix = if spec.alternate { prefix } else { "" };
    pad_number(out, number.is_negative(), prefix, &digits, &spec)
}

fn float(out: &mut TextBuilder, budget: &Rc<Budget>, number: f64, mut spec: Spec) -> Result<()> {
    let negative = number.is_sign_negative() && !number.is_nan();
    let positive = number.abs();
    let digits = match (spec.kind, spec.precision) {
        (None, None) => number::float(positive),
        (None, Some(precision)) => {
            let digits = float_digits(budget, positive, 'g', precision, spec.alternate)?;
            // Unlike `g`, at least one digit follows the point.
            if digits.contains(['.', 'e', 'n', 'i']) { digits } else { digits + ".0" }
        }
        (Some('%'), precision) => float_digits(budget, positive * 100.0, 'f', precision.unwrap_or(6), spec.alternate)? + "%",
        (Some('n'), precision) => float_digits(budget, positive, 'g', precision.unwrap_or(6), spec.alternate)?,
        (Some(kind), precision) => float_digits(budget, positive, kind, precision.unwrap_or(6), spec.alternate)?,
    };
    spec.kind = Some('f');
    pad_number(out, negative, "", &digits, &spec)
}
