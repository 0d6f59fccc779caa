//! The program of `make demo`. It prints the headers of some models as a table, shows which models
//! the tool-capability check refuses and why, and streams a chat with a tool call, its result and
//! the final answer. It uses only the C functions, like any host program.
//!
//! `demo [MODEL.gguf | hf:ORG/NAME[:QUANT]]`: a model from the Hugging Face hub is downloaded
//! first. The other models come from `$LLB_MODELS`. Output goes to stdout, and progress to stderr.
#![allow(unsafe_code, reason = "calls the C ABI, as a host program does")]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program for a terminal")]

use std::ffi::{CStr, CString, c_char, c_void};
use std::io::{IsTerminal, Write, stderr, stdout};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use llb::ffi::{
    llb_chat, llb_chat_create, llb_chat_destroy, llb_chat_infer_stream, llb_last_error,
    llb_model_fetch, llb_model_info, llb_string_free, llb_version,
};
use serde_json::{Value, json};

const QUESTION: &str = "What is the weather in Paris right now, in celsius?";
const FOLLOW_UP: &str = "Tell me in one sentence.";
/// The result of the simulated weather service.
const TOOL_RESULT: &str =
    r#"{"city": "Paris", "temperature_celsius": 21, "sky": "clear", "wind_km_per_h": 9}"#;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("demo: {message}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), String> {
    let folder = models_folder()?;
    let model = match std::env::args().nth(1) {
        Some(argument) => match argument.strip_prefix("hf:") {
            Some(id) => fetch(id)?,
            None => PathBuf::from(argument),
        },
        None => folder.join("qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"),
    };
    // SAFETY: returns a static string.
    let version = unsafe { CStr::from_ptr(llb_version()) };
    println!("{}\n", version.to_string_lossy());

    println!("1. Model profiles, from the file headers; no weights are read\n");
    let mut files = gguf_files(&folder);
    if !files.iter().any(|file| same_file(file, &model)) {
        files.push(model.clone());
    }
    let incapable = table(&files, &model)?;

    println!("\n2. Models that the tool-capability check refuses, before any weights are read\n");
    for file in &incapable {
        let refusal = Chat::open(file)
            .err()
            .ok_or("the tool-capability check accepted a model that cannot call tools")?;
        println!("   {}\n     {}: {}\n", name(file), refusal.code, refusal.message);
    }

    println!("3. A chat with a tool call: {}\n", name(&model));
    let chat =
        Chat::open(&model).map_err(|refusal| format!("{}: {}", refusal.code, refusal.message))?;
    converse(&chat)?;
    println!(
        "\n4. Go on from a terminal, or in a browser and over HTTP (docs/cli.md, docs/server.md)\n"
    );
    println!("   make cli    # builds the program, once");
    for command in ["chat", "serve"] {
        println!("   target/release/llb {command} {}", model.display());
    }
    Ok(())
}

/// Downloads a model from the hub, and returns its path.
fn fetch(id: &str) -> Result<PathBuf, String> {
    let request =
        CString::new(json!({ "id": id }).to_string()).map_err(|_| "the id has a NUL character")?;
    // SAFETY: NUL-terminated; the function needs no user data.
    let reply =
        take(unsafe { llb_model_fetch(request.as_ptr(), Some(on_event), std::ptr::null_mut()) })?;
    match reply["path"].as_str() {
        Some(path) => Ok(PathBuf::from(path)),
        None => Err(format!("{}: {}", reply["error"]["code"], reply["error"]["message"])),
    }
}

fn converse(chat: &Chat) -> Result<(), String> {
    let tools = json!([{ "type": "function", "function": {
        "name": "get_weather",
        "description": "Get the current weather of a city",
        "parameters": {
            "type": "object",
            "properties": {
                "city": { "type": "string", "description": "Name of the city" },
                "unit": { "type": "string", "enum": ["celsius", "fahrenheit"] },
            },
            "required": ["city", "unit"],
            "additionalProperties": false,
        },
    } }]);
    let mut messages = vec![json!({ "role": "user", "content": QUESTION })];
    println!("   user       {QUESTION}");

    let (reply, calls) = answer(chat, &messages, &tools)?;
    messages.push(reply["message"].clone());
    if calls.is_empty() {
        return Err("the model did not call the tool; its answer is above".to_owned());
    }
    for call in calls {
        messages.push(json!({ "role": "tool", "tool_call_id": call["id"], "name": call["name"], "content": TOOL_RESULT }));
        println!("   tool       {TOOL_RESULT}");
    }
    // Without another question, this small model repeats the call.
    messages.push(json!({ "role": "user", "content": FOLLOW_UP }));
    println!("   user       {FOLLOW_UP}");
    answer(chat, &messages, &tools)?;
    Ok(())
}

