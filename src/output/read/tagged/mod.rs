//! Arguments with one element a parameter -> JSON: `<parameter=a>\n1\n</parameter>\n` is `{"a":
//! 1}`.
//!
//! Blanks are free around and between the parts of a marker. A value ends
//!
//! - at its end tag, if a parameter, a follower or the end of the output comes next:
//!   `print("</parameter>")` is text;
//! - without its end tag, where a follower or a parameter begins a line, if the format writes lines
//!   at all;
//! - without its end tag inside a line, at a parameter whose key is complete, or at a follower that
//!   is itself followed by a follower or the end of the output: one tag alone may be what the value
//!   talks about.
//!
//! What may still be such an end is held, nothing else. Inside `<![CDATA[` only `]]>` and the end
//! tag end a value.

use std::collections::VecDeque;

use serde_json::Value;

use crate::json_schema::{ArgumentsSchema, SchemaPointers, TypeSet};
use crate::output::format::{FormatText, KindForm, Tagged};
use crate::output::read::json_writer::{JsonWriter, MAX_DEPTH};
use crate::output::read::types::{is_text, typed};
use crate::output::read::{ArgumentsReader, ReadStep};

const CDATA: &str = "<![CDATA[";
const CDATA_END: &str = "]]>";
/// So many blanks after an end tag, and nothing else can be meant.
const MAX_WHITESPACE: usize = 64;
/// Bytes a key may have.
const MAX_KEY: usize = 128;
/// Bytes the type in an attribute may have.
const MAX_TYPE: usize = 32;
/// Bytes a marker may be spread over.
const MAX_SPREAD: usize = 1024;

/// How far a text is a marker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MarkMatch {
    No,
    /// It is the beginning of one.
    Part,
    /// So many bytes of it are one.
    Full(usize),
}

impl MarkMatch {
    /// The better of two; of two whole ones the first.
    fn or(self, other: MarkMatch) -> MarkMatch {
        match (self, other) {
            (MarkMatch::Full(_), _) | (_, MarkMatch::No) => self,
            (_, MarkMatch::Full(_)) | (MarkMatch::No, _) => other,
            (MarkMatch::Part, MarkMatch::Part) => self,
        }
    }
}

/// The tag of a parameter, up to its value.
#[derive(Debug, PartialEq, Eq)]
enum ParameterHead {
    No,
    Part,
    Full { key: String, said_string: Option<bool>, used: usize },
}

/// The markers of a format without the blanks around them.
#[derive(Debug)]
struct ParameterMarks {
    open: Vec<String>,
    after_key: Vec<String>,
    kind: Option<KindMarks>,
    /// Blanks that are written before every value.
    before_value: String,
    /// Blanks that are written after every value.
    after_value: String,
    close: Vec<String>,
    separator: Vec<String>,
    followers: Vec<String>,
    /// The format writes elements on lines of their own.
    lines: bool,
}

#[derive(Debug)]
struct KindMarks {
    form: KindForm,
    after: Vec<String>,
    /// What follows the key where the attribute is missing.
    without: Vec<String>,
}

impl ParameterMarks {
    fn new(tagged: &Tagged, followers: Vec<FormatText>) -> ParameterMarks {
        let before = tagged.kind.as_ref().map_or(&tagged.after_key, |kind| &kind.after);
        let kind = tagged.kind.as_ref().map(|kind| KindMarks {
            form: kind.form,
            after: pieces(&kind.after),
            without: pieces(kind.after.trim_start_matches(['"', '\''])),
        });
        ParameterMarks {
            open: pieces(&tagged.open),
            after_key: pieces(&tagged.after_key),
            kind,
            before_value: before[before.trim_end().len()..].to_owned(),
            after_value: tagged.close[..tagged.close.len() - tagged.close.trim_start().len()]
                .to_owned(),
            close: pieces(&tagged.close),
            separator: pieces(&tagged.separator),
            followers: followers
                .iter()
                .map(|text| text.trim().to_owned())
                .filter(|text| !text.is_empty())
                .collect(),
            lines: [before, &tagged.close, &tagged.separator, &tagged.open]
                .iter()
                .any(|text| text.contains('\n')),
        }
    }

    fn follower(&self, text: &str) -> MarkMatch {
        self.followers.iter().map(|mark| mark_at(text, mark)).fold(MarkMatch::No, MarkMatch::or)
    }

    fn parameter(&self, text: &str) -> MarkMatch {
        if self.open.is_empty() { MarkMatch::No } else { pieces_at(text, &self.open) }
    }

