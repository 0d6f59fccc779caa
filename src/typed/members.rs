//! The members of a request or of options, as JSON values.

use std::fmt::Display;

use serde_json::{Map, Value};

use crate::error::{Error, Result};
use crate::json;

/// Members by name, in the order in which they were set.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Members(Map<String, Value>);

impl Members {
    /// Sets a member, or replaces it.
    pub(super) fn set(&mut self, name: &str, value: impl Into<Value>) {
        self.0.insert(name.to_owned(), value.into());
    }

    /// Appends an element to a list. A member that is not a list is replaced.
    pub(super) fn push(&mut self, name: &str, element: Value) {
        match self.0.get_mut(name) {
            Some(Value::Array(list)) => list.push(element),
            _ => self.set(name, Value::Array(vec![element])),
        }
    }

    /// Removes the last element of a list.
    pub(super) fn pop(&mut self, name: &str) {
        if let Some(Value::Array(list)) = self.0.get_mut(name) {
            list.pop();
        }
    }

    /// The value of a member.
    pub(super) fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name)
    }

    /// Removes a member.
    pub(super) fn remove(&mut self, name: &str) -> Option<Value> {
        self.0.shift_remove(name)
    }

    /// The members of both. Those of `other` replace those of `self`.
    pub(super) fn with(&self, other: &Members) -> Members {
        let mut both = self.clone();
        both.0.extend(other.0.clone());
        both
    }

    /// The members as an object. `what` is the caller's name for it, for errors.
    ///
    /// # Errors
    /// `INVALID_REQUEST` if a text of it would have too many values or levels to be parsed.
    pub(super) fn to_value(&self, what: impl Display) -> Result<Value> {
        for (name, value) in &self.0 {
            json::check_limits(value).map_err(|problem| Error::invalid(name, problem))?;
        }
        let all = Value::Object(self.0.clone());
        json::check_limits(&all).map_err(|problem| Error::invalid(what, problem))?;
        Ok(all)
    }
}
