//! A chat: one model, one chat template, requests in order. One function per step, in the order data takes.
//!
//! ```text
//! ChatRequest -> prompt -> tokens + grammar -> engine job -> pieces -> recogniser -> ChatResponse
//! ```

mod budget;
mod cut;
mod logprobs;
mod saved;
mod stream;
mod turns;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::Instant;

use serde_json::{Value, json};

use crate::api::response::{Call, ChatResponse, FinishReason, Timings, Usage};
use crate::api::{self, ChatRequest, CreateOptions, LogLevel, Polyfills, ResponseFormat, ToolChoice, ToolPolicy};
use crate::constraint::{self, Constraint, Relaxed, Response, Wanted};
use crate::engine::{Finish, Job, Outcome, Reasoning, Token, Update};
use crate::error::{Code, Error, Result};
use crate::gguf::ModelHeader;
use crate::llama::{self, LoadedModel};
use crate::output::{Diagnostic, Format, Recogniser, RecogniserInput};
use crate::template::{Limits, LocalTime, Prompt, RenderInput, Variables, polyfill, thinking};
use crate::validate;
use crate::verdict::Verdict;

use saved::Saved;
use stream::Stream;
use turns::Turns;

/// Receives events of a chat, on the thread of the call they belong to.
pub type EventSink = Box<dyn Fn(&str) + Send + Sync>;

/// Receives a streamed reply, on the thread of the call.
pub type PieceSink<'a> = &'a mut dyn FnMut(&str);

/// Why a chat was not created.
#[derive(Debug)]
pub struct CreateFailure {
    /// The event: what follows `create_failure:`.
    pub event: &'static str,
    /// The error behind it.
    pub error: Error,
}

impl CreateFailure {
    /// The failure that an event names.
    pub fn new(event: &'static str, error: Error) -> Self {
        CreateFailure { event, error }
    }
}

/// An open chat. Every method may be called from any thread.
pub struct Chat {
    model: Arc<LoadedModel>,
    verdict: Arc<Verdict>,
    events: EventSink,
    polyfills: Polyfills,
    limits: Limits,
    log: LogLevel,
    turns: Turns,
    saved: Option<Saved>,
    /// Destroyed from a callback; the call that runs says so when it ends.
    destroyed: AtomicBool,
}

impl Chat {
    /// Opens a chat: header, gate, weights. Emits `create_start`, `load_progress:*`, and `create_success` or one
    /// `create_failure:*`.
    pub fn create(options: Result<CreateOptions>, events: EventSink) -> Result<Chat, CreateFailure> {
        events("create_start");
        let opened = options
            .map_err(|error| CreateFailure::new("invalid_options", error))
            .and_then(|options| open(&options, events.as_ref()).map(|opened| (options, opened)));
        match opened {
            Ok((options, (model, verdict))) => {
                let saved = options.state_file.as_deref().map(|path| Saved::restore(path, &model));
                let chat = Chat {
                    model,
                    saved,
                    verdict,
                    events,
                    limits: Limits::with(&options.template_limits),
                    polyfills: options.polyfills,
                    log: options.log,
                    turns: Turns::default(),
                    destroyed: AtomicBool::new(false),
                };
                chat.emit_log();
                if let Some(ignored) = chat.saved.as_ref().and_then(Saved::ignored) {
                    chat.log(LogLevel::Warn, &format!("state_file: {ignored}"));
                }
                (chat.events)("create_success");
                Ok(chat)
            }
            Err(failure) => {
                events(&format!("create_failure:{}", failure.event));
                Err(failure)
            }
        }
    }

    /// Runs a request. `pieces` receives the stream; without it the reply comes whole.
    ///
    /// Emits `infer_start` and `infer_success` or `infer_failure` while the call has its turn, so that none comes after a
    /// close has returned; a call that is cancelled before its turn emits neither.
    pub fn infer(&self, request: &str, pieces: Option<PieceSink>) -> Result<Value> {
        let request = api::parse(request, "request_json").and_then(|request| ChatRequest::read(&request));
        let timeout = request.as_ref().ok().and_then(|request| request.timeout);
        let deadline = timeout.map(|timeout| Instant::now() + timeout);
        let cancel = Arc::new(AtomicBool::new(false));
        let Some(_turn) = self.turns.enter(&cancel, deadline)? else {
            return request.map(|request| cancelled_before_its_turn(request.ignored_keys).to_json());
        };
        (self.events)("infer_start");
        let reply = request.and_then(|request| self.run(&request, cancel, deadline, pieces));
        self.emit_log();
        (self.events)(if reply.is_ok() { "infer_success" } else { "infer_failure" });
        if self.destroyed.swap(false, Ordering::Relaxed) {
            self.save();
            (self.events)("destroy");
        }
        reply.map(|response| response.to_json())
    }

