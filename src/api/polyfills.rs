//! The member `polyfills`: which polyfills may change the messages of a request, and how.

use serde_json::{Map, Value, json};

use super::fields::Fields;
use crate::error::{Error, Result};

named_enum! {
    /// What to do with a later system message if the template drops or refuses it.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum SystemPosition {
        /// Append it to the first system message.
        Hoist = "hoist",
        /// Prepend it to the next user message.
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

/// The polyfills of a request. All are on by default, except `reasoning_inline`.
#[derive(Debug, Clone, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "switches of a published format")]
pub struct Polyfills {
    /// The main switch. False leaves all messages unchanged.
    pub apply_polyfills: bool,
    /// Renders system messages as part of user messages.
    pub system_role: bool,
    /// Renders declared tools as text of a system message.
    pub tools: bool,
    /// Adds an example of a call to that text.
    pub tool_call_examples: bool,
    /// Renders tool calls as text.
    pub tool_calls: bool,
    /// Renders tool results as user messages.
    pub tool_responses: bool,
    /// Passes the arguments of tool calls as an object or as text, whichever the template reads.
    pub object_arguments: bool,
    /// Passes content as a list of parts or as a string, whichever the template reads.
    pub typed_content: bool,
    /// Passes the reasoning of earlier turns in the form that the template reads.
    pub reasoning: bool,
    /// Passes an assistant message without content in the form that the template accepts.
    pub null_content: bool,
    /// Removes an empty list of calls.
    pub empty_tool_calls: bool,
    /// Turns developer messages into system messages.
    pub developer_role: bool,
    /// Merges adjacent messages of the same role.
    pub same_role_merge: bool,
    /// Replaces ids of calls by nine letters or digits.
    pub tool_call_ids: bool,
    /// Whether `bos_token` is the vocabulary's BOS token. Otherwise it is empty.
    pub use_bos_token: bool,
    /// Whether `eos_token` is the vocabulary's EOS token. Otherwise it is empty.
    pub use_eos_token: bool,
    /// Whether `strftime_now` is defined.
    pub define_strftime_now: bool,
    /// What to do with system messages after the first message.
    pub system_position: SystemPosition,
    /// What to do with arguments that are not an object.
    pub invalid_arguments: InvalidArguments,
    /// What to do with content next to reasoning and calls.
    pub reasoning_conflict: ReasoningConflict,
    /// Puts reasoning into the content in `<think>` tags if the template reads it nowhere else.
    pub reasoning_inline: bool,
    /// Overrides of `template_caps`, by name. For tests.
    pub caps_override: Option<Map<String, Value>>,
}

impl Default for Polyfills {
    fn default() -> Polyfills {
        let nothing = json!({});
        let fields = Fields::new("polyfills", &nothing);
        fields.and_then(Polyfills::of).expect("every switch has a default")
    }
}

impl Polyfills {
    /// Reads the member; None if it is absent. An unknown name is an error.
    pub(crate) fn read(fields: &mut Fields) -> Result<Option<Polyfills>> {
        let path = fields.path("polyfills");
        let Some(value) = fields.get("polyfills") else { return Ok(None) };
        Fields::new(path, value).and_then(Polyfills::of).map(Some)
    }

    fn of(mut given: Fields) -> Result<Polyfills> {
        let given = &mut given;
        let is_on = |given: &mut Fields, key| Ok::<_, Error>(given.boolean(key)?.unwrap_or(true));
        let read = Polyfills {
            apply_polyfills: is_on(given, "apply_polyfills")?,
            system_role: is_on(given, "polyfill_system_role")?,
            tools: is_on(given, "polyfill_tools")?,
            tool_call_examples: is_on(given, "polyfill_tool_call_examples")?,
            tool_calls: is_on(given, "polyfill_tool_calls")?,
            tool_responses: is_on(given, "polyfill_tool_responses")?,
            object_arguments: is_on(given, "polyfill_object_arguments")?,
            typed_content: is_on(given, "polyfill_typed_content")?,
            reasoning: is_on(given, "polyfill_reasoning")?,
            null_content: is_on(given, "polyfill_null_content")?,
            empty_tool_calls: is_on(given, "polyfill_empty_tool_calls")?,
            developer_role: is_on(given, "polyfill_developer_role")?,
            same_role_merge: is_on(given, "polyfill_same_role_merge")?,
            tool_call_ids: is_on(given, "polyfill_tool_call_ids")?,
            use_bos_token: is_on(given, "use_bos_token")?,
            use_eos_token: is_on(given, "use_eos_token")?,
            define_strftime_now: is_on(given, "define_strftime_now")?,
            reasoning_inline: given.boolean("reasoning_inline")?.unwrap_or(false),
            system_position: given
                .one_of("system_position", SystemPosition::NAMES)?
                .unwrap_or(SystemPosition::Hoist),
            invalid_arguments: given
                .one_of("invalid_arguments", InvalidArguments::NAMES)?
                .unwrap_or(InvalidArguments::Wrap),
            reasoning_conflict: given
                .one_of("reasoning_conflict", ReasoningConflict::NAMES)?
                .unwrap_or(ReasoningConflict::Merge),
            caps_override: given.object("caps_override")?.cloned(),
        };
        given.refuse_ignored("unknown polyfill")?;
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
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
        check(json!({ "system_position": "user" }), |read| {
            read.system_position = SystemPosition::User
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
        refused(
            json!({ "polyfill_everything": true }),
            "polyfills.polyfill_everything: unknown polyfill",
        );
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
