//! String methods for case and character classes.

use std::rc::Rc;

use crate::jinja::budget::Budget;
use crate::jinja::builtins::is_tests::is_case;
use crate::jinja::error::Result;
use crate::jinja::unicode;
use crate::jinja::value::text::Text;

/// `upper`, `lower`, `casefold`, `swapcase`, `capitalize` and `title`. None for other names.
pub(crate) fn changed_case(budget: &Rc<Budget>, text: &Text, name: &str) -> Result<Option<Text>> {
    let mut previous_cased = false;
    let changed = match name {
        "upper" => text.map_chars(budget, |_, c, out| out.extend(c.to_uppercase()))?,
        "casefold" => text.map_chars(budget, |_, c, out| unicode::fold(c, out))?,
        "lower" => {
            let source = text.as_str();
            text.map_chars(budget, |at, c, out| lower(source, at, c, out))?
        }
        "swapcase" => {
            let source = text.as_str();
            text.map_chars(budget, |at, c, out| {
                if c.is_uppercase() {
                    lower(source, at, c, out)
                } else {
                    out.extend(c.to_uppercase())
                }
            })?
        }
        "capitalize" => {
            let source = text.as_str();
            text.map_chars(budget, |at, c, out| {
                if at == 0 {
                    out.push_str(&unicode::to_title(c))
                } else {
                    lower(source, at, c, out)
                }
            })?
        }
        "title" => {
            let source = text.as_str();
            text.map_chars(budget, |at, c, out| {
                if previous_cased {
                    lower(source, at, c, out)
                } else {
                    out.push_str(&unicode::to_title(c))
                }
                previous_cased = unicode::is_cased(c);
            })?
        }
        _ => return Ok(None),
    };
    Ok(Some(changed))
}

/// Lower-cases a character. A sigma at the end of a word has its own form.
fn lower(text: &str, at: usize, c: char, out: &mut String) {
    if c == 'Σ' {
        let ignorable =
            |c: &char| !matches!(c, '\'' | '.' | ':' | '\u{ad}' | '\u{b7}' | '\u{2019}');
        let cased = |c: Option<char>| c.is_some_and(unicode::is_cased);
        let before = text[..at].chars().rev().find(ignorable);
        let after = text[at + c.len_utf8()..].chars().find(ignorable);
        out.push(if cased(before) && !cased(after) { 'ς' } else { 'σ' });
    } else {
        out.extend(c.to_lowercase());
    }
}

/// `isalpha`, `isdigit` and the other character classes.
pub(super) fn is(text: &Text, name: &str) -> bool {
    let all = |test: fn(char) -> bool| !text.is_empty() && text.chars().all(test);
    match name {
        "isalnum" => all(char::is_alphanumeric),
        "isalpha" => all(char::is_alphabetic),
        "isascii" => text.is_ascii(),
        "isdecimal" => all(|c| unicode::decimal(c).is_some()),
        "isdigit" => all(|c| unicode::decimal(c).is_some() || unicode::is_other_digit(c)),
        "isnumeric" => all(char::is_numeric),
        "isidentifier" => {
            let mut chars = text.chars();
            chars.next().is_some_and(|c| c == '_' || unicode_ident::is_xid_start(c))
                && chars.all(unicode_ident::is_xid_continue)
        }
        "islower" => is_case(text, char::is_lowercase),
        "isupper" => is_case(text, char::is_uppercase),
        "isprintable" => text.chars().all(unicode::is_printable),
        "isspace" => all(unicode::is_space),
        "istitle" => {
            let mut previous_cased = false;
            let mut any = false;
            for c in text.chars() {
                let cased = unicode::is_cased(c);
                if cased && (c.is_lowercase() != previous_cased) {
                    return false;
                }
                any |= cased;
                previous_cased = cased;
            }
            any
        }
        _ => false,
    }
}
