//! The helper: runs the host's calls on the chats of its process.
//!
//! The main thread waits at the listener for new connections and cancellations. Each connection has a
//! thread, which runs one call after another.

use std::cell::RefCell;
use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};

use serde::Serialize;
use serde_json::json;

use super::connection::{Connection, Kind, Side, forever, receive_some};
use super::lent_state::{LentState, most_state_bytes};
use super::message::{Call, Hello, ListenerMessage, error_json, read_error};
use super::sandbox;
use crate::api::{self, CreateOptions};
use crate::chat::{Chat, CreateFailure};
use crate::engine::Interrupt;
use crate::error::{Code, Error, Result};
use crate::llama::{self, StateStore};
use crate::panic;
use crate::spawn;
use crate::sync::lock;
use crate::tokens;

/// The stack of a connection's thread. Large hosts give their threads as much.
const STACK: usize = 4 << 20;

/// Serves the host until it closes the listener.
pub(crate) fn serve(listener: &OwnedFd, version: &str) {
    let server = Arc::new(Server { version: version.to_owned(), ..Server::default() });
    let mut is_first = true;
    loop {
        let (mut message, mut descriptors) = ([0; 17], Vec::new());
        let received = receive_some(listener.as_fd(), &mut message, &mut descriptors, &mut forever);
        let Ok(length @ 1..) = received else { return };
        match ListenerMessage::of(&message[..length]) {
            Some(ListenerMessage::Connect(number)) => {
                let Some(socket) = descriptors.pop() else { continue };
                let mut connection = Connection::new(socket, Side::Helper);
                if std::mem::take(&mut is_first) && !server.start(&mut connection) {
                    return;
                }
                server.accept(number, connection);
            }
            Some(ListenerMessage::Cancel { connection, call }) => {
                server.change_calls(connection, |calls| calls.cancel(call));
            }
            Some(ListenerMessage::EndReasoning { connection, call }) => {
                server.change_calls(connection, |calls| calls.end_reasoning(call));
            }
            None => {}
        }
    }
}

#[derive(Default)]
struct Server {
    version: String,
    chats: Mutex<HashMap<u64, Arc<ServedChat>>>,
    last_chat: AtomicU64,
    /// Why no kernels could be chosen.
    refusal: Mutex<Option<String>>,
    /// Keyed by the number of the connection.
    calls: Mutex<HashMap<u64, ConnectionCalls>>,
}

struct ServedChat {
    chat: Chat,
    state: Option<Arc<LentState>>,
}

impl ServedChat {
    /// Sets the file that the state goes to.
    fn lend(&self, descriptor: Option<OwnedFd>) {
        if let (Some(state), Some(target)) = (&self.state, descriptor) {
            state.write_to(target);
        }
    }

    /// Returns whether the state was written to that file.
    fn end_writing(&self) -> bool {
        self.state.as_ref().is_some_and(|state| state.end_writing())
    }
}

/// The calls of one connection as messages at the listener refer to them. A message may arrive before
/// its call.
#[derive(Default)]
struct ConnectionCalls {
    /// Calls up to this number are cancelled.
    cancelled: u64,
    /// Calls up to this number are to end their reasoning.
    ended_reasoning: u64,
    /// The number of the running call, and what interrupts it.
    running: Option<(u64, Interrupt)>,
}

impl ConnectionCalls {
    /// Begins a call, and returns what interrupts it.
    fn begin(&mut self, number: u64) -> Interrupt {
        let flag = |last: u64| Arc::new(AtomicBool::new(number <= last));
        let interrupt = Interrupt {
            cancel: flag(self.cancelled),
            end_reasoning: flag(self.ended_reasoning),
            ..Interrupt::default()
        };
        self.running = Some((number, interrupt.clone()));
        interrupt
    }

    /// The running call, if it is this one or an earlier one.
    fn running_until(&self, call: u64) -> Option<&Interrupt> {
        let (number, interrupt) = self.running.as_ref()?;
        (*number <= call).then_some(interrupt)
    }

