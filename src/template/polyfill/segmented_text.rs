//! Text that records the request member of each of its bytes.
//!
//! Steps build texts by appending. Text that a step adds belongs to no member.

use std::sync::Arc;

use super::call_writer::{MemberBytes, WrittenCalls};

/// A range of a text that was copied, possibly escaped, from one member of the request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::template) struct Segment {
    /// The first byte.
    pub(in crate::template) start: usize,
    /// One past the last byte.
    pub(in crate::template) end: usize,
    /// JSON path of the member, for example `messages[0].content` or `tools[1].function.name`.
    pub(in crate::template) path: Arc<str>,
}

/// A string and its segments: in order, never empty, never overlapping.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(in crate::template) struct SegmentedText {
    string: String,
    segments: Vec<Segment>,
}

impl SegmentedText {
    /// Text that a polyfill adds.
    pub(super) fn literal(text: &str) -> SegmentedText {
        SegmentedText { string: text.to_owned(), segments: Vec::new() }
    }

    /// The whole text of one member.
    pub(super) fn from_member(string: String, path: &Arc<str>) -> SegmentedText {
        let whole = Segment { start: 0, end: string.len(), path: Arc::clone(path) };
        let segments = if string.is_empty() { Vec::new() } else { vec![whole] };
        SegmentedText { string, segments }
    }

    /// The text of calls of the message at `path`.
    pub(super) fn from_calls(calls: WrittenCalls, path: &str) -> SegmentedText {
        let segment = |it: MemberBytes| Segment {
            start: it.bytes.start,
            end: it.bytes.end,
            path: format!("{path}.tool_calls[{}].{}", it.call, it.member).into(),
        };
        let members = calls.members.into_iter().filter(|it| !it.bytes.is_empty());
        SegmentedText { string: calls.text, segments: members.map(segment).collect() }
    }

    pub(in crate::template) fn as_str(&self) -> &str {
        &self.string
    }

    pub(super) fn is_empty(&self) -> bool {
        self.string.is_empty()
    }

    pub(in crate::template) fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// Appends text that a polyfill adds.
    pub(super) fn push_str(&mut self, text: &str) {
        self.string.push_str(text);
    }

    /// Appends the output of `write`, which comes from the member at `path`. Without a path, it
    /// comes from a polyfill.
    pub(super) fn push_from(&mut self, path: Option<&Arc<str>>, write: impl Fn(&mut String)) {
        let start = self.string.len();
        write(&mut self.string);
        if let Some(path) = path
            && start < self.string.len()
        {
            self.segments.push(Segment { start, end: self.string.len(), path: Arc::clone(path) });
        }
    }

    /// Appends a text with its segments.
    pub(super) fn push(&mut self, text: &SegmentedText) {
        self.push_mapped(text, |out, piece| out.push_str(piece));
    }

    /// Appends a text piece by piece through `write`, which may escape it. Each segment covers the
    /// output for its piece.
    pub(super) fn push_mapped(&mut self, text: &SegmentedText, write: impl Fn(&mut String, &str)) {
        let mut at = 0;
        for segment in &text.segments {
            write(&mut self.string, &text.string[at..segment.start]);
            let start = self.string.len();
            write(&mut self.string, &text.string[segment.start..segment.end]);
            self.segments.push(Segment {
                start,
                end: self.string.len(),
                path: Arc::clone(&segment.path),
            });
            at = segment.end;
        }
        write(&mut self.string, &text.string[at..]);
    }

    /// Joins this text, `separator` and the other text. The separator is omitted if one of them is
    /// empty.
    pub(super) fn followed_by(mut self, separator: &str, other: &SegmentedText) -> SegmentedText {
        if !self.is_empty() && !other.is_empty() {
            self.push_str(separator);
        }
        self.push(other);
        self
    }

    /// The path of the first segment.
    pub(super) fn path(&self) -> Option<&str> {
        self.segments.first().map(|segment| &*segment.path)
    }
}
