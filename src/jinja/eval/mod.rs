//! Walks a syntax tree: statements, expressions, calls and scopes.
//!
//! Filters, tests and global functions are in tables that [`interpreter::Interpreter`] receives.

pub(crate) mod attribute;
mod calls;
mod evaluate;
pub(crate) mod interpreter;
mod methods;
mod statements;
mod str_format;
