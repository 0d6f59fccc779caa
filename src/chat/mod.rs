//! A chat: one model, one chat template, requests in order. One function per step, in the order
//! data takes.
//!
//! ```text
//! ChatRequest -> prompt -> tokens + grammar -> engine job -> pieces -> reply parser -> ChatResponse
//! ```

mod explain;
mod logprobs;
mod native;
mod open;
mod reasoning_budget;
mod truncated_call;

mod queue;
#[cfg(feature = "remote")]
mod remote;

mod source;
mod stream;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use serde_json::Value;

use crate::api::response::{Call, ChatResponse, FinishReason, Timings, Usage};
use crate::api::{
    self, ChatRequest, ContextOverflow, CreateOptions, Known, LogLevel, Polyfills, ToolChoice,
};
use crate::compose;
use crate::compose::Composed;
use crate::diagnostic::Diagnostic;
use crate::engine::{Finish, Outcome};
use crate::error::{Error, Result};
use crate::output::{Format, ReplyParser, ReplyParserInput};
use crate::profile::ModelProfile;
use crate::template::{Limits, LocalTime, Prompt, RenderInput, Variables, polyfill, thinking};
use crate::validate;

use explain::Last;
use native::overflow::{Cuts, Fitted};
use native::state_file::Saved;
use open::{Opened, open};
use queue::Turns;
use source::{Done, Next, Order, Source, Started, Updates};
use stream::Stream;

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
    /// Tells the engine which requests belong together.
    id: u64,
    source: Source,
    profile: Arc<ModelProfile>,
    /// What the template was made of, where it was.
    composed: Option<Composed>,
    events: EventSink,
    polyfills: Polyfills,
    limits: Limits,
    log: LogLevel,
    overflow: ContextOverflow,
    cuts: Cuts,
    last: Last,
    /// Messages and tools of the last request.
    known: Mutex<Known>,
    turns: Turns,
    saved: Option<Saved>,
    /// Destroyed from a callback; the call that runs says so when it ends.
    destroyed: AtomicBool,
}