    /// What may stand behind a parameter.
    fn next(&self, text: &str) -> MarkMatch {
        let separator = if self.separator.is_empty() {
            MarkMatch::No
        } else {
            pieces_at(text, &self.separator)
        };
        self.parameter(text).or(self.follower(text)).or(separator)
    }

    fn head(&self, text: &str) -> ParameterHead {
        let Some((before, rest_of)) = self.after_key.split_first() else {
            return ParameterHead::No;
        };
        if text.len() > MAX_SPREAD {
            return ParameterHead::No;
        }
        let start = match self.parameter(text) {
            MarkMatch::No => return ParameterHead::No,
            MarkMatch::Part => return ParameterHead::Part,
            MarkMatch::Full(start) => start,
        };
        let rest = &text[start..];
        let Some(length) = rest.find(before.as_str()) else {
            let foreign =
                rest.find('<').is_some_and(|at| mark_at(&rest[at..], before) == MarkMatch::No);
            return if rest.len() > MAX_KEY || foreign || rest.trim().contains('\n') {
                ParameterHead::No
            } else {
                ParameterHead::Part
            };
        };
        let Some(key) = clean_key(&rest[..length], before.starts_with('"')) else {
            return ParameterHead::No;
        };
        let at = start + length + before.len();
        let Some(kind) = &self.kind else {
            return match pieces_after(text, at, rest_of) {
                MarkMatch::No => ParameterHead::No,
                MarkMatch::Part => ParameterHead::Part,
                MarkMatch::Full(used) => ParameterHead::Full { key, said_string: None, used },
            };
        };
        let without = match pieces_after(text, at, &kind.without) {
            MarkMatch::Full(used) => return ParameterHead::Full { key, said_string: None, used },
            MarkMatch::Part => ParameterHead::Part,
            MarkMatch::No => ParameterHead::No,
        };
        let at = match pieces_after(text, at, rest_of) {
            MarkMatch::No => return without,
            MarkMatch::Part => return ParameterHead::Part,
            MarkMatch::Full(at) => at,
        };
        let Some((before, rest_of)) = kind.after.split_first() else { return ParameterHead::No };
        let Some(length) = text[at..].find(before.as_str()) else {
            return if text.len() - at > MAX_TYPE {
                ParameterHead::No
            } else {
                ParameterHead::Part
            };
        };
        match pieces_after(text, at + length + before.len(), rest_of) {
            MarkMatch::No => ParameterHead::No,
            MarkMatch::Part => ParameterHead::Part,
            MarkMatch::Full(used) => ParameterHead::Full {
                key,
                said_string: kind.says(text[at..at + length].trim()),
                used,
            },
        }
    }

    /// The end tag at the beginning of `text`, with the blanks that belong to it and with what must
    /// follow it.
    fn end_tag(&self, text: &str, cdata: bool) -> MarkMatch {
        if self.close.is_empty() || text.len() > MAX_SPREAD {
            return MarkMatch::No;
        }
        let at = match if cdata { mark_at(text, CDATA_END) } else { MarkMatch::Full(0) } {
            MarkMatch::Full(at) => at,
            other => return other,
        };
        let blank = blanks_at(text, &self.after_value);
        let mut best = if cdata {
            self.confirmed(text, pieces_after(text, at, &self.close))
        } else {
            self.confirmed(text, pieces_at(text, &self.close))
        };
        if let (false, MarkMatch::Full(at)) = (cdata, blank)
            && at > 0
        {
            best = self.confirmed(text, pieces_at(&text[at..], &self.close).moved(at)).or(best);
        }
        if blank == MarkMatch::Part && !cdata { best.or(MarkMatch::Part) } else { best }
    }

    /// An end tag counts if a parameter or a follower comes next.
    fn confirmed(&self, text: &str, tag: MarkMatch) -> MarkMatch {
        let MarkMatch::Full(at) = tag else { return tag };
        let rest = text[at..].trim_start();
        if text.len() - at - rest.len() > MAX_WHITESPACE {
            return tag;
        }
        match self.next(rest) {
            MarkMatch::Full(_) => tag,
            other => other,
        }
    }

