//! Finds a call in prose: the markers of a family, with placeholders where a model writes the name
//! and the arguments.
//!
//! Prose formats calls freely, so whitespace, quotes and backslashes are ignored: `{'name':
//! <function-name>}` has the characters of `{"name": "f"}`.

use std::ops::Range;

use crate::output::format::{CallPart, CallSyntax, Encoding, IdForm, Tagged};

/// The maximum number of characters of a placeholder.
const MAX_SLOT: usize = 800;
/// The maximum number of characters of a placeholder that is a phrase.
const MAX_PHRASE: usize = 200;
/// The maximum number of characters between a call and the end of its section: `, ... (more
/// calls)`.
const MAX_REST: usize = 200;

/// A text with the ignored characters removed.
pub(super) struct Prose<'t> {
    /// The whole text.
    pub(super) text: &'t str,
    /// The remaining characters, and their positions in the text.
    chars: Vec<char>,
    offsets: Vec<usize>,
}

fn counts(c: &char) -> bool {
    !c.is_whitespace() && !matches!(c, '"' | '\'' | '\\')
}

impl<'t> Prose<'t> {
    pub(super) fn new(text: &'t str) -> Prose<'t> {
        let (offsets, chars) = text.char_indices().filter(|(_, c)| counts(c)).unzip();
        Prose { text, chars, offsets }
    }

    /// The bytes of a range of characters.
    fn bytes(&self, chars: Range<usize>) -> Range<usize> {
        let last = self.chars[chars.end - 1];
        self.offsets[chars.start]..self.offsets[chars.end - 1] + last.len_utf8()
    }
}

/// A family's calls as they may occur in prose.
pub(super) struct ProsePattern {
    items: Vec<ProseItem>,
    close: Vec<char>,
}

enum ProseItem {
    Text(Vec<char>),
    /// A placeholder of a name or an id, or an example of one.
    Word,
    /// An object, or a placeholder of one.
    Object,
    /// Text in parentheses with an equals sign or dots.
    Keywords,
    /// Elements that each name a parameter.
    Parameters {
        open: Vec<char>,
        after_key: Vec<char>,
        after_kind: Option<Vec<char>>,
        close: Vec<char>,
    },
    /// Elements that begin with this prefix.
    Elements(Vec<char>),
}

impl ProsePattern {
    pub(super) fn of(calls: &CallSyntax) -> ProsePattern {
        let mut items = vec![ProseItem::Text(counting(&calls.open))];
        for part in &calls.call {
            match part {
                CallPart::Text(text) => items.push(ProseItem::Text(counting(text))),
                CallPart::Id(IdForm::Named { prefix, infix }) => items.extend([
                    ProseItem::Text(counting(prefix)),
                    ProseItem::Word,
                    ProseItem::Text(counting(infix)),
                    ProseItem::Word,
                ]),
                CallPart::Name | CallPart::Id(_) => items.push(ProseItem::Word),
                CallPart::Arguments(encoding) => items.push(arguments(encoding)),
            }
        }
        ProsePattern { items, close: counting(&calls.close) }
    }

    /// The number of marker characters that a match contains.
    pub(super) fn weight(&self) -> usize {
        let item = |item: &ProseItem| match item {
            ProseItem::Text(text) => text.len(),
            ProseItem::Parameters { open, after_key, close, .. } => {
                open.len() + after_key.len() + close.len()
            }
            ProseItem::Elements(prefix) => prefix.len(),
            ProseItem::Word | ProseItem::Object | ProseItem::Keywords => 0,
        };
        self.items.iter().map(item).sum::<usize>() + self.close.len()
    }

    /// The range of every match, in order.
    pub(super) fn matches(&self, prose: &Prose<'_>) -> Vec<Range<usize>> {
        let chars = &*prose.chars;
        let starts = 0..chars.len();
        let matched = starts.filter_map(|start| {
            let end = end_of(&self.items, chars, start)?;
            let rest = &chars[end..chars.len().min(end + MAX_REST)];
            let close = rest.windows(self.close.len().max(1)).position(|at| at == self.close);
            let end = if self.close.is_empty() { end } else { end + close? + self.close.len() };
            Some(prose.bytes(start..end))
        });
        matched.collect()
    }
}

fn counting(text: &str) -> Vec<char> {
    text.chars().filter(counts).collect()
}

fn arguments(encoding: &Encoding) -> ProseItem {
    match encoding {
        Encoding::Json | Encoding::JsonText | Encoding::Pairs { .. } => ProseItem::Object,
        Encoding::Python(_) => ProseItem::Keywords,
        Encoding::Elements { prefix, .. } => ProseItem::Elements(counting(prefix)),
        Encoding::Tagged(Tagged { open, after_key, kind, close, .. }) => ProseItem::Parameters {
            open: counting(open),
            after_key: counting(after_key),
            after_kind: kind.as_ref().map(|kind| counting(&kind.after)),
            close: counting(close),
        },
    }
}

/// The position after the items, if they match at `at`.
fn end_of(items: &[ProseItem], chars: &[char], at: usize) -> Option<usize> {
    let Some((item, rest)) = items.split_first() else { return Some(at) };
    let from = chars.get(at..)?;
    let then = |length: usize| end_of(rest, chars, at + length);
    match item {
        ProseItem::Text(text) => from.starts_with(text).then(|| then(text.len()))?,
        // Without the ignored whitespace, the next text may continue the word.
        ProseItem::Word => {
            let length = word(from)?;
            let before_text =
                matches!(rest.first(), Some(ProseItem::Text(text)) if !text.is_empty());
            let shorter = 1..if before_text { length.min(MAX_PHRASE) } else { 1 };
            then(length).or_else(|| shorter.rev().find_map(then))
        }
        ProseItem::Object => object(from).and_then(then).or_else(|| phrases(from).find_map(then)),
        ProseItem::Keywords => then(keywords(from)?),
        ProseItem::Parameters { open, after_key, after_kind, close } => {
            let mut length = 0;
            while let Some(next) =
                parameter(&from[length..], [open, after_key, close], after_kind.as_deref())
            {
                length += next;
                let dots = from[length..].iter().take_while(|c| **c == '.').count();
                length += if dots >= 3 { dots } else { 0 };
            }
            (length > 0).then(|| then(length))?
        }
        ProseItem::Elements(prefix) => {
            let ends = prefix.len()..from.len().min(MAX_SLOT);
            from.starts_with(prefix).then(|| ends.into_iter().find_map(then))?
        }
    }
}

fn is_word(c: &char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '$' | '/')
}