    fn cancel(&mut self, call: u64) {
        self.cancelled = self.cancelled.max(call);
        let running = self.running_until(call);
        running.iter().for_each(|running| running.cancel.store(true, Ordering::Relaxed));
    }

    fn end_reasoning(&mut self, call: u64) {
        self.ended_reasoning = self.ended_reasoning.max(call);
        let running = self.running_until(call);
        running.iter().for_each(|running| running.end_reasoning.store(true, Ordering::Relaxed));
    }
}

/// The connection of the call that runs on the current thread.
#[derive(Clone)]
struct Caller {
    connection: Arc<Connection>,
    /// Cancelled when the host is gone.
    interrupt: Interrupt,
}

impl Caller {
    fn send(&self, kind: Kind, text: &str) {
        if self.connection.send(kind, text.as_bytes(), None, &mut forever).is_err() {
            self.interrupt.cancel.store(true, Ordering::Relaxed);
        }
    }
}

thread_local! {
    static CALLER: RefCell<Option<Caller>> = const { RefCell::new(None) };
}

/// Sends an event of a chat to the host if the current thread runs a call. The host emits the
/// events of chats and calls itself.
fn on_event(event: &str) {
    let is_sent = event.starts_with("log:") || event.starts_with("load_progress:");
    if is_sent && event.len() <= Kind::Event.most_bytes() {
        let caller = CALLER.with(|caller| caller.borrow().clone());
        caller.iter().for_each(|caller| caller.send(Kind::Event, event));
    }
}

impl Server {
    /// Answers the first call, and gives up every right that the process does not need.
    fn start(&self, connection: &mut Connection) -> bool {
        let Ok((Kind::Call, call)) = connection.receive(&mut forever) else { return false };
        let Ok(Call::Start { files, backend }) = crate::json::typed(&call) else {
            return false;
        };
        // Kernels are loaded while files can still be opened.
        if let Err(error) = llama::choose_kernels(backend.as_deref()) {
            let event = match error.code() {
                Code::InvalidRequest => "invalid_options",
                _ => "init_context",
            };
            *lock(&self.refusal) = Some(error_json(&error, Some(event)).to_string());
        }
        let restrictions = sandbox::restrict(&files, most_state_bytes());
        let hello = Hello { version: self.version.clone(), restrictions };
        let hello = json!(hello).to_string();
        connection.send(Kind::Reply, hello.as_bytes(), None, &mut forever).is_ok()
    }

    /// Runs the calls of a connection on a thread of its own.
    fn accept(self: &Arc<Server>, number: u64, connection: Connection) {
        let server = Arc::clone(self);
        let (sender, receiver) = mpsc::channel();
        let thread = spawn::thread_with_stack("llb-helper-call", STACK, move || {
            receiver.recv().into_iter().for_each(|connection| server.run(number, connection));
        });
        match thread {
            // The thread waits for the connection, so it receives it.
            Ok(_) => drop(sender.send(connection)),
            Err(error) => self.refuse(number, connection, &error),
        }
    }

    /// Answers the first call of a connection with an error, and closes the connection. The host
    /// opens connections only for calls, so this waits for a short time.
    fn refuse(&self, number: u64, connection: Connection, error: &Error) {
        let mut connection = Arc::new(connection);
        if self.next_call(number, &mut connection).is_some() {
            let error = error_json(error, Some("oom")).to_string();
            let _ = connection.send(Kind::Refusal, error.as_bytes(), None, &mut forever);
        }
        lock(&self.calls).remove(&number);
    }

