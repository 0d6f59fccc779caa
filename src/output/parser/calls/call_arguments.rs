//! The arguments of a call: their JSON text as it comes, and how much of it is certain.
//!
//! Two deviations are undone here:
//!
//! - arguments inside one more object: `{"arguments": {"city": "Oslo"}}` for a tool with the
//!   parameter `city`. The outer object is removed only if its key is like no parameter of the tool
//!   and all keys and types of the inner object are those of its parameters;
//! - strings in place of other values: `"5"` for a number is `5`. This is only for whole calls that
//!   count if they match their schema. Strings inside other values stay as they are.

use serde_json::Value;

use crate::json;
use crate::json_schema::{ArgumentsSchema, TypeSet};
use crate::output::call_writer;
use crate::output::read::{object_text, text_as};

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

/// The arguments of one call.
#[derive(Debug, Default)]
pub(crate) struct CallArguments {
    /// The text that was not taken yet, or all of it while it may be in one more object.
    pub(super) text: String,
    /// The number of bytes of `text` that were taken.
    taken: usize,
    schema: ArgumentsSchema,
    /// The keys of an outer object, for this tool.
    keys: Vec<&'static str>,
    nesting: Nesting,
    /// Whether strings were replaced by the values that they spell.
    coerced: bool,
}

impl CallArguments {
    /// Sets the schema, once the function is known.
    pub(super) fn expect(&mut self, schema: ArgumentsSchema) {
        self.keys = OUTER_KEYS.to_vec();
        self.keys.retain(|key| !schema.has_parameter_like(key));
        self.schema = schema;
        self.nesting = Nesting::Open;
    }

    /// The text that is certain and was not taken. `is_whole` says whether no more text comes.
    pub(super) fn certain(&mut self, is_whole: bool) -> &str {
        if self.nesting == Nesting::Open {
            self.nesting = self.after_head();
        }
        if is_whole {
            self.nesting = match self.nesting {
                Nesting::Open => Nesting::Plain,
                Nesting::Held(key) => self.inner(key).map_or(Nesting::Plain, |inner| {
                    self.text = inner;
                    Nesting::Removed(key)
                }),
                decided => decided,
            };
        }
        &self.text[self.taken..self.certain_length()]
    }

    fn is_held(&self) -> bool {
        matches!(self.nesting, Nesting::Open | Nesting::Held(_))
    }

    fn certain_length(&self) -> usize {
        // Both objects begin with a brace.
        if self.is_held() { self.text.len().min(1) } else { self.text.len() }
    }

    /// Forgets the certain text, which was taken. Its memory serves the next text.
    pub(super) fn clear(&mut self) {
        if self.is_held() {
            self.taken = self.certain_length();
        } else {
            self.text.clear();
            self.taken = 0;
        }
    }

    /// Replaces strings by the values that they spell, where the schema excludes strings, if the
    /// request accepts the result. Returns whether it does. The arguments are whole, and none were
    /// taken.
    pub(super) fn coerce(&mut self, accepts: impl Fn(&str) -> bool) -> bool {
        let coerced = self.coerced_text().filter(|text| accepts(text));
        self.coerced |= coerced.is_some();
        coerced.map(|text| self.text = text).is_some()
    }

    /// Adds the diagnostics of accepted deviations to those of the reader.
    pub(super) fn add_notes(&self, notes: &mut Vec<(&'static str, String)>) {
        if let Nesting::Removed(key) = self.nesting {
            // It is the only key of the outer object.
            notes.retain(|(code, _)| *code != "arg_unknown");
            let message = format!("the arguments are inside one more object, `{key}`");
            notes.push(("arguments_unwrapped", message));
        }
        if self.coerced {
            let message = "strings in place of other values were read as these values";
            notes.push(("arg_coerced", message.to_owned()));
        }
    }

    /// What the first key of the text shows.
    fn after_head(&self) -> Nesting {
        let head = match self.text.strip_prefix('{') {
            _ if self.text.is_empty() => return Nesting::Open,
            Some(head) if self.text.len() <= MAX_HEAD => head.trim_start(),
            _ => return Nesting::Plain,
        };
        if head.is_empty() {
            return Nesting::Open;
        }
        let Some(key) = head.strip_prefix('"') else { return Nesting::Plain };
        let whole = key.split_once('"').map(|(key, _)| key);
        let is_unknown = |key: &str| self.schema.parameter(key).unknown;
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
    fn inner(&self, key: &str) -> Option<String> {
        let outer = json::object(&self.text).filter(|outer| outer.len() == 1)?;
        let inner = match outer.get(key)? {
            Value::Object(_) => {
                let (_, value) = self.text.split_once(':')?;
                value.trim().strip_suffix('}')?.trim_end().to_owned()
            }
            Value::String(inner) => object_text(inner)?,
            _ => return None,
        };
        let members = json::object(&inner)?;
        let is_parameter = |(name, value): (&String, &Value)| {
            let member = self.schema.parameter(name);
            let types = self.schema.types(&member.pointers);
            !member.unknown && types.is_none_or(|types| types.has(TypeSet::of(value)))
        };
        (!members.is_empty() && members.iter().all(is_parameter)).then_some(inner)
    }

    /// The text with the values that its strings spell. None if no string spells one.
    fn coerced_text(&self) -> Option<String> {
        let mut members = json::object(&self.text)?;
        let mut changed = false;
        for (name, value) in &mut members {
            let types = self.schema.types(&self.schema.parameter(name).pointers);
            if let (Value::String(text), Some(types)) = (&*value, types)
                && let Some(spelled) = text_as(types, text).and_then(|text| json::value(text).ok())
            {
                *value = spelled;
                changed = true;
            }
        }
        let mut written = String::new();
        call_writer::json(&Value::Object(members), false, &mut written);
        changed.then_some(written)
    }
}
