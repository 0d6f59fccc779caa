//! A chat whose model runs in a helper process.
//!
//! The host keeps what does not depend on the model: the request queue, the deadlines, and the
//! events of the chat and its calls. The helper sends log lines, progress and pieces.

use std::cell::Cell;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

use super::connection::Kind;
use super::helper::{Helper, StartHelper};
use super::helper_call::{
    HelperCallLimits, HelperError, ProgressLimits, ReasoningEnd, Request, load_progress,
};
use super::lent_state::{check_size, most_state_bytes};
use super::message::{Call, LentStateCall};
use super::options::HelperOptions;
use crate::api::response::ChatResponse;
use crate::api::{ChatRequest, CreateOptions, LogLevel, ParsedLists, ReplyShape, RequestDefaults};
use crate::chat::{self, CreateFailure, EventSink, PieceSink, RequestQueue};
use crate::error::{Code, Error, Result};
use crate::llama::{self, BeforeExit, StatePath, StateStore};
use crate::process;
use crate::sync::lock;

/// How long a close may take to write the state.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(120);

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
    queue: RequestQueue,
    /// Ends the reasoning of the running call.
    end_reasoning: Mutex<Weak<ReasoningEnd>>,
    /// Whether a call has already reported that the helper ended.
    is_end_told: AtomicBool,
    /// Set by a destroy from inside a callback. The running call emits `destroy` when it ends.
    destroyed: AtomicBool,
}