/// Lets the model answer, and prints the answer as it is generated. Returns the reply and its calls.
fn answer(chat: &Chat, messages: &[Value], tools: &Value) -> Result<(Value, Vec<Value>), String> {
    print!("   assistant  ");
    // `tool_choice` is absent, so the model decides whether it calls a tool.
    let request = json!({
        "messages": messages, "tools": tools, "temperature": 0, "max_tokens": 128,
        "stream_format": "chunks",
    });
    let reply = chat.infer(&request, &mut |chunk| print_chunk(&chunk))?;
    println!("\n              [{}]", speed(&reply));
    for diagnostic in reply["diagnostics"].as_array().into_iter().flatten() {
        println!("              [{}]", text(&diagnostic["message"]));
    }
    let calls = reply["tool_calls"].as_array().cloned().unwrap_or_default();
    Ok((reply, calls))
}

/// Prints a part of a reply as it is generated: text, or the name of a call and then its arguments.
fn print_chunk(chunk: &Value) {
    let delta = &chunk["choices"][0]["delta"];
    show(delta["content"].as_str().unwrap_or_default());
    let call = &delta["tool_calls"][0]["function"];
    if let Some(name) = call["name"].as_str() {
        show(&format!("calls {name} "));
    }
    show(call["arguments"].as_str().unwrap_or_default());
}

fn show(text: &str) {
    print!("{text}");
    let _ = stdout().flush();
}

fn speed(reply: &Value) -> String {
    let (usage, timings) = (&reply["usage"], &reply["timings"]);
    format!(
        "prompt {} tokens ({} cached), {:.0} tokens/s; reply {} tokens, {:.1} tokens/s",
        usage["prompt_tokens"],
        reply["usage_details"]["cached_tokens"],
        timings["prompt_per_second"].as_f64().unwrap_or_default(),
        usage["completion_tokens"],
        timings["predicted_per_second"].as_f64().unwrap_or_default(),
    )
}

/// Prints the table of headers. Returns the files that cannot call tools, except `chat_model`.
fn table(files: &[PathBuf], chat_model: &Path) -> Result<Vec<PathBuf>, String> {
    let mut rows = vec![
        [
            "file",
            "architecture",
            "parameters",
            "quantization",
            "size",
            "context",
            "template",
            "tools",
            "read in",
        ]
        .map(str::to_owned),
    ];
    let mut incapable = Vec::new();
    for file in files {
        let path = c_string(&file.to_string_lossy())?;
        let start = Instant::now();
        // SAFETY: the path is NUL-terminated, and the reply is freed by `take`.
        let info = take(unsafe { llb_model_info(path.as_ptr()) })?;
        let elapsed = start.elapsed();
        if let Some(error) = info["error"].as_str() {
            return Err(format!("{error}: {}", text(&info["message"])));
        }
        if info["supports_tools"] == false && !same_file(file, chat_model) {
            incapable.push(file.clone());
        }
        rows.push([
            name(file),
            text(&info["architecture"]),
            format!("{:.0} M", info["n_params"].as_f64().unwrap_or_default() / 1e6),
            text(&info["quantization"]),
            format!("{:.0} MB", info["file_size"].as_f64().unwrap_or_default() / 1e6),
            info["context_length"].to_string(),
            info["templates"]
                .as_array()
                .filter(|names| !names.is_empty())
                .map_or("none".into(), |names| {
                    names.iter().map(text).collect::<Vec<_>>().join(", ")
                }),
            if info["supports_tools"] == true { "yes" } else { "no" }.into(),
            format!("{:.0} ms", elapsed.as_secs_f64() * 1000.0),
        ]);
    }
    let width =
        |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    for row in &rows {
        let cells = row
            .iter()
            .enumerate()
            .map(|(column, cell)| format!("{cell:width$}", width = width(column)));
        println!("   {}", cells.collect::<Vec<_>>().join("  ").trim_end());
    }
    Ok(incapable)
}

/// The reason why a chat was refused.
struct Refusal {
    code: String,
    message: String,
}

/// A chat handle that is destroyed when dropped.
struct Chat(*mut llb_chat);

