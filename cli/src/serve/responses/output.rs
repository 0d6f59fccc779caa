//! Converts the library's deltas to the output items of a response and their events. A new kind of
//! delta ends the open item and begins the next one.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};

use super::tools::{Tool, Tools};
use crate::raw_json::{RawObject, RawValues};
use crate::serve::event_stream::named_event_text;
use crate::serve::stamp::id;

pub(super) struct Output {
    tools: Tools,
    /// The items. The log probabilities of a message are one of `raws`.
    items: Vec<Value>,
    raws: RawValues,
    open: Option<Kind>,
    /// The text or arguments of the open item so far.
    text: String,
    /// The log probabilities of the open message: JSON with commas between them.
    logprobs: String,
    sequence_number: u64,
}

#[derive(Clone)]
enum Kind {
    Reasoning,
    Message,
    Call(Arc<Tool>),
}

impl Output {
    /// `tools` are those that the model may call.
    pub(super) fn new(tools: Tools) -> Output {
        Output {
            tools,
            items: Vec::new(),
            raws: RawValues::new(&id("raw-")),
            open: None,
            text: String::new(),
            logprobs: String::new(),
            sequence_number: 0,
        }
    }

    /// An event with the next number.
    pub(super) fn event(&mut self, name: &str, mut members: Value) -> String {
        members["type"] = name.into();
        members["sequence_number"] = self.sequence_number.into();
        self.sequence_number += 1;
        named_event_text(name, &self.raws.text(&members))
    }

    /// The texts that stand in the items.
    pub(super) fn raws(&self) -> &RawValues {
        &self.raws
    }

    /// The events for the delta of a chunk, and for its log probabilities, `{"content": [...]}`.
    pub(super) fn add_delta(&mut self, delta: &Value, logprobs: Option<&Bytes>) -> String {
        let mut events = String::new();
        if let Some(text) = delta["reasoning_content"].as_str().filter(|text| !text.is_empty()) {
            events += &self.open(Kind::Reasoning);
            events += &self.append(text, None);
        }
        let logprobs = logprobs.and_then(|it| RawObject::parse(it.clone()).text("content"));
        if let Some(text) = delta["content"].as_str().filter(|text| !text.is_empty()) {
            events += &self.open(Kind::Message);
            events += &self.append(text, logprobs);
        }
        for call in delta["tool_calls"].as_array().into_iter().flatten() {
            if let Some(name) = call["function"]["name"].as_str() {
                events += &self.close(false);
                let tool = self.tools.get(name);
                let item = tool.call_item(&call["id"]);
                events += &self.begin(Kind::Call(tool), item);
            }
            let arguments = call["function"]["arguments"].as_str().unwrap_or_default();
            if !arguments.is_empty() {
                events += &self.append(arguments, None);
            }
        }
        events
    }

    /// The items so far.
    pub(super) fn items(&self) -> Vec<Value> {
        self.items.clone()
    }

    /// Ends the open item.
    pub(super) fn close(&mut self, is_cut_off: bool) -> String {
        let Some(kind) = self.open.take() else { return String::new() };
        let index = self.items.len() - 1;
        let text = std::mem::take(&mut self.text);
        let logprobs = format!("[{}]", std::mem::take(&mut self.logprobs));
        let status = if is_cut_off { "incomplete" } else { "completed" };
        self.items[index]["status"] = status.into();
        let mut events = String::new();
        let part = match &kind {
            Kind::Call(tool) => {
                events += &self.close_call(tool, index, &text);
                None
            }
            Kind::Message => Some((
                "response.output_text.done",
                json!({
                    "type": "output_text", "text": text, "annotations": [],
                    "logprobs": self.raws.add(logprobs.into()),
                }),
            )),
            Kind::Reasoning => Some((
                "response.reasoning_text.done",
                json!({ "type": "reasoning_text", "text": text }),
            )),
        };
        if let Some((done, part)) = part {
            self.items[index]["content"] = json!([part]);
            let mut members = self.place();
            members["content_index"] = 0.into();
            members["text"] = part["text"].clone();
            if matches!(kind, Kind::Message) {
                members["logprobs"] = part["logprobs"].clone();
            }
            events += &self.event(done, members);
            let mut members = self.place();
            members["content_index"] = 0.into();
            members["part"] = part;
            events += &self.event("response.content_part.done", members);
        }
        let members = json!({ "output_index": index, "item": self.items[index] });
        events + &self.event("response.output_item.done", members)
    }