    /// Runs the calls of a connection until the host closes it.
    fn run(&self, number: u64, connection: Connection) {
        let mut connection = Arc::new(connection);
        while let Some(call) = self.next_call(number, &mut connection) {
            let IncomingCall { call, text, descriptor, interrupt } = call;
            let caller = Caller { connection: Arc::clone(&connection), interrupt };
            CALLER.set(Some(caller.clone()));
            let done =
                catch_unwind(AssertUnwindSafe(|| self.answer(call, &text, descriptor, &caller)));
            CALLER.set(None);
            self.change_calls(number, |calls| calls.running = None);
            let done = done.unwrap_or_else(|payload| Err(panic::error(&*payload).into()));
            match done.and_then(|reply| short_enough(reply, Kind::Reply.most_bytes())) {
                Ok(reply) => caller.send(Kind::Reply, &reply),
                Err(CreateFailure { event, error }) => {
                    let event = Some(event).filter(|event| !event.is_empty());
                    let most = Kind::Failure.most_bytes();
                    caller.send(Kind::Failure, &short_error(&error, event, most));
                }
            }
        }
        lock(&self.calls).remove(&number);
    }

    fn next_call(&self, number: u64, connection: &mut Arc<Connection>) -> Option<IncomingCall> {
        // The last caller was dropped, so this is the only reference.
        let connection = Arc::get_mut(connection)?;
        let (Kind::Call, call) = connection.receive(&mut forever).ok()? else { return None };
        let call: Call = crate::json::typed(&call).ok()?;
        let text = match call {
            Call::Create { .. }
            | Call::Infer { .. }
            | Call::Explain { .. }
            | Call::Tokens { .. }
            | Call::Unload => {
                let (Kind::Text, text) = connection.receive(&mut forever).ok()? else {
                    return None;
                };
                String::from_utf8(text).ok()?
            }
            Call::Start { .. }
            | Call::LendFile { .. }
            | Call::TakeFileBack { .. }
            | Call::Close { .. } => String::new(),
        };
        let interrupt = match call {
            Call::Infer { call, cancelled, .. } => {
                let interrupt = self.change_calls(number, |calls| calls.begin(call));
                interrupt.cancel.fetch_or(cancelled, Ordering::Relaxed);
                interrupt
            }
            Call::Explain { call, .. } => self.change_calls(number, |calls| calls.begin(call)),
            _ => Interrupt::default(),
        };
        Some(IncomingCall { call, text, descriptor: connection.take_descriptor(), interrupt })
    }

    fn change_calls<T>(
        &self,
        connection: u64,
        change: impl FnOnce(&mut ConnectionCalls) -> T,
    ) -> T {
        change(lock(&self.calls).entry(connection).or_default())
    }

    fn answer(
        &self,
        call: Call,
        text: &str,
        descriptor: Option<OwnedFd>,
        caller: &Caller,
    ) -> Result<String, CreateFailure> {
        match call {
            Call::Start { .. } => Err(Error::invalid("start", "the helper has started").into()),
            Call::Create { state } => {
                let state = state.map(|state| Arc::new(LentState::new(state, descriptor)));
                self.create(text, state)
            }
            Call::Infer { chat, stream, .. } => {
                let served = self.chat(chat)?;
                let mut on_piece = |piece: &str| caller.send(Kind::Piece, piece);
                let pieces = stream.then_some(&mut on_piece as _);
                let interrupt = caller.interrupt.clone();
                let reply = served.chat.infer_until(text, interrupt, pieces)?;
                Ok(to_json(&reply)?)
            }
            Call::Explain { chat, .. } => {
                let interrupt = caller.interrupt.clone();
                Ok(to_json(&self.chat(chat)?.chat.explain_until(text, interrupt)?)?)
            }
            Call::Tokens { call } => {
                let request = api::parse(text, "request_json")?;
                Ok(to_json(&tokens::run(call, request)?)?)
            }
            Call::Unload => Ok(json!({ "chats": llama::unload(text)? }).to_string()),
            Call::LendFile { chat } => {
                self.chat(chat)?.lend(descriptor);
                Ok("{}".to_owned())
            }
            Call::TakeFileBack { chat } => Ok(written(self.chat(chat)?.end_writing())),
            Call::Close { chat } => {
                let served = self.chat(chat)?;
                lock(&self.chats).remove(&chat);
                served.lend(descriptor);
                served.chat.close();
                Ok(written(served.end_writing()))
            }
        }
    }

