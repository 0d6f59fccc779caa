//! Replies from llama.cpp in this process: converts prompts to tokens and schemas to a grammar, and
//! posts a job to the engine.

mod cache_break;
mod fit;
mod last_request;
mod shift;
mod state_file;
mod stored_prefix;
mod truncation;
mod updates;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};

use serde_json::Value;

use super::MediaFiles;
use super::format_tokens::FormatTokens;
use super::render::RenderedPrompt;
use super::reply_constraint::ReplyConstraint;
use super::source::{FittedPrompt, GenerationRequest, Preview, ReplySource, StartedReply};
use crate::api::{
    AdapterScales, ChatRequest, ContextOverflow, CreateOptions, Guessing, LogLevel, ResponseFormat,
    Sampling, ToolChoice,
};
use crate::constraint::{self, CallTexts, CompileTime, CompiledGrammar, Relaxed};
use crate::diagnostic::Diagnostic;
use crate::engine::{DryBreakers, Interrupt, Job};
use crate::error::{Code, Error, Result};
use crate::llama::{KeptModel, LoadedModel, ModelUse, PrefixStore, StateStore};
use crate::output::Format;
use crate::sync::lock;
use last_request::LastRequestSlot;
use shift::{check_shift, first_shift, max_tokens, shift_keeps};
pub(crate) use state_file::check_state_file;
use state_file::{PendingWarning, StateFile};
use stored_prefix::StoredPrefix;
use truncation::RecentCuts;
use updates::EngineUpdates;

/// A chat with a model in this process.
pub(super) struct NativeSource {
    /// The number by which the engine recognizes requests of the same chat.
    chat: u64,
    model: Arc<KeptModel>,
    format_tokens: FormatTokens,
    /// The adapters for requests without a member `lora`.
    adapters: AdapterScales,
    overflow: ContextOverflow,
    media_files: MediaFiles,
    recent_cuts: RecentCuts,
    last_request: LastRequestSlot,
    last_grammar: Mutex<Option<CachedGrammar>>,
    last_breakers: Mutex<Option<(Vec<String>, Arc<DryBreakers>)>>,
    state_file: Option<Arc<StateFile>>,
    prefixes: Option<Arc<PrefixStore>>,
    /// The warning that the context is longer than the model was trained for.
    long_context: Option<PendingWarning>,
}

/// The grammar of the last reply, and everything that it depends on. The tools rarely change
/// between the requests of a chat.
struct CachedGrammar {
    /// As JSON text, because the order of members matters.
    tools: String,
    choice: ToolChoice,
    parallel: bool,
    untagged: bool,
    plain: bool,
    response_format: Option<ResponseFormat>,
    bounded: bool,
    request_grammar: Option<String>,
    reasoning_open: bool,
    continues_answer: bool,
    /// The grammar; None if nothing is constrained.
    lark: Option<String>,
    call_texts: Arc<CallTexts>,
    relaxed: Vec<Relaxed>,
}

impl CachedGrammar {
    /// Whether this request has the same grammar.
    fn matches(&self, generation: &GenerationRequest, tools: &str) -> bool {
        let request = generation.request;
        tools == self.tools
            && request.tool_choice == self.choice
            && request.output.parallel_tool_calls == self.parallel
            && request.output.untagged_calls == self.untagged
            && request.plain.is_some() == self.plain
            && request.output.response_format == self.response_format
            && request.output.bound_schema == self.bounded
            && request.output.grammar == self.request_grammar
            && generation.reasoning_open == self.reasoning_open
            && generation.requirements().continues_answer() == self.continues_answer
    }
}

