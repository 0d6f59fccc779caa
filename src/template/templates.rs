//! The templates of one model: which of them renders a request, and what they can carry.

use std::sync::OnceLock;

use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use super::compiled::CompiledTemplate;
use super::lint::{self, Lint};
use super::probe::llama_cpp_caps::LlamaCppCapsReport;
use super::probe::minja_caps::minja_caps;
use super::probe::prober::{self, Prober};
use super::probe::traits::{Traits, TraitsReport};
use super::sources::{CHATML, CHATML_SOURCE, DEFAULT, TOOL_USE};
use super::{Prompt, RenderInput, Sources, probe_time};
use crate::error::Result;
use crate::probing::Probe;

/// The compiled templates of one model: its default, and its tool_use template if it has one.
#[derive(Debug)]
pub struct Templates {
    /// The template for requests without tools.
    default: CompiledTemplate,
    tool_use: Option<CompiledTemplate>,
    bos_token: String,
    eos_token: String,
    sha256: Option<String>,
    /// The lints found while compiling.
    compile_lints: Vec<Lint>,
    lints: OnceLock<Vec<Lint>>,
}

impl Templates {
    /// The text of the vocabulary's end-of-sequence token; may be empty.
    pub fn eos_token(&self) -> &str {
        &self.eos_token
    }

    /// Compiles the templates of the file, or the built-in ChatML if the file has none.
    ///
    /// A default that does not parse is `TEMPLATE_ERROR` with
    /// `{"kind":"syntax","line","template":"default"}`. A tool_use template that does not parse is
    /// ignored, with a lint.
    pub fn compile(sources: &Sources) -> Result<Templates> {
        let mut compile_lints = Vec::new();
        let tool_use = sources.own_tool_use().and_then(|text| {
            CompiledTemplate::new(TOOL_USE, text, sources.host)
                .map_err(|failure| compile_lints.push(lint::tool_use_ignored(&failure)))
                .ok()
        });
        let (name, text) = match (sources.own_default(), sources.own_tool_use()) {
            (Some(text), _) => (DEFAULT, text),
            (None, Some(text)) if tool_use.is_some() => (TOOL_USE, text),
            (None, _) => (CHATML, CHATML_SOURCE),
        };
        let default = CompiledTemplate::new(name, text, sources.host)
            .map_err(|failure| failure.into_error(name))?;
        let own = tool_use.as_ref().map(|compiled| &*compiled.source).or(sources.own_default());
        Ok(Templates {
            bos_token: sources.bos_token.clone(),
            eos_token: sources.eos_token.clone(),
            sha256: own.map(sha256),
            default,
            tool_use,
            compile_lints,
            lints: OnceLock::new(),
        })
    }

    /// Renders a prompt, with the tool_use template if it exists and tools are given, else with the
    /// default.
    ///
    /// `TEMPLATE_ERROR` or `TEMPLATE_LIMIT` with `{"kind","line","template"}`. A refusal by
    /// `raise_exception` has kind `raised` and the template's own message.
    pub fn render(&self, input: &RenderInput<'_>) -> Result<Prompt> {
        self.for_tools(input).render(input, self.tokens(), |_, _| ())
    }

    /// Like [`render`](Self::render), for learning something about the template: it has the limits
    /// of a probe, and fails once the probes of this template have used too much.
    pub fn probe(&self, input: &RenderInput<'_>) -> Result<Prompt> {
        let chosen = self.for_tools(input);
        chosen.usage.check().map_err(|failure| chosen.error(failure))?;
        let input = RenderInput { limits: prober::limits(), ..*input };
        chosen.render(&input, self.tokens(), |rendered, cost| chosen.usage.record(rendered, cost))
    }

    /// The prompt of a probe, within the limits of [`probe`](Self::probe).
    pub(crate) fn render_probe(&self, probe: &Probe) -> Result<String> {
        let variables =
            probe.kwargs.iter().map(|(name, value)| ((*name).to_owned(), value.clone()));
        let kwargs: Map<String, Value> = variables.collect();
        let input = RenderInput {
            kwargs: (!kwargs.is_empty()).then_some(&kwargs),
            tools: probe.tool_list(),
            skills: probe.skills.as_deref(),
            add_generation_prompt: probe.add_generation_prompt,
            ..RenderInput::new(&probe.messages, probe_time(probe.later))
        };
        self.probe(&input).map(|prompt| prompt.text)
    }

