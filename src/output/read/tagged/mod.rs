//! Arguments with one element per parameter -> JSON: `<parameter=a>\n1\n</parameter>\n` is
//! `{"a": 1}`.
//!
//! Any whitespace may surround and separate the parts of a marker. A value ends
//!
//! - at its end tag, if a parameter, a follower or the end of the text comes next. Otherwise the
//!   tag is part of the value: `print("</parameter>")`;
//! - without an end tag, at a follower or a parameter that begins a line, if the format writes
//!   lines;
//! - without an end tag inside a line, at a parameter with a complete key, or at a follower that
//!   another follower or the end of the text follows. A single tag may be part of the value.
//!
//! Only text that may be such an end is held. Inside `<![CDATA[` only `]]>` and the end tag end a
//! value.

mod marks;
mod nested;

use std::collections::VecDeque;

use serde_json::Value;

use crate::json_schema::{ArgumentsSchema, SchemaPointers, TypeSet};
use crate::output::format::{FormatText, Tagged};
use crate::output::read::arguments::{ArgumentsReader, ReadStep};
use crate::output::read::entities::{EntityDecoder, without_entities};
use crate::output::read::json_writer::{JsonWriter, MAX_DEPTH};
use crate::output::read::typed_value::{is_string, typed_value};
use marks::{
    CDATA_END, MarkMatch, ParameterHead, ParameterMarks, mark_at, pieces_after, pieces_at,
    whitespace_at,
};

use nested::NestedElements;

const CDATA: &str = "<![CDATA[";

/// The parameter whose value is being read.
#[derive(Debug)]
struct OpenParameter {
    key: String,
    types: Option<TypeSet>,
    /// Whether the markup states that the value is a string.
    marked_string: Option<bool>,
    /// Whether the value is emitted as it arrives. Other values are collected in `raw`.
    is_string: bool,
    raw: String,
    /// Whether the value is empty so far.
    at_start: bool,
    cdata: bool,
    /// The word for the type of the value, if the markup states it.
    word: Option<String>,
    /// Whether the value consists of nested elements.
    is_nested: bool,
    /// The number of nested elements that are open.
    open_elements: usize,
    /// Decodes the entities of the value, if the format writes them.
    entities: Option<EntityDecoder>,
}

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
#[derive(Debug)]
pub(crate) struct TaggedReader {
    marks: ParameterMarks,
    /// Whether the format writes special characters as entities.
    has_entities: bool,
    /// How arrays and objects are written, if they are nested elements.
    nested: Option<NestedElements>,
    schema: ArgumentsSchema,
    root: SchemaPointers,
    writer: JsonWriter,
    state: TaggedState,
    open: Option<OpenParameter>,
    /// Whitespace before the next tag.
    gap: String,
    /// Text that is not decided yet.
    held: String,
    /// Characters to be read again.
    waiting: VecDeque<char>,
}