    /// The end of a value whose end tag is missing; `at_start` where nothing of the value came yet.
    fn cut(&self, text: &str, at_start: bool) -> MarkMatch {
        if text.len() > MAX_SPREAD {
            return MarkMatch::No;
        }
        let line = if self.lines { newline_at(text) } else { MarkMatch::No };
        let mut best = match line {
            MarkMatch::Full(at) => match self.parameter(&text[at..]).or(self.follower(&text[at..]))
            {
                MarkMatch::Full(_) => MarkMatch::Full(at),
                other => other,
            },
            other => other,
        };
        if self.lines
            && at_start
            && matches!(self.parameter(text).or(self.follower(text)), MarkMatch::Full(_))
        {
            return MarkMatch::Full(0);
        }
        match self.follower(text) {
            MarkMatch::Full(at) => {
                let rest = text[at..].trim_start();
                match self.follower(rest) {
                    MarkMatch::Full(_) => best = best.or(MarkMatch::Full(0)),
                    other => best = best.or(other),
                }
            }
            other => best = best.or(other),
        }
        best.or(match self.head(text) {
            ParameterHead::No => MarkMatch::No,
            ParameterHead::Part => MarkMatch::Part,
            ParameterHead::Full { .. } => MarkMatch::Full(0),
        })
    }
}

impl MarkMatch {
    fn moved(self, by: usize) -> MarkMatch {
        if let MarkMatch::Full(at) = self { MarkMatch::Full(at + by) } else { self }
    }
}

impl KindMarks {
    fn says(&self, word: &str) -> Option<bool> {
        match (self.form, word) {
            (KindForm::IsString, "true") | (KindForm::TypeName, "string") => Some(true),
            (KindForm::IsString, "false") => Some(false),
            (
                KindForm::TypeName,
                "number" | "integer" | "boolean" | "object" | "array" | "null",
            ) => Some(false),
            _ => None,
        }
    }
}

/// A parameter's value that is being read.
#[derive(Debug)]
struct OpenParameter {
    key: String,
    types: Option<TypeSet>,
    said_string: Option<bool>,
    /// Given out as it comes; other values are collected.
    text: bool,
    raw: String,
    /// Nothing of the value came yet.
    at_start: bool,
    cdata: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TaggedState {
    /// Before a parameter or behind one.
    Between,
    /// Behind a parameter's head: blanks and `<![CDATA[` may come first.
    Start {
        blanks: bool,
    },
    Value,
    Finished,
}

/// Reads tagged arguments.
#[derive(Debug)]
pub(in crate::output::read) struct TaggedReader {
    marks: ParameterMarks,
    schema: ArgumentsSchema,
    root: SchemaPointers,
    writer: JsonWriter,
    state: TaggedState,
    open: Option<OpenParameter>,
    /// Blanks before the next tag.
    gap: String,
    /// Text not decided upon.
    held: String,
    waiting: VecDeque<char>,
}

impl TaggedReader {
    /// `followers` are the tags that may stand behind the last parameter.
    pub(in crate::output::read) fn new(
        tagged: &Tagged,
        followers: Vec<FormatText>,
        schema: Option<&Value>,
    ) -> TaggedReader {
        let schema = ArgumentsSchema::new(schema);
        TaggedReader {
            marks: ParameterMarks::new(tagged, followers),
            root: schema.root(),
            schema,
            writer: JsonWriter::default(),
            state: TaggedState::Between,
            open: None,
            gap: String::new(),
            held: String::new(),
            waiting: VecDeque::new(),
        }
    }

    /// True when what is held belongs to somebody else.
    fn take(&mut self, c: char, out: &mut String) -> bool {
        match self.state {
            TaggedState::Between => return self.between(c, out),
            TaggedState::Start { blanks } => self.start(c, blanks),
            TaggedState::Value => self.value(c, out),
            TaggedState::Finished => {}
        }
        false
    }

    fn between(&mut self, c: char, out: &mut String) -> bool {
        if self.held.is_empty() && c.is_whitespace() {
            self.gap.push(c);
            return false;
        }
        self.held.push(c);
        match self.marks.head(&self.held) {
            ParameterHead::Part => return false,
            ParameterHead::Full { key, said_string, used } => {
                let rest = self.held.split_off(used);
                self.give_back(&rest);
                self.begin(key, said_string, out);
                return false;
            }
            ParameterHead::No => {}
        }
        if !self.is_certain() || self.marks.separator.is_empty() {
            return true;
        }
        match pieces_at(&self.held, &self.marks.separator) {
            MarkMatch::No => return true,
            MarkMatch::Part => {}
            MarkMatch::Full(_) => self.held.clear(),
        }
        false
    }

