//! `/v1/responses`: OpenAI's Responses.
//!
//! Source: <https://platform.openai.com/docs/api-reference/responses>, and the types of the package
//! `openai` 3.54.

mod input;
mod output;
mod request;
mod store;
mod tools;

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use bytes::Bytes;
use serde_json::{Value, json};

use self::output::Output;
pub(crate) use self::store::ResponseStore;
use self::store::{Conversation, StoredResponse};
use super::app::App;
use super::call::{Call, ParsedCall, PathPart, Reply, json_response, json_text, path_part};
use super::error::ApiError;
use super::event_stream::{EventWriter, replay};
use super::exchanges;
use super::fields;
use super::generation::Generated;
use super::left_out::{Header, LeftOut};
use super::stamp::{id, now};

/// Returns a stored response.
pub(super) async fn retrieve(State(app): State<Arc<App>>, id: PathPart) -> Reply {
    let id = path_part(id)?;
    let stored = app.responses.get(&id).ok_or_else(|| unknown(&id))?;
    Ok(json_text(stored.response.clone()))
}

pub(super) async fn delete(State(app): State<Arc<App>>, id: PathPart) -> Reply {
    let id = path_part(id)?;
    if !app.responses.remove(&id) {
        return Err(unknown(&id));
    }
    Ok(json_response(&json!({ "id": id, "object": "response", "deleted": true })))
}

fn unknown(id: &str) -> ApiError {
    let id: String = id.chars().take(80).collect();
    let message = format!("{id}: no such response; it may have been dropped, send the whole input");
    ApiError::new(StatusCode::NOT_FOUND, message)
}

pub(super) async fn respond(mut call: Call) -> Reply {
    let previous = call.peek(|call| previous(&call)).await?;
    let memory = previous.as_ref().map_or(0, |stored| stored.memory);
    let convert = move |call: ParsedCall| {
        let model = call.model()?;
        let is_stream = call.is_stream()?;
        let previous = previous.map_or_else(Vec::new, |stored| stored.messages());
        let mut left_out = LeftOut::new(model.media());
        let (messages, mut tools) = input::read(&call.body, previous, &mut left_out)?;
        let messages = exchanges::paired(messages)?;
        let keeps = fields::boolean(&call.body, "store")?.unwrap_or(true);
        let conversation =
            if keeps { Conversation::new(&messages) } else { Conversation::default() };
        let mut library =
            request::library_request(&call.body, messages, &mut tools, &mut left_out)?;
        if let Some(most) = fields::positive(&call.body, "max_output_tokens")? {
            library["max_tokens"] = most.into();
        }
        let library = call.library_request(&model, is_stream, library);
        let writer = ResponseWriter {
            app: Arc::clone(&call.app),
            keeps,
            conversation,
            response: response(&call.body, &model.name, keeps),
            output: Output::new(tools),
            left_out,
        };
        Ok((model, library, is_stream, writer))
    };
    let (model, library, is_stream, writer) = call.read_with(memory, convert).await?;
    let header = writer.left_out.header();
    call.generate(&model, library, is_stream, || writer).await.map(|reply| header.on(reply))
}

/// `/v1/responses/input_tokens`: the number of tokens of the prompt.
pub(super) async fn count_tokens(call: Call) -> Reply {
    let (tokens, header) = call.answer(|call| count(&call)).await?;
    let counted = json!({ "object": "response.input_tokens", "input_tokens": tokens });
    Ok(header.on(json_response(&counted)))
}

fn count(call: &ParsedCall) -> Result<(Value, Header), ApiError> {
    let model = call.model()?;
    let previous = previous(call)?.map_or_else(Vec::new, |stored| stored.messages());
    let mut left_out = LeftOut::new(model.media());
    let (messages, mut tools) = input::read(&call.body, previous, &mut left_out)?;
    let messages = exchanges::paired(messages)?;
    let library = request::library_request(&call.body, messages, &mut tools, &mut left_out)?;
    Ok((call.count(&model, library)?, left_out.header()))
}

/// The stored response that a request continues.
fn previous(call: &ParsedCall) -> Result<Option<Arc<StoredResponse>>, ApiError> {
    let Some(id) = fields::string(&call.body, "previous_response_id")? else { return Ok(None) };
    let stored = call.app.responses.get(id);
    let stored = stored.ok_or_else(|| ApiError {
        param: Some("previous_response_id".to_owned()),
        ..unknown(id).with_code("previous_response_not_found")
    });
    stored.map(Some)
}

