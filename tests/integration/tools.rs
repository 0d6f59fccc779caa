//! Tests tool calls: parsed, forced, and sent back with their results.

use serde_json::{Value, json};

use crate::abi::{Chat, Recorder, ask, scripted_model, weather_tool};
use crate::scripted::{REASONING, TOOL_CALL, TOOLS_TEMPLATE};

#[test]
fn a_call_is_parsed_and_its_markup_is_hidden() {
    let chat = Chat::open(&scripted_model("tool_call.gguf"));
    let recorder = Recorder::default();
    let reply = chat.stream(&ask(json!({ "tools": [weather_tool()] })), &recorder);
    assert_eq!(reply["type"], "tool_call");
    assert_eq!(reply["text"], "");
    assert_eq!(recorder.lines(), Vec::<String>::new());
    assert_eq!(reply["finish_reason"], "tool_calls");
    let calls = reply["tool_calls"].as_array().unwrap();
    assert_eq!(calls.len(), 1);
    assert_eq!(calls[0]["name"], "get_weather");
    assert_eq!(calls[0]["arguments"], "{\"city\": \"Paris\"}");
    assert!(calls[0]["id"].as_str().unwrap().starts_with("call_"));
    let message = &reply["message"];
    assert_eq!(message["content"], Value::Null);
    assert_eq!(message["tool_calls"][0]["type"], "function");
    assert_eq!(message["tool_calls"][0]["id"], calls[0]["id"]);
    assert_eq!(
        message["tool_calls"][0]["function"],
        json!({ "name": "get_weather", "arguments": "{\"city\": \"Paris\"}" })
    );
}

#[test]
fn without_tools_markup_is_text() {
    let chat = Chat::open(&scripted_model("tool_call.gguf"));
    assert_eq!(chat.infer(&ask(json!({})))["text"], TOOL_CALL);
    let none = chat.infer(&ask(json!({ "tools": [weather_tool()], "tool_choice": "none" })));
    assert_eq!((&none["text"], &none["finish_reason"]), (&json!(TOOL_CALL), &json!("stop")));
}

#[test]
fn call_chunks_add_up_to_the_call() {
    let chat = Chat::open(&scripted_model("tool_call.gguf"));
    let recorder = Recorder::default();
    let reply = chat
        .stream(&ask(json!({ "tools": [weather_tool()], "stream_format": "chunks" })), &recorder);
    let chunks: Vec<Value> =
        recorder.lines().iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    let calls: Vec<&Value> = chunks
        .iter()
        .map(|chunk| &chunk["choices"][0]["delta"]["tool_calls"][0])
        .filter(|call| !call.is_null())
        .collect();
    assert_eq!(calls[0]["id"], reply["tool_calls"][0]["id"]);
    assert_eq!(calls[0]["function"]["name"], "get_weather");
    let arguments: String =
        calls.iter().filter_map(|call| call["function"]["arguments"].as_str()).collect();
    assert_eq!(arguments, reply["tool_calls"][0]["arguments"].as_str().unwrap());
    assert_eq!(chunks.last().unwrap()["choices"][0]["finish_reason"], "tool_calls");
}

#[test]
fn a_required_call_is_forced() {
    let chat = Chat::open(&scripted_model("text.gguf"));
    let tool = json!({ "type": "function", "function": { "name": "book", "parameters": {
        "type": "object",
        "properties": {
            "day": { "enum": ["monday", "friday"] },
            "guests": { "type": "integer", "minimum": 1, "maximum": 9 },
            "window": { "type": "boolean" },
        },
        "required": ["day", "guests", "window"],
        "additionalProperties": false,
    } } });
    for choice in [json!("required"), json!({ "type": "function", "function": { "name": "book" } })]
    {
        let reply =
            chat.infer(&ask(json!({ "tools": [weather_tool(), tool], "tool_choice": choice, "parallel_tool_calls": false })));
        assert_eq!(reply["finish_reason"], "tool_calls", "{reply}");
        let calls = reply["tool_calls"].as_array().unwrap();
        assert_eq!(calls.len(), 1);
        let arguments: Value =
            serde_json::from_str(calls[0]["arguments"].as_str().unwrap()).unwrap();
        if choice != "required" {
            assert_eq!(calls[0]["name"], "book");
            assert!(["monday", "friday"].contains(&arguments["day"].as_str().unwrap()));
            assert!((1..=9).contains(&arguments["guests"].as_i64().unwrap()));
            assert!(arguments["window"].is_boolean());
        }
    }
}

