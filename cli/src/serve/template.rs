//! `/v1/template`: describes a chat template, its lints, and the prompt that it renders for
//! messages. No weights are needed.

use serde_json::{Value, json};

use super::call::{Call, ParsedCall, Reply, json_response};
use super::error::ApiError;
use super::fields::{self, Kind};
use super::model::ServedModel;
use crate::abi;
use crate::failure::Failure;

/// The members that select the template. Without them it is the model's.
const TEMPLATE: [&str; 3] = ["chat_template", "bos_token", "eos_token"];
/// The members that go into the prompt.
const PROMPT: [&str; 5] =
    ["messages", "tools", "add_generation_prompt", "chat_template_kwargs", "polyfills"];
const SHAPE: &[(&str, Kind)] =
    &[("chat_template", Kind::Text), ("bos_token", Kind::Text), ("eos_token", Kind::Text)];

pub(super) async fn respond(call: Call) -> Reply {
    Ok(json_response(&call.answer(|call| answer(&call)).await?))
}

fn answer(call: &ParsedCall) -> Result<Value, ApiError> {
    let model = call.model()?;
    call.log.set_model(&model.name);
    fields::check(&call.body, SHAPE)?;
    describe(&call.body, &model)
}

/// `/apply-template`, as in llama.cpp's server: only the prompt of the messages.
pub(super) async fn apply(call: Call) -> Reply {
    let answer = |call: ParsedCall| {
        let model = call.model()?;
        call.log.set_model(&model.name);
        fields::check(&call.body, SHAPE)?;
        let mut request = template(&call.body, &model);
        fields::copy(&call.body, &PROMPT, &mut request);
        Ok::<_, ApiError>(abi::template_render(&request)?["prompt"].clone())
    };
    let prompt = call.answer(answer).await?;
    Ok(json_response(&json!({ "prompt": prompt })))
}

fn describe(body: &Value, model: &ServedModel) -> Result<Value, ApiError> {
    let template = template(body, model);
    let mut description = json!({ "object": "template" });
    let mut info = template.clone();
    info["source"] = true.into();
    match abi::template_info(&info) {
        Ok(info) => copy(&info, &mut description),
        // If a template cannot be read, the error is its only finding.
        Err(failure) if failure.is("TEMPLATE_ERROR") => {
            copy(&template, &mut description);
            description["findings"] = json!([finding(&failure)]);
            return Ok(description);
        }
        Err(failure) => return Err(failure.into()),
    }
    if fields::get(body, "messages").is_some() {
        let mut request = template;
        fields::copy(body, &PROMPT, &mut request);
        request["spans"] = true.into();
        match abi::template_render(&request) {
            Ok(rendered) => copy(&rendered, &mut description),
            Err(failure) if failure.is("INVALID_REQUEST") => return Err(failure.into()),
            // For example a template that refuses these messages.
            Err(failure) => description["render_error"] = finding(&failure),
        }
    }
    Ok(description)
}

/// The Jinja text of a model's own template, if it has one.
pub(super) fn source(model: &ServedModel) -> Option<Value> {
    let mut info = template(&json!({}), model);
    info["source"] = true.into();
    abi::template_info(&info).ok().and_then(|info| fields::get(&info, "chat_template").cloned())
}

/// The members of a library request that select the template.
fn template(body: &Value, model: &ServedModel) -> Value {
    let mut template = json!({});
    let own = fields::get(body, "chat_template").or(model.options.get("chat_template"));
    match own {
        Some(text) => {
            template["chat_template"] = text.clone();
            for name in ["bos_token", "eos_token"] {
                let token = fields::get(&model.info, name);
                template[name] = token.cloned().unwrap_or_else(|| "".into());
            }
        }
        None => template["gguf"] = model.options["model"].clone(),
    }
    fields::copy(body, &TEMPLATE, &mut template);
    template
}

/// Copies all members except the type and the file's path.
fn copy(from: &Value, to: &mut Value) {
    for (name, value) in from.as_object().into_iter().flatten() {
        if !["type", "gguf", "source"].contains(&name.as_str()) {
            to[name] = value.clone();
        }
    }
}

fn finding(failure: &Failure) -> Value {
    let code = failure.code.as_deref().unwrap_or("template_error").to_lowercase();
    json!({
        "code": code, "severity": "error", "message": failure.message,
        "line": failure.details["line"],
    })
}