    fn chosen(&self, has_tools: bool) -> &CompiledTemplate {
        match &self.tool_use {
            Some(tool_use) if has_tools => tool_use,
            _ => &self.default,
        }
    }

    /// The texts of the BOS and EOS tokens.
    fn tokens(&self) -> [&str; 2] {
        [&self.bos_token, &self.eos_token]
    }

    fn for_tools(&self, input: &RenderInput<'_>) -> &CompiledTemplate {
        self.chosen(input.tools.is_some_and(|tools| !tools.is_empty()))
    }

    /// The template that requests are rendered with: `default`, `tool_use`, or `chatml` (the
    /// built-in one).
    pub fn variant(&self, has_tools: bool) -> &'static str {
        self.chosen(has_tools).name
    }

    /// Whether the file has a tool_use template that parses.
    pub fn has_tool_use(&self) -> bool {
        self.tool_use.is_some()
    }

    /// Whether the source of any of the templates contains this text.
    pub fn source_contains(&self, text: &str) -> bool {
        [true, false].iter().any(|tools| self.chosen(*tools).source.contains(text))
    }

    /// The string literals at which the source of any of the templates searches, splits or replaces
    /// other text, in source order.
    pub(crate) fn cuts(&self) -> Vec<String> {
        let templates = [Some(&self.default), self.tool_use.as_ref()].into_iter().flatten();
        let sites = templates.flat_map(|compiled| compiled.template.inspect().cuts);
        sites.map(|site| site.text).collect()
    }

    /// The SHA-256, in hex, of the source that the capabilities describe, as stored in the file.
    /// `None` for the built-in template.
    pub fn sha256(&self) -> Option<String> {
        self.sha256.clone()
    }

    /// llama.cpp's nine flags, of the tool_use template if the file has one. Probed on the first
    /// call.
    pub fn llama_cpp_caps(&self) -> &LlamaCppCapsReport {
        self.chosen(true).llama_cpp_caps()
    }

    /// What the template does with each part of a conversation. It describes the tool_use template
    /// if the file has one. Probed on the first call.
    pub fn traits(&self) -> &Traits {
        &self.traits_report().traits
    }

    /// [`traits`](Self::traits) with the evidence of each flag.
    pub fn traits_report(&self) -> &TraitsReport {
        self.chosen(true).traits()
    }

    /// The sixteen flags computed with minja's own algorithm; null where that is impossible. Probed
    /// on every call.
    pub fn minja_caps(&self) -> Map<String, Value> {
        minja_caps(&self.prober())
    }

    /// The number of renders that probing needs.
    #[cfg(test)]
    pub(super) fn count_probes(&self) -> u32 {
        let prober = self.prober();
        let renders = prober.count();
        super::probe::template_caps::report(prober);
        renders.get()
    }

    fn prober(&self) -> Prober {
        self.chosen(true).prober()
    }

    /// The templates of the file that render requests, without the built-in one.
    fn own(&self) -> impl Iterator<Item = &CompiledTemplate> {
        // A file may have only a tool_use template, which then is also the default.
        let default = Some(&self.default).filter(|default| default.name == DEFAULT);
        default.into_iter().chain(&self.tool_use)
    }

    /// The name and the capabilities of each of the file's templates. Probed on the first call.
    pub fn by_template(
        &self,
    ) -> impl Iterator<Item = (&'static str, &LlamaCppCapsReport, &TraitsReport)> {
        self.own().map(|compiled| (compiled.name, compiled.llama_cpp_caps(), compiled.traits()))
    }

    /// The lints of all templates: from compiling, from their sources and from their renders.
    /// Probed on the first call.
    pub fn lints(&self) -> &[Lint] {
        self.lints.get_or_init(|| {
            let mut lints = self.compile_lints.clone();
            if self.default.name == CHATML && self.tool_use.is_none() {
                lints.push(lint::built_in());
            }
            lints.extend(self.own().flat_map(CompiledTemplate::lints));
            lints
        })
    }
}

pub(super) fn sha256(text: &str) -> String {
    Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
}
