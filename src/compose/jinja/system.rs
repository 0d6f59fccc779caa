//! Writes the system turn in Jinja, before all turns or as a variable for a user's turn.

use super::text::{Joined, filled, text, value};
use super::writer::{SYSTEM, TemplateWriter, date, parts, processed, separator};
use crate::compose::spec::policy::Placement;
use crate::compose::spec::processor::Processor;
use crate::compose::spec::slots::SlotPattern;

impl TemplateWriter<'_> {
    /// Writes the system turn. If it belongs to a user's turn, sets `system_text` instead.
    pub(crate) fn system(&mut self) {
        let spec = self.spec;
        let system_policy = &spec.system_policy;
        self.lines.comment("The system turn.");
        self.lines.set("has_system", value("(messages and messages[0].role == \"system\")"));
        if !system_policy.use_system {
            return;
        }
        if self.system_of_user().is_some() {
            self.lines.set("system_text", text(""));
        }
        let filled =
            if system_policy.empty_message_is_none { " and messages[0].content" } else { "" };
        self.lines.open(&format!("if has_system{filled}"));
        let content = if system_policy.first_part {
            self.lines.set("content", value("messages[0].content"));
            self.lines.open("if content and content is not string");
            self.lines.set("content", value("content[:1]"));
            self.lines.close("endif");
            "content"
        } else {
            "messages[0].content"
        };
        self.lines.set("text", value(&parts(content, SYSTEM)));
        self.system_turn(&spec.system_template, true);
        match (system_policy.without_message, system_policy.with_tools) {
            (true, _) => self.lines.or("else"),
            (false, true) => {
                let skills = if spec.skills_template.is_some() { " or skills" } else { "" };
                self.lines.or(&format!("elif {}{skills}", spec.tool_policy.has_tools()));
            }
            (false, false) => {
                self.lines.close("endif");
                return;
            }
        }
        self.lines.set("text", text(&spec.system_message));
        self.system_turn(spec.default_system(), false);
        self.lines.close("endif");
    }

    /// Writes a system turn with the message `text`. `from_messages` is true if the conversation
    /// contains that message.
    fn system_turn(&mut self, template: &SlotPattern, from_messages: bool) {
        let system_policy = &self.spec.system_policy;
        if let Some(processor) = &system_policy.processor {
            let joined = match processor {
                Processor::AppendIfTools(added) if from_messages && added.empty => {
                    value("text").value(&separator(added, None))
                }
                Processor::PrependIfTools(added) if from_messages && added.empty => {
                    value(&separator(added, None)).value("text")
                }
                processor => processed(processor, "text"),
            };
            self.lines.set("text", joined);
        }
        let turn: Joined = filled(template, |slot| match slot {
            "tools" => value("tools_block"),
            "skills" => value("skills_block"),
            "date" => value(&date(&system_policy.date_format)),
            _ => value("text"),
        });
        match self.system_of_user() {
            Some(_) => self.lines.set("system_text", turn),
            None => self.lines.write(turn),
        }
    }

    /// The expression before a user's text. None if the system turn is separate.
    pub(crate) fn system_of_user(&self) -> Option<String> {
        let system_policy = &self.spec.system_policy;
        (system_policy.use_system && system_policy.placement != Placement::System).then(|| {
            format!(
                "(system_text if loop.index0 == users.{} else \"\")",
                system_policy.placement.user()
            )
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use serde_json::{Value, json};

    use crate::compose::Composed;
    use crate::template::{LocalTime, RenderInput, Templates};

    #[track_caller]
    fn check(more: &Value, messages: &Value, tools: &Value, expected: &str) {
        let mut spec = json!({ "user_template": "<u>{content}</u>", "assistant_template": "<a>{content}</a>" });
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let composed = Composed::parse(&spec, "components").unwrap();
        let templates = Templates::compile(&composed.sources()).unwrap();
        let now = LocalTime::parse("2024-07-26T00:00:00Z").unwrap();
        let tools = tools.as_array().map(Vec::as_slice);
        let input = RenderInput { tools, ..RenderInput::new(messages.as_array().unwrap(), now) };
        let text =
            templates.render(&RenderInput { add_generation_prompt: false, ..input }).unwrap().text;
        assert_eq!(text, expected, "{}", composed.chat_template());
        let measured = templates.traits().caps.to_json();
        for (flag, declared) in composed.declared() {
            assert_eq!(measured[flag], declared, "{flag}: {}", composed.chat_template());
        }
    }

    fn talk(system: &str) -> Value {
        let message = |role: &str, content: &str| json!({ "role": role, "content": content });
        json!([
            message("system", system),
            message("user", "1"),
            message("assistant", "x"),
            message("user", "2")
        ])
    }

    #[test]
    fn system_text_in_a_users_turn() {
        let spec = |placement: &str| {
            json!({ "system_template": "{system_message}{tools}:", "user_template_with_tools": "<u>{tools}|{content}</u>",
                "system_policy": { "placement": placement }, "tool_policy": { "placement": "FIRST_USER" } })
        };
        let none = Value::Null;
        check(&spec("FIRST_USER"), &talk("S"), &none, "<u>S:1</u><a>x</a><u>2</u>");
        check(&spec("LAST_USER"), &talk("S"), &none, "<u>1</u><a>x</a><u>S:2</u>");
        check(&spec("FIRST_USER"), &talk("S"), &json!(["t"]), "<u>t|St:1</u><a>x</a><u>2</u>");
        check(&spec("LAST_USER"), &talk("S"), &json!(["t"]), "<u>t|1</u><a>x</a><u>St:2</u>");
        check(
            &spec("FIRST_USER"),
            &json!([{ "role": "user", "content": "1" }]),
            &none,
            "<u>:1</u>",
        );
        check(&spec("FIRST_USER"), &json!([{ "role": "system", "content": "S" }]), &none, "");
    }

    #[test]
    fn dates_and_empty_members() {
        let turns = "<u>1</u><a>x</a><u>2</u>";
        let (none, empty) = (Value::Null, json!([]));
        let spec = json!({ "system_template": "{date} {system_message}[{tools}]", "system_message": "D", "tools_template": "T{tools}",
            "system_policy": { "date_format": "%d/%m", "empty_message": "as_none" }, "tool_policy": { "empty_list": "as_tools" } });
        check(&spec, &talk("S"), &none, &format!("26/07 S[]{turns}"));
        check(&spec, &talk(""), &empty, &format!("26/07 D[T]{turns}"));
        let processor = json!({ "kind": "prepend_if_tools", "text": "-" });
        let spec = json!({ "system_template": "{tools}{system_message}", "system_policy": { "content_processor": processor } });
        check(&spec, &talk("S"), &json!(["t"]), &format!("t-S{turns}"));
        check(&spec, &talk("S"), &empty, &format!("S{turns}"));
        check(&spec, &talk(""), &json!(["t"]), &format!("t{turns}"));
        let processor = json!({ "kind": "append_if_tools", "text": "-", "empty": true });
        let spec = json!({ "system_template": "{system_message}{tools}", "system_policy": { "content_processor": processor } });
        check(&spec, &talk(""), &json!(["t"]), &format!("-t{turns}"));
        check(&spec, &json!([{ "role": "user", "content": "1" }]), &json!(["t"]), "t<u>1</u>");
    }

    #[test]
    fn tools_in_other_forms() {
        let parameter = json!({ "x": true, "enum": ["a", null], "type": ["string", "null"], "description": " d " });
        let schema = json!({ "required": ["p"], "type": "object", "properties": { "p": parameter }, "more": null });
        let tools = json!([{ "type": "function", "function": { "name": "f", "parameters": schema, "strict": false } }, "s"]);
        let spec = |formatter: &Value| json!({ "system_template": "{tools}", "tool_policy": { "formatter": formatter } });
        let messages = json!([{ "role": "user", "content": "1" }]);
        let begin = "<function>\n<name>f</name>\n<parameters>\n<parameter>\n<name>p</name>\n<type>['string', 'null']</type>\n<description>d</description>";
        check(
            &spec(&json!({ "kind": "XmlFormatter" })),
            &messages,
            &tools,
            &format!(
                "{begin}\n<x>True</x>\n<enum>[\"a\", null]</enum>\n</parameter>\n<required>[\"p\"]</required>\n<more>None</more>\n</parameters>\n<strict>False</strict>\n</function>\ns<u>1</u>"
            ),
        );
        check(
            &spec(&json!({ "kind": "XmlFormatter", "first": ["enum"], "last": ["required"] })),
            &messages,
            &json!(tools.as_array().unwrap()[..1]),
            &format!(
                "{begin}\n<enum>[\"a\", null]</enum>\n<x>True</x>\n</parameter>\n<more>None</more>\n<required>[\"p\"]</required>\n</parameters>\n<strict>False</strict>\n</function><u>1</u>"
            ),
        );
        let rows = json!({ "system_template": "{tools}", "single_tool_template": "{name}={description}{parameters};" });
        let tools = json!([{ "name": "f", "description": "d", "parameters": { "b": 1, "a": [] } }, { "type": "function", "function": { "name": "g" } }]);
        check(&rows, &messages, &tools, "f=d{\"b\": 1, \"a\": []};g={};<u>1</u>");
    }
}
