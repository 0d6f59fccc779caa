//! `template % value`, and the layout of values that it shares with `str.format`.

use std::rc::Rc;

use num_traits::Signed;

use super::arguments::integer;
use super::text::{Text, TextBuilder};
use super::{Dict, Value, markup, number, print, sequence};
use crate::jinja::budget::Budget;
use crate::jinja::error::{Result, TemplateError, limit_error, type_error};
use crate::jinja::literals::quoted_string;

/// The layout of one value, with the flags of both styles.
#[derive(Debug, Default, Clone)]
pub(crate) struct FormatSpec {
    pub(crate) fill: Option<char>,
    pub(crate) align: Option<char>,
    pub(crate) sign: Option<char>,
    /// Prints negative zero without a sign.
    pub(crate) plain_zero: bool,
    pub(crate) alternate: bool,
    pub(crate) grouping: Option<char>,
    pub(crate) width: usize,
    pub(crate) precision: Option<usize>,
    pub(crate) kind: Option<char>,
    /// The origin of the layout, or of the number.
    pub(crate) origin: Option<u32>,
}

/// `repr(value)` or `ascii(value)`.
pub(crate) fn repr(budget: &Rc<Budget>, value: &Value, ascii: bool) -> Result<Text> {
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

/// Formats a non-negative float as `e`, `f` or `g`.
pub(crate) fn float_digits(
    budget: &Rc<Budget>,
    number: f64,
    kind: char,
    precision: usize,
    alternate: bool,
) -> Result<String> {
    budget.can_allocate(precision)?;
    if precision > 10_000 {
        return limit_error("a float is printed with more than 10000 digits");
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
            'e' => {
                let digits = format!("{number:.precision$e}");
                let point = if alternate && precision == 0 { ".e" } else { "e" };
                exponential(&digits.replace('e', point))
            }
            _ => general(number, precision, alternate),
        }
    };
    Ok(if upper { text.to_uppercase() } else { text })
}

/// Rewrites the exponent of `1.5e7` as `1.5e+07`.
fn exponential(text: &str) -> String {
    let (digits, exponent) = text.split_once('e').unwrap_or((text, "0"));
    let power: i32 = exponent.parse().unwrap_or(0);
    format!("{digits}e{}{:02}", if power < 0 { '-' } else { '+' }, power.abs())
}

fn general(number: f64, precision: usize, alternate: bool) -> String {
    let precision = precision.max(1);
    let scientific = format!("{number:.*e}", precision - 1);
    let exponent: i64 =
        scientific.split_once('e').and_then(|(_, power)| power.parse().ok()).unwrap_or(0);
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

/// Appends a text, truncated and padded.
pub(crate) fn pad_text(out: &mut TextBuilder, text: &Text, spec: &FormatSpec) -> Result<()> {
    let mut text = text.clone();
    let mut count = text.char_count();
    if let Some(precision) = spec.precision
        && precision < count
    {
        text = text.slice(0..text.byte_of_char(precision));
        count = precision;
    }
    let padding = spec.width.saturating_sub(count);
    let (left, right) = match spec.align {
        Some('>' | '=') => (padding, 0),
        Some('^') => (padding / 2, padding - padding / 2),
        _ => (0, padding),
    };
    let fill = spec.fill.unwrap_or(' ');
    out.push_fill_from(fill, left, spec.origin)?;
    out.push_text(&text)?;
    out.push_fill_from(fill, right, spec.origin)
}

/// Appends the digits of a number with sign, prefix, separators and padding.
pub(crate) fn pad_number(
    out: &mut TextBuilder,
    negative: bool,
    prefix: &str,
    digits: &str,
    spec: &FormatSpec,
) -> Result<()> {
    let negative = negative
        && !(spec.plain_zero && digits.bytes().all(|byte| matches!(byte, b'0' | b'.' | b'%')));
    let sign = match (negative, spec.sign) {
        (true, _) => "-",
        (false, Some('+')) => "+",
        (false, Some(' ')) => " ",
        _ => "",
    };
    let lead = sign.len() + prefix.len();
    // Reserves space for zeros and separators.
    out.reserve(spec.width.saturating_mul(2).saturating_add(lead + 2 * digits.len()))?;
    let digits = match spec.grouping {
        Some(separator) => {
            let every = if matches!(spec.kind, Some('b' | 'o' | 'x' | 'X')) { 4 } else { 3 };
            // Padding zeros are grouped too.
            let zeros = spec.fill == Some('0') && spec.align == Some('=');
            grouped(
                digits,
                separator,
                every,
                if zeros { spec.width.saturating_sub(lead) } else { 0 },
            )
        }
        None => digits.to_owned(),
    };
    let padding = spec.width.saturating_sub(lead + digits.len());
    let fill = spec.fill.unwrap_or(' ');
    let (left, inner, right) = match spec.align {
        Some('<') => (0, 0, padding),
        Some('^') => (padding / 2, 0, padding - padding / 2),
        Some('=') => (0, padding, 0),
        _ => (padding, 0, 0),
    };
    out.push_fill_from(fill, left, spec.origin)?;
    out.push_from(sign, spec.origin)?;
    out.push_from(prefix, spec.origin)?;
    out.push_fill_from(fill, inner, spec.origin)?;
    out.push_from(&digits, spec.origin)?;
    out.push_fill_from(fill, right, spec.origin)
}

/// Groups digits, with zeros up to a width.
fn grouped(digits: &str, separator: char, every: usize, width: usize) -> String {
    let end = digits.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(digits.len());
    let (whole, rest) = digits.split_at(end);
    let wanted = width.saturating_sub(rest.len());
    let mut count = whole.len().max(wanted - wanted / (every + 1));
    // A separator cannot come first, so one more digit precedes it.
    if count > whole.len() && count + (count - 1) / every < wanted {
        count += 1;
    }
    let zeros = std::iter::repeat_n('0', count - whole.len());
    let mut out = String::with_capacity(2 * count + rest.len());
    for (index, c) in zeros.chain(whole.chars()).enumerate() {
        if index > 0 && (count - index).is_multiple_of(every) {
            out.push(separator);
        }
        out.push(c);
    }
    out + rest
}

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
pub(crate) fn percent(budget: &Rc<Budget>, template: &Text, value: &Value) -> Result<Value> {
    let mut arguments = PercentArguments {
        values: match value {
            Value::Tuple(_) => sequence::items(budget, value)?,
            other => vec![other.clone()],
        },
        used: 0,
        mapping: match value {
            Value::Dict(dict) => Some(Rc::clone(dict)),
            _ => None,
        },
    };
    let mut out = TextBuilder::new(budget);
    let source = template.as_str();
    let mut at = 0;
    while let Some(found) = source[at..].find('%') {
        out.push_text(&template.slice(at..at + found))?;
        at += found + 1;
        let mut conversion = parse_conversion(budget, &source[at..], &mut arguments)?;
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
        convert(&mut out, budget, template, &value, conversion.kind, conversion.spec)?;
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
