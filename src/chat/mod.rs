//! A chat: one model and one chat template. Requests run in order of arrival.
//!
//! ```text
//! ChatRequest -> prompt -> tokens, grammar -> job or server -> text -> parser -> ChatResponse
//!                (render)  (native, remote)   (source)                 (reply)
//! ```

mod answer_stop;
mod count;
mod explain;
mod format_tokens;
#[cfg(llb_isolation)]
mod inside_media;
mod media;
mod media_count;
mod media_marker;
mod native;
#[cfg(not(feature = "media"))]
mod no_media_files;
mod open;
mod plain_prompt;
mod queue;
#[cfg(feature = "remote")]
mod remote;
mod render;
mod reply;
mod reply_constraint;
mod reply_reader;
mod source;
mod stream;
mod tokenizer_model;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Instant;

use serde_json::Value;

use crate::api::response::{ChatResponse, FinishReason};
use crate::api::{ChatRequest, CreateOptions, LogLevel, Polyfills, ReplyShape, RequestDefaults};
use crate::compose::Composed;
use crate::engine::Interrupt;
use crate::error::{Code, Result};
use crate::llama::{StatePath, StateStore};
#[cfg(feature = "media")]
pub(crate) use crate::media::{MediaFiles, MediaLocation, MediaWait};
use crate::profile::ModelProfile;
use crate::sync::lock;
use crate::template::Limits;

pub use count::{PromptCount, count};
#[cfg(llb_isolation)]
pub(crate) use inside_media::put_files_inside;
#[cfg(llb_isolation)]
pub(crate) use native::check_state_file;
#[cfg(not(feature = "media"))]
pub(crate) use no_media_files::{
    NoMediaFiles as MediaFiles, NoMediaLocation as MediaLocation, NoMediaWait as MediaWait,
};
pub use open::CreateFailure;
use open::{OpenedChat, open};
pub(crate) use queue::RequestQueue;
use render::PromptRenderer;
use source::{FittedPrompt, ReplySource};
pub(crate) use stream::DeltaSink;
pub use stream::PieceSink;
use stream::StreamSink;

/// Receives the events of a chat, on the thread of the call that emits them.
pub type EventSink = Box<dyn Fn(&str) + Send + Sync>;

/// An open chat. All methods may be called from any thread.
pub struct Chat {
    source: Box<dyn ReplySource>,
    profile: Arc<ModelProfile>,
    /// The components of the chat template, if it was composed.
    composed: Option<Composed>,
    events: EventSink,
    defaults: RequestDefaults,
    polyfills: Polyfills,
    limits: Limits,
    log: LogLevel,
    reply_shape: ReplyShape,
    queue: RequestQueue,
    /// The flag that ends the reasoning of the running call.
    end_reasoning: Mutex<Weak<AtomicBool>>,
    /// Set by a destroy from a callback. The running call emits `destroy` when it ends.
    destroyed: AtomicBool,
}

impl Chat {
    /// Opens a chat: header, tool-capability check, weights. Emits `create_start`,
    /// `load_progress:*`, and `create_success` or one `create_failure:*`.
    pub fn create(
        options: Result<CreateOptions>,
        events: EventSink,
    ) -> Result<Chat, CreateFailure> {
        let path = options.as_ref().ok().and_then(|options| options.storage.state_file.as_ref());
        let state = path.map(|path| Arc::new(StatePath(path.into())) as Arc<dyn StateStore>);
        Chat::create_with_state(options, state, events)
    }

    /// Like [`Chat::create`], but restores `state` instead of the file that the options name.
    pub(crate) fn create_with_state(
        options: Result<CreateOptions>,
        state: Option<Arc<dyn StateStore>>,
        events: EventSink,
    ) -> Result<Chat, CreateFailure> {
        events("create_start");
        let opened = options
            .map_err(|error| CreateFailure::new("invalid_options", error))
            .and_then(|options| Ok((open(&options, state, events.as_ref())?, options)));
        match opened {
            Ok((OpenedChat { source, profile, composed, defaults }, options)) => {
                let chat = Chat {
                    source,
                    profile,
                    composed,
                    events,
                    defaults,
                    limits: Limits::with(&options.template.template_limits),
                    polyfills: options.template.polyfills,
                    log: options.log,
                    reply_shape: options.reply_shape,
                    queue: RequestQueue::default(),
                    end_reasoning: Mutex::default(),
                    destroyed: AtomicBool::new(false),
                };
                chat.emit_log();
                (chat.events)("create_success");
                Ok(chat)
            }
            Err(failure) => {
                events(&format!("create_failure:{}", failure.event));
                Err(failure)
            }
        }
    }

    /// Runs a request. `pieces` receives the reply as a stream. Without `pieces` the reply is
    /// returned as a whole.
    ///
    /// Emits `infer_start` and `infer_success` or `infer_failure` while the call is at the head of
    /// the queue, so none of them follows a close that has returned. A call that is cancelled while
    /// it waits emits neither.
    pub fn infer(&self, request: &str, pieces: Option<PieceSink>) -> Result<ChatResponse> {
        self.infer_until(request, Interrupt::default(), pieces)
    }

    /// Like [`Chat::infer`], with flags that interrupt this call. The request sets the deadline.
    pub(crate) fn infer_until(
        &self,
        request: &str,
        interrupt: Interrupt,
        pieces: Option<PieceSink>,
    ) -> Result<ChatResponse> {
        self.run_in_order(|| self.read(request), interrupt, pieces.map(StreamSink::Pieces))
    }

