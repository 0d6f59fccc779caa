//! Stores responses that later requests may continue by `previous_response_id`. It keeps the newest
//! ones within a memory limit, as text, and writes nothing to disk.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;

use crate::serve::json_weight::JsonWeight;
use crate::serve::pictures;

const MAX_RESPONSES: usize = 1000;
/// The limit in bytes of JSON.
const MAX_BYTES: usize = 32 << 20;

/// The JSON of a conversation: an array of messages.
#[derive(Default)]
pub(super) struct Conversation(String);

impl Conversation {
    pub(super) fn new(messages: &[Value]) -> Conversation {
        let mut messages = Value::from(messages);
        pictures::forget_paths(&mut messages);
        Conversation(messages.to_string())
    }

    /// The conversation with one more message.
    pub(super) fn with(self, message: &Value) -> Conversation {
        let start = self.0.strip_suffix(']').unwrap_or("[");
        let comma = if start == "[" { "" } else { "," };
        Conversation(format!("{start}{comma}{message}]"))
    }
}

pub(crate) struct StoredResponse {
    /// The JSON of the response as it was sent.
    pub(super) response: String,
    /// The conversation including the reply.
    conversation: Conversation,
    /// The bytes that its messages take when they are parsed and used.
    pub(super) memory: u64,
}

impl StoredResponse {
    /// The messages of the conversation.
    pub(super) fn messages(&self) -> Vec<Value> {
        match crate::json::value(&self.conversation.0) {
            Ok(Value::Array(messages)) => messages,
            _ => Vec::new(),
        }
    }
}

#[derive(Default)]
pub(crate) struct ResponseStore(Mutex<Entries>);

#[derive(Default)]
struct Entries {
    responses: HashMap<String, (Arc<StoredResponse>, usize)>,
    /// Ids in order of age, oldest first. A removed id stays until its turn comes.
    order: VecDeque<String>,
    bytes: usize,
}

impl ResponseStore {
    pub(super) fn get(&self, id: &str) -> Option<Arc<StoredResponse>> {
        self.entries().responses.get(id).map(|(stored, _)| Arc::clone(stored))
    }

    /// Keeps the JSON of a response.
    pub(super) fn put(&self, id: &str, response: String, conversation: Conversation) {
        let memory = JsonWeight::of(conversation.0.as_bytes()).memory();
        let bytes = response.len() + conversation.0.len();
        let stored = StoredResponse { response, conversation, memory };
        let mut entries = self.entries();
        entries.bytes += bytes;
        entries.order.push_back(id.to_owned());
        entries.responses.insert(id.to_owned(), (Arc::new(stored), bytes));
        while entries.bytes > MAX_BYTES || entries.order.len() > MAX_RESPONSES {
            let Some(oldest) = entries.order.pop_front() else { break };
            entries.remove(&oldest);
        }
    }

    pub(super) fn remove(&self, id: &str) -> bool {
        self.entries().remove(id)
    }

    fn entries(&self) -> std::sync::MutexGuard<'_, Entries> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entries {
    fn remove(&mut self, id: &str) -> bool {
        let removed = self.responses.remove(id);
        self.bytes -= removed.as_ref().map_or(0, |(_, bytes)| *bytes);
        removed.is_some()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_conversation_grows() {
        let store = ResponseStore::default();
        let messages = |conversation: Conversation| {
            store.put("1", "{}".to_owned(), conversation);
            store.get("1").unwrap().messages()
        };
        assert_eq!(messages(Conversation::new(&[]).with(&json!("a"))), [json!("a")]);
        let both = Conversation::new(&[json!({ "a": "]" })]).with(&json!({ "b": 1 }));
        assert_eq!(messages(both), [json!({ "a": "]" }), json!({ "b": 1 })]);
    }

    #[test]
    fn the_oldest_responses_are_dropped() {
        let store = ResponseStore::default();
        let put = |id: usize, text: &str| {
            store.put(&id.to_string(), "{}".to_owned(), Conversation::new(&[json!(text)]));
        };
        for id in 0..=MAX_RESPONSES {
            put(id, "");
        }
        assert!(store.get("0").is_none() && store.get("1").is_some());
        put(5000, &"x".repeat(MAX_BYTES / 2));
        put(5001, &"x".repeat(MAX_BYTES / 2));
        assert!(store.get("5000").is_none() && store.get("5001").is_some());
        assert!(store.remove("5001") && !store.remove("5001"));
        assert_eq!(store.entries().bytes, 0);
    }
}
