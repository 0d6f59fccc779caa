//! `/v1/messages` and `/v1/messages/count_tokens`: Anthropic's Messages.
//!
//! Source: <https://docs.anthropic.com/en/api/messages>, and the types of the package `anthropic`
//! 2.12.

mod blocks;
mod request;
mod tools;
mod turns;

use bytes::Bytes;
use serde_json::{Value, json};

use self::blocks::Blocks;
use super::call::{Call, ParsedCall, Reply, json_response};
use super::error::{ApiError, Protocol};
use super::event_stream::{EventWriter, named_event, replay};
use super::fields;
use super::generation::Generated;
use super::left_out::{Header, LeftOut};
use super::stamp::id;

/// Anthropic's messages have a member `diagnostics` of another type.
const DIAGNOSTICS: &str = "llb_diagnostics";

pub(super) async fn respond(mut call: Call) -> Reply {
    let convert = |call: ParsedCall| {
        let model = call.model()?;
        let is_stream = call.is_stream()?;
        let mut left_out = LeftOut::new(model.media());
        let keeps_metadata = call.app.keeps_client_metadata;
        let mut library = request::library_request(&call.body, keeps_metadata, &mut left_out)?;
        let max_tokens = fields::positive(&call.body, "max_tokens")?;
        library["max_tokens"] =
            max_tokens.ok_or_else(|| ApiError::invalid("max_tokens", "is missing"))?.into();
        let shows_thinking = request::asks_for_thinking(&call.body);
        // If the prompt cannot be counted, the generation has the same error.
        let tokens = if is_stream { call.count(&model, library.clone()).ok() } else { None };
        let library = call.library_request(&model, is_stream, library);
        Ok((model, library, is_stream, shows_thinking, tokens, left_out))
    };
    let (model, library, is_stream, shows_thinking, tokens, left_out) = call.read(convert).await?;
    let header = left_out.header();
    let writer = || MessageWriter {
        message: message(&model.name, tokens),
        blocks: Blocks::new(shows_thinking),
        left_out,
    };
    call.generate(&model, library, is_stream, writer).await.map(|reply| header.on(reply))
}

pub(super) async fn count_tokens(call: Call) -> Reply {
    let (tokens, header) = call.answer(|call| count(&call)).await?;
    Ok(header.on(json_response(&json!({ "input_tokens": tokens }))))
}

fn count(call: &ParsedCall) -> Result<(Value, Header), ApiError> {
    let model = call.model()?;
    let mut left_out = LeftOut::new(model.media());
    let keeps_metadata = call.app.keeps_client_metadata;
    let library = request::library_request(&call.body, keeps_metadata, &mut left_out)?;
    Ok((call.count(&model, library)?, left_out.header()))
}

/// A message without content, for a prompt of this many tokens, if that is known.
fn message(model: &str, tokens: Option<Value>) -> Value {
    json!({
        "id": id("msg_"), "type": "message", "role": "assistant", "model": model, "content": [],
        "stop_reason": null, "stop_sequence": null,
        "usage": { "input_tokens": tokens.unwrap_or(json!(0)), "output_tokens": 0 },
    })
}

/// `stop_reason` and `stop_sequence`. A message with calls has "tool_use", whatever ended it.
fn add_stop(reply: &Value, message: &mut Value) {
    let reason = match reply["finish_reason"].as_str() {
        Some("tool_calls") => "tool_use",
        Some("length" | "cancelled") => "max_tokens",
        _ if reply["stop_sequence"].is_string() => "stop_sequence",
        _ => "end_turn",
    };
    message["stop_reason"] = reason.into();
    message["stop_sequence"] = match reason {
        "stop_sequence" => reply["stop_sequence"].clone(),
        _ => Value::Null,
    };
}

/// `input_tokens` does not include cached tokens.
fn usage(reply: &Value) -> Value {
    let usage = &reply["usage"];
    let prompt = usage["prompt_tokens"].as_u64().unwrap_or_default();
    let cached = usage["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap_or_default();
    json!({
        "input_tokens": prompt.saturating_sub(cached), "cache_read_input_tokens": cached,
        "cache_creation_input_tokens": 0, "output_tokens": usage["completion_tokens"],
    })
}

struct MessageWriter {
    message: Value,
    blocks: Blocks,
    left_out: LeftOut,
}

impl EventWriter for MessageWriter {
    fn start(&mut self) -> String {
        let event = json!({ "type": "message_start", "message": self.message });
        named_event("message_start", &event)
    }

    fn chunk(&mut self, chunk: &Generated) -> String {
        self.blocks.add_delta(&chunk.value["choices"][0]["delta"])
    }

    fn end(&mut self, reply: &Value) -> String {
        let mut text = self.blocks.close();
        let mut delta = json!({});
        add_stop(reply, &mut delta);
        let mut event = json!({ "type": "message_delta", "delta": delta, "usage": usage(reply) });
        self.left_out.add_diagnostics(reply, DIAGNOSTICS, &mut event);
        text += &named_event("message_delta", &event);
        text + &named_event("message_stop", &json!({ "type": "message_stop" }))
    }

    fn error(&mut self, error: &ApiError) -> String {
        named_event("error", &error.json(Protocol::Anthropic))
    }

    fn whole(mut self, reply: &Generated) -> Vec<Bytes> {
        replay(&mut self, reply);
        let reply = &reply.value;
        self.message["content"] = self.blocks.content();
        add_stop(reply, &mut self.message);
        self.message["usage"] = usage(reply);
        self.left_out.add_diagnostics(reply, DIAGNOSTICS, &mut self.message);
        vec![self.message.to_string().into()]
    }
}
