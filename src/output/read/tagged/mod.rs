//! Arguments with one element per parameter -> JSON: `<parameter=a>\n1\n</parameter>\n` is
//! `{"a": 1}`.
//!
//! Any whitespace may surround and separate the parts of a marker. A value ends
//!
//! - at its end tag, if a parameter, a follower or the end of the text comes next. Otherwise the
//!   tag is part of the value: `print("</parameter>")`;
//! - without an end tag, at a closing tag of the call that a follower or the end of the text
//!   follows. A single tag is part of the value;
//! - without an end tag, at a required parameter that the call does not give otherwise;
//! - without an end tag, if the schema excludes text: at a parameter with a complete key, and at a
//!   follower that begins a line, if the format writes lines.
//!
//! Inside a string of a JSON value nothing ends the value. Only text that may be such an end is
//! held. Inside `<![CDATA[` only `]]>` and the end tag end a value.

mod marks;
mod nested;
mod open_parameter;
mod value_ends;

use std::collections::VecDeque;

use crate::json_schema::ArgumentsSchema;
use crate::output::format::Tagged;
use crate::output::read::arguments::{ArgumentsReader, Followers, MarkMatch, ReadStep};
use crate::output::read::entities::{EntityDecoder, without_entities};
use crate::output::read::json_writer::{JsonWriter, MAX_DEPTH, quoted};
use crate::output::read::typed_value::{JsonString, is_string, typed_value};
use marks::{
    CDATA, CDATA_END, ParameterHead, ParameterMarks, pieces_after, pieces_at, whitespace_at,
};

use nested::NestedElements;
use open_parameter::{OpenParameter, ValueContent};
pub(crate) use value_ends::ValueEnds;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TaggedState {
    /// Before a parameter, or after one.
    Between,
    /// Before a value. Whitespace (if `whitespace`) and `<![CDATA[` may come first.
    Start {
        whitespace: bool,
    },
    Value,
    Finished,
}

/// Reads tagged arguments.
#[derive(Debug, Clone)]
pub(crate) struct TaggedReader {
    marks: ParameterMarks,
    /// Whether the format writes special characters as entities.
    has_entities: bool,
    /// Whether it does so only in keys and strings.
    raw_json: bool,
    /// How arrays and objects are written, if they are nested elements.
    nested: Option<NestedElements>,
    schema: ArgumentsSchema,
    writer: JsonWriter,
    state: TaggedState,
    open: Option<OpenParameter>,
    /// Whitespace before the next tag.
    gap: String,
    /// Text that is not decided yet.
    held: String,
    /// Characters to be read again.
    waiting: VecDeque<char>,
    /// The required parameters that were not given yet.
    missing: Vec<String>,
    /// Whether a text may still turn out to lack its end tag.
    may_split: bool,
    split: Option<Box<SplitText>>,
}

/// A text in which a required parameter opens without an end tag before it. Either it is part of the
/// text, or the end tag is missing. It is part of the text if the call also gives the parameter
/// after the text. Until this is known, both are read and nothing is emitted.
#[derive(Debug, Clone)]
struct SplitText {
    /// The parameter.
    key: String,
    /// The JSON text up to here, if it was not emitted yet.
    before: String,
    /// The reader for which the end tag is missing.
    reader: TaggedReader,
    /// The text after its arguments, if they have ended.
    ended: Option<String>,
}

impl TaggedReader {
    /// `followers` are the tags that may follow the last parameter.
    pub(crate) fn new(
        tagged: &Tagged,
        followers: &Followers,
        schema: ArgumentsSchema,
    ) -> TaggedReader {
        TaggedReader {
            marks: ParameterMarks::new(tagged, followers),
            has_entities: !tagged.entities.is_empty(),
            raw_json: tagged.raw_json,
            nested: NestedElements::new(tagged),
            missing: schema.required(),
            may_split: true,
            split: None,
            schema,
            writer: JsonWriter::default(),
            state: TaggedState::Between,
            open: None,
            gap: String::new(),
            held: String::new(),
            waiting: VecDeque::new(),
        }
    }

    /// Reads a character. Returns whether the held text is not part of the arguments.
    fn read_char(&mut self, c: char) -> bool {
        match self.state {
            TaggedState::Between => return self.between_step(c),
            TaggedState::Start { whitespace } => self.start_step(c, whitespace),
            TaggedState::Value => self.value_step(c),
            TaggedState::Finished => {}
        }
        false
    }