    fn begin(&mut self, key: String, said_string: Option<bool>, out: &mut String) {
        self.held.clear();
        self.gap.clear();
        if !self.is_certain() {
            self.writer.open_object(out);
        }
        let known = self.schema.member(&self.root, &key);
        if known.unknown {
            self.writer.note("arg_unknown", format!("the tool has no parameter {key}"));
        }
        let types = self.schema.types(&known.pointers);
        let text = is_text(types, said_string);
        if text {
            self.writer.key(&key, out);
            self.writer.begin_string(out);
        }
        self.open = Some(OpenParameter {
            key,
            types,
            said_string,
            text,
            raw: String::new(),
            at_start: true,
            cdata: false,
        });
        self.state = TaggedState::Start { blanks: true };
    }

    fn start(&mut self, c: char, blanks: bool) {
        self.held.push(c);
        if blanks {
            match blanks_at(&self.held, &self.marks.before_value) {
                MarkMatch::Part => return,
                MarkMatch::Full(at) => {
                    self.held.drain(..at);
                }
                MarkMatch::No => {}
            }
            self.state = TaggedState::Start { blanks: false };
        }
        let cdata = match mark_at(&self.held, CDATA) {
            MarkMatch::Part => return,
            MarkMatch::Full(_) => true,
            MarkMatch::No => false,
        };
        if cdata {
            self.held.clear();
        }
        if let Some(open) = &mut self.open {
            open.cdata = cdata;
        }
        let rest = std::mem::take(&mut self.held);
        self.give_back(&rest);
        self.state = TaggedState::Value;
    }

    fn value(&mut self, c: char, out: &mut String) {
        self.held.push(c);
        while let Some(open) = &mut self.open
            && !self.held.is_empty()
        {
            let end = self.marks.end_tag(&self.held, open.cdata);
            let end =
                if open.cdata { end } else { end.or(self.marks.cut(&self.held, open.at_start)) };
            match end {
                MarkMatch::Part => return,
                MarkMatch::Full(used) => {
                    let rest = self.held.split_off(used);
                    self.give_back(&rest);
                    self.end(out);
                    return;
                }
                MarkMatch::No => {
                    let c = self.held.remove(0);
                    open.put(c, &mut self.writer, out);
                }
            }
        }
    }

    /// The value is complete.
    fn end(&mut self, out: &mut String) {
        self.held.clear();
        self.state = TaggedState::Between;
        let Some(open) = self.open.take() else { return };
        if open.text {
            self.writer.end_string(out);
            return;
        }
        let (text, note) = typed(&open.raw, open.types, open.said_string, MAX_DEPTH - 1);
        if let Some(code) = note {
            self.writer.note(code, format!("the value of {}", open.key));
        }
        self.writer.key(&open.key, out);
        self.writer.value(&text, out);
    }

    /// Reads this again, before anything else.
    fn give_back(&mut self, text: &str) {
        text.chars().rev().for_each(|c| self.waiting.push_front(c));
    }

    /// Whether what is held ends a value at the end of the output: None where it does not even
    /// begin to.
    fn is_end(&self, open: &OpenParameter) -> Option<bool> {
        let held = self.held.as_str();
        let marks = &self.marks;
        let blank =
            if open.cdata { MarkMatch::Full(0) } else { blanks_at(held, &marks.after_value) };
        let tag = match (open.cdata, blank) {
            (true, _) => match mark_at(held, CDATA_END) {
                MarkMatch::Full(at) => pieces_after(held, at, &marks.close),
                other => other,
            },
            (false, MarkMatch::Full(at)) => {
                pieces_at(&held[at..], &marks.close).moved(at).or(pieces_at(held, &marks.close))
            }
            (false, _) => pieces_at(held, &marks.close),
        };
        let has_end = !marks.close.is_empty() && matches!(tag, MarkMatch::Full(_));
        if has_end || matches!(marks.follower(held.trim_start()), MarkMatch::Full(_)) {
            return Some(true);
        }
        // One character is too little to call it the beginning of a tag.
        (held.trim_start().chars().nth(1).is_some()).then_some(false)
    }
}

impl OpenParameter {
    fn put(&mut self, c: char, writer: &mut JsonWriter, out: &mut String) {
        self.at_start = false;
        if self.text {
            writer.push(c, out);
        } else {
            self.raw.push(c);
        }
    }
}

impl ArgumentsReader for TaggedReader {
    fn step(&mut self, c: char, out: &mut String) -> ReadStep {
        self.waiting.push_back(c);
        while let Some(c) = self.waiting.pop_front() {
            if self.take(c, out) {
                if !self.is_certain() {
                    self.writer.open_object(out);
                }
                self.writer.close_all(out);
                self.state = TaggedState::Finished;
                let mut rest = std::mem::take(&mut self.gap) + &std::mem::take(&mut self.held);
                rest.extend(self.waiting.drain(..));
                return ReadStep::Ended(rest);
            }
        }
        ReadStep::More
    }

