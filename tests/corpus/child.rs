//! Tries model files in child processes that may crash, and records the outcome of each.

use std::fmt;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use llb::ffi;

use crate::abi::{Chat, Embedder, TextFunction, call, model_info, rank};
use crate::vocabularies::N_TOKENS;

/// Set in a child.
const SETTING: &str = "LLB_CORPUS_CHILD";
/// A file that takes more seconds of processor time than this, on two threads, is a hang. Processor
/// time does not depend on how busy the machine is.
const MAX_PROCESSOR_TIME: f64 = 20.0;
/// A file that takes this long without computing is a hang too.
const MAX: Duration = Duration::from_secs(120);

/// The outcome of a file.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// The create was refused, with this message.
    Refused(String),
    /// A turn failed, with this message.
    Failed(String),
    /// Both turns had replies.
    Replied,
    Hung,
    Died(ExitStatus),
}

impl Outcome {
    /// The outcome as a word, for a table.
    pub fn class(&self) -> String {
        match self {
            Outcome::Refused(_) => "refused".to_owned(),
            Outcome::Failed(_) => "failed".to_owned(),
            Outcome::Replied => "replied".to_owned(),
            Outcome::Hung => "hung".to_owned(),
            Outcome::Died(status) => format!("died: {status}"),
        }
    }

    pub fn is_survived(&self) -> bool {
        !matches!(self, Outcome::Hung | Outcome::Died(_))
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Refused(message) | Outcome::Failed(message) => {
                write!(out, "{}: {message}", self.class())
            }
            _ => out.write_str(&self.class()),
        }
    }
}

/// A process that tries files until it crashes.
pub struct Runner {
    child: Child,
    lines: mpsc::Receiver<String>,
}