    /// The last events of a call, before the one of its item. Only functions and custom tools have
    /// any, and the input of a custom tool is sent as a whole.
    fn close_call(&mut self, tool: &Tool, index: usize, arguments: &str) -> String {
        let Some(text) = tool.complete(&mut self.items[index], arguments) else {
            return String::new();
        };
        let mut members = self.place();
        if tool.is_function() {
            members["arguments"] = text.into();
            members["name"] = self.items[index]["name"].clone();
            return self.event("response.function_call_arguments.done", members);
        }
        let mut delta = members.clone();
        delta["delta"] = text.clone().into();
        members["input"] = text.into();
        self.event("response.custom_tool_call_input.delta", delta)
            + &self.event("response.custom_tool_call_input.done", members)
    }

    /// Continues an open item of this kind, or begins a new one.
    fn open(&mut self, kind: Kind) -> String {
        let is_open = self
            .open
            .as_ref()
            .is_some_and(|open| std::mem::discriminant(open) == std::mem::discriminant(&kind));
        if is_open {
            return String::new();
        }
        let mut events = self.close(false);
        let (item, part) = match kind {
            Kind::Reasoning => (
                json!({
                    "id": id("rs_"), "type": "reasoning", "status": "in_progress", "summary": [],
                    "content": [],
                }),
                json!({ "type": "reasoning_text", "text": "" }),
            ),
            _ => (
                json!({
                    "id": id("msg_"), "type": "message", "status": "in_progress",
                    "role": "assistant", "content": [],
                }),
                json!({ "type": "output_text", "text": "", "annotations": [], "logprobs": [] }),
            ),
        };
        events += &self.begin(kind, item);
        let mut members = self.place();
        members["content_index"] = 0.into();
        members["part"] = part;
        events + &self.event("response.content_part.added", members)
    }

    fn begin(&mut self, kind: Kind, item: Value) -> String {
        self.open = Some(kind);
        let members = json!({ "output_index": self.items.len(), "item": item });
        self.items.push(item);
        self.event("response.output_item.added", members)
    }

    fn append(&mut self, text: &str, logprobs: Option<Bytes>) -> String {
        let Some(kind) = self.open.clone() else { return String::new() };
        self.text += text;
        let mut members = self.place();
        members["delta"] = text.into();
        match kind {
            Kind::Call(tool) if !tool.is_function() => String::new(),
            Kind::Call(_) => self.event("response.function_call_arguments.delta", members),
            Kind::Reasoning => {
                members["content_index"] = 0.into();
                self.event("response.reasoning_text.delta", members)
            }
            Kind::Message => {
                members["content_index"] = 0.into();
                let logprobs = logprobs.unwrap_or_else(|| Bytes::from_static(b"[]"));
                let inner = str::from_utf8(&logprobs[1..logprobs.len() - 1]).unwrap_or_default();
                if !inner.is_empty() && !self.logprobs.is_empty() {
                    self.logprobs.push(',');
                }
                self.logprobs += inner;
                members["logprobs"] = self.raws.add(logprobs);
                let event = self.event("response.output_text.delta", members);
                self.raws.remove_last();
                event
            }
        }
    }

    /// Identifies the item that an event is about.
    fn place(&self) -> Value {
        let index = self.items.len().saturating_sub(1);
        json!({ "item_id": self.items[index]["id"], "output_index": index })
    }
}