impl NativeSource {
    /// Creates the source for replies in this format, and restores the state file if there is one.
    pub(super) fn new(
        options: &CreateOptions,
        model: Arc<KeptModel>,
        format: Option<&Format>,
        state: Option<Arc<dyn StateStore>>,
        prefixes: Option<PrefixStore>,
        media_files: MediaFiles,
    ) -> Result<NativeSource> {
        static CHATS: AtomicU64 = AtomicU64::new(1);
        let chat = CHATS.fetch_add(1, Ordering::Relaxed);
        let _use = model.acquire(&Interrupt::default())?;
        let loaded = model.model()?;
        check_shift(options, &loaded)?;
        let state_file = state.map(|store| StateFile::restore(store, chat, &model, &loaded));
        let long_context = loaded.trained_ctx.filter(|trained| *trained < loaded.n_ctx);
        let long_context = long_context.map(|trained| {
            let text = format!(
                "{} is more than the {trained} tokens that the model was trained for, and what it \
                 writes beyond them is likely to be wrong; set n_ctx to {trained} or less",
                loaded.n_ctx
            );
            PendingWarning::new("n_ctx_beyond_training", "n_ctx", text)
        });
        Ok(NativeSource {
            chat,
            model,
            format_tokens: FormatTokens::new(format, loaded.engine.vocab().special_tokens()),
            adapters: AdapterScales::of(&options.loading.lora),
            overflow: options.context_overflow,
            media_files,
            recent_cuts: RecentCuts::default(),
            last_request: LastRequestSlot::default(),
            last_grammar: Mutex::default(),
            last_breakers: Mutex::default(),
            state_file,
            prefixes: prefixes.map(Arc::new),
            long_context,
        })
    }

    /// The model. While a request holds it, the model stays in memory.
    fn model(&self) -> Result<Arc<LoadedModel>> {
        self.model.model()
    }

    fn warnings(&self) -> impl Iterator<Item = &PendingWarning> {
        let of_state = self.state_file.as_deref().and_then(StateFile::warning);
        of_state.into_iter().chain(&self.long_context)
    }

    fn adapters(&self, request: &ChatRequest) -> Result<AdapterScales> {
        match &request.output.lora {
            Some(switch) => switch.scales(self.adapters.0.len()),
            None => Ok(self.adapters.clone()),
        }
    }

    /// The tokens of DRY's sequence breakers. Those of the last request are reused if its breakers
    /// were the same.
    fn breakers(&self, sampling: &Sampling, interrupt: &Interrupt) -> Result<Arc<DryBreakers>> {
        if !sampling.has_dry() {
            return Ok(Arc::default());
        }
        let texts = &sampling.dry_sequence_breakers;
        let mut last = lock(&self.last_breakers);
        if let Some((_, breakers)) = last.as_ref().filter(|(known, _)| known == texts) {
            return Ok(Arc::clone(breakers));
        }
        let model = self.model()?;
        let vocab = model.engine.vocab().as_ref();
        let breakers = Arc::new(DryBreakers::new(texts, vocab, interrupt)?);
        *last = Some((texts.clone(), Arc::clone(&breakers)));
        Ok(breakers)
    }

    /// Reads a stored prefix of the prompt from disk, and decides which prefixes to write.
    fn stored_prefix(
        &self,
        model: &LoadedModel,
        generation: &GenerationRequest,
        adapters: &AdapterScales,
    ) -> StoredPrefix {
        let GenerationRequest { request, prompt, tokenized, interrupt, .. } = generation;
        let store =
            self.prefixes.as_ref().filter(|_| request.prompt.cache_prompt && !interrupt.is_over());
        let Some(store) = store else { return StoredPrefix::default() };
        let vocab = model.engine.vocab().as_ref();
        let boundary = stored_prefix::end_of_system(request, prompt, tokenized, vocab);
        StoredPrefix::read(store, (self.chat, model), &tokenized.tokens, adapters, boundary)
    }

    fn constraint(&self, generation: &GenerationRequest) -> Result<ReplyConstraint> {
        let compiled = self.compile(generation).and_then(|mut compiled| {
            if generation.requirements().continues_answer() {
                begin_answer(&mut compiled, generation)?;
            }
            Ok(compiled)
        });
        ReplyConstraint::from_grammar(generation, compiled)
    }

