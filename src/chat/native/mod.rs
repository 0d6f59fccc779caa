//! Replies of llama.cpp in this process: prompt to tokens, schemas to a grammar, a job for the
//! engine.

mod cache_break;
mod fit;
mod last_request;
mod pending_warning;
mod state_file;
mod truncation;
mod updates;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;

use super::render::RenderedPrompt;
use super::reply_constraint::ReplyConstraint;
use super::source::{
    FittedPrompt, GenerationRequest, Preview, ReplySource, StartedReply, plain_ranges,
};
use crate::api::{
    ChatRequest, ContextOverflow, CreateOptions, LogLevel, ResponseFormat, Sampling, ToolChoice,
};
use crate::constraint::{self, CompileTime, CompiledGrammar, Relaxed};
use crate::diagnostic::Diagnostic;
use crate::engine::{
    DryBreakers, Interrupt, Job, ReasoningBudget, ReasoningOptions, TokenId, TokenizedPrompt,
};
use crate::error::{Code, Error, Result};
use crate::llama::{LoadedModel, StateStore};
use crate::output::{Format, families};
use crate::template::Prompt;
use last_request::{LastRequest, LastRequestSlot};
use pending_warning::PendingWarning;
use state_file::StateFile;
pub(crate) use state_file::check_state_file;
use truncation::RecentCuts;
use updates::EngineUpdates;

/// A chat with a model in this process.
pub(super) struct NativeSource {
    /// Tells the engine which requests belong together.
    chat: u64,
    model: Arc<LoadedModel>,
    /// Control tokens that the output format contains.
    visible: Arc<[TokenId]>,
    /// As `visible`, with the tokens of the calls of every family.
    visible_with_calls: Arc<[TokenId]>,
    special_openings: Arc<[String]>,
    /// The opening and closing tag of reasoning, if they are known.
    reasoning_tags: Option<[Arc<str>; 2]>,
    overflow: ContextOverflow,
    recent_cuts: RecentCuts,
    last_request: LastRequestSlot,
    last_grammar: Mutex<Option<CachedGrammar>>,
    last_breakers: Mutex<Option<(Vec<String>, Arc<DryBreakers>)>>,
    state_file: Option<Arc<StateFile>>,
    /// The context is longer than the model was trained for.
    long_context: Option<PendingWarning>,
}

/// The grammar of the last reply and everything it depends on. Tools rarely change between the
/// requests of a chat.
struct CachedGrammar {
    tools: String,
    choice: ToolChoice,
    parallel: bool,
    response_format: Option<ResponseFormat>,
    request_grammar: Option<String>,
    reasoning_open: bool,
    /// None if nothing is constrained.
    lark: Option<String>,
    relaxed: Vec<Relaxed>,
}

impl CachedGrammar {
    /// Whether this request has the same grammar.
    fn matches(&self, generation: &GenerationRequest) -> bool {
        let request = generation.request;
        request.tools_text() == Some(&self.tools)
            && request.tool_choice == self.choice
            && request.parallel_tool_calls == self.parallel
            && request.response_format == self.response_format
            && request.grammar == self.request_grammar
            && generation.reasoning_open == self.reasoning_open
    }
}

impl NativeSource {
    /// A chat whose replies have this format. Restores its state, if there is one.
    pub(super) fn new(
        options: &CreateOptions,
        model: Arc<LoadedModel>,
        format: Option<&Format>,
        state: Option<Arc<dyn StateStore>>,
    ) -> NativeSource {
        static CHATS: AtomicU64 = AtomicU64::new(1);
        let chat = CHATS.fetch_add(1, Ordering::Relaxed);
        let special = model.engine.vocab().special_tokens();
        let texts = format.map(Format::texts).unwrap_or_default();
        let controls = |texts: &[&str]| -> Vec<TokenId> {
            let found = texts.iter().flat_map(|text| special.controls_in(text));
            found.map(|(_, token)| token).collect()
        };
        let visible = controls(&texts);
        let markers = families::call_markers();
        let of_calls = controls(&markers.iter().map(String::as_str).collect::<Vec<_>>());
        let special_openings = markers.iter().filter(|text| special.contains(text));
        let special_openings = special_openings.cloned().collect();
        let reasoning_tags = format
            .and_then(Format::reasoning_tags)
            .map(|(open, close)| [open.into(), close.into()]);
        let state_file = state.map(|store| StateFile::restore(store, chat, &model));
        let long_context = model.trained_ctx.filter(|trained| *trained < model.n_ctx);
        let long_context = long_context.map(|trained| {
            let text = format!(
                "{} is more than the {trained} tokens that the model was trained for, and what it writes beyond them is likely to be wrong; set n_ctx to {trained} or less",
                model.n_ctx
            );
            PendingWarning::new("n_ctx_beyond_training", "n_ctx", text)
        });
        NativeSource {
            chat,
            model,
            visible_with_calls: visible.iter().copied().chain(of_calls).collect(),
            visible: visible.into(),
            special_openings,
            reasoning_tags,
            overflow: options.context_overflow,
            recent_cuts: RecentCuts::default(),
            last_request: LastRequestSlot::default(),
            last_grammar: Mutex::default(),
            last_breakers: Mutex::default(),
            state_file,
            long_context,
        }
    }

