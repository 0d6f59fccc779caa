//! A rendered prompt, and its spans: the bytes that came from a member of the request.

use std::fmt;
use std::ops::{Deref, Range};
use std::sync::Arc;

use serde_json::Value;

use crate::api::object;

/// The maximum length of a path in bytes. A value whose path would be longer has the path of the
/// value that it is in. Without a limit, a long name would be copied for each value below it.
pub(crate) const MAX_PATH: usize = 256;

/// A rendered prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prompt {
    /// The prompt.
    pub text: String,
    /// If `RenderInput::spans` is set, the bytes that came from the request, in order. All other
    /// bytes are the template's.
    pub spans: Vec<Span>,
    /// The bytes of `{% generation %}` blocks.
    pub generation: Vec<Range<usize>>,
}

impl Prompt {
    /// Every byte of the prompt, in order:
    /// `[{"start","end","origin":"template"|"message","path"?}]`.
    pub fn spans_json(&self) -> Value {
        let mut all = Vec::with_capacity(2 * self.spans.len() + 1);
        let mut at = 0;
        let template = |start: usize, end: usize| {
            object([("start", start.into()), ("end", end.into()), ("origin", "template".into())])
        };
        for span in &self.spans {
            if at < span.start {
                all.push(template(at, span.start));
            }
            let (start, end, path) = (span.start.into(), span.end.into(), (*span.path).into());
            all.push(object([
                ("start", start),
                ("end", end),
                ("origin", "message".into()),
                ("path", path),
            ]));
            at = span.end;
        }
        if at < self.text.len() {
            all.push(template(at, self.text.len()));
        }
        all.into()
    }
}

/// Bytes of a prompt that came from one member of the request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    /// The first byte.
    pub start: usize,
    /// One past the last byte.
    pub end: usize,
    /// The member, for example `messages[0].content`.
    pub path: MemberPath,
}

/// The JSON path of a member, as a slice of one text that all spans of a prompt share.
#[derive(Clone)]
pub struct MemberPath {
    all: Arc<str>,
    start: u32,
    end: u32,
}

impl Deref for MemberPath {
    type Target = str;

    fn deref(&self) -> &str {
        &self.all[self.start as usize..self.end as usize]
    }
}

impl From<&str> for MemberPath {
    fn from(path: &str) -> MemberPath {
        MemberPath {
            all: path.into(),
            start: 0,
            end: u32::try_from(path.len()).unwrap_or(u32::MAX),
        }
    }
}

impl PartialEq for MemberPath {
    fn eq(&self, other: &MemberPath) -> bool {
        **self == **other
    }
}

impl Eq for MemberPath {}

impl fmt::Debug for MemberPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

impl fmt::Display for MemberPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self)
    }
}

/// Paths by number, stored in one text. A conversation has one path for each of its strings.
#[derive(Debug, Default)]
pub(crate) struct PathList {
    all: String,
    ends: Vec<u32>,
}

/// The length in bytes of a typical path.
const USUAL: usize = 24;

impl PathList {
    /// Reserves space for more paths.
    pub(crate) fn reserve(&mut self, paths: usize) {
        self.all.reserve(paths * USUAL);
        self.ends.reserve(paths);
    }

    /// Appends a path and returns its number.
    pub(crate) fn push(&mut self, path: &str) -> u32 {
        let number = u32::try_from(self.ends.len()).unwrap_or(u32::MAX);
        self.all.push_str(path);
        self.ends.push(u32::try_from(self.all.len()).unwrap_or(u32::MAX));
        number
    }

    pub(crate) fn finish(self) -> Paths {
        Paths { all: self.all.into(), ends: self.ends }
    }
}

/// Paths by number.
pub(crate) struct Paths {
    all: Arc<str>,
    ends: Vec<u32>,
}

impl Paths {
    pub(crate) fn get(&self, number: u32) -> Option<MemberPath> {
        let number = number as usize;
        let end = *self.ends.get(number)?;
        let start = number.checked_sub(1).map_or(0, |before| self.ends[before]);
        Some(MemberPath { all: Arc::clone(&self.all), start, end })
    }
}
