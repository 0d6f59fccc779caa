//! Filters that lay out text in lines: `wordwrap`, which is Python's `textwrap` without tab expansion
//! and whitespace replacement, and `pprint`, which is `pprint.pformat` with sorted dicts.

use std::rc::Rc;

use crate::jinja::budget::Budget;
use crate::jinja::error::{ErrorKind, Result, TemplateError, type_error};
use crate::jinja::eval::interpreter::Interpreter;
use crate::jinja::unicode;
use crate::jinja::value::arguments::{Args, integer};
use crate::jinja::value::compare::{MAX_DEPTH, too_deep};
use crate::jinja::value::text::{Text, TextBuilder};
use crate::jinja::value::{Value, compare, print, search};

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
    for (index, line) in search::line_parts(text, false).enumerate() {
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

pub(super) fn pprint(interpreter: &mut Interpreter<'_>, value: Value, args: Args) -> Result<Value> {
    args.expect_none("pprint")?;
    Ok(Value::Text(pretty(&interpreter.budget, &value)?))
}

const WIDTH: usize = 80;

/// Pretty-prints a value.
fn pretty(budget: &Rc<Budget>, value: &Value) -> Result<Text> {
    let mut printer = Printer { budget, out: TextBuilder::new(budget) };
    printer
        .value(&in_order(budget, value, 0)?, PrintPosition { indent: 0, allowance: 0, level: 0 })?;
    printer.out.finish()
}

/// A copy of the value with all dicts sorted by key.
fn in_order(budget: &Rc<Budget>, value: &Value, depth: usize) -> Result<Value> {
    if depth > MAX_DEPTH {
        return Err(too_deep());
    }
    budget.step(1)?;
    let items = |items: &[Value]| {
        items.iter().map(|item| in_order(budget, item, depth + 1)).collect::<Result<Vec<_>>>()
    };
    match value {
        Value::List(list) => Value::list(budget, items(&list.items())?),
        Value::Tuple(list) => Value::tuple(budget, items(&list.items())?),
        Value::Dict(dict) => {
            let mut entries = Vec::new();
            for (key, value) in dict.entries() {
                entries.push((key.clone(), in_order(budget, value, depth + 1)?));
            }
            Value::dict(budget, compare::sorted(entries, |(a, _), (b, _)| before(budget, a, b))?)
        }
        other => Ok(other.clone()),
    }
}

/// Compares keys. Types without an order are sorted by type name.
fn before(budget: &Rc<Budget>, a: &Value, b: &Value) -> Result<bool> {
    match compare::less(budget, a, b) {
        Err(error) if error.kind() != ErrorKind::Limit => Ok(a.type_name() < b.type_name()),
        less => less,
    }
}

/// Where a value is printed.
#[derive(Clone, Copy)]
struct PrintPosition {
    indent: usize,
    /// Characters that follow on the last line of the value.
    allowance: usize,
    level: usize,
}

struct Printer<'b> {
    budget: &'b Rc<Budget>,
    out: TextBuilder,
}

impl Printer<'_> {
    fn repr(&self, value: &Value) -> Result<Text> {
        let mut out = TextBuilder::new(self.budget);
        print::repr(&mut out, self.budget, value, 0)?;
        out.finish()
    }

    fn value(&mut self, value: &Value, position: PrintPosition) -> Result<()> {
        let repr = self.repr(value)?;
        if repr.char_count() <= WIDTH.saturating_sub(position.indent + position.allowance) {
            return self.out.push_text(&repr);
        }
        let inner = PrintPosition { level: position.level + 1, ..position };
        match value {
            Value::Dict(dict) => self.members(dict.entries(), inner),
            Value::List(list) => self.items(&list.items(), "[", "]", inner),
            Value::Tuple(list) if list.len() == 1 => self.items(&list.items(), "(", ",)", inner),
            Value::Tuple(list) => self.items(&list.items(), "(", ")", inner),
            Value::Text(text) if !text.is_safe() => self.string(text, inner),
            _ => self.out.push_text(&repr),
        }
    }

    fn new_line(&mut self, indent: usize) -> Result<()> {
        self.out.push("\n")?;
        self.out.push_fill(' ', indent)
    }

    fn members(&mut self, entries: &[(Value, Value)], position: PrintPosition) -> Result<()> {
        self.out.push("{")?;
        let indent = position.indent + 1;
        for (index, (key, value)) in entries.iter().enumerate() {
            if index > 0 {
                self.out.push(",")?;
                self.new_line(indent)?;
            }
            let key = self.repr(key)?;
            self.out.push_text(&key)?;
            self.out.push(": ")?;
            let allowance = if index + 1 == entries.len() { position.allowance + 1 } else { 1 };
            self.value(
                value,
                PrintPosition { indent: indent + key.char_count() + 2, allowance, ..position },
            )?;
        }
        self.out.push("}")
    }

    fn items(
        &mut self,
        items: &[Value],
        open: &str,
        close: &str,
        position: PrintPosition,
    ) -> Result<()> {
        self.out.push(open)?;
        let indent = position.indent + 1;
        for (index, item) in items.iter().enumerate() {
            if index > 0 {
                self.out.push(",")?;
                self.new_line(indent)?;
            }
            let allowance =
                if index + 1 == items.len() { position.allowance + close.len() } else { 1 };
            self.value(item, PrintPosition { indent, allowance, ..position })?;
        }
        self.out.push(close)
    }

    /// Prints a long string as literals on separate lines: one per line of the string, and more if
    /// a line is too long.
    fn string(&mut self, text: &Text, position: PrintPosition) -> Result<()> {
        let outermost = usize::from(position.level == 1);
        let (indent, allowance) = (position.indent + outermost, position.allowance + outermost);
        let chunks = self.chunks(text, WIDTH.saturating_sub(indent), allowance)?;
        let bracketed = outermost == 1 && chunks.len() > 1;
        if bracketed {
            self.out.push("(")?;
        }
        for (index, chunk) in chunks.iter().enumerate() {
            if index > 0 {
                self.new_line(indent)?;
            }
            self.out.push_text(chunk)?;
        }
        if bracketed { self.out.push(")") } else { Ok(()) }
    }

    fn chunks(&self, text: &Text, width: usize, allowance: usize) -> Result<Vec<Text>> {
        let mut chunks = Vec::new();
        let literal = |part: &str| self.repr(&Value::Text(text.part(part)));
        for line in search::line_parts(text, true) {
            let ends_text =
                line.as_ptr() as usize + line.len() == text.as_ptr() as usize + text.len();
            let room = |ends: bool| if ends { width.saturating_sub(allowance) } else { width };
            let whole = literal(line)?;
            if whole.char_count() <= room(ends_text) {
                chunks.push(whole);
                continue;
            }
            // The range `start..end` is the current chunk.
            let (mut start, mut end) = (0, 0);
            while end < line.len() {
                let next = end + word_length(&line[end..]);
                let too_long = literal(&line[start..next])?.char_count()
                    > room(ends_text && next == line.len());
                if too_long && end > start {
                    chunks.push(literal(&line[start..end])?);
                    start = end;
                }
                end = next;
            }
            chunks.push(literal(&line[start..])?);
        }
        Ok(chunks)
    }
}

/// The length of a word and the whitespace after it.
fn word_length(text: &str) -> usize {
    let word = text.find(unicode::is_space).unwrap_or(text.len());
    let blanks = text[word..].find(|c| !unicode::is_space(c)).unwrap_or(text.len() - word);
    word + blanks
}
