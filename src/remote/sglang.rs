//! SGLang's `/generate`: a prompt of token ids in, events with the token ids of the reply out.
//!
//! Follows `GenerateReqInput`, `SamplingParams` and `TokenizerManager` of SGLang 0.5.23
//! (srt/managers/io_struct.py, srt/sampling/sampling_params.py, srt/managers/tokenizer_manager.py).
//! Other than vLLM's, an event has all tokens so far, unless the server was started with
//! `--incremental-streaming-output`, and a failed request is a reply whose end is an "abort".

use serde_json::{Value, json};

use super::body::{self, CompletionRequest, TokenExchange};
use super::event::{
    CompletionEvent, EndReason, EventData, IdLogprob, MAX_REASON, SampledIds, TokenCounts, clamped,
    number,
};
use super::server_constraint::ServerConstraint;
use crate::net::one_line;

/// The path at the server's root.
pub(super) const PATH: &str = "/generate";
/// The number that lets all tokens be sampled.
const ALL: i64 = -1;

/// Returns the body of a `POST /generate`, and the members of the request that SGLang does not
/// support.
pub(super) fn generate(
    ask: &CompletionRequest,
    exchange: &TokenExchange,
) -> (Value, Vec<&'static str>) {
    let mut parameters = json!({
        "max_new_tokens": ask.max_tokens, "skip_special_tokens": false, "no_stop_trim": true,
    });
    if !exchange.end_tokens.is_empty() {
        parameters["stop_token_ids"] = json!(exchange.end_tokens);
    }
    let unsupported = body::add_shared_sampling(&mut parameters, ask);
    if let Some(parameters) = parameters.as_object_mut() {
        if let Some(seed) = parameters.remove("seed") {
            parameters.insert("sampling_seed".into(), seed);
        }
        if ask.sampling.top_k <= 0 {
            parameters.insert("top_k".into(), ALL.into());
        }
    }
    if let Some(constraint) = &ask.constraint {
        let (name, value) = parameter(constraint);
        parameters[name] = value;
    }
    let mut body = json!({
        "input_ids": exchange.prompt, "sampling_params": parameters, "stream": true,
    });
    if let Some(n_top) = ask.logprobs {
        body["return_logprob"] = true.into();
        body["top_logprobs_num"] = n_top.into();
    }
    if let Some(salt) = &exchange.options.cache_salt {
        body["extra_key"] = salt.as_str().into();
    }
    if exchange.options.priority != 0 {
        body["priority"] = exchange.options.priority.into();
    }
    (body, unsupported)
}

/// The body of a request of one token that must match a constraint.
pub(super) fn probe(constraint: &ServerConstraint) -> Value {
    let (name, value) = parameter(constraint);
    json!({ "text": "a", "sampling_params": { "max_new_tokens": 1, name: value }, "stream": true })
}

/// The sampling parameter of a constraint. All are text.
fn parameter(constraint: &ServerConstraint) -> (&'static str, Value) {
    match constraint {
        ServerConstraint::Lark(grammar) | ServerConstraint::Ebnf(grammar) => {
            ("ebnf", grammar.as_str().into())
        }
        ServerConstraint::Tag(format) => {
            let tag = json!({ "type": "structural_tag", "format": format });
            ("structural_tag", tag.to_string().into())
        }
        ServerConstraint::Json(schema) => ("json_schema", schema.to_string().into()),
    }
}

/// Parses an event. `received` is the number of tokens in the events before, and is increased.
pub(super) fn event(json: &Value, n_top: usize, received: &mut usize) -> Result<EventData, String> {
    let meta = &json["meta_info"];
    let reason = &meta["finish_reason"];
    let ended = match reason["type"].as_str() {
        None if reason.is_null() => None,
        None => return Err("sent an event whose `finish_reason` has no `type`".into()),
        Some("stop") => Some(EndReason::Stop),
        Some("length") => Some(EndReason::Length),
        Some("abort") => return Ok(EventData::Error(reason.clone())),
        Some(other) => return Ok(EventData::Ended(one_line(other, MAX_REASON))),
    };
    let ids = json["output_ids"].as_array().map(Vec::as_slice);
    let ids = ids.ok_or("sent an event without `output_ids`")?;
    let new = ids.get(already(ids.len(), meta, *received)..);
    let new = new.ok_or("sent an event with fewer tokens than the one before")?;
    let tokens: Option<Vec<i64>> = new.iter().map(Value::as_i64).collect();
    let tokens = tokens.ok_or("sent an event whose `output_ids` are not whole numbers")?;
    *received = received.saturating_add(tokens.len());
    let counts = number(&meta["prompt_tokens"]).zip(number(&meta["completion_tokens"]));
    Ok(EventData::Event(CompletionEvent {
        id_logprobs: id_logprobs(meta, n_top, tokens.len()),
        tokens: Some(tokens),
        ended,
        counts: counts.map(|(prompt, completion)| TokenCounts {
            prompt,
            completion,
            cached: number(&meta["cached_tokens"]).map(|cached| cached.min(prompt)),
        }),
        ..CompletionEvent::default()
    }))
}

