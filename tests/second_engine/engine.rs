//! minijinja, configured for chat templates as its own users configure it.
//!
//! In: Jinja source and JSON. Out: text. Uses public hooks only, and rewrites no source: a
//! difference from Jinja2 is minijinja's own. benches/template.rs times the same configuration.

use std::fmt;

use llb::template::LocalTime;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::Value;
use minijinja::{Environment, Error, ErrorKind};
use minijinja_contrib::pycompat;

use crate::dumps;

/// Compiled templates by name, without a loader.
pub(crate) struct Engine {
    environment: Environment<'static>,
}

/// A template that does not compile or does not render.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Failure {
    /// The message that the template passed to `raise_exception`.
    Raised(String),
    /// Any other error, in minijinja's words.
    Other(String),
}

/// The source of an error that the template raised.
#[derive(Debug)]
struct Raised;

impl fmt::Display for Raised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("raised by the template")
    }
}

impl std::error::Error for Raised {}

impl Engine {
    /// `trim` sets both `trim_blocks` and `lstrip_blocks`.
    pub(crate) fn new(trim: bool) -> Engine {
        let mut environment = Environment::new();
        let syntax = SyntaxConfig::builder().trim_blocks(trim).lstrip_blocks(trim).build();
        environment.set_syntax(syntax.expect("the delimiters are the default ones"));
        environment.set_unknown_method_callback(pycompat::unknown_method_callback);
        environment.add_filter("tojson", dumps::tojson);
        environment.add_function("raise_exception", |message: String| -> Result<Value, Error> {
            Err(Error::new(ErrorKind::InvalidOperation, message).with_source(Raised))
        });
        Engine { environment }
    }

    /// Compiles a template. A name that ends in `.html` would switch escaping on.
    pub(crate) fn compile(&mut self, name: &str, source: &str) -> Result<(), Failure> {
        self.environment.add_template_owned(name.to_owned(), source.to_owned()).map_err(Failure::of)
    }

    /// Renders a compiled template. `strftime_now` formats `now`.
    pub(crate) fn render<'a>(
        &self,
        name: &str,
        variables: impl IntoIterator<Item = (&'a str, Value)>,
        now: LocalTime,
    ) -> Result<String, Failure> {
        let strftime_now = Value::from_function(move |format: String| now.strftime(&format));
        let variables = variables.into_iter().chain([("strftime_now", strftime_now)]);
        let template = self.environment.get_template(name).map_err(Failure::of)?;
        template.render(Value::from_pairs(variables)).map_err(Failure::of)
    }
}

impl Failure {
    pub(crate) fn message(&self) -> &str {
        match self {
            Failure::Raised(message) | Failure::Other(message) => message,
        }
    }

    fn of(error: Error) -> Failure {
        let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(&error);
        while let Some(inner) = cause {
            if let Some(error) = inner.downcast_ref::<Error>()
                && error.detail().is_some()
                && std::error::Error::source(error).is_some_and(|source| source.is::<Raised>())
            {
                return Failure::Raised(error.detail().unwrap_or_default().to_owned());
            }
            cause = inner.source();
        }
        Failure::Other(error.to_string())
    }
}

/// Converts JSON. serde would not do: with `arbitrary_precision`, serde_json serialises a number as
/// a map.
pub(crate) fn value(json: &serde_json::Value) -> Value {
    match json {
        serde_json::Value::Null => Value::from(()),
        serde_json::Value::Bool(value) => Value::from(*value),
        serde_json::Value::Number(number) => {
            match (number.as_i64(), number.as_u64(), number.as_i128()) {
                (Some(number), ..) => Value::from(number),
                (_, Some(number), _) => Value::from(number),
                (.., Some(number)) => Value::from(number),
                _ => Value::from(number.as_f64()),
            }
        }
        serde_json::Value::String(text) => Value::from(text.as_str()),
        serde_json::Value::Array(items) => items.iter().map(value).collect(),
        serde_json::Value::Object(members) => {
            Value::from_pairs(members.iter().map(|(name, member)| (name.as_str(), value(member))))
        }
    }
}
