//! Finds the format of a model whose template shows tools but no calls, from the clues in its
//! renders, its source and its vocabulary. Also writes histories in that format.

use serde_json::{Map, json};

use crate::api::Polyfills;
use crate::output::call_writer::{CallMember, ValueStyle, WrittenCall, section_text};
use crate::output::format::CallSyntax;
use crate::output::{
    CallTurn, Contradiction, Detected, EvidentFormat, FormatClues, ReasoningEvidence,
};
use crate::probing::{Probe, ProbeRenderer, diff, tool};
use crate::template::polyfill::{self, CallWriter, MemberBytes, SentCall, WrittenCalls};
use crate::template::{Evidence, EvidenceStatus, PolyfillTarget, Templates};

/// Unusual words that describe the tool of the probe.
const TOOL_WORDS: [&str; 4] =
    ["probe_plimsoll", "Probes a plimsoll.", "plimsoll_key", "\"object\""];
/// Message members that carried the name of a call before templates used `tool_calls`.
const NAME_MEMBERS: [&str; 2] = ["metadata", "function_call"];
/// The arguments of the call in such a message.
const ARGUMENTS: &str = r#"{"plimsoll_key": "quorv"}"#;
/// Roles of tool results in templates that do not know `tool`.
const RESULT_ROLES: [&str; 5] =
    ["observation", "function", "ipython", "tool_response", "function_response"];

/// The name of the probe in the evidence.
const PROBE: &str = "user turn with a tool";
/// The name of its control.
const CONTROL: &str = "user turn without tools";

/// What is known about calls that the template does not show.
pub(super) struct CallEvidence {
    /// Why a format was found, or why not.
    pub(super) evidence: Evidence,
    /// The role in which the template shows tool results, if it is not `tool`.
    pub(super) result_role: Option<&'static str>,
}

impl CallEvidence {
    /// Looks for evidence of calls, and for the format that it shows. `None` if the template shows
    /// no tools, or if nothing suggests a format. The inner format is missing if clues contradict
    /// each other or if the round trip fails.
    pub(super) fn find(
        templates: &Templates,
        special_markers: &[String],
        reasoning: &ReasoningEvidence,
    ) -> Option<(CallEvidence, Option<Detected>)> {
        let instructions =
            if shows_tools(templates) { instructions(templates)? } else { return None };
        let clues = FormatClues {
            instructions: &instructions,
            tool_words: &TOOL_WORDS,
            turns: &call_turns(templates),
            is_special: &|text| special_markers.iter().any(|known| known == text),
            in_source: &|text| templates.source_contains(text),
        };
        let (status, because, detected) = match clues.find() {
            Ok(found) => verified(templates, found?, reasoning)?,
            Err(Contradiction(reason)) => (EvidenceStatus::Unknown, reason, None),
        };
        let control = Some(CONTROL);
        let evidence = Evidence { status, because, probe: PROBE, control, ..Evidence::default() };
        Some((CallEvidence { evidence, result_role: result_role(templates) }, detected))
    }

    /// What is known about calls that the template writes in a way that cannot be parsed.
    pub(super) fn of_unreadable(reason: &str) -> CallEvidence {
        let because = format!("the template writes calls that cannot be parsed: {reason}");
        let (status, probe) = (EvidenceStatus::Unknown, "assistant turn with a call");
        let evidence = Evidence { status, because, probe, ..Evidence::default() };
        CallEvidence { evidence, result_role: None }
    }
}

/// Whether the template shows tools, according to either set of capabilities.
pub(super) fn shows_tools(templates: &Templates) -> bool {
    templates.llama_cpp_caps().caps.supports_tools || templates.traits().caps.supports_tools
}

/// The format, if the template gives back the calls that a polyfill writes in it.
fn verified(
    templates: &Templates,
    found: EvidentFormat,
    reasoning: &ReasoningEvidence,
) -> Option<(EvidenceStatus, String, Option<Detected>)> {
    let EvidentFormat { format, because } = found;
    let writer = FormatCallWriter::new(format.calls.clone()?, result_role(templates));
    let renderer = polyfilled_renderer(templates, Some(&writer));
    match Detected::evident(format, &renderer, reasoning) {
        Ok(detected) => Some((EvidenceStatus::Yes, because, Some(detected))),
        Err(row) => {
            let reason = format!(
                "{because}; not used, since calls written in that form do not come back from the \
                 template ({row})"
            );
            Some((EvidenceStatus::Unknown, reason, None))
        }
    }
}

