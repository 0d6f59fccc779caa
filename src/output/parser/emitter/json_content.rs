//! Extracts the value of a JSON reply from a fence or sentences around it.
//!
//! Nothing is emitted until the start of the value is certain. Text after the value is held until
//! the end of the reply. What surrounds the value is removed only if the reply has exactly one
//! value that the request accepts. Otherwise the reply is emitted unchanged.

use serde::de::IgnoredAny;

use crate::json;
use crate::output::format::FENCE;

/// Checks whether JSON text is what the request asks for.
pub type JsonValidator = Box<dyn Fn(&str) -> bool + Send>;

/// The maximum number of positions in prose that are checked for a value.
const MAX_STARTS: usize = 256;
const LANGUAGE: &str = "json";

#[derive(Default)]
enum Stage {
    /// Whitespace, or the start of a fence.
    #[default]
    Start,
    /// Other text came first. It is held until the end.
    Prose,
    Value {
        depth: usize,
        in_string: bool,
        escaped: bool,
    },
    After,
    /// The reply is not a JSON value, for example because it has calls.
    Plain,
}

/// The content of a JSON reply.
#[derive(Default)]
pub(crate) struct JsonContent {
    stage: Stage,
    held: String,
    /// Whether the start of a fence was removed.
    fenced: bool,
    /// Checks the value that the request asks for. Without it any JSON is accepted.
    pub(crate) validator: Option<JsonValidator>,
}

impl JsonContent {
    /// Reads text and returns what can be emitted.
    pub(super) fn push(&mut self, text: &str) -> String {
        let mut shown = String::new();
        for c in text.chars() {
            match &mut self.stage {
                Stage::Start => {
                    self.held.push(c);
                    self.begin(&mut shown);
                }
                Stage::Prose | Stage::After => self.held.push(c),
                Stage::Plain => shown.push(c),
                Stage::Value { depth, in_string, escaped } => {
                    shown.push(c);
                    match c {
                        _ if std::mem::take(escaped) => {}
                        '\\' => *escaped = *in_string,
                        '"' => *in_string = !*in_string,
                        _ if *in_string => {}
                        '{' | '[' => *depth += 1,
                        '}' | ']' => *depth = depth.saturating_sub(1),
                        _ => {}
                    }
                    if *depth == 0 && matches!(c, '}' | ']') {
                        self.stage = Stage::After;
                    }
                }
            }
        }
        shown
    }

    /// The reply is more than a value. Returns the held text.
    pub(super) fn release(&mut self) -> String {
        self.stage = Stage::Plain;
        std::mem::take(&mut self.held)
    }

    /// Decides the held text at the end of the reply. Returns what of it is emitted after
    /// `content`, and whether text around the value was removed.
    pub(super) fn end(mut self, content: &str) -> (String, bool) {
        let held = std::mem::take(&mut self.held);
        match self.stage {
            Stage::After if held.trim().is_empty() && !self.fenced => (held, false),
            Stage::After => {
                let is_fence = self.fenced && matches!(held.trim(), "" | FENCE);
                let alone = || self.accepts(content.trim()) && self.values(&held).is_empty();
                if is_fence || alone() { (String::new(), true) } else { (held, false) }
            }
            Stage::Prose | Stage::Start => match *self.values(&held) {
                [value] if !self.accepts(held.trim()) => (value.to_owned(), true),
                _ => (held, false),
            },
            Stage::Value { .. } | Stage::Plain => (held, false),
        }
    }

    /// Decides whether the held text begins a value.
    fn begin(&mut self, shown: &mut String) {
        let text = self.held.trim_start();
        let fence =
            text.strip_prefix(FENCE).map(|rest| rest.strip_prefix(LANGUAGE).unwrap_or(rest));
        let value = fence.unwrap_or(text).trim_start();
        if let Some(inside) = value.strip_prefix(['{', '[']) {
            let object = value.starts_with('{');
            match inside.trim_start().chars().next() {
                None => {}
                Some(c) if begins_inside(object, c) => {
                    let before = fence.map_or(0, |_| self.held.len() - value.len());
                    self.fenced = fence.is_some();
                    let start = std::mem::take(&mut self.held);
                    self.stage = Stage::Value { depth: 0, in_string: false, escaped: false };
                    shown.push_str(&self.push(&start[before..]));
                }
                Some(_) => self.stage = Stage::Prose,
            }
        } else if !value.is_empty() && !FENCE.starts_with(text) && !LANGUAGE.starts_with(value) {
            self.stage = Stage::Prose;
        }
    }

    /// Whether the request accepts a text as its value.
    fn accepts(&self, text: &str) -> bool {
        match &self.validator {
            Some(validator) => validator(text),
            None => json::is_valid(text),
        }
    }

    /// The values in a text that the request accepts: objects, arrays and fenced blocks.
    fn values<'t>(&self, text: &'t str) -> Vec<&'t str> {
        let (mut found, mut from) = (Vec::new(), 0);
        for _ in 0..MAX_STARTS {
            let Some(at) = text[from..].find(['{', '[', '`']).map(|at| from + at) else { break };
            let length = match fenced_block(&text[at..]) {
                Some((block, length)) if self.accepts(block) => {
                    found.push(block);
                    length
                }
                _ => self.value_length(&text[at..]).map_or(1, |length| {
                    found.push(&text[at..at + length]);
                    length
                }),
            };
            from = at + length;
        }
        found
    }

    /// The length of the value at the start of a text, if the request accepts it.
    fn value_length(&self, text: &str) -> Option<usize> {
        let (IgnoredAny, length) = json::leading(text)?;
        self.accepts(&text[..length]).then_some(length)
    }
}

/// Whether a character may follow the bracket that opens a value.
fn begins_inside(object: bool, c: char) -> bool {
    match c {
        '"' => true,
        '}' => object,
        ']' | '[' | '{' | '-' | 't' | 'f' | 'n' => !object,
        c => !object && c.is_ascii_digit(),
    }
}

/// The text of the fenced block at the start of a text, and the length of the block.
fn fenced_block(text: &str) -> Option<(&str, usize)> {
    let (_, rest) = text.strip_prefix(FENCE)?.split_once('\n')?;
    let end = rest.find(FENCE)?;
    Some((rest[..end].trim(), text.len() - rest.len() + end + FENCE.len()))
}
