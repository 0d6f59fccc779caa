//! `timings` of replies, with the members of llama.cpp's server.

use serde_json::Value;

/// The library's timings of a reply, with what follows from them and from its usage.
pub(super) fn of(reply: &Value) -> Value {
    let mut timings = reply["timings"].clone();
    if !timings.is_object() {
        return timings;
    }
    let usage = &reply["usage"];
    let count = |value: &Value| value.as_u64().unwrap_or_default();
    let cached = count(&usage["prompt_tokens_details"]["cached_tokens"]);
    let computed = count(&usage["prompt_tokens"]).saturating_sub(cached);
    timings["cache_n"] = cached.into();
    for (phase, tokens) in [("prompt", computed), ("predicted", count(&usage["completion_tokens"]))]
    {
        let time = timings[format!("{phase}_ms")].as_f64().unwrap_or_default();
        timings[format!("{phase}_n")] = tokens.into();
        timings[format!("{phase}_per_token_ms")] = (time / tokens.max(1) as f64).into();
    }
    timings
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn tokens_and_their_times() {
        let reply = json!({
            "timings": { "prompt_ms": 12.0, "predicted_ms": 30.0 },
            "usage": {
                "prompt_tokens": 10, "completion_tokens": 0,
                "prompt_tokens_details": { "cached_tokens": 4 },
            },
        });
        let expected = json!({
            "prompt_ms": 12.0, "predicted_ms": 30.0, "cache_n": 4, "prompt_n": 6,
            "prompt_per_token_ms": 2.0, "predicted_n": 0, "predicted_per_token_ms": 30.0,
        });
        assert_eq!(of(&reply), expected);
        assert_eq!(of(&json!({})), Value::Null);
    }
}