    /// Compiles the grammar of a reply. The last grammar is reused if nothing has changed.
    fn compile(&self, generation: &GenerationRequest) -> Result<CompiledGrammar> {
        let is_over = || generation.interrupt.is_over();
        let time = &CompileTime::until(&is_over);
        // The lock is not held while a grammar compiles, which may take a second.
        let last = || lock(&self.last_grammar);
        let model = self.model()?;
        let grammars = &model.grammars;
        let request = generation.request;
        let tools = serde_json::to_string(&*request.tools).expect("JSON is written without errors");
        let cached = last()
            .as_ref()
            .filter(|last| last.matches(generation, &tools))
            .map(|last| (last.lark.clone(), Arc::clone(&last.call_texts), last.relaxed.clone()));
        if let Some((lark, call_texts, relaxed)) = cached {
            let constraint =
                lark.as_deref().map(|lark| grammars.compile(lark, time)).transpose()?;
            let constraint = constraint.map(|it| it.with_call_texts(Arc::clone(&call_texts)));
            return Ok(CompiledGrammar { lark, constraint, call_texts, relaxed });
        }
        let special = model.engine.vocab().special_tokens();
        let format = generation.format();
        let specials = |text: &str| special.controls_in(text);
        let compiled =
            constraint::compile(grammars, format, &generation.requirements(), &specials, time)?;
        *last() = Some(CachedGrammar {
            tools,
            choice: request.tool_choice.clone(),
            parallel: request.output.parallel_tool_calls,
            untagged: request.output.untagged_calls,
            plain: request.plain.is_some(),
            response_format: request.output.response_format.clone(),
            bounded: request.output.bound_schema,
            request_grammar: request.output.grammar.clone(),
            reasoning_open: generation.reasoning_open,
            continues_answer: generation.requirements().continues_answer(),
            lark: compiled.lark.clone(),
            call_texts: Arc::clone(&compiled.call_texts),
            relaxed: compiled.relaxed.clone(),
        });
        Ok(compiled)
    }
}

/// Advances the grammar past the content that the prompt already contains.
fn begin_answer(compiled: &mut CompiledGrammar, generation: &GenerationRequest) -> Result<()> {
    let Some(constraint) = &mut compiled.constraint else { return Ok(()) };
    if constraint.begin_with(&generation.content_before)? {
        return Ok(());
    }
    let request = generation.request;
    let form = if request.output.grammar.is_some() { "grammar" } else { "response_format" };
    let last = request.messages.len().saturating_sub(1);
    let problem = format!(
        "is not the beginning of a text that {form} allows; change the content or leave out {form}"
    );
    Err(Error::invalid(format!("messages[{last}].content"), problem))
}

impl ReplySource for NativeSource {
    fn begin(&self, interrupt: &Interrupt) -> Result<Option<ModelUse>> {
        self.model.acquire(interrupt).map(Some)
    }

    fn fit_to_context(
        &self,
        request: &ChatRequest,
        render: &dyn Fn(&[Value]) -> Result<RenderedPrompt>,
        interrupt: &Interrupt,
    ) -> Result<FittedPrompt> {
        self.fit(request, render, interrupt)
    }

