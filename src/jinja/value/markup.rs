//! HTML in strings: `Markup`, which is text that needs no escaping, escaping, tags and character
//! references.

use std::rc::Rc;

use super::text::{Text, TextBuilder};
use super::{Value, print};
use crate::jinja::budget::Budget;
use crate::jinja::error::Result;
use crate::jinja::unicode;

/// `escape(value)`.
pub(crate) fn escape(budget: &Rc<Budget>, value: &Value) -> Result<Text> {
    escape_text(budget, &print::text(budget, value)?)
}

/// `escape(text)`: replaces `& < > " '` unless the text is markup.
pub(crate) fn escape_text(budget: &Rc<Budget>, text: &Text) -> Result<Text> {
    if text.is_safe() {
        return Ok(text.clone());
    }
    force_escape(budget, text)
}

/// Escapes the text even if it is markup.
pub(crate) fn force_escape(budget: &Rc<Budget>, text: &Text) -> Result<Text> {
    budget.read(text.len())?;
    if !text.contains(['&', '<', '>', '"', '\'']) {
        return Ok(text.with_safe(true));
    }
    let escaped = text.map_chars(budget, |_, c, out| match c {
        '&' => out.push_str("&amp;"),
        '<' => out.push_str("&lt;"),
        '>' => out.push_str("&gt;"),
        '"' => out.push_str("&#34;"),
        '\'' => out.push_str("&#39;"),
        c => out.push(c),
    })?;
    Ok(escaped.with_safe(true))
}

/// An argument of a method of `like`, escaped if `like` is markup.
pub(crate) fn argument(budget: &Rc<Budget>, like: &Text, argument: &Text) -> Result<Text> {
    if like.is_safe() { escape_text(budget, argument) } else { Ok(argument.clone()) }
}

/// `Markup(text).striptags()`: removes comments and tags, joins whitespace and resolves character
/// references.
pub(crate) fn strip_tags(budget: &Rc<Budget>, text: &Text) -> Result<Text> {
    let source = text.as_str();
    let mut kept = TextBuilder::new(budget);
    let mut at = 0;
    // Comments go first, because they may contain tags.
    let mut without_comments = TextBuilder::new(budget);
    while let Some(found) = source[at..].find("<!--") {
        let start = at + found;
        let Some(end) = source[start..].find("-->") else { break };
        without_comments.push_text(&text.slice(at..start))?;
        at = start + end + 3;
    }
    without_comments.push_text(&text.slice(at..source.len()))?;
    let text = without_comments.finish()?;
    let source = text.as_str();
    at = 0;
    while let Some(found) = source[at..].find('<') {
        let start = at + found;
        let Some(end) = source[start..].find('>') else { break };
        kept.push_text(&text.slice(at..start))?;
        at = start + end + 1;
    }
    kept.push_text(&text.slice(at..source.len()))?;
    let kept = kept.finish()?;
    let mut joined = TextBuilder::new(budget);
    for (index, word) in kept.split(unicode::is_space).filter(|word| !word.is_empty()).enumerate() {
        if index > 0 {
            let start = word.as_ptr() as usize - kept.as_ptr() as usize;
            joined.push_from(" ", kept.origin_at(start.saturating_sub(1)))?;
        }
        joined.push_text(&kept.part(word))?;
    }
    unescape(budget, &joined.finish()?)
}

/// `html.unescape` for numeric references and the names that escaping uses. Other names stay.
pub(crate) fn unescape(budget: &Rc<Budget>, text: &Text) -> Result<Text> {
    let source = text.as_str();
    let mut out = TextBuilder::new(budget);
    let mut at = 0;
    while let Some(found) = source[at..].find('&') {
        let start = at + found;
        out.push_text(&text.slice(at..start))?;
        match entity(&source[start + 1..]) {
            Some((c, length)) => {
                at = start + 1 + length;
                let reference = text.slice(start..at);
                out.push_from(c.encode_utf8(&mut [0; 4]), reference.first_origin())?;
            }
            None => {
                out.push_text(&text.slice(start..start + 1))?;
                at = start + 1;
            }
        }
    }
    out.push_text(&text.slice(at..source.len()))?;
    Ok(out.finish()?.with_safe(false))
}

/// The character that the text after an ampersand refers to, and the length of the reference.
fn entity(text: &str) -> Option<(char, usize)> {
    if let Some(number) = text.strip_prefix('#') {
        return numeric_entity(number).map(|(c, length)| (c, length + 1));
    }
    // The first five need no semicolon.
    let names = [
        ("amp", '&'),
        ("lt", '<'),
        ("gt", '>'),
        ("quot", '"'),
        ("nbsp", '\u{a0}'),
        ("apos;", '\''),
    ];
    let (name, c) = names.into_iter().find(|(name, _)| text.starts_with(name))?;
    Some((c, name.len() + usize::from(text[name.len()..].starts_with(';'))))
}

fn numeric_entity(text: &str) -> Option<(char, usize)> {
    let (digits, radix) = text.strip_prefix(['x', 'X']).map_or((text, 10), |digits| (digits, 16));
    let length = digits.bytes().take_while(|byte| char::from(*byte).is_digit(radix)).count();
    if length == 0 {
        return None;
    }
    let code = u32::from_str_radix(&digits[..length], radix).unwrap_or(u32::MAX);
    // HTML reads these codes as Windows-1252.
    let windows = "€\u{81}‚ƒ„…†‡ˆ‰Š‹Œ\u{8d}Ž\u{8f}\u{90}‘’“”•–—˜™š›œ\u{9d}žŸ";
    let c = match code {
        0 => '\u{fffd}',
        0x80..=0x9f => {
            windows.chars().nth(usize::try_from(code - 0x80).unwrap_or(0)).unwrap_or('\u{fffd}')
        }
        code => char::from_u32(code).unwrap_or('\u{fffd}'),
    };
    let end = text.len() - digits.len() + length;
    Some((c, end + usize::from(text[end..].starts_with(';'))))
}
