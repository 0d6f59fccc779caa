//! Tables of members. A line has the documentation, names, type and default of one, and the method
//! of [`Fields`] that reads it.
//!
//! `members!` makes a struct and the code that reads it from such a table. Documentation, bindings
//! and the program are compared with the tables (`one_source_tests.rs`).
//!
//! [`Fields`]: super::fields::Fields

/// Declares a group of members of a request, or of options. A line has the documentation, the
/// field, the type, the default, and the method of `Fields` that reads the value. It returns None
/// if the member is absent. Names in JSON that differ from the field follow it in parentheses: the
/// member's, then its aliases and the members that are read together with it.
///
/// ```text
/// /// Whether one reply may contain several calls.
/// parallel_tool_calls: bool = true => boolean(),
/// /// How long the request may take.
/// timeout("timeout_ms"): Option<Duration> = None => optional(read_timeout),
/// ```
///
/// `writes` precedes a function that writes the value as JSON, if serde does not. Fields after
/// `extra` are not members.
macro_rules! members {
    (
        $(#[$meta:meta])*
        pub struct $group:ident {
            $($(#[doc = $doc:literal])+
            $field:ident $(($($name:literal),+))?: $type:ty = $default:expr
            => $read:ident($($argument:expr),*) $(writes $write:expr)?,)+
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
                vec![$($crate::api::member::json_of!(&self.$field, $type $(, $write)?)),+]
            }

            /// The names, the default and the documentation of each member.
            #[cfg(test)]
            pub(super) fn table() -> Vec<(&'static [&'static str], Value, &'static str)> {
                let (values, docs) = ($group::default().values(), [$(concat!($($doc),+)),+]);
                let lines = $group::NAMES.iter().zip(values).zip(docs);
                lines.map(|((names, value), doc)| (*names, value, doc)).collect()
            }

            /// Sets the members that are present. Returns their names.
            pub(super) fn set(&mut self, fields: &mut Fields) -> Result<Vec<&'static str>> {
                let mut set = Vec::new();
                $(let name = $crate::api::member::names!($field $($($name)+)?)[0];
                if let Some(value) = fields.$read(name $(, $argument)*)? {
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

/// The value of a member as JSON.
macro_rules! json_of {
    ($value:expr, $type:ty) => {
        serde_json::json!($value)
    };
    ($value:expr, $type:ty, $write:expr) => {{
        let write: fn(&$type) -> Value = $write;
        write($value)
    }};
}

pub(super) use {json_of, members, names};
