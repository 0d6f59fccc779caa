//! Tests the classic shape of replies: chats of `llb_chat_create` reply like those of `llb_chat_create_with`,
//! but `usage` and `error` have only their original members.

use std::ffi::CString;

use serde_json::{Map, Value, json};

use crate::abi::{Chat, Recorder, ask, infer, last_error, own_model, scripted_model, weather_tool};

/// Opens a chat of each function on one model.
fn both(model: &str) -> [Chat; 2] {
    let path = own_model(model);
    let c_path = CString::new(&*path).unwrap();
    let open = |path| Chat::open_with(&json!({ "model": path }));
    [Chat::open_path(Some(&c_path)), open(path)]
        .map(|chat| chat.unwrap_or_else(|e| panic!("{e:?}")))
}

fn keys(value: &Value) -> Vec<&str> {
    value.as_object().into_iter().flat_map(Map::keys).map(String::as_str).collect()
}

/// Converts a reply or chunk of `llb_chat_create_with` to the classic shape.
fn classic(mut reply: Value) -> Value {
    let members = reply.as_object_mut().unwrap();
    if let Some(usage) = members.get_mut("usage").and_then(Value::as_object_mut) {
        let mut details = usage.shift_remove("prompt_tokens_details").unwrap();
        let completion = usage.shift_remove("completion_tokens_details");
        if let Some(tokens) = completion.as_ref().and_then(|it| it.get("reasoning_tokens")) {
            details["reasoning_tokens"] = tokens.clone();
        }
        members.insert("usage_details".into(), details);
    }
    let error = members.get_mut("error").and_then(Value::as_object_mut);
    if let Some(details) = error.and_then(|error| error.shift_remove("details")) {
        members.insert("error_details".into(), details);
    }
    reply
}

/// Removes members that differ from call to call.
fn stable(mut reply: Value) -> Value {
    for member in ["timings", "id", "created"] {
        reply.as_object_mut().unwrap().shift_remove(member);
    }
    for call in reply["tool_calls"].as_array_mut().into_iter().flatten() {
        call["id"] = "".into();
    }
    for pointer in ["/message/tool_calls", "/choices/0/delta/tool_calls"] {
        let calls = reply.pointer_mut(pointer).and_then(Value::as_array_mut);
        calls.into_iter().flatten().filter(|call| call.get("id").is_some()).for_each(|call| {
            call["id"] = "".into();
        });
    }
    reply
}

#[track_caller]
fn check_shape(reply: &Value) {
    if let Some(usage) = reply.get("usage") {
        assert_eq!(keys(usage), ["prompt_tokens", "completion_tokens", "total_tokens"]);
        assert!(reply["usage_details"]["cached_tokens"].is_u64(), "{reply}");
    }
    if let Some(error) = reply.get("error") {
        assert_eq!(keys(error), ["code", "message"], "{reply}");
    }
}

/// Checks every function and every kind of stream with both functions.
#[track_caller]
fn check(chats: &[Chat; 2], request: &Value) -> Value {
    let [old, new] = chats;
    let mut request = request.clone();
    let mut first = None;
    for format in ["text", "chunks"] {
        request["stream_format"] = format.into();
        request["stream_options"] = json!({ "include_usage": true });
        request["cache_prompt"] = false.into();
        let [pieces, expected] = [Recorder::default(), Recorder::default()];
        let replies = [old.infer(&request), old.stream(&request, &pieces), old.explain(&request)];
        let same = [new.infer(&request), new.stream(&request, &expected), new.explain(&request)];
        for (reply, same) in replies.iter().zip(same) {
            check_shape(reply);
            assert_eq!(stable(reply.clone()), stable(classic(same)));
        }
        assert_eq!(pieces.lines().len(), expected.lines().len());
        for (piece, same) in pieces.lines().iter().zip(expected.lines()) {
            match (serde_json::from_str::<Value>(piece), format) {
                (Ok(chunk), "chunks") => {
                    check_shape(&chunk);
                    let same = serde_json::from_str(&same).unwrap();
                    assert_eq!(stable(chunk), stable(classic(same)));
                }
                _ => assert_eq!(*piece, same),
            }
        }
        first.get_or_insert(replies[0].clone());
    }
    first.unwrap()
}

