//! `llb doctor`: what this machine has, what is wrong, and what to do.

use std::fs;
use std::path::Path;
use std::thread;

use clap::Args;
use serde_json::{Value, json};

use super::models::hub_cache;
use crate::abi;
use crate::failure::{FOUND, OK, Result};
use crate::input::{print, print_json};
use crate::terminal::{Look, Style, columns, megabytes};

/// What llama.cpp is compiled for, unless `make baseline` built it.
const FLAGS: [&str; 4] = ["avx2", "fma", "f16c", "bmi2"];
/// A small model with a context of 8192 tokens.
const SMALL_MODEL_BYTES: u64 = 2_000_000_000;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// As JSON
    #[arg(long)]
    json: bool,
}

/// The exit status is 3 if something is wrong.
pub(crate) fn run(arguments: &Arguments) -> Result<u8> {
    let facts = facts();
    let problems = problems(&facts);
    if arguments.json {
        let problems: Vec<Value> =
            problems.iter().map(|(what, next)| json!({ "problem": what, "next": next })).collect();
        print_json(&json!({ "facts": facts, "problems": problems }));
    } else {
        report(&facts, &problems);
    }
    Ok(if problems.is_empty() { OK } else { FOUND })
}

fn report(facts: &Value, problems: &[(String, String)]) {
    let style = Style::stdout();
    let rows: Vec<Vec<String>> = facts
        .as_object()
        .into_iter()
        .flatten()
        .map(|(name, value)| {
            let text = match value {
                Value::String(text) => text.clone(),
                Value::Null => "unknown".to_owned(),
                Value::Number(number) if name.ends_with("bytes") => {
                    megabytes(number.as_u64().unwrap_or_default())
                }
                Value::Array(values) => {
                    let names: Vec<&str> = values.iter().filter_map(Value::as_str).collect();
                    if names.is_empty() { "none".to_owned() } else { names.join(" ") }
                }
                other => other.to_string(),
            };
            vec![name.trim_end_matches("_bytes").replace('_', " "), text]
        })
        .collect();
    print(&columns(&rows));
    for (what, next) in problems {
        print(&format!(
            "\n{} {what}\n{} {next}\n",
            style.paint(Look::Red, "problem:"),
            style.paint(Look::Dim, "next:")
        ));
    }
    if problems.is_empty() {
        print(&format!("\n{}\n", style.paint(Look::Green, "nothing is wrong")));
    }
}

fn facts() -> Value {
    let processor = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let field = |name: &str| {
        let line = processor.lines().find(|line| line.starts_with(name))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    let flags = field("flags").unwrap_or_default();
    let has = |flag: &&str| flags.split(' ').any(|each| each == *flag);
    let shown = ["avx2", "fma", "f16c", "bmi2", "avx512f", "avx512_vnni", "avx_vnni", "amx_int8"];
    let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let bytes = |name: &str| {
        let line = memory.lines().find(|line| line.starts_with(name))?;
        line.split_whitespace().nth(1)?.parse::<u64>().ok().map(|kilobytes| kilobytes * 1024)
    };
    let cache = hub_cache();
    json!({
        "version": abi::version(),
        "system": format!("{} {}", std::env::consts::OS, std::env::consts::ARCH),
        "processor": field("model name"),
        "instructions": shown.into_iter().filter(has).collect::<Vec<_>>(),
        "threads": thread::available_parallelism().ok().map(usize::from),
        "memory_bytes": bytes("MemTotal"),
        "available_memory_bytes": bytes("MemAvailable"),
        "devices": devices(),
        "cache_of_the_hub": cache,
        "cache_is_writable": cache.as_deref().map(is_writable),
        "token_of_the_hub": if has_token() { "set" } else { "none" },
    })
}

/// Device files of GPU drivers. Whether llb uses them depends on its build.
fn devices() -> Vec<&'static str> {
    let files = [("/dev/nvidia0", "nvidia"), ("/dev/kfd", "amd"), ("/dev/dri/renderD128", "dri")];
    files.into_iter().filter(|(path, _)| Path::new(path).exists()).map(|(_, name)| name).collect()
}

fn has_token() -> bool {
    std::env::var_os("HF_TOKEN").is_some_and(|token| !token.is_empty())
        || hub_cache()
            .and_then(|cache| Some(cache.parent()?.join("token")))
            .is_some_and(|path| path.exists())
}

/// Whether files can be made in a folder, or in the first one above it that exists.
fn is_writable(folder: &Path) -> bool {
    let Some(existing) = folder.ancestors().find(|folder| folder.exists()) else { return false };
    let probe = existing.join(format!(".llb-doctor-{}", std::process::id()));
    let written = fs::write(&probe, "").is_ok();
    let _ = fs::remove_file(&probe);
    written
}

/// What is wrong, and what to do.
fn problems(facts: &Value) -> Vec<(String, String)> {
    let mut problems = Vec::new();
    let instructions = facts["instructions"].as_array().cloned().unwrap_or_default();
    let missing: Vec<&str> =
        FLAGS.into_iter().filter(|flag| !instructions.contains(&json!(flag))).collect();
    if std::env::consts::ARCH == "x86_64" && facts["processor"].is_string() && !missing.is_empty() {
        problems.push((
            format!("the processor has no {}", missing.join(", ")),
            "build llb with `make baseline` (docs/building.md)".to_owned(),
        ));
    }
    if facts["available_memory_bytes"].as_u64().is_some_and(|bytes| bytes < SMALL_MODEL_BYTES) {
        problems.push((
            "less than 2 GB of memory are free".to_owned(),
            "close other programs, or use a small --n-ctx and --cache-type q8_0".to_owned(),
        ));
    }
    if facts["cache_is_writable"] == false {
        problems.push((
            format!("the cache {} cannot be written", facts["cache_of_the_hub"]),
            "set HF_HUB_CACHE to a folder of yours".to_owned(),
        ));
    }
    problems
}