#[test]
fn a_json_reply_obeys_its_schema() {
    let chat = Chat::open(&scripted_model("text.gguf"));
    let schema = json!({ "type": "object", "properties": { "ok": { "type": "boolean" } }, "required": ["ok"], "additionalProperties": false });
    let format =
        json!({ "type": "json_schema", "json_schema": { "name": "answer", "schema": schema } });
    let reply = chat.infer(&ask(json!({ "response_format": format })));
    let value: Value =
        serde_json::from_str(reply["text"].as_str().unwrap()).unwrap_or_else(|_| panic!("{reply}"));
    assert!(value["ok"].is_boolean(), "{reply}");
}

#[test]
fn a_continued_json_reply_obeys_its_schema() {
    let chat = Chat::open(&scripted_model("text.gguf"));
    let schema = json!({ "type": "object", "properties": { "ok": { "type": "boolean" }, "no": { "const": 7 } },
        "required": ["ok", "no"], "additionalProperties": false });
    let format =
        json!({ "type": "json_schema", "json_schema": { "name": "answer", "schema": schema } });
    let given = |content: &str| {
        let messages = json!([{ "role": "user", "content": "?" }, { "role": "assistant", "content": content }]);
        ask(
            json!({ "messages": messages, "continue_final_message": true, "response_format": format }),
        )
    };
    for start in ["{", "{\n  \"ok\":tr", "{\"ok\": false, \"no\""] {
        let reply = chat.infer(&given(start));
        let text = reply["message"]["content"].as_str().unwrap_or_else(|| panic!("{reply}"));
        assert_eq!(text, format!("{start}{}", reply["text"].as_str().unwrap()));
        let value: Value = serde_json::from_str(text).unwrap_or_else(|_| panic!("{reply}"));
        assert_eq!((value["ok"].is_boolean(), &value["no"]), (true, &json!(7)), "{reply}");
        assert_eq!(reply["diagnostics"], json!([]), "{reply}");
    }
    let reply = chat.infer(&given("Sure: {"));
    assert_eq!(reply["error"]["code"], "INVALID_REQUEST", "{reply}");
    assert_eq!(
        reply["error"]["message"],
        "messages[1].content: is not the beginning of a text that response_format allows; change the \
         content or leave out response_format"
    );
}

#[test]
fn an_unenforceable_schema_is_named() {
    let chat = Chat::open(&scripted_model("text.gguf"));
    let tool = json!({ "type": "function", "function": { "name": "odd", "strict": true, "parameters": {
        "type": "object", "properties": { "a": { "type": "no_such_type" } } } } });
    let reply =
        chat.infer(&ask(json!({ "tools": [weather_tool(), tool], "tool_choice": "required" })));
    assert_eq!(reply["error"]["code"], "SCHEMA_UNSUPPORTED");
    let message = reply["error"]["message"].as_str().unwrap();
    assert!(message.starts_with("tools[1].function.parameters (odd): "), "{message}");
    let mut itself =
        json!({ "type": "json_schema", "json_schema": { "name": "x", "schema": { "$ref": "#" } } });
    let reply = chat.infer(&ask(json!({ "response_format": itself })));
    assert_eq!(codes(&reply)[0], "constraint_relaxed", "{reply}");
    itself["json_schema"]["strict"] = true.into();
    let reply = chat.infer(&ask(json!({ "response_format": itself })));
    assert_eq!(reply["error"]["code"], "SCHEMA_UNSUPPORTED", "{reply}");
    assert!(
        reply["error"]["message"]
            .as_str()
            .unwrap()
            .starts_with("response_format.json_schema.schema: "),
        "{reply}"
    );
    let reply = chat.infer(&ask(json!({ "grammar": "start: nothing" })));
    assert_eq!(reply["error"]["code"], "SCHEMA_UNSUPPORTED");
}

#[test]
fn a_result_goes_back_in() {
    let chat = Chat::open(&scripted_model("tool_call.gguf"));
    let first = chat.infer(&ask(json!({ "tools": [weather_tool()] })));
    let messages = json!([
        { "role": "user", "content": "Hello" },
        first["message"],
        { "role": "tool", "tool_call_id": first["tool_calls"][0]["id"], "content": "{\"sky\": \"clear\"}" },
    ]);
    let explanation = chat.explain(&json!({ "messages": messages, "tools": [weather_tool()] }));
    let prompt = explanation["prompt"].as_str().unwrap();
    // The history contains the call as the model would have written it, and not as quoted JSON
    // text.
    assert!(prompt.contains(TOOL_CALL), "{prompt}");
    assert_eq!(explanation["polyfills_applied"], json!(["object_arguments", "null_content"]));
    assert!(prompt.contains("<tool_response>\n{\"sky\": \"clear\"}\n</tool_response>"), "{prompt}");
    assert!(prompt.ends_with("<|im_start|>assistant\n"));
}

