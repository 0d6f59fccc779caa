//! Chat templates: messages -> prompt, as Hugging Face transformers 5.x renders it, and what a
//! template can carry.
//!
//! In: the Jinja source of a model file, messages, tools, the time. Out: the prompt, or an error
//! with its kind and line, and the capability flags. Never reads files, the network or (but for
//! [`LocalTime::now`]) the clock, and never prints.

mod clock;
mod continue_final_message;
pub(crate) mod edits;
mod environment;
mod failure;
pub(crate) mod host;
mod import;
mod limits;
mod lint;
pub(crate) mod mask;
pub mod polyfill;
mod probe;
mod render;
mod sources;
mod span;
pub mod thinking;

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test reports by panicking")]
pub(crate) mod tests;

use probe::llama_cpp_caps;
use probe::minja_caps;
use probe::prober;
use probe::template_caps;
use std::sync::{Arc, OnceLock};

use serde_json::Map;
use sha2::{Digest, Sha256};

pub use clock::LocalTime;
pub use failure::Failure;
pub use limits::Limits;
pub use lint::{Finding, Severity};
pub use mask::{LeftOut, Mask, MaskedTurn, Turns};
pub use probe::evidence::{Evidence, Status};
pub use probe::llama_cpp_caps::{Caps, CapsReport};
pub use probe::traits::{
    Arguments, Details, Effort, Fate, NoContent, ReasoningCell, ReasoningFormat, Switch,
    TemplateCaps, Traits, WithCalls,
};
pub use render::{Prompt, RenderInput, Variables};
pub use sources::Sources;
pub use span::Span;

use crate::error::Result;
use crate::jinja::Template;
use crate::probing::Probe;
use host::HostWork;
pub use polyfill::Polyfilled;
pub(crate) use probe::prober::probe_time;
use probe::prober::{Exceeded, Prober};

const DEFAULT: &str = "default";
const TOOL_USE: &str = "tool_use";
const CHATML: &str = "chatml";

