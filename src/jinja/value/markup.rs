//! `Markup`, which is text that needs no HTML escaping, and HTML escaping.

use std::rc::Rc;

use super::text::Text;
use super::{Value, print};
use crate::jinja::budget::Budget;
use crate::jinja::error::Result;

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
