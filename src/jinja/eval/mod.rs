//! Runs a syntax tree: statements, expressions, loops, macros and scopes.

pub(crate) mod arguments;
pub(crate) mod attribute;
mod borrowed;
mod evaluate;
pub(crate) mod interpreter;
mod loops;
mod macros;
pub(crate) mod operators;
mod output;
pub(crate) mod scope;
