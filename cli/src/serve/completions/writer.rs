//! Replies of `/v1/completions`.

use std::collections::HashMap;

use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::request::Echo;
use crate::abi;
use crate::json;
use crate::raw_json::RawValues;
use crate::serve::chat_completions::finish_reason;
use crate::serve::choices::together;
use crate::serve::event_stream::{EventWriter, event_text};
use crate::serve::generation::Generated;
use crate::serve::left_out::LeftOut;
use crate::serve::llama_members::timings;
use crate::serve::stamp::{id, now};

pub(super) struct TextWriter {
    /// The members that all objects of a reply share.
    head: Value,
    has_usage: bool,
    echo: Echo,
    left_out: LeftOut,
    /// The characters of each choice so far.
    offsets: HashMap<usize, usize>,
}

impl TextWriter {
    pub(super) fn new(model: &str, has_usage: bool, echo: Echo, left_out: LeftOut) -> TextWriter {
        let head = json!({
            "id": id("cmpl-"), "object": "text_completion", "created": now(), "model": model,
            "system_fingerprint": abi::version(),
        });
        TextWriter { head, has_usage, echo, left_out, offsets: HashMap::new() }
    }

    /// A reply that is not streamed.
    pub(super) fn completion(self, replies: &[Generated], n: usize) -> Vec<Bytes> {
        let mut raws = RawValues::new(&id("raw-"));
        let choices = replies.iter().enumerate().map(|(index, reply)| {
            let before = self.echo.of(index);
            let text = reply.value["text"].as_str().unwrap_or_default();
            let mut offset = before.chars().count();
            // As text they take a part of the memory.
            let logprobs = reply
                .logprobs
                .as_ref()
                .map(|entries| raws.add(logprob_lists(entries, &mut offset).to_string().into()));
            json!({
                "text": format!("{before}{text}"), "index": index, "logprobs": logprobs,
                "finish_reason": finish_reason(&reply.value["finish_reason"]),
            })
        });
        let mut completion = self.head.clone();
        let choices: Value = choices.collect();
        completion["choices"] = choices;
        let all = together(replies.iter(), n);
        completion["usage"] = all["usage"].clone();
        if let Some(first) = replies.first() {
            completion["timings"] = timings(&first.value);
        }
        self.left_out.add_diagnostics(&all, "diagnostics", &mut completion);
        raws.parts(&completion)
    }

    /// An event with one choice.
    fn event(&self, text: &str, index: usize, logprobs: &Value, reason: &Value) -> Value {
        let mut event = self.head.clone();
        event["choices"] = json!([{
            "text": text, "index": index, "logprobs": logprobs, "finish_reason": reason,
        }]);
        event
    }
}

impl EventWriter for TextWriter {
    fn chunk(&mut self, chunk: &Generated) -> String {
        let choice = &chunk.value["choices"][0];
        let index = choice["index"].as_u64().unwrap_or_default() as usize;
        let mut events = String::new();
        let mut offset = self.offsets.get(&index).copied().unwrap_or_else(|| {
            let before = self.echo.of(index);
            if !before.is_empty() {
                events =
                    event_text(&self.event(before, index, &Value::Null, &Value::Null).to_string());
            }
            before.chars().count()
        });
        let text = choice["delta"]["content"].as_str().unwrap_or_default();
        let entries = chunk.logprobs.as_ref();
        let lists = entries.map_or(Value::Null, |entries| logprob_lists(entries, &mut offset));
        self.offsets.insert(index, offset);
        let reason = finish_reason(&choice["finish_reason"]);
        if text.is_empty() && lists.is_null() && reason.is_null() {
            return events;
        }
        let mut event = self.event(text, index, &lists, &reason);
        if !reason.is_null() {
            self.left_out.add_diagnostics(&chunk.value, "diagnostics", &mut event);
        }
        events + &event_text(&event.to_string())
    }

    fn end(&mut self, reply: &Value) -> String {
        let mut events = String::new();
        if self.has_usage {
            let mut event = self.head.clone();
            event["choices"] = json!([]);
            event["usage"] = reply["usage"].clone();
            if reply["timings"].is_object() {
                event["timings"] = timings(reply);
            }
            events = event_text(&event.to_string());
        }
        events + "data: [DONE]\n\n"
    }

    fn whole(self, reply: &Generated) -> Vec<Bytes> {
        self.completion(std::slice::from_ref(reply), 1)
    }
}

/// Log probabilities as OpenAI's older API has them: parallel lists, with the place of each token in
/// the text, for the entries of the library. `offset` is the number of characters of the text so
/// far, which grows.
fn logprob_lists(logprobs: &Bytes, offset: &mut usize) -> Value {
    let entries = json::value(logprobs).unwrap_or_default();
    let (mut tokens, mut values) = (Vec::new(), Vec::new());
    let (mut tops, mut offsets) = (Vec::new(), Vec::new());
    for entry in entries["content"].as_array().into_iter().flatten() {
        let token = entry["token"].as_str().unwrap_or_default();
        offsets.push(*offset);
        *offset += token.chars().count();
        tokens.push(token.to_owned());
        values.push(entry["logprob"].clone());
        let alternatives = entry["top_logprobs"].as_array().into_iter().flatten();
        let top = alternatives
            .filter_map(|each| Some((each["token"].as_str()?.to_owned(), each["logprob"].clone())));
        tops.push(Value::Object(top.collect::<Map<_, _>>()));
    }
    json!({
        "tokens": tokens, "token_logprobs": values, "top_logprobs": tops, "text_offset": offsets,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_have_places() {
        let entries = json!({ "content": [
            { "token": "né", "logprob": -0.5, "top_logprobs": [{ "token": "né", "logprob": -0.5 }] },
            { "token": "e", "logprob": -1, "top_logprobs": [] },
        ] });
        let mut offset = 3;
        let lists = logprob_lists(&Bytes::from(entries.to_string()), &mut offset);
        let expected = json!({
            "tokens": ["né", "e"], "token_logprobs": [-0.5, -1],
            "top_logprobs": [{ "né": -0.5 }, {}], "text_offset": [3, 5],
        });
        assert_eq!((lists, offset), (expected, 6));
    }
}
