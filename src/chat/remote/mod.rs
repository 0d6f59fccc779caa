//! Replies from completions servers.
//!
//! [`RemoteSource`] is for servers that only send text. Stop strings, the end of a turn and token
//! counts are made to match those of the engine in this process. [`TokenSource`] is for servers that
//! exchange token ids.

mod constraint_form;
mod reply;
mod token_reply;
mod token_source;

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::media::check_text_only;
use super::render::{RenderedPrompt, plain_ranges};
use super::reply_constraint::ReplyConstraint;
use super::source::{FittedPrompt, GenerationRequest, Preview, ReplySource, StartedReply};
use crate::api::{
    ChatRequest, Constraints, CreateOptions, LogLevel, PlainPrompt, RemoteOptions, ServerKind,
};
use crate::constraint::{self, ReplyRequirements, SpecialTokenFinder};
use crate::diagnostic::Diagnostic;
use crate::engine::{Interrupt, TokenizedPrompt};
use crate::error::{Code, Error, Result};
use crate::output::{ControlSpellings, Format};
use crate::remote::{
    CallError, CallLimits, CompletionRequest, ConstraintForms, Remote, ServerConstraint,
    SpecialSpellings, is_refusal,
};
use crate::template::Sources;
use constraint_form::{ReplyForms, constrain, refused, requires_anything, unenforceable};
use reply::RemoteReply;
pub(super) use token_source::TokenSource;

/// The maximum time that a preview waits for servers.
const PREVIEW_TIMEOUT: Duration = Duration::from_secs(30);
/// The maximum number of tokens of a reply if the server ends it when the context is full.
const MAX_ROOM: usize = 1 << 20;
/// The maximum number of tokens of a reply if the context of the server is unknown.
const UNKNOWN_ROOM: usize = 256;

/// A chat whose replies come from servers.
pub(super) struct RemoteSource {
    remote: Arc<Remote>,
    constraints: Constraints,
    n_ctx: Option<usize>,
    /// The text of the model's end-of-turn token. Empty if it is unknown.
    eos: String,
    /// The control tokens, if they are known from a vocabulary and not only from a template.
    vocabulary: Option<Arc<ControlSpellings>>,
}

impl RemoteSource {
    /// Creates the source without contacting a server. `vocabulary` is the spellings of the control
    /// tokens, if there is a vocabulary.
    pub(super) fn new(
        options: &CreateOptions,
        engine: &RemoteOptions,
        sources: &Sources,
        vocabulary: Vec<String>,
    ) -> Result<RemoteSource> {
        let has_vocabulary = !vocabulary.is_empty();
        let known = has_vocabulary.then(|| Arc::new(ControlSpellings::new(vocabulary.clone())));
        let mut spellings = vocabulary;
        if !has_vocabulary {
            let templates = [sources.default.as_deref(), sources.tool_use.as_deref()];
            spellings
                .extend(templates.into_iter().flatten().flat_map(SpecialSpellings::in_template));
            spellings.extend([sources.bos_token.clone(), sources.eos_token.clone()]);
        }
        Ok(RemoteSource {
            remote: Arc::new(Remote::open(
                engine,
                SpecialSpellings::new(spellings),
                Some(sources.bos_token.clone()),
            )?),
            constraints: engine.constraints,
            n_ctx: options.context.n_ctx.map(|n_ctx| n_ctx as usize),
            eos: sources.eos_token.clone(),
            vocabulary: known,
        })
    }

    fn try_start(
        &self,
        generation: &GenerationRequest,
        limits: &CallLimits,
    ) -> Result<StartedReply, CallError> {
        let GenerationRequest { request, prompt, .. } = generation;
        let (ReplyConstraint { mut diagnostics, .. }, form) =
            self.constraint(generation, None, limits)?;
        let plain = plain_ranges(generation.request, &generation.prompt);
        if let Some(n_ctx) = self.n_ctx
            && let Some(count) = self.remote.count_tokens(&prompt.text, &plain, limits)?
        {
            check_fits(count, n_ctx)?;
        }
        let specials = self.remote.specials();
        let mut visible: Vec<String> = format_texts(generation)
            .iter()
            .flat_map(|text| specials.in_text(text))
            .map(|(_, spelling)| spelling.to_owned())
            .collect();
        visible.sort_unstable();
        visible.dedup();
        let mut ask = CompletionRequest {
            max_tokens: match request.output.max_tokens {
                Some(tokens) => tokens,
                None => self.room(&prompt.text, &plain, limits)?,
            },
            sampling: request.sampling.clone(),
            stop: generation.stop.clone(),
            logprobs: request.output.logprobs,
            cache_prompt: request.prompt.cache_prompt,
            lora: request.output.lora.clone(),
            speculative: request.output.speculative,
            visible,
            constraint: form,
        };
        let sent = Instant::now();
        let send =
            |ask: &CompletionRequest| self.remote.complete(&prompt.text, &plain, ask, limits);
        let (completion, left_out) = match send(&ask) {
            Err(error) if ask.constraint.is_some() && is_refusal(&error) => {
                diagnostics = refused(generation, &error)?.diagnostics;
                ask.constraint = None;
                send(&ask)?
            }
            sent => sent?,
        };
        let constrained = ask.constraint.is_some();
        diagnostics.extend(not_carried(&left_out));
        if request.output.reasoning_budget.is_some()
            || !request.output.reasoning_budget_message.is_empty()
        {
            diagnostics.push(Diagnostic::new(
                "reasoning_budget_ignored",
                "reasoning_budget: servers have no means to end a model's reasoning",
            ));
        }
        let stop = generation.stop.clone();
        let end_reasoning = Arc::clone(&generation.interrupt.end_reasoning);
        let reply = RemoteReply::new(completion, limits.clone(), stop, self.eos.clone(), sent)
            .reporting(end_reasoning);
        Ok(StartedReply {
            updates: Box::new(reply),
            constrained,
            validate_calls: !request.tools.is_empty() && !request.tool_choice.forces_call(),
            diagnostics,
        })
    }

