//! A Jinja2 interpreter with the settings of transformers, and Python's values and errors.
//!
//! Input: a template source and a context of values. Output: the text with the origin of its bytes,
//! or an error with its kind and line. The interpreter does not read files, environment variables,
//! the network or the clock. No template makes it panic or exceed its [`Bounds`]. docs/templates.md
//! states why it exists.
//!
//! A folder imports only what comes before it: `error`, `budget`, `unicode` and `literals`; then
//! `syntax`, which passes names of builtins to functions it receives; then `value`, with everything
//! that needs no template; then `eval`, which walks the syntax tree and receives the tables of
//! builtins; then `builtins`, which call `eval` for attributes and for other builtins.

mod budget;
mod builtins;
mod error;
mod eval;
mod literals;
mod syntax;
mod unicode;
mod value;

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test reports by panicking")]
mod tests;

use std::ops::Range;
use std::rc::Rc;
use syntax::{inspect, parser};

pub(crate) use budget::{Bounds, Budget, thread_time};
pub use error::ErrorKind;
pub(crate) use error::TemplateError;
pub(crate) use eval::interpreter::Context;
pub(crate) use syntax::inspect::Inspection;
pub(crate) use value::Value;
pub(crate) use value::access::{AccessLog, Watch};
pub(crate) use value::number::float as print_float;
pub(crate) use value::text::{Mark, Text};

use eval::interpreter::Interpreter;
use syntax::parser::ParsedTemplate;

/// A compiled template, which threads may share.
#[derive(Debug)]
pub(crate) struct Template {
    parsed: ParsedTemplate,
}

/// The output of a render.
#[derive(Debug)]
pub(crate) struct Rendered {
    pub(crate) text: String,
    /// The bytes that came from marked strings of the context, in text order.
    pub(crate) marks: Vec<Mark>,
    /// The byte ranges that bodies of `{% generation %}` wrote.
    pub(crate) generation: Vec<Range<usize>>,
}

impl Template {
    /// Compiles a template source.
    pub(crate) fn compile(source: &str) -> Result<Template, TemplateError> {
        parser::parse(source, &builtins::NAMES).map(|parsed| Template { parsed })
    }

    /// Inspects the source without rendering it.
    pub(crate) fn inspect(&self) -> Inspection {
        inspect::inspect(&self.parsed, &builtins::NAMES)
    }

    /// Renders the template within limits. The budget is new.
    pub(crate) fn render(
        &self,
        context: Context,
        budget: &Rc<Budget>,
    ) -> Result<Rendered, TemplateError> {
        let (text, generation) =
            Interpreter::new(&self.parsed, &builtins::BUILTINS, context, budget).run()?;
        let (text, marks) = text.into_parts();
        Ok(Rendered { text, marks, generation })
    }
}