impl Runner {
    pub fn start() -> Runner {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["child::files_of_a_parent", "--exact", "--nocapture"])
            .env(SETTING, "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let (send, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                if line.starts_with('{') && send.send(line).is_err() {
                    break;
                }
            }
        });
        Runner { child, lines }
    }

    /// Tries the files in the options of a create. Also returns how much memory the process needed
    /// for them, in KiB.
    pub fn run(&mut self, options: &Value) -> (Outcome, u64) {
        let written = writeln!(self.child.stdin.as_mut().unwrap(), "{options}");
        let answer = written.map_err(|_| RecvTimeoutError::Disconnected);
        match answer.and_then(|()| self.answer()) {
            Ok(line) => {
                let line: Value = serde_json::from_str(&line).unwrap();
                let message = line["message"].as_str().unwrap_or_default().to_owned();
                let outcome = match line["class"].as_str().unwrap() {
                    "refused" => Outcome::Refused(message),
                    "failed" => Outcome::Failed(message),
                    _ => Outcome::Replied,
                };
                (outcome, line["memory"].as_u64().unwrap())
            }
            Err(RecvTimeoutError::Timeout) => {
                self.child.kill().unwrap();
                self.restart();
                (Outcome::Hung, 0)
            }
            Err(RecvTimeoutError::Disconnected) => {
                let status = self.restart();
                (Outcome::Died(status), 0)
            }
        }
    }

    fn answer(&self) -> Result<String, RecvTimeoutError> {
        let (start, used) = (Instant::now(), self.processor_time());
        loop {
            let answer = self.lines.recv_timeout(Duration::from_millis(500));
            let hangs = start.elapsed() > MAX || self.processor_time() - used > MAX_PROCESSOR_TIME;
            if answer != Err(RecvTimeoutError::Timeout) || hangs {
                return answer;
            }
        }
    }

    /// The processor time of the child in seconds.
    fn processor_time(&self) -> f64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id()));
        let stat = stat.unwrap_or_default();
        let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
        // The fields are utime and stime, in ticks of a hundredth of a second.
        let ticks = fields.skip(11).take(2).filter_map(|field| field.parse::<f64>().ok());
        ticks.sum::<f64>() / 100.0
    }

    fn restart(&mut self) -> ExitStatus {
        let status = self.child.wait().unwrap();
        *self = Runner::start();
        status
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

#[test]
fn files_of_a_parent() {
    if std::env::var_os(SETTING).is_none() {
        return;
    }
    for options in std::io::stdin().lines().map_while(Result::ok) {
        let options = serde_json::from_str(&options).unwrap();
        // Memory that the process has freed, but still holds, would hide what a file needs.
        #[cfg(all(target_os = "linux", target_env = "gnu"))]
        // SAFETY: it changes nothing that is in use.
        unsafe {
            libc::malloc_trim(0);
        }
        // Resets VmHWM.
        let _ = std::fs::write("/proc/self/clear_refs", "5");
        let before = memory("VmRSS:");
        let (class, message) = try_files(&options);
        let grown = memory("VmHWM:").saturating_sub(before);
        let line = json!({ "class": class, "message": message, "memory": grown });
        println!("\n{line}");
    }
}

fn try_files(files: &Value) -> (&'static str, String) {
    let path = files["model"].as_str().unwrap();
    // Otherwise the model has no fault.
    if files.as_object().unwrap().len() == 1 {
        model_info(path);
        read_only(path);
    }
    if std::env::var_os("LLB_CORPUS_VECTORS").is_some() {
        return try_vectors(files);
    }
    let mut options = options(files);
    options["tool_policy"] = "any".into();
    let media = options.as_object_mut().and_then(|options| options.remove("media"));
    if let Some(parts) = media {
        options["n_ctx"] = 2048.into();
        return try_media(&options, &parts);
    }
    let chat = match Chat::open_with(&options) {
        Ok(chat) => chat,
        Err(refused) => {
            let error = refused.error["error"].to_string();
            let embeds = error.contains("llb_embed_create");
            return if embeds { try_vectors(files) } else { ("refused", error) };
        }
    };
    let mut messages = vec![json!({ "role": "user", "content": "Hi 1" })];
    for _ in 0..2 {
        let request = json!({ "messages": messages, "temperature": 0, "max_tokens": 3 });
        let reply = chat.infer(&request);
        if reply["type"] == "error" {
            return ("failed", reply["error"].to_string());
        }
        messages.push(json!({ "role": "assistant", "content": "a" }));
        messages.push(json!({ "role": "user", "content": "b" }));
    }
    // A second chat copies what the first one has computed of the same beginning.
    let Ok(other) = Chat::open_with(&options) else { return ("replied", String::new()) };
    let begin = "Hi 1 b a ".repeat(12);
    for (chat, end) in [(&chat, "a"), (&other, "b"), (&other, "c")] {
        let messages = json!([{ "role": "user", "content": format!("{begin}{end}") }]);
        let request = json!({ "messages": messages, "temperature": 0, "max_tokens": 3 });
        let reply = chat.infer(&request);
        if reply["type"] == "error" {
            return ("failed", reply["error"].to_string());
        }
    }
    ("replied", String::new())
}

/// Counts and asks about each of these parts of a message.
fn try_media(options: &Value, parts: &Value) -> (&'static str, String) {
    let chat = match Chat::open_with(options) {
        Ok(chat) => chat,
        Err(refused) => return ("refused", refused.error["error"].to_string()),
    };
    for part in parts.as_array().unwrap() {
        let content = json!([part, { "type": "text", "text": "b" }]);
        let messages = json!([{ "role": "user", "content": content }]);
        let request = json!({ "messages": messages, "temperature": 0, "max_tokens": 3 });
        let reply = chat.infer(&request);
        if reply["type"] == "error" {
            return ("failed", reply["error"].to_string());
        }
        let request = json!({ "model_path": options["model"], "projector": options["projector"],
            "messages": messages });
        let counted = call(ffi::llb_count, &request);
        assert_eq!(counted["prompt_tokens"], reply["usage"]["prompt_tokens"], "{counted}");
    }
    ("replied", String::new())
}

/// Calls the functions that open a file without its weights. They may refuse it.
fn read_only(path: &str) {
    let try_call = |function: TextFunction, mut request: Value| {
        request["model_path"] = path.into();
        let reply = call(function, &request);
        assert_ne!(reply["error"]["code"], "INTERNAL_BRIDGE_ERROR", "{reply}");
        reply
    };
    let text = "Hi 1 <|im_end|> \u{e9}\u{4f60} \u{c548}\u{1f44b}\u{0}\t\u{2581}a\u{120}<0x41>";
    for parse_special in [false, true] {
        let request = json!({ "text": text, "add_special": true, "parse_special": parse_special });
        let ids = try_call(ffi::llb_tokenize, request)["ids"].take();
        if ids.is_array() {
            try_call(ffi::llb_detokenize, json!({ "ids": ids, "remove_special": true }));
        }
    }
    let known: Vec<usize> = (0..N_TOKENS).collect();
    try_call(ffi::llb_detokenize, json!({ "ids": known, "unparse_special": false }));
    try_call(ffi::llb_count, json!({ "messages": [{ "role": "user", "content": text }] }));
    try_call(ffi::llb_memory, json!({ "n_ctx": 256, "tool_policy": "any" }));
    try_call(ffi::llb_memory, json!({ "tool_policy": "any", "cache_type_k": "q8_0" }));
}

/// The options of a create with these files, and those of `LLB_CORPUS_OPTIONS`.
fn options(files: &Value) -> Value {
    let mut options = files.clone();
    options["n_ctx"] = 256.into();
    options["n_threads"] = crate::setting("LLB_CORPUS_THREADS").unwrap_or(2).into();
    if let Ok(more) = std::env::var("LLB_CORPUS_OPTIONS") {
        let more: serde_json::Map<String, Value> = serde_json::from_str(&more).unwrap();
        options.as_object_mut().unwrap().extend(more);
    }
    options
}

/// Computes vectors or scores, with a model that generates no text or with any.
fn try_vectors(files: &Value) -> (&'static str, String) {
    let embedder = match Embedder::create(&options(files)) {
        Ok(embedder) => embedder,
        Err(refused) => return ("refused", refused["error"].to_string()),
    };
    for input in [json!("Hi 1"), json!(["a", "b"])] {
        let mut reply = embedder.embed(&json!({ "input": input }));
        if reply["error"].to_string().contains("llb_rank") {
            reply = rank(&embedder, &json!({ "query": "b", "documents": ["Hi 1", "a"] }));
        }
        if reply["type"] == "error" {
            return ("failed", reply["error"].to_string());
        }
    }
    ("replied", String::new())
}

/// The value of a line in this process's status file, in KiB.
fn memory(name: &str) -> u64 {
    let mut status = String::new();
    let _ =
        std::fs::File::open("/proc/self/status").and_then(|mut it| it.read_to_string(&mut status));
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}
