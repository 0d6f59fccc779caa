//! Replies from vLLM or SGLang as token ids (`engine.type` "vllm" or "sglang").
//!
//! The vocabulary of the model file turns the prompt into tokens and the reply into text, as for a
//! model in this process: special tokens, stop strings, log probabilities and reasoning budgets
//! work the same. A server that returns only text is used as [`RemoteSource`] does.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::constraint_form::{ReplyForms, constrain, refused, requires_anything, unenforceable};
use super::token_reply::{RemoteTokenReply, TokenRequest};
use super::{
    PREVIEW_TIMEOUT, RemoteSource, UNKNOWN_ROOM, check_fits, limits_of, not_carried, reasoning_of,
    started,
};
use crate::api::{ChatRequest, LogLevel, ServerKind, TokenOptions, TokenProtocol};
use crate::chat::format_tokens::FormatTokens;
use crate::chat::media::check_text_only;
use crate::chat::plain_prompt::given_tokens;
use crate::chat::render::{RenderedPrompt, tokenize};
use crate::chat::reply_constraint::ReplyConstraint;
use crate::chat::source::{FittedPrompt, GenerationRequest, Preview, ReplySource, StartedReply};
use crate::constraint::{self, ReplyRequirements};
use crate::engine::{Interrupt, ReasoningWatch, TokenId, TokenizedPrompt, Vocab};
use crate::error::{Code, Error, Result};
use crate::output::{ControlSpellings, Format};
use crate::remote::{
    CallError, CallLimits, CompletionRequest, ConstraintForms, PrefixHash, ServerConstraint,
    TokenExchange, TokenRoute, is_refusal,
};
use crate::sync::lock;
use crate::template::Prompt;

/// The maximum time that the creation of a chat waits for servers.
const CREATE_TIMEOUT: Duration = Duration::from_secs(10);
/// A text that vocabularies of different models tokenize differently.
const SAMPLE: &str = "The quick brown fox, 12345 times: na\u{ef}ve \u{6771}\u{4eac} \u{1F600}\n\tif (x == 0) { return \"ok\"; }";
/// The bytes at the beginning of a prompt without messages that tell conversations apart.
const MAX_PREFIX: usize = 1024;
/// The maximum number of control tokens to compare.
const MAX_COMPARED: usize = 64;

/// How the servers of a chat reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReplyRoute {
    Tokens(TokenRoute),
    /// The server returns no token ids.
    Text,
}

/// A chat whose replies come from servers as token ids.
pub(in crate::chat) struct TokenSource {
    text: RemoteSource,
    vocabulary: Arc<dyn Vocab>,
    format_tokens: FormatTokens,
    /// The tokens that end a reply.
    end_tokens: Arc<[TokenId]>,
    options: TokenOptions,
    /// None until a server has answered.
    route: Mutex<Option<ReplyRoute>>,
}

impl TokenSource {
    /// Creates the source. If a server can be reached, its vocabulary is compared with that of
    /// `model`; otherwise this happens before the first request.
    pub(in crate::chat) fn new(
        text: RemoteSource,
        options: &TokenOptions,
        vocabulary: Arc<dyn Vocab>,
        format: Option<&Format>,
    ) -> Result<TokenSource> {
        let vocab = &*vocabulary;
        let tokens = 0..TokenId::try_from(vocab.len()).unwrap_or(TokenId::MAX);
        let source = TokenSource {
            text,
            format_tokens: FormatTokens::new(format, vocab.special_tokens()),
            end_tokens: tokens.filter(|token| vocab.is_end_of_generation(*token)).collect(),
            options: options.clone(),
            route: Mutex::default(),
            vocabulary,
        };
        let deadline = Instant::now().checked_add(CREATE_TIMEOUT);
        match source.route(&CallLimits { deadline, ..CallLimits::default() }) {
            // The vocabularies differ.
            Err(CallError::Failed(error)) if error.code() == Code::InvalidRequest => Err(error),
            // Servers may start later.
            _ => Ok(source),
        }
    }

