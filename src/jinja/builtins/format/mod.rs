//! `'…' % value` and `'…'.format(…)`, with a shared layout of values.

mod fields;
mod percent;
mod spec;

pub(crate) use fields::format;
pub(crate) use percent::percent;

use std::rc::Rc;

use crate::jinja::budget::Budget;
use crate::jinja::error::{Result, limit_error};
use crate::jinja::value::text::{Text, TextBuilder};
use crate::jinja::value::{Value, print};

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