    fn warnings(&self) -> impl Iterator<Item = &PendingWarning> {
        let of_state = self.state_file.as_deref().and_then(StateFile::warning);
        of_state.into_iter().chain(&self.long_context)
    }

    /// The tokens of DRY's sequence breakers, those of the last request if it had the same.
    fn breakers(&self, sampling: &Sampling, interrupt: &Interrupt) -> Result<Arc<DryBreakers>> {
        if !sampling.has_dry() {
            return Ok(Arc::default());
        }
        let texts = &sampling.dry_sequence_breakers;
        let mut last = self.last_breakers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, breakers)) = last.as_ref().filter(|(known, _)| known == texts) {
            return Ok(Arc::clone(breakers));
        }
        let vocab = self.model.engine.vocab().as_ref();
        let breakers = Arc::new(DryBreakers::new(texts, vocab, interrupt)?);
        *last = Some((texts.clone(), Arc::clone(&breakers)));
        Ok(breakers)
    }

    /// Tokenizes a prompt. Only the template writes special tokens: text of messages, tools and
    /// documents is plain. A BOS that the vocabulary requires is prepended if the prompt has none.
    ///
    /// Reuses the tokens of `last` as far as possible.
    fn tokenize(
        &self,
        request: &ChatRequest,
        prompt: &Prompt,
        last: Option<&LastRequest>,
        interrupt: &Interrupt,
    ) -> Result<TokenizedPrompt> {
        let vocab = self.model.engine.vocab();
        let mut tokenized = vocab.special_tokens().tokenize(
            vocab.as_ref(),
            &prompt.text,
            plain_ranges(request, prompt),
            last.map(LastRequest::tokenized),
            interrupt,
        )?;
        if let Some(bos) = vocab.required_bos()
            && tokenized.tokens.first() != Some(&bos)
        {
            tokenized.prepend(bos);
        }
        if tokenized.tokens.is_empty() {
            return Err(Error::invalid("messages", "their prompt has no tokens"));
        }
        Ok(tokenized)
    }

    fn constraint(&self, generation: &GenerationRequest) -> Result<ReplyConstraint> {
        ReplyConstraint::from_grammar(generation, self.compile(generation))
    }

    /// The grammar of a reply: the last one if nothing has changed.
    fn compile(&self, generation: &GenerationRequest) -> Result<CompiledGrammar> {
        let is_over = || generation.interrupt.is_over();
        let time = &CompileTime::until(&is_over);
        // Not locked while a grammar compiles, which may take a second.
        let last = || self.last_grammar.lock().unwrap_or_else(PoisonError::into_inner);
        let grammars = &self.model.grammars;
        let cached = last()
            .as_ref()
            .filter(|last| last.matches(generation))
            .map(|last| (last.lark.clone(), last.relaxed.clone()));
        if let Some((lark, relaxed)) = cached {
            let constraint =
                lark.as_deref().map(|lark| grammars.compile(lark, time)).transpose()?;
            return Ok(CompiledGrammar { lark, constraint, relaxed });
        }
        let special = self.model.engine.vocab().special_tokens();
        let format = generation.profile.format();
        let specials = |text: &str| special.controls_in(text);
        let compiled =
            constraint::compile(grammars, format, &generation.requirements(), &specials, time)?;
        let request = generation.request;
        *last() = request.tools_text().map(|tools| CachedGrammar {
            tools: tools.to_owned(),
            choice: request.tool_choice.clone(),
            parallel: request.parallel_tool_calls,
            response_format: request.response_format.clone(),
            request_grammar: request.grammar.clone(),
            reasoning_open: generation.reasoning_open,
            lark: compiled.lark.clone(),
            relaxed: compiled.relaxed.clone(),
        });
        Ok(compiled)
    }
}

