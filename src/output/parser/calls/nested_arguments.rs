//! Arguments inside one more object: `{"arguments": {"city": "Oslo"}}` for a tool with the parameter
//! `city`.
//!
//! In: the JSON text of the arguments as it comes. Out: how much of it is certain, and at its end
//! the text of the inner object. The outer object is removed only if its key is like no parameter of
//! the tool and all keys and types of the inner object are those of its parameters.

use serde_json::Value;

use crate::json;
use crate::json_schema::{ArgumentsSchema, TypeSet};
use crate::output::read::object_text;

/// The keys that models use for the outer object. If a parameter has a name like one of them, a key
/// is that parameter's, and is not held back.
const OUTER_KEYS: [&str; 5] = ["arguments", "parameters", "properties", "input", "args"];
/// The maximum length of the text before the end of the first key.
const MAX_HEAD: usize = 64;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Nesting {
    /// The first key is not complete and may be an outer one.
    Open,
    /// The first key is this outer one. The end of the arguments decides.
    Held(&'static str),
    /// The outer object with this key was removed.
    Removed(&'static str),
    /// The arguments are as the model writes them.
    #[default]
    Plain,
}

/// Decides whether arguments are in one more object.
#[derive(Debug, Default)]
pub(crate) struct NestedArguments {
    schema: ArgumentsSchema,
    /// The keys of an outer object, for this tool.
    keys: Vec<&'static str>,
    nesting: Nesting,
}

impl NestedArguments {
    pub(crate) fn new(schema: ArgumentsSchema) -> NestedArguments {
        let mut keys = OUTER_KEYS.to_vec();
        keys.retain(|key| !schema.has_parameter_like(key));
        NestedArguments { schema, keys, nesting: Nesting::Open }
    }

    /// The number of bytes at the start of the arguments that are certain. `text` is the whole text
    /// so far. At its end, it is replaced by the inner object if there is one.
    pub(crate) fn certain(&mut self, text: &mut String, is_whole: bool) -> usize {
        if self.nesting == Nesting::Open {
            self.nesting = self.after(text);
        }
        if is_whole && matches!(self.nesting, Nesting::Open | Nesting::Held(_)) {
            self.nesting = match self.nesting {
                Nesting::Held(key) => self.inner(key, text).map_or(Nesting::Plain, |inner| {
                    *text = inner;
                    Nesting::Removed(key)
                }),
                _ => Nesting::Plain,
            };
        }
        match self.nesting {
            // Both objects begin with a brace.
            Nesting::Open | Nesting::Held(_) => text.len().min(1),
            Nesting::Removed(_) | Nesting::Plain => text.len(),
        }
    }

    /// Whether text after the certain part may still be replaced.
    pub(crate) fn is_held(&self) -> bool {
        matches!(self.nesting, Nesting::Open | Nesting::Held(_))
    }

    /// The key of the outer object that was removed.
    pub(crate) fn removed(&self) -> Option<&'static str> {
        match self.nesting {
            Nesting::Removed(key) => Some(key),
            _ => None,
        }
    }

    /// What the first key of a text shows.
    fn after(&self, text: &str) -> Nesting {
        let head = match text.strip_prefix('{') {
            _ if text.is_empty() => return Nesting::Open,
            Some(head) if text.len() <= MAX_HEAD => head.trim_start(),
            _ => return Nesting::Plain,
        };
        if head.is_empty() {
            return Nesting::Open;
        }
        let Some(key) = head.strip_prefix('"') else { return Nesting::Plain };
        let whole = key.split_once('"').map(|(key, _)| key);
        let is_unknown = |key: &str| self.schema.member(&self.schema.root(), key).unknown;
        let mut outer = self.keys.iter().copied();
        match whole {
            Some(whole) => outer
                .find(|outer| *outer == whole && is_unknown(outer))
                .map_or(Nesting::Plain, Nesting::Held),
            None if outer.any(|outer| outer.starts_with(key)) => Nesting::Open,
            None => Nesting::Plain,
        }
    }

    /// The text of the inner object, if it is the only member and consists of parameters.
    fn inner(&self, key: &str, text: &str) -> Option<String> {
        let outer = json::object(text).filter(|outer| outer.len() == 1)?;
        let inner = match outer.get(key)? {
            Value::Object(_) => {
                let (_, value) = text.split_once(':')?;
                value.trim().strip_suffix('}')?.trim_end().to_owned()
            }
            Value::String(inner) => object_text(inner)?,
            _ => return None,
        };
        let members = json::object(&inner)?;
        let is_parameter = |(name, value): (&String, &Value)| {
            let member = self.schema.member(&self.schema.root(), name);
            let types = self.schema.types(&member.pointers);
            !member.unknown && types.is_none_or(|types| types.has(TypeSet::of(value)))
        };
        (!members.is_empty() && members.iter().all(is_parameter)).then_some(inner)
    }
}
