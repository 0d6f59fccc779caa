//! The member `polyfills`: which polyfills may change the messages of a request, and how.

use serde_json::{Map, Value};

use super::fields::Fields;
use super::member::members;
use crate::error::Result;

named_enum! {
    /// What to do with a later system message if the template drops or refuses it.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum SystemPosition {
        /// Append it to the first system message. The whole prompt changes.
        Hoist = "hoist",
        /// Send it as a user message in its place, or as the beginning of the next user message.
        User = "user",
        /// Leave it unchanged.
        Keep = "keep",
    }
}

named_enum! {
    /// What to do with the arguments of a call that are not a JSON object.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum InvalidArguments {
        /// Send the object `{"_raw": text}`.
        Wrap = "wrap",
        /// Send the text unchanged.
        String = "string",
        /// Refuse the request.
        Error = "error",
    }
}

named_enum! {
    /// What to do with the content of an assistant message if the template refuses it together with
    /// reasoning and calls.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum ReasoningConflict {
        /// Append it to the reasoning.
        Merge = "merge",
        /// Leave the content out.
        Drop = "drop",
        /// Keep the content. The template then refuses the message.
        Keep = "keep",
    }
}

members! {
    /// The polyfills of a request. All are on by default, except `reasoning_inline`.
    #[derive(Debug, Clone, PartialEq)]
    pub struct Polyfills {
        /// The main switch. False leaves all messages unchanged.
        apply_polyfills: bool = true => boolean(),
        /// Renders system messages as part of user messages.
        system_role("polyfill_system_role"): bool = true => boolean(),
        /// Renders declared tools as text of a system message.
        tools("polyfill_tools"): bool = true => boolean(),
        /// Adds an example of a call to that text.
        tool_call_examples("polyfill_tool_call_examples"): bool = true => boolean(),
        /// Renders tool calls as text.
        tool_calls("polyfill_tool_calls"): bool = true => boolean(),
        /// Renders tool results as user messages.
        tool_responses("polyfill_tool_responses"): bool = true => boolean(),
        /// Passes the arguments of tool calls as an object or as text, whichever the template
        /// reads.
        object_arguments("polyfill_object_arguments"): bool = true => boolean(),
        /// Passes content as a list of parts or as a string, whichever the template reads.
        typed_content("polyfill_typed_content"): bool = true => boolean(),
        /// Passes the reasoning of earlier turns in the form that the template reads.
        reasoning("polyfill_reasoning"): bool = true => boolean(),
        /// Passes an assistant message without content in the form that the template accepts.
        null_content("polyfill_null_content"): bool = true => boolean(),
        /// Removes an empty list of calls.
        empty_tool_calls("polyfill_empty_tool_calls"): bool = true => boolean(),
        /// Turns developer messages into system messages.
        developer_role("polyfill_developer_role"): bool = true => boolean(),
        /// Merges adjacent messages of the same role.
        same_role_merge("polyfill_same_role_merge"): bool = true => boolean(),
        /// Puts the results of calls in the order of the calls.
        result_order("polyfill_result_order"): bool = true => boolean(),
        /// Replaces ids of calls by nine letters or digits.
        tool_call_ids("polyfill_tool_call_ids"): bool = true => boolean(),
        /// Whether `bos_token` is the vocabulary's BOS token. Otherwise it is empty.
        use_bos_token: bool = true => boolean(),
        /// Whether `eos_token` is the vocabulary's EOS token. Otherwise it is empty.
        use_eos_token: bool = true => boolean(),
        /// Whether `strftime_now` is defined.
        define_strftime_now: bool = true => boolean(),
        /// What to do with system messages after the first message.
        system_position: SystemPosition = SystemPosition::User => one_of(SystemPosition::NAMES),
        /// What to do with arguments that are not an object.
        invalid_arguments: InvalidArguments = InvalidArguments::Wrap
            => one_of(InvalidArguments::NAMES),
        /// What to do with content next to reasoning and calls.
        reasoning_conflict: ReasoningConflict = ReasoningConflict::Merge
            => one_of(ReasoningConflict::NAMES),
        /// Puts reasoning into the content in `<think>` tags if the template reads it nowhere else.
        reasoning_inline: bool = false => boolean(),
        /// Overrides of `template_caps`, by name. For tests.
        caps_override: Option<Map<String, Value>> = None
            => optional(|fields| Ok(fields.object("caps_override")?.cloned())),
    }
}

impl Polyfills {
    /// Reads the member; None if it is absent. An unknown name is an error.
    pub(crate) fn read(fields: &mut Fields) -> Result<Option<Polyfills>> {
        let path = fields.path("polyfills");
        let Some(value) = fields.get("polyfills") else { return Ok(None) };
        let (mut read, given) = (Polyfills::default(), &mut Fields::new(path, value)?);
        read.set(given)?;
        given.refuse_ignored("unknown polyfill")?;
        Ok(Some(read))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(polyfills: &Value) -> Result<Option<Polyfills>> {
        Polyfills::read(
            &mut Fields::new("", &json!({ "polyfills": polyfills })).expect("an object"),
        )
    }

    #[track_caller]
    fn check(polyfills: Value, change: impl FnOnce(&mut Polyfills)) {
        let mut expected = Polyfills::default();
        change(&mut expected);
        assert_eq!(read(&polyfills).expect("valid"), Some(expected));
    }

    #[track_caller]
    fn refused(polyfills: Value, message: &str) {
        assert_eq!(read(&polyfills).expect_err("refused").message(), message);
    }

    #[test]
    fn switches() {
        assert_eq!(read(&json!(null)).expect("valid"), None);
        check(json!({}), |_| {});
        check(json!({ "apply_polyfills": false }), |read| read.apply_polyfills = false);
        check(json!({ "polyfill_object_arguments": false, "polyfill_tools": true }), |read| {
            read.object_arguments = false
        });
        check(json!({ "use_bos_token": false, "reasoning_inline": true }), |read| {
            read.use_bos_token = false;
            read.reasoning_inline = true;
        });
        check(json!({ "system_position": "hoist" }), |read| {
            read.system_position = SystemPosition::Hoist
        });
        check(json!({ "invalid_arguments": "error" }), |read| {
            read.invalid_arguments = InvalidArguments::Error
        });
        check(json!({ "reasoning_conflict": "drop" }), |read| {
            read.reasoning_conflict = ReasoningConflict::Drop
        });
        check(json!({ "caps_override": {} }), |read| read.caps_override = Some(Map::new()));
    }

    #[test]
    fn errors_name_the_switch() {
        refused(json!({ "everything": true }), "polyfills.everything: unknown polyfill");
        refused(
            json!({ "polyfill_tools": 1 }),
            "polyfills.polyfill_tools: expected true or false, got 1",
        );
        refused(
            json!({ "system_position": "first" }),
            r#"polyfills.system_position: unknown value "first"; expected one of "hoist", "user", "keep""#,
        );
        refused(
            json!({ "caps_override": [] }),
            "polyfills.caps_override: expected an object, got []",
        );
    }
}
