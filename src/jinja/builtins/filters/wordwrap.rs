//! The filter `wordwrap`: Python's `textwrap` without tab expansion and whitespace replacement.

use std::rc::Rc;

use crate::jinja::budget::Budget;
use crate::jinja::builtins::methods;
use crate::jinja::error::{Result, TemplateError, type_error};
use crate::jinja::eval::arguments::{Args, integer};
use crate::jinja::eval::interpreter::Interpreter;
use crate::jinja::unicode;
use crate::jinja::value::text::{Text, TextBuilder};
use crate::jinja::value::{Value, print};

/// Where lines may break.
struct Breaks {
    width: usize,
    words: bool,
    hyphens: bool,
}

pub(super) fn wordwrap(
    interpreter: &mut Interpreter<'_>,
    value: Value,
    args: Args,
) -> Result<Value> {
    let [width, break_long_words, wrapstring, break_on_hyphens] =
        args.optional("wordwrap", ["width", "break_long_words", "wrapstring", "break_on_hyphens"])?;
    let budget = Rc::clone(&interpreter.budget);
    let width = width.map_or(Ok(79), |width| integer(&width))?;
    let Ok(width @ 1..) = usize::try_from(width) else {
        return type_error(format!("invalid width {width} (must be > 0)"));
    };
    let breaks = Breaks {
        width,
        words: break_long_words.is_none_or(|flag| flag.is_true()),
        hyphens: break_on_hyphens.is_none_or(|flag| flag.is_true()),
    };
    let separator = match wrapstring.filter(|text| !text.is_none()) {
        Some(text) => print::text(&budget, &text)?,
        None => Text::plain(&budget, "\n")?,
    };
    let Value::Text(text) = value.defined()? else {
        return Err(TemplateError::undefined(format!(
            "'{}' has no attribute 'splitlines'",
            value.owner_name()
        )));
    };
    let mut out = TextBuilder::new(&budget);
    for (index, line) in methods::line_parts(text, false).enumerate() {
        if index > 0 {
            out.push_text(&separator)?;
        }
        // Accounts for the memory of the characters, chunks and parts.
        budget.step_bytes(line.len())?;
        let _working_memory = budget.charge(line.len().saturating_mul(48))?;
        for (number, wrapped) in wrap(&budget, line, &breaks)?.into_iter().enumerate() {
            if number > 0 {
                out.push_text(&separator)?;
            }
            out.push_text(&text.part(wrapped))?;
        }
    }
    Ok(Value::Text(out.finish()?.with_safe(false)))
}

/// Splits a line into whitespace and words. If hyphens may break words, a word ends after a hyphen
/// between letters.
fn chunks(line: &str, break_hyphens: bool) -> Vec<&str> {
    let blank = |c: char| matches!(c, ' ' | '\t' | '\n' | '\u{b}' | '\u{c}' | '\r');
    let chars: Vec<(usize, char)> = line.char_indices().collect();
    let letter = |at: usize| chars.get(at).is_some_and(|(_, c)| c.is_alphabetic());
    let mut chunks = Vec::new();
    let mut start = 0;
    for (index, pair) in chars.windows(2).enumerate() {
        let ((_, before), (at, c)) = (pair[0], pair[1]);
        let letters_before = index >= 2 && letter(index - 1) && letter(index - 2);
        let hyphen = break_hyphens
            && before == '-'
            && letters_before
            && letter(index + 1)
            && letter(index + 2);
        if blank(before) != blank(c) || hyphen {
            chunks.push(&line[start..at]);
            start = at;
        }
    }
    if start < line.len() {
        chunks.push(&line[start..]);
    }
    chunks
}

/// `textwrap.wrap`: the wrapped parts of a line.
fn wrap<'l>(budget: &Rc<Budget>, line: &'l str, breaks: &Breaks) -> Result<Vec<&'l str>> {
    let offset = |part: &str| part.as_ptr() as usize - line.as_ptr() as usize;
    let is_blank = |chunk: &str| chunk.chars().all(unicode::is_space);
    let mut lines: Vec<&str> = Vec::new();
    // Chunks with their character counts. The rest of a long word is not counted again.
    let mut rest: Vec<(&str, usize)> = chunks(line, breaks.hyphens)
        .into_iter()
        .rev()
        .map(|chunk| (chunk, chunk.chars().count()))
        .collect();
    while !rest.is_empty() {
        budget.step(1)?;
        if !lines.is_empty() {
            rest.pop_if(|(chunk, _)| is_blank(chunk));
        }
        let mut current: Vec<&str> = Vec::new();
        let mut length = 0;
        while let Some((chunk, count)) = rest.pop_if(|(_, count)| length + *count <= breaks.width) {
            length += count;
            current.push(chunk);
        }
        if let Some((chunk, count)) = rest.pop_if(|(_, count)| *count > breaks.width) {
            if breaks.words {
                let (cut, taken) = cut_word(chunk, breaks.width - length, breaks.hyphens);
                // An empty cut keeps the whitespace before it.
                current.push(&chunk[..cut]);
                rest.push((&chunk[cut..], count - taken));
            } else if current.is_empty() {
                current.push(chunk);
            } else {
                rest.push((chunk, count));
            }
        }
        current.pop_if(|chunk| is_blank(chunk));
        if let (Some(first), Some(last)) = (current.first(), current.last()) {
            lines.push(&line[offset(first)..offset(last) + last.len()]);
        }
    }
    Ok(lines)
}

/// The length of the part of a long word that fits into the space, in bytes and in characters.
fn cut_word(word: &str, space: usize, break_hyphens: bool) -> (usize, usize) {
    let cut = word.char_indices().nth(space).map_or(word.len(), |(at, _)| at);
    if break_hyphens
        && let Some(hyphen) = word[..cut].rfind('-')
        && word[..hyphen].contains(|c| c != '-')
    {
        return (hyphen + 1, word[..=hyphen].chars().count());
    }
    (cut, space)
}
