//! `/v1/chat/completions/render`, `/v1/completions/render` and the two `/derender`: prompts as token
//! ids for vLLM's `/inference/v1/generate`, and its replies as messages. They need a model's
//! vocabulary and template, but no weights, and keep nothing between requests.
//!
//! Shapes: `GenerateRequest`, `DerenderChatRequest` and `DerenderChatStreamRequest` of vLLM 0.33
//! (vllm/entrypoints/scale_out/token_in_token_out/protocol.py).

use serde_json::{Map, Value, json};

use super::call::{Call, ParsedCall, Reply, json_response};
use super::chat_completions;
use super::error::ApiError;
use super::fields;
use super::left_out::LeftOut;
use super::model::ServedModel;
use super::stamp::{id, now};
use crate::abi;

/// Sampling parameters of a request, and their names in vLLM's `SamplingParams`.
const SAMPLING: [(&str, &str); 13] = [
    ("temperature", "temperature"),
    ("top_p", "top_p"),
    ("top_k", "top_k"),
    ("min_p", "min_p"),
    ("presence_penalty", "presence_penalty"),
    ("frequency_penalty", "frequency_penalty"),
    ("repeat_penalty", "repetition_penalty"),
    ("repetition_penalty", "repetition_penalty"),
    ("seed", "seed"),
    ("stop", "stop"),
    ("logit_bias", "logit_bias"),
    ("max_tokens", "max_tokens"),
    ("max_completion_tokens", "max_tokens"),
];
/// Members of a request that the parser of its reply needs.
const PARSED: [&str; 6] = [
    "tools",
    "tool_choice",
    "response_format",
    "parallel_tool_calls",
    "untagged_calls",
    "reasoning_format",
];
/// Facts about a model that a client of the prompt may want.
const CAPABILITIES: [&str; 4] = ["tool_support", "caps", "template_caps", "output_format"];

pub(super) async fn chat(call: Call) -> Reply {
    Ok(json_response(&call.answer(|mut call| rendered_chat(&mut call)).await?))
}

fn rendered_chat(call: &mut ParsedCall) -> Result<Value, ApiError> {
    let model = call.model()?;
    call.log.set_model(&model.name);
    let body = call.body.clone();
    let mut left_out = LeftOut::new(model.media());
    let (mut request, _) = chat_completions::checked_request(call, &mut left_out)?;
    model.limit(&mut request);
    let mut rendered = generate_request(&body, request, &model, "chatcmpl-")?;
    let llb = json!({ "diagnostics": rendered["llb"]["diagnostics"].take() });
    left_out.add_diagnostics(&llb, "diagnostics", &mut rendered["llb"]);
    Ok(rendered)
}

pub(super) async fn completion(call: Call) -> Reply {
    Ok(json_response(&call.answer(|call| rendered_completion(&call)).await?))
}

/// A request for each prompt, as vLLM returns them.
fn rendered_completion(call: &ParsedCall) -> Result<Value, ApiError> {
    let model = call.model()?;
    call.log.set_model(&model.name);
    let prompts = match fields::get(&call.body, "prompt") {
        None => return Err(ApiError::invalid("prompt", "is missing")),
        Some(Value::Array(prompts)) if !prompts.iter().all(Value::is_number) => prompts.clone(),
        Some(prompt) => vec![prompt.clone()],
    };
    let rendered = prompts.into_iter().map(|prompt| {
        let request = json!({ "prompt": prompt });
        generate_request(&call.body, request, &model, "cmpl-")
    });
    rendered.collect::<Result<Vec<Value>, ApiError>>().map(Value::from)
}

/// The `GenerateRequest` of a request of the library. `body` is the client's.
fn generate_request(
    body: &Value,
    mut request: Value,
    model: &ServedModel,
    prefix: &str,
) -> Result<Value, ApiError> {
    request["model_path"] = model.options["model"].clone();
    request["details"] = true.into();
    if let Some(template) = model.options.get("chat_template") {
        request["chat_template"] = template.clone();
    }
    let counted = abi::count(&request)?;
    let mut parameters = Map::new();
    for (name, theirs) in SAMPLING {
        if let Some(value) = fields::get(body, name) {
            parameters.insert(theirs.to_owned(), value.clone());
        }
    }
    if let Some(n_top) = n_logprobs(body) {
        parameters.insert("logprobs".to_owned(), n_top);
    }
    parameters.insert("skip_special_tokens".to_owned(), false.into());
    if let Some(outputs) = structured_outputs(body) {
        parameters.insert("structured_outputs".to_owned(), outputs);
    }
    let is_stream = body["stream"] == true;
    let mut llb = json!({
        "prompt": counted["prompt"], "spans": counted["spans"],
        "polyfills_applied": counted["polyfills_applied"],
        "diagnostics": counted.get("diagnostics").cloned().unwrap_or_else(|| json!([])),
        "context_length": counted["context_length"], "findings": model.info["findings"],
    });
    for name in CAPABILITIES {
        llb[name] = model.info[name].clone();
    }
    Ok(json!({
        "request_id": id(prefix), "token_ids": counted["ids"], "features": null,
        "sampling_params": parameters, "model": model.name, "stream": is_stream,
        "stream_options": if is_stream { body["stream_options"].clone() } else { Value::Null },
        "cache_salt": body["cache_salt"],
        "priority": fields::get(body, "priority").cloned().unwrap_or_else(|| 0.into()),
        "kv_transfer_params": null, "llb": llb,
    }))
}