impl Chat {
    fn open(path: &Path) -> Result<Chat, Refusal> {
        let refusal = |code: &str, message: String| Refusal { code: code.to_owned(), message };
        let path = c_string(&path.to_string_lossy())
            .map_err(|message| refusal("INVALID_REQUEST", message))?;
        // SAFETY: the path is NUL-terminated; the callback uses no user data and is never freed.
        let chat = unsafe { llb_chat_create(path.as_ptr(), Some(on_event), std::ptr::null_mut()) };
        if chat.is_null() {
            let error = take(llb_last_error()).unwrap_or_default();
            return Err(refusal(&text(&error["error"]["code"]), text(&error["error"]["message"])));
        }
        Ok(Chat(chat))
    }

    fn infer(&self, request: &Value, mut on_chunk: &mut dyn FnMut(Value)) -> Result<Value, String> {
        let request = c_string(&request.to_string())?;
        let user_data = (&raw mut on_chunk).cast::<c_void>();
        // SAFETY: the request is NUL-terminated; the closure outlives the call.
        let reply = take(unsafe {
            llb_chat_infer_stream(self.0, request.as_ptr(), Some(on_token), user_data)
        })?;
        match reply["error"]["message"].as_str() {
            Some(message) => Err(message.to_owned()),
            None => Ok(reply),
        }
    }
}

impl Drop for Chat {
    fn drop(&mut self) {
        llb_chat_destroy(self.0);
    }
}

unsafe extern "C" fn on_event(event: *const c_char, _user_data: *mut c_void) {
    // SAFETY: the library passes a string that is valid during the call.
    let event = unsafe { CStr::from_ptr(event) }.to_string_lossy();
    if let Some(share) = event.strip_prefix("load_progress:").filter(|_| stderr().is_terminal()) {
        let done = share.parse::<f32>().unwrap_or_default();
        eprint!(
            "\r   loading {:3.0} %{}",
            done * 100.0,
            if done >= 1.0 { "\r             \r" } else { "" }
        );
    }
    if let Some((here, total)) =
        event.strip_prefix("fetch_progress:").and_then(|bytes| bytes.split_once('/'))
        && stderr().is_terminal()
    {
        let megabytes = |bytes: &str| bytes.parse::<f64>().unwrap_or_default() / 1e6;
        let end = if here == total { "\n" } else { "" };
        eprint!("\r   fetching {:.0} of {:.0} MB{end}", megabytes(here), megabytes(total));
    }
}

unsafe extern "C" fn on_token(piece: *const c_char, user_data: *mut c_void) {
    // SAFETY: `infer` passes a pointer to its closure, which is valid until the call returns.
    let on_chunk = unsafe { &mut *user_data.cast::<&mut dyn FnMut(Value)>() };
    // SAFETY: the library passes a string that is valid during the call.
    let piece = unsafe { CStr::from_ptr(piece) };
    on_chunk(serde_json::from_slice(piece.to_bytes()).unwrap_or_default());
}

/// Parses a string that the library returned, and frees it.
fn take(reply: *const c_char) -> Result<Value, String> {
    // SAFETY: the library returned a NUL-terminated string, never NULL.
    let json = serde_json::from_slice(unsafe { CStr::from_ptr(reply) }.to_bytes());
    // SAFETY: the string came from the library and is not used after this.
    unsafe { llb_string_free(reply) };
    json.map_err(|error| error.to_string())
}

fn c_string(text: &str) -> Result<CString, String> {
    CString::new(text).map_err(|_| "a NUL character in a path or a request".to_owned())
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or("unknown").to_owned()
}

fn name(file: &Path) -> String {
    file.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn same_file(a: &Path, b: &Path) -> bool {
    a == b || matches!((a.canonicalize(), b.canonicalize()), (Ok(a), Ok(b)) if a == b)
}

fn gguf_files(folder: &Path) -> Vec<PathBuf> {
    let entries =
        std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut files: Vec<PathBuf> = entries
        .filter(|path| path.extension().is_some_and(|extension| extension == "gguf"))
        .collect();
    files.sort();
    files
}

fn models_folder() -> Result<PathBuf, String> {
    if let Some(folder) = std::env::var_os("LLB_MODELS") {
        return Ok(folder.into());
    }
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    Ok(cache.or_else(home).ok_or("neither LLB_MODELS nor HOME is set")?.join("llb/models"))
}
