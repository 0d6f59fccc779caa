//! Parses one event of a completion stream. The server's JSON is not trusted.

use serde_json::Value;

use crate::api::logprobs::{SampledToken, TokenLogprob};
use crate::json;
use crate::net::one_line;

/// The maximum number of characters of an unknown `finish_reason` that a message quotes.
pub(super) const MAX_REASON: usize = 64;
/// More bytes than any token has. A server that sends more per requested token is faulty.
pub(super) const MAX_TOKEN_BYTES: usize = 1024;

/// Why a reply ended, according to the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndReason {
    /// The model ended it, or a stop string occurred.
    Stop,
    /// The token limit was reached or the context is full.
    Length,
}

/// The token counts that the server reports.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TokenCounts {
    /// Tokens of the prompt.
    pub prompt: usize,
    /// Generated tokens, including the end-of-generation token.
    pub completion: usize,
    /// The cached tokens of the prompt; `None` if the server does not report them.
    pub cached: Option<usize>,
}

/// The log probability of a token that the server names by its id.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct IdLogprob {
    /// The token.
    pub token: i64,
    /// Natural logarithm, at least -9999.
    pub logprob: f64,
}

/// The log probabilities of a sampled token and of the likeliest ones, by their ids.
#[derive(Debug, Clone, PartialEq)]
pub struct SampledIds {
    /// The token of the reply.
    pub sampled: IdLogprob,
    /// The likeliest first; among equals, the one with the smaller id.
    pub top: Vec<IdLogprob>,
}

/// A part of a reply.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CompletionEvent {
    /// The text as generated.
    pub text: String,
    /// The generated tokens, if the server sends them.
    pub tokens: Option<Vec<i64>>,
    /// Log probabilities of `tokens`, if requested.
    pub id_logprobs: Vec<SampledIds>,
    /// Log probabilities of its tokens, if requested.
    pub logprobs: Vec<SampledToken>,
    /// Set with the last text or after it.
    pub ended: Option<EndReason>,
    /// The stop string that ended the reply, if the server names it (vLLM does).
    pub stop_string: Option<String>,
    /// Set at the end, if the server counts tokens.
    pub counts: Option<TokenCounts>,
    /// Milliseconds of prefill and decode, if the server reports them (llama.cpp's does).
    pub times: Option<(f64, f64)>,
}

#[derive(Debug, PartialEq)]
pub(super) enum EventData {
    Event(CompletionEvent),
    /// `[DONE]`.
    Done,
    /// An error of the server.
    Error(Value),
    /// The reply ended for a reason other than [`EndReason`], as the server spells it.
    Ended(String),
}

/// Parses the data of an event, whose object `read` reads. The error says what is invalid.
pub(super) fn parse(
    data: &[u8],
    read: impl FnOnce(&Value) -> Result<EventData, String>,
) -> Result<EventData, String> {
    if data.trim_ascii() == b"[DONE]" {
        return Ok(EventData::Done);
    }
    let json: Value =
        json::value(data).map_err(|error| format!("sent an event that is not JSON: {error}"))?;
    if !json.is_object() {
        return Err("sent an event that is not a JSON object".into());
    }
    match json.get("error").filter(|error| !error.is_null()) {
        Some(error) => Ok(EventData::Error(error.clone())),
        None => read(&json),
    }
}

/// Reads an event of `/completions` or of vLLM's `/inference/v1/generate`.
pub(super) fn completion(json: &Value, n_top: usize) -> Result<EventData, String> {
    let mut event = CompletionEvent {
        counts: counts(&json["usage"]).or_else(|| counts_of_timings(&json["timings"])),
        times: times(&json["timings"]),
        ..CompletionEvent::default()
    };
    let choice = match &json["choices"] {
        Value::Array(choices) => choices.first(),
        Value::Null => None,
        _ => return Err("sent an event whose `choices` is not an array".into()),
    };
    let Some(choice) = choice else { return Ok(EventData::Event(event)) };
    event.text = match &choice["text"] {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        _ => return Err("sent an event whose `text` is not a string".into()),
    };
    event.ended = match &choice["finish_reason"] {
        Value::Null => None,
        Value::String(reason) if reason == "stop" => Some(EndReason::Stop),
        Value::String(reason) if reason == "length" => Some(EndReason::Length),
        Value::String(reason) => return Ok(EventData::Ended(one_line(reason, MAX_REASON))),
        _ => return Err("sent an event whose `finish_reason` is not a string".into()),
    };
    event.stop_string = choice["stop_reason"].as_str().map(str::to_owned);
    event.tokens = match &choice["token_ids"] {
        Value::Null => None,
        Value::Array(tokens) => {
            let tokens: Option<Vec<i64>> = tokens.iter().map(Value::as_i64).collect();
            Some(tokens.ok_or("sent an event whose `token_ids` are not whole numbers")?)
        }
        _ => return Err("sent an event whose `token_ids` is not an array".into()),
    };
    if event.tokens.is_some() {
        event.id_logprobs = id_logprobs(&choice["logprobs"], n_top);
    } else {
        event.logprobs = logprobs(&choice["logprobs"], n_top);
    }
    Ok(EventData::Event(event))
}

