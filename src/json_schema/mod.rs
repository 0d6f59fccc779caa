//! JSON Schema documents: pointers, local references, type sets, and keyword lookups.
//!
//! In: a schema as the caller wrote it. Out: what it allows. The work is bounded, and unreadable
//! parts of a schema are ignored. This module never validates values.

mod arguments;
mod keywords;
mod pointer;

pub(crate) use arguments::{ArgumentsSchema, SchemaPointers};
pub(crate) use keywords::{
    TypeSet, allowed_values, entries, has_values_of_other_types, is_required, list, strings,
    type_name, type_names,
};
pub(crate) use pointer::{PointerPath, child, resolve};
