//! Helpers to call the C functions: strings in, JSON out. Every reply is freed.

use std::ffi::{CStr, CString, c_char, c_void};
use std::path::PathBuf;
use std::sync::Once;
use std::sync::atomic::{AtomicUsize, Ordering};

use llb::ffi;
use serde_json::{Value, json};

use crate::run_folder::run_folder;
use crate::scripted;

/// The path of a scripted model. The models are written once per test run.
pub fn scripted_model(name: &str) -> String {
    static WRITTEN: Once = Once::new();
    WRITTEN.call_once(|| drop(scripted::write_all(run_folder()).unwrap()));
    run_folder().join(name).to_str().unwrap().to_owned()
}

/// The path of a copy of a scripted model. Chats of other tests, which open models with the same
/// options, share neither its memory nor its cache.
pub fn own_model(name: &str) -> String {
    static COPIES: AtomicUsize = AtomicUsize::new(0);
    let copy = COPIES.fetch_add(1, Ordering::Relaxed);
    let path = scripted_model(&format!("{copy}-{name}"));
    std::fs::copy(scripted_model(name), &path).unwrap();
    path
}

/// The path of a real model. If it is missing, prints a line and returns None; with
/// `LLB_REQUIRE_ALL=1` it panics.
pub fn real_model(name: &str) -> Option<String> {
    let path = std::env::var_os("LLB_MODELS")
        .map(|folder| PathBuf::from(folder).join(name))
        .filter(|path| path.is_file());
    if path.is_none() {
        assert!(std::env::var_os("LLB_REQUIRE_ALL").is_none(), "{name} is not in LLB_MODELS");
        eprintln!("SKIPPED: {name} is not in LLB_MODELS; run: make models");
    }
    path.map(|path| path.to_str().unwrap().to_owned())
}

/// Parses a string that the library returned, and frees it.
pub fn take(reply: *const c_char) -> Value {
    assert!(!reply.is_null(), "a reply is never NULL");
    // SAFETY: the library returned a NUL-terminated string.
    let value = serde_json::from_slice(unsafe { CStr::from_ptr(reply) }.to_bytes())
        .expect("a reply is JSON");
    // SAFETY: the string came from the library and is not used after this.
    unsafe { ffi::llb_string_free(reply) };
    value
}

pub fn model_info(path: &str) -> Value {
    let path = CString::new(path).unwrap();
    // SAFETY: NUL-terminated.
    take(unsafe { ffi::llb_model_info(path.as_ptr()) })
}

pub fn last_error() -> Value {
    take(ffi::llb_last_error())
}

/// A function with one JSON argument.
pub type TextFunction = unsafe extern "C" fn(*const c_char) -> *const c_char;

/// Calls a function with one JSON argument.
pub fn call(function: TextFunction, request: &Value) -> Value {
    let request = CString::new(request.to_string()).unwrap();
    // SAFETY: NUL-terminated.
    take(unsafe { function(request.as_ptr()) })
}

/// An open embedding model that is destroyed when dropped.
pub struct Embedder(usize);

impl Embedder {
    pub fn create(options: &Value) -> Result<Embedder, Value> {
        let options = CString::new(options.to_string()).unwrap();
        // SAFETY: NUL-terminated.
        let handle = unsafe { ffi::llb_embed_create(options.as_ptr()) };
        if handle.is_null() { Err(last_error()) } else { Ok(Embedder(handle.addr())) }
    }

    pub fn handle(&self) -> *mut ffi::llb_embedder {
        std::ptr::without_provenance_mut(self.0)
    }

    pub fn embed(&self, request: &Value) -> Value {
        self.embed_text(&request.to_string())
    }

    pub fn embed_text(&self, request: &str) -> Value {
        let request = CString::new(request).unwrap();
        // SAFETY: NUL-terminated.
        take(unsafe { ffi::llb_embed(self.handle(), request.as_ptr()) })
    }
}

