//! `/api/tags`, `/api/ps`, `/api/show` and `/api/version`: the models, as Ollama lists them.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::http::Response;
use serde_json::{Value, json};

use crate::abi;
use crate::serve::app::App;
use crate::serve::call::{Call, ParsedCall, Reply, json_response};
use crate::serve::error::ApiError;
use crate::serve::fields;
use crate::serve::model::{Purpose, ServedModel};
use crate::serve::stamp;

/// The version of Ollama whose API this is. Clients require one.
const OLLAMA: &str = "0.12.6";
/// What Ollama adds to names without a tag.
const TAG: &str = ":latest";

/// Removes the tag from the model's name if only the name without it is known.
pub(super) fn accept_tag(call: &mut ParsedCall) {
    let name = call.body["model"].as_str().or(call.body["name"].as_str());
    let Some(name) = name.map(str::to_owned) else { return };
    let is_known = |name: &str| call.app.named_model(name).is_ok();
    let short = name.strip_suffix(TAG).filter(|short| !is_known(&name) && is_known(short));
    call.body["model"] = short.unwrap_or(&name).into();
}

pub(crate) async fn version() -> Response<Body> {
    json_response(&json!({ "version": OLLAMA, "llb": abi::version() }))
}

pub(crate) async fn tags(State(app): State<Arc<App>>) -> Response<Body> {
    let models: Vec<Value> = app.pool.models().iter().map(|model| entry(model)).collect();
    json_response(&json!({ "models": models }))
}

/// The models in memory.
pub(crate) async fn running(State(app): State<Arc<App>>) -> Response<Body> {
    let loaded = app.pool.models().iter().filter(|model| model.is_loaded()).map(|model| {
        let mut entry = entry(model);
        entry["context_length"] = model.n_ctx.into();
        entry["size_vram"] = 0.into();
        entry["expires_at"] = Value::Null;
        entry
    });
    json_response(&json!({ "models": loaded.collect::<Vec<Value>>() }))
}

pub(crate) async fn show(call: Call) -> Reply {
    Ok(json_response(&call.answer(describe).await?))
}

fn describe(mut call: ParsedCall) -> Result<Value, ApiError> {
    accept_tag(&mut call);
    let name = fields::required_string(&call.body, "", "model");
    let model =
        call.app.named_model(name.map_err(|_| ApiError::invalid("model", "is missing"))?)?;
    call.log.set_model(&model.name);
    let source = json!({ "gguf": model.options["model"], "source": true });
    let template = match model.purpose {
        Purpose::Chat => abi::template_info(&source)?["chat_template"].clone(),
        Purpose::Embedding => Value::Null,
    };
    let info = &model.info;
    let architecture = info["architecture"].as_str().unwrap_or_default();
    let mut model_info = json!({
        "general.architecture": architecture, "general.parameter_count": info["n_params"],
        "general.basename": info["name"],
    });
    for name in ["context_length", "embedding_length", "block_count"] {
        model_info[format!("{architecture}.{name}")] = info[name].clone();
    }
    Ok(json!({
        "license": info["license"].as_str().unwrap_or_default(),
        "modelfile": format!("FROM {}", model.name),
        "parameters": format!("num_ctx {}", model.n_ctx),
        "template": template.as_str().unwrap_or_default(),
        "details": details(model),
        "model_info": model_info,
        "capabilities": capabilities(model),
        "modified_at": modified(model),
    }))
}

/// The entry of a model in a list. Its weights are not read, so there is no digest of them.
fn entry(model: &ServedModel) -> Value {
    json!({
        "name": model.name, "model": model.name, "modified_at": modified(model),
        "size": model.info["file_size"], "digest": "", "details": details(model),
    })
}

fn modified(model: &ServedModel) -> String {
    stamp::text(Duration::from_secs(model.created))
}

fn details(model: &ServedModel) -> Value {
    let info = &model.info;
    let family = info["architecture"].as_str().unwrap_or_default();
    json!({
        "parent_model": "", "format": "gguf", "family": family, "families": [family],
        "parameter_size": parameters(info["n_params"].as_u64().unwrap_or_default()),
        "quantization_level": info["quantization"].as_str().unwrap_or_default(),
    })
}

fn capabilities(model: &ServedModel) -> Vec<&'static str> {
    if model.purpose == Purpose::Embedding {
        return vec!["embedding"];
    }
    let info = &model.info;
    let reasoning = info["output_format"]["reasoning"].as_str().is_some_and(|kind| kind != "none");
    let all = [
        ("completion", true),
        ("vision", model.media().pictures),
        ("audio", model.media().sound),
        ("tools", info["tool_support"] != "none"),
        ("thinking", reasoning),
    ];
    all.into_iter().filter(|(_, has)| *has).map(|(name, _)| name).collect()
}

/// `630.17M`, `7.6B`.
fn parameters(count: u64) -> String {
    match count {
        1_000_000_000.. => format!("{:.1}B", count as f64 / 1e9),
        1_000_000.. => format!("{:.2}M", count as f64 / 1e6),
        _ => format!("{:.2}K", count as f64 / 1e3),
    }
}

#[cfg(test)]
mod tests {
    use super::parameters;

    #[test]
    fn parameters_are_counted_as_in_ollama() {
        assert_eq!(parameters(7_615_616_512), "7.6B");
        assert_eq!(parameters(494_032_768), "494.03M");
        assert_eq!(parameters(35_000), "35.00K");
    }
}
