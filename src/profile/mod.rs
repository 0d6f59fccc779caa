//! What a model can do, found from the header of its file. `llb_model_info`, the tool-capability
//! check and the template requests all use this profile.
//!
//! In: template sources. Out: capabilities, lints, output format. Weights are never read.

mod cache;
mod evident;
mod modalities;
mod provenance;
mod recommended_sampling;
mod refusal;
mod report;

use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use serde_json::{Value, json};

use crate::error::Result;
use crate::gguf::{ModelHeader, TemplateHeader};
use crate::output::format::FormatSource;
use crate::output::{
    ControlSpellings, Detected, Format, PreparedFormat, ReasoningClues, ReasoningEvidence,
    TurnMarkup, families,
};
use crate::probing::{Probe, ProbeRenderer};
use crate::template::polyfill::{CallWriter, SentCall, WrittenCalls};
use crate::template::{EvidenceStatus, Lint, PolyfillTarget, Severity, Sources, Templates};
use evident::{CallEvidence, FormatCallWriter, shows_tools};

pub use recommended_sampling::RecommendedSampling;
pub use report::{add_modalities, failed_info, model_info};

/// The chat templates of a model and everything that was found out about them.
pub struct ModelProfile {
    /// The compiled template or templates.
    pub templates: Templates,
    /// The call markers that are special tokens of the vocabulary.
    special_markers: Vec<String>,
    output: OnceLock<OutputProfile>,
    /// The JSON member `by_template`, for a file with a `tool_use` template.
    by_template: OnceLock<Value>,
}

/// What a model with this template writes.
struct OutputProfile {
    detected: Detected,
    /// Evidence about calls that the template does not show, with or without a format.
    call_evidence: Option<CallEvidence>,
    /// The format, prepared for reply parsers.
    prepared: PreparedFormat,
    /// The markup around every answer.
    turn_markup: Arc<TurnMarkup>,
    /// Whether the template writes a turn's reasoning between the format's tags.
    shows_reasoning: bool,
    /// Whether the template's source contains one of these tags.
    mentions_reasoning: bool,
}

impl ModelProfile {
    /// The template sources of a model file. `chat_template` replaces the file's default.
    pub fn sources(header: &ModelHeader, chat_template: Option<&str>) -> Sources {
        let tool_use = header.tool_use_template().filter(|_| chat_template.is_none());
        Sources {
            default: chat_template.or(header.chat_template()).map(str::to_owned),
            tool_use: tool_use.map(str::to_owned),
            bos_token: header.bos_token().unwrap_or_default().to_owned(),
            eos_token: header.eos_token().unwrap_or_default().to_owned(),
            ..Sources::default()
        }
    }

    /// Like [`sources`](Self::sources), with the vocabulary of the file.
    pub fn sources_of_file(path: &Path, header: &ModelHeader) -> Sources {
        let sources = ModelProfile::sources(header, None);
        Sources { model_file: Some(path.to_owned()), ..sources }
    }

    /// The call markers of any family that are special tokens in a file's vocabulary.
    pub fn special_markers(path: &Path) -> Result<Vec<String>> {
        let file = TemplateHeader::of_file(path)?;
        let markers = families::call_markers().into_iter();
        Ok(markers.filter(|text| file.special_tokens.contains(text)).collect())
    }

    /// The control tokens of the model file, to find them in text that spells them. `None` without
    /// a file, or without token types.
    pub fn control_spellings(sources: &Sources) -> Result<Option<Arc<ControlSpellings>>> {
        let Some(path) = sources.model_file.as_deref() else { return Ok(None) };
        let tokens = TemplateHeader::of_file(path)?.control_tokens.clone();
        Ok((!tokens.is_empty()).then(|| Arc::new(ControlSpellings::new(tokens))))
    }

    /// How the template writes tool calls; `None` unless a round trip has confirmed it.
    pub fn format(&self) -> Option<&Format> {
        self.output().detected.format.as_ref()
    }

    /// The format, prepared for reply parsers.
    pub fn prepared(&self) -> &PreparedFormat {
        &self.output().prepared
    }

    /// The markup around every answer.
    pub fn turn_markup(&self) -> &Arc<TurnMarkup> {
        &self.output().turn_markup
    }

    /// Whether a template contains a tag of the format's reasoning. Many formats define tags that
    /// some of their models never write.
    pub fn mentions_reasoning(&self) -> bool {
        self.output().mentions_reasoning
    }

