//! Jinja2 as transformers sets it up: templates to text, with Python's values and Python's errors.
//!
//! In: a source, and a context of values. Out: the text, where each part of it came from, or an
//! error with its kind and line. Never reads files, environment, network or clock, never panics on
//! a template, and stays within a [`Bounds`]. Why this is an interpreter of our own:
//! docs/templates.md.

mod budget;
mod builtins;
mod error;
mod quote;
mod syntax;
mod unicode;
mod value;
mod vm;

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test reports by panicking")]
mod tests;

use std::ops::Range;
use syntax::{inspect, parser};

pub(crate) use budget::{Bounds, Budget, thread_time};
pub(crate) use error::TemplateError;
pub(crate) use syntax::inspect::Inspection;
pub(crate) use value::Value;
pub(crate) use value::access::{AccessLog, Watch};
pub(crate) use value::number::float as print_float;
pub(crate) use value::text::{Mark, Text};
pub(crate) use vm::interpreter::Context;

use syntax::parser::ParsedTemplate;
use vm::interpreter::Interpreter;

/// A compiled template; may be shared between threads.
#[derive(Debug)]
pub(crate) struct Template {
    parsed: ParsedTemplate,
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
    pub(crate) fn compile(source: &str) -> Result<Template, TemplateError> {
        parser::parse(source, &builtins::NAMES).map(|parsed| Template { parsed })
    }

    /// Reads the source without rendering it.
    pub(crate) fn inspect(&self) -> Inspection {
        inspect::inspect(&self.parsed, &builtins::NAMES)
    }

    /// Renders within bounds.
    pub(crate) fn render(
        &self,
        context: Context,
        bounds: Bounds,
    ) -> Result<Rendered, TemplateError> {
        let budget = Budget::new(bounds);
        let (text, generation) = Interpreter::new(&self.parsed, context, &budget).run()?;
        let (text, marks) = text.into_parts();
        Ok(Rendered { text, marks, generation })
    }
}
