//! Tests requests that are large, deep or expensive. Each test runs in a child process, because a
//! failure may end the process, and so that its memory can be measured.

use std::ffi::CString;
use std::process::Command;

use llb::ffi;
use serde_json::{Value, json};

use crate::abi::{Chat, ask, scripted_model, take};

#[track_caller]
fn in_child(name: &str, run: fn()) {
    run_in_child(&format!("large::{name}"), run);
}

/// Runs the test of this name again in a child process.
#[track_caller]
pub fn run_in_child(name: &str, run: fn()) {
    const CHILD: &str = "LLB_TEST_CHILD";
    if std::env::var_os(CHILD).is_some() {
        return run();
    }
    let output = Command::new(std::env::current_exe().unwrap())
        .args([name, "--exact", "--nocapture"])
        .env(CHILD, "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {text}{errors}", output.status);
    assert!(text.contains("1 passed"), "{name} did not run: {text}");
    print!("{}", text.lines().filter(|line| line.contains("MB")).collect::<Vec<_>>().join("\n"));
}

/// The peak memory of this process, in MB.
fn peak() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() / 1024
}

type TemplateFunction = unsafe extern "C" fn(*const std::ffi::c_char) -> *const std::ffi::c_char;

fn template_text(function: TemplateFunction, request: String) -> Value {
    let request = CString::new(request).unwrap();
    // SAFETY: NUL-terminated.
    take(unsafe { function(request.as_ptr()) })
}

/// 16 MB of one element.
fn list(element: &str) -> String {
    let count = (16 << 20) / (element.len() + 1);
    format!("[{element}{}]", format!(",{element}").repeat(count - 1))
}

