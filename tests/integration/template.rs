//! Tests `llb_template_*`.

use llb::ffi;
use serde_json::{Value, json};

use crate::abi::{call, scripted_model, weather_tool};
use crate::scripted::{TOOL_CALL, TOOLS_TEMPLATE};

#[test]
fn info_agrees_with_model_info() {
    let info = call(ffi::llb_template_info, &json!({ "chat_template": TOOLS_TEMPLATE }));
    assert_eq!(info["type"], "template_info");
    let of_file = crate::abi::model_info(&scripted_model("text.gguf"));
    for key in ["caps", "tool_support", "evidence", "output_format"] {
        assert_eq!(info[key], of_file[key], "{key}");
    }
    let named = json!([{ "name": "default", "template": "{{ messages[0].content }}" }, { "name": "tool_use", "template": TOOLS_TEMPLATE }]);
    assert_eq!(
        call(ffi::llb_template_info, &json!({ "chat_template": named }))["caps"]["supports_tools"],
        true
    );
    assert_eq!(
        call(ffi::llb_template_info, &json!({ "gguf": scripted_model("text.gguf") }))["caps"],
        info["caps"]
    );
}

#[test]
fn render_returns_the_prompt() {
    let request = json!({ "chat_template": "{{ bos_token }}{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}{{ flag }}",
        "bos_token": "<s>", "messages": [{ "role": "user", "content": "hi" }], "chat_template_kwargs": { "flag": "!" }, "spare": 1 });
    let reply = call(ffi::llb_template_render, &request);
    assert_eq!(
        reply,
        json!({ "type": "rendered", "prompt": "<s>[user]hi!", "polyfills_applied": [], "ignored_keys": ["spare"] })
    );
}

/// Shows every message by its position, and its id if `id` does.
fn by_position(call_id: &str, result_id: &str) -> String {
    format!(
        "{{% for m in messages %}}[{{{{ m.role }}}}]{result_id}{{{{ m.content or '' }}}}{{% for c in m.tool_calls or [] %}}<call>{call_id}{{{{ c.function.name }}}} {{{{ c.function.arguments|tojson }}}}</call>{{% endfor %}}{{% endfor %}}"
    )
}

#[test]
fn results_are_shown_in_the_order_of_their_calls() {
    let call_of = |id: &str, name: &str| json!({ "id": id, "type": "function", "function": { "name": name, "arguments": "{}" } });
    let result =
        |id: &str, text: &str| json!({ "role": "tool", "tool_call_id": id, "content": text });
    let sent = json!([
        { "role": "user", "content": "Q" },
        { "role": "assistant", "content": null, "tool_calls": [call_of("x1", "tide"), call_of("x2", "wind"), call_of("x3", "moon")] },
        result("x3", "half"), result("x1", "high"), result("x2", "west"),
    ]);
    let render = |template: &str, messages: &Value, polyfills: Value| {
        let request =
            json!({ "chat_template": template, "messages": messages, "polyfills": polyfills });
        call(ffi::llb_template_render, &request)
    };
    let template = by_position("", "");
    let reply = render(&template, &sent, json!({}));
    let calls = "[user]Q[assistant]<call>tide {}</call><call>wind {}</call><call>moon {}</call>";
    assert_eq!(reply["prompt"], format!("{calls}[tool]high[tool]west[tool]half"));
    assert!(reply["polyfills_applied"].as_array().unwrap().contains(&json!("result_order")));
    assert_eq!(reply["diagnostics"][0]["code"], "tool_results_reordered");
    assert_eq!(reply["diagnostics"][0]["message_index"], 2);
    let as_sent = "[tool]half[tool]high[tool]west";
    let off = render(&template, &sent, json!({ "polyfill_result_order": false }));
    assert_eq!(off["prompt"], format!("{calls}{as_sent}"));
    // A template that shows the ids of both is left alone.
    let ids = by_position("{{ c.id }} ", "{{ m.tool_call_id }}");
    let reply = render(&ids, &sent, json!({}));
    assert!(reply["prompt"].as_str().unwrap().ends_with("[tool]x3half[tool]x1high[tool]x2west"));
    assert!(!reply["polyfills_applied"].as_array().unwrap().contains(&json!("result_order")));

    let mut unanswered = sent;
    unanswered.as_array_mut().unwrap().remove(3);
    for template in [&template, &ids] {
        let reply = render(template, &unanswered, json!({}));
        assert_eq!(reply["diagnostics"][0]["code"], "tool_call_without_result", "{reply}");
        assert_eq!(reply["diagnostics"][0]["message_index"], 1);
        assert!(reply["diagnostics"][0]["message"].as_str().unwrap().contains("\"x1\""));
    }
    // Before any result, the calls are unanswered only if the model answers next.
    unanswered.as_array_mut().unwrap().truncate(2);
    assert_eq!(
        render(&template, &unanswered, json!({}))["diagnostics"].as_array().unwrap().len(),
        3
    );
    let request = json!({ "chat_template": template, "messages": unanswered, "add_generation_prompt": false });
    assert_eq!(call(ffi::llb_template_render, &request)["diagnostics"], Value::Null);
}