    /// What a request would do, without generating a token.
    pub fn explain(&self, request: &str) -> Result<Value> {
        let request = ChatRequest::read(&api::parse(request, "request_json")?)?;
        let Rendered { prompt, polyfills_applied, mut diagnostics } = self.render(&request)?;
        let tokens = self.tokenise(&prompt, request.parse_special_in_messages)?;
        let reasoning_open = self.recogniser(&request, &prompt).is_reasoning();
        let Held { grammar, diagnostics: dropped, .. } = self.hold(&request, reasoning_open)?;
        diagnostics.extend(dropped);
        let shared = self.verdict.to_json();
        let special = self.model.engine.vocab().special_tokens();
        let mut explanation = json!({
            "type": "explanation",
            "prompt": prompt.text,
            "spans": prompt.spans_json(),
            "prompt_tokens": tokens.len(),
            "special_tokens": tokens.iter().filter_map(|token| special.control(*token)).collect::<Vec<_>>(),
            "polyfills_applied": polyfills_applied,
            "caps_used": shared["caps"],
            "template_caps_used": shared["template_caps"],
            "grammar": grammar,
            "output_format": shared["output_format"],
            "stop": request.stop,
            "tokens_left": self.model.n_ctx.saturating_sub(tokens.len()),
        });
        if !diagnostics.is_empty() {
            explanation["diagnostics"] = json!(diagnostics);
        }
        if !request.ignored_keys.is_empty() {
            explanation["ignored_keys"] = json!(request.ignored_keys);
        }
        Ok(explanation)
    }

    /// Ends the running request and those that wait; what was generated so far is their reply.
    pub fn cancel(&self) {
        self.turns.cancel_all();
    }

    /// Refuses further requests, cancels what runs, waits for it, emits `destroy`.
    pub fn close(&self) {
        self.turns.close();
        self.save();
        (self.events)("destroy");
    }

    /// As [`Chat::close`], from a callback of the call that runs on this very thread: `destroy` is emitted, and the chat
    /// freed, when that call ends.
    pub fn close_from_callback(&self) {
        self.destroyed.store(true, Ordering::Relaxed);
        self.turns.refuse();
    }

    fn run(
        &self,
        request: &ChatRequest,
        cancel: Arc<AtomicBool>,
        deadline: Option<Instant>,
        pieces: Option<PieceSink>,
    ) -> Result<ChatResponse> {
        let Rendered { prompt, polyfills_applied, mut diagnostics } = self.render(request)?;
        let tokens = self.tokenise(&prompt, request.parse_special_in_messages)?;
        let prompt_tokens = tokens.len();
        let mut recogniser = self.recogniser(request, &prompt);
        let Held { constraint, diagnostics: dropped, .. } = self.hold(request, recogniser.is_reasoning())?;
        diagnostics.extend(dropped);
        if constraint.is_some() && !request.tool_choice.forces_call() {
            let tools = request.tools.clone();
            recogniser.judge_others(Box::new(move |name, arguments| validate::accepts(&tools, name, arguments)));
        }
        let reasoning = match self.verdict.format().and_then(|format| format.reasoning_tags()) {
            Some((open, close)) => {
                let vocab = self.model.engine.vocab().as_ref();
                Some(budget::reasoning((&open, &close), recogniser.is_reasoning(), request.reasoning_budget, vocab)?)
            }
            None => None,
        };
        let held = constraint.is_some();
        let updates = self.submit(request, tokens, constraint, reasoning, cancel, deadline)?;
        let response = self.receive(updates, recogniser, request, prompt_tokens, held, pieces)?;
        diagnostics.extend(response.diagnostics);
        diagnostics.extend(self.saved.as_ref().and_then(Saved::take_diagnostic).map(|ignored| ignored.to_json()));
        Ok(ChatResponse { polyfills_applied, diagnostics, ..response })
    }