/// How many tokens of an event were in the events before: all of those, or none if the server sends
/// each token once. The number of tokens so far decides.
fn already(count: usize, meta: &Value, received: usize) -> usize {
    let Some(so_far) = number(&meta["completion_tokens"]) else { return received };
    let of_all = so_far.abs_diff(count);
    let of_new = so_far.abs_diff(received.saturating_add(count));
    if of_all <= of_new { received } else { 0 }
}

/// The log probabilities of the last tokens: arrays of a logarithm, an id and a text.
fn id_logprobs(meta: &Value, n_top: usize, count: usize) -> Vec<SampledIds> {
    let one =
        |entry: &Value| Some(IdLogprob { token: entry[1].as_i64()?, logprob: clamped(&entry[0]) });
    let sampled = meta["output_token_logprobs"].as_array().map(Vec::as_slice).unwrap_or_default();
    let first = sampled.len().saturating_sub(count);
    let each = sampled.iter().enumerate().skip(first).filter_map(|(index, entry)| {
        let top = meta["output_top_logprobs"][index].as_array().into_iter().flatten();
        let mut top: Vec<IdLogprob> = top.filter_map(one).collect();
        top.sort_by(|a, b| b.logprob.total_cmp(&a.logprob).then(a.token.cmp(&b.token)));
        top.truncate(n_top);
        Some(SampledIds { sampled: one(entry)?, top })
    });
    each.collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    /// The tokens of each event.
    #[track_caller]
    fn check(events: &[(&[i64], u64)], expected: &[&[i64]]) {
        let mut received = 0;
        let tokens: Vec<Vec<i64>> = events
            .iter()
            .map(|(ids, so_far)| {
                let meta = json!({ "finish_reason": null, "prompt_tokens": 3,
                    "completion_tokens": so_far, "cached_tokens": 2 });
                let json = json!({ "text": "x", "output_ids": ids, "meta_info": meta });
                match event(&json, 0, &mut received) {
                    Ok(EventData::Event(event)) => event.tokens.unwrap(),
                    other => panic!("{other:?}"),
                }
            })
            .collect();
        assert_eq!(tokens, expected);
    }

    #[test]
    fn each_token_is_taken_once() {
        check(&[(&[7], 1), (&[7, 8], 2), (&[7, 8, 9, 9], 4)], &[&[7], &[8], &[9, 9]]);
        check(&[(&[7], 1), (&[8], 2), (&[9, 9], 4)], &[&[7], &[8], &[9, 9]]);
        // The token that ends a reply may be counted without being sent.
        check(&[(&[7, 8], 2), (&[7, 8], 3)], &[&[7, 8], &[]]);
        check(&[(&[7, 8], 2), (&[], 3)], &[&[7, 8], &[]]);
    }

    #[test]
    fn log_probabilities_belong_to_the_new_tokens() {
        let meta = json!({ "finish_reason": { "type": "length", "length": 2 }, "prompt_tokens": 3,
            "completion_tokens": 2, "output_token_logprobs": [[-1.0, 7, null], [-2.0, 8, null]],
            "output_top_logprobs": [[[-1.0, 7, null]], [[-2.0, 8, null], [-0.5, 9, null]]] });
        let json = json!({ "output_ids": [7, 8], "meta_info": meta });
        let Ok(EventData::Event(event)) = event(&json, 1, &mut 1) else { panic!() };
        let id = |token, logprob| IdLogprob { token, logprob };
        let expected = [SampledIds { sampled: id(8, -2.0), top: vec![id(9, -0.5)] }];
        assert_eq!(event.id_logprobs, expected);
        assert_eq!((event.ended, event.tokens), (Some(EndReason::Length), Some(vec![8])));
        let counts = TokenCounts { prompt: 3, completion: 2, cached: None };
        assert_eq!(event.counts, Some(counts));
    }

    #[test]
    fn a_fault_is_described() {
        let of = |json: Value| event(&json, 0, &mut 2);
        let abort = json!({ "type": "abort", "message": "no", "status_code": 400 });
        let aborted = json!({ "output_ids": [], "meta_info": { "finish_reason": abort } });
        assert_eq!(of(aborted), Ok(EventData::Error(abort)));
        for (json, problem) in [
            (json!({ "meta_info": {} }), "without `output_ids`"),
            (json!({ "meta_info": { "finish_reason": 1 } }), "has no `type`"),
            (json!({ "output_ids": ["a", 1, "b"], "meta_info": {} }), "not whole numbers"),
            (json!({ "output_ids": [1], "meta_info": {} }), "fewer tokens"),
        ] {
            let error = of(json).expect_err(problem);
            assert!(error.contains(problem), "{error}");
        }
    }
}
