//! A compiled template and its capabilities, which are probed on first use.

use std::sync::{Arc, OnceLock};

use super::environment;
use super::failure::Failure;
use super::host::HostWork;
use super::lint::{self, Lint};
use super::probe::llama_cpp_caps::{self, LlamaCppCapsReport};
use super::probe::prober::Prober;
use super::probe::template_caps;
use super::probe::traits::TraitsReport;
use super::probe::usage::ProbeUsage;
use crate::error::Error;
use crate::jinja::Template;

/// A compiled template, and the name that error messages use for it.
#[derive(Debug)]
pub(super) struct CompiledTemplate {
    pub(super) name: &'static str,
    pub(super) source: Arc<str>,
    pub(super) host: HostWork,
    pub(super) template: Arc<Template>,
    llama_cpp_caps: OnceLock<LlamaCppCapsReport>,
    traits: OnceLock<TraitsReport>,
    /// What all probers of the template have used.
    pub(super) usage: Arc<ProbeUsage>,
}

impl CompiledTemplate {
    pub(super) fn new(
        name: &'static str,
        source: &str,
        host: HostWork,
    ) -> Result<CompiledTemplate, Failure> {
        Ok(CompiledTemplate {
            name,
            source: source.into(),
            host,
            template: Arc::new(environment::compile(source)?),
            llama_cpp_caps: OnceLock::new(),
            traits: OnceLock::new(),
            usage: Arc::default(),
        })
    }

    /// Converts a failure of this template to the crate's error.
    pub(super) fn error(&self, failure: Failure) -> Error {
        failure.into_error(self.name)
    }

    pub(super) fn prober(&self) -> Prober {
        Prober::new(&self.template, &self.source, self.host, &self.usage)
    }

    pub(super) fn llama_cpp_caps(&self) -> &LlamaCppCapsReport {
        self.llama_cpp_caps.get_or_init(|| llama_cpp_caps::report(self.prober()))
    }

    pub(super) fn traits(&self) -> &TraitsReport {
        self.traits.get_or_init(|| template_caps::report(self.prober()))
    }

    pub(super) fn lints(&self) -> Vec<Lint> {
        lint::review(self.name, self.prober(), &self.template.inspect(), &self.traits().traits)
    }
}
