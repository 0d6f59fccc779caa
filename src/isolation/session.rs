//! The session of a helper that a chat uses: opening and closing it, and its state file.
//!
//! The helper may not open files. To write the state of a chat, it gets a descriptor of a new file,
//! which replaces the state file once the helper has written it: when the chat is closed, or before
//! its model is unloaded.

use std::cell::Cell;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::Value;

use super::helper::{GRACE, Helper, StartHelper};
use super::helper_call::{HelperCallLimits, HelperError, ProgressLimits, Request, load_progress};
use super::lent_state::{check_size, most_state_bytes};
use super::message::{Call, LentStateCall};
use super::options::HelperOptions;
use crate::api::{CreateOptions, LogLevel};
use crate::chat::{self, CreateFailure, EventSink};
use crate::error::{Code, Error, Result};
use crate::llama::{self, BeforeExit, StatePath, StateStore};
use crate::process::{self, Shared};
use crate::sync::lock;

/// How long a close may take.
pub(super) const CLOSE_TIMEOUT: Duration = Duration::from_secs(120);

/// The sessions that have a state file, each with the process that opened it.
static WITH_STATE: Shared<Vec<(usize, Weak<Session>)>> = Shared::new(Vec::new());

/// The chat of the helper.
pub(super) struct Session {
    pub(super) helper: Arc<Helper>,
    /// The number of the chat in the helper.
    pub(super) chat: u64,
    /// The limits of calls that only read and write memory and files.
    progress: ProgressLimits,
    state: Option<StatePath>,
    /// Whether a request has run. Without one there is no state to write.
    used: AtomicBool,
    closed: AtomicBool,
    /// The cancel flag of the last request.
    cancel: Mutex<Weak<AtomicBool>>,
}

impl Session {
    pub(super) fn open(
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
        let HelperOptions { json, key, state_file, projector_gigabytes } =
            HelperOptions::new(options, json).map_err(invalid)?;
        let path = state_file.as_ref().and_then(|path| path.to_str());
        path.map_or(Ok(()), chat::check_state_file).map_err(invalid)?;
        let helper = Helper::shared(&key, version, start).map_err(|error| match error.code() {
            Code::OutOfMemory => CreateFailure::new("oom", error),
            _ => CreateFailure::new("init_context", error),
        })?;
        tell_restrictions(&helper, options.log, events);
        let progress = ProgressLimits::of_reading(key.gigabytes());
        let progress = projector_gigabytes
            .map_or(progress, |gigabytes| progress.with_first_picture(gigabytes));
        let state = state_file.map(StatePath);
        let chat = create(&helper, &json, state.as_ref(), options.log, progress, events)?;
        let session = Arc::new(Session {
            helper,
            chat,
            progress,
            state,
            used: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            cancel: Mutex::default(),
        });
        if session.state.is_some() {
            let weak: Weak<Session> = Arc::downgrade(&session);
            llama::call_before_exit(weak.clone());
            let mut known = WITH_STATE.lock();
            known.retain(|(_, session)| session.strong_count() > 0);
            known.push((process::forks(), weak));
        }
        Ok(session)
    }

    /// Records that a request runs, and the flag that cancels it.
    pub(super) fn mark_used(&self, cancel: &Arc<AtomicBool>) {
        *lock(&self.cancel) = Arc::downgrade(cancel);
        self.used.store(true, Ordering::Relaxed);
    }

    /// Closes the helper's chat after a fault in it. Its state is unknown, so the state file stays as
    /// it is. Does not wait: the helper may hang.
    pub(super) fn give_up(&self) {
        if !self.closed.swap(true, Ordering::Relaxed) && self.helper.is_alive() {
            self.helper.give_up_chat(self.chat);
        }
    }

    /// Closes the helper's chat and writes its state file. Later calls do nothing.
    pub(super) fn close(&self, deadline: Instant, on_log: &mut dyn FnMut(&str)) -> io::Result<()> {
        if self.closed.swap(true, Ordering::Relaxed) || !self.helper.is_alive() {
            return Ok(());
        }
        let call = Call::Close { chat: self.chat };
        let Some(state) = self.unsaved_state() else {
            // Nothing is written, so a helper that does nothing hangs.
            let progress = ProgressLimits { disk: None, idle: GRACE, ..self.progress };
            let limits = HelperCallLimits {
                deadline: Some(deadline),
                progress,
                ..HelperCallLimits::default()
            };
            return self.run(&call, None, &limits, on_log).map(drop);
        };
        // An unload may be writing the state.
        let _alone = lock(&self.helper.writing_states);
        let limits = HelperCallLimits { deadline: Some(deadline), ..HelperCallLimits::default() };
        self.replace_state(state, &mut |file| self.run(&call, Some(file), &limits, on_log))
            // The helper has already reported the failure, or there was nothing to write.
            .map(drop)
    }