/// A response that has just begun, with the settings of its request.
fn response(body: &Value, model: &str, keeps: bool) -> Value {
    let given = |name: &str, default: Value| fields::get(body, name).cloned().unwrap_or(default);
    json!({
        "id": id("resp_"), "object": "response", "created_at": now(), "status": "in_progress",
        "error": null, "incomplete_details": null, "instructions": given("instructions", Value::Null),
        "max_output_tokens": given("max_output_tokens", Value::Null), "model": model, "output": [],
        "parallel_tool_calls": given("parallel_tool_calls", true.into()),
        "previous_response_id": given("previous_response_id", Value::Null),
        "reasoning": given("reasoning", json!({ "effort": null, "summary": null })),
        "store": keeps, "temperature": given("temperature", Value::Null),
        "text": given("text", json!({ "format": { "type": "text" } })),
        "tool_choice": given("tool_choice", "auto".into()), "tools": given("tools", json!([])),
        "top_p": given("top_p", Value::Null), "truncation": given("truncation", "disabled".into()), "usage": null,
        "metadata": given("metadata", json!({})), "background": false,
    })
}

struct ResponseWriter {
    app: Arc<App>,
    keeps: bool,
    /// Without `instructions`, and without the reply. Empty if it is not kept.
    conversation: Conversation,
    response: Value,
    output: Output,
    left_out: LeftOut,
}

impl ResponseWriter {
    /// Completes the response and stores it.
    fn finish(&mut self, reply: &Value) {
        let is_cut_off = is_cut_off(reply);
        self.response["output"] = self.output.items().into();
        self.response["usage"] = usage(reply);
        self.left_out.add_diagnostics(reply, "diagnostics", &mut self.response);
        self.response["status"] = if is_cut_off { "incomplete" } else { "completed" }.into();
        if is_cut_off {
            self.response["incomplete_details"] = json!({ "reason": "max_output_tokens" });
        } else {
            self.response["completed_at"] = now().into();
        }
        if self.keeps {
            let conversation = std::mem::take(&mut self.conversation);
            let text = self.output.raws().text(&self.response);
            let id = self.response["id"].as_str().unwrap_or_default();
            self.app.responses.put(id, text, conversation.with(&reply["message"]));
        }
    }

    fn event(&mut self, name: &str) -> String {
        let response = self.response.clone();
        self.output.event(name, json!({ "response": response }))
    }
}

impl EventWriter for ResponseWriter {
    fn start(&mut self) -> String {
        self.event("response.created") + &self.event("response.in_progress")
    }

    fn chunk(&mut self, chunk: &Generated) -> String {
        self.output.add_delta(&chunk.value["choices"][0]["delta"], chunk.logprobs.as_ref())
    }

    fn end(&mut self, reply: &Value) -> String {
        let is_cut_off = is_cut_off(reply);
        let text = self.output.close(is_cut_off);
        self.finish(reply);
        let name = if is_cut_off { "response.incomplete" } else { "response.completed" };
        text + &self.event(name)
    }

    fn error(&mut self, error: &ApiError) -> String {
        let text = self.output.close(true);
        let code = error.code.as_deref().unwrap_or("server_error");
        self.response["status"] = "failed".into();
        self.response["error"] = json!({ "code": code, "message": error.message });
        text + &self.event("response.failed")
    }

    fn whole(mut self, reply: &Generated) -> Vec<Bytes> {
        replay(&mut self, reply);
        self.output.raws().parts(&self.response)
    }
}

fn is_cut_off(reply: &Value) -> bool {
    matches!(reply["finish_reason"].as_str(), Some("length" | "cancelled"))
}

fn usage(reply: &Value) -> Value {
    let usage = &reply["usage"];
    let count = |value: &Value| value.as_u64().unwrap_or_default();
    json!({
        "input_tokens": usage["prompt_tokens"],
        "input_tokens_details": {
            "cached_tokens": count(&usage["prompt_tokens_details"]["cached_tokens"]),
            "cache_write_tokens": 0,
        },
        "output_tokens": usage["completion_tokens"],
        "output_tokens_details": {
            "reasoning_tokens": count(&usage["completion_tokens_details"]["reasoning_tokens"]),
        },
        "total_tokens": usage["total_tokens"],
    })
}
