//! The arguments of a call.

use crate::jinja::error::{Result, TemplateError, type_error};
use crate::jinja::value::Value;
use crate::jinja::value::text::Text;

/// Evaluated positional and keyword arguments.
#[derive(Default, Clone)]
pub(crate) struct Args {
    pub(crate) positional: Vec<Value>,
    pub(crate) named: Vec<(Text, Value)>,
}

impl Args {
    /// Binds the arguments to parameters, of which the first `required` are mandatory.
    pub(crate) fn bind<const N: usize>(
        self,
        function: &str,
        names: [&str; N],
        required: usize,
    ) -> Result<[Option<Value>; N]> {
        if self.positional.len() > N {
            let given = self.positional.len();
            return type_error(format!("{function}() takes at most {N} arguments ({given} given)"));
        }
        let mut bound = [const { None }; N];
        for (position, value) in bound.iter_mut().zip(self.positional) {
            *position = Some(value);
        }
        for (name, value) in self.named {
            match names.iter().position(|known| *known == name.as_str()) {
                Some(position) if bound[position].is_none() => bound[position] = Some(value),
                Some(_) => {
                    return type_error(format!(
                        "{function}() got multiple values for argument '{}'",
                        name.as_str()
                    ));
                }
                None => {
                    return type_error(format!(
                        "{function}() got an unexpected keyword argument '{}'",
                        name.as_str()
                    ));
                }
            }
        }
        match bound.iter().take(required).position(Option::is_none) {
            Some(missing) => type_error(format!(
                "{function}() missing 1 required positional argument: '{}'",
                names[missing]
            )),
            None => Ok(bound),
        }
    }

    /// Fails if there are arguments.
    pub(crate) fn expect_none(self, function: &str) -> Result<()> {
        self.bind::<0>(function, [], 0).map(|_| ())
    }
}

/// The integer that a parameter requires.
pub(crate) fn integer(value: &Value) -> Result<i64> {
    match value {
        Value::Big(_) => type_error("Python int too large to convert to C ssize_t"),
        other => other.defined()?.as_int().ok_or_else(|| {
            TemplateError::value(format!(
                "'{}' object cannot be interpreted as an integer",
                other.type_name()
            ))
        }),
    }
}

/// The string that a parameter requires.
pub(crate) fn string<'a>(value: &'a Value, what: &str) -> Result<&'a Text> {
    match value.defined()? {
        Value::Text(text) => Ok(text),
        other => type_error(format!("{what} must be str, not {}", other.type_name())),
    }
}