impl TaggedReader {
    /// `followers` are the tags that may follow the last parameter.
    pub(crate) fn new(
        tagged: &Tagged,
        followers: Vec<FormatText>,
        schema: Option<&Value>,
    ) -> TaggedReader {
        let schema = ArgumentsSchema::new(schema);
        TaggedReader {
            marks: ParameterMarks::new(tagged, followers),
            has_entities: !tagged.entities.is_empty(),
            nested: NestedElements::new(tagged),
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

    /// Reads a character. Returns whether the held text is not part of the arguments.
    fn read_char(&mut self, c: char, out: &mut String) -> bool {
        match self.state {
            TaggedState::Between => return self.between_step(c, out),
            TaggedState::Start { whitespace } => self.start_step(c, whitespace),
            TaggedState::Value => self.value_step(c, out),
            TaggedState::Finished => {}
        }
        false
    }

    fn between_step(&mut self, c: char, out: &mut String) -> bool {
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
                self.begin(key, marked_string, word, out);
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

    fn begin(
        &mut self,
        key: String,
        marked_string: Option<bool>,
        word: Option<String>,
        out: &mut String,
    ) {
        self.held.clear();
        self.gap.clear();
        let key = if self.has_entities { without_entities(&key) } else { key };
        if !self.is_certain() {
            self.writer.open_object(out);
        }
        let known = self.schema.member(&self.root, &key);
        if known.unknown {
            self.writer.note("arg_unknown", format!("the tool has no parameter `{key}`"));
        }
        let types = self.schema.types(&known.pointers);
        let is_string = is_string(types, marked_string);
        if is_string {
            self.writer.key(&key, out);
            self.writer.begin_string(out);
        }
        self.open = Some(OpenParameter {
            key,
            types,
            marked_string,
            is_string,
            raw: String::new(),
            at_start: true,
            cdata: false,
            word,
            is_nested: false,
            open_elements: 0,
            entities: self.has_entities.then(EntityDecoder::default),
        });
        self.state = TaggedState::Start { whitespace: true };
    }

    fn start_step(&mut self, c: char, whitespace: bool) {
        self.held.push(c);
        if whitespace {
            match whitespace_at(&self.held, &self.marks.before_value) {
                MarkMatch::Part => return,
                MarkMatch::Full(at) => {
                    self.held.drain(..at);
                }
                MarkMatch::No => {}
            }
            self.state = TaggedState::Start { whitespace: false };
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
        self.read_again(&rest);
        self.state = TaggedState::Value;
    }

    fn value_step(&mut self, c: char, out: &mut String) {
        if self.held.is_empty()
            && !self.marks.may_end_value(c)
            && let Some(open) = &mut self.open
        {
            return open.put(c, &mut self.writer, out);
        }
        self.held.push(c);
        while let Some(open) = &mut self.open
            && !self.held.is_empty()
        {
            if let Some(nested) = &self.nested
                && open.marked_string == Some(false)
                && (open.is_nested || open.raw.trim().is_empty())
            {
                match open.nested_step(nested, &mut self.held) {
                    MarkMatch::Part => return,
                    MarkMatch::Full(_) => continue,
                    MarkMatch::No => {}
                }
            }
            let end = self.marks.end_tag(&self.held, open.cdata);
            let end = if open.cdata {
                end
            } else {
                end.or(self.marks.missing_end_tag(&self.held, open.at_start))
            };
            match end {
                MarkMatch::Part => return,
                MarkMatch::Full(used) => {
                    let rest = self.held.split_off(used);
                    self.read_again(&rest);
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

    fn end(&mut self, out: &mut String) {
        self.held.clear();
        self.state = TaggedState::Between;
        let Some(mut open) = self.open.take() else { return };
        open.finish(&mut self.writer, out);
        if open.is_string {
            self.writer.end_string(out);
            return;
        }
        let (text, note) = match self.nested_value(&open) {
            Some(text) => (text, None),
            None => typed_value(&open.raw, open.types, open.marked_string, MAX_DEPTH - 1),
        };
        if let Some(code) = note {
            self.writer.note(code, format!("the value of `{}`", open.key));
        }
        self.writer.key(&open.key, out);
        self.writer.value(&text, out);
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
            if open.cdata { MarkMatch::Full(0) } else { whitespace_at(held, &marks.after_value) };
        let tag = match (open.cdata, whitespace) {
            (true, _) => match mark_at(held, CDATA_END) {
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
}

impl OpenParameter {
    /// Moves held text of nested elements to the value. `No` if it belongs to no nested element.
    fn nested_step(&mut self, nested: &NestedElements, held: &mut String) -> MarkMatch {
        let start = mark_at(held, &nested.start);
        let end = if self.open_elements > 0 { mark_at(held, &nested.end) } else { MarkMatch::No };
        let used = match (start, end) {
            (MarkMatch::Full(used), _) => {
                self.is_nested = true;
                self.open_elements += 1;
                used
            }
            (_, MarkMatch::Full(used)) => {
                self.open_elements -= 1;
                used
            }
            (MarkMatch::No, MarkMatch::No) if self.open_elements > 0 => {
                held.chars().next().map_or(0, char::len_utf8)
            }
            (start, end) => return start.or(end),
        };
        self.raw.extend(held.drain(..used));
        MarkMatch::Full(used)
    }

    fn put(&mut self, c: char, writer: &mut JsonWriter, out: &mut String) {
        self.at_start = false;
        let OpenParameter { is_string, raw, entities, cdata, is_nested, .. } = self;
        let mut put = |c| if *is_string { writer.push(c, out) } else { raw.push(c) };
        match entities {
            // The entities of nested elements are decoded with them.
            Some(decoder) if !*cdata && !*is_nested => decoder.push(c, put),
            _ => put(c),
        }
    }

    /// Passes on the start of an entity, because the value ends.
    fn finish(&mut self, writer: &mut JsonWriter, out: &mut String) {
        let OpenParameter { is_string, raw, entities, .. } = self;
        if let Some(decoder) = entities {
            decoder.finish(|c| if *is_string { writer.push(c, out) } else { raw.push(c) });
        }
    }
}

impl ArgumentsReader for TaggedReader {
    fn step(&mut self, c: char, out: &mut String) -> ReadStep {
        self.waiting.push_back(c);
        while let Some(c) = self.waiting.pop_front() {
            if self.read_char(c, out) {
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
            // If the end of the text cut off a value before it began, the value is omitted.
            if complete || open.is_string || !open.raw.trim().is_empty() {
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

    fn writer(&mut self) -> Option<&mut JsonWriter> {
        Some(&mut self.writer)
    }
}
