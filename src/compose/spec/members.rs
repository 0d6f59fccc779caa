//! The members of a spec as tables. Each line has the key, the field, and the codec that reads the
//! member and writes it in normal form.

use serde_json::{Map, Value, json};

use super::reader::SpecReader;
use super::slots::{Occurs, SlotPattern, Slots, escaped, literal};
use crate::compose::fault::Reason;
use crate::error::Result;
use crate::vision::VisionRule;

/// Reads and writes a kind of member.
pub(super) trait Codec<T> {
    fn read(&self, reader: &mut SpecReader<'_>, key: &'static str) -> Result<T>;

    /// The value in normal form; null if it is the default.
    fn to_json(&self, value: &T) -> Value;

    /// Adds the member in normal form, unless its value is the default.
    fn write(&self, value: &T, key: &str, members: &mut Map<String, Value>) {
        let value = self.to_json(value);
        if !value.is_null() {
            members.insert(key.to_owned(), value);
        }
    }
}

/// A struct of members.
pub(super) trait Members: Sized {
    fn read(reader: &mut SpecReader<'_>) -> Result<Self>;

    /// Adds all members in normal form.
    fn write(&self, members: &mut Map<String, Value>);
}

/// Declares a struct of members: `"key" => field: Type = codec`.
macro_rules! members {
    (
        $(#[$meta:meta])*
        $visibility:vis struct $name:ident {
            $($(#[$field_meta:meta])* $key:literal => $field:ident: $type:ty = $codec:expr,)*
        }
    ) => {
        $(#[$meta])*
        $visibility struct $name {
            $($(#[$field_meta])* pub(crate) $field: $type,)*
        }

        impl $crate::compose::spec::members::Members for $name {
            fn read(reader: &mut $crate::compose::spec::reader::SpecReader<'_>) -> $crate::error::Result<$name> {
                use $crate::compose::spec::members::Codec;
                Ok($name { $($field: Codec::<$type>::read(&$codec, reader, $key)?,)* })
            }

            fn write(&self, members: &mut serde_json::Map<String, serde_json::Value>) {
                use $crate::compose::spec::members::Codec;
                $(Codec::<$type>::write(&$codec, &self.$field, $key, members);)*
            }
        }
    };
}
pub(super) use members;

/// A string. The value here is the default.
pub(super) struct PlainText(pub(super) &'static str);

impl Codec<String> for PlainText {
    fn read(&self, reader: &mut SpecReader<'_>, key: &'static str) -> Result<String> {
        Ok(reader.string(key)?.unwrap_or(self.0).to_owned())
    }

    fn to_json(&self, value: &String) -> Value {
        json!(Some(value).filter(|value| *value != self.0))
    }
}

pub(super) struct OptionalText;

impl Codec<Option<String>> for OptionalText {
    fn read(&self, reader: &mut SpecReader<'_>, key: &'static str) -> Result<Option<String>> {
        Ok(reader.string(key)?.map(str::to_owned))
    }

    fn to_json(&self, value: &Option<String>) -> Value {
        json!(value)
    }
}

/// Literal text. Its braces are doubled in the spec.
pub(super) struct Literal;

impl Codec<Option<String>> for Literal {
    fn read(&self, reader: &mut SpecReader<'_>, key: &'static str) -> Result<Option<String>> {
        let path = reader.path(key);
        Ok(reader.string(key)?.map(|text| literal(text, &path)).transpose()?)
    }

    fn to_json(&self, value: &Option<String>) -> Value {
        json!(value.as_deref().map(escaped))
    }
}

impl Codec<String> for Literal {
    fn read(&self, reader: &mut SpecReader<'_>, key: &'static str) -> Result<String> {
        let text: Option<String> = self.read(reader, key)?;
        Ok(text.unwrap_or_default())
    }

    fn to_json(&self, value: &String) -> Value {
        json!(Some(escaped(value)).filter(|text| !text.is_empty()))
    }
}

/// A boolean. The value here is the default.
pub(super) struct Flag(pub(super) bool);

impl Codec<bool> for Flag {
    fn read(&self, reader: &mut SpecReader<'_>, key: &'static str) -> Result<bool> {
        Ok(reader.boolean(key)?.unwrap_or(self.0))
    }

    fn to_json(&self, value: &bool) -> Value {
        json!(Some(value).filter(|value| **value != self.0))
    }
}

/// One of these names. The first one is the default.
pub(super) struct OneOf<T: 'static>(pub(super) &'static [(&'static str, T)]);

impl<T: Copy + PartialEq> Codec<T> for OneOf<T> {
    fn read(&self, reader: &mut SpecReader<'_>, key: &'static str) -> Result<T> {
        Ok(reader.one_of(key, self.0)?.unwrap_or(self.0[0].1))
    }

    fn to_json(&self, value: &T) -> Value {
        let others = &self.0[1..];
        json!(others.iter().find(|(_, other)| other == value).map(|(name, _)| name))
    }
}

/// An optional text with these slots.
impl Codec<Option<SlotPattern>> for Slots {
    fn read(&self, reader: &mut SpecReader<'_>, key: &'static str) -> Result<Option<SlotPattern>> {
        reader.pattern(key, *self)
    }

    fn to_json(&self, value: &Option<SlotPattern>) -> Value {
        json!(value.as_ref().map(SlotPattern::source))
    }
}

/// A required text with these slots.
pub(super) struct Required(pub(super) Slots);

impl Codec<SlotPattern> for Required {
    fn read(&self, reader: &mut SpecReader<'_>, key: &'static str) -> Result<SlotPattern> {
        let pattern = reader.pattern(key, self.0)?;
        Ok(pattern.ok_or_else(|| reader.fault(Reason::MissingField, key, "missing"))?)
    }

    fn to_json(&self, value: &SlotPattern) -> Value {
        json!(value.source())
    }
}

/// A text with these slots, and its default.
pub(super) struct Pattern(pub(super) Slots, pub(super) &'static str);

impl Codec<SlotPattern> for Pattern {
    fn read(&self, reader: &mut SpecReader<'_>, key: &'static str) -> Result<SlotPattern> {
        match reader.pattern(key, self.0)? {
            Some(pattern) => Ok(pattern),
            None => Ok(SlotPattern::parse(self.1, &reader.path(key), self.0)?),
        }
    }

    fn to_json(&self, value: &SlotPattern) -> Value {
        json!(Some(value.source()).filter(|source| *source != self.1))
    }
}

/// A list of some of these strings, in this order.
pub(super) struct SomeOf(pub(super) &'static [&'static str]);

impl Codec<Vec<&'static str>> for SomeOf {
    fn read(&self, reader: &mut SpecReader<'_>, key: &'static str) -> Result<Vec<&'static str>> {
        let listed = reader.array(key)?.map_or(&[][..], Vec::as_slice);
        if let Some(unknown) = listed.iter().find(|role| !self.0.iter().any(|known| *role == known))
        {
            let known = self.0.join(", ");
            let problem = format!("unknown role {unknown}; expected one of {known}");
            return Err(reader.fault(Reason::BadValue, key, problem).into());
        }
        let is_listed = |known: &&str| listed.iter().any(|role| role == known);
        Ok(self.0.iter().copied().filter(is_listed).collect())
    }

    fn to_json(&self, value: &Vec<&'static str>) -> Value {
        json!(Some(value).filter(|roles| !roles.is_empty()))
    }
}

/// A nested object.
pub(super) struct Nested;

impl<T: Members> Codec<T> for Nested {
    fn read(&self, reader: &mut SpecReader<'_>, key: &'static str) -> Result<T> {
        match reader.nested(key, T::read)? {
            Some(members) => Ok(members),
            None => T::read(&mut SpecReader::new(&reader.path(key), &json!({}))?),
        }
    }

    fn to_json(&self, value: &T) -> Value {
        let mut members = Map::new();
        value.write(&mut members);
        if members.is_empty() { Value::Null } else { members.into() }
    }
}

/// Members of the same object that are fields of another struct.
pub(super) struct Flattened;

impl<T: Members> Codec<T> for Flattened {
    fn read(&self, reader: &mut SpecReader<'_>, _: &'static str) -> Result<T> {
        T::read(reader)
    }

    fn to_json(&self, value: &T) -> Value {
        Nested.to_json(value)
    }

    fn write(&self, value: &T, _: &str, members: &mut Map<String, Value>) {
        value.write(members);
    }
}

const OBSERVATIONS: Slots =
    Slots::Of(&[("observations", Occurs::AtMostOnce), ("observation", Occurs::AtMostOnce)]);
const TOOL_CALL: Slots = Slots::Of(&[
    ("tool_call", Occurs::Freely),
    ("name", Occurs::Freely),
    ("arguments", Occurs::Freely),
    ("id", Occurs::Freely),
]);
const TOOL_CALL_AS_JSON: &str = "{tool_call}";

/// The codec of `observations_template`. chat-bricks also has the older name `tool_template`.
pub(super) struct Observations;

impl Codec<Option<SlotPattern>> for Observations {
    fn read(&self, reader: &mut SpecReader<'_>, key: &'static str) -> Result<Option<SlotPattern>> {
        let template = reader.pattern(key, OBSERVATIONS)?;
        let older = reader.pattern("tool_template", OBSERVATIONS)?;
        let template = template.or(older);
        if let Some(template) = &template
            && template.has("observations") == template.has("observation")
        {
            let problem =
                "expected the one slot {observations}; without it tool results would be lost";
            return Err(reader.fault(Reason::BadSlot, key, problem).into());
        }
        Ok(template)
    }

    fn to_json(&self, value: &Option<SlotPattern>) -> Value {
        OBSERVATIONS.to_json(value)
    }
}

/// The codec of `single_tool_call_template`. chat-bricks also has the older name
/// `tool_call_template`.
pub(super) struct SingleToolCall;

impl Codec<SlotPattern> for SingleToolCall {
    fn read(&self, reader: &mut SpecReader<'_>, key: &'static str) -> Result<SlotPattern> {
        let template = reader.pattern(key, TOOL_CALL)?;
        let older = reader.pattern("tool_call_template", TOOL_CALL)?;
        let Some(template) = template.or(older) else {
            return Ok(SlotPattern::parse(TOOL_CALL_AS_JSON, "", TOOL_CALL)?);
        };
        if !template.has("tool_call") && !template.has("arguments") {
            let problem = format!(
                "{:?} has neither {{tool_call}} nor {{arguments}}; without them calls would be lost",
                template.source()
            );
            return Err(reader.fault(Reason::BadSlot, key, problem).into());
        }
        Ok(template)
    }

    fn to_json(&self, value: &SlotPattern) -> Value {
        Pattern(TOOL_CALL, TOOL_CALL_AS_JSON).to_json(value)
    }
}

/// A string or a list of strings. Empty strings are dropped.
pub(super) struct StopWords;

impl Codec<Vec<String>> for StopWords {
    fn read(&self, reader: &mut SpecReader<'_>, key: &'static str) -> Result<Vec<String>> {
        let words: Vec<&str> = match reader.get(key) {
            None => Vec::new(),
            Some(Value::String(word)) => vec![word],
            Some(Value::Array(words)) if words.iter().all(Value::is_string) => {
                words.iter().filter_map(Value::as_str).collect()
            }
            Some(_) => {
                let problem = "expected a string or a list of strings";
                return Err(reader.fault(Reason::BadValue, key, problem).into());
            }
        };
        Ok(words.into_iter().filter(|word| !word.is_empty()).map(str::to_owned).collect())
    }

    fn to_json(&self, value: &Vec<String>) -> Value {
        json!(Some(value).filter(|words| !words.is_empty()))
    }
}

/// The codec of `vision_rule`, which is kept as written.
pub(super) struct CheckedVisionRule;

impl Codec<Option<Value>> for CheckedVisionRule {
    fn read(&self, reader: &mut SpecReader<'_>, key: &'static str) -> Result<Option<Value>> {
        let rule = reader.get(key);
        if let Some(rule) = rule {
            let (_, unknown) = VisionRule::read(&reader.path(key), rule)?;
            reader.ignore(unknown);
        }
        Ok(rule.cloned())
    }

    fn to_json(&self, value: &Option<Value>) -> Value {
        json!(value)
    }
}
