//! The source of a chat's replies: [`ReplySource`]. `native` implements it with llama.cpp in this
//! process, and `remote` with completions servers.
//!
//! In: a [`GenerationRequest`]. Out: [`ReplyUpdates`], with the same meaning for both.

use std::ops::Range;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::render::RenderedPrompt;
use crate::api::logprobs::{SampledToken, TokenLogprob};
use crate::api::{ChatRequest, ContextOverflow, LogLevel};
use crate::constraint::ReplyRequirements;
use crate::diagnostic::Diagnostic;
use crate::engine::{
    Interrupt, JobOutcome, Logprob, PlacedMedia, SampledLogprobs, TokenizedPrompt, Vocab,
};
use crate::error::Result;
use crate::llama::ModelUse;
use crate::output::{ControlSpellings, Format};
use crate::profile::ModelProfile;
use crate::template::Prompt;

/// Generates replies, one at a time.
pub(super) trait ReplySource: Send + Sync {
    /// Renders the messages of a request to a prompt that fits the context, leaving out some of
    /// them if necessary. `render` renders a list of messages. Fails with `CANCELLED` when
    /// `interrupt` asks for it.
    fn fit_to_context(
        &self,
        request: &ChatRequest,
        render: &dyn Fn(&[Value]) -> Result<RenderedPrompt>,
        interrupt: &Interrupt,
    ) -> Result<FittedPrompt>;

    /// Begins a request. Whatever it needs stays in memory until the returned value is dropped.
    fn begin(&self, _: &Interrupt) -> Result<Option<ModelUse>> {
        Ok(None)
    }

    fn start(&self, request: GenerationRequest) -> Result<StartedReply>;

    /// Previews what a request would do, without generating a token.
    fn preview(&self, request: &GenerationRequest) -> Result<Preview>;

    /// The spellings of the tokens around a text with a gap. None if there are none, or if they are
    /// unknown.
    fn fill_spellings(&self) -> Option<[String; 3]> {
        None
    }

    /// The special tokens that may begin a call of any family. Empty if the vocabulary is unknown.
    fn special_openings(&self) -> Arc<[String]> {
        Arc::new([])
    }

    /// The control tokens that the text of a reply may contain. None if updates report control
    /// tokens separately, or if they are unknown.
    fn control_spellings(&self) -> Option<Arc<ControlSpellings>> {
        None
    }

    /// Must be called after a reply, with whether it has reasoning. Returns the remaining
    /// diagnostics of the source.
    fn finish(&self, _has_reasoning: bool) -> Vec<Diagnostic> {
        Vec::new()
    }

    /// Takes the pending log lines of at least this level.
    fn take_log(&self, least: LogLevel) -> Vec<(LogLevel, String)>;

    /// Saves the state of the chat. Called when the chat is closed.
    fn save(&self) -> Result<()> {
        Ok(())
    }
}

/// A request, and the prompt that was rendered for it.
pub(super) struct GenerationRequest<'a> {
    pub(super) request: &'a ChatRequest,
    pub(super) prompt: Prompt,
    /// The tokens of the prompt. Empty if a server tokenizes it.
    pub(super) tokenized: TokenizedPrompt,
    pub(super) truncation: Option<Truncation>,
    pub(super) profile: &'a ModelProfile,
    /// Whether the prompt ends inside reasoning.
    pub(super) reasoning_open: bool,
    /// The content at the end of the prompt that the reply continues.
    pub(super) content_before: String,
    /// The strings that end the reply wherever they occur in it, markup and reasoning included.
    pub(super) stop: Vec<String>,
    pub(super) interrupt: Interrupt,
}

impl GenerationRequest<'_> {
    /// The requirements that the reply must meet.
    pub(super) fn requirements(&self) -> ReplyRequirements<'_> {
        let request = self.request;
        ReplyRequirements {
            tools: &request.tools,
            choice: &request.tool_choice,
            parallel: request.output.parallel_tool_calls,
            untagged: request.output.untagged_calls,
            response_format: request.output.response_format.as_ref(),
            bounded: request.output.bound_schema,
            grammar: request.output.grammar.as_deref(),
            reasoning_open: self.reasoning_open,
            content_open: !self.content_before.trim().is_empty(),
            reasons: self.request.plain.is_none() && self.profile.mentions_reasoning(),
        }
    }

    /// The format of the reply; None if it continues a plain prompt.
    pub(super) fn format(&self) -> Option<&Format> {
        self.profile.format().filter(|_| self.request.plain.is_none())
    }
}

/// A prompt that fits the context, and what was left out of it.
pub(super) struct FittedPrompt {
    pub(super) rendered: RenderedPrompt,
    /// The tokens of the prompt. Empty if a server tokenizes it.
    pub(super) tokenized: TokenizedPrompt,
    pub(super) truncation: Option<Truncation>,
}