    fn create(
        &self,
        options: &str,
        state: Option<Arc<LentState>>,
    ) -> Result<String, CreateFailure> {
        let refusal = lock(&self.refusal).as_ref().and_then(|text| read_error(text.as_bytes()));
        if let Some((error, event)) = refusal {
            return Err(CreateFailure::new(event.unwrap_or_default(), error));
        }
        let options =
            api::parse(options, "options_json").and_then(|json| CreateOptions::read(&json));
        let store = state.clone().map(|state| state as Arc<dyn StateStore>);
        let chat = Chat::create_with_state(options, store, Box::new(on_event))?;
        let number = self.last_chat.fetch_add(1, Ordering::Relaxed) + 1;
        lock(&self.chats).insert(number, Arc::new(ServedChat { chat, state }));
        Ok(json!({ "chat": number }).to_string())
    }

    fn chat(&self, number: u64) -> Result<Arc<ServedChat>> {
        let chat = lock(&self.chats).get(&number).cloned();
        chat.ok_or_else(|| Error::new(Code::EngineClosed, "the chat is closed"))
    }
}

struct IncomingCall {
    call: Call,
    text: String,
    descriptor: Option<OwnedFd>,
    interrupt: Interrupt,
}

/// Errors of calls other than create have no event.
impl From<Error> for CreateFailure {
    fn from(error: Error) -> CreateFailure {
        CreateFailure::new("", error)
    }
}

/// Returns the reply unless it is longer than the host accepts.
fn short_enough(reply: String, most: usize) -> Result<String, CreateFailure> {
    let length = reply.len();
    if length <= most {
        return Ok(reply);
    }
    let problem = format!(
        "the reply has {length} bytes, but at most {most} can pass from a helper process; \
         ask for fewer tokens or log probabilities"
    );
    Err(Error::invalid("request", problem).into())
}

/// An error as JSON. Without its message and details if it is longer than the host accepts.
fn short_error(error: &Error, event: Option<&str>, most: usize) -> String {
    let text = error_json(error, event).to_string();
    if text.len() <= most {
        return text;
    }
    let problem = format!(
        "the error has {} bytes, but at most {most} can pass from a helper process",
        text.len()
    );
    error_json(&Error::new(error.code(), problem), event).to_string()
}

/// The reply to a call that may have written a state.
fn written(is_written: bool) -> String {
    json!({ "written": is_written }).to_string()
}

fn to_json(value: &impl Serialize) -> Result<String> {
    serde_json::to_string(value)
        .map_err(|error| Error::new(Code::InternalBridgeError, error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_that_is_too_long_is_an_error() {
        assert_eq!(short_enough("12345".to_owned(), 5).map_err(|_| ()), Ok("12345".to_owned()));
        let refused = short_enough("123456".to_owned(), 5).expect_err("too long");
        let expected = "request: the reply has 6 bytes, but at most 5 can pass from a helper \
                        process; ask for fewer tokens or log probabilities";
        assert_eq!(refused.error.message(), expected);
    }

    #[test]
    fn an_error_that_is_too_long_keeps_its_code() {
        let error = Error::new(Code::ContextOverflow, "x".repeat(300));
        let (passed, event) =
            read_error(short_error(&error, Some("oom"), 400).as_bytes()).expect("an error");
        assert_eq!((passed.message(), event), (error.message(), Some("oom")));
        let (cut, event) =
            read_error(short_error(&error, Some("oom"), 300).as_bytes()).expect("an error");
        assert_eq!((cut.code(), event), (Code::ContextOverflow, Some("oom")));
        assert!(cut.message().starts_with("the error has 3"), "{}", cut.message());
    }
}