    /// Like [`Chat::infer_until`], for a request that is not text, and with deltas.
    pub(crate) fn infer_value(
        &self,
        request: Value,
        interrupt: Interrupt,
        deltas: Option<DeltaSink>,
    ) -> Result<ChatResponse> {
        self.run_in_order(|| self.read_value(request), interrupt, deltas.map(StreamSink::Deltas))
    }

    /// Reads a request, and runs it after all earlier ones.
    fn run_in_order(
        &self,
        read: impl FnOnce() -> Result<ChatRequest>,
        interrupt: Interrupt,
        sink: Option<StreamSink>,
    ) -> Result<ChatResponse> {
        // Reading the request counts.
        let started = Instant::now();
        let request = read();
        let timeout = request.as_ref().ok().and_then(|request| request.output.timeout);
        let deadline = timeout.map(|timeout| started + timeout);
        let Some(_running) = self.queue.enter(&interrupt.cancel, deadline)? else {
            return request.map(|request| self.cancelled(&request));
        };
        *lock(&self.end_reasoning) = Arc::downgrade(&interrupt.end_reasoning);
        (self.events)("infer_start");
        let reply = request.and_then(|request| {
            let reply = self.run(&request, Interrupt { deadline, ..interrupt }, sink);
            match reply {
                // Cancelled before the first token: the reply is empty, as for a call that never
                // ran.
                Err(error) if error.code() == Code::Cancelled => Ok(self.cancelled(&request)),
                reply => reply,
            }
        });
        self.emit_log();
        (self.events)(if reply.is_ok() { "infer_success" } else { "infer_failure" });
        self.finish_destroy();
        reply
    }

    /// The function that opened this chat.
    pub fn reply_shape(&self) -> ReplyShape {
        self.reply_shape
    }

    /// The reply of a call that ended before its first token.
    fn cancelled(&self, request: &ChatRequest) -> ChatResponse {
        cancelled(self.reply_shape, request)
    }

    /// Cancels the running request and all waiting ones. Each returns what it has generated so far.
    pub fn cancel(&self) {
        self.queue.cancel_all();
    }

    /// Ends the block of reasoning that the running reply is in. Does nothing if no call runs, or
    /// if the reply is not in reasoning.
    pub fn end_reasoning(&self) {
        if let Some(flag) = lock(&self.end_reasoning).upgrade() {
            flag.store(true, Ordering::Relaxed);
        }
    }

    /// Ends the running call for its thread, which has left the call and will not return to it.
    pub fn give_up_call(&self) {
        self.queue.give_up();
    }

    /// Refuses further requests, cancels all others, waits until they have ended, and emits
    /// `destroy`.
    pub fn close(&self) {
        self.queue.close();
        self.save();
        (self.events)("destroy");
    }

    /// Closes the chat from a callback of the call that runs on this thread. When that call ends,
    /// `destroy` is emitted and the chat is freed.
    pub fn close_from_callback(&self) {
        self.destroyed.store(true, Ordering::Relaxed);
        self.queue.refuse();
    }

    /// Completes a destroy from a callback if the call could not do it.
    pub fn finish_destroy(&self) {
        if self.destroyed.swap(false, Ordering::Relaxed) {
            self.save();
            (self.events)("destroy");
        }
    }

    fn read(&self, request: &str) -> Result<ChatRequest> {
        ChatRequest::parse(request, self.reply_shape, &self.defaults)
    }

    fn read_value(&self, request: Value) -> Result<ChatRequest> {
        ChatRequest::read_with(request, self.reply_shape, &self.defaults)
    }

    /// The stop strings of a composed template. They end a turn, so they apply to the whole text.
    fn template_stops(&self) -> impl Iterator<Item = &String> {
        self.composed.iter().flat_map(Composed::stop_words)
    }

    /// The prompt of a request, fitted to the context of the model.
    fn fit_to_context(&self, request: &ChatRequest, interrupt: &Interrupt) -> Result<FittedPrompt> {
        let renderer = PromptRenderer {
            profile: &self.profile,
            composed: self.composed.as_ref(),
            polyfills: &self.polyfills,
            limits: self.limits,
            fill_spellings: &|| self.source.fill_spellings(),
            interrupt,
        };
        let render = |messages: &[Value]| renderer.render(request, messages);
        self.source.fit_to_context(request, &render, interrupt)
    }

    /// Writes the state file. A destroy returns nothing, so a failure is only logged.
    fn save(&self) {
        if let Err(error) = self.source.save() {
            self.emit_line(LogLevel::Error, &format!("state_file: {}", error.message()));
        }
        self.emit_log();
    }

    fn emit_line(&self, level: LogLevel, line: &str) {
        if level >= self.log {
            (self.events)(&format!("log:{}:{line}", level.as_str()));
        }
    }

    fn emit_log(&self) {
        if self.log != LogLevel::Off {
            for (level, line) in self.source.take_log(self.log) {
                self.emit_line(level, &line);
            }
        }
    }
}

/// The reply of a call that ended before its first token.
pub(crate) fn cancelled(reply_shape: ReplyShape, request: &ChatRequest) -> ChatResponse {
    ChatResponse {
        reply_shape,
        finish_reason: FinishReason::Cancelled,
        ignored_keys: request.ignored_keys.clone(),
        ..ChatResponse::default()
    }
}
