//! `llb doctor`: reports what this machine has, what is wrong, and how to fix it.

use std::fs;
use std::path::Path;
use std::thread;

use clap::Args;
use llb::llama::MachineMemory;
use serde_json::{Value, json};

use crate::abi;
use crate::cached_models::hub_cache;
use crate::failure::{FOUND, OK, Result};
use crate::input::{print, print_json};
use crate::terminal::{Look, Style, columns, megabytes};

/// The memory of a small model with a context of 8192 tokens.
const SMALL_MODEL_BYTES: u64 = 2_000_000_000;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Returns the exit status: 3 if something is wrong.
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
                    // Each sentence is printed on a separate line.
                    let between = if name.ends_with("not_used") { "\n  " } else { " " };
                    if names.is_empty() { "none".to_owned() } else { names.join(between) }
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
    let memory = MachineMemory::read();
    let cache = hub_cache();
    let backends = abi::backends().unwrap_or_default();
    let processor = &backends["processor"];
    let all = backends["backends"].as_array().map(Vec::as_slice).unwrap_or_default();
    let usable = all.iter().filter(|kernels| kernels["usable"] == true);
    let refused = all.iter().filter(|kernels| kernels["usable"] == false).map(|kernels| {
        let name = kernels["name"].as_str().or(kernels["file"].as_str()).unwrap_or("unknown");
        format!("{name}: {}", kernels["reason"].as_str().unwrap_or("unusable"))
    });
    let files = backends["device_files"].as_array().map(Vec::as_slice).unwrap_or_default();
    let files = files.iter().filter(|file| file["usable"] == false).map(|file| {
        let reason = file["reason"].as_str().unwrap_or("unusable");
        format!("{}: {reason}", file["file"].as_str().unwrap_or("unknown"))
    });
    let devices = backends["devices"].as_array().map(Vec::as_slice).unwrap_or_default();
    let devices = devices.iter().filter(|device| device["type"] != "cpu");
    json!({
        "version": abi::version(),
        "system": format!("{} {}", std::env::consts::OS, std::env::consts::ARCH),
        "processor": processor["name"],
        "instructions": processor["features"],
        "threads": thread::available_parallelism().ok().map(usize::from),
        "kernels": backends["backend"]["name"],
        "kernels_reason": backends["backend"]["reason"],
        "kernels_found": usable.filter_map(|kernels| kernels["name"].as_str()).collect::<Vec<_>>(),
        "kernels_not_used": refused.collect::<Vec<_>>(),
        "devices": devices.filter_map(|device| device["name"].as_str()).collect::<Vec<_>>(),
        "device_files_not_used": files.collect::<Vec<_>>(),
        "gpu_drivers": gpu_drivers(),
        "memory_bytes": memory.total,
        "available_memory_bytes": memory.available,
        "cache_of_the_hub": cache.as_deref().map(Path::to_string_lossy),
        "cache_is_writable": cache.as_deref().map(is_writable),
        "token_of_the_hub": if has_token() { "set" } else { "none" },
    })
}

/// Device files of GPU drivers. Without a device in `devices`, this build of llb does not use them.
fn gpu_drivers() -> Vec<&'static str> {
    let files = [("/dev/nvidia0", "nvidia"), ("/dev/kfd", "amd"), ("/dev/dri/renderD128", "dri")];
    files.into_iter().filter(|(path, _)| Path::new(path).exists()).map(|(_, name)| name).collect()
}

fn has_token() -> bool {
    std::env::var_os("HF_TOKEN").is_some_and(|token| !token.is_empty())
        || hub_cache()
            .and_then(|cache| Some(cache.parent()?.join("token")))
            .is_some_and(|path| path.exists())
}

/// Whether files can be created in a folder or, if it does not exist, in its nearest existing
/// ancestor.
fn is_writable(folder: &Path) -> bool {
    let Some(existing) = folder.ancestors().find(|folder| folder.exists()) else { return false };
    let probe = existing.join(format!(".llb-doctor-{}", std::process::id()));
    let written = fs::write(&probe, "").is_ok();
    let _ = fs::remove_file(&probe);
    written
}

/// The problems, each with a remedy.
fn problems(facts: &Value) -> Vec<(String, String)> {
    let mut problems = Vec::new();
    if facts["kernels"].is_null() {
        problems.push((
            format!("the processor can run no kernels: {}", facts["kernels_reason"]),
            "build llb with `make baseline`, or set LLB_BACKENDS (docs/backends.md)".to_owned(),
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