/// What a template does with each part of a conversation, and why that is believed, flag by flag.
pub type Known = (Traits, Vec<(&'static str, Evidence)>);

/// The compiled templates of one model: its default, and its tool_use template when it has one.
#[derive(Debug)]
pub struct Templates {
    /// What requests without tools are rendered with.
    default: Compiled,
    tool_use: Option<Compiled>,
    bos_token: String,
    eos_token: String,
    sha256: Option<String>,
    /// What was noticed while compiling.
    noticed: Vec<Finding>,
    findings: OnceLock<Vec<Finding>>,
}

/// One template under the name that errors give it.
#[derive(Debug)]
struct Compiled {
    name: &'static str,
    source: Arc<str>,
    host: HostWork,
    template: Arc<Template>,
    caps: OnceLock<CapsReport>,
    traits: OnceLock<Known>,
    /// Shared by all who probe it.
    exceeded: Exceeded,
}

impl Compiled {
    fn new(name: &'static str, source: &str, host: HostWork) -> Result<Compiled, Failure> {
        let template = Arc::new(environment::compile(source)?);
        let (caps, traits) = (OnceLock::new(), OnceLock::new());
        Ok(Compiled {
            name,
            source: source.into(),
            host,
            template,
            caps,
            traits,
            exceeded: Exceeded::default(),
        })
    }

    fn prober(&self) -> Prober {
        Prober::new(&self.template, &self.source, self.host, &self.exceeded)
    }

    fn caps(&self) -> &CapsReport {
        self.caps.get_or_init(|| llama_cpp_caps::report(self.prober()))
    }

    fn traits(&self) -> &Known {
        self.traits.get_or_init(|| template_caps::report(self.prober()))
    }

    fn findings(&self) -> Vec<Finding> {
        lint::review(self.name, self.prober(), &self.template.inspect(), &self.traits().0)
    }
}

impl Templates {
    /// Compiles what the file has, or the built-in ChatML when it has nothing.
    ///
    /// A default that does not parse is `TEMPLATE_ERROR` with
    /// `{"kind":"syntax","line","template":"default"}`; a tool_use template that does not parse is
    /// left out, with a finding.
    pub fn compile(sources: &Sources) -> Result<Templates> {
        let mut noticed = Vec::new();
        let tool_use =
            match sources.own_tool_use().map(|text| Compiled::new(TOOL_USE, text, sources.host)) {
                Some(Ok(compiled)) => Some(compiled),
                Some(Err(failure)) => {
                    noticed.push(lint::ignored(&failure));
                    None
                }
                None => None,
            };
        let (name, text) = match (sources.own_default(), sources.own_tool_use()) {
            (Some(text), _) => (DEFAULT, text),
            (None, Some(text)) if tool_use.is_some() => (TOOL_USE, text),
            (None, _) => (CHATML, sources::CHATML),
        };
        let default =
            Compiled::new(name, text, sources.host).map_err(|failure| failure.into_error(name))?;
        let own = tool_use.as_ref().map(|compiled| &*compiled.source).or(sources.own_default());
        Ok(Templates {
            bos_token: sources.bos_token.clone(),
            eos_token: sources.eos_token.clone(),
            sha256: own.map(sha256),
            default,
            tool_use,
            noticed,
            findings: OnceLock::new(),
        })
    }

    fn chosen(&self, has_tools: bool) -> &Compiled {
        match &self.tool_use {
            Some(tool_use) if has_tools => tool_use,
            _ => &self.default,
        }
    }

    /// The prompt, with the tool_use template when there is one and tools are given, else with the
    /// default.
    ///
    /// `TEMPLATE_ERROR` or `TEMPLATE_LIMIT` with `{"kind","line","template"}`; what the template
    /// refuses by `raise_exception` has kind `raised` and the template's own words as its message.
    pub fn render(&self, input: &RenderInput<'_>) -> Result<Prompt> {
        self.render_with(input, |failed| failed)
    }

    /// As [`render`](Self::render), to learn something about the template: with the limits of a
    /// probe, and not any more once probes of this template went over them.
    pub fn probe(&self, input: &RenderInput<'_>) -> Result<Prompt> {
        let chosen = self.for_tools(input);
        prober::check_allowed(&chosen.exceeded)
            .map_err(|failure| failure.into_error(chosen.name))?;
        let input = RenderInput { limits: prober::limits(), ..*input };
        self.render_with(&input, |rendered| {
            prober::record_limit(&chosen.exceeded, &rendered);
            rendered
        })
    }

    /// The prompt of a probe, within the limits of [`probe`](Self::probe).
    pub(crate) fn render_probe(&self, probe: &Probe) -> Result<String> {
        let variables =
            probe.kwargs.iter().map(|(name, value)| ((*name).to_owned(), value.clone()));
        let kwargs: Map<String, serde_json::Value> = variables.collect();
        let input = RenderInput {
            kwargs: (!kwargs.is_empty()).then_some(&kwargs),
            tools: probe.tool_list(),
            skills: probe.skills.as_deref(),
            add_generation_prompt: probe.add_generation_prompt,
            ..RenderInput::new(&probe.messages, probe_time(probe.later))
        };
        self.probe(&input).map(|prompt| prompt.text)
    }

    fn for_tools(&self, input: &RenderInput<'_>) -> &Compiled {
        self.chosen(input.tools.is_some_and(|tools| !tools.is_empty()))
    }

    /// Which template a request is rendered with: `default`, `tool_use`, or `chatml` (the built-in
    /// one).
    pub fn variant(&self, has_tools: bool) -> &'static str {
        self.chosen(has_tools).name
    }

    /// Whether a text stands in the source of one of them.
    pub fn mention(&self, text: &str) -> bool {
        [Some(&self.default), self.tool_use.as_ref()]
            .into_iter()
            .flatten()
            .any(|compiled| compiled.source.contains(text))
    }

    /// Whether there is a tool_use template that parses.
    pub fn has_tool_use(&self) -> bool {
        self.tool_use.is_some()
    }

    /// Whether the source of a template holds this text.
    pub fn source_holds(&self, text: &str) -> bool {
        [true, false].iter().any(|tools| self.chosen(*tools).source.contains(text))
    }

    /// SHA-256, in hex, of the source that [`caps`](Self::caps) is about, as stored in the file;
    /// None for the built-in one.
    pub fn sha256(&self) -> Option<String> {
        self.sha256.clone()
    }

    /// What the template can carry; of the tool_use template when there is one. Probed at the first
    /// call.
    pub fn caps(&self) -> &CapsReport {
        self.chosen(true).caps()
    }

    /// What the template does with each part of a conversation, and why that is believed; of the
    /// tool_use template when there is one. Probed at the first call.
    pub fn traits(&self) -> &Known {
        self.chosen(true).traits()
    }

    /// The sixteen flags as minja's own algorithm finds them; null where that cannot be computed.
    /// Probed at every call.
    pub fn minja_caps(&self) -> Map<String, serde_json::Value> {
        minja_caps::minja_caps(&self.prober())
    }

    /// How many renders it takes to probe.
    #[cfg(test)]
    fn count_probes(&self) -> u32 {
        let prober = self.prober();
        let renders = prober.count();
        template_caps::report(prober);
        renders.get()
    }

    fn prober(&self) -> Prober {
        self.chosen(true).prober()
    }

    /// The templates of the file that requests are rendered with, without the built-in one.
    fn own(&self) -> impl Iterator<Item = &Compiled> {
        // A file may have a tool_use template alone: it is its own default.
        let default = Some(&self.default).filter(|default| default.name == DEFAULT);
        default.into_iter().chain(&self.tool_use)
    }

    /// What each of the file's templates can carry, and the rest that is known of it, by its name.
    /// Probed at the first call.
    pub fn by_template(&self) -> impl Iterator<Item = (&'static str, &CapsReport, &Known)> {
        self.own().map(|compiled| (compiled.name, compiled.caps(), compiled.traits()))
    }

    /// What one should know of the templates: noticed while compiling, read in the source, or seen
    /// in renders. Probed at the first call.
    pub fn findings(&self) -> &[Finding] {
        self.findings.get_or_init(|| {
            let mut findings = self.noticed.clone();
            if self.default.name == CHATML && self.tool_use.is_none() {
                findings.push(lint::built_in());
            }
            findings.extend(self.own().flat_map(Compiled::findings));
            findings
        })
    }
}

fn sha256(text: &str) -> String {
    Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
}
