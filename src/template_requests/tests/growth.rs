//! Each list and object of a request is read in time that grows with its size, not with the square.

use serde_json::{Map, Value, json};

use crate::error::Result;
use crate::template_requests::{compose, info, parse, render};
use crate::test_support::cpu_time;
use crate::test_support::growth;

/// Writes and reads calls as Hermes models do.
const TEMPLATE: &str = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}\
    {% for c in m.tool_calls or [] %}<tool_call>\n{\"name\": \"{{ c.function.name }}\", \
    \"arguments\": {{ c.function.arguments | tojson }}}\n</tool_call>{% endfor %}<|im_end|>\n\
    {% endfor %}{% if tools %}{% for t in tools %}{{ t | tojson }}\n{% endfor %}{% endif %}\
    {% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

fn list(n: usize, item: impl Fn(usize) -> Value) -> Value {
    (0..n).map(item).collect()
}

fn object(n: usize, member: impl Fn(usize) -> Value) -> Value {
    let members = (0..n).map(|index| (format!("k{index}"), member(index)));
    Value::Object(members.collect::<Map<_, _>>())
}

fn user() -> Value {
    json!({ "role": "user", "content": "hi" })
}

fn tool(index: usize, parameters: &Value) -> Value {
    let function = json!({ "name": format!("f{index}"), "parameters": parameters });
    json!({ "type": "function", "function": function })
}

fn call(index: usize, name: &str, arguments: Value) -> Value {
    let function = json!({ "name": name, "arguments": arguments });
    json!({ "id": format!("c{index}"), "type": "function", "function": function })
}

/// The text of a call.
fn written(name: &str, arguments: &Value) -> String {
    let call = json!({ "name": name, "arguments": arguments });
    format!("<tool_call>\n{call}\n</tool_call>")
}

#[track_caller]
fn check(function: fn(&str) -> Result<Value>, name: &str, members: &dyn Fn(usize) -> Value) {
    growth::check(name, 40_000, |n| {
        let limits = json!({ "ms": 3_600_000, "fuel": 1u64 << 40, "memory_bytes": 1u64 << 36 });
        let mut request = json!({
            "chat_template": TEMPLATE, "messages": [user()], "template_limits": limits,
        });
        let members = members(n);
        request.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        let text = request.to_string();
        cpu_time(|| drop(function(&text)))
    });
}

/// A kind of value, and one of this many elements.
type Shape = (&'static str, fn(usize) -> Value);

/// Values of each kind, which most members refuse.
fn shapes() -> [Shape; 6] {
    [
        ("names", |n| list(n, |index| format!("t{index}").into())),
        ("numbers", |n| list(n, Value::from)),
        ("objects", |n| list(n, |index| json!({ "name": format!("n{index}"), "template": "x" }))),
        ("members", |n| object(n, |_| "v".into())),
        ("lists", |n| object(n, |index| json!([index]))),
        ("text", |n| "a b".repeat(n).into()),
    ]
}

fn check_shapes(function: fn(&str) -> Result<Value>, members: &[&str]) {
    for member in members {
        // Templates are probed, which has a limit of its own.
        let is_template = ["chat_template", "derive_from"].contains(member);
        for (shape, value) in shapes().into_iter().take(if is_template { 5 } else { 6 }) {
            let name = format!("{member}: {shape}");
            check(function, &name, &|n| {
                Value::Object(Map::from_iter([((*member).to_owned(), value(n))]))
            });
        }
    }
}

#[test]
fn all_members_of_render() {
    check_shapes(
        render,
        &[
            "messages",
            "tools",
            "documents",
            "skills",
            "chat_template_kwargs",
            "polyfills",
            "template_limits",
            "vision",
            "chat_template",
            "now",
            "continue_final_message",
            "other",
        ],
    );
}

#[test]
fn all_members_of_the_others() {
    check_shapes(info, &["chat_template", "components", "bos_token", "other"]);
    check_shapes(compose, &["components", "derive_from", "other"]);
    check_shapes(
        parse,
        &["output", "tools", "tool_choice", "response_format", "prompt", "chat_template", "other"],
    );
}

#[test]
fn conversations() {
    let one = tool(0, &json!({ "type": "object", "properties": { "a": {} } }));
    let results = |n: usize, id: &dyn Fn(usize) -> String| {
        (0..n)
            .map(|index| json!({ "role": "tool", "content": "r", "tool_call_id": id(index) }))
            .collect::<Vec<_>>()
    };
    let exchange = |calls: Value, results: Vec<Value>| {
        let mut messages =
            vec![user(), json!({ "role": "assistant", "content": "", "tool_calls": calls })];
        messages.extend(results);
        messages.push(user());
        json!({ "messages": messages, "tools": [one], "spans": true })
    };
    let calls = |n: usize, arguments: Value| list(n, |index| call(index, "f0", arguments.clone()));
    let own = |index: usize| format!("c{index}");
    let cases: [(&str, &dyn Fn(usize) -> Value); 14] = [
        ("messages", &|n| json!({ "messages": list(n, |_| user()), "spans": true })),
        ("system messages", &|n| {
            let mut messages = vec![json!({ "role": "system", "content": "s" }); n];
            messages.push(user());
            json!({ "messages": messages })
        }),
        ("parts", &|n| {
            let part = json!({ "type": "text", "text": "x" });
            json!({ "messages": [{ "role": "user", "content": list(n, |_| part.clone()) }] })
        }),
        ("members of a message", &|n| {
            let mut message = object(n, |_| "v".into());
            message["role"] = "user".into();
            message["content"] = "hi".into();
            json!({ "messages": [message], "spans": true })
        }),
        ("a long name around values", &|n| {
            let name = "k".repeat(10 * n);
            let message =
                json!({ "role": "user", "content": "hi", name: list(n, |_| json!({ "a": "b" })) });
            json!({ "messages": [message], "spans": true })
        }),
        ("a long name in kwargs", &|n| {
            let name = "k".repeat(10 * n);
            json!({ "chat_template_kwargs": { name: list(n, |_| "v".into()) }, "spans": true })
        }),
        ("results in order", &|n| exchange(calls(n, json!({})), results(n, &own))),
        ("results in reverse", &|n| {
            exchange(calls(n, json!({})), results(n, &|index| own(n - 1 - index)))
        }),
        ("results of one id", &|n| exchange(calls(n, json!({})), results(n, &|_| own(0)))),
        ("no results", &|n| exchange(calls(n, json!({})), Vec::new())),
        ("results without calls", &|n| exchange(json!([]), results(n, &own))),
        ("text arguments", &|n| exchange(calls(n, "{\"a\":1}".into()), results(n, &own))),
        (
            "tools",
            &|n| json!({ "tools": list(n, |index| tool(index, &json!({ "type": "object" }))) }),
        ),
        (
            "a tool twice",
            &|n| json!({ "tools": list(n, |index| tool(index % (n - 1), &json!({ "type": "object" }))) }),
        ),
    ];
    for (name, members) in cases {
        check(render, name, members);
    }
}

#[test]
fn replies() {
    let open = json!({ "type": "object" });
    let many = |n: usize| list(n, |index| tool(index, &open));
    let texts = |n: usize, name: &dyn Fn(usize) -> String, arguments: Value| {
        (0..n).map(|index| written(&name(index), &arguments)).collect::<String>()
    };
    let one = |schema: &Value, arguments: &Value| json!({ "tools": [tool(0, schema)], "output": written("f0", arguments) });
    let names = |n: usize| list(n, |index| format!("k{index}").into());
    let cases: [(&str, &dyn Fn(usize) -> Value); 14] = [
        (
            "calls of many tools",
            &|n| json!({ "tools": many(n), "output": texts(n, &|index| format!("f{index}"), json!({})) }),
        ),
        ("calls of a large tool", &|n| {
            let schema = json!({ "properties": object(n, |_| json!({})) });
            json!({ "tools": [tool(0, &schema)], "output": texts(n, &|_| "f0".to_owned(), json!({ "k1": 1 })) })
        }),
        ("calls with an unknown member", &|n| {
            let schema = json!({ "properties": { "a": {} } });
            json!({ "tools": [tool(0, &schema)], "output": texts(n, &|_| "f0".to_owned(), json!({ "b": 1 })) })
        }),
        (
            "unknown tools",
            &|n| json!({ "tools": many(1), "output": texts(n, &|_| "g".to_owned(), json!({})) }),
        ),
        ("calls without tags", &|n| {
            let schema = json!({ "properties": { "k": { "enum": names(100) } } });
            let call = json!({ "name": "f0", "arguments": { "k": "k99" } }).to_string();
            json!({ "tools": [tool(0, &schema)], "output": call.repeat(n / 10) })
        }),
        ("required", &|n| one(&json!({ "required": names(n) }), &object(n, |_| 1.into()))),
        ("required, listed", &|n| {
            let properties = json!({ "a": {} });
            one(
                &json!({ "properties": properties, "required": names(n) }),
                &object(n, |_| 1.into()),
            )
        }),
        ("patterns", &|n| {
            let patterns =
                (0..n).map(|index| (format!("^p{index}$"), json!({}))).collect::<Map<_, _>>();
            one(&json!({ "patternProperties": patterns }), &object(n, |_| 1.into()))
        }),
        ("unevaluated", &|n| {
            let all = list(n, |index| json!({ "properties": { format!("k{index}"): {} } }));
            one(&json!({ "allOf": all, "unevaluatedProperties": false }), &object(n, |_| 1.into()))
        }),
        ("enum", &|n| {
            one(
                &json!({ "additionalProperties": { "enum": names(n) } }),
                &object(n, |_| "x".into()),
            )
        }),
        ("unique items", &|n| {
            let schema = json!({ "properties": { "a": { "uniqueItems": true } } });
            one(&schema, &json!({ "a": list(n, Value::from) }))
        }),
        ("a long name around members", &|n| {
            let (name, inner) =
                ("k".repeat(10 * n), json!({ "additionalProperties": { "type": "integer" } }));
            one(
                &json!({ "properties": { name.clone(): inner } }),
                &json!({ name: object(n, |_| 1.into()) }),
            )
        }),
        ("names that come twice", &|n| {
            let members: Vec<String> =
                (0..2 * n).map(|index| format!("\"k{}\":1", index / 2)).collect();
            let text = format!(
                "<tool_call>\n{{\"name\":\"f0\",\"arguments\":{{{}}}}}\n</tool_call>",
                members.join(",")
            );
            json!({ "tools": many(1), "output": text })
        }),
        ("response_format", &|n| {
            let schema = json!({ "required": names(n), "properties": object(n, |_| json!({})) });
            let format =
                json!({ "type": "json_schema", "json_schema": { "name": "x", "schema": schema } });
            json!({ "response_format": format, "output": object(n, |_| 1.into()).to_string() })
        }),
    ];
    for (name, members) in cases {
        check(parse, name, members);
    }
}