/// Scores documents for a query.
pub fn rank(embedder: &Embedder, request: &Value) -> Value {
    let request = CString::new(request.to_string()).unwrap();
    // SAFETY: NUL-terminated.
    take(unsafe { ffi::llb_rank(embedder.handle(), request.as_ptr()) })
}

impl Drop for Embedder {
    fn drop(&mut self) {
        ffi::llb_embed_destroy(self.handle());
    }
}

pub unsafe extern "C" fn record(text: *const c_char, user_data: *mut c_void) {
    // SAFETY: the library passes a string that is valid during the call.
    let text = unsafe { CStr::from_ptr(text) }.to_str().expect("callbacks get UTF-8").to_owned();
    // SAFETY: the tests pass a pointer to a recorder that outlives the calls.
    let recorder = unsafe { &*user_data.cast::<Recorder>() };
    recorder.lines.lock().unwrap().push(text.clone());
    if let Some(react) = &recorder.react {
        react(&text);
    }
}

type Reaction = Box<dyn Fn(&str) + Send + Sync>;

/// The lines that a callback received.
#[derive(Default)]
pub struct Recorder {
    lines: std::sync::Mutex<Vec<String>>,
    react: Option<Reaction>,
}

impl Recorder {
    /// A recorder that also calls a function for each line, inside the callback.
    pub fn reacting(react: impl Fn(&str) + Send + Sync + 'static) -> Recorder {
        Recorder { react: Some(Box::new(react)), ..Recorder::default() }
    }

    pub fn lines(&self) -> Vec<String> {
        self.lines.lock().unwrap().clone()
    }
}

/// A chat that is destroyed when dropped.
pub struct Chat {
    handle: usize,
    events: Box<Recorder>,
}

/// Why a create failed: the events, and the value of `llb_last_error`.
#[derive(Debug)]
pub struct Refused {
    pub events: Vec<String>,
    pub error: Value,
}

impl Refused {
    pub fn code(&self) -> &str {
        self.error["error"]["code"].as_str().unwrap()
    }

    pub fn message(&self) -> &str {
        self.error["error"]["message"].as_str().unwrap()
    }
}

impl Chat {
    pub fn open(model: &str) -> Chat {
        Chat::open_with(&json!({ "model": model, "n_ctx": 1024 }))
            .unwrap_or_else(|refused| panic!("{refused:?}"))
    }

    /// Scripted models are small. With many tests running, one thread is faster than several that
    /// wait for each other, so the default here is one.
    pub fn open_with(options: &Value) -> Result<Chat, Refused> {
        let mut options = options.clone();
        if let Some(options) =
            options.as_object_mut().filter(|options| !options.contains_key("engine"))
        {
            options.entry("n_threads").or_insert(json!(1));
            // LLB_TEST_ISOLATION=process runs every test with isolated chats.
            if let Ok(isolation) = std::env::var("LLB_TEST_ISOLATION") {
                options.entry("isolation").or_insert(json!(isolation));
            }
        }
        let options = CString::new(options.to_string()).unwrap();
        // SAFETY: NUL-terminated.
        Chat::opened(|on_event, data| unsafe {
            ffi::llb_chat_create_with(options.as_ptr(), on_event, data)
        })
    }

    /// Opens a chat whose events go to this recorder.
    pub fn open_recorded(options: &Value, recorder: Recorder) -> Result<Chat, Refused> {
        let options = CString::new(options.to_string()).unwrap();
        // SAFETY: NUL-terminated.
        Chat::recorded(Box::new(recorder), |on_event, data| unsafe {
            ffi::llb_chat_create_with(options.as_ptr(), on_event, data)
        })
    }

    /// Opens a chat by `llb_chat_create`; None passes NULL as the path.
    pub fn open_path(path: Option<&CStr>) -> Result<Chat, Refused> {
        let path = path.map_or(std::ptr::null(), CStr::as_ptr);
        // SAFETY: NULL or NUL-terminated.
        Chat::opened(|on_event, data| unsafe { ffi::llb_chat_create(path, on_event, data) })
    }