/// A count of tokens. Limited to 32 bits, so that sums do not overflow.
pub(super) fn number(value: &Value) -> Option<usize> {
    value.as_u64().and_then(|number| u32::try_from(number).ok()).map(|number| number as usize)
}

/// The counts of llama.cpp's server with `timings_per_token`, which each event has: those of the
/// prompt without and with the cached tokens, and those generated so far.
fn counts_of_timings(timings: &Value) -> Option<TokenCounts> {
    let cached = number(&timings["cache_n"])?;
    let prompt = number(&timings["prompt_n"])?.saturating_add(cached);
    let completion = number(&timings["predicted_n"])?;
    Some(TokenCounts { prompt, completion, cached: Some(cached) })
}

fn counts(usage: &Value) -> Option<TokenCounts> {
    let prompt = number(&usage["prompt_tokens"])?;
    let completion = number(&usage["completion_tokens"])?;
    let cached = number(&usage["prompt_tokens_details"]["cached_tokens"]);
    Some(TokenCounts { prompt, completion, cached: cached.map(|cached| cached.min(prompt)) })
}

fn times(timings: &Value) -> Option<(f64, f64)> {
    let time = |name: &str| timings[name].as_f64().filter(|ms| ms.is_finite() && *ms >= 0.0);
    Some((time("prompt_ms")?, time("predicted_ms")?))
}

/// Parses both shapes: the one of chat completions, which llama.cpp's server sends, and the one of
/// completions.
fn logprobs(json: &Value, n_top: usize) -> Vec<SampledToken> {
    if let Some(content) = json["content"].as_array() {
        let token = |entry: &Value| {
            let bytes = entry["bytes"]
                .as_array()
                .map(|bytes| bytes.iter().filter_map(|byte| u8::try_from(byte.as_u64()?).ok()));
            let bytes = bytes.map_or_else(
                || beginning(entry["token"].as_str().unwrap_or_default()),
                |bytes| bytes.take(MAX_TOKEN_BYTES).collect(),
            );
            TokenLogprob { bytes, logprob: clamped(&entry["logprob"]) }
        };
        let top = |entry: &Value| {
            entry["top_logprobs"].as_array().into_iter().flatten().take(n_top).map(token).collect()
        };
        return content
            .iter()
            .map(|entry| SampledToken { sampled: token(entry), top: top(entry) })
            .collect();
    }
    let from_text = |text: &str, logprob: &Value| TokenLogprob {
        bytes: beginning(text),
        logprob: clamped(logprob),
    };
    let texts = json["tokens"].as_array().into_iter().flatten().enumerate();
    let entry = |(index, text): (usize, &Value)| {
        let top = json["top_logprobs"][index].as_object().into_iter().flatten();
        let mut top: Vec<TokenLogprob> =
            top.map(|(text, logprob)| from_text(text, logprob)).collect();
        top.sort_by(|a, b| b.logprob.total_cmp(&a.logprob));
        top.truncate(n_top);
        SampledToken {
            sampled: from_text(text.as_str().unwrap_or_default(), &json["token_logprobs"][index]),
            top,
        }
    };
    texts.map(entry).collect()
}