    fn start(&self, generation: GenerationRequest) -> Result<StartedReply> {
        let adapters = self.adapters(generation.request)?;
        self.state_file.iter().for_each(|file| file.mark_used(&generation.interrupt.cancel));
        let ReplyConstraint { constraint, diagnostics, .. } = match self.constraint(&generation) {
            // The job is cancelled too: the engine ends it before it generates anything.
            Err(error) if error.code() == Code::Cancelled => ReplyConstraint::default(),
            constraint => constraint?,
        };
        let model = self.model()?;
        let stored = self.stored_prefix(&model, &generation, &adapters);
        let GenerationRequest { request, prompt, tokenized, truncation, .. } = generation;
        let interrupt = generation.interrupt;
        let enough = Arc::clone(&interrupt.enough);
        let vocab = model.engine.vocab().as_ref();
        let inside = generation.reasoning_open;
        let reasoning =
            self.format_tokens.reasoning((vocab, model.n_ctx), request, inside, &interrupt)?;
        let constrained = constraint.is_some();
        let breakers = self.breakers(&request.sampling, &interrupt)?;
        let (updates, received) = channel();
        let overflow = self.overflow(request);
        // A shift would move the places of media.
        let shift_keeps = shift_keeps(overflow, &model, request, tokenized.tokens.len())
            .filter(|_| tokenized.media.is_empty());
        // A file cannot hold media, whose numbers mean nothing in another process.
        let media_start = tokenized.media.first().map_or(usize::MAX, |placed| placed.start);
        model.engine.submit(Job {
            chat: self.chat,
            prompt: tokenized.tokens.clone(),
            media: tokenized.media.clone(),
            adapters: adapters.clone(),
            max_tokens: max_tokens(overflow, &model, request),
            sampling: request.sampling.clone(),
            breakers,
            stop: generation.stop,
            constraint,
            reasoning,
            shift_keeps,
            logprobs: request.output.logprobs,
            visible: self.format_tokens.visible(request),
            drafts: request.output.speculative == Guessing::Auto,
            reuse_prefix: request.prompt.cache_prompt,
            copied_lengths: stored
                .lengths
                .into_iter()
                .filter(|length| *length <= media_start)
                .collect(),
            interrupt,
            updates,
        })?;
        let prompt_tokens = tokenized.tokens.len();
        let store = self.prefixes.as_ref().map(|store| (Arc::clone(store), stored.read));
        self.last_request.set(request.messages.len(), prompt, tokenized, adapters, truncation);
        Ok(StartedReply {
            updates: Box::new(EngineUpdates::new(received, model, prompt_tokens, store, enough)),
            constrained,
            validate_calls: constrained && !request.tool_choice.forces_call(),
            diagnostics,
        })
    }

    fn fill_spellings(&self) -> Option<[String; 3]> {
        self.model().ok().and_then(|model| model.engine.vocab().fill_spellings())
    }

    fn special_openings(&self) -> Arc<[String]> {
        Arc::clone(&self.format_tokens.special_openings)
    }

    fn preview(&self, generation: &GenerationRequest) -> Result<Preview> {
        let GenerationRequest { request, reasoning_open, interrupt, .. } = generation;
        let model = self.model()?;
        // Refuses what an actual reply would refuse.
        self.adapters(request)?;
        let vocab = model.engine.vocab().as_ref();
        self.format_tokens.reasoning((vocab, model.n_ctx), request, *reasoning_open, interrupt)?;
        let tokens = &generation.tokenized.tokens;
        let (cached_tokens, cache_break) = self.cache_use(generation)?;
        let ReplyConstraint { grammar, diagnostics, .. } = self.constraint(generation)?;
        let special = model.engine.vocab().special_tokens();
        let controls =
            tokens.iter().filter_map(|token| special.reserved(*token)).map(str::to_owned);
        Ok(Preview {
            prompt_tokens: Some(tokens.len()),
            media: generation.tokenized.media.clone(),
            special_tokens: Some(controls.collect()),
            tokens_left: Some(model.n_ctx.saturating_sub(tokens.len())),
            context_shift: first_shift(self.overflow(request), &model, request, tokens.len()),
            cached_tokens: Some(cached_tokens),
            cache_break,
            grammar,
            sampling: request.sampling.to_json(),
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
        let mut lines = self.model.take_log(least);
        lines.extend(self.prefixes.iter().flat_map(|prefixes| prefixes.take_log(least)));
        if least <= LogLevel::Warn {
            lines.extend(self.warnings().filter_map(PendingWarning::take_line));
        }
        lines
    }

    fn save(&self) -> Result<()> {
        self.prefixes.iter().for_each(|prefixes| prefixes.finish());
        self.state_file.as_ref().map_or(Ok(()), |file| file.write())
    }
}