    fn between_step(&mut self, c: char) -> bool {
        if self.held.is_empty() && c.is_whitespace() {
            self.gap.push(c);
            return false;
        }
        self.held.push(c);
        match self.marks.head(&self.held) {
            ParameterHead::Part => return false,
            ParameterHead::Full { key, marked_string, word, used } => {
                let rest = self.held.split_off(used);
                self.read_again(&rest);
                self.begin(key, marked_string, word);
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

    fn begin(&mut self, key: String, marked_string: Option<bool>, word: Option<String>) {
        self.held.clear();
        self.gap.clear();
        let key = if self.has_entities { without_entities(&key) } else { key };
        if !self.is_certain() {
            self.writer.open_object();
        }
        self.missing.retain(|missing| *missing != key);
        let known = self.schema.parameter(&key);
        if known.unknown {
            self.writer.note("arg_unknown", format!("the tool has no parameter `{key}`"));
        }
        let types = self.schema.types(&known.pointers);
        let is_string = is_string(types, marked_string);
        if is_string {
            self.writer.key(&key);
            self.writer.begin_string();
        }
        let has_entities =
            self.has_entities && (!self.raw_json || is_string || marked_string == Some(true));
        self.open = Some(OpenParameter {
            key,
            types,
            marked_string,
            is_string,
            raw: String::new(),
            content: ValueContent::new(types, marked_string),
            json_string: JsonString::Outside,
            first: None,
            at_start: true,
            cdata: false,
            crlf: false,
            word,
            is_nested: false,
            open_elements: 0,
            entities: has_entities.then(EntityDecoder::default),
        });
        self.state = TaggedState::Start { whitespace: true };
    }

    fn start_step(&mut self, c: char, whitespace: bool) {
        self.held.push(c);
        if whitespace {
            match whitespace_at(&self.held, &self.marks.before_value) {
                MarkMatch::Part => return,
                MarkMatch::Full(at) => {
                    let whitespace: String = self.held.drain(..at).collect();
                    if let Some(open) = &mut self.open {
                        open.crlf = whitespace.starts_with('\r');
                    }
                }
                MarkMatch::No => {}
            }
            self.state = TaggedState::Start { whitespace: false };
        }
        let cdata = match MarkMatch::of(&self.held, CDATA) {
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
        self.read_again(&rest);
        self.state = TaggedState::Value;
    }

    fn value_step(&mut self, c: char) {
        if self.held.is_empty()
            && let Some(open) = &mut self.open
            && (open.is_in_json_string() || !self.marks.may_end_value(c))
        {
            return open.put(c, &mut self.writer);
        }
        self.held.push(c);
        while let Some(open) = &mut self.open
            && !self.held.is_empty()
        {
            if let Some(nested) = &self.nested
                && open.marked_string == Some(false)
                && (open.is_nested || open.first.is_none())
            {
                match open.nested_step(nested, &mut self.held) {
                    MarkMatch::Part => return,
                    MarkMatch::Full(_) => continue,
                    MarkMatch::No => {}
                }
            }
            if open.is_in_json_string() {
                let c = self.held.remove(0);
                open.put(c, &mut self.writer);
                continue;
            }
            let end = self.marks.end_tag(&self.held, open.cdata, open.crlf);
            let end = match open.content {
                _ if open.cdata => end,
                ValueContent::Text => end.or(self.marks.missing_end_of_text(&self.held)),
                _ => end.or(self.marks.missing_end_of_json(&self.held, open.at_start)),
            };
            let splits = self.may_split
                && !self.missing.is_empty()
                && open.content == ValueContent::Text
                && !open.cdata
                && !matches!(end, MarkMatch::Full(_));
            if splits {
                match self.marks.missing_end_before_parameter(&self.held) {
                    ParameterHead::Full { key, used, .. } if self.missing.contains(&key) => {
                        self.split_text(key, used);
                        let held = std::mem::take(&mut self.held);
                        self.read_again(&held);
                        return;
                    }
                    ParameterHead::Part => return,
                    _ => {}
                }
            }
            match end {
                MarkMatch::Part => return,
                MarkMatch::Full(used) => {
                    let rest = self.held.split_off(used);
                    self.read_again(&rest);
                    self.end();
                    return;
                }
                MarkMatch::No => {
                    let c = self.held.remove(0);
                    open.put(c, &mut self.writer);
                }
            }
        }
    }

    /// Begins to read the text also as if it ended after the first `used` bytes of the held text.
    fn split_text(&mut self, key: String, used: usize) {
        self.may_split = false;
        let mut before = String::new();
        self.writer.move_to(&mut before);
        let mut reader = self.clone();
        let rest = reader.held.split_off(used);
        reader.read_again(&rest);
        reader.end();
        self.split = Some(Box::new(SplitText { key, before, reader, ended: None }));
    }

    /// Reads the waiting characters. Ends the arguments before text that is no part of them, and
    /// returns that text.
    fn read_waiting(&mut self) -> Option<String> {
        while let Some(c) = self.waiting.pop_front() {
            if self.read_char(c) {
                let mut rest = std::mem::take(&mut self.gap) + &std::mem::take(&mut self.held);
                rest.extend(self.waiting.drain(..));
                if !self.is_certain() {
                    self.writer.open_object();
                }
                self.writer.close_all();
                self.state = TaggedState::Finished;
                return Some(rest);
            }
        }
        None
    }

    fn end(&mut self) {
        self.held.clear();
        self.state = TaggedState::Between;
        let Some(mut open) = self.open.take() else { return };
        open.finish(&mut self.writer);
        if open.is_string {
            self.writer.end_string();
            return;
        }
        let (mut text, note) = match self.nested_value(&open) {
            Some(text) => (text, None),
            None => typed_value(&open.raw, open.types, open.marked_string, MAX_DEPTH - 1),
        };
        // The value is a string after all.
        if self.raw_json && open.entities.is_none() && text == quoted(&open.raw) {
            text = quoted(&without_entities(&open.raw));
        }
        if let Some(code) = note {
            self.writer.note(code, format!("the value of `{}`", open.key));
        }
        self.writer.key(&open.key);
        self.writer.value(&text);
    }

    /// The JSON text of a value that consists of nested elements, or of none.
    fn nested_value(&self, open: &OpenParameter) -> Option<String> {
        let nested = self.nested.as_ref()?;
        if open.is_nested {
            return nested.value(&open.raw, 1);
        }
        let empty = nested.empty(open.word.as_deref()?)?;
        open.raw.trim().is_empty().then(|| empty.to_owned())
    }

    /// Schedules text to be read again, before any other text.
    fn read_again(&mut self, text: &str) {
        text.chars().rev().for_each(|c| self.waiting.push_front(c));
    }

    /// Whether the held text ends a value at the end of the text. `None` if it is part of the
    /// value.
    fn is_end(&self, open: &OpenParameter) -> Option<bool> {
        let held = self.held.as_str();
        let marks = &self.marks;
        let whitespace =
            if open.cdata { MarkMatch::Full(0) } else { marks.whitespace_after(held, open.crlf) };
        let tag = match (open.cdata, whitespace) {
            (true, _) => match MarkMatch::of(held, CDATA_END) {
                MarkMatch::Full(at) => pieces_after(held, at, &marks.close),
                other => other,
            },
            (false, MarkMatch::Full(at)) => {
                pieces_at(&held[at..], &marks.close).shifted(at).or(pieces_at(held, &marks.close))
            }
            (false, _) => pieces_at(held, &marks.close),
        };
        let has_end = !marks.close.is_empty() && matches!(tag, MarkMatch::Full(_));
        if has_end || matches!(marks.follower(held.trim_start()), MarkMatch::Full(_)) {
            return Some(true);
        }
        // A single character is not the start of a tag.
        (held.trim_start().chars().nth(1).is_some()).then_some(false)
    }

    /// Ends the text. Returns whether the arguments were complete.
    fn finish_text(&mut self) -> bool {
        let state = std::mem::replace(&mut self.state, TaggedState::Finished);
        if state == TaggedState::Finished {
            return true;
        }
        if self.writer.depth() == 0 {
            self.writer.open_object();
        }
        let mut complete = state == TaggedState::Between && self.held.is_empty();
        if state == TaggedState::Between && !self.held.is_empty() {
            self.writer.leave_out(std::mem::take(&mut self.held));
        }
        if let Some(mut open) = self.open.take() {
            match self.is_end(&open) {
                Some(ended) => complete = ended,
                None => self.held.chars().for_each(|c| open.put(c, &mut self.writer)),
            }
            // If the end of the text cut off a value before it began, the value is omitted.
            if complete || open.is_string || !open.raw.trim().is_empty() {
                self.open = Some(open);
                self.end();
                self.state = TaggedState::Finished;
            } else {
                self.writer.leave_out(open.key + &self.held);
            }
        }
        self.writer.close_all();
        complete
    }
}

impl ArgumentsReader for TaggedReader {
    fn step(&mut self, c: char, out: &mut String) -> ReadStep {
        if let Some(split) = &mut self.split {
            match &mut split.ended {
                Some(rest) => rest.push(c),
                None => split.reader.waiting.push_back(c),
            }
        }
        self.waiting.push_back(c);
        let mut ended = self.read_waiting();
        if let Some(mut split) = self.split.take() {
            out.push_str(&std::mem::take(&mut split.before));
            if split.ended.is_none() {
                split.ended = split.reader.read_waiting();
            }
            if ended.is_none() {
                self.split = Some(split);
                return ReadStep::More;
            }
            if self.missing.contains(&split.key) {
                *self = split.reader;
                ended = split.ended;
            }
        }
        self.writer.move_to(out);
        ended.map_or(ReadStep::More, ReadStep::Ended)
    }

    fn finish(&mut self, out: &mut String) -> bool {
        if let Some(split) = self.split.take()
            && self.missing.contains(&split.key)
        {
            *self = split.reader;
        }
        let is_complete = self.finish_text();
        self.writer.move_to(out);
        is_complete
    }

    fn is_certain(&self) -> bool {
        self.writer.depth() > 0 || self.state == TaggedState::Finished
    }

    fn writer(&mut self) -> Option<&mut JsonWriter> {
        Some(&mut self.writer)
    }
}