/// Parses log probabilities whose tokens are ids. `/inference/v1/generate` sends `token_id`, or
/// `token_id:5` as the token; `/completions` sends the latter in its own shape.
fn id_logprobs(json: &Value, n_top: usize) -> Vec<SampledIds> {
    let named = |text: &str| text.strip_prefix("token_id:")?.parse::<i64>().ok();
    let entry = |entry: &Value| {
        let token = entry["token_id"].as_i64().or_else(|| named(entry["token"].as_str()?));
        Some(IdLogprob { token: token?, logprob: clamped(&entry["logprob"]) })
    };
    let sampled = |sampled: Option<IdLogprob>, mut top: Vec<IdLogprob>| {
        top.sort_by(|a, b| b.logprob.total_cmp(&a.logprob).then(a.token.cmp(&b.token)));
        top.truncate(n_top);
        Some(SampledIds { sampled: sampled?, top })
    };
    if let Some(content) = json["content"].as_array() {
        let top = |each: &Value| {
            let top = each["top_logprobs"].as_array().into_iter().flatten();
            top.filter_map(entry).collect()
        };
        return content.iter().filter_map(|each| sampled(entry(each), top(each))).collect();
    }
    let texts = json["tokens"].as_array().into_iter().flatten().enumerate();
    let of_text = |text: &str, logprob: &Value| {
        Some(IdLogprob { token: named(text)?, logprob: clamped(logprob) })
    };
    let each = |(index, text): (usize, &Value)| {
        let top = json["top_logprobs"][index].as_object().into_iter().flatten();
        let top = top.filter_map(|(text, logprob)| of_text(text, logprob)).collect();
        sampled(of_text(text.as_str()?, &json["token_logprobs"][index]), top)
    };
    texts.filter_map(each).collect()
}

/// The bytes of a token's text that are kept.
fn beginning(text: &str) -> Vec<u8> {
    text.bytes().take(MAX_TOKEN_BYTES).collect()
}

