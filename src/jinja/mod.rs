//! Jinja2 as transformers sets it up: templates to text, with Python's values and Python's errors.
//!
//! In: a source, and a context of values. Out: the text, where each part of it came from, or an error with its kind and line.
//! Never reads files, environment, network or clock, never panics on a template, and stays within a [`Bounds`]. Why this is
//! an interpreter of our own: docs/templates.md.

mod args;
mod ast;
mod attribute;
mod budget;
mod compare;
mod dict;
mod error;
mod evaluate;
mod filters;
mod format;
mod globals;
#[cfg(test)]
mod hostile;
mod inspect;
mod interpreter;
mod iterate;
mod json;
mod lexer;
mod look;
mod loops;
mod markup;
mod methods;
mod number;
mod object;
mod operators;
mod parse_expression;
mod parse_statement;
mod parser;
mod pprint;
mod predicates;
mod print;
mod scope;
mod text;
mod unicode;
mod value;
mod watch;

use std::ops::Range;

pub(crate) use budget::{Bounds, Budget, thread_time};
pub(crate) use error::Error;
pub(crate) use inspect::Inspection;
pub(crate) use interpreter::Context;
pub(crate) use number::float as print_float;
pub(crate) use text::{Mark, Text};
pub(crate) use value::Value;
pub(crate) use watch::{Log, Watch};

use interpreter::Interpreter;
use parser::Parsed;

/// A compiled template; may be shared between threads.
#[derive(Debug)]
pub(crate) struct Template {
    parsed: Parsed,
}

/// A finished text.
#[derive(Debug)]
pub(crate) struct Rendered {
    pub(crate) text: String,
    /// The bytes that came from marked strings of the context, in order.
    pub(crate) marks: Vec<Mark>,
    /// The bytes that bodies of `{% generation %}` made.
    pub(crate) generation: Vec<Range<usize>>,
}

impl Template {
    /// Compiles a source.
    pub(crate) fn compile(source: &str) -> Result<Template, Error> {
        parser::parse(source).map(|parsed| Template { parsed })
    }

    /// Renders within bounds.
    pub(crate) fn render(&self, context: Context, bounds: Bounds) -> Result<Rendered, Error> {
        let budget = Budget::new(bounds);
        let (text, generation) = Interpreter::new(&self.parsed, context, &budget).run()?;
        let (text, marks) = text.into_parts();
        Ok(Rendered { text, marks, generation })
    }
}
