//! The elements around a text, and what the text cannot contain, because the reader takes it for a tag.
//!
//! With a prefix, that is the prefix of all tags. Without one, a text may well have tags. It cannot
//! have those of its own element, the end tags of the elements around it, and those of the call.

use super::lark::escaped;
use super::raw_text::Excluded;

/// A tag at the start of a value that is not certainly a string begins an element.
const OPENING: &str = r"\s*<[^\/<>\n][^<>\n]*>";
/// An end tag of any name.
const END: &str = r"<\/[^<>\n]*>";

/// The elements that are open.
#[derive(Debug, Clone, Default)]
pub(super) struct OpenElements {
    names: Vec<String>,
    /// Whether there may be others, of any name.
    any: bool,
}

impl OpenElements {
    pub(super) fn push(&mut self, name: &str) {
        self.names.push(name.to_owned());
    }

    pub(super) fn pop(&mut self) {
        self.names.pop();
    }

    /// An element of a definition, which may be inside of any other.
    pub(super) fn in_definition(name: &str) -> OpenElements {
        OpenElements { names: vec![name.to_owned()], any: true }
    }
}

impl OpenElements {
    /// What the text of the innermost element cannot contain. `prefix` is that of every tag.
    /// `call_ends` are the end tags of the call. `is_string` says whether the value is certainly no
    /// array and no object.
    pub(super) fn excluded(&self, prefix: &str, call_ends: &[String], is_string: bool) -> Excluded {
        if !prefix.is_empty() {
            return Excluded::text(prefix);
        }
        let mut all: Vec<String> = call_ends.iter().map(|tag| escaped(tag)).collect();
        let mut names = self.names.iter().rev();
        all.extend(names.next().map(|own| format!(r"<\/?\s*{}\s*>", escaped(own))));
        all.extend(names.map(|name| format!(r"<\/\s*{}\s*>", escaped(name))));
        all.extend(self.any.then(|| END.to_owned()));
        let not_first = (!is_string).then(|| OPENING.to_owned());
        Excluded { nowhere: all.join("|"), not_first }
    }
}
