//! Ids of calls as nine letters or digits, for templates that refuse others. Calls and results keep
//! matching, the same id becomes the same nine characters in every request, and an id that complies
//! stays.

use std::collections::{HashMap, HashSet, VecDeque};

use sha2::{Digest, Sha256};

use super::conversation::{PolyfillContext, PolyfillConversation};
use super::node::{Node, NodeMembers};
use crate::error::Result;

const LENGTH: usize = 9;
const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

pub(super) fn wanted(context: &PolyfillContext) -> bool {
    context.options.tool_call_ids && context.details.nine_character_ids
}

pub(super) fn run(
    conversation: &mut PolyfillConversation,
    context: &PolyfillContext,
) -> Result<bool> {
    if !wanted(context) {
        return Ok(false);
    }
    let mut ids = Ids::default();
    for message in &conversation.messages {
        let calls =
            message.calls().iter().filter_map(Node::as_map).filter_map(|call| call.str("id"));
        let sent = calls.chain(message.members.str("tool_call_id"));
        ids.taken.extend(sent.filter(|id| complies(id)).map(str::to_owned));
    }
    let mut unanswered = VecDeque::new();
    let mut changed = false;
    let mut number = 0;
    for message in &mut conversation.messages {
        for call in message.calls_mut().iter_mut().filter_map(Node::as_map_mut) {
            number += 1;
            let (id, new) = ids.of(call.str("id"), || format!("call {number}"));
            changed |= new;
            if new {
                set_id(call, &id);
            }
            unanswered.push_back(id);
        }
        if !message.is("tool") {
            continue;
        }
        let sent = message.members.str("tool_call_id").map(str::to_owned);
        let (id, new) = match (&sent, unanswered.front()) {
            (None, Some(first)) => (first.clone(), true),
            _ => ids.of(sent.as_deref(), || format!("result {number}")),
        };
        changed |= new;
        unanswered.retain(|waiting| *waiting != id);
        if new {
            message.members.set("tool_call_id", Node::own(&id));
        }
        if let Some(sent) = sent.filter(|_| new) {
            let text = format!("the tool call id {sent:?} was sent as {id:?}");
            conversation.diagnostics.push(super::conversation::diagnostic(
                "tool_call_id_renamed",
                text,
                message.index,
            ));
        }
    }
    conversation.id_map = ids.renamed;
    Ok(changed)
}

fn set_id(call: &mut NodeMembers, id: &str) {
    let next = if call.get("type").is_some() { "type" } else { "function" };
    call.set_before(next, "id", Node::own(id));
}

fn complies(id: &str) -> bool {
    id.len() == LENGTH && id.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

#[derive(Default)]
struct Ids {
    taken: HashSet<String>,
    known: HashMap<String, String>,
    renamed: Vec<(String, String)>,
}

impl Ids {
    /// The id to send for one that was sent to us, or for one that is missing; and whether it is
    /// another.
    fn of(&mut self, sent: Option<&str>, seed: impl FnOnce() -> String) -> (String, bool) {
        let Some(sent) = sent else { return (self.fresh(&seed()), true) };
        if complies(sent) {
            return (sent.to_owned(), false);
        }
        if let Some(known) = self.known.get(sent) {
            return (known.clone(), true);
        }
        let id = self.fresh(sent);
        self.known.insert(sent.to_owned(), id.clone());
        self.renamed.push((sent.to_owned(), id.clone()));
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
    use super::super::tests::case::{PolyfillCase, call, traits};
    use super::*;
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
            .notes(&[("tool_call_id_renamed", 2)])
            .check(json!([said(&taken), said(&other), result(&other)]), &["tool_call_ids"]);
        assert!(complies(&long));
    }
}
