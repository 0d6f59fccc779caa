//! The program of `make demo`. It prints the headers of some models as a table, shows which models
//! the tool-capability check refuses and why, and streams a chat with a tool call, its result and
//! the final answer. It uses the crate `llb` as any program in Rust does.
//!
//! `demo [MODEL.gguf | hf:ORG/NAME[:QUANT]]`: a model from the Hugging Face hub is downloaded
//! first. The other models come from `$LLB_MODELS`. Output goes to stdout, and progress to stderr.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program for a terminal")]

use std::error::Error;
use std::io::{IsTerminal, Write, stderr, stdout};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use llb::{Chat, Delta, Fetch, Model, Reply, Request, Tool};
use serde_json::{Value, json};

const QUESTION: &str = "What is the weather in Paris right now, in celsius?";
const FOLLOW_UP: &str = "Tell me in one sentence.";
/// The result of the simulated weather service.
const TOOL_RESULT: &str =
    r#"{"city": "Paris", "temperature_celsius": 21, "sky": "clear", "wind_km_per_h": 9}"#;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("demo: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let folder = models_folder()?;
    let model = match std::env::args().nth(1) {
        Some(argument) => match argument.strip_prefix("hf:") {
            Some(id) => Fetch::new(id).on_event(show_fetch).run()?.path().into(),
            None => PathBuf::from(argument),
        },
        None => folder.join("qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"),
    };
    println!("{}\n", llb::version());

    println!("1. Model profiles, from the file headers; no weights are read\n");
    let mut files = gguf_files(&folder);
    if !files.iter().any(|file| same_file(file, &model)) {
        files.push(model.clone());
    }
    let incapable = table(&files, &model)?;

    println!("\n2. Models that the tool-capability check refuses, before any weights are read\n");
    for file in &incapable {
        let refusal = open(file)
            .err()
            .ok_or("the tool-capability check accepted a model that cannot call tools")?;
        println!("   {}\n     {refusal}\n", name(file));
    }

    println!("3. A chat with a tool call: {}\n", name(&model));
    converse(&open(&model)?)?;
    println!(
        "\n4. Go on from a terminal, or in a browser and over HTTP (docs/cli.md, docs/server.md)\n"
    );
    println!("   make cli    # builds the program, once");
    for command in ["chat", "serve"] {
        println!("   target/release/llb {command} {}", model.display());
    }
    Ok(())
}

fn open(file: &Path) -> llb::Result<Chat> {
    Model::new(file).on_event(show_load).chat()
}

fn converse(chat: &Chat) -> Result<(), Box<dyn Error>> {
    let parameters = json!({
        "type": "object",
        "properties": {
            "city": { "type": "string", "description": "Name of the city" },
            "unit": { "type": "string", "enum": ["celsius", "fahrenheit"] },
        },
        "required": ["city", "unit"],
        "additionalProperties": false,
    });
    let weather =
        Tool::new("get_weather", parameters).description("Get the current weather of a city");
    // `tool_choice` is absent, so the model decides whether it calls the tool.
    let request = Request::new().user(QUESTION).tool(weather).temperature(0.0).max_tokens(128);
    println!("   user       {QUESTION}");

    let reply = answer(chat, &request)?;
    let mut request = request.reply(&reply);
    if reply.tool_calls.is_empty() {
        return Err("the model did not call the tool; its answer is above".into());
    }
    for call in &reply.tool_calls {
        request = request.tool_result(call, TOOL_RESULT);
        println!("   tool       {TOOL_RESULT}");
    }
    // Without another question, this small model repeats the call.
    println!("   user       {FOLLOW_UP}");
    answer(chat, &request.user(FOLLOW_UP))?;
    Ok(())
}

/// Lets the model answer, and prints the answer as it is generated.
fn answer(chat: &Chat, request: &Request) -> llb::Result<Reply> {
    print!("   assistant  ");
    let reply = chat.stream(request, |delta| match delta {
        Delta::Content(text) => show(&text),
        Delta::ToolCall { name, .. } => show(&format!("calls {name} ")),
        Delta::Arguments { fragment, .. } => show(&fragment),
        _ => {}
    })?;
    println!("\n              [{}]", speed(&reply));
    for diagnostic in &reply.diagnostics {
        println!("              [{}]", diagnostic.message);
    }
    Ok(reply)
}

fn show(text: &str) {
    print!("{text}");
    let _ = stdout().flush();
}

fn speed(reply: &Reply) -> String {
    let (usage, timings) = (&reply.usage, &reply.timings);
    let rate = |tokens: usize, ms: f64| if ms > 0.0 { tokens as f64 * 1000.0 / ms } else { 0.0 };
    format!(
        "prompt {} tokens ({} cached), {:.0} tokens/s; reply {} tokens, {:.1} tokens/s",
        usage.prompt_tokens,
        usage.cached_tokens,
        rate(usage.prompt_tokens - usage.cached_tokens, timings.prompt_ms),
        usage.completion_tokens,
        // The first token comes from the prompt.
        rate(usage.completion_tokens.saturating_sub(1), timings.predicted_ms),
    )
}

/// Prints the table of headers. Returns the files that cannot call tools, except `chat_model`.
fn table(files: &[PathBuf], chat_model: &Path) -> llb::Result<Vec<PathBuf>> {
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
        let start = Instant::now();
        let info = Model::new(file).info()?;
        let elapsed = start.elapsed();
        if !info.supports_tools() && !same_file(file, chat_model) {
            incapable.push(file.clone());
        }
        let templates: Vec<&str> = info
            .get("templates")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        let millions = |number: Option<u64>| number.unwrap_or_default() as f64 / 1e6;
        rows.push([
            name(file),
            info.architecture().to_owned(),
            format!("{:.0} M", millions(info.n_params())),
            info.quantization().unwrap_or("unknown").to_owned(),
            format!("{:.0} MB", millions(info.file_size())),
            info.context_length().map_or("unknown".into(), |tokens| tokens.to_string()),
            if templates.is_empty() { "none".into() } else { templates.join(", ") },
            if info.supports_tools() { "yes" } else { "no" }.into(),
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

fn show_load(event: &str) {
    if let Some(share) = event.strip_prefix("load_progress:").filter(|_| stderr().is_terminal()) {
        let done = share.parse::<f32>().unwrap_or_default();
        eprint!(
            "\r   loading {:3.0} %{}",
            done * 100.0,
            if done >= 1.0 { "\r             \r" } else { "" }
        );
    }
}

fn show_fetch(event: &str) {
    if let Some((here, total)) =
        event.strip_prefix("fetch_progress:").and_then(|bytes| bytes.split_once('/'))
        && stderr().is_terminal()
    {
        let megabytes = |bytes: &str| bytes.parse::<f64>().unwrap_or_default() / 1e6;
        let end = if here == total { "\n" } else { "" };
        eprint!("\r   fetching {:.0} of {:.0} MB{end}", megabytes(here), megabytes(total));
    }
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

fn models_folder() -> Result<PathBuf, Box<dyn Error>> {
    if let Some(folder) = std::env::var_os("LLB_MODELS") {
        return Ok(folder.into());
    }
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    Ok(cache.or_else(home).ok_or("neither LLB_MODELS nor HOME is set")?.join("llb/models"))
}