/// The length of a word, or of a placeholder in brackets: `<name>`, `{name}`, `${name}`.
fn word(chars: &[char]) -> Option<usize> {
    if let Some(length) = bracketed(chars).or_else(|| in_square_brackets(chars)) {
        return Some(length);
    }
    let length = chars.iter().take(MAX_SLOT).take_while(|c| is_word(c)).count();
    let length = match chars[..length].last() {
        Some('$') => length + bracketed(&chars[length..])?,
        _ => length,
    };
    chars[..length].iter().any(|c| c.is_alphanumeric()).then_some(length)
}

/// The length of an object, of a placeholder in brackets, or of a word.
fn object(chars: &[char]) -> Option<usize> {
    bracketed(chars).or_else(|| word(chars))
}

/// The lengths of phrases that may stand for an object: `a dict of parameters, or {} if there are
/// none`. A phrase has no tags and balanced braces, and begins with a letter.
fn phrases(chars: &[char]) -> impl Iterator<Item = usize> {
    let mut depth = 0_usize;
    let is_phrase = chars.first().is_some_and(|c| c.is_alphabetic());
    let phrase = chars.iter().take(if is_phrase { MAX_PHRASE } else { 0 });
    let depths = phrase.map_while(move |c| {
        match c {
            '{' => depth += 1,
            '}' => depth = depth.checked_sub(1)?,
            '<' | '>' | ':' | '[' | ']' => return None,
            _ => {}
        }
        Some(depth)
    });
    depths.enumerate().filter(|(_, depth)| *depth == 0).map(|(at, _)| at + 1)
}

/// The length of a text in balanced braces, or in angle brackets that contain no others.
fn bracketed(chars: &[char]) -> Option<usize> {
    let (open, close) = match chars.first()? {
        '{' => ('{', '}'),
        '<' if chars.get(1).is_some_and(|c| c.is_alphanumeric()) => ('<', '>'),
        _ => return None,
    };
    let mut depth = 0;
    for (at, c) in chars.iter().take(MAX_SLOT).enumerate() {
        depth += usize::from(*c == open);
        if *c == close {
            depth -= 1;
            if depth == 0 {
                return Some(at + 1);
            }
        }
    }
    None
}

/// The length of a placeholder such as `[function name]`.
fn in_square_brackets(chars: &[char]) -> Option<usize> {
    let rest = chars.strip_prefix(&['['])?;
    let inner = rest.iter().take(MAX_PHRASE).take_while(|c| is_word(c)).count();
    (inner > 0 && rest.get(inner) == Some(&']')).then_some(inner + 2)
}

/// The length of the text up to a closing parenthesis.
fn keywords(chars: &[char]) -> Option<usize> {
    let length = chars.iter().take(MAX_SLOT).position(|c| *c == ')')?;
    let inside: String = chars[..length].iter().collect();
    (inside.contains('=') || inside.contains("...")).then_some(length)
}

/// The length of one parameter with its value.
fn parameter(
    chars: &[char],
    [open, after_key, close]: [&Vec<char>; 3],
    after_kind: Option<&[char]>,
) -> Option<usize> {
    let mut at = chars.starts_with(open).then_some(open.len())?;
    at += word(&chars[at..])?;
    at += chars[at..].starts_with(after_key).then_some(after_key.len())?;
    if let Some(after_kind) = after_kind {
        at += word(&chars[at..])?;
        at += chars[at..].starts_with(after_kind).then_some(after_kind.len())?;
    }
    let value = &chars[at..chars.len().min(at + MAX_SLOT)];
    let end = value.windows(close.len().max(1)).position(|at| at == close)?;
    (end > 0).then_some(at + end + close.len())
}
