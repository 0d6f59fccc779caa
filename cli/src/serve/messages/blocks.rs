//! Converts the library's deltas to the content blocks of a message. A new kind of delta ends the
//! open block and begins the next one.

use serde_json::{Value, json};

use crate::json;
use crate::serve::event_stream::named_event;

pub(super) struct Blocks {
    shows_thinking: bool,
    blocks: Vec<Value>,
    is_open: bool,
    /// The arguments of the open call so far.
    arguments: String,
}

impl Blocks {
    pub(super) fn new(shows_thinking: bool) -> Blocks {
        Blocks { shows_thinking, blocks: Vec::new(), is_open: false, arguments: String::new() }
    }

    /// The events of a delta.
    pub(super) fn add_delta(&mut self, delta: &Value) -> String {
        let mut events = String::new();
        if let Some(text) = delta["reasoning_content"].as_str().filter(|_| self.shows_thinking) {
            events += &self.open(
                "thinking",
                || json!({ "type": "thinking", "thinking": "", "signature": "" }),
            );
            self.append("thinking", text);
            events += &self.event(&json!({ "type": "thinking_delta", "thinking": text }));
        }
        if let Some(text) = delta["content"].as_str().filter(|text| !text.is_empty()) {
            events += &self.open("text", || json!({ "type": "text", "text": "" }));
            self.append("text", text);
            events += &self.event(&json!({ "type": "text_delta", "text": text }));
        }
        for call in delta["tool_calls"].as_array().into_iter().flatten() {
            events += &self.add_call(call);
        }
        events
    }

    /// Ends the open block.
    pub(super) fn close(&mut self) -> String {
        if !self.is_open {
            return String::new();
        }
        self.is_open = false;
        let index = self.blocks.len() - 1;
        let arguments = std::mem::take(&mut self.arguments);
        let block = &mut self.blocks[index];
        if block["type"] == "tool_use" {
            block["input"] = json::value(&arguments).unwrap_or_else(|_| json!({}));
        }
        let event = json!({ "type": "content_block_stop", "index": index });
        named_event("content_block_stop", &event)
    }

    /// The blocks of a message.
    pub(super) fn content(self) -> Value {
        self.blocks.into()
    }

    /// A call, or a piece of its arguments.
    fn add_call(&mut self, call: &Value) -> String {
        let mut events = String::new();
        if let Some(name) = call["function"]["name"].as_str() {
            events += &self.close();
            let block = json!({ "type": "tool_use", "id": call["id"], "name": name, "input": {} });
            events += &self.begin(block);
        }
        let arguments = call["function"]["arguments"].as_str().unwrap_or_default();
        if !arguments.is_empty() {
            self.arguments += arguments;
            let delta = json!({ "type": "input_json_delta", "partial_json": arguments });
            events += &self.event(&delta);
        }
        events
    }

    /// Continues an open block of this type, or begins a new one.
    fn open(&mut self, kind: &str, block: impl FnOnce() -> Value) -> String {
        if self.is_open && self.blocks.last().is_some_and(|last| last["type"] == kind) {
            return String::new();
        }
        self.close() + &self.begin(block())
    }

    fn begin(&mut self, block: Value) -> String {
        self.is_open = true;
        let index = self.blocks.len();
        let event =
            json!({ "type": "content_block_start", "index": index, "content_block": block });
        self.blocks.push(block);
        named_event("content_block_start", &event)
    }

    fn append(&mut self, name: &str, text: &str) {
        if let Some(Value::String(whole)) =
            self.blocks.last_mut().and_then(|block| block.get_mut(name))
        {
            whole.push_str(text);
        }
    }

    fn event(&self, delta: &Value) -> String {
        let index = self.blocks.len().saturating_sub(1);
        let event = json!({ "type": "content_block_delta", "index": index, "delta": delta });
        named_event("content_block_delta", &event)
    }
}
