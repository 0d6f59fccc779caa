//! Members of requests that llama.cpp's server has under other names than the library, or in other
//! forms, and the `timings` of its replies.
//!
//! Source: `tools/server/README.md` of llama.cpp.

use serde_json::{Map, Value, json};

const LIMITS: [&str; 2] = ["max_tokens", "max_completion_tokens"];

/// Gives the members the library's names and forms. What the request has under those names comes
/// first.
pub(super) fn rename(body: &mut Value) {
    let Some(members) = body.as_object_mut() else { return };
    for name in LIMITS {
        if members.get(name).is_some_and(|limit| *limit == -1) {
            members.shift_remove(name);
        }
    }
    let most = members.shift_remove("n_predict");
    if let Some(most) = most.filter(|_| !LIMITS.iter().any(|name| has(members, name))) {
        match most.as_i64() {
            // There is no limit.
            Some(..0) => {}
            // Their server generates one token, too.
            Some(0) => _ = members.insert("max_tokens".to_owned(), 1.into()),
            _ => _ = members.insert("max_tokens".to_owned(), most),
        }
    }
    // A sampler for gaps, without which the others work as well.
    if let Some(samplers) = members.get_mut("samplers").and_then(Value::as_array_mut) {
        samplers.retain(|name| name != "infill");
    }
    let format = members.get("response_format");
    let own = format.filter(|format| format["type"] == "json_object");
    let schema = match own.and_then(|format| format.get("schema")) {
        Some(schema) => Some(schema.clone()),
        None if !has(members, "response_format") => members.shift_remove("json_schema"),
        None => None,
    };
    if let Some(schema) = schema.filter(|schema| !schema.is_null()) {
        let format = json!({ "type": "json_schema", "json_schema": { "schema": schema } });
        members.insert("response_format".to_owned(), format);
    }
}

/// The library's timings of a reply, with what follows from them and from its usage.
pub(super) fn timings(reply: &Value) -> Value {
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

fn has(members: &Map<String, Value>, name: &str) -> bool {
    members.get(name).is_some_and(|value| !value.is_null())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(mut body: Value, expected: Value) {
        rename(&mut body);
        assert_eq!(body, expected);
    }

    #[test]
    fn limits() {
        check(json!({ "n_predict": 5, "a": 1 }), json!({ "a": 1, "max_tokens": 5 }));
        check(json!({ "n_predict": 5, "max_tokens": 6 }), json!({ "max_tokens": 6 }));
        check(
            json!({ "n_predict": 5, "max_completion_tokens": 6 }),
            json!({ "max_completion_tokens": 6 }),
        );
        check(json!({ "n_predict": -1, "max_tokens": null }), json!({ "max_tokens": null }));
        check(json!({ "max_tokens": -1 }), json!({}));
        check(json!({ "max_tokens": -2 }), json!({ "max_tokens": -2 }));
        check(json!({ "n_predict": "x" }), json!({ "max_tokens": "x" }));
        check(json!({ "n_predict": 0 }), json!({ "max_tokens": 1 }));
        let samplers = json!({ "samplers": ["top_k", "infill"] });
        check(samplers, json!({ "samplers": ["top_k"] }));
        check(json!({ "samplers": "infill" }), json!({ "samplers": "infill" }));
        check(json!([1]), json!([1]));
    }

    #[test]
    fn schemas() {
        let schema = json!({ "type": "object" });
        let ours = json!({ "type": "json_schema", "json_schema": { "schema": schema } });
        check(json!({ "json_schema": schema }), json!({ "response_format": ours }));
        check(
            json!({ "response_format": { "type": "json_object", "schema": schema } }),
            json!({ "response_format": ours }),
        );
        for kept in [
            json!({ "response_format": { "type": "json_object" } }),
            json!({ "response_format": { "type": "json_object", "schema": null } }),
            json!({ "response_format": { "type": "text" }, "json_schema": schema }),
            json!({ "response_format": 1 }),
        ] {
            check(kept.clone(), kept);
        }
    }

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
        assert_eq!(timings(&reply), expected);
        assert_eq!(timings(&json!({})), Value::Null);
    }
}
