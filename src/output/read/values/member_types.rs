//! Values of [`ValueReader`](super::ValueReader) between the format's own quotes whose schema allows
//! no string: `{n:<escape>5<escape>}` is `{"n": 5}` if `n` is a number.

use crate::json_schema::{ArgumentsSchema, TypeSet};
use crate::output::read::json_writer::{JsonWriter, MAX_DEPTH};
use crate::output::read::typed_value::{is_string, typed_value};

/// The types of the members of the outermost object.
#[derive(Debug, Default)]
pub(crate) struct MemberTypes {
    schema: ArgumentsSchema,
    /// The last member, and its types. `None` if it may be a string.
    member: Option<(String, TypeSet)>,
    /// The text of the open value. `None` if it is a string, or no value is open.
    marked: Option<String>,
}

impl MemberTypes {
    pub(crate) fn new(schema: ArgumentsSchema) -> MemberTypes {
        MemberTypes { schema, ..MemberTypes::default() }
    }

    /// Begins a member of an object at this depth.
    pub(super) fn begin_member(&mut self, name: &str, depth: usize) {
        if depth == 1 {
            let types = self.schema.types(&self.schema.parameter(name).pointers);
            self.member = types
                .filter(|types| !is_string(Some(*types), Some(true)))
                .map(|types| (name.to_owned(), types));
        }
    }

    /// Begins a value between quotes. Returns whether its text is collected.
    pub(super) fn begin_marked(&mut self, depth: usize) -> bool {
        self.marked = self.member.as_ref().filter(|_| depth == 1).map(|_| String::new());
        self.marked.is_some()
    }

    /// The text of the open value, if it is collected.
    pub(super) fn marked_text(&mut self) -> Option<&mut String> {
        self.marked.as_mut()
    }

    /// Writes the value whose text was collected. Returns whether there is one.
    pub(super) fn end_marked(&mut self, writer: &mut JsonWriter) -> bool {
        let (Some(text), Some((name, types))) = (self.marked.take(), &self.member) else {
            return false;
        };
        let (value, code) = typed_value(&text, Some(*types), Some(true), MAX_DEPTH - 1);
        if let Some(code) = code {
            writer.note(code, format!("the value of `{name}`"));
        }
        writer.value(&value);
        true
    }
}
