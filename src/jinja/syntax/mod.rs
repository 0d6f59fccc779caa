//! Lexer, parser, syntax tree and static inspection. Nothing is evaluated.

pub(crate) mod ast;
pub(crate) mod inspect;
mod lexer;
mod parse_expression;
mod parse_postfix;
mod parse_statement;
pub(crate) mod parser;