impl ReplySource for NativeSource {
    fn fit_to_context(
        &self,
        request: &ChatRequest,
        render: &dyn Fn(&[Value]) -> Result<RenderedPrompt>,
        interrupt: &Interrupt,
    ) -> Result<FittedPrompt> {
        self.fit(request, render, interrupt)
    }

    fn start(&self, generation: GenerationRequest) -> Result<StartedReply> {
        self.state_file.iter().for_each(|file| file.mark_used(&generation.interrupt.cancel));
        let ReplyConstraint { constraint, diagnostics, .. } = match self.constraint(&generation) {
            // The job is over too: the engine ends it before it generates anything.
            Err(error) if error.code() == Code::Cancelled => ReplyConstraint::default(),
            constraint => constraint?,
        };
        let GenerationRequest { request, prompt, tokenized, truncation, .. } = generation;
        let vocab = self.model.engine.vocab();
        let reasoning = match &self.reasoning_tags {
            Some([open, close]) => {
                let budget = request.reasoning_budget.map(|tokens| {
                    let ending = vocab.tokenize(close, true, &generation.interrupt)?;
                    Ok::<_, Error>(ReasoningBudget { tokens, ending })
                });
                Some(ReasoningOptions {
                    open: Arc::clone(open),
                    close: Arc::clone(close),
                    inside: generation.reasoning_open,
                    budget: budget.transpose()?,
                })
            }
            None => None,
        };
        let constrained = constraint.is_some();
        let (updates, received) = channel();
        self.model.engine.submit(Job {
            chat: self.chat,
            prompt: tokenized.tokens.clone(),
            max_tokens: request.max_tokens,
            sampling: request.sampling.clone(),
            breakers: self.breakers(&request.sampling, &generation.interrupt)?,
            stop: request.stop.clone(),
            constraint,
            reasoning,
            logprobs: request.logprobs,
            visible: Arc::clone(match request.tools.is_empty() {
                true => &self.visible,
                false => &self.visible_with_calls,
            }),
            reuse_prefix: request.cache_prompt,
            cancel: generation.interrupt.cancel,
            deadline: generation.interrupt.deadline,
            updates,
        })?;
        let prompt_tokens = tokenized.tokens.len();
        self.last_request.set(request.messages.len(), prompt, tokenized, truncation);
        Ok(StartedReply {
            updates: Box::new(EngineUpdates::new(received, vocab.clone(), prompt_tokens)),
            constrained,
            validate_calls: constrained && !request.tool_choice.forces_call(),
            diagnostics,
        })
    }

    fn special_openings(&self) -> Arc<[String]> {
        Arc::clone(&self.special_openings)
    }

    fn preview(&self, generation: &GenerationRequest) -> Result<Preview> {
        let tokens = &generation.tokenized.tokens;
        let (cached_tokens, cache_break) = self.cache_use(generation)?;
        let ReplyConstraint { grammar, diagnostics, .. } = self.constraint(generation)?;
        let special = self.model.engine.vocab().special_tokens();
        let controls =
            tokens.iter().filter_map(|token| special.reserved(*token)).map(str::to_owned);
        Ok(Preview {
            prompt_tokens: Some(tokens.len()),
            special_tokens: Some(controls.collect()),
            tokens_left: Some(self.model.n_ctx.saturating_sub(tokens.len())),
            cached_tokens: Some(cached_tokens),
            cache_break,
            grammar,
            sampling: generation.request.sampling.to_json(),
            diagnostics,
        })
    }

    fn finish(&self, has_reasoning: bool) -> Vec<Diagnostic> {
        if has_reasoning {
            self.last_request.mark_reasoning();
        }
        self.warnings().filter_map(PendingWarning::take_diagnostic).collect()
    }

    fn take_log(&self, least: LogLevel) -> Vec<(LogLevel, String)> {
        let mut lines = self.model.log.take(least);
        if least <= LogLevel::Warn {
            lines.extend(self.warnings().filter_map(PendingWarning::take_line));
        }
        lines
    }

    fn save(&self) -> Result<()> {
        self.state_file.as_ref().map_or(Ok(()), |file| file.write())
    }
}
