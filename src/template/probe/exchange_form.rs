//! The form in which a template shows a tool call and its result, and messages in that form.

use serde_json::{Value, json};

use super::baseline::{Baseline, tool};
use super::content;
use super::traits::{AcceptedArguments, NoContent, Traits};

pub(super) const NAME: &str = "some_tool";
pub(super) const SECOND_NAME: &str = "second_tool";
pub(super) const KEY: &str = "argument_needle";
pub(super) const VALUE: &str = "value_needle";
pub(super) const SECOND_VALUE: &str = "second_needle";
pub(super) const RESULT: &str = "result_needle";
pub(super) const ID: &str = "call00001";
pub(super) const SECOND_ID: &str = "call00002";
pub(super) const OTHER_ID: &str = "call00911";
/// An id that does not have nine letters or digits.
pub(super) const LONG_ID: &str = "call_0123456789abcdef";

/// A form of a call and its result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ExchangeForm {
    /// Whether arguments are an object instead of JSON text.
    pub(crate) object: bool,
    /// The form of a message without content.
    pub(crate) content: NoContent,
    /// Whether a result follows the call. False if the template does not render results.
    pub(crate) answered: bool,
}

impl ExchangeForm {
    /// The probed form.
    pub(crate) fn of(traits: &Traits) -> ExchangeForm {
        let object = matches!(
            traits.details.arguments,
            AcceptedArguments::Object
                | AcceptedArguments::PrefersObject
                | AcceptedArguments::Either
        );
        ExchangeForm { object, content: traits.details.no_content_with_calls, answered: true }
    }

    /// The message with a call.
    pub(crate) fn call(self, base: &Baseline<'_>) -> Value {
        self.calls(base, &[self.one(ID, NAME, VALUE)])
    }

    /// A message that calls this function.
    pub(crate) fn call_of(self, base: &Baseline<'_>, name: &str, arguments: Value) -> Value {
        let mut call = self.one(ID, name, VALUE);
        call["function"]["arguments"] =
            if self.object { arguments } else { arguments.to_string().into() };
        self.calls(base, &[call])
    }

    /// The result of that call, if the template renders results.
    pub(crate) fn result(self, base: &Baseline<'_>) -> Option<Value> {
        self.answer(base, ID, NAME, RESULT)
    }

    /// A message with these calls.
    pub(crate) fn calls(self, base: &Baseline<'_>, calls: &[Value]) -> Value {
        let mut message = content::without_content(base, self.content);
        message.insert("tool_calls".to_owned(), calls.into());
        Value::Object(message)
    }

    pub(super) fn one(self, id: &str, name: &str, value: &str) -> Value {
        let arguments = match self.object {
            true => json!({ KEY: value }),
            // Spaced like the output of `tojson`, so that both forms can give the same prompt.
            false => format!("{{\"{KEY}\": \"{value}\"}}").into(),
        };
        json!({ "id": id, "type": "function", "function": { "name": name, "arguments": arguments } })
    }

    pub(super) fn answer(
        self,
        base: &Baseline<'_>,
        id: &str,
        name: &str,
        text: &str,
    ) -> Option<Value> {
        let mut message = base.message("tool", text);
        message["tool_call_id"] = id.into();
        // Some templates refuse a result that does not name its tool.
        message["name"] = name.into();
        self.answered.then_some(message)
    }

    pub(super) fn exchange(self, base: &Baseline<'_>) -> Vec<Value> {
        [Some(base.user()), Some(self.call(base)), self.result(base)]
            .into_iter()
            .flatten()
            .collect()
    }
}

/// The tools that probes with calls declare.
pub(crate) fn declared() -> Value {
    json!([tool(NAME), tool(SECOND_NAME)])
}