#[test]
fn replies_differ_only_in_their_details() {
    let chats = both("text.gguf");
    let reply = check(&chats, &ask(json!({ "max_tokens": 5, "strange": 1, "logprobs": true })));
    assert_eq!(reply["usage_details"]["cached_tokens"], 0);
    let chats = both("tool_call.gguf");
    let reply = check(&chats, &ask(json!({ "tools": [weather_tool()] })));
    assert_eq!(reply["type"], "tool_call");
    let chats = both("reasoning.gguf");
    let reply = check(&chats, &ask(json!({})));
    assert_eq!(reply["usage_details"], json!({ "cached_tokens": 0, "reasoning_tokens": 5 }));
}

#[test]
fn errors_differ_only_in_their_details() {
    let chats = both("text.gguf");
    let long = "x".repeat(10_000);
    let overflow = json!({ "messages": [{ "role": "user", "content": long }] });
    let tool = json!({ "type": "function", "function": { "name": "odd", "strict": true, "parameters": {
        "type": "object", "properties": { "a": { "not": {} } }, "required": ["a"] } } });
    for (request, code, details) in [
        (json!({}), "INVALID_REQUEST", None),
        (ask(json!({ "max_tokens": "x" })), "INVALID_REQUEST", None),
        (overflow, "CONTEXT_OVERFLOW", Some("n_ctx")),
        (
            ask(json!({ "tools": [tool], "tool_choice": "required" })),
            "SCHEMA_UNSUPPORTED",
            Some("path"),
        ),
    ] {
        let reply = check(&chats, &request);
        assert_eq!(reply["error"]["code"], code, "{reply}");
        match details {
            Some(member) => assert!(!reply["error_details"][member].is_null(), "{reply}"),
            None => assert_eq!(reply.get("error_details"), None, "{reply}"),
        }
        // `llb_last_error` has the details in their usual place for both functions.
        chats[0].infer(&request);
        let error = last_error();
        assert_eq!(error.get("error_details"), None);
        assert_eq!(error["error"].get("details"), reply.get("error_details"));
    }
    let [old, _] = chats;
    let handle = old.handle();
    drop(old);
    let closed = infer(handle, &ask(json!({})));
    assert_eq!(closed["error"]["code"], "ENGINE_CLOSED");
    assert_eq!(keys(&closed), ["type", "error"]);
    assert_eq!(keys(&closed["error"]), ["code", "message"]);
}

#[test]
fn a_failed_create_keeps_its_details() {
    let path = CString::new(scripted_model("no_tools.gguf")).unwrap();
    let refused = Chat::open_path(Some(&path)).err().expect("refused");
    assert_eq!(refused.code(), "MODEL_NOT_TOOL_CAPABLE");
    assert_eq!(refused.error["error"]["details"]["caps"]["supports_tools"], false);
}

#[test]
fn only_the_classic_door_corrects_requests() {
    let [old, new] = both("text.gguf");
    for (wrong, right) in [
        (json!({ "max_tokens": 0 }), json!({})),
        (json!({ "max_tokens": -1 }), json!({})),
        (json!({ "temperature": -0.5 }), json!({ "temperature": 0 })),
    ] {
        let reply = old.infer(&ask(wrong.clone()));
        assert_eq!(reply["text"], old.infer(&ask(right))["text"], "{reply}");
        assert_eq!(reply["finish_reason"], "stop");
        assert_eq!(new.infer(&ask(wrong))["error"]["code"], "INVALID_REQUEST");
    }
    // These values are accepted by chats of both functions.
    for chat in [old, new] {
        let huge: Value = serde_json::from_str("340282366920938463463374607431768211463").unwrap();
        for members in [
            json!({ "seed": huge, "temperature": 0.7 }),
            json!({ "seed": -9_223_372_036_854_775_808_i64 }),
            json!({ "stop": ["", "nowhere"] }),
            json!({ "stop": "" }),
            json!({ "top_k": -1 }),
        ] {
            let reply = chat.infer(&ask(members));
            assert_eq!(reply["finish_reason"], "stop", "{reply}");
        }
    }
}
