//! A chat whose model runs in a helper process.
//!
//! The host keeps what does not depend on the model: the request queue, the deadlines, and the
//! events of the chat and its calls. The helper sends log lines, progress and pieces.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::Value;

use super::connection::Kind;
use super::helper::StartHelper;
use super::helper_call::{HelperCallLimits, HelperError, ReasoningEnd, Request};
use super::message::Call;
use super::session::{CLOSE_TIMEOUT, Session, forward_log};
use crate::api::response::ChatResponse;
use crate::api::{self, ChatRequest, CreateOptions, LogLevel, ReplyShape, RequestDefaults};
use crate::chat::{self, CreateFailure, EventSink, MediaFiles, PieceSink, RequestQueue};
use crate::engine::Interrupt;
use crate::error::{Code, Error, Result};
use crate::sync::lock;

/// A reply of a helper, or of the host for a call that never ran.
pub(crate) enum IsolatedReply {
    /// Valid JSON.
    Helper(String),
    Host(Box<ChatResponse>),
}

/// An open chat. Every method may be called from any thread.
pub(crate) struct IsolatedChat {
    session: Arc<Session>,
    events: EventSink,
    log: LogLevel,
    /// Defaults for members that a request omits.
    defaults: RequestDefaults,
    /// The media files that requests may name, which only the host opens.
    media_files: MediaFiles,
    queue: RequestQueue,
    /// Ends the reasoning of the running call.
    end_reasoning: Mutex<Weak<ReasoningEnd>>,
    /// Whether a call has already reported that the helper ended.
    is_end_told: AtomicBool,
    /// Set by a destroy from inside a callback. The running call emits `destroy` when it ends.
    destroyed: AtomicBool,
}

impl IsolatedChat {
    /// Opens a chat in a helper process and emits the events of [`chat::Chat::create`]. `json` is
    /// the text that `options` was parsed from. `version` is the version that the helper must have.
    pub(crate) fn create(
        options: &CreateOptions,
        json: &Value,
        events: EventSink,
        version: &str,
        start: StartHelper,
    ) -> Result<IsolatedChat, CreateFailure> {
        events("create_start");
        let media_files = MediaFiles::open(&options.media)
            .map_err(|error| CreateFailure::new("invalid_options", error));
        let opened = media_files.and_then(|media_files| {
            Ok((Session::open(options, json, &events, version, start)?, media_files))
        });
        match opened {
            Ok((session, media_files)) => {
                events("create_success");
                Ok(IsolatedChat {
                    session,
                    media_files,
                    events,
                    log: options.log,
                    defaults: options.defaults.clone(),
                    queue: RequestQueue::default(),
                    end_reasoning: Mutex::default(),
                    is_end_told: AtomicBool::new(false),
                    destroyed: AtomicBool::new(false),
                })
            }
            Err(failure) => {
                events(&format!("create_failure:{}", failure.event));
                Err(failure)
            }
        }
    }

    /// See [`chat::Chat::infer`].
    pub(crate) fn infer(&self, request: &str, pieces: Option<PieceSink>) -> Result<IsolatedReply> {
        let deadline = deadline(request);
        let cancel = Arc::new(AtomicBool::new(false));
        let Some(_running) = self.queue.enter(&cancel, deadline)? else {
            return self.cancelled(request);
        };
        (self.events)("infer_start");
        let reply = match self.with_files(request, &cancel, deadline) {
            Ok(inside) => self.run(inside.as_deref().unwrap_or(request), &cancel, deadline, pieces),
            Err(error) if error.code() == Code::Cancelled => self.cancelled(request),
            Err(error) => Err(error),
        };
        (self.events)(if reply.is_ok() { "infer_success" } else { "infer_failure" });
        self.finish_destroy();
        reply
    }

    /// The reply to a request that never ran.
    fn cancelled(&self, request: &str) -> Result<IsolatedReply> {
        let request = ChatRequest::parse(request, ReplyShape::Current, &self.defaults)?;
        let reply = chat::cancelled(ReplyShape::Current, &request);
        Ok(IsolatedReply::Host(Box::new(reply)))
    }

    /// The request with the media files inside that it names, if there are any. An invalid request
    /// has none: the helper reports its error.
    fn with_files(
        &self,
        request: &str,
        cancel: &Arc<AtomicBool>,
        deadline: Option<Instant>,
    ) -> Result<Option<String>> {
        if !self.media_files.reads_others() {
            return Ok(None);
        }
        let Ok(mut request) = api::parse(request, "request_json") else { return Ok(None) };
        let interrupt = Interrupt { cancel: Arc::clone(cancel), deadline, ..Interrupt::default() };
        let is_changed = chat::put_files_inside(&mut request, &self.media_files, &interrupt)?;
        Ok(is_changed.then(|| request.to_string()))
    }