/// The number of log probabilities per token: `logprobs` of a completion, or `top_logprobs` of a
/// chat completion.
fn n_logprobs(body: &Value) -> Option<Value> {
    match &body["logprobs"] {
        Value::Bool(true) => {
            Some(fields::get(body, "top_logprobs").cloned().unwrap_or_else(|| 0.into()))
        }
        Value::Number(n_top) => Some(n_top.clone().into()),
        _ => None,
    }
}

/// vLLM's `structured_outputs` for `response_format`, as vLLM makes it.
fn structured_outputs(body: &Value) -> Option<Value> {
    let format = &body["response_format"];
    match format["type"].as_str()? {
        "json_object" => Some(json!({ "json_object": true })),
        "json_schema" => Some(json!({ "json": format["json_schema"]["schema"] })),
        _ => None,
    }
}

pub(super) async fn message(call: Call) -> Reply {
    Ok(json_response(&call.answer(|call| derendered_chat(&call)).await?))
}

/// The chat completion of a `DerenderChatRequest`, or the next chunk of a
/// `DerenderChatStreamRequest`.
fn derendered_chat(call: &ParsedCall) -> Result<Value, ApiError> {
    let model = call.model()?;
    call.log.set_model(&model.name);
    let body = &call.body;
    if body["stream"] == true {
        return derendered_chunk(body, &model);
    }
    let response = object(body, "generate_response")?;
    let mut generated = 0;
    let choices = choices_of(response, "generate_response")?.iter().map(|choice| {
        let ids = token_ids(choice)?;
        generated += ids.len();
        let parsed = parse(&model, &body["chat_request"], &ids, false)?;
        let mut message = parsed["message"].clone();
        message["refusal"] = Value::Null;
        let is_call = message.get("tool_calls").is_some();
        Ok(json!({
            "index": choice["index"], "message": message, "logprobs": null,
            "finish_reason": finish_reason(choice, is_call),
            "llb": { "diagnostics": parsed["diagnostics"], "complete": parsed["complete"] },
        }))
    });
    let choices = choices.collect::<Result<Vec<Value>, ApiError>>()?;
    Ok(json!({
        "id": response["request_id"], "object": "chat.completion", "created": now(),
        "model": model.name, "choices": choices, "usage": usage(body, generated),
    }))
}

/// The next chunk of a stream: what the tokens of this event add to those in `stream_state`. The
/// state is everything that the next call needs, and the client carries it.
fn derendered_chunk(body: &Value, model: &ServedModel) -> Result<Value, ApiError> {
    let event = object(body, "generate_chunk")?;
    let state = &body["stream_state"];
    let before = match fields::get(state, "output_token_ids") {
        Some(_) => token_ids_of(state, "output_token_ids", "stream_state.output_token_ids")?,
        None => Vec::new(),
    };
    let is_first = state["role_sent"] != true;
    let choice = choices_of(event, "generate_chunk")?.first();
    let mut all = before.clone();
    let mut choices = Vec::new();
    let mut ids = match &state["last_tool_call_ids"] {
        Value::Array(ids) => ids.clone(),
        _ => Vec::new(),
    };
    if let Some(choice) = choice {
        if fields::get(choice, "token_ids").is_some() {
            all.extend(token_ids(choice)?);
        }
        let is_last = !choice["finish_reason"].is_null();
        let request = &body["chat_request"];
        let old = parse(model, request, &before, true)?["message"].take();
        let mut new = parse(model, request, &all, !is_last)?["message"].take();
        pin_ids(&mut new, &mut ids);
        let mut delta = delta(&old, &new);
        if is_first {
            delta["role"] = "assistant".into();
        }
        let reason = finish_reason(choice, new.get("tool_calls").is_some());
        choices.push(json!({
            "index": choice["index"], "delta": delta, "logprobs": null,
            "finish_reason": if is_last { reason } else { Value::Null },
        }));
    }
    let generated = all.len();
    let usage = if event["usage"].is_null() { Value::Null } else { usage(body, generated) };
    let chunk = json!({
        "id": event["request_id"], "object": "chat.completion.chunk", "created": now(),
        "model": model.name, "choices": choices, "usage": usage,
    });
    Ok(json!({
        "chunk": chunk,
        "stream_state": {
            "output_token_ids": all, "last_tool_call_ids": ids,
            "role_sent": !is_first || choice.is_some(),
        },
    }))
}

