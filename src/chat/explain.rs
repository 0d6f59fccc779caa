//! Explains what a request would do: its prompt, its grammar, and how much of the prompt is in the
//! KV cache.

use std::time::Instant;

use serde_json::{Map, Value, json};

use super::Chat;
use super::reply::PreparedReply;
use super::source::{CacheBreak, GenerationRequest};
use crate::api::{ChatRequest, object};
use crate::engine::{Interrupt, PlacedMedia};
use crate::error::Result;

impl Chat {
    /// Returns what a request would do, without generating a token. Waits at most for one decode of
    /// the engine. `CANCELLED` if the chat is cancelled or closed first, or after the time-out of
    /// the request.
    pub fn explain(&self, request: &str) -> Result<Value> {
        self.explain_until(request, Interrupt::default())
    }

    /// Like [`Chat::explain`], with a flag that cancels this call. The request sets the deadline.
    pub(crate) fn explain_until(&self, request: &str, interrupt: Interrupt) -> Result<Value> {
        self.explain_read(|| self.read(request), interrupt)
    }

    /// Like [`Chat::explain`], for a request that is not text.
    pub(crate) fn explain_value(&self, request: Value) -> Result<Value> {
        self.explain_read(|| self.read_value(request), Interrupt::default())
    }

    fn explain_read(
        &self,
        read: impl FnOnce() -> Result<ChatRequest>,
        interrupt: Interrupt,
    ) -> Result<Value> {
        // Reading the request counts.
        let started = Instant::now();
        let request = read()?;
        self.queue.run_beside(&interrupt.cancel)?;
        let deadline = request.output.timeout.map(|timeout| started + timeout);
        let interrupt = Interrupt { deadline, ..interrupt };
        let _use = self.source.begin(&interrupt)?;
        self.explain_request(&request, interrupt)
    }

    fn explain_request(&self, request: &ChatRequest, interrupt: Interrupt) -> Result<Value> {
        let PreparedReply { generation, polyfills_applied, mut diagnostics, .. } =
            self.prepare(request, interrupt)?;
        let preview = self.source.preview(&generation)?;
        let GenerationRequest { prompt, truncation, .. } = generation;
        diagnostics.extend(preview.diagnostics);
        let templates = &self.profile.templates;
        let stop = request.output.stop.iter().chain(self.template_stops());
        let set_by = request.sampling.set_by.iter();
        let set_by = set_by.map(|(name, by)| ((*name).to_owned(), by.as_str().into()));
        let mut explanation = object([
            ("type", "explanation".into()),
            ("prompt", prompt.text.as_str().into()),
            ("spans", prompt.spans_json()),
            ("prompt_tokens", preview.prompt_tokens.into()),
            ("cached_tokens", preview.cached_tokens.into()),
            ("cache_break", preview.cache_break.as_ref().map(CacheBreak::to_json).into()),
            ("special_tokens", preview.special_tokens.into()),
            ("polyfills_applied", polyfills_applied.into()),
            ("caps_used", templates.llama_cpp_caps().caps.to_json()),
            ("template_caps_used", templates.traits().caps.to_json()),
            ("grammar", preview.grammar.into()),
            ("output_format", self.profile.output_format()),
            ("stop", stop.map(String::as_str).collect::<Vec<_>>().into()),
            ("tokens_left", preview.tokens_left.into()),
            ("sampling", preview.sampling.into()),
            ("sampling_set_by", set_by.collect::<Map<_, _>>().into()),
        ]);
        if !preview.media.is_empty() {
            explanation["media"] = preview.media.iter().map(PlacedMedia::to_json).collect();
        }
        if let Some(shift) = preview.context_shift {
            explanation["context_shift"] = shift;
        }
        if let Some(truncation) = truncation {
            explanation["truncated"] = truncation.to_json();
        }
        if !diagnostics.is_empty() {
            explanation["diagnostics"] = json!(diagnostics);
        }
        if !request.ignored_keys.is_empty() {
            explanation["ignored_keys"] = json!(request.ignored_keys);
        }
        Ok(explanation)
    }
}
