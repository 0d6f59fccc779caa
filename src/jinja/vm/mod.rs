//! Runs a syntax tree: statements, expressions, loops, and the variables in scope.

pub(crate) mod args;
pub(crate) mod attribute;
mod evaluate;
pub(crate) mod interpreter;
mod look;
mod loops;
pub(crate) mod operators;
pub(crate) mod scope;