/// The text that the template adds for a tool.
fn instructions(templates: &Templates) -> Option<String> {
    let parameters = json!({
        "type": "object",
        "properties": { TOOL_WORDS[2]: { "type": "string", "description": TOOL_WORDS[1] } },
        "required": [TOOL_WORDS[2]],
    });
    let probe = Probe::from_user("question").generation_prompt();
    let without = templates.render_probe(&probe).ok()?;
    let with = probe.tools(&[tool(TOOL_WORDS[0], TOOL_WORDS[1], &parameters)]);
    let with = templates.render_probe(&with).ok()?;
    let start = diff::common_prefix(&without, &with);
    let end = diff::common_suffix(&without[start..], &with[start..]);
    Some(with[start..with.len() - end].to_owned())
}

/// The turns of messages that carry a call in a member other than `tool_calls`.
fn call_turns(templates: &Templates) -> Vec<CallTurn> {
    let render = |message| templates.render_probe(&Probe::from_user("question").message(message));
    let plain = || render(json!({ "role": "assistant", "content": "answer" })).ok();
    let members = NAME_MEMBERS.into_iter().filter(|member| templates.source_contains(member));
    let turns = members.filter_map(|member| {
        let mut message = json!({ "role": "assistant", "content": ARGUMENTS });
        message[member] = match member {
            "function_call" => json!({ "name": TOOL_WORDS[0], "arguments": ARGUMENTS }),
            _ => TOOL_WORDS[0].into(),
        };
        let (plain, shown) = (plain()?, render(message).ok()?);
        let mut start = diff::common_prefix(&plain, &shown);
        // The tag of this turn may begin like the tag of an answer.
        if let Some(open) = plain[..start].rfind('<').filter(|at| !plain[*at..start].contains('>'))
        {
            start = open;
        }
        let end = diff::common_suffix(&plain[start..], &shown[start..]);
        let text = shown[start..shown.len() - end].to_owned();
        Some(CallTurn { member, text, name: TOOL_WORDS[0], arguments: ARGUMENTS })
    });
    turns.collect()
}

/// The role in which a template that does not know `tool` shows tool results.
fn result_role(templates: &Templates) -> Option<&'static str> {
    if templates.traits().caps.supports_tool_responses {
        return None;
    }
    let shows = |role: &str| {
        let message = json!({ "role": role, "content": TOOL_WORDS[1] });
        let probe = Probe::from_user("question").assistant("answer").message(message);
        templates.render_probe(&probe).is_ok_and(|prompt| prompt.contains(TOOL_WORDS[1]))
    };
    RESULT_ROLES.into_iter().find(|role| templates.source_contains(role) && shows(role))
}

/// Renders histories with the polyfills and the tools that a request would have.
pub(super) fn polyfilled_renderer<'a>(
    templates: &'a Templates,
    call_writer: Option<&'a dyn CallWriter>,
) -> ProbeRenderer<'a> {
    // A template whose own calls cannot be read back gets calls as text too.
    let override_calls = || Map::from_iter([("supports_tool_calls".to_owned(), false.into())]);
    let caps_override = call_writer.is_some().then(override_calls);
    let options = Polyfills { caps_override, ..Polyfills::default() };
    ProbeRenderer::new(move |probe: &Probe| {
        let target = PolyfillTarget { call_writer, ..templates.traits().into() };
        let polyfilled = polyfill::apply(&probe.messages, probe.tool_list(), target, &options)?;
        let messages = polyfilled.messages.into_owned();
        let tools = probe.tools.clone().filter(|_| call_writer.is_some());
        templates.render_probe(&Probe { messages, tools, ..probe.clone() })
    })
}

/// Writes calls in a format.
pub(super) struct FormatCallWriter {
    calls: CallSyntax,
    style: ValueStyle,
    result_role: Option<&'static str>,
}