    /// Messages to prompt, with the model's own template.
    fn render(&self, request: &ChatRequest) -> Result<Rendered> {
        let now = match &request.now {
            Some(text) => LocalTime::parse(text).map_err(|error| Error::invalid("now", error.message()))?,
            None => LocalTime::now(),
        };
        let tools: Option<&[Value]> = match request.tool_choice {
            // The model is not shown what it must not call.
            ToolChoice::None => None,
            _ => Some(&request.tools).filter(|tools| !tools.is_empty()).map(Vec::as_slice),
        };
        let templates = &self.verdict.templates;
        let allowed = request.polyfills.as_ref().unwrap_or(&self.polyfills);
        let traits = &templates.traits().0;
        let polyfilled = polyfill::apply(&request.messages, tools, traits, allowed)?;
        let prompt = templates.render(&RenderInput {
            polyfilled: Some(&polyfilled),
            tools,
            add_generation_prompt: request.add_generation_prompt,
            continue_final_message: request.continued.as_deref(),
            kwargs: Some(&thinking::variables(&request.thinking, traits, &request.template_kwargs)?),
            spans: true,
            variables: Variables::of(allowed),
            limits: self.limits,
            ..RenderInput::new(&polyfilled.messages, now)
        })?;
        let mut diagnostics: Vec<Value> = polyfilled.diagnostics.iter().map(|diagnostic| diagnostic.to_json()).collect();
        if request.thinking.enabled.is_some() && traits.details.switches.is_empty() {
            let message = "enable_thinking: this chat template has no switch for reasoning; its prompt is the same".to_owned();
            diagnostics.push(Diagnostic { code: "enable_thinking_ignored", message }.to_json());
        }
        if request.reasoning_budget.is_some() && !self.marks_reasoning() {
            diagnostics.push(budget::ignored().to_json());
        }
        Ok(Rendered { prompt, polyfills_applied: polyfilled.applied, diagnostics })
    }

    /// Whether how this model marks its reasoning is known.
    fn marks_reasoning(&self) -> bool {
        self.verdict.format().is_some_and(|format| format.reasoning_tags().is_some())
    }

    /// Prompt to tokens. Special tokens are those that the template wrote: what stands in messages, tools and documents is
    /// text. BOS is prepended where the vocabulary wants one and the prompt has none.
    fn tokenise(&self, prompt: &Prompt, parse_special_in_messages: bool) -> Result<Vec<Token>> {
        let vocab = self.model.engine.vocab();
        // Variables are the application's own words to its template.
        let sent = prompt.spans.iter().filter(|span| !span.path.starts_with("chat_template_kwargs"));
        let plain: Vec<Range<usize>> = sent.map(|span| span.start..span.end).collect();
        let plain = if parse_special_in_messages { &[] } else { plain.as_slice() };
        let mut tokens = vocab.special_tokens().tokenize(vocab.as_ref(), &prompt.text, plain)?;
        if let Some(bos) = vocab.required_bos()
            && tokens.first() != Some(&bos)
        {
            tokens.insert(0, bos);
        }
        let n_ctx = self.model.n_ctx;
        if tokens.is_empty() {
            return Err(Error::invalid("messages", "the prompt they make has no tokens"));
        }
        if tokens.len() >= n_ctx {
            let message =
                format!("the prompt has {} tokens, the context {n_ctx}; shorten the messages or raise n_ctx", tokens.len());
            return Err(Error::new(Code::ContextOverflow, message).with("prompt_tokens", tokens.len()).with("n_ctx", n_ctx));
        }
        Ok(tokens)
    }

    /// A reader of the reply to this prompt.
    fn recogniser(&self, request: &ChatRequest, prompt: &Prompt) -> Recogniser {
        let mut recogniser = Recogniser::new(RecogniserInput {
            format: self.verdict.format(),
            tools: &request.tools,
            calls_allowed: !request.tools.is_empty() && request.tool_choice != ToolChoice::None,
            reasoning: true,
            json: request.response_format.is_some(),
            parallel: request.parallel_tool_calls,
            new_id: api::call_ids(self.verdict.format().and_then(Format::id_length)),
        });
        recogniser.prime(self.verdict.turn(&prompt.text), false);
        recogniser
    }

    /// What the reply is held to. Where nothing forces it, a grammar that cannot be enforced is left out, and said so.
    fn hold(&self, request: &ChatRequest, reasoning_open: bool) -> Result<Held> {
        let special = self.model.engine.vocab().special_tokens();
        let wanted = Wanted {
            tools: &request.tools,
            choice: &request.tool_choice,
            parallel: request.parallel_tool_calls,
            response: match &request.response_format {
                None => Response::Text,
                Some(ResponseFormat::JsonObject) => Response::JsonObject,
                Some(ResponseFormat::JsonSchema(schema)) => Response::JsonSchema(schema),
            },
            grammar: request.grammar.as_deref(),
            reasoning_open,
            reasons: self.verdict.mentions_reasoning(),
        };
        let compiled =
            constraint::compile(&self.model.grammars, self.verdict.format(), &wanted, &|text| special.controls_in(text));
        let strict = |tool: &Value| tool["function"]["strict"] == true;
        let forced = request.tool_choice.forces_call() || wanted.grammar.is_some() || request.tools.iter().any(strict);
        match compiled {
            Ok(compiled) => Ok(Held {
                grammar: compiled.lark,
                constraint: compiled.constraint,
                diagnostics: compiled.relaxed.iter().map(|relaxed| dropped_keyword(relaxed).to_json()).collect(),
            }),
            Err(error) if error.code() == Code::SchemaUnsupported && !forced && wanted.response == Response::Text => {
                let message = format!("the calls of this reply are not constrained: {}", error.message());
                let dropped = Diagnostic { code: "constraint_dropped", message };
                Ok(Held { grammar: None, constraint: None, diagnostics: vec![dropped.to_json()] })
            }
            Err(error) => Err(error),
        }
    }