    fn vocab(&self) -> &dyn Vocab {
        &*self.vocabulary
    }

    /// How the servers reply. The first call that reaches a server compares the vocabularies.
    fn route(&self, limits: &CallLimits) -> Result<ReplyRoute, CallError> {
        if let Some(route) = *lock(&self.route) {
            return Ok(route);
        }
        self.check_vocabulary(limits)?;
        let sample = self.vocab().tokenize(SAMPLE, false, &Interrupt::default())?;
        let route = self.text.remote.token_route(&self.exchange(&sample), limits)?;
        let route = match (route, self.options.protocol) {
            (Some(route), _) => ReplyRoute::Tokens(route),
            (None, TokenProtocol::Vllm) => ReplyRoute::Text,
            (None, TokenProtocol::Sglang) => {
                let problem = "the servers have no /generate that returns token ids; check that they \
                               run SGLang";
                return Err(Error::new(Code::InferenceFailed, problem).into());
            }
        };
        *lock(&self.route) = Some(route);
        Ok(route)
    }

    fn exchange<'a>(&'a self, prompt: &'a [TokenId]) -> TokenExchange<'a> {
        TokenExchange { prompt, end_tokens: &self.end_tokens, options: &self.options, prefix: None }
    }

    /// `INVALID_REQUEST` if the server reads a text as other tokens than the file. A server without
    /// `/tokenize` is not checked.
    fn check_vocabulary(&self, limits: &CallLimits) -> Result<(), CallError> {
        let special = self.vocab().special_tokens();
        let tokens = 0..TokenId::try_from(self.vocab().len()).unwrap_or(TokenId::MAX);
        let controls = tokens.filter_map(|token| {
            let spelling = special.reserved(token)?;
            let found = special.controls_in(spelling);
            (found == [(0..spelling.len(), token)]).then_some((spelling, token))
        });
        let (spellings, ids): (Vec<&str>, Vec<TokenId>) = controls.take(MAX_COMPARED).unzip();
        let sample = self.vocab().tokenize(SAMPLE, false, &Interrupt::default())?;
        for (text, ours) in [(SAMPLE, sample), (&spellings.concat(), ids)] {
            if text.is_empty() {
                continue;
            }
            let Some(theirs) = self.text.remote.server_tokens(text, limits)? else { return Ok(()) };
            let ours: Vec<i64> = ours.into_iter().map(i64::from).collect();
            if ours == theirs {
                continue;
            }
            let at = ours.iter().zip(&theirs).take_while(|(a, b)| a == b).count();
            let shown = |tokens: &[i64]| match tokens.get(at) {
                Some(token) => format!("{token}"),
                None => "its end".to_owned(),
            };
            let problem = format!(
                "the server's model has another vocabulary: in {text:?}, token {at} is {} for the \
                 server and {} in this file; use the file of the server's model",
                shown(&theirs),
                shown(&ours)
            );
            return Err(Error::invalid("model", problem).into());
        }
        Ok(())
    }

    /// The context size: that of the options, or else that of the servers.
    fn n_ctx(&self, limits: &CallLimits) -> Result<Option<usize>, CallError> {
        match self.text.n_ctx {
            Some(n_ctx) => Ok(Some(n_ctx)),
            None => Ok(self.text.remote.known(limits)?.n_ctx),
        }
    }

    /// The reply constraint, and its form if the servers accept one.
    fn constraint(
        &self,
        generation: &GenerationRequest,
        forms: ConstraintForms,
    ) -> Result<(ReplyConstraint, Option<ServerConstraint>)> {
        let requirements = generation.requirements();
        match unenforceable(self.text.constraints, ServerKind::Vllm, &requirements) {
            Some(why) => Ok((ReplyConstraint::unenforced(generation, why)?, None)),
            None => self.with_forms(generation, forms, |forms| constrain(generation, forms)),
        }
    }

