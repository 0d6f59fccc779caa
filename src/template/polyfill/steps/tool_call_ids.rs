//! Replaces ids of calls by nine letters or digits, for templates that refuse other ids.
//!
//! Calls and results still match. The same id becomes the same nine characters in every request. An
//! id that already has nine letters or digits is kept.

use std::collections::{HashMap, HashSet, VecDeque};

use sha2::{Digest, Sha256};

use super::super::conversation::{PolyfillContext, PolyfillConversation, diagnostic};
use super::super::node::{Node, NodeMembers};
use super::super::step::PolyfillStep;
use crate::error::Result;

const LENGTH: usize = 9;
const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

pub(super) const TOOL_CALL_IDS: PolyfillStep = PolyfillStep {
    name: "tool_call_ids",
    applies: |context| context.options.tool_call_ids && context.details.nine_character_ids,
    needs: |message, _| message.role == "tool" || message.calls.is_some(),
    run,
};

fn run(conversation: &mut PolyfillConversation, _: &PolyfillContext) -> Result<bool> {
    let mut ids = IdMap::default();
    for message in &conversation.messages {
        let calls =
            message.calls().iter().filter_map(Node::as_map).filter_map(|call| call.str("id"));
        let sent = calls.chain(message.members.str("tool_call_id"));
        ids.taken.extend(sent.filter(|id| is_nine_characters(id)).map(str::to_owned));
    }
    let mut unanswered = VecDeque::new();
    let mut changed = false;
    let mut number = 0;
    for message in &mut conversation.messages {
        for call in message.calls_mut().iter_mut().filter_map(Node::as_map_mut) {
            number += 1;
            let (id, new) = ids.assign(call.str("id"), || format!("call {number}"));
            changed |= new;
            if new {
                set_id(call, &id);
            }
            unanswered.push_back(id);
        }
        if !message.has_role("tool") {
            continue;
        }
        let sent = message.members.str("tool_call_id").map(str::to_owned);
        let (id, new) = match (&sent, unanswered.front()) {
            (None, Some(first)) => (first.clone(), true),
            _ => ids.assign(sent.as_deref(), || format!("result {number}")),
        };
        changed |= new;
        unanswered.retain(|waiting| *waiting != id);
        if new {
            message.members.set("tool_call_id", Node::literal(&id));
        }
        if let Some(sent) = sent.filter(|_| new) {
            let text = format!("the tool call id {sent:?} was sent as {id:?}");
            conversation.diagnostics.push(diagnostic("tool_call_id_renamed", text, message.index));
        }
    }
    Ok(changed)
}

fn set_id(call: &mut NodeMembers, id: &str) {
    let next = if call.get("type").is_some() { "type" } else { "function" };
    call.set_before(next, "id", Node::literal(id));
}

fn is_nine_characters(id: &str) -> bool {
    id.len() == LENGTH && id.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

#[derive(Default)]
struct IdMap {
    taken: HashSet<String>,
    assigned: HashMap<String, String>,
}

impl IdMap {
    /// The nine-character id for an id of the request or for a missing id, and whether they differ.
    fn assign(&mut self, sent: Option<&str>, seed: impl FnOnce() -> String) -> (String, bool) {
        let Some(sent) = sent else { return (self.fresh(&seed()), true) };
        if is_nine_characters(sent) {
            return (sent.to_owned(), false);
        }
        if let Some(id) = self.assigned.get(sent) {
            return (id.clone(), true);
        }
        let id = self.fresh(sent);
        self.assigned.insert(sent.to_owned(), id.clone());
        (id, true)
    }

    fn fresh(&mut self, seed: &str) -> String {
        let mut attempt = 0_u32;
        loop {
            let id = hash(seed, attempt);
            if self.taken.insert(id.clone()) {
                return id;
            }
            attempt += 1;
        }
    }
}

fn hash(seed: &str, attempt: u32) -> String {
    let digest = Sha256::new().chain_update(seed).chain_update(attempt.to_le_bytes()).finalize();
    let mut number =
        digest.iter().take(16).fold(0_u128, |number, byte| number << 8 | u128::from(*byte));
    let mut id = String::with_capacity(LENGTH);
    for _ in 0..LENGTH {
        id.push(char::from(DIGITS[(number % 62) as usize]));
        number /= 62;
    }
    id
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::template::polyfill::tests::case::{PolyfillCase, call, traits};
    use serde_json::json;

    #[test]
    fn cases() {
        let mut nine = traits();
        nine.details.nine_character_ids = true;
        let said = |id: &str| json!({"role": "assistant", "content": "A", "tool_calls": [call(id, "f", json!({}))]});
        let result = |id: &str| json!({"role": "tool", "tool_call_id": id, "content": "R"});
        let (long, good) = (hash("call_long", 0), "abcdefGH9");
        let sent = json!([said("call_long"), result("call_long"), said(good), result(good)]);
        PolyfillCase::new(nine.clone(), sent.clone()).notes(&[("tool_call_id_renamed", 1)]).check(
            json!([said(&long), result(&long), said(good), result(good)]),
            &["tool_call_ids"],
        );
        PolyfillCase::new(nine.clone(), sent.clone())
            .with(|options| options.tool_call_ids = false)
            .unchanged();
        PolyfillCase::new(traits(), sent).unchanged();

        let bare = json!([
            {"role": "assistant", "content": "A", "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": {}}}]},
            {"role": "tool", "content": "R"},
        ]);
        let made = hash("call 1", 0);
        PolyfillCase::new(nine.clone(), bare).check(
            json!([said(&made), {"role": "tool", "content": "R", "tool_call_id": made}]),
            &["tool_call_ids"],
        );

        let taken = hash("x", 0);
        let other = hash("x", 1);
        PolyfillCase::new(nine, json!([said(&taken), said("x"), result("x")]))
            .part()
            .notes(&[("tool_call_id_renamed", 2)])
            .check(json!([said(&taken), said(&other), result(&other)]), &["tool_call_ids"]);
        assert!(is_nine_characters(&long));
    }
}