/// The messages that `context_overflow` left out of a prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Truncation {
    /// The range of message indices in the request.
    pub(super) dropped: Range<usize>,
    pub(super) strategy: ContextOverflow,
    pub(super) prompt_tokens: usize,
    pub(super) n_ctx: usize,
}

impl Truncation {
    /// The JSON `{"strategy", "first_message", "messages", "prompt_tokens", "n_ctx"}`.
    pub(super) fn to_json(&self) -> Value {
        json!({
            "strategy": self.strategy.as_str(),
            "first_message": self.dropped.start,
            "messages": self.dropped.len(),
            "prompt_tokens": self.prompt_tokens,
            "n_ctx": self.n_ctx,
        })
    }

    pub(super) fn diagnostic(&self) -> Diagnostic {
        let (first, last) = (self.dropped.start, self.dropped.end - 1);
        let which = if first == last {
            format!("messages[{first}] is")
        } else {
            format!("messages[{first}] to [{last}] are")
        };
        let message = format!(
            "{which} left out of the prompt, which now has {} tokens: the whole conversation does not fit the context of {} \
             tokens ({})",
            self.prompt_tokens,
            self.n_ctx,
            self.strategy.as_str()
        );
        Diagnostic::new("context_truncated", message)
    }
}

pub(super) struct StartedReply {
    pub(super) updates: Box<dyn ReplyUpdates>,
    /// Whether a grammar constrains the reply.
    pub(super) constrained: bool,
    /// Whether text that looks like a call in another notation counts as a call only if its
    /// arguments match the schema.
    pub(super) validate_calls: bool,
    pub(super) diagnostics: Vec<Diagnostic>,
}

/// A preview of what a request would do. None means that a value is unknown.
pub(super) struct Preview {
    pub(super) prompt_tokens: Option<usize>,
    /// The media in the prompt.
    pub(super) media: Vec<PlacedMedia>,
    pub(super) special_tokens: Option<Vec<String>>,
    pub(super) tokens_left: Option<usize>,
    /// The first context shift of the reply, if the context can be shifted.
    pub(super) context_shift: Option<Value>,
    /// The number of prompt tokens in the KV cache.
    pub(super) cached_tokens: Option<usize>,
    pub(super) cache_break: Option<CacheBreak>,
    pub(super) grammar: Option<String>,
    /// The effective sampling parameters, by name.
    pub(super) sampling: Map<String, Value>,
    pub(super) diagnostics: Vec<Diagnostic>,
}

/// The token at which a prompt differs from the KV cache of the chat, and the reason.
pub(super) struct CacheBreak {
    pub(super) at_token: usize,
    pub(super) because: String,
    /// The member of the request that causes the difference.
    pub(super) path: Option<String>,
}

impl CacheBreak {
    /// The JSON `{"at_token", "because", "path"}`.
    pub(super) fn to_json(&self) -> Value {
        json!({ "at_token": self.at_token, "because": self.because, "path": self.path })
    }
}

/// The updates of a running reply.
pub(super) trait ReplyUpdates {
    /// Waits for the next update. Must not be called again after [`ReplyUpdate::Done`].
    fn next(&mut self) -> Result<ReplyUpdate>;

    /// Ends the generation, because no more of the reply is needed. Further updates come until
    /// [`ReplyUpdate::Done`].
    fn end(&mut self);
}

/// An update of a running reply.
pub(super) enum ReplyUpdate {
    /// Text in whole characters, without the strings in [`GenerationRequest::stop`].
    Piece {
        text: String,
        logprobs: Vec<SampledToken>,
        /// The spelling of a control token after the text, if the source recognizes control tokens.
        control: Option<String>,
        /// The number of generated tokens up to the end of this text. None if it is unknown.
        tokens: Option<usize>,
    },
    /// The end of the reply.
    Done(FinishedReply),
}

/// The diagnostic that the caller has ended the reasoning.
pub(super) fn reasoning_ended() -> Diagnostic {
    Diagnostic::new("reasoning_ended", "the caller ended the reasoning of this reply")
}

/// The result of a finished reply.
pub(super) struct FinishedReply {
    pub(super) outcome: JobOutcome,
    pub(super) prompt_tokens: usize,
    /// Whether `outcome` includes a count of the reasoning tokens.
    pub(super) counts_reasoning: bool,
    /// The number of prompt tokens that were read from disk. `None` if the chat has no store.
    pub(super) disk_tokens: Option<usize>,
    pub(super) diagnostics: Vec<Diagnostic>,
}

/// Adds the bytes of each token. For a control token these are its name, whether it is visible or
/// not.
pub(super) fn with_bytes(vocab: &dyn Vocab, logprobs: &[SampledLogprobs]) -> Vec<SampledToken> {
    let token = |logprob: &Logprob| TokenLogprob {
        bytes: vocab.piece(logprob.token, true),
        logprob: logprob.logprob,
    };
    let sampled = logprobs.iter();
    sampled
        .map(|each| SampledToken {
            sampled: token(&each.sampled),
            top: each.top.iter().map(token).collect(),
        })
        .collect()
}
