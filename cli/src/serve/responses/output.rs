//! Converts the library's deltas to the output items of a response and their events. A new kind of
//! delta ends the open item and begins the next one.

use std::sync::Arc;

use serde_json::{Value, json};

use super::tools::{Tool, Tools};
use crate::serve::event_stream::named_event;
use crate::serve::stamp::id;

pub(super) struct Output {
    tools: Tools,
    items: Vec<Value>,
    open: Option<Kind>,
    /// The text or arguments of the open item so far.
    text: String,
    /// The log probabilities of the open message.
    logprobs: Vec<Value>,
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
            open: None,
            text: String::new(),
            logprobs: Vec::new(),
            sequence_number: 0,
        }
    }

    /// An event with the next number.
    pub(super) fn event(&mut self, name: &str, mut members: Value) -> String {
        members["type"] = name.into();
        members["sequence_number"] = self.sequence_number.into();
        self.sequence_number += 1;
        named_event(name, &members)
    }

    /// The events for a choice of a chunk.
    pub(super) fn add_delta(&mut self, choice: &Value) -> String {
        let delta = &choice["delta"];
        let mut events = String::new();
        if let Some(text) = delta["reasoning_content"].as_str().filter(|text| !text.is_empty()) {
            events += &self.open(Kind::Reasoning);
            events += &self.append(text, &[]);
        }
        let logprobs = choice["logprobs"]["content"].as_array().cloned().unwrap_or_default();
        if let Some(text) = delta["content"].as_str().filter(|text| !text.is_empty()) {
            events += &self.open(Kind::Message);
            events += &self.append(text, &logprobs);
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
                events += &self.append(arguments, &[]);
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
        let logprobs = std::mem::take(&mut self.logprobs);
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
                    "type": "output_text", "text": text, "annotations": [], "logprobs": logprobs,
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

    fn append(&mut self, text: &str, logprobs: &[Value]) -> String {
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
                members["logprobs"] = logprobs.into();
                self.logprobs.extend_from_slice(logprobs);
                self.event("response.output_text.delta", members)
            }
        }
    }

    /// Identifies the item that an event is about.
    fn place(&self) -> Value {
        let index = self.items.len().saturating_sub(1);
        json!({ "item_id": self.items[index]["id"], "output_index": index })
    }
}