    fn submit(
        &self,
        request: &ChatRequest,
        prompt: Vec<Token>,
        constraint: Option<Constraint>,
        reasoning: Option<Reasoning>,
        cancel: Arc<AtomicBool>,
        deadline: Option<Instant>,
    ) -> Result<Receiver<Update>> {
        let special = self.model.engine.vocab().special_tokens();
        let texts = self.verdict.format().map(|format| format.texts()).unwrap_or_default();
        let marks = texts.into_iter().flat_map(|text| special.controls_in(text)).map(|(_, token)| token);
        let (updates, received) = channel();
        self.model.engine.submit(Job {
            prompt,
            max_tokens: request.max_tokens,
            sampling: request.sampling.clone(),
            stop: request.stop.clone(),
            constraint,
            reasoning,
            logprobs: request.logprobs,
            visible: marks.collect(),
            reuse_prefix: request.cache_prompt,
            owner: self.saved.as_ref().map(Saved::owner),
            cancel,
            deadline,
            updates,
        })?;
        Ok(received)
    }

    /// Pieces to message, streamed as they come. `held` is whether the reply obeys a grammar.
    fn receive(
        &self,
        updates: Receiver<Update>,
        mut recogniser: Recogniser,
        request: &ChatRequest,
        prompt_tokens: usize,
        held: bool,
        pieces: Option<PieceSink>,
    ) -> Result<ChatResponse> {
        let mut stream = Stream::new(request.stream_format, pieces);
        let mut logprobs = request.logprobs.map(|_| Vec::new());
        let outcome = loop {
            match updates.recv() {
                Ok(Update::Piece { text, logprobs: sampled }) => {
                    let sampled = logprobs::spelt(self.model.engine.vocab().as_ref(), sampled);
                    stream.carry(&sampled);
                    logprobs.iter_mut().for_each(|all| all.extend_from_slice(&sampled));
                    stream.send(recogniser.push(&text));
                }
                Ok(Update::Done(outcome)) => break outcome,
                Ok(Update::Failed(error)) => return Err(error),
                Err(_) => return Err(Error::new(Code::EngineClosed, "the engine of this model has stopped")),
            }
        };
        let early = outcome.finish != Finish::Stop;
        let (rest, mut parsed) = if early { recogniser.finish_early() } else { recogniser.finish() };
        stream.send(rest);
        let cut = cut::take(&mut parsed, held || early);
        let usage = Usage {
            prompt_tokens,
            completion_tokens: outcome.completion_tokens,
            cached_tokens: outcome.cached_tokens,
            reasoning_tokens: self.marks_reasoning().then_some(outcome.reasoning_tokens),
        };
        let mut diagnostics: Vec<Value> = parsed.diagnostics.iter().map(|diagnostic| diagnostic.to_json()).chain(cut).collect();
        let violations = validate::message(&parsed, &request.tools, request.response_format.as_ref());
        diagnostics.extend(violations.iter().map(validate::Violation::to_json));
        let calls = parsed.tool_calls.into_iter();
        let response = ChatResponse {
            text: parsed.content,
            reasoning: parsed.reasoning,
            tool_calls: calls.map(|call| Call { id: call.id, name: call.name, arguments: call.arguments }).collect(),
            finish_reason: FinishReason::Stop,
            usage,
            timings: Timings {
                prompt_ms: outcome.prompt_ms,
                predicted_ms: outcome.predicted_ms,
                drafted: outcome.drafted.map(|drafted| (drafted.tokens, drafted.accepted)),
            },
            logprobs,
            polyfills_applied: Vec::new(),
            diagnostics,
            ignored_keys: request.ignored_keys.clone(),
        };
        let response = ChatResponse { finish_reason: finish_reason(outcome, &response), ..response };
        stream.finish(&response, request.include_usage);
        Ok(response)
    }