/// Replaces the ids of calls by those that were sent before, and notes new ones.
fn pin_ids(message: &mut Value, ids: &mut Vec<Value>) {
    let calls = message["tool_calls"].as_array_mut().into_iter().flatten();
    for (index, call) in calls.enumerate() {
        match ids.get(index) {
            Some(id) => call["id"] = id.clone(),
            None => ids.push(call["id"].clone()),
        }
    }
}

/// What the new message adds to the old one, which is its beginning.
fn delta(old: &Value, new: &Value) -> Value {
    let mut delta = json!({});
    let added = |old: &Value, new: &Value| {
        let (old, new) = (old.as_str().unwrap_or_default(), new.as_str().unwrap_or_default());
        new.strip_prefix(old).filter(|rest| !rest.is_empty()).map(str::to_owned)
    };
    for name in ["content", "reasoning_content"] {
        if let Some(text) = added(&old[name], &new[name]) {
            delta[name] = text.into();
        }
    }
    let calls = new["tool_calls"].as_array().into_iter().flatten().enumerate();
    let calls = calls.filter_map(|(index, call)| {
        let before = &old["tool_calls"][index];
        let arguments = added(&before["function"]["arguments"], &call["function"]["arguments"]);
        if !before.is_null() {
            let function = json!({ "arguments": arguments? });
            return Some(json!({ "index": index, "function": function }));
        }
        let name = &call["function"]["name"];
        let function = json!({ "name": name, "arguments": arguments.unwrap_or_default() });
        Some(json!({ "index": index, "id": call["id"], "type": "function", "function": function }))
    });
    let calls: Vec<Value> = calls.collect();
    if !calls.is_empty() {
        delta["tool_calls"] = calls.into();
    }
    delta
}

/// Parses the tokens of a reply. `request` is the chat request that they answer, or null.
fn parse(
    model: &ServedModel,
    request: &Value,
    ids: &[Value],
    partial: bool,
) -> Result<Value, ApiError> {
    let text = text_of(model, ids)?;
    let mut parsed = json!({ "output": text, "partial": partial });
    match model.options.get("chat_template") {
        Some(template) => parsed["chat_template"] = template.clone(),
        None => parsed["gguf"] = model.options["model"].clone(),
    }
    if request.is_object() {
        fields::copy(request, &PARSED, &mut parsed);
    }
    Ok(abi::template_parse(&parsed)?)
}

/// The text of tokens, with control tokens, but without the token that ends a reply.
fn text_of(model: &ServedModel, ids: &[Value]) -> Result<String, ApiError> {
    if ids.is_empty() {
        return Ok(String::new());
    }
    let request = json!({ "model_path": model.options["model"], "ids": ids });
    let reply = abi::detokenize(&request)?;
    let text = reply.value("text");
    let text = text.as_str().unwrap_or_default();
    // A character that the tokens so far cut is held back.
    let text = text.trim_end_matches(char::REPLACEMENT_CHARACTER);
    let end = model.info["eos_token"].as_str().unwrap_or_default();
    Ok(text.strip_suffix(end).filter(|_| !end.is_empty()).unwrap_or(text).to_owned())
}

fn finish_reason(choice: &Value, is_call: bool) -> Value {
    match choice["finish_reason"].as_str() {
        Some("stop") | None if is_call => "tool_calls".into(),
        Some(reason) => reason.into(),
        None => "stop".into(),
    }
}

fn usage(body: &Value, generated: usize) -> Value {
    let prompt = body["prompt_tokens"].as_u64().unwrap_or(0);
    let total = prompt.saturating_add(generated as u64);
    json!({ "prompt_tokens": prompt, "completion_tokens": generated, "total_tokens": total })
}

fn object<'a>(body: &'a Value, name: &str) -> Result<&'a Value, ApiError> {
    let value = &body[name];
    value.is_object().then_some(value).ok_or_else(|| ApiError::invalid(name, "must be an object"))
}

fn choices_of<'a>(response: &'a Value, name: &str) -> Result<&'a [Value], ApiError> {
    let choices = response["choices"].as_array();
    let problem = || ApiError::invalid(&format!("{name}.choices"), "must be an array");
    choices.map(Vec::as_slice).ok_or_else(problem)
}

fn token_ids(choice: &Value) -> Result<Vec<Value>, ApiError> {
    token_ids_of(choice, "token_ids", "choices[].token_ids")
}

fn token_ids_of(value: &Value, name: &str, path: &str) -> Result<Vec<Value>, ApiError> {
    let ids = value[name].as_array().filter(|ids| ids.iter().all(Value::is_u64));
    let problem = || ApiError::invalid(path, "must be an array of token ids");
    ids.cloned().ok_or_else(problem)
}
