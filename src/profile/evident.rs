//! The format of a model whose template shows tools but no calls: the clues that its renders, its
//! source and its vocabulary give, and the history written in that format.

use serde_json::json;

use super::ModelProfile;
use crate::api::Polyfills;
use crate::output::call_writer::{CallMember, ValueStyle, WrittenCall, section_text};
use crate::output::format::{CallSyntax, FormatSource};
use crate::output::{Contradiction, Detected, EvidentFormat, FormatClues};
use crate::probing::{Probe, ProbeRenderer, diff, tool};
use crate::template::polyfill::{self, CallWriter, MemberBytes, SentCall, WrittenCalls};
use crate::template::{Evidence, EvidenceStatus, PolyfillTarget};

/// Rare words of the tool in the probe.
const TOOL_WORDS: [&str; 4] =
    ["probe_plimsoll", "Probes a plimsoll.", "plimsoll_key", "\"object\""];
/// The name of the probe in the evidence.
const PROBE: &str = "user turn with a tool";
/// The name of its control.
const CONTROL: &str = "user turn without tools";

/// What is known about calls that the template does not show.
pub(super) struct CallEvidence {
    /// The format; None if the clues contradict each other or the format fails the round trip.
    pub(super) detected: Option<Detected>,
    pub(super) evidence: Evidence,
}

impl CallEvidence {
    /// Looks for evidence. None if the template shows no tools, or nothing points to a format.
    pub(super) fn find(profile: &ModelProfile) -> Option<CallEvidence> {
        let templates = &profile.templates;
        let shows_tools = templates.llama_cpp_caps().caps.supports_tools
            || templates.traits().caps.supports_tools;
        let instructions = if shows_tools { instructions(profile)? } else { return None };
        let clues = FormatClues {
            instructions: &instructions,
            tool_words: &TOOL_WORDS,
            is_special: &|text| profile.special_markers.iter().any(|known| known == text),
            in_source: &|text| templates.source_contains(text),
        };
        let found = match clues.find() {
            Ok(found) => found?,
            Err(Contradiction(reason)) => {
                return Some(CallEvidence::of(None, EvidenceStatus::Unknown, reason));
            }
        };
        let EvidentFormat { format, because } = found;
        let writer = FormatCallWriter::new(format.calls.clone()?);
        let renderer = polyfilled_renderer(profile, Some(&writer));
        match Detected::evident(format, &renderer) {
            Ok(detected) => Some(CallEvidence::of(Some(detected), EvidenceStatus::Yes, because)),
            Err(row) => {
                let reason = format!(
                    "{because}; not used, since calls written in that form do not come back from the template ({row})"
                );
                Some(CallEvidence::of(None, EvidenceStatus::Unknown, reason))
            }
        }
    }

    fn of(detected: Option<Detected>, status: EvidenceStatus, because: String) -> CallEvidence {
        let control = Some(CONTROL);
        let evidence = Evidence { status, because, probe: PROBE, control, ..Evidence::default() };
        CallEvidence { detected, evidence }
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
}

impl FormatCallWriter {
    fn new(calls: CallSyntax) -> FormatCallWriter {
        let style = ValueStyle { python: calls.is_python(), ..ValueStyle::default() };
        FormatCallWriter { calls, style }
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
}

/// The calls of a history in the model's own format, if evidence shows it.
impl CallWriter for ModelProfile {
    fn write(&self, calls: &[SentCall<'_>]) -> Option<WrittenCalls> {
        let format = self.format().filter(|format| format.source == FormatSource::Evident)?;
        FormatCallWriter::new(format.calls.clone()?).write(calls)
    }
}

impl ModelProfile {
    /// What the messages of a request are adapted to.
    pub fn polyfill_target(&self) -> PolyfillTarget<'_> {
        PolyfillTarget { traits: self.templates.traits(), call_writer: Some(self) }
    }
}
