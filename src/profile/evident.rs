//! The format of a model whose template shows tools but no calls: the clues that its renders, its
//! source and its vocabulary give, and the history written in that format.

use serde_json::json;

use super::ModelProfile;
use crate::api::Polyfills;
use crate::output::call_writer::{CallMember, ValueStyle, WrittenCall, section_text};
use crate::output::format::{CallSyntax, FormatSource};
use crate::output::{CallTurn, Contradiction, Detected, EvidentFormat, FormatClues};
use crate::probing::{Probe, ProbeRenderer, diff, tool};
use crate::template::polyfill::{self, CallWriter, MemberBytes, SentCall, WrittenCalls};
use crate::template::{Evidence, EvidenceStatus, PolyfillTarget};

/// Rare words of the tool in the probe.
const TOOL_WORDS: [&str; 4] =
    ["probe_plimsoll", "Probes a plimsoll.", "plimsoll_key", "\"object\""];
/// Members of a message that carry the name of a call in templates older than `tool_calls`.
const NAME_MEMBERS: [&str; 2] = ["metadata", "function_call"];
/// The arguments of the call in such a message.
const ARGUMENTS: &str = r#"{"plimsoll_key": "quorv"}"#;
/// Roles of results in templates that do not know `tool`.
const RESULT_ROLES: [&str; 5] =
    ["observation", "function", "ipython", "tool_response", "function_response"];

/// The name of the probe in the evidence.
const PROBE: &str = "user turn with a tool";
/// The name of its control.
const CONTROL: &str = "user turn without tools";

/// What is known about calls that the template does not show.
pub(super) struct CallEvidence {
    /// Why there is a format, or none.
    pub(super) evidence: Evidence,
    /// The role in which the template shows results, if it is not `tool`.
    result_role: Option<&'static str>,
}

impl CallEvidence {
    /// Looks for evidence, and for the format that it shows. None if the template shows no tools,
    /// or nothing points to a format. There is no format if clues contradict each other, or if it
    /// fails the round trip.
    pub(super) fn find(profile: &ModelProfile) -> Option<(CallEvidence, Option<Detected>)> {
        let templates = &profile.templates;
        let shows_tools = templates.llama_cpp_caps().caps.supports_tools
            || templates.traits().caps.supports_tools;
        let instructions = if shows_tools { instructions(profile)? } else { return None };
        let clues = FormatClues {
            instructions: &instructions,
            tool_words: &TOOL_WORDS,
            turns: &call_turns(profile),
            is_special: &|text| profile.special_markers.iter().any(|known| known == text),
            in_source: &|text| templates.source_contains(text),
        };
        let (status, because, detected) = match clues.find() {
            Ok(found) => verified(profile, found?)?,
            Err(Contradiction(reason)) => (EvidenceStatus::Unknown, reason, None),
        };
        let control = Some(CONTROL);
        let evidence = Evidence { status, because, probe: PROBE, control, ..Evidence::default() };
        Some((CallEvidence { evidence, result_role: result_role(profile) }, detected))
    }
}

/// The format, if calls that a polyfill writes in it come back from the template.
fn verified(
    profile: &ModelProfile,
    found: EvidentFormat,
) -> Option<(EvidenceStatus, String, Option<Detected>)> {
    let EvidentFormat { format, because } = found;
    let writer = FormatCallWriter::new(format.calls.clone()?, result_role(profile));
    match Detected::evident(format, &polyfilled_renderer(profile, Some(&writer))) {
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
fn instructions(profile: &ModelProfile) -> Option<String> {
    let parameters = json!({
        "type": "object",
        "properties": { TOOL_WORDS[2]: { "type": "string", "description": TOOL_WORDS[1] } },
        "required": [TOOL_WORDS[2]],
    });
    let probe = Probe::from_user("question").generation_prompt();
    let without = profile.templates.render_probe(&probe).ok()?;
    let with = probe.tools(&[tool(TOOL_WORDS[0], TOOL_WORDS[1], &parameters)]);
    let with = profile.templates.render_probe(&with).ok()?;
    let start = diff::common_prefix(&without, &with);
    let end = diff::common_suffix(&without[start..], &with[start..]);
    Some(with[start..with.len() - end].to_owned())
}

/// The turns of messages that carry a call in another member than `tool_calls`.
fn call_turns(profile: &ModelProfile) -> Vec<CallTurn> {
    let templates = &profile.templates;
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
        // A tag of the turn that only begins like the one of an answer.
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

/// The role in which a template that does not know `tool` shows results.
fn result_role(profile: &ModelProfile) -> Option<&'static str> {
    let templates = &profile.templates;
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

/// Renders histories with the polyfills that a request would get, and with its tools.
pub(super) fn polyfilled_renderer<'a>(
    profile: &'a ModelProfile,
    call_writer: Option<&'a dyn CallWriter>,
) -> ProbeRenderer<'a> {
    let templates = &profile.templates;
    ProbeRenderer::new(move |probe: &Probe| {
        let target = PolyfillTarget { traits: templates.traits(), call_writer };
        let options = Polyfills::default();
        let polyfilled = polyfill::apply(&probe.messages, probe.tool_list(), target, &options)?;
        let messages = polyfilled.messages.into_owned();
        let tools = probe.tools.clone().filter(|_| call_writer.is_some());
        templates.render_probe(&Probe { messages, tools, ..probe.clone() })
    })
}

/// Writes calls in a format.
struct FormatCallWriter {
    calls: CallSyntax,
    style: ValueStyle,
    result_role: Option<&'static str>,
}

impl FormatCallWriter {
    fn new(calls: CallSyntax, result_role: Option<&'static str>) -> FormatCallWriter {
        let style = ValueStyle { python: calls.is_python(), ..ValueStyle::default() };
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

/// The calls of a history in the model's own format, if evidence shows it.
impl CallWriter for ModelProfile {
    fn write(&self, calls: &[SentCall<'_>]) -> Option<WrittenCalls> {
        let format = self.format().filter(|format| format.source == FormatSource::Evident)?;
        FormatCallWriter::new(format.calls.clone()?, None).write(calls)
    }

    fn result_role(&self) -> Option<&str> {
        self.output().call_evidence.as_ref()?.result_role
    }
}

impl ModelProfile {
    /// What the messages of a request are adapted to.
    pub fn polyfill_target(&self) -> PolyfillTarget<'_> {
        PolyfillTarget { traits: self.templates.traits(), call_writer: Some(self) }
    }
}