impl Chat {
    /// Opens a chat: header, gate, weights. Emits `create_start`, `load_progress:*`, and
    /// `create_success` or one `create_failure:*`.
    pub fn create(
        options: Result<CreateOptions>,
        events: EventSink,
    ) -> Result<Chat, CreateFailure> {
        events("create_start");
        let opened = options
            .map_err(|error| CreateFailure::new("invalid_options", error))
            .and_then(|options| open(&options, events.as_ref()).map(|opened| (options, opened)));
        match opened {
            Ok((options, Opened { source, profile, composed })) => {
                static CREATED: AtomicU64 = AtomicU64::new(1);
                let id = CREATED.fetch_add(1, Ordering::Relaxed);
                let saved = match &source {
                    Source::Native(native) => options
                        .state_file
                        .as_deref()
                        .map(|path| Saved::restore(path, id, &native.model)),
                    #[cfg(feature = "remote")]
                    Source::Remote(_) => None,
                };
                let chat = Chat {
                    id,
                    source,
                    saved,
                    profile,
                    composed,
                    events,
                    limits: Limits::with(&options.template_limits),
                    polyfills: options.polyfills,
                    log: options.log,
                    overflow: options.context_overflow,
                    cuts: Cuts::default(),
                    last: Last::default(),
                    known: Mutex::default(),
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
    /// Emits `infer_start` and `infer_success` or `infer_failure` while the call has its turn, so
    /// that none comes after a close has returned; a call that is cancelled before its turn emits
    /// neither.
    pub fn infer(&self, request: &str, pieces: Option<PieceSink>) -> Result<ChatResponse> {
        let request = self.read(request);
        let timeout = request.as_ref().ok().and_then(|request| request.timeout);
        let deadline = timeout.map(|timeout| Instant::now() + timeout);
        let cancel = Arc::new(AtomicBool::new(false));
        let Some(_turn) = self.turns.enter(&cancel, deadline)? else {
            return request.map(|request| cancelled_before_its_turn(request.ignored_keys));
        };
        (self.events)("infer_start");
        let reply = request.and_then(|request| {
            let reply = self.run(&request, cancel, deadline, pieces);
            self.know(request);
            reply
        });
        self.emit_log();
        (self.events)(if reply.is_ok() { "infer_success" } else { "infer_failure" });
        if self.destroyed.swap(false, Ordering::Relaxed) {
            self.save();
            (self.events)("destroy");
        }
        reply
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

    /// As [`Chat::close`], from a callback of the call that runs on this very thread: `destroy` is
    /// emitted, and the chat freed, when that call ends.
    pub fn close_from_callback(&self) {
        self.destroyed.store(true, Ordering::Relaxed);
        self.turns.refuse();
    }

    /// A request, with the stop words of a composed template.
    fn read(&self, request: &str) -> Result<ChatRequest> {
        let known = std::mem::take(&mut *self.known.lock().unwrap_or_else(PoisonError::into_inner));
        let mut request = ChatRequest::parse(request, known)?;
        request.stop.extend(self.composed.iter().flat_map(Composed::stop_words).cloned());
        Ok(request)
    }

    /// Keeps the lists of a request for the next one.
    fn know(&self, request: ChatRequest) {
        *self.known.lock().unwrap_or_else(PoisonError::into_inner) = request.into_known();
    }

    fn run(
        &self,
        request: &ChatRequest,
        cancel: Arc<AtomicBool>,
        deadline: Option<Instant>,
        pieces: Option<PieceSink>,
    ) -> Result<ChatResponse> {
        let Fitted { rendered, tokenised, truncated } = self.fit(request)?;
        let Rendered { prompt, polyfills_applied, mut diagnostics } = rendered;
        let mut parser = self.reply_parser(request, &prompt);
        let reasoning_open = parser.is_reasoning();
        self.saved.iter().for_each(Saved::use_it);
        let profile = &self.profile;
        let tokens = &*tokenised.tokens;
        let order = Order {
            chat: self.id,
            request,
            prompt: &prompt,
            tokens,
            profile,
            reasoning_open,
            cancel,
            deadline,
        };
        let Started { updates, held, judged, diagnostics: more } = match &self.source {
            Source::Native(native) => native::start(native, &order)?,
            #[cfg(feature = "remote")]
            Source::Remote(servers) => servers.start(&order)?,
        };
        diagnostics.extend(more);
        self.last.set(request.messages.len(), prompt, tokenised, truncated.as_ref());
        if judged {
            let tools = Arc::clone(&request.tools);
            parser.set_call_validator(Box::new(move |name, arguments| {
                validate::accepts_arguments(&tools, name, arguments)
            }));
        }
        let response = self.receive(updates, parser, request, held, pieces)?;
        if response.reasoning.is_some() {
            self.last.reasoned();
        }
        diagnostics.extend(response.diagnostics);
        diagnostics.extend(
            self.saved.as_ref().and_then(Saved::take_diagnostic).map(|ignored| ignored.to_json()),
        );
        let truncated = truncated.map(|truncated| truncated.to_json());
        Ok(ChatResponse { polyfills_applied, diagnostics, truncated, ..response })
    }

    /// Messages, those of the request or some of them, to prompt, with the model's own template.
    fn render(&self, request: &ChatRequest, messages: &[Value]) -> Result<Rendered> {
        let now = match &request.now {
            Some(text) => {
                LocalTime::parse(text).map_err(|error| Error::invalid("now", error.message()))?
            }
            None => LocalTime::now(),
        };
        let tools: Option<&[Value]> = match request.tool_choice {
            // The model is not shown what it must not call.
            ToolChoice::None => None,
            _ => Some(request.tools.as_slice()).filter(|tools| !tools.is_empty()),
        };
        let templates = &self.profile.templates;
        let allowed = request.polyfills.as_ref().unwrap_or(&self.polyfills);
        let traits = templates.traits();
        let polyfilled = polyfill::apply(messages, tools, traits, allowed)?;
        let prompt = templates.render(&RenderInput {
            polyfilled: Some(&polyfilled),
            tools,
            skills: Some(&request.skills).filter(|skills| !skills.is_empty()).map(Vec::as_slice),
            add_generation_prompt: request.add_generation_prompt,
            continue_final_message: request.continued.as_deref(),
            kwargs: Some(&thinking::variables(
                &request.thinking,
                traits,
                &request.template_kwargs,
            )?),
            spans: true,
            variables: Variables::of(allowed),
            limits: self.limits,
            ..RenderInput::new(&polyfilled.messages, now)
        });
        let prompt = prompt.map_err(|error| {
            if self.composed.is_some() { compose::with_reason(error) } else { error }
        })?;
        let mut diagnostics: Vec<Value> =
            polyfilled.diagnostics.iter().map(|diagnostic| diagnostic.to_json()).collect();
        if let Some(composed) = &self.composed {
            diagnostics
                .extend(composed.notes(&polyfilled.messages).iter().map(Diagnostic::to_json));
        }
        if request.thinking.enabled.is_some() && traits.details.switches.is_empty() {
            let message = "enable_thinking: this chat template has no switch for reasoning; its prompt is the same".to_owned();
            diagnostics.push(Diagnostic::new("enable_thinking_ignored", message).to_json());
        }
        if request.reasoning_budget.is_some() && !self.marks_reasoning() {
            diagnostics.push(reasoning_budget::ignored().to_json());
        }
        Ok(Rendered { prompt, polyfills_applied: polyfilled.applied, diagnostics })
    }

    /// Whether how this model marks its reasoning is known.
    fn marks_reasoning(&self) -> bool {
        self.profile.format().is_some_and(Format::marks_reasoning)
    }

    /// A reader of the reply to this prompt.
    fn reply_parser(&self, request: &ChatRequest, prompt: &Prompt) -> ReplyParser {
        let input = ReplyParserInput {
            format: self.profile.format(),
            tools: Arc::clone(&request.tools),
            calls_allowed: !request.tools.is_empty() && request.tool_choice != ToolChoice::None,
            reasoning: true,
            json: request.response_format.is_some(),
            parallel: request.parallel_tool_calls,
            new_id: api::call_ids(self.profile.format().and_then(Format::id_length)),
        };
        let mut parser = ReplyParser::with_prepared(self.profile.prepared(), input);
        if !self.profile.format().is_some_and(Format::counts_ids) {
            parser.reserve_ids(api::used_call_ids(&request.messages));
        }
        parser.prime(self.profile.turn(&prompt.text), false);
        parser
    }

    /// Pieces to message, streamed as they come. `held` is whether the reply obeys a grammar.
    fn receive(
        &self,
        mut updates: Updates,
        mut parser: ReplyParser,
        request: &ChatRequest,
        held: bool,
        pieces: Option<PieceSink>,
    ) -> Result<ChatResponse> {
        let mut stream = Stream::new(request.stream_format, pieces);
        let mut logprobs = request.logprobs.map(|_| Vec::new());
        let Done { outcome, prompt_tokens, reasoning_counted, diagnostics: more } = loop {
            match updates.next()? {
                Next::Piece { text, logprobs: sampled } => {
                    stream.carry(&sampled);
                    logprobs.iter_mut().for_each(|all| all.extend_from_slice(&sampled));
                    stream.send(parser.push(&text));
                }
                Next::Done(done) => break done,
            }
        };
        let early = outcome.finish != Finish::Stop;
        let (rest, mut parsed) = if early { parser.finish_early() } else { parser.finish() };
        stream.send(rest);
        let cut = truncated_call::take(&mut parsed, held || early);
        let usage = Usage {
            prompt_tokens,
            completion_tokens: outcome.completion_tokens,
            cached_tokens: outcome.cached_tokens,
            reasoning_tokens: (reasoning_counted && self.marks_reasoning())
                .then_some(outcome.reasoning_tokens),
        };
        let parsed_diagnostics = parsed.diagnostics.iter().map(|diagnostic| diagnostic.to_json());
        let mut diagnostics: Vec<Value> =
            more.into_iter().chain(parsed_diagnostics).chain(cut).collect();
        let violations =
            validate::check_message(&parsed, &request.tools, request.response_format.as_ref());
        diagnostics
            .extend(violations.iter().map(|violation| Diagnostic::from(violation).to_json()));
        diagnostics.extend(
            validate::check_tool_choice(&parsed, &request.tool_choice)
                .map(|diagnostic| diagnostic.to_json()),
        );
        let calls = parsed.tool_calls.into_iter();
        let response = ChatResponse {
            text: parsed.content,
            reasoning: parsed.reasoning,
            tool_calls: calls
                .map(|call| Call { id: call.id, name: call.name, arguments: call.arguments })
                .collect(),
            finish_reason: FinishReason::Stop,
            usage,
            timings: Timings {
                prompt_ms: outcome.prompt_ms,
                predicted_ms: outcome.predicted_ms,
                drafted: outcome.drafted.map(|drafted| (drafted.tokens, drafted.accepted)),
            },
            logprobs,
            polyfills_applied: Vec::new(),
            truncated: None,
            diagnostics,
            ignored_keys: request.ignored_keys.clone(),
        };
        let response =
            ChatResponse { finish_reason: finish_reason(outcome, &response), ..response };
        stream.finish(&response, request.include_usage);
        Ok(response)
    }

    /// Writes the state file. A chat that is destroyed has no other way to say that it could not.
    fn save(&self) {
        let written = match (&self.source, &self.saved) {
            (Source::Native(native), Some(saved)) => saved.write(&native.model),
            _ => Ok(()),
        };
        if let Err(error) = written {
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
        match &self.source {
            Source::Native(native) => {
                for (level, text) in native.model.log.take(self.log) {
                    (self.events)(&format!("log:{}:{text}", level.as_str()));
                }
            }
            #[cfg(feature = "remote")]
            Source::Remote(servers) => {
                let notes = servers.notes().into_iter().filter(|_| self.log <= LogLevel::Warn);
                notes.for_each(|note| (self.events)(&format!("log:warn:{note}")));
            }
        }
    }
}

/// The prompt of a request, and what was done to its messages to get it.
struct Rendered {
    prompt: Prompt,
    polyfills_applied: Vec<&'static str>,
    diagnostics: Vec<Value>,
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
        truncated: None,
        diagnostics: Vec::new(),
        ignored_keys,
    }
}