    fn run(
        &self,
        request: &str,
        cancel: &Arc<AtomicBool>,
        deadline: Option<Instant>,
        mut pieces: Option<PieceSink>,
    ) -> Result<IsolatedReply> {
        self.session.mark_used(cancel);
        let stream = pieces.is_some();
        let cancelled = cancel.load(Ordering::Relaxed);
        let chat = self.session.chat;
        let call = |call| Call::Infer { chat, call, stream, cancelled };
        let request = Request { call: &call, text: Some(request), descriptor: None };
        let end_reasoning = Arc::new(ReasoningEnd::default());
        *lock(&self.end_reasoning) = Arc::downgrade(&end_reasoning);
        let limits = HelperCallLimits {
            cancel: Some(cancel),
            deadline,
            end_reasoning: Some(&end_reasoning),
            ..HelperCallLimits::default()
        };
        self.call(&request, &limits, &mut |kind, text| match (kind, &mut pieces) {
            (Kind::Piece, Some(pieces)) => pieces(text),
            (Kind::Event, _) => self.forward_log(text),
            _ => {}
        })
    }

    /// See [`chat::Chat::explain`].
    pub(crate) fn explain(&self, request: &str) -> Result<IsolatedReply> {
        let chat = self.session.chat;
        let cancel = Arc::new(AtomicBool::new(false));
        self.queue.run_beside(&cancel)?;
        let deadline = deadline(request);
        let inside = self.with_files(request, &cancel, deadline)?;
        let limits =
            HelperCallLimits { cancel: Some(&cancel), deadline, ..HelperCallLimits::default() };
        let call = |call| Call::Explain { chat, call };
        let text = Some(inside.as_deref().unwrap_or(request));
        let request = Request { call: &call, text, descriptor: None };
        self.call(&request, &limits, &mut |_, _| {})
    }

    fn call(
        &self,
        request: &Request,
        limits: &HelperCallLimits,
        on_frame: &mut dyn FnMut(Kind, &str),
    ) -> Result<IsolatedReply> {
        let reply = self.session.helper.call(request, limits, on_frame);
        match reply {
            Ok(text) => checked_reply(text).map(IsolatedReply::Helper),
            Err(HelperError::Answered(error, _)) => {
                if error.code() == Code::InternalBridgeError {
                    self.session.give_up();
                }
                Err(error)
            }
            Err(HelperError::Ended(error)) if self.is_end_told.swap(true, Ordering::Relaxed) => {
                let message = format!("{}; create the chat again", error.message());
                Err(Error::new(Code::EngineClosed, message))
            }
            Err(HelperError::Ended(error)) => Err(error),
        }
    }

    /// See [`chat::Chat::cancel`].
    pub(crate) fn cancel(&self) {
        self.queue.cancel_all();
    }

    /// See [`chat::Chat::end_reasoning`].
    pub(crate) fn end_reasoning(&self) {
        let running = lock(&self.end_reasoning).upgrade();
        running.iter().for_each(|end| self.session.helper.end_reasoning(end));
    }

    /// See [`chat::Chat::give_up_call`].
    pub(crate) fn give_up_call(&self) {
        self.queue.give_up();
    }

    /// See [`chat::Chat::close`].
    pub(crate) fn close(&self) {
        self.queue.close();
        self.end();
    }

    /// See [`chat::Chat::close_from_callback`].
    pub(crate) fn close_from_callback(&self) {
        self.destroyed.store(true, Ordering::Relaxed);
        self.queue.refuse();
    }

    /// See [`chat::Chat::finish_destroy`].
    pub(crate) fn finish_destroy(&self) {
        if self.destroyed.swap(false, Ordering::Relaxed) {
            self.end();
        }
    }

    fn end(&self) {
        let deadline = Instant::now() + CLOSE_TIMEOUT;
        if let Err(error) = self.session.close(deadline, &mut |line| self.forward_log(line))
            && self.log <= LogLevel::Error
        {
            (self.events)(&format!("log:error:state_file: {error}"));
        }
        (self.events)("destroy");
    }

    fn forward_log(&self, event: &str) {
        forward_log(self.log, event, &self.events);
    }
}

/// Returns the helper's reply if it is valid JSON.
pub(super) fn checked_reply(text: String) -> Result<String> {
    // Checked without building a value, which could take 50 times as much memory as its text.
    let is_json = crate::json::is_valid(&text);
    if !is_json || !text.starts_with(r#"{"type":"#) {
        return Err(Error::new(Code::InferenceFailed, "the helper process sent no JSON reply"));
    }
    Ok(text)
}

/// When the time of a request ends, if it has a limit. An invalid request has none here: the helper
/// reports its error.
fn deadline(request: &str) -> Option<Instant> {
    // Reading the request counts.
    let started = Instant::now();
    #[derive(Deserialize)]
    struct TimeLimit {
        timeout_ms: Option<u64>,
    }
    let timeout = crate::json::typed::<TimeLimit>(request).ok()?.timeout_ms?;
    started.checked_add(Duration::from_millis(timeout))
}