    /// The maximum number of tokens of a reply to this prompt, for a request that sets none.
    /// Servers have defaults of their own, which are as low as 16.
    fn room(
        &self,
        prompt: &str,
        plain: &[Range<usize>],
        limits: &CallLimits,
    ) -> Result<usize, CallError> {
        let known = self.remote.known(limits)?;
        let n_ctx = self.n_ctx.or(known.n_ctx);
        if known.kind == ServerKind::Llama {
            // This server ends a reply that fills its context.
            return Ok(n_ctx.unwrap_or(MAX_ROOM));
        }
        let Some(n_ctx) = n_ctx else { return Ok(UNKNOWN_ROOM) };
        let count = self.remote.count_tokens(prompt, plain, limits)?;
        Ok(count.map_or(UNKNOWN_ROOM, |count| n_ctx.saturating_sub(count).max(1)))
    }

    /// The reply constraint, and its form if the servers accept one. `forms` is what they accept; if
    /// it is None, they are asked.
    fn constraint(
        &self,
        generation: &GenerationRequest,
        forms: Option<ConstraintForms>,
        limits: &CallLimits,
    ) -> Result<(ReplyConstraint, Option<ServerConstraint>), CallError> {
        let requirements = generation.requirements();
        if !requires_anything(&requirements) {
            return Ok((ReplyConstraint::default(), None));
        }
        let kind = match self.constraints {
            Constraints::None => ServerKind::OpenAi,
            Constraints::Llguidance | Constraints::Auto => self.remote.known(limits)?.kind,
        };
        if let Some(why) = unenforceable(self.constraints, kind, &requirements) {
            return Ok((ReplyConstraint::unenforced(generation, why)?, None));
        }
        // The grammar refers to special tokens by the server's token ids. Their spellings would be
        // plain text.
        let mut tokens = HashMap::new();
        let specials = self.remote.specials();
        for text in format_texts(generation) {
            for (_, spelling) in specials.in_text(text) {
                if let Some(token) = self
                    .remote
                    .control(spelling, limits)?
                    .and_then(|token| i32::try_from(token).ok())
                {
                    tokens.insert(spelling.to_owned(), token);
                }
            }
        }
        let controls = |text: &str| {
            let found = specials.in_text(text).into_iter();
            found.filter_map(|(range, spelling)| Some((range, *tokens.get(spelling)?))).collect()
        };
        let format = generation.format();
        let grammar = |requirements: &ReplyRequirements| {
            constraint::reply_grammar(format, requirements, &controls)
        };
        let forms = ReplyForms {
            accepted: forms.map_or_else(|| self.forms(limits), Ok)?,
            grammar: &grammar,
            reasoning: reasoning_of(format, &controls),
        };
        Ok(constrain(generation, &forms)?)
    }

    /// The forms of constraints that the servers accept.
    fn forms(&self, limits: &CallLimits) -> Result<ConstraintForms, CallError> {
        match self.constraints {
            Constraints::Llguidance => Ok(ConstraintForms::LLGUIDANCE),
            Constraints::Auto => self.remote.constraint_forms(limits),
            Constraints::None => Ok(ConstraintForms::default()),
        }
    }
}

impl ReplySource for RemoteSource {
    /// Renders all messages. [`RemoteSource::try_start`] and the server check the length.
    fn fit_to_context(
        &self,
        request: &ChatRequest,
        render: &dyn Fn(&[Value]) -> Result<RenderedPrompt>,
        _: &Interrupt,
    ) -> Result<FittedPrompt> {
        if matches!(request.plain, Some(PlainPrompt::Tokens(_))) {
            let problem = "a server is sent text; send the text instead of token ids";
            return Err(Error::invalid("prompt", problem));
        }
        check_text_only(request)?;
        let rendered = render(&request.messages)?;
        Ok(FittedPrompt { rendered, tokenized: TokenizedPrompt::default(), truncation: None })
    }