#[test]
fn parse_returns_the_message() {
    let request = json!({ "chat_template": TOOLS_TEMPLATE, "output": format!("Let me see.\n{TOOL_CALL}"), "tools": [weather_tool()] });
    let reply = call(ffi::llb_template_parse, &request);
    assert_eq!(reply["type"], "message");
    assert_eq!(reply["complete"], true);
    assert_eq!(reply["message"]["content"], "Let me see.");
    assert_eq!(
        reply["message"]["tool_calls"][0]["function"],
        json!({ "name": "get_weather", "arguments": "{\"city\": \"Paris\"}" })
    );
}

#[track_caller]
fn refused(
    function: unsafe extern "C" fn(*const std::ffi::c_char) -> *const std::ffi::c_char,
    request: Value,
    code: &str,
    says: &str,
) {
    let reply = call(function, &request);
    assert_eq!(reply["error"]["code"], code, "{reply}");
    assert!(reply["error"]["message"].as_str().unwrap().contains(says), "{reply}");
}

#[test]
fn errors_name_what_is_wrong() {
    let messages = json!([{ "role": "user", "content": "hi" }]);
    refused(ffi::llb_template_info, json!({}), "INVALID_REQUEST", "chat_template: missing");
    refused(
        ffi::llb_template_info,
        json!({ "gguf": "/no/such.gguf" }),
        "MODEL_NOT_FOUND",
        "/no/such.gguf",
    );
    refused(ffi::llb_template_info, json!({ "chat_template": "{% for %}" }), "TEMPLATE_ERROR", "");
    refused(
        ffi::llb_template_render,
        json!({ "chat_template": "x" }),
        "INVALID_REQUEST",
        "messages: missing",
    );
    // transformers refuses these, so llb refuses them even with polyfills off.
    for (name, members) in [
        ("messages[0]: expected an object", json!({ "messages": ["a"] })),
        ("tools[1]: expected an object", json!({ "messages": messages, "tools": [{}, 1] })),
        ("documents[0]: expected an object", json!({ "messages": messages, "documents": [null] })),
        (
            "continue_final_message: ",
            json!({ "messages": messages, "continue_final_message": true, "add_generation_prompt": true }),
        ),
    ] {
        let mut request = json!({ "chat_template": "{{ messages[0].content }}", "polyfills": { "apply_polyfills": false } });
        request.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        refused(ffi::llb_template_render, request, "INVALID_REQUEST", name);
    }
    let raises = "{{ raise_exception('only user messages') }}";
    refused(
        ffi::llb_template_render,
        json!({ "chat_template": raises, "messages": messages }),
        "TEMPLATE_ERROR",
        "only user messages",
    );
    let endless = "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}";
    refused(
        ffi::llb_template_render,
        json!({ "chat_template": endless, "messages": messages }),
        "TEMPLATE_LIMIT",
        "",
    );
    let chain = format!("{{{{ 1{} }}}}", "-1".repeat(100_000));
    refused(
        ffi::llb_template_info,
        json!({ "chat_template": chain }),
        "TEMPLATE_LIMIT",
        "nests more than 400 operations",
    );
    refused(
        ffi::llb_template_parse,
        json!({ "chat_template": "x" }),
        "INVALID_REQUEST",
        "output: missing",
    );
    refused(ffi::llb_template_compose, json!({}), "INVALID_REQUEST", "components: missing");
    refused(
        ffi::llb_template_compose,
        json!({ "components": {}, "list": true }),
        "INVALID_REQUEST",
        "components: cannot be used together",
    );
}