    /// The end of a prompt that already belongs to the reply.
    pub fn turn<'a>(&self, prompt: &'a str) -> &'a str {
        self.output().detected.opener.turn(prompt, self.format())
    }

    /// Like [`turn`](Self::turn), for a prompt that ends inside a message. `opening` are the bytes
    /// that the template wrote before the text of that message.
    pub fn turn_of_message<'a>(&self, prompt: &'a str, opening: Range<usize>) -> &'a str {
        self.output().detected.opener.turn_of_message(prompt, opening, self.format())
    }

    /// The text that the template appends for `add_generation_prompt`, without any other option.
    pub fn generation_prompt(&self) -> &str {
        &self.output().detected.generation_prompt
    }

    fn output(&self) -> &OutputProfile {
        self.output.get_or_init(|| self.detect_output())
    }

    fn detect_output(&self) -> OutputProfile {
        let traits = self.templates.traits();
        let shows_calls = self.templates.llama_cpp_caps().caps.supports_tool_calls
            || traits.caps.supports_tool_calls;
        let renderer = ProbeRenderer::new(|probe| self.templates.render_probe(probe));
        let reasoning = self.reasoning_evidence(&renderer);
        let native = || Detected::native(&renderer, &reasoning);
        // The polyfill writes the calls of the history, and the model is expected to imitate their
        // format.
        let polyfilled = || {
            Detected::polyfilled(&evident::polyfilled_renderer(&self.templates, None), &reasoning)
        };
        let own = shows_calls.then(native);
        let verified = |detected: &Detected| detected.format.as_ref().is_some_and(|it| it.verified);
        let (call_evidence, evident) = match own.as_ref().is_some_and(verified) {
            true => (None, None),
            false => CallEvidence::find(&self.templates, &self.special_markers, &reasoning).unzip(),
        };
        let unreadable = own.as_ref().and_then(|detected| detected.unreadable.as_deref());
        let call_evidence = call_evidence.or_else(|| unreadable.map(CallEvidence::of_unreadable));
        let detected = evident.flatten().or(own).unwrap_or_else(polyfilled);
        let detected = detected.with_wrappers(&|tag| self.templates.source_contains(tag));
        let format = detected.format.as_ref();
        let mentions_reasoning =
            format.and_then(|format| format.reasoning.as_ref()).is_some_and(|tags| {
                let tags = [tags.open.trim(), tags.close.trim()];
                tags.into_iter().any(|tag| !tag.is_empty() && self.templates.source_contains(tag))
            });
        let mut turn_markup = detected.turn_markup.clone();
        turn_markup.add_end(self.templates.eos_token(), format);
        OutputProfile {
            turn_markup: Arc::new(turn_markup),
            prepared: format.map(PreparedFormat::new).unwrap_or_default(),
            shows_reasoning: self.shows_reasoning(&detected),
            mentions_reasoning,
            detected,
            call_evidence,
        }
    }

    /// The tags around reasoning that the template reveals.
    fn reasoning_evidence(&self, renderer: &ProbeRenderer<'_>) -> ReasoningEvidence {
        let switches = &self.templates.traits().details.reasoning.switches;
        let settings: Vec<_> = switches
            .iter()
            .flat_map(|switch| [&switch.on, &switch.off].map(|it| (switch.variable, it.clone())))
            .collect();
        let clues = ReasoningClues {
            cuts: &self.templates.cuts(),
            settings: &settings,
            in_source: &|text| self.templates.source_contains(text),
        };
        ReasoningEvidence::find(renderer, &clues)
    }

    /// Whether the template writes the reasoning of a turn between the tags of the detected format.
    fn shows_reasoning(&self, detected: &Detected) -> bool {
        let tags = detected.format.as_ref().and_then(|format| format.reasoning.as_ref());
        tags.is_some_and(|tags| {
            let needle = "the needle of the reasoning probe";
            let answer =
                json!({ "role": "assistant", "content": "answer", "reasoning_content": needle });
            let probe = Probe::from_user("question").message(answer);
            let rendered = self.templates.render_probe(&probe).unwrap_or_default();
            let (before, after) = rendered.split_once(needle).unwrap_or_default();
            let opened = !tags.open.is_empty() && detected.generation_prompt.contains(&*tags.open);
            let closed = rendered.contains(needle) && after.trim_start().starts_with(&*tags.close);
            opened || closed && before.trim_end().ends_with(&*tags.open)
        })
    }

    /// The reason why calls are read in a format that the template does not write. `None` if the
    /// template writes calls, or if no such format is known.
    pub fn evident_calls(&self) -> Option<&str> {
        let found = self.output().call_evidence.as_ref()?;
        (found.evidence.status == EvidenceStatus::Yes).then_some(&*found.evidence.because)
    }

    /// The lint for a template whose calls are known only from evidence.
    fn evident_lint(&self) -> Option<Lint> {
        let because = self.evident_calls()?;
        Some(Lint {
            code: "calls_not_written",
            severity: Severity::Warning,
            message: format!(
                "the template shows tools, but no calls that can be read back; {because}"
            ),
            template: self.templates.variant(true),
            line: None,
        })
    }

    /// Whether the template shows tools, but neither its calls nor its instructions show a format.
    fn lacks_format(&self) -> bool {
        let found = || self.output().call_evidence.as_ref().map(|found| found.evidence.status);
        let known = self.format().is_some_and(|format| format.source != FormatSource::Polyfill);
        !known && shows_tools(&self.templates) && found() != Some(EvidenceStatus::Yes)
    }

    /// The target that a request's messages are adapted to.
    pub fn polyfill_target(&self) -> PolyfillTarget<'_> {
        PolyfillTarget { call_writer: Some(self), ..self.templates.traits().into() }
    }
}

/// Writes the calls of a history in the model's own format, if evidence shows it.
impl CallWriter for ModelProfile {
    fn write(&self, calls: &[SentCall<'_>]) -> Option<WrittenCalls> {
        let format = self.format().filter(|format| format.source == FormatSource::Evident)?;
        FormatCallWriter::new(format.calls.clone()?, None).write(calls)
    }

    fn result_role(&self) -> Option<&str> {
        self.output().call_evidence.as_ref()?.result_role
    }
}