    /// The state file, if a request has run.
    fn unsaved_state(&self) -> Option<&StatePath> {
        self.state.as_ref().filter(|_| self.used.load(Ordering::Relaxed))
    }

    /// Replaces the state file with what `write` writes, unless it returns false. Returns whether
    /// the file was replaced.
    fn replace_state(
        &self,
        state: &StatePath,
        write: &mut dyn FnMut(&File) -> io::Result<bool>,
    ) -> io::Result<bool> {
        let mut is_unchanged = false;
        let replaced = state.replace(&mut |file| {
            is_unchanged = !write(file)?;
            if is_unchanged {
                return Err(io::Error::other("nothing was written"));
            }
            check_size(file, most_state_bytes())
        });
        if is_unchanged { Ok(false) } else { replaced.map(|()| true) }
    }

    /// Runs a call that may write the state to `file`. Returns whether it did.
    fn run(
        &self,
        call: &Call,
        file: Option<&File>,
        limits: &HelperCallLimits,
        on_log: &mut dyn FnMut(&str),
    ) -> io::Result<bool> {
        #[derive(Deserialize)]
        struct Reply {
            #[serde(default)]
            written: bool,
        }
        let descriptor = file.map(|file| file.as_fd());
        let request = Request { call: &|_| call.clone(), text: None, descriptor };
        let reply = self.helper.call(&request, limits, &mut |_, line| on_log(line));
        let reply = reply.map_err(|error| match error {
            HelperError::Answered(error, _) | HelperError::Ended(error) => {
                io::Error::other(error.message().to_owned())
            }
        })?;
        Ok(crate::json::typed::<Reply>(&reply)?.written)
    }
}

/// Runs `body` while a helper may write the states of its chats, and then replaces the state files
/// that it has written. An error of a state file comes before `body` runs, if it can.
pub(super) fn write_states<T>(
    helper: &Arc<Helper>,
    body: &mut dyn FnMut() -> Result<T>,
) -> Result<T> {
    let forks = process::forks();
    let known: Vec<Arc<Session>> = {
        let known = WITH_STATE.lock();
        let own = known.iter().filter(|(of, _)| *of == forks);
        own.filter_map(|(_, session)| session.upgrade()).collect()
    };
    let of_helper = |session: &&Arc<Session>| Arc::ptr_eq(&session.helper, helper);
    let _alone = lock(&helper.writing_states);
    let open: Vec<&Session> = known.iter().filter(of_helper).map(Arc::as_ref).collect();
    lend_files(&open, body)
}

/// Lends each session a file for its state, runs `body`, and takes the files back.
fn lend_files<T>(sessions: &[&Session], body: &mut dyn FnMut() -> Result<T>) -> Result<T> {
    let Some((session, others)) = sessions.split_first() else { return body() };
    let is_closed = session.closed.load(Ordering::Relaxed);
    let Some(state) = session.unsaved_state().filter(|_| !is_closed) else {
        return lend_files(others, body);
    };
    let limits = HelperCallLimits { progress: session.progress, ..HelperCallLimits::default() };
    let (lend, take_back) =
        (Call::LendFile { chat: session.chat }, Call::TakeFileBack { chat: session.chat });
    let mut done = None;
    let replaced = session.replace_state(state, &mut |file| {
        // If one of these calls fails, the chat was closed or the helper has ended.
        let is_lent = session.run(&lend, Some(file), &limits, &mut |_| {}).is_ok();
        done = Some(lend_files(others, body));
        Ok(is_lent && session.run(&take_back, None, &limits, &mut |_| {}).unwrap_or(false))
    });
    let cannot_write = |error: io::Error| {
        Error::new(Code::InferenceFailed, format!("{}: {error}", state.name())).caused_by(error)
    };
    match (done, replaced) {
        (Some(Ok(_)) | None, Err(error)) => Err(cannot_write(error)),
        (Some(done), _) => done,
        (None, Ok(_)) => lend_files(others, body),
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
        Ok(reply) => crate::json::typed::<Created>(&reply)
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

/// Emits a helper's event if it is a log line at a level that the caller asked for.
pub(super) fn forward_log(log: LogLevel, event: &str, events: &EventSink) {
    let levels = [LogLevel::Debug, LogLevel::Info, LogLevel::Warn, LogLevel::Error];
    let level = event
        .strip_prefix("log:")
        .and_then(|rest| rest.split_once(':'))
        .and_then(|(name, _)| levels.into_iter().find(|level| level.as_str() == name));
    if level.is_some_and(|level| level >= log) {
        events(event);
    }
}