/// The chat of the helper.
struct Session {
    helper: Arc<Helper>,
    chat: u64,
    state: Option<StatePath>,
    /// Whether a request has run. Without one there is no state to write.
    used: AtomicBool,
    closed: AtomicBool,
    /// The cancel flag of the last request.
    cancel: Mutex<Weak<AtomicBool>>,
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
        match Session::open(options, json, &events, version, start) {
            Ok(session) => {
                events("create_success");
                Ok(IsolatedChat {
                    session,
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
            let lists = ParsedLists::default();
            let request = ChatRequest::parse(request, lists, ReplyShape::Current, &self.defaults)?;
            let reply = chat::cancelled(ReplyShape::Current, &request);
            return Ok(IsolatedReply::Host(Box::new(reply)));
        };
        (self.events)("infer_start");
        let reply = self.run(request, &cancel, deadline, pieces);
        (self.events)(if reply.is_ok() { "infer_success" } else { "infer_failure" });
        self.finish_destroy();
        reply
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
        let limits = HelperCallLimits {
            cancel: Some(&cancel),
            deadline: deadline(request),
            ..HelperCallLimits::default()
        };
        let call = |call| Call::Explain { chat, call };
        let request = Request { call: &call, text: Some(request), descriptor: None };
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
            Err(HelperError::Answered(error, _)) => Err(error),
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
    let is_json = serde_json::from_str::<IgnoredAny>(&text).is_ok();
    if !is_json || !text.starts_with(r#"{"type":"#) {
        return Err(Error::new(Code::InferenceFailed, "the helper process sent no JSON reply"));
    }
    Ok(text)
}

/// Emits a helper's event if it is a log line at a level that the caller asked for.
fn forward_log(log: LogLevel, event: &str, events: &EventSink) {
    let levels = [LogLevel::Debug, LogLevel::Info, LogLevel::Warn, LogLevel::Error];
    let level = event
        .strip_prefix("log:")
        .and_then(|rest| rest.split_once(':'))
        .and_then(|(name, _)| levels.into_iter().find(|level| level.as_str() == name));
    if level.is_some_and(|level| level >= log) {
        events(event);
    }
}

impl Session {
    fn open(
        options: &CreateOptions,
        json: &Value,
        events: &EventSink,
        version: &str,
        start: StartHelper,
    ) -> Result<Arc<Session>, CreateFailure> {
        let invalid = |error| CreateFailure::new("invalid_options", error);
        if options.model.is_none() {
            let error = Error::new(Code::InvalidRequest, "model: the path is NULL");
            return Err(CreateFailure::new("null_path", error));
        }
        let HelperOptions { json, key, state_file } =
            HelperOptions::new(options, json).map_err(invalid)?;
        let path = state_file.as_ref().and_then(|path| path.to_str());
        path.map_or(Ok(()), chat::check_state_file).map_err(invalid)?;
        let helper = Helper::shared(&key, version, start).map_err(|error| match error.code() {
            Code::OutOfMemory => CreateFailure::new("oom", error),
            _ => CreateFailure::new("init_context", error),
        })?;
        tell_restrictions(&helper, options.log, events);
        let progress = ProgressLimits::of_reading(key.gigabytes());
        let state = state_file.map(StatePath);
        let chat = create(&helper, &json, state.as_ref(), options.log, progress, events)?;
        let session = Arc::new(Session {
            helper,
            chat,
            state,
            used: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            cancel: Mutex::default(),
        });
        if session.state.is_some() {
            let weak: Weak<Session> = Arc::downgrade(&session);
            llama::call_before_exit(weak);
        }
        Ok(session)
    }

    fn mark_used(&self, cancel: &Arc<AtomicBool>) {
        *lock(&self.cancel) = Arc::downgrade(cancel);
        self.used.store(true, Ordering::Relaxed);
    }

    /// Closes the helper's chat and writes its state file. Later calls do nothing.
    fn close(&self, deadline: Instant, on_log: &mut dyn FnMut(&str)) -> io::Result<()> {
        if self.closed.swap(true, Ordering::Relaxed) || !self.helper.is_alive() {
            return Ok(());
        }
        match self.state.as_ref().filter(|_| self.used.load(Ordering::Relaxed)) {
            None => self.close_writing(None, deadline, on_log).map(drop),
            Some(state) => {
                let unchanged = Cell::new(false);
                let replaced = state.replace(&mut |file| {
                    let is_written = self.close_writing(Some(file), deadline, on_log)?;
                    unchanged.set(!is_written);
                    if !is_written {
                        return Err(io::Error::other("nothing was written"));
                    }
                    check_size(file, most_state_bytes())
                });
                // The helper has already reported the failure, or there was nothing to write.
                if unchanged.get() { Ok(()) } else { replaced }
            }
        }
    }

    /// Returns whether the helper wrote its state to `file`.
    fn close_writing(
        &self,
        file: Option<&File>,
        deadline: Instant,
        on_log: &mut dyn FnMut(&str),
    ) -> io::Result<bool> {
        let call = |_| Call::Close { chat: self.chat };
        let descriptor = file.map(|file| file.as_fd());
        let request = Request { call: &call, text: None, descriptor };
        let limits = HelperCallLimits { deadline: Some(deadline), ..HelperCallLimits::default() };
        let closed = self.helper.call(&request, &limits, &mut |_, line| on_log(line));
        let reply = closed.map_err(|error| match error {
            HelperError::Answered(error, _) | HelperError::Ended(error) => {
                io::Error::other(error.message().to_owned())
            }
        })?;
        #[derive(Deserialize)]
        struct Closed {
            written: bool,
        }
        Ok(serde_json::from_str::<Closed>(&reply)?.written)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // The chat was abandoned, or never became a handle.
        if !process::is_exiting() {
            let _ = self.close(Instant::now() + CLOSE_TIMEOUT, &mut |_| {});
        }
    }
}

impl BeforeExit for Session {
    fn before_exit(&self, deadline: Instant) -> bool {
        let running = lock(&self.cancel).upgrade();
        if let Some(running) = running {
            running.store(true, Ordering::Relaxed);
        }
        let _ = self.close(deadline, &mut |_| {});
        Instant::now() < deadline
    }
}

/// Opens a chat in a helper.
fn create(
    helper: &Helper,
    options: &str,
    state: Option<&StatePath>,
    log: LogLevel,
    progress: ProgressLimits,
    events: &EventSink,
) -> Result<u64, CreateFailure> {
    let opened = state.map(StateStore::open);
    let file = opened.as_ref().and_then(|opened| opened.as_ref().ok()?.as_ref());
    let call = |_| Call::Create {
        state: opened.as_ref().zip(state).map(|(opened, state)| LentStateCall {
            name: state.name(),
            size: file.map(|(_, size)| *size),
            problem: opened.as_ref().err().cloned(),
        }),
    };
    let descriptor = file.map(|(file, _)| file.as_fd());
    let request = Request { call: &call, text: Some(options), descriptor };
    let limits = HelperCallLimits { progress, ..HelperCallLimits::default() };
    let is_loaded = Cell::new(false);
    let created = helper.call(&request, &limits, &mut |_, event| match load_progress(event) {
        Some(progress) => {
            is_loaded.set(progress >= 1.0);
            events(&format!("load_progress:{progress:.2}"));
        }
        None => forward_log(log, event, events),
    });
    #[derive(Deserialize)]
    struct Created {
        chat: u64,
    }
    let stage = || if is_loaded.get() { "init_context" } else { "load_model" };
    match created {
        Ok(reply) => serde_json::from_str::<Created>(&reply)
            .map(|created| created.chat)
            .map_err(|_| CreateFailure::new(stage(), helper.ended())),
        Err(HelperError::Answered(error, event)) => {
            Err(CreateFailure::new(event.unwrap_or("init_context"), error))
        }
        Err(HelperError::Ended(error)) => Err(CreateFailure::new(stage(), error)),
    }
}

/// Logs the helper's process id, and any restriction that could not be applied.
fn tell_restrictions(helper: &Helper, log: LogLevel, events: &EventSink) {
    let restrictions = helper.restrictions();
    if log <= LogLevel::Info {
        events(&format!("log:info:isolation: the model runs in process {}", helper.worker()));
    }
    if log <= LogLevel::Warn
        && let Some(problem) = &restrictions.problem
    {
        let left = match (restrictions.landlock, restrictions.seccomp) {
            (false, true) => "it can read files",
            (true, false) => "it can open connections",
            _ => "it can read and write files and open connections",
        };
        events(&format!(
            "log:warn:isolation: the helper process is not fully restricted: {problem}; {left}"
        ));
    }
}

/// When the time of a request ends, if it has a limit. An invalid request has none here: the helper
/// reports its error.
fn deadline(request: &str) -> Option<Instant> {
    #[derive(Deserialize)]
    struct TimeLimit {
        timeout_ms: Option<u64>,
    }
    let timeout = crate::json::from_str::<TimeLimit>(request).ok()?.timeout_ms?;
    Instant::now().checked_add(Duration::from_millis(timeout))
}
