//! Source text to a syntax tree, and what the tree says without a render.

pub(crate) mod ast;
pub(crate) mod inspect;
mod lexer;
mod literals;
mod parse_expression;
mod parse_postfix;
mod parse_statement;
pub(crate) mod parser;