    fn with_forms<T>(
        &self,
        generation: &GenerationRequest,
        accepted: ConstraintForms,
        then: impl FnOnce(&ReplyForms) -> T,
    ) -> T {
        let special = self.vocab().special_tokens();
        let controls = |text: &str| special.controls_in(text);
        let format = generation.format();
        let grammar = |requirements: &ReplyRequirements| {
            constraint::reply_grammar(format, requirements, &controls)
        };
        let reasoning = reasoning_of(format, &controls);
        then(&ReplyForms { accepted, grammar: &grammar, reasoning })
    }

    fn try_start(
        &self,
        generation: &GenerationRequest,
        limits: &CallLimits,
    ) -> Result<StartedReply, CallError> {
        let route = match self.route(limits)? {
            ReplyRoute::Text => return self.text.try_start(generation, limits),
            ReplyRoute::Tokens(route) => route,
        };
        let GenerationRequest { request, interrupt, .. } = generation;
        let forms = match requires_anything(&generation.requirements()) {
            true => self.text.forms(limits)?,
            false => ConstraintForms::default(),
        };
        let (ReplyConstraint { mut diagnostics, .. }, form) = self.constraint(generation, forms)?;
        let prompt = generation.tokenized.tokens.clone();
        let n_ctx = self.n_ctx(limits)?;
        n_ctx.map_or(Ok(()), |n_ctx| check_fits(prompt.len(), n_ctx))?;
        let room = n_ctx.map(|n_ctx| n_ctx.saturating_sub(prompt.len()).max(1));
        let max_tokens = match (request.output.max_tokens, room) {
            (Some(tokens), Some(room)) => tokens.min(room),
            (tokens, room) => tokens.or(room).unwrap_or(UNKNOWN_ROOM),
        };
        let context = (self.vocab(), n_ctx.unwrap_or(usize::MAX));
        let inside = generation.reasoning_open;
        let reasoning = self.format_tokens.reasoning(context, request, inside, interrupt)?;
        // What must follow the reasoning, if that must be ended.
        let after_reasoning = match (&form, &reasoning) {
            (Some(_), Some(_)) => self.with_forms(generation, forms, |forms| {
                forms.after_reasoning(&generation.requirements())
            })?,
            _ => None,
        };
        let request = TokenRequest {
            remote: Arc::clone(&self.text.remote),
            route,
            prompt,
            end_tokens: Arc::clone(&self.end_tokens),
            options: self.options.clone(),
            prefix: request.prompt.cache_prompt.then(|| prefix_of(request, &generation.prompt)),
            ask: CompletionRequest {
                max_tokens,
                sampling: request.sampling.clone(),
                stop: Vec::new(),
                logprobs: request.output.logprobs,
                cache_prompt: request.prompt.cache_prompt,
                lora: request.output.lora.clone(),
                speculative: request.output.speculative,
                visible: Vec::new(),
                constraint: form,
            },
            after_reasoning,
        };
        let visible = self.format_tokens.visible(generation.request);
        let watch = reasoning.map(ReasoningWatch::new);
        let mut reply = RemoteTokenReply::new(
            (request, Arc::clone(&self.vocabulary)),
            (generation.stop.clone(), visible),
            watch,
            interrupt,
        );
        let left_out = match reply.begin() {
            Err(error) if reply.is_constrained() && is_refusal(&error) => {
                diagnostics = refused(generation, &error)?.diagnostics;
                reply.drop_constraint();
                reply.begin()?
            }
            begun => begun?,
        };
        let constrained = reply.is_constrained();
        diagnostics.extend(not_carried(&left_out));
        let request = generation.request;
        Ok(StartedReply {
            updates: Box::new(reply),
            constrained,
            validate_calls: !request.tools.is_empty() && !request.tool_choice.forces_call(),
            diagnostics,
        })
    }

    /// Whether the servers are known to return only text.
    fn is_text(&self) -> bool {
        *lock(&self.route) == Some(ReplyRoute::Text)
    }
}

