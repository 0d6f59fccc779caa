//! Stores responses that later requests may continue by `previous_response_id`. It keeps the newest
//! ones within a memory limit and writes nothing to disk.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;

const MAX_RESPONSES: usize = 1000;
/// The limit in bytes of JSON. In memory, responses take a few times as much.
const MAX_BYTES: usize = 32 << 20;

#[derive(Clone)]
pub(crate) struct StoredResponse {
    /// The response as it was sent.
    pub(crate) response: Value,
    /// The conversation including the reply.
    pub(crate) messages: Vec<Value>,
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
    pub(crate) fn get(&self, id: &str) -> Option<StoredResponse> {
        let stored = self.entries().responses.get(id).map(|(stored, _)| Arc::clone(stored))?;
        Some((*stored).clone())
    }

    pub(crate) fn put(&self, response: &Value, messages: Vec<Value>) {
        let Some(id) = response["id"].as_str() else { return };
        let bytes = response.to_string().len()
            + messages.iter().map(|message| message.to_string().len()).sum::<usize>();
        let stored = StoredResponse { response: response.clone(), messages };
        let mut entries = self.entries();
        entries.bytes += bytes;
        entries.order.push_back(id.to_owned());
        entries.responses.insert(id.to_owned(), (Arc::new(stored), bytes));
        while entries.bytes > MAX_BYTES || entries.order.len() > MAX_RESPONSES {
            let Some(oldest) = entries.order.pop_front() else { break };
            entries.remove(&oldest);
        }
    }

    pub(crate) fn remove(&self, id: &str) -> bool {
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
    fn the_oldest_responses_are_dropped() {
        let store = ResponseStore::default();
        let put = |id: usize, text: &str| {
            store.put(&json!({ "id": id.to_string() }), vec![json!(text)]);
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
