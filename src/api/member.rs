//! Tables of members. Each line has the names, type, default, documentation and codec of one.
//!
//! `members!` makes a struct and the code that reads it from such a table. Documentation, bindings
//! and the program are compared with the tables (`one_source_tests.rs`).

use std::ops::RangeInclusive;

use serde::Serialize;
use serde_json::{Value, json};

use super::fields::Fields;
use crate::error::Result;

/// Declares a group of members of a request, or of options. A line has the documentation, the
/// field, the type, the default and the codec. Names in JSON that differ from the field follow it
/// in parentheses: the member's, then its aliases and the members that are read together with it.
///
/// ```text
/// /// A Lark grammar that the text must match.
/// grammar: Option<String> = None => Text,
/// /// Additional variables of the chat template.
/// template_kwargs("chat_template_kwargs"): Map<String, Value> = Map::new() => Custom(…),
/// ```
///
/// Fields after `extra` are not members.
macro_rules! members {
    (
        $(#[$meta:meta])*
        pub struct $group:ident {
            $($(#[doc = $doc:literal])+
            $field:ident $(($($name:literal),+))?: $type:ty = $default:expr => $codec:expr,)+
        }
        $(extra { $($(#[doc = $extra_doc:literal])+ $extra:ident: $extra_type:ty,)+ })?
    ) => {
        $(#[$meta])*
        pub struct $group {
            $($(#[doc = $doc])+ pub $field: $type,)+
            $($($(#[doc = $extra_doc])+ pub $extra: $extra_type,)+)?
        }

        impl Default for $group {
            /// llb's own defaults.
            fn default() -> $group {
                $group { $($field: $default,)+ $($($extra: Default::default(),)+)? }
            }
        }

        #[allow(dead_code, reason = "each group uses some of these")]
        impl $group {
            /// The names of each member.
            pub(super) const NAMES: &[&[&str]] =
                &[$($crate::api::member::names!($field $($($name)+)?)),+];

            /// The values of all members, in order.
            fn values(&self) -> Vec<Value> {
                vec![$($codec.to_json(&self.$field)),+]
            }

            /// The names, the default and the documentation of each member.
            #[cfg(test)]
            pub(super) fn table() -> Vec<(&'static [&'static str], Value, &'static str)> {
                let (values, docs) = ($group::default().values(), [$(concat!($($doc),+)),+]);
                let names = $group::NAMES.iter().copied();
                names.zip(values).zip(docs).map(|((names, value), doc)| (names, value, doc)).collect()
            }

            /// Sets the members that are present. Returns their names.
            pub(super) fn set(&mut self, fields: &mut Fields) -> Result<Vec<&'static str>> {
                let mut set = Vec::new();
                $(let name = $crate::api::member::names!($field $($($name)+)?)[0];
                if let Some(value) = $codec.read(fields, name)? {
                    self.$field = value;
                    set.push(name);
                })+
                Ok(set)
            }
        }
    };
}

/// The names of a line of `members!`.
macro_rules! names {
    ($field:ident) => {
        &[stringify!($field)]
    };
    ($field:ident $($name:literal)+) => {
        &[$($name),+]
    };
}

pub(super) use {members, names};

/// The value of a member; None if it is absent.
type Present<T> = Result<Option<T>>;

/// Reads and writes the value of a member.
pub(super) trait Codec<T> {
    fn read(&self, fields: &mut Fields, name: &'static str) -> Present<T>;

    fn to_json(&self, value: &T) -> Value;
}

/// A number in this range.
pub(super) struct Number(pub(super) RangeInclusive<f64>);

impl Codec<f32> for Number {
    fn read(&self, fields: &mut Fields, name: &'static str) -> Present<f32> {
        Ok(fields.number(name, self.0.clone())?.map(|number| number as f32))
    }

    fn to_json(&self, value: &f32) -> Value {
        shortest(*value)
    }
}

/// A whole number in this range. The type has all numbers of the range.
pub(super) struct Whole(pub(super) RangeInclusive<i64>);

impl<T: TryFrom<i64> + Copy + Into<Value>> Codec<T> for Whole {
    fn read(&self, fields: &mut Fields, name: &'static str) -> Present<T> {
        let number = fields.integer(name, self.0.clone())?;
        Ok(number.and_then(|number| T::try_from(number).ok()))
    }

    fn to_json(&self, value: &T) -> Value {
        (*value).into()
    }
}

/// A whole number in this range, or "auto", which is None.
pub(super) struct Auto(pub(super) RangeInclusive<i64>);

impl Codec<Option<u32>> for Auto {
    fn read(&self, fields: &mut Fields, name: &'static str) -> Present<Option<u32>> {
        let number = fields.integer_or_auto(name, self.0.clone())?;
        Ok(number.map(|number| u32::try_from(number).ok()))
    }

    fn to_json(&self, value: &Option<u32>) -> Value {
        value.map_or_else(|| "auto".into(), Value::from)
    }
}

/// True or false.
pub(super) struct Switch;

impl Codec<bool> for Switch {
    fn read(&self, fields: &mut Fields, name: &'static str) -> Present<bool> {
        fields.boolean(name)
    }

    fn to_json(&self, value: &bool) -> Value {
        (*value).into()
    }
}

/// One of these names.
pub(super) struct OneOf<T: 'static>(pub(super) &'static [(&'static str, T)]);

impl<T: Copy + Serialize> Codec<T> for OneOf<T> {
    fn read(&self, fields: &mut Fields, name: &'static str) -> Present<T> {
        fields.one_of(name, self.0)
    }

    fn to_json(&self, value: &T) -> Value {
        json!(value)
    }
}

/// A string, or None.
pub(super) struct Text;

impl Codec<Option<String>> for Text {
    fn read(&self, fields: &mut Fields, name: &'static str) -> Present<Option<String>> {
        Ok(fields.string(name)?.map(|text| Some(text.to_owned())))
    }

    fn to_json(&self, value: &Option<String>) -> Value {
        json!(value)
    }
}

/// A value that the first function reads and the second writes.
pub(super) struct Custom<T>(
    pub(super) fn(&mut Fields) -> Result<Option<T>>,
    pub(super) fn(&T) -> Value,
);

impl<T> Codec<T> for Custom<T> {
    fn read(&self, fields: &mut Fields, _: &'static str) -> Present<T> {
        self.0(fields)
    }

    fn to_json(&self, value: &T) -> Value {
        self.1(value)
    }
}

/// A value that the function reads, or None. It is never written: null is its default.
pub(super) struct Optional<T>(pub(super) fn(&mut Fields) -> Result<Option<T>>);

impl<T> Codec<Option<T>> for Optional<T> {
    fn read(&self, fields: &mut Fields, _: &'static str) -> Present<Option<T>> {
        Ok(self.0(fields)?.map(Some))
    }

    fn to_json(&self, _: &Option<T>) -> Value {
        Value::Null
    }
}

/// A number with the fewest digits that identify it: 0.7, not 0.699999988079071.
pub fn shortest(value: f32) -> Value {
    value.to_string().parse::<f64>().map_or(Value::Null, Value::from)
}