#[test]
fn polyfills_can_be_switched_off() {
    let call = json!({ "id": "1", "type": "function", "function": { "name": "f", "arguments": "{\"a\": 1}" } });
    let messages = json!([{ "role": "user", "content": "U" }, { "role": "assistant", "content": null, "tool_calls": [call] }]);
    let off = json!({ "polyfill_object_arguments": false });
    let model = scripted_model("tool_call.gguf");
    let request = json!({ "messages": messages, "polyfills": off });
    let by_request = Chat::open(&model).explain(&request);
    let by_option = Chat::open_with(&json!({ "model": model, "polyfills": off, "n_ctx": 512 }))
        .unwrap_or_else(|e| panic!("{e:?}"));
    let by_option = by_option.explain(&json!({ "messages": messages }));
    for explanation in [by_request, by_option] {
        assert!(
            explanation["prompt"].as_str().unwrap().contains(r#""arguments": "{\"a\": 1}""#),
            "{explanation}"
        );
        assert_eq!(explanation["polyfills_applied"], json!(["null_content"]));
    }
    let refused =
        Chat::open_with(&json!({ "model": model, "polyfills": { "polyfill_all": true } }))
            .err()
            .expect("refused");
    assert_eq!(
        refused.message(),
        "polyfills.polyfill_all: unknown polyfill; did you mean `polyfill_tools`?"
    );
}

#[test]
fn the_tool_use_template_is_used_when_there_are_tools() {
    let chat = Chat::open_with(&json!({ "model": scripted_model("tool_use.gguf"), "n_ctx": 512 }))
        .unwrap_or_else(|e| panic!("{e:?}"));
    let with = chat.explain(&ask(json!({ "tools": [weather_tool()] })));
    assert!(with["prompt"].as_str().unwrap().contains("get_weather"));
    let without = chat.explain(&ask(json!({})));
    assert!(!without["prompt"].as_str().unwrap().contains("<tools>"));
}

#[test]
fn an_unknown_format_forces_the_polyfills_call() {
    let template = "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}CALL {{ c.function.name }} WITH \
                    {% for k, v in c.function.arguments|items %}{{ k }} IS {{ v }}{% endfor %}{% endfor %}{% endfor %}";
    let options = json!({ "model": scripted_model("text.gguf"), "chat_template": template, "tool_policy": "any" });
    let chat = Chat::open_with(&options).unwrap_or_else(|e| panic!("{e:?}"));
    let request = ask(
        json!({ "tools": [weather_tool()], "tool_choice": "required", "parallel_tool_calls": false }),
    );
    let reply = chat.infer(&request);
    assert_eq!(
        (&reply["tool_calls"][0]["name"], &reply["finish_reason"]),
        (&json!("get_weather"), &json!("tool_calls")),
        "{reply}"
    );
}

/// The codes of a reply's diagnostics.
fn codes(reply: &Value) -> Vec<&str> {
    let diagnostics = reply["diagnostics"].as_array().map(Vec::as_slice).unwrap_or_default();
    diagnostics.iter().map(|diagnostic| diagnostic["code"].as_str().unwrap()).collect()
}

#[test]
fn a_truncated_call_is_not_a_call() {
    let chat = Chat::open(&scripted_model("tool_call.gguf"));
    // Ten tokens end inside the city, and four before the name.
    for (choice, unmet) in [("auto", None), ("required", Some("required_not_met"))] {
        let reply = chat.infer(&ask(
            json!({ "tools": [weather_tool()], "tool_choice": choice, "max_tokens": 10 }),
        ));
        assert_eq!(
            (&reply["type"], &reply["finish_reason"]),
            (&json!("assistant_text"), &json!("length")),
            "{reply}"
        );
        assert_eq!((&reply["tool_calls"], &reply["text"]), (&json!([]), &json!("")));
        assert_eq!(reply["message"].get("tool_calls"), None, "{reply}");
        assert_eq!(codes(&reply), ["truncated_call"].into_iter().chain(unmet).collect::<Vec<_>>());
        let cut = &reply["diagnostics"][0];
        assert_eq!(
            (&cut["name"], &cut["arguments"]),
            (&json!("get_weather"), &json!("{\"city\": \"Par"))
        );
    }
    let reply = chat.infer(&ask(json!({ "tools": [weather_tool()], "max_tokens": 4 })));
    assert_eq!((&reply["tool_calls"], codes(&reply)), (&json!([]), vec!["truncated_call"]));
    assert_eq!(reply["diagnostics"][0]["text"], "<tool_call>\n{\"name\": \"");
    // Only the closing tag is missing, and the arguments are complete.
    let reply = chat.infer(&ask(json!({ "tools": [weather_tool()], "max_tokens": 12 })));
    assert_eq!(reply["tool_calls"][0]["arguments"], "{\"city\": \"Paris\"}");
    assert_eq!(reply["finish_reason"], "length");
    let reply =
        chat.infer(&ask(json!({ "tools": [weather_tool()], "stop": "Par", "stop_scope": "all" })));
    assert_eq!(
        (&reply["tool_calls"], &reply["finish_reason"]),
        (&json!([]), &json!("stop")),
        "{reply}"
    );
    assert_eq!(reply["diagnostics"][0]["arguments"], "{\"city\": \"");
}

#[test]
fn a_truncated_streamed_call_is_not_in_the_reply() {
    let chat = Chat::open(&scripted_model("tool_call.gguf"));
    let recorder = Recorder::default();
    let request = json!({ "tools": [weather_tool()], "stream_format": "chunks", "max_tokens": 10 });
    let reply = chat.stream(&ask(request), &recorder);
    assert_eq!(reply["tool_calls"], json!([]));
    let chunks: Vec<Value> =
        recorder.lines().iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    let deltas = chunks
        .iter()
        .map(|chunk| &chunk["choices"][0]["delta"]["tool_calls"][0]["function"]["arguments"]);
    let arguments: String = deltas.filter_map(Value::as_str).collect();
    assert_eq!(arguments, reply["diagnostics"][0]["arguments"].as_str().unwrap());
    assert_eq!(chunks.last().unwrap()["choices"][0]["finish_reason"], "length");
}

#[test]
fn a_model_ends_its_turn_after_a_required_call() {
    // Another call could follow, but the model may also end its turn.
    let chat = Chat::open(&scripted_model("tool_call.gguf"));
    for parallel in [true, false] {
        let request = json!({ "tools": [weather_tool()], "tool_choice": "required", "parallel_tool_calls": parallel });
        let reply = chat.infer(&ask(request));
        assert_eq!(reply["tool_calls"].as_array().unwrap().len(), 1, "{reply}");
        assert_eq!((&reply["finish_reason"], codes(&reply)), (&json!("tool_calls"), Vec::new()));
        assert_eq!(reply["tool_calls"][0]["arguments"], "{\"city\": \"Paris\"}");
    }
}

#[test]
fn uncalled_tools_do_not_change_the_text() {
    let chat = Chat::open(&scripted_model("text.gguf"));
    let plain = chat.infer(&ask(json!({})));
    let with = chat.infer(&ask(json!({ "tools": [weather_tool()] })));
    assert_eq!(with["text"], plain["text"]);
    let explained = chat.explain(&ask(json!({ "tools": [weather_tool()] })));
    assert!(
        explained["grammar"].is_string() && chat.explain(&ask(json!({})))["grammar"].is_null(),
        "{explained}"
    );
}

#[test]
fn a_json_reply_and_tools() {
    let chat = Chat::open(&scripted_model("text.gguf"));
    let schema = json!({ "type": "object", "properties": { "ok": { "type": "boolean" } }, "required": ["ok"], "additionalProperties": false });
    let format =
        json!({ "type": "json_schema", "json_schema": { "name": "answer", "schema": schema } });
    for format in [format, json!({ "type": "json_object" })] {
        let request = json!({ "tools": [weather_tool()], "response_format": format });
        let reply = chat.infer(&ask(request.clone()));
        if reply["tool_calls"] == json!([]) {
            let value: Value = serde_json::from_str(reply["text"].as_str().unwrap())
                .unwrap_or_else(|_| panic!("{reply}"));
            assert!(
                value.is_object() && (format["type"] == "json_object" || value["ok"].is_boolean()),
                "{reply}"
            );
        } else {
            assert_eq!(reply["tool_calls"][0]["name"], "get_weather", "{reply}");
        }
        let mut required = request;
        required["tool_choice"] = "required".into();
        required["parallel_tool_calls"] = false.into();
        let reply = chat.infer(&ask(required));
        assert_eq!(
            (&reply["text"], &reply["finish_reason"]),
            (&json!(""), &json!("tool_calls")),
            "{reply}"
        );
    }
    // A model that calls without being forced is still allowed to.
    let caller = Chat::open(&scripted_model("tool_call.gguf"));
    let reply = caller.infer(&ask(
        json!({ "tools": [weather_tool()], "response_format": { "type": "json_object" } }),
    ));
    assert_eq!(reply["tool_calls"][0]["arguments"], "{\"city\": \"Paris\"}", "{reply}");
}

#[test]
fn a_grammar_of_the_caller() {
    let chat = Chat::open(&scripted_model("text.gguf"));
    let grammar = "start: \"yes\" | \"no\"";
    let reply = chat.infer(&ask(json!({ "grammar": grammar })));
    assert!(["yes", "no"].contains(&reply["text"].as_str().unwrap()), "{reply}");
    let reply = chat.infer(&ask(json!({ "grammar": grammar, "tools": [weather_tool()] })));
    assert_eq!(reply["error"]["code"], "INVALID_REQUEST", "{reply}");
    let reply = chat.infer(&ask(
        json!({ "grammar": grammar, "tools": [weather_tool()], "tool_choice": "none" }),
    ));
    assert!(["yes", "no"].contains(&reply["text"].as_str().unwrap()), "{reply}");
}

#[test]
fn unenforceable_schemas_are_refused_or_reported() {
    let chat = Chat::open(&scripted_model("text.gguf"));
    let cases = [
        (json!({ "type": "string", "not": { "const": "x" } }), "not"),
        (json!({ "type": "string", "pattern": "^(?!x).*$" }), "pattern"),
    ];
    for (schema, keyword) in cases {
        let mut tool = json!({ "type": "function", "function": { "name": "odd", "parameters": {
            "type": "object", "properties": { "a": schema }, "required": ["a"] } } });
        let request = |tool: &Value, choice: &str| {
            ask(json!({ "tools": [weather_tool(), tool], "tool_choice": choice }))
        };
        let path = format!("/properties/a/{keyword}");
        for choice in ["auto", "required"] {
            let reply = chat.infer(&request(&tool, choice));
            assert_eq!(codes(&reply)[0], "constraint_relaxed", "{reply}");
            let message = reply["diagnostics"][0]["message"].as_str().unwrap();
            assert!(
                message.starts_with(&format!(
                    "tools[1].function.parameters: /properties/a (odd): {keyword} is not"
                )),
                "{message}"
            );
        }
        tool["function"]["strict"] = true.into();
        for choice in ["auto", "required"] {
            let error = chat.infer(&request(&tool, choice))["error"].clone();
            assert_eq!(error["code"], "SCHEMA_UNSUPPORTED", "{error}");
            let details = &error["details"];
            assert_eq!(
                (&details["tool"], &details["path"], &details["keyword"]),
                (&json!("odd"), &json!(path), &json!(keyword))
            );
        }
        let named = json!({ "type": "function", "function": { "name": "get_weather" } });
        let reply = chat.infer(&ask(
            json!({ "tools": [weather_tool(), tool], "tool_choice": named, "max_tokens": 100 }),
        ));
        assert_eq!(
            reply["error"],
            Value::Null,
            "a tool that cannot be called does not matter: {reply}"
        );
    }
}

#[test]
fn a_required_call_comes_after_reasoning() {
    let model = scripted_model("reasoning.gguf");
    let thinks = TOOLS_TEMPLATE.replace(
        "{%- if message.content %}",
        "{%- if message.reasoning_content %}{{- '\\n<think>\\n' + message.reasoning_content + '\\n</think>\\n' }}{%- endif %}\n{%- if message.content %}",
    );
    assert_ne!(thinks, TOOLS_TEMPLATE);
    let chat = Chat::open_with(&json!({ "model": model, "chat_template": thinks, "n_ctx": 1024 }))
        .unwrap();
    let request = ask(
        json!({ "tools": [weather_tool()], "tool_choice": "required", "parallel_tool_calls": false }),
    );
    let reply = chat.infer(&request);
    assert_eq!(reply["reasoning_content"], REASONING[0], "{reply}");
    assert_eq!(
        (&reply["tool_calls"][0]["name"], &reply["finish_reason"]),
        (&json!("get_weather"), &json!("tool_calls"))
    );
    // A model that is not known to reason does not start to reason when a call is forced.
    let reply = Chat::open(&model).infer(&request);
    assert_eq!(reply["reasoning_content"], Value::Null, "{reply}");
    assert_eq!(
        (&reply["tool_calls"][0]["name"], &reply["finish_reason"]),
        (&json!("get_weather"), &json!("tool_calls"))
    );
}
