//! JSON Schema documents: pointers, local references, type sets, and keyword lookups.
//!
//! In: a schema as the caller wrote it. Out: what it says, found in bounded work. A part of a
//! schema that cannot be read says nothing. Values are never validated here.

mod arguments;
mod keywords;
mod pointer;
mod types;

pub(crate) use arguments::{ArgumentsSchema, SchemaPointers};
pub(crate) use keywords::{allowed_values, entries, is_required, list, strings, type_names};
pub(crate) use pointer::{PointerPath, child, resolve};
pub(crate) use types::{JsonType, TypeSet, type_name};
