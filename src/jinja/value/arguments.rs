//! The arguments of a call.

use super::Value;
use super::text::Text;
use crate::jinja::budget::Budget;
use crate::jinja::error::{Result, TemplateError, shown, type_error};

/// Evaluated positional and keyword arguments.
#[derive(Default, Clone)]
pub(crate) struct Args {
    pub(crate) positional: Vec<Value>,
    pub(crate) named: Vec<(Text, Value)>,
}

impl Args {
    /// Binds the arguments to mandatory and optional parameters, in this order.
    pub(crate) fn bind<const R: usize, const O: usize>(
        self,
        function: &str,
        required: [&str; R],
        optional: [&str; O],
    ) -> Result<([Value; R], [Option<Value>; O])> {
        let (most, given) = (R + O, self.positional.len());
        if given > most {
            return type_error(format!(
                "{function}() takes at most {most} arguments ({given} given)"
            ));
        }
        let mut bound = ([const { None }; R], [const { None }; O]);
        let (first, rest) = &mut bound;
        for (slot, value) in first.iter_mut().chain(rest.iter_mut()).zip(self.positional) {
            *slot = Some(value);
        }
        for (name, value) in self.named {
            let (name, names) = (name.as_str(), required.iter().chain(&optional));
            let mut slots = names.zip(first.iter_mut().chain(rest.iter_mut()));
            match slots.find(|(known, _)| **known == name) {
                Some((_, slot)) if slot.is_none() => *slot = Some(value),
                Some(_) => {
                    return type_error(format!(
                        "{function}() got multiple values for argument '{}'",
                        shown(name)
                    ));
                }
                None => {
                    return type_error(format!(
                        "{function}() got an unexpected keyword argument '{}'",
                        shown(name)
                    ));
                }
            }
        }
        match first.iter().position(Option::is_none) {
            Some(missing) => type_error(format!(
                "{function}() missing 1 required positional argument: '{}'",
                required[missing]
            )),
            None => Ok((bound.0.map(|value| value.unwrap_or(Value::None)), bound.1)),
        }
    }

    /// Binds the arguments to mandatory parameters.
    pub(crate) fn required<const N: usize>(
        self,
        function: &str,
        names: [&str; N],
    ) -> Result<[Value; N]> {
        Ok(self.bind(function, names, [])?.0)
    }

    /// Binds the arguments to optional parameters.
    pub(crate) fn optional<const N: usize>(
        self,
        function: &str,
        names: [&str; N],
    ) -> Result<[Option<Value>; N]> {
        Ok(self.bind(function, [], names)?.1)
    }

    /// Fails if there are arguments.
    pub(crate) fn expect_none(self, function: &str) -> Result<()> {
        self.bind(function, [], []).map(drop)
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

/// The string that a parameter requires. Spends the steps for reading it.
pub(crate) fn string<'a>(budget: &Budget, value: &'a Value, what: &str) -> Result<&'a Text> {
    match value.defined()? {
        Value::Text(text) => {
            budget.read(text.len())?;
            Ok(text)
        }
        other => type_error(format!("{what} must be str, not {}", other.type_name())),
    }
}
