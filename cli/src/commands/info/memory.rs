//! A table of the memory that a model needs with several contexts and cache types, compared with
//! the memory of this machine. It uses `llb_memory`, which reads the file's header and vocabulary
//! but no weights.

use serde_json::{Value, json};

use crate::abi;
use crate::terminal::{Look, Style, grouped, megabytes};

/// The types of the KV cache to show, from the default to the smallest useful one.
const TYPES: [&str; 3] = ["f16", "q8_0", "q4_0"];
/// The context sizes to show, up to the trained context length, which is always last.
const CONTEXTS: [u64; 4] = [4096, 8192, 32768, 131_072];
const WIDTH: usize = 12;

/// The reply of `llb_memory`, or its error. It has an entry for each context and cache type. At the
/// end it has an entry for each cache type with the largest context that fits.
pub(super) fn table(path: &str, info: &Value, projector: Option<&str>) -> Value {
    let sizes = sizes(info["context_length"].as_u64());
    let rows = sizes.into_iter().map(Value::from).chain([json!("fit")]);
    let contexts: Vec<Value> = rows
        .flat_map(|n_ctx| {
            TYPES.map(|name| json!({ "n_ctx": n_ctx, "cache_type_k": name, "cache_type_v": name }))
        })
        .collect();
    let request = json!({ "model_path": path, "contexts": contexts, "projector": projector });
    let reply = abi::memory(&request);
    reply.unwrap_or_else(|failure| {
        let error = json!({ "code": failure.code, "message": failure.message });
        json!({ "type": "error", "error": error })
    })
}

fn sizes(context_length: Option<u64>) -> Vec<u64> {
    let most = context_length.filter(|most| *most > 0);
    let below = CONTEXTS.into_iter().filter(|tokens| most.is_none_or(|most| *tokens < most));
    below.chain(most).collect()
}

/// The table as text for people.
pub(super) fn printable_table(memory: &Value, style: Style) -> String {
    if memory["type"] == "error" {
        return format!("unknown: {}\n", memory["error"]["message"].as_str().unwrap_or_default());
    }
    let free: Option<u64> =
        memory["devices"].as_array().into_iter().flatten().map(|it| it["free"].as_u64()).sum();
    let free = free.map_or_else(|| "an unknown amount".to_owned(), megabytes);
    let weights = megabytes(memory["weights"].as_u64().unwrap_or_default());
    let mut text = format!("{free} are free. The weights are {weights}, and in each sum.\n");
    if let Some(projector) = memory["projector"]["total"].as_u64() {
        text += &format!("The projector takes {} of each sum.\n", megabytes(projector));
    }
    text += &placement(memory);
    let cell = |text: &str| format!("  {text:>WIDTH$}");
    let dim = |text: &str| style.paint(Look::Dim, text);
    let heading: String = TYPES.iter().map(|name| cell(name)).collect();
    text += &dim(&format!("{:>WIDTH$}{heading}", "--n-ctx"));
    text.push('\n');
    let entries = memory["contexts"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut rows: Vec<&[Value]> = entries.chunks(TYPES.len()).collect();
    let fitting = rows.pop().unwrap_or_default();
    for row in rows {
        let known = row.iter().find_map(|entry| entry["n_ctx"].as_u64()).unwrap_or_default();
        text += &format!("{:>WIDTH$}", grouped(known));
        for entry in row {
            text += &size(entry, style);
        }
        text.push('\n');
    }
    text += &format!("{:>WIDTH$}", "most");
    for entry in fitting {
        text += &cell(&match entry["fits"].as_bool() {
            Some(true) => entry["n_ctx"].as_u64().map(grouped).unwrap_or_default(),
            Some(false) => "none".to_owned(),
            None => "unknown".to_owned(),
        });
    }
    text.push('\n');
    text += &dim(
        "Columns are --cache-type, * is more than is free, \"most\" is the largest that fits.",
    );
    text.push('\n');
    text
}

/// Where the weights and the context live by default.
fn placement(memory: &Value) -> String {
    let devices = memory["devices"].as_array().map(Vec::as_slice).unwrap_or_default();
    let layers = |device: &Value| {
        let count = device["layers"].as_u64()?;
        Some(format!("{count} on {}", device["name"].as_str().unwrap_or_default()))
    };
    let layers = devices.iter().map(layers).collect::<Option<Vec<String>>>();
    let layers = layers.map_or_else(|| "as llama.cpp decides".to_owned(), |all| all.join(", "));
    let experts = match memory["n_cpu_moe"].as_u64() {
        Some(count) if count > 0 => {
            format!(" The experts of the first {count} are in main memory.")
        }
        _ => String::new(),
    };
    let [n_ctx, chats] = ["n_ctx", "n_parallel"].map(|name| memory[name].as_u64().unwrap_or(0));
    let n_ctx = grouped(n_ctx);
    let cells = match memory["kv_unified"].as_bool() {
        Some(false) => format!("Each of {chats} chats has {n_ctx} tokens of context."),
        _ => format!("{chats} chats share {n_ctx} tokens of context."),
    };
    format!("Layers: {layers}.{experts} {cells}\n")
}

fn size(entry: &Value, style: Style) -> String {
    let Some(total) = entry["total"].as_u64() else {
        return format!("  {:>WIDTH$}", "unsupported");
    };
    let fits = entry["fits"] != false;
    let text = format!("  {:>WIDTH$}", megabytes(total) + if fits { "" } else { "*" });
    if fits { text } else { style.paint(Look::Red, &text) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_placement_is_told_in_words() {
        let main = json!({ "name": "CPU", "layers": 0 });
        let device = json!({ "name": "CUDA0", "layers": 49 });
        let mut memory = json!({
            "n_ctx": 8192, "n_parallel": 4, "kv_unified": false, "n_cpu_moe": 12,
            "devices": [main, device],
        });
        assert_eq!(
            placement(&memory),
            "Layers: 0 on CPU, 49 on CUDA0. The experts of the first 12 are in main memory. Each of \
             4 chats has 8,192 tokens of context.\n"
        );
        memory["devices"][1]["layers"] = Value::Null;
        (memory["n_cpu_moe"], memory["kv_unified"]) = (Value::Null, true.into());
        assert_eq!(
            placement(&memory),
            "Layers: as llama.cpp decides. 4 chats share 8,192 tokens of context.\n"
        );
    }

    #[test]
    fn contexts_end_with_what_the_model_was_made_for() {
        assert_eq!(sizes(Some(40_960)), [4096, 8192, 32_768, 40_960]);
        assert_eq!(sizes(Some(8192)), [4096, 8192]);
        assert_eq!(sizes(Some(2048)), [2048]);
        assert_eq!(sizes(None), CONTEXTS);
    }
}