    /// Writes the state file. A chat that is destroyed has no other way to say that it could not.
    fn save(&self) {
        if let Some(Err(error)) = self.saved.as_ref().map(|saved| saved.write(&self.model)) {
            self.log(LogLevel::Error, &format!("state_file: {}", error.message()));
        }
    }

    fn log(&self, level: LogLevel, text: &str) {
        if level >= self.log {
            (self.events)(&format!("log:{}:{text}", level.as_str()));
        }
    }

    fn emit_log(&self) {
        if self.log == LogLevel::Off {
            return;
        }
        for (level, text) in self.model.log.take(self.log) {
            (self.events)(&format!("log:{}:{text}", level.as_str()));
        }
    }
}

/// The prompt of a request, and what was done to its messages to get it.
struct Rendered {
    prompt: Prompt,
    polyfills_applied: Vec<&'static str>,
    diagnostics: Vec<Value>,
}

/// What the tokens of a reply must obey.
struct Held {
    grammar: Option<String>,
    constraint: Option<Constraint>,
    diagnostics: Vec<Value>,
}

/// A keyword of a schema that the sampler does not enforce.
fn dropped_keyword(relaxed: &Relaxed) -> Diagnostic {
    let Relaxed { tool, path, keyword, reason } = relaxed;
    let tool = tool.as_ref().map(|tool| format!(" ({tool})")).unwrap_or_default();
    Diagnostic { code: "constraint_relaxed", message: format!("{path}{tool}: {keyword} is not enforced: {reason}") }
}

type Opened = (Arc<LoadedModel>, Arc<Verdict>);

fn open(options: &CreateOptions, events: &dyn Fn(&str)) -> Result<Opened, CreateFailure> {
    let null_path = || CreateFailure::new("null_path", Error::new(Code::InvalidRequest, "model: the path is NULL"));
    let path = options.model.as_deref().ok_or_else(null_path)?;
    let header = ModelHeader::read_file(std::path::Path::new(path)).map_err(|error| match error.code() {
        Code::ModelNotFound => CreateFailure::new("model_not_found", error),
        _ => CreateFailure::new("load_model", error),
    })?;
    let sources = Verdict::sources(&header, options.chat_template.as_deref());
    let verdict = Verdict::of(&sources).map_err(|error| CreateFailure::new("chat_template", error))?;
    let accepted = match options.tool_policy {
        ToolPolicy::Native => verdict.is_tool_capable(),
        ToolPolicy::Polyfill => {
            verdict.is_tool_capable() || options.polyfills.apply_polyfills && verdict.tool_support() != "none"
        }
        ToolPolicy::Any => true,
    };
    if !accepted {
        return Err(CreateFailure::new("tools_unsupported", verdict.refusal(&header)));
    }
    if header.tensor_data_end() > header.file_size() {
        let message = format!(
            "{path}: the file is cut short: its tensors need {} bytes, it has {}; download it again",
            header.tensor_data_end(),
            header.file_size()
        );
        return Err(CreateFailure::new("load_model", Error::new(Code::ModelInvalid, message)));
    }
    let mut last = -1;
    let mut on_progress = |done: f32| {
        // One event per hundredth, not per tensor.
        let hundredth = (done.clamp(0.0, 1.0) * 100.0) as i32;
        if hundredth > last {
            last = hundredth;
            events(&format!("load_progress:{:.2}", f64::from(hundredth) / 100.0));
        }
    };
    let model = llama::open(options, path, &header, &mut on_progress).map_err(|error| match error.code() {
        Code::OutOfMemory => CreateFailure::new("oom", error),
        Code::ModelNotFound => CreateFailure::new("model_not_found", error),
        Code::ModelInvalid => CreateFailure::new("load_model", error),
        // Of the option that names the file.
        Code::InvalidRequest => CreateFailure::new("invalid_options", error),
        _ => CreateFailure::new("init_context", error),
    })?;
    Ok((model, verdict))
}

fn finish_reason(outcome: Outcome, response: &ChatResponse) -> FinishReason {
    match outcome.finish {
        Finish::Stop if response.tool_calls.is_empty() => FinishReason::Stop,
        Finish::Stop => FinishReason::ToolCalls,
        Finish::Length => FinishReason::Length,
        Finish::Cancelled => FinishReason::Cancelled,
    }
}

fn cancelled_before_its_turn(ignored_keys: Vec<String>) -> ChatResponse {
    ChatResponse {
        text: String::new(),
        reasoning: None,
        tool_calls: Vec::new(),
        finish_reason: FinishReason::Cancelled,
        usage: Usage::default(),
        timings: Timings::default(),
        logprobs: None,
        polyfills_applied: Vec::new(),
        diagnostics: Vec::new(),
        ignored_keys,
    }
}