    fn control_spellings(&self) -> Option<Arc<ControlSpellings>> {
        self.vocabulary.clone()
    }

    /// Waits for the first text.
    fn start(&self, generation: GenerationRequest) -> Result<StartedReply> {
        started(limits_of(&generation.interrupt), |limits| self.try_start(&generation, limits))
    }

    /// Members that only the server knows are absent if it does not answer.
    fn preview(&self, generation: &GenerationRequest) -> Result<Preview> {
        let deadline = Instant::now().checked_add(PREVIEW_TIMEOUT);
        let limits = CallLimits { cancel: generation.interrupt.cancel.clone(), deadline };
        let failed = |stopped| match stopped {
            CallError::Failed(error) => error,
            CallError::Over => {
                Error::new(Code::InferenceFailed, "the server did not answer in time")
            }
        };
        let (ReplyConstraint { grammar, mut diagnostics, .. }, _) = self
            .constraint(generation, Some(ConstraintForms::LLGUIDANCE), &limits)
            .map_err(failed)?;
        let prompt = &generation.prompt.text;
        let plain = plain_ranges(generation.request, &generation.prompt);
        let counted = self.remote.count_tokens(prompt, &plain, &limits).map_err(failed);
        let prompt_tokens = counted.unwrap_or_else(|error| {
            let message =
                format!("the tokens of the prompt could not be counted: {}", error.message());
            diagnostics.push(Diagnostic::new("prompt_tokens_unknown", message));
            None
        });
        let server_n_ctx = prompt_tokens
            .and_then(|_| self.remote.known(&limits).ok())
            .and_then(|known| known.n_ctx);
        let n_ctx = self.n_ctx.or(server_n_ctx);
        if let (Some(count), Some(n_ctx)) = (prompt_tokens, n_ctx) {
            check_fits(count, n_ctx)?;
        }
        Ok(Preview {
            prompt_tokens,
            media: Vec::new(),
            special_tokens: self
                .vocabulary
                .as_ref()
                .map(|_| self.remote.specials().of_template(prompt, &plain)),
            tokens_left: prompt_tokens.and_then(|count| n_ctx?.checked_sub(count)),
            context_shift: None,
            cached_tokens: None,
            cache_break: None,
            grammar,
            sampling: generation.request.sampling.to_json(),
            diagnostics,
        })
    }

    fn take_log(&self, least: LogLevel) -> Vec<(LogLevel, String)> {
        let notes = self.remote.take_notes().into_iter().filter(|_| least <= LogLevel::Warn);
        notes.map(|note| (LogLevel::Warn, note)).collect()
    }
}

/// The limits of a call.
fn limits_of(interrupt: &Interrupt) -> CallLimits {
    CallLimits { cancel: Arc::clone(&interrupt.cancel), deadline: interrupt.deadline }
}

/// Starts a reply. One that was cancelled before it began is empty.
fn started(
    limits: CallLimits,
    start: impl FnOnce(&CallLimits) -> Result<StartedReply, CallError>,
) -> Result<StartedReply> {
    match start(&limits) {
        Ok(started) => Ok(started),
        Err(CallError::Failed(error)) => Err(error),
        Err(CallError::Over) => Ok(StartedReply {
            updates: Box::new(RemoteReply::cancelled(limits)),
            constrained: false,
            validate_calls: false,
            diagnostics: Vec::new(),
        }),
    }
}

/// The diagnostic about members that the server does not support.
fn not_carried(left_out: &[&str]) -> Option<Diagnostic> {
    let message = || {
        let names = left_out.join(", ");
        format!("{names}: the server has no such field; the request was sent without")
    };
    (!left_out.is_empty()).then(|| Diagnostic::new("not_carried", message()))
}

/// The tags of reasoning, if both are ordinary text.
fn reasoning_of(format: Option<&Format>, controls: SpecialTokenFinder) -> Option<(String, String)> {
    let tags = format.and_then(Format::reasoning_tags);
    tags.filter(|(open, close)| controls(open).is_empty() && controls(close).is_empty())
}

fn format_texts<'a>(generation: &'a GenerationRequest) -> Vec<&'a str> {
    generation.format().map(|format| format.texts()).unwrap_or_default()
}

fn check_fits(count: usize, n_ctx: usize) -> Result<()> {
    if count < n_ctx {
        return Ok(());
    }
    let message =
        format!("the prompt has {count} tokens, but the context has {n_ctx}; shorten the messages");
    Err(Error::new(Code::ContextOverflow, message)
        .with("prompt_tokens", count)
        .with("n_ctx", n_ctx))
}