impl FormatCallWriter {
    pub(super) fn new(calls: CallSyntax, result_role: Option<&'static str>) -> FormatCallWriter {
        let style = if calls.is_python() { ValueStyle::repr() } else { ValueStyle::default() };
        FormatCallWriter { calls, style, result_role }
    }
}

impl CallWriter for FormatCallWriter {
    fn write(&self, calls: &[SentCall<'_>]) -> Option<WrittenCalls> {
        let calls: Vec<WrittenCall> = calls
            .iter()
            .map(|call| WrittenCall {
                name: call.name.to_owned(),
                arguments: call.arguments.clone(),
                id: call.id.to_owned(),
            })
            .collect();
        let written = section_text(&self.calls, &calls, self.style);
        let members = written.values.into_iter().map(|value| MemberBytes {
            bytes: value.bytes,
            call: value.call,
            member: match value.member {
                CallMember::Name => "function.name",
                CallMember::Id => "id",
                CallMember::Arguments => "function.arguments",
            },
        });
        Some(WrittenCalls { text: written.text, members: members.collect() })
    }

    fn result_role(&self) -> Option<&str> {
        self.result_role
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::sync::Arc;

    use serde_json::Value;

    use super::*;
    use crate::output::{ReplyParser, ReplyParserInput};
    use crate::profile::ModelProfile;
    use crate::template::{LocalTime, RenderInput, Sources};
    use crate::test_support::conformance;

    /// The shared templates that show tools but no calls, each with a call as its model writes it.
    const EVIDENT: [(&str, &str); 5] = [
        (
            "axolotl.falcon_h1",
            "<tool_call>\n{ \"arguments\": {\"city\": \"Paris\"}, \"name\": \"weather\"}\n</tool_call>",
        ),
        (
            "hfjs.HuggingFaceTB_SmolLM3-3B",
            "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Paris\"}}\n</tool_call>",
        ),
        ("hfjs.MadeAgents_Hammer2.1", r#"[{"name": "weather", "arguments": {"city": "Paris"}}]"#),
        (
            "vllm.tool_chat_template_glm4",
            "<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n</tool_call>",
        ),
        ("xinf.glm4-0414", "weather\n{\"city\": \"Paris\"}"),
    ];

    /// The shared templates whose calls cannot be read back, with the reason. Their instructions
    /// show the format.
    const UNREADABLE: [(&str, &str); 4] = [
        ("vllm.tool_chat_template_gemma3_pythonic", "strings with quotes are not escaped"),
        ("vllm.tool_chat_template_llama4_pythonic", "strings with quotes are not escaped"),
        ("vllm085.tool_chat_template_llama4_pythonic", "strings have no quotes"),
        ("xinf.qwen1.5-chat", "the quote after the name follows the arguments"),
    ];

    fn tools() -> Vec<Value> {
        let parameters =
            json!({ "type": "object", "properties": { "city": { "type": "string" } } });
        vec![tool("weather", "The weather.", &parameters)]
    }

    /// The prompt of a conversation with a call and its result.
    fn history(profile: &ModelProfile) -> String {
        let (messages, tools) = (
            [
                json!({ "role": "user", "content": "Weather?" }),
                json!({ "role": "assistant", "content": null, "tool_calls": [{
                    "id": "callabc12", "type": "function",
                    "function": { "name": "weather", "arguments": "{\"city\": \"Paris\"}" },
                }] }),
                json!({ "role": "tool", "tool_call_id": "callabc12", "content": "Sunny." }),
            ],
            tools(),
        );
        let target = profile.polyfill_target();
        let options = Polyfills::default();
        let polyfilled = polyfill::apply(&messages, Some(&tools), target, &options).unwrap();
        assert!(polyfilled.applied.contains(&"tool_calls"));
        let now = LocalTime::parse("2026-01-31T09:30:00").unwrap();
        let input = RenderInput {
            polyfilled: Some(&polyfilled),
            tools: Some(&tools),
            add_generation_prompt: true,
            ..RenderInput::new(&polyfilled.messages, now)
        };
        profile.templates.render(&input).unwrap().text
    }

    #[test]
    fn shared_templates_that_show_tools_only() {
        let Some(root) = conformance::folder("templates that show tools only") else { return };
        let mut found = Vec::new();
        let templates = conformance::templates(&root);
        let mut expected: Vec<&str> = EVIDENT.iter().chain(&UNREADABLE).map(|it| it.0).collect();
        expected.retain(|name| templates.contains_key(*name));
        expected.sort_unstable();
        for (name, sources) in templates {
            let Ok(profile) = ModelProfile::of(&sources) else { continue };
            if profile.evident_calls().is_none() {
                assert!(!profile.lacks_format(), "{name} has neither calls nor evidence");
                continue;
            }
            if UNREADABLE.iter().any(|(unreadable, _)| *unreadable == name) {
                assert_eq!(profile.to_json()["output_format"]["tool_calls"], "evident", "{name}");
                found.push(name);
                continue;
            }
            let (_, call) = EVIDENT.iter().find(|(evident, _)| *evident == name).unwrap();
            let info = profile.to_json();
            assert_eq!(info["output_format"]["tool_calls"], "evident", "{name}");
            assert_eq!(info["evidence"]["tool_call_format"]["status"], "yes", "{name}");
            let findings = info["findings"].as_array().unwrap();
            assert!(findings.iter().any(|lint| lint["code"] == "calls_not_written"), "{name}");
            // The history contains the call as the model writes it, followed by the result.
            let prompt = history(&profile);
            let after = prompt.split_once(call).map(|(_, after)| after);
            assert!(after.is_some_and(|after| after.contains("Sunny.")), "{name}: {prompt}");
            // The reply is parsed as a call.
            let mut parser = ReplyParser::new(ReplyParserInput {
                format: profile.format(),
                tools: Arc::new(tools()),
                calls_allowed: true,
                reasoning: true,
                parallel: true,
                json: false,
                new_id: Box::new(|| "id".to_owned()),
            });
            parser.push(call);
            let (_, parsed) = parser.finish();
            let calls: Vec<_> =
                parsed.tool_calls.iter().map(|call| (&*call.name, &*call.arguments)).collect();
            assert_eq!(calls, [("weather", "{\"city\": \"Paris\"}")], "{name}: {parsed:?}");
            found.push(name);
        }
        assert_eq!(found, expected);
    }

    #[test]
    fn tags_around_text_that_only_the_instructions_name() {
        let source = "{% if thinking %}Write your thoughts between <think></think> and your \
                      response between <response></response>.{% endif %}\
                      {% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}";
        for (source, content) in [
            (source.to_owned(), "Hello."),
            (source.replace("response>", "reply>"), "<response>Hello.</response>"),
        ] {
            let sources = Sources { default: Some(source), ..Sources::default() };
            let profile = ModelProfile::of(&sources).unwrap();
            let mut parser = ReplyParser::new(ReplyParserInput {
                format: profile.format(),
                tools: Arc::new(Vec::new()),
                calls_allowed: false,
                reasoning: true,
                parallel: true,
                json: false,
                new_id: Box::new(|| "id".to_owned()),
            });
            parser.push("<think>Why.</think><response>Hello.</response>");
            let (_, parsed) = parser.finish();
            assert_eq!((&*parsed.content, parsed.reasoning.as_deref()), (content, Some("Why.")));
        }
    }

    #[test]
    fn contradicting_instructions_keep_the_format_of_the_polyfill() {
        let source = "{% if tools %}<tool_call>{\"name\": N, \"arguments\": A}</tool_call> or \
                      [TOOL_CALLS][{\"name\": N, \"arguments\": A, \"id\": I}] {{ tools | tojson }}\
                      {% endif %}{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}";
        let sources = Sources { default: Some(source.to_owned()), ..Sources::default() };
        let profile = ModelProfile::of(&sources).unwrap();
        let info = profile.to_json();
        assert_eq!(info["output_format"]["family"], "polyfilled");
        assert_eq!(info["evidence"]["tool_call_format"]["status"], "unknown");
        assert_eq!(profile.evident_calls(), None);
    }
}