/// Parsed as usual, `[0,0,…]` takes 54 times as much memory as its text: 900 MB.
#[test]
fn large_requests_take_little_memory() {
    in_child("large_requests_take_little_memory", || {
        let chat = Chat::open(&scripted_model("tool_call.gguf"));
        const USER: &str = r#"{"role":"user","content":"Hello"}"#;
        let request =
            |members: &str| format!(r#"{{"messages":[{USER}],"max_tokens":1,{members}}}"#);
        let before = peak();
        let elements = ["0", "{}", "\"\"", "[0]", r#"{"a":0}"#, r#"{"a":{"a":{"a":0}}}"#];
        for element in elements {
            let list = list(element);
            let calls = format!(
                r#"{{"role":"assistant","content":null,"tool_calls":[{{"id":"a","type":"function","function":{{"name":"f","arguments":{list}}}}}]}}"#
            );
            let requests = [
                request(&format!(
                    r#""tools":[{{"type":"function","function":{{"name":"f","parameters":{{"enum":{list}}}}}}}]"#
                )),
                request(&format!(r#""chat_template_kwargs":{{"x":{list}}}"#)),
                request(&format!(
                    r#""response_format":{{"type":"json_schema","json_schema":{{"schema":{{"enum":{list}}}}}}}"#
                )),
                request(&format!(r#""stop":{list}"#)),
                request(&format!(r#""unknown":{list}"#)),
                format!(r#"{{"messages":[{{"role":"user","content":{list}}}]}}"#),
                format!(r#"{{"messages":{list}}}"#),
                format!(r#"{{"messages":[{USER},{calls},{USER}]}}"#),
            ];
            for request in requests {
                let reply = chat.explain_text(&request);
                assert_eq!(reply["error"]["code"], "INVALID_REQUEST", "{element}");
                let message = reply["error"]["message"].as_str().unwrap();
                assert_eq!(message, "request_json: has more than 1000000 values and member names");
            }
            let functions: [TemplateFunction; 4] = [
                ffi::llb_template_render,
                ffi::llb_template_parse,
                ffi::llb_template_info,
                ffi::llb_template_compose,
            ];
            for function in functions {
                let reply = template_text(function, request(&format!(r#""unknown":{list}"#)));
                assert_eq!(reply["error"]["code"], "INVALID_REQUEST", "{element}");
            }
        }
        println!("lists: {} MB", peak() - before);
        // JSON inside strings: the arguments of a call in the history, and of a call in a reply.
        let zeros = list("0");
        let arguments = format!(r#"{{\"a\":{zeros}}}"#);
        let calls = format!(
            r#"{{"role":"assistant","content":null,"tool_calls":[{{"id":"a","type":"function","function":{{"name":"f","arguments":"{arguments}"}}}}]}}"#
        );
        let history = format!(r#""messages":[{USER},{calls},{USER}]"#);
        chat.explain_text(&format!("{{{history}}}"));
        let source = json!(
            std::fs::read_to_string(concat!(
                env!("CARGO_MANIFEST_DIR"),
                "/tests/scripted/tools.jinja"
            ))
            .unwrap()
        );
        template_text(
            ffi::llb_template_render,
            format!(r#"{{"chat_template":{source},{history}}}"#),
        );
        let tools = r#""tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}]"#;
        println!("render: {} MB", peak() - before);
        for output in [
            format!(r#"<tool_call>\n{{\"name\":\"f\",\"arguments\":{arguments}}}\n</tool_call>"#),
            zeros,
            "x".repeat(16 << 20),
        ] {
            template_text(
                ffi::llb_template_parse,
                format!(r#"{{"chat_template":{source},{tools},"output":"{output}"}}"#),
            );
        }
        // Just below the limit.
        let most = format!("[0{}]", ",0".repeat(990_000));
        let reply =
            chat.explain_text(&request(&format!(r#""chat_template_kwargs":{{"x":{most}}}"#)));
        assert_eq!(reply["type"], "explanation", "{reply}");
        let used = peak() - before;
        println!("{used} MB");
        assert!(used < 500, "{used} MB");
    });
}

/// A chain of 1,000 definitions, as in schemas of large interfaces.
fn chain() -> Value {
    let reference = |index: usize| json!({ "$ref": format!("#/$defs/r{index}") });
    let mut definitions: serde_json::Map<String, Value> = (0..1_000)
        .map(|index| {
            let properties =
                json!({ "next": reference(index + 1), "count": { "type": "integer" } });
            (format!("r{index}"), json!({ "type": "object", "properties": properties }))
        })
        .collect();
    definitions.insert("r1000".to_owned(), json!({ "type": "string" }));
    json!({ "type": "object", "properties": { "a": reference(0) }, "$defs": definitions })
}

#[test]
fn many_references_compile_on_a_small_stack() {
    in_child("many_references_compile_on_a_small_stack", || {
        let model = scripted_model("tool_call.gguf");
        let run = move || {
            let chat = Chat::open(&model);
            let format = json!({ "type": "json_schema", "json_schema": { "schema": chain() } });
            let reply = chat.explain(&ask(json!({ "response_format": format })));
            assert_eq!(reply["type"], "explanation", "{reply}");
            let rules = (0..3_000).map(|index| format!("r{index}: r{}\n", index + 1));
            let grammar = format!("start: r0\n{}r3000: \"a\"", rules.collect::<String>());
            let reply = chat.infer(&ask(json!({ "grammar": grammar })));
            assert_eq!(reply["text"], "a", "{reply}");
        };
        // The test itself needs a part of the stack.
        let thread = std::thread::Builder::new().stack_size(256 << 10).spawn(run).unwrap();
        thread.join().unwrap();
    });
}

/// Uses an intersection of nested repetitions, for which llguidance needs more than a minute.
#[test]
fn a_time_out_ends_the_wait_for_a_grammar() {
    in_child("a_time_out_ends_the_wait_for_a_grammar", || {
        let chat = Chat::open(&scripted_model("tool_call.gguf"));
        let names: Vec<String> = (0..2000).map(|index| format!("T{index}")).collect();
        let terminals = names.iter().map(|name| format!("{name}: /{name}[a-z]{{1,40}}/\n"));
        let grammar = format!("start: {}\n{}", names.join(" | "), terminals.collect::<String>());
        let reply = chat.infer(&ask(json!({ "grammar": grammar, "timeout_ms": 2 })));
        assert_eq!(
            (&reply["finish_reason"], &reply["text"]),
            (&json!("cancelled"), &json!("")),
            "{reply}"
        );
        // The chat, its model and the process end while the compiler may still be running.
        assert_eq!(chat.infer(&ask(json!({})))["type"], "assistant_text");
    });
}