    fn finish(&mut self, out: &mut String) -> bool {
        let state = std::mem::replace(&mut self.state, TaggedState::Finished);
        if state == TaggedState::Finished {
            return true;
        }
        if self.writer.depth() == 0 {
            self.writer.open_object(out);
        }
        let mut complete = state == TaggedState::Between && self.held.is_empty();
        if state == TaggedState::Between && !self.held.is_empty() {
            self.writer.leave_out(std::mem::take(&mut self.held));
        }
        if let Some(mut open) = self.open.take() {
            match self.is_end(&open) {
                Some(ended) => complete = ended,
                None => self.held.chars().for_each(|c| open.put(c, &mut self.writer, out)),
            }
            // Of a value that was cut before it began, nothing is known.
            if complete || open.text || !open.raw.trim().is_empty() {
                self.open = Some(open);
                self.end(out);
                self.state = TaggedState::Finished;
            } else {
                self.writer.leave_out(open.key + &self.held);
            }
        }
        self.writer.close_all(out);
        complete
    }

    fn is_certain(&self) -> bool {
        self.writer.depth() > 0 || self.state == TaggedState::Finished
    }

    fn take_notes(&mut self) -> Vec<(&'static str, String)> {
        self.writer.take_notes()
    }

    fn take_leftover(&mut self) -> Vec<String> {
        self.writer.take_leftover()
    }
}

/// A marker's parts, between which blanks are free: at blanks, and between two tags.
fn pieces(marker: &str) -> Vec<String> {
    let words = marker.split_whitespace().flat_map(|word| word.split_inclusive("><"));
    let mut pieces: Vec<String> = Vec::new();
    let mut carried = "";
    for word in words {
        let (body, next) = match word.strip_suffix('<') {
            Some(body) if body.ends_with('>') => (body, "<"),
            _ => (word, ""),
        };
        pieces.push(format!("{carried}{body}"));
        carried = next;
    }
    pieces
}

fn mark_at(text: &str, mark: &str) -> MarkMatch {
    if text.starts_with(mark) {
        MarkMatch::Full(mark.len())
    } else if mark.starts_with(text) {
        MarkMatch::Part
    } else {
        MarkMatch::No
    }
}

fn pieces_at(text: &str, pieces: &[String]) -> MarkMatch {
    let mut at = 0;
    for (index, piece) in pieces.iter().enumerate() {
        if index > 0 {
            at = skip_blanks(text, at);
        }
        match mark_at(&text[at..], piece) {
            MarkMatch::Full(length) => at += length,
            other => return other,
        }
    }
    MarkMatch::Full(at)
}

/// The same behind other text, with blanks before the first part too.
fn pieces_after(text: &str, at: usize, pieces: &[String]) -> MarkMatch {
    let at = if pieces.is_empty() { at } else { skip_blanks(text, at) };
    pieces_at(&text[at..], pieces).moved(at)
}

fn skip_blanks(text: &str, at: usize) -> usize {
    text.len() - text[at..].trim_start().len()
}

/// The blanks a format writes; a line may also end in CRLF.
fn blanks_at(text: &str, blanks: &str) -> MarkMatch {
    if blanks == "\n" { newline_at(text) } else { mark_at(text, blanks) }
}

fn newline_at(text: &str) -> MarkMatch {
    mark_at(text, "\n").or(mark_at(text, "\r\n"))
}

/// A key without what stands around it: blanks, quotes, and in a quoted attribute the attributes
/// after it.
fn clean_key(text: &str, is_quoted: bool) -> Option<String> {
    let text = text.trim();
    let text = match text.split_once('"') {
        Some((key, _)) if is_quoted => key,
        _ => text,
    };
    let bare = ['"', '\'']
        .iter()
        .find_map(|&quote| text.strip_prefix(quote)?.strip_suffix(quote))
        .unwrap_or(text);
    let is_key = !bare.is_empty() && bare.len() <= MAX_KEY && !bare.contains(['\n', '<']);
    is_key.then(|| bare.to_owned())
}
