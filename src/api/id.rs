//! Random ids, formatted like OpenAI's.

use std::hash::{BuildHasher, RandomState};

use serde_json::Value;

use super::fields::member;

const LETTERS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// A new id: `call_` and 24 alphanumeric characters.
fn new_call_id() -> String {
    format!("call_{}", random_alphanumerics(24))
}

/// Returns a generator of call ids. With a length, each id is that many alphanumeric characters,
/// for templates that accept no other ids.
pub fn call_ids(length: Option<usize>) -> Box<dyn FnMut() -> String + Send> {
    match length {
        Some(length) => Box::new(move || random_alphanumerics(length)),
        None => Box::new(new_call_id),
    }
}

/// The ids of all calls in messages.
pub fn used_call_ids(messages: &[Value]) -> impl Iterator<Item = String> + '_ {
    let calls = messages
        .iter()
        .filter_map(|message| member(message.as_object()?, "tool_calls")?.as_array());
    calls.flatten().filter_map(|call| call["id"].as_str()).map(str::to_owned)
}

/// A new id: `chatcmpl-` and 24 alphanumeric characters.
pub fn new_completion_id() -> String {
    format!("chatcmpl-{}", random_alphanumerics(24))
}

/// Random characters. They are unique but not secret: the standard library seeds its hash maps from
/// the system's random source.
fn random_alphanumerics(n: usize) -> String {
    let mut text = String::with_capacity(n);
    let mut bits = 0u64;
    for index in 0..n {
        // Ten characters use 60 of the 64 bits.
        if index % 10 == 0 {
            bits = RandomState::new().hash_one(index);
        }
        text.push(char::from(LETTERS[(bits % 62) as usize]));
        bits /= 62;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_have_their_shape_and_differ() {
        let (a, b) = (new_call_id(), new_call_id());
        assert_ne!(a, b);
        assert_eq!(a.len(), 29);
        assert_eq!((call_ids(Some(9))().len(), call_ids(None)().len()), (9, 29));
        assert!(
            a.strip_prefix("call_").is_some_and(|id| id.chars().all(|c| c.is_ascii_alphanumeric()))
        );
    }
}