    /// Opens a chat whose event callback calls `react`. It gets the handle once that is known.
    pub fn open_reacting(
        options: &Value,
        react: impl Fn(&str, *mut ffi::llb_chat) + Send + Sync + 'static,
    ) -> Chat {
        let handle = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let known = std::sync::Arc::clone(&handle);
        let recorder = Recorder::reacting(move |event| {
            react(
                event,
                std::ptr::without_provenance_mut(known.load(std::sync::atomic::Ordering::Relaxed)),
            );
        });
        let options = CString::new(options.to_string()).unwrap();
        // SAFETY: NUL-terminated.
        let create =
            |on_event, data| unsafe { ffi::llb_chat_create_with(options.as_ptr(), on_event, data) };
        let chat = Chat::recorded(Box::new(recorder), create)
            .unwrap_or_else(|refused| panic!("{refused:?}"));
        handle.store(chat.handle, std::sync::atomic::Ordering::Relaxed);
        chat
    }

    fn opened(
        create: impl FnOnce(ffi::llb_event_cb, *mut c_void) -> *mut ffi::llb_chat,
    ) -> Result<Chat, Refused> {
        Chat::recorded(Box::default(), create)
    }

    fn recorded(
        events: Box<Recorder>,
        create: impl FnOnce(ffi::llb_event_cb, *mut c_void) -> *mut ffi::llb_chat,
    ) -> Result<Chat, Refused> {
        let data = std::ptr::from_ref(&*events).cast_mut().cast::<c_void>();
        let handle = create(Some(record), data);
        if handle.is_null() {
            return Err(Refused { events: events.lines(), error: last_error() });
        }
        Ok(Chat { handle: handle.addr(), events })
    }

    pub fn handle(&self) -> *mut ffi::llb_chat {
        std::ptr::without_provenance_mut(self.handle)
    }

    pub fn events(&self) -> Vec<String> {
        self.events.lines()
    }

    pub fn infer(&self, request: &Value) -> Value {
        infer(self.handle(), request)
    }

    pub fn explain(&self, request: &Value) -> Value {
        self.explain_text(&request.to_string())
    }

    pub fn explain_text(&self, request: &str) -> Value {
        let request = CString::new(request).unwrap();
        // SAFETY: NUL-terminated.
        take(unsafe { ffi::llb_chat_explain(self.handle(), request.as_ptr()) })
    }

    pub fn stream(&self, request: &Value, recorder: &Recorder) -> Value {
        stream(self.handle(), request, recorder)
    }
}

impl Drop for Chat {
    fn drop(&mut self) {
        ffi::llb_chat_destroy(self.handle());
    }
}

pub fn infer(handle: *mut ffi::llb_chat, request: &Value) -> Value {
    let request = CString::new(request.to_string()).unwrap();
    // SAFETY: NUL-terminated.
    take(unsafe { ffi::llb_chat_infer(handle, request.as_ptr()) })
}

pub fn stream(handle: *mut ffi::llb_chat, request: &Value, recorder: &Recorder) -> Value {
    let request = CString::new(request.to_string()).unwrap();
    let data = std::ptr::from_ref(recorder).cast_mut().cast::<c_void>();
    // SAFETY: NUL-terminated; the recorder outlives the call.
    take(unsafe { ffi::llb_chat_infer_stream(handle, request.as_ptr(), Some(record), data) })
}

/// A request with one user message and additional members.
pub fn ask(members: Value) -> Value {
    let mut request =
        json!({ "messages": [{ "role": "user", "content": "Hello" }], "temperature": 0 });
    request.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
    request
}

/// A tool with one required string parameter.
pub fn weather_tool() -> Value {
    json!({ "type": "function", "function": {
        "name": "get_weather",
        "description": "Get the weather of a city",
        "parameters": { "type": "object", "properties": { "city": { "type": "string" } }, "required": ["city"], "additionalProperties": false },
    } })
}
