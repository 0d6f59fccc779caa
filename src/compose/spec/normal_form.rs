//! A spec -> JSON in normal form: without defaults, without aliases.

use serde_json::{Map, Value, json};

use super::slots::{SlotPattern, escaped};
use super::{BARE_SYSTEM, ComponentSpec, SKILL_ROW, UNKNOWN_ROLES, UnknownRoles, name_of};

impl ComponentSpec {
    /// The spec without its defaults. Reading it gives the same spec.
    pub(crate) fn to_json(&self) -> Value {
        let mut members = Map::new();
        members.extend(present(self.message_members()));
        members.extend(present(self.tool_members()));
        members.extend(self.policies.to_json());
        members.extend(present(self.other_members()));
        members.extend(present(self.turns.members()));
        members.extend(present([("chat_template", json!(self.chat_template))]));
        Value::Object(members)
    }

    fn message_members(&self) -> [(&'static str, Value); 12] {
        let usual_prompt = escaped(&self.assistant_template.text_before("content"));
        let prompt = self.generation_prompt.as_ref().filter(|prompt| **prompt != usual_prompt);
        [
            ("name", text(&self.name)),
            ("system_template", unless(&self.system_template, BARE_SYSTEM)),
            ("default_system_template", optional(&self.default_system_template)),
            ("system_message", text(&self.system_message)),
            ("user_template", json!(self.user_template.source())),
            ("user_template_with_tools", optional(&self.user_template_with_tools)),
            ("assistant_template", json!(self.assistant_template.source())),
            ("assistant_template_with_calls", optional(&self.calls_turn)),
            ("assistant_template_with_empty_calls", optional(&self.empty_calls_turn)),
            ("assistant_end", json!(self.assistant_end)),
            ("generation_prompt", json!(prompt)),
            ("reasoning_template", optional(&self.reasoning_template)),
        ]
    }

    fn tool_members(&self) -> [(&'static str, Value); 11] {
        [
            ("observations_template", optional(&self.observations_template)),
            (
                "single_observation_template",
                unless(&self.single_observation_template, "{observation}"),
            ),
            ("tool_calls_template", unless(&self.tool_calls_template, "{tool_calls}")),
            ("single_tool_call_template", unless(&self.single_tool_call_template, "{tool_call}")),
            ("argument_template", optional(&self.argument_template)),
            ("text_argument_template", optional(&self.text_argument_template)),
            ("tools_template", optional(&self.tools_template)),
            ("single_tool_template", optional(&self.single_tool_template)),
            ("skills_template", optional(&self.skills_template)),
            ("single_skill_template", unless(&self.single_skill_template, SKILL_ROW)),
            ("stop_words", json!(Some(&self.stop_words).filter(|words| !words.is_empty()))),
        ]
    }

    fn other_members(&self) -> [(&'static str, Value); 6] {
        let unknown_roles = Some(self.unknown_roles).filter(|roles| *roles != UnknownRoles::Error);
        [
            ("vision_start", text(&self.vision_start)),
            ("vision_end", text(&self.vision_end)),
            ("image_token", json!(self.image_token)),
            ("video_token", json!(self.video_token)),
            ("vision_rule", json!(self.vision_rule)),
            (
                "unknown_roles",
                json!(unknown_roles.and_then(|roles| name_of(&UNKNOWN_ROLES, roles))),
            ),
        ]
    }
}

/// The members that are not null.
fn present(
    members: impl IntoIterator<Item = (&'static str, Value)>,
) -> impl Iterator<Item = (String, Value)> {
    let members = members.into_iter().filter(|(_, value)| !value.is_null());
    members.map(|(name, value)| (name.to_owned(), value))
}

/// Null for an empty text.
fn text(text: &str) -> Value {
    json!(Some(text).filter(|text| !text.is_empty()))
}

fn optional(pattern: &Option<SlotPattern>) -> Value {
    json!(pattern.as_ref().map(SlotPattern::source))
}

/// Null for the default.
fn unless(pattern: &SlotPattern, default: &str) -> Value {
    json!(Some(pattern.source()).filter(|source| *source != default))
}
