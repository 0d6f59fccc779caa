//! `llb_memory`: what a chat with some options takes in memory, before it is created.
//!
//! In: JSON with the path of a model file and options of a create. Out: JSON with bytes by device,
//! and the largest context that fits. No weights are read.

use std::path::Path;

use serde_json::{Map, Value, json};

use crate::api::{self, CreateOptions, Fields, ProjectorChoice};
use crate::error::Result;
use crate::gguf::{ModelHeader, ProjectorType};
use crate::llama::{self, DeviceMemory, MemoryReport, PartMemory};

/// The create options that affect memory use.
const OPTIONS: [&str; 20] = [
    "backend",
    "cache_type_k",
    "cache_type_v",
    "devices",
    "draft_model",
    "flash_attn",
    "kv_unified",
    "lora",
    "main_gpu",
    "n_batch",
    "n_cpu_moe",
    "n_ctx",
    "n_gpu_layers",
    "n_parallel",
    "override_tensor",
    "projector",
    "speculative",
    "split_mode",
    "tensor_split",
    "use_mmap",
];

/// The options that an entry of `contexts` may set.
const CONTEXT_OPTIONS: [&str; 7] =
    ["cache_type_k", "cache_type_v", "flash_attn", "kv_unified", "n_batch", "n_ctx", "n_parallel"];
/// The maximum number of entries in `contexts`. Each takes milliseconds, or tens of milliseconds
/// with `n_ctx` "fit".
const MAX_CONTEXTS: usize = 64;

/// Runs a request.
///
/// # Errors
/// `INVALID_REQUEST` with the JSON path; `MODEL_NOT_FOUND`, `MODEL_INVALID` and `INFERENCE_FAILED`
/// under the same conditions as a create; `OUT_OF_MEMORY` if the states of the sequences do not
/// fit.
pub fn run(request: &str) -> Result<Value> {
    let mut request = api::parse(request, "request_json")?;
    let path = api::model_path(&mut Fields::new("", &request)?)?.to_owned();
    let mut options = Map::new();
    if let Value::Object(members) = &mut request {
        members.remove(api::MODEL_PATH);
        options.extend(OPTIONS.iter().filter_map(|name| members.remove_entry(*name)));
    }
    let base = Value::Object(options);
    let base = match llama::with_projector_beside(&CreateOptions::read(&base)?, Some(&path))? {
        Some(found) => with_projector(base, &found),
        None => base,
    };
    let options = CreateOptions::read(&base)?;
    let mut fields = Fields::new("", &request)?;
    let contexts = contexts(&mut fields, &base)?;
    let ignored_keys = fields.ignored();
    let header = ModelHeader::read_file(Path::new(&path))?;
    header.check_complete().map_err(|error| error.about(&path))?;
    header.check_loadable().map_err(|error| error.about(&path))?;
    header.check_tokens(Path::new(&path))?;
    let (report, others) = llama::memory_reports(&options, &contexts, &path, &header)?;
    let mut reply = report_json(&options, &report);
    reply["largest_n_ctx"] = report.largest_n_ctx.into();
    reply["context_length"] = header.context_length().into();
    if !contexts.is_empty() {
        let entries = contexts.iter().zip(&others).map(|(options, report)| match report {
            Ok(report) => report_json(options, report),
            Err(error) => error.to_json(),
        });
        reply["contexts"] = entries.collect();
    }
    if !ignored_keys.is_empty() {
        reply["ignored_keys"] = json!(ignored_keys);
    }
    Ok(reply)
}

/// Reads `contexts`: for each entry, the options of the request with the entry's members replaced.
fn contexts(fields: &mut Fields<'_>, options: &Value) -> Result<Vec<CreateOptions>> {
    let contexts = fields.objects("contexts")?.map(Vec::as_slice).unwrap_or_default();
    if contexts.len() > MAX_CONTEXTS {
        let problem = format!("expected at most {MAX_CONTEXTS} contexts, got {}", contexts.len());
        return Err(fields.invalid("contexts", problem));
    }
    let mut read = Vec::with_capacity(contexts.len());
    for (index, context) in contexts.iter().enumerate() {
        let mut changed = options.clone();
        let mut members = Fields::new(format!("contexts[{index}]"), context)?;
        for name in CONTEXT_OPTIONS {
            if let Some(value) = members.get(name) {
                changed[name] = value.clone();
            }
        }
        fields.ignore(members.ignored());
        let options = CreateOptions::read(&changed).map_err(|error| {
            let message = format!("contexts[{index}].{}", error.message());
            error.with_message(message)
        });
        read.push(options?);
    }
    Ok(read)
}

/// The members of a request with the projector that was found beside the model.
fn with_projector(mut members: Value, found: &CreateOptions) -> Value {
    members["projector"] = match &found.loading.projector {
        Some(ProjectorChoice::Path(path)) => path.as_str().into(),
        _ => Value::Null,
    };
    members
}

fn report_json(options: &CreateOptions, report: &MemoryReport) -> Value {
    let device = |device: &DeviceMemory| {
        json!({
            "name": device.name,
            "layers": device.layers,
            "weights": device.weights,
            "cache": device.cache,
            "compute": device.compute,
            "total": device.total(),
            "free": device.free,
            "fits": device.fits(),
        })
    };
    let sum = |part: fn(&DeviceMemory) -> u64| report.devices.iter().map(part).sum::<u64>();
    let fits: Option<Vec<bool>> = report.devices.iter().map(DeviceMemory::fits).collect();
    let mut reply = json!({
        "type": "memory",
        "n_ctx": report.n_ctx,
        "n_parallel": options.context.n_parallel,
        "kv_unified": report.kv_unified,
        "n_gpu_layers": report.n_gpu_layers,
        "n_cpu_moe": report.n_cpu_moe,
        "weights": sum(|device| device.weights),
        "cache": sum(|device| device.cache),
        "compute": sum(|device| device.compute),
        "total": sum(DeviceMemory::total),
        "fits": fits.map(|fits| fits.into_iter().all(|fits| fits)),
        "devices": report.devices.iter().map(device).collect::<Vec<Value>>(),
    });
    if !options.loading.lora.is_empty() {
        reply["adapters"] = report.adapters.into();
    }
    if let Some((header, taken)) = &report.projector {
        let kinds: Vec<&str> = header.kinds().map(ProjectorType::as_str).collect();
        reply["projector"] = json!({
            "type": kinds.join(", "),
            "input_modalities": header.modalities().collect::<Vec<_>>(),
            "weights": taken.weights,
            "compute": taken.compute,
            "total": taken.weights + taken.compute,
        });
        if let Some(tokens) = header.tokens_of_picture() {
            reply["projector"]["tokens_per_image"] = tokens.into();
        }
        if let Some(windows) = header.sound() {
            reply["projector"]["tokens_per_window"] = windows.tokens().into();
        }
    }
    if let Some(PartMemory { weights, cache, compute }) = report.draft {
        reply["draft"] = json!({
            "weights": weights,
            "cache": cache,
            "compute": compute,
            "total": weights + cache + compute,
        });
    }
    reply
}