/// A log probability of at least -9999, as in the local engine.
pub(super) fn clamped(logprob: &Value) -> f64 {
    logprob.as_f64().unwrap_or(f64::NAN).max(-9999.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn event(json: Value) -> CompletionEvent {
        match completion(&json, 1) {
            Ok(EventData::Event(event)) => event,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn texts_of_log_probabilities_are_cut() {
        let (long, cut) = ("a".repeat(5000), vec![b'a'; MAX_TOKEN_BYTES]);
        let bytes = vec![97; 5000];
        for logprobs in [
            json!({"content": [{"token": long, "logprob": -1.0}]}),
            json!({"content": [{"token": "", "bytes": bytes, "logprob": -1.0}]}),
            json!({"tokens": [long], "token_logprobs": [-1.0]}),
        ] {
            let event = event(json!({"choices": [{"text": "a", "logprobs": logprobs}]}));
            assert_eq!(event.logprobs[0].sampled.bytes, cut);
        }
    }

    #[test]
    fn events_of_both_servers_are_parsed() {
        let text = event(
            json!({"choices": [{"text": "a", "index": 0, "logprobs": null, "finish_reason": null}]}),
        );
        assert_eq!(text, CompletionEvent { text: "a".into(), ..CompletionEvent::default() });
        let usage = json!({"completion_tokens": 4, "prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": 8}});
        let llama = event(json!({
            "choices": [{"text": "", "finish_reason": "length"}], "usage": usage,
            "timings": {"prompt_ms": 1.5, "predicted_ms": 2.5},
        }));
        assert_eq!(llama.counts, Some(TokenCounts { prompt: 9, completion: 4, cached: Some(8) }));
        assert_eq!((llama.ended, llama.times), (Some(EndReason::Length), Some((1.5, 2.5))));
        let vllm = event(
            json!({"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 2, "prompt_tokens_details": null}}),
        );
        assert_eq!(vllm.counts, Some(TokenCounts { prompt: 1, completion: 2, cached: None }));
        let choice = json!({"text": "", "finish_reason": "stop", "stop_reason": "END"});
        let stopped = event(json!({"choices": [choice]}));
        assert_eq!(stopped.ended, Some(EndReason::Stop));
        assert_eq!(stopped.stop_string.as_deref(), Some("END"));
        let token = event(json!({"choices": [{"finish_reason": "stop", "stop_reason": 2}]}));
        assert_eq!(token.stop_string, None);
        assert_eq!(
            parse(br#"{"choices": [{"text": "", "finish_reason": "abort"}]}"#, |json| completion(
                json, 1
            )),
            Ok(EventData::Ended("abort".into()))
        );
    }

    #[test]
    fn log_probabilities_of_both_shapes_are_parsed() {
        let token = |text: &str, logprob| TokenLogprob { bytes: text.into(), logprob };
        let chat = json!({"content": [{"token": "a", "bytes": [97], "logprob": -1.0, "top_logprobs": [
            {"token": "b", "bytes": [98], "logprob": -0.5}, {"token": "a", "bytes": [97], "logprob": -1.0}]}]});
        let old = json!({"tokens": ["a"], "token_logprobs": [-1.0], "top_logprobs": [{"a": -1.0, "b": -0.5}], "text_offset": [0]});
        for logprobs in [chat, old] {
            let event = event(json!({"choices": [{"text": "a", "logprobs": logprobs}]}));
            assert_eq!(
                event.logprobs,
                [SampledToken { sampled: token("a", -1.0), top: vec![token("b", -0.5)] }]
            );
        }
    }

    #[test]
    fn token_ids_of_both_routes_are_parsed() {
        let id = |token, logprob| IdLogprob { token, logprob };
        let expected = SampledIds { sampled: id(5, -1.0), top: vec![id(7, -0.5)] };
        let new = json!({"content": [{"token_id": 5, "logprob": -1.0, "rank": 2, "top_logprobs": [
            {"token_id": 5, "logprob": -1.0, "rank": 2}, {"token_id": 7, "logprob": -0.5, "rank": 1}]}]});
        let old = json!({"content": [{"token": "token_id:5", "logprob": -1.0, "top_logprobs": [
            {"token": "token_id:5", "logprob": -1.0}, {"token": "token_id:7", "logprob": -0.5}]}]});
        let completion = json!({"tokens": ["token_id:5"], "token_logprobs": [-1.0],
            "top_logprobs": [{"token_id:5": -1.0, "token_id:7": -0.5}], "text_offset": [0]});
        for logprobs in [new, old, completion] {
            let event = event(json!({"request_id": "r", "choices": [
                {"index": 0, "token_ids": [5], "logprobs": logprobs, "finish_reason": null}]}));
            assert_eq!(event.tokens, Some(vec![5]));
            assert_eq!(event.id_logprobs, std::slice::from_ref(&expected), "{logprobs}");
        }
        let timings = json!({"cache_n": 8, "prompt_n": 1, "predicted_n": 4, "prompt_ms": 1, "predicted_ms": 2});
        let counted = event(json!({"choices": [{"text": "a"}], "timings": timings})).counts;
        assert_eq!(counted, Some(TokenCounts { prompt: 9, completion: 4, cached: Some(8) }));
    }

    #[test]
    fn an_invalid_event_is_described() {
        assert_eq!(parse(b" [DONE]\n", |json| completion(json, 0)), Ok(EventData::Done));
        assert_eq!(
            parse(br#"{"error": {"message": "m"}}"#, |json| completion(json, 0)),
            Ok(EventData::Error(json!({"message": "m"})))
        );
        for (data, problem) in [
            ("x", "not JSON"),
            ("[]", "not a JSON object"),
            (r#"{"choices": {}}"#, "not an array"),
            (r#"{"choices": [{"text": 1}]}"#, "`text`"),
            (r#"{"choices": [{"finish_reason": []}]}"#, "`finish_reason`"),
            (r#"{"choices": [{"token_ids": 5}]}"#, "`token_ids` is not an array"),
            (r#"{"choices": [{"token_ids": [5, "6"]}]}"#, "not whole numbers"),
        ] {
            let error = parse(data.as_bytes(), |json| completion(json, 0)).expect_err(data);
            assert!(error.contains(problem), "{error}");
        }
        let odd = json!({"choices": [{"logprobs": {"tokens": [1], "token_logprobs": "x"}}], "usage": [], "timings": {"prompt_ms": -1}});
        let sampled = TokenLogprob { bytes: Vec::new(), logprob: -9999.0 };
        assert_eq!(
            event(odd),
            CompletionEvent {
                logprobs: vec![SampledToken { sampled, top: Vec::new() }],
                ..CompletionEvent::default()
            }
        );
    }
}