/// The hash of the beginning of a conversation: its prompt up to the end of the first user message,
/// or its first bytes if that cannot be found. Later requests of the conversation have it too.
fn prefix_of(request: &ChatRequest, prompt: &Prompt) -> PrefixHash {
    let first = request.messages.iter().position(|message| message["role"] == "user");
    let path = first.map(|index| format!("messages[{index}]"));
    let end = path.and_then(|path| prompt.spans.iter().rfind(|span| span.path.starts_with(&path)));
    let end = end.map_or(MAX_PREFIX, |span| span.end).min(prompt.text.len());
    let boundary = (0..=end).rev().find(|at| prompt.text.is_char_boundary(*at));
    PrefixHash::of(&prompt.text[..boundary.unwrap_or(0)])
}

impl ReplySource for TokenSource {
    /// Renders and tokenizes all messages. [`TokenSource::try_start`] checks the length.
    fn fit_to_context(
        &self,
        request: &ChatRequest,
        render: &dyn Fn(&[Value]) -> Result<RenderedPrompt>,
        interrupt: &Interrupt,
    ) -> Result<FittedPrompt> {
        match self.route(&limits_of(interrupt)) {
            Ok(ReplyRoute::Text) => return self.text.fit_to_context(request, render, interrupt),
            Err(CallError::Over) => {
                let message = "cancelled before a server has answered";
                return Err(Error::new(Code::Cancelled, message));
            }
            Err(CallError::Failed(error)) if error.code() == Code::InvalidRequest => {
                return Err(error);
            }
            // A prompt can be rendered without a server.
            Ok(ReplyRoute::Tokens(_)) | Err(CallError::Failed(_)) => {}
        }
        check_text_only(request)?;
        let mut rendered = render(&request.messages)?;
        let tokenized = match given_tokens(request, self.vocab())? {
            Some((tokens, prompt)) => {
                rendered.prompt = prompt;
                TokenizedPrompt::from_tokens(tokens)
            }
            None => tokenize(self.vocab(), request, &rendered.prompt, None, interrupt)?,
        };
        Ok(FittedPrompt { rendered, tokenized, truncation: None })
    }

    fn start(&self, generation: GenerationRequest) -> Result<StartedReply> {
        started(limits_of(&generation.interrupt), |limits| self.try_start(&generation, limits))
    }

    fn fill_spellings(&self) -> Option<[String; 3]> {
        self.vocab().fill_spellings()
    }

    fn special_openings(&self) -> Arc<[String]> {
        Arc::clone(&self.format_tokens.special_openings)
    }

    fn control_spellings(&self) -> Option<Arc<ControlSpellings>> {
        if self.is_text() { self.text.control_spellings() } else { None }
    }

    fn preview(&self, generation: &GenerationRequest) -> Result<Preview> {
        if self.is_text() {
            return self.text.preview(generation);
        }
        let GenerationRequest { request, reasoning_open, interrupt, .. } = generation;
        let deadline = Instant::now().checked_add(PREVIEW_TIMEOUT);
        let limits = CallLimits { deadline, ..limits_of(interrupt) };
        let n_ctx = self.n_ctx(&limits).ok().flatten();
        let context = (self.vocab(), n_ctx.unwrap_or(usize::MAX));
        self.format_tokens.reasoning(context, request, *reasoning_open, interrupt)?;
        let tokens = &generation.tokenized.tokens;
        n_ctx.map_or(Ok(()), |n_ctx| check_fits(tokens.len(), n_ctx))?;
        let (ReplyConstraint { grammar, diagnostics, .. }, _) =
            self.constraint(generation, ConstraintForms::LLGUIDANCE)?;
        let special = self.vocab().special_tokens();
        let controls = tokens.iter().filter_map(|token| special.reserved(*token));
        Ok(Preview {
            prompt_tokens: Some(tokens.len()),
            media: Vec::new(),
            special_tokens: Some(controls.map(str::to_owned).collect()),
            tokens_left: n_ctx.and_then(|n_ctx| n_ctx.checked_sub(tokens.len())),
            context_shift: None,
            cached_tokens: None,
            cache_break: None,
            grammar,
            sampling: request.sampling.to_json(),
            diagnostics,
        })
    }

    fn take_log(&self, least: LogLevel) -> Vec<(LogLevel, String)> {
        self.text.take_log(least)
    }
}
