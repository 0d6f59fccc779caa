//! Tests calls that models write differently from their format, and text that only looks like a
//! call. The expected messages are written by hand.

use serde_json::{Value, json};

use super::NamedCall;
use crate::test_support::replies::{PLAIN, Setting, family, parse};

const W: NamedCall = ("get_weather", "{\"city\": \"Paris\"}");
const A: NamedCall = ("add", "{\"a\": 1, \"b\": 2}");
const N: NamedCall = ("now", "{}");

fn tools() -> Vec<Value> {
    let tool = |name: &str, parameters: Value| json!({ "type": "function", "function": { "name": name, "parameters": parameters } });
    let object = |properties: Value, required: Value| json!({ "type": "object", "properties": properties, "required": required });
    let (string, integer) = (json!({ "type": "string" }), json!({ "type": "integer" }));
    vec![
        tool("get_weather", object(json!({ "city": string, "unit": string }), json!(["city"]))),
        tool("add", object(json!({ "a": integer, "b": integer }), json!(["a", "b"]))),
        tool("now", object(json!({}), json!([]))),
    ]
}

/// Checks the content and the calls of a reply.
#[track_caller]
fn check(format: &str, text: &str, content: &str, expected: &[NamedCall]) -> Vec<&'static str> {
    let parsed = parse(&family(format), &tools(), PLAIN, text);
    let calls: Vec<(&str, &str)> =
        parsed.tool_calls.iter().map(|call| (&*call.name, &*call.arguments)).collect();
    assert_eq!((&*parsed.content, calls), (content, expected.to_vec()), "{format}: {text:?}");
    parsed.diagnostics.iter().map(|diagnostic| diagnostic.code).collect()
}

#[track_caller]
fn is_text(format: &str, text: &str) {
    check(format, text, text, &[]);
}

fn tagged(inside: &str) -> String {
    format!("<tool_call>\n{inside}\n</tool_call>")
}

#[test]
fn objects_between_tags() {
    let call = "{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}";
    for (inside, codes) in [
        ("{\"get_weather\": {\"city\": \"Paris\"}}".to_owned(), vec![]),
        ("{\"name\": \"get_weather\", \"city\": \"Paris\"}".to_owned(), vec!["arguments_flat"]),
        (format!("{{\"tool_call\": {call}}}"), vec![]),
        (format!("{{\"function_call\": {call}}}"), vec![]),
        (format!("[[{call}]]"), vec![]),
        (
            call.replace("\"arguments\":", "// the city\n \"arguments\" /* * / ** */ :"),
            vec!["comments_removed"],
        ),
        (call.replace("Paris\"", "Paris\" /* of France */").to_owned(), vec!["comments_removed"]),
    ] {
        let expected =
            if inside.contains("France") { ("get_weather", "{\"city\": \"Paris\" }") } else { W };
        assert_eq!(check("hermes", &tagged(&inside), "", &[expected]), codes, "{inside}");
    }
    let flat = "{\"name\": \"add\", \"a\": 1, \"b\": 2}";
    assert_eq!(check("hermes", &tagged(flat), "", &[A]), ["arguments_flat"]);
    let empty = "{\"name\": \"now\", \"arguments\": []}";
    assert_eq!(check("hermes", &tagged(empty), "", &[N]), ["arguments_null"]);
    // A member that is not a parameter is not an argument.
    let other = "{\"name\": \"get_weather\", \"town\": \"Paris\"}";
    assert_eq!(
        check("hermes", &tagged(other), "", &[("get_weather", "{}")]),
        ["arguments_missing"]
    );
    for text in ["{\"later\": {\"city\": \"Paris\"}}", "{\"get_weather\": \"Paris\"}"] {
        is_text("hermes", &tagged(text));
    }
}

#[test]
fn other_notations_between_tags() {
    for inside in [
        "get_weather(city=\"Paris\")",
        "[get_weather(city='Paris',)]",
        "<function=get_weather>{\"city\": \"Paris\"}</function>",
        "<function=get_weather>\n<parameter name=\"city\">\nParis\n</parameter>\n</function>",
        "<function name=\"get_weather\">\n<parameter name=\"city\">Paris</parameter>\n</function>",
        "<invoke name=\"get_weather\">\n<parameter name=\"city\">Paris</parameter>\n</invoke>",
    ] {
        for format in ["hermes", "qwen-xml"] {
            check(format, &format!("So.\n{}\nOk.", tagged(inside)), "So.\n\nOk.", &[W]);
        }
    }
    for inside in ["later(city=\"Paris\")", "get_weather is a tool", "<invoke name=\"later\">"] {
        is_text("hermes", &tagged(inside));
    }
    for format in ["toolcall-array", "phi4-mini"] {
        let [open, close] = match format {
            "phi4-mini" => ["<|tool_call|>", "<|/tool_call|>"],
            _ => ["<TOOLCALL>", "</TOOLCALL>"],
        };
        let codes = check(format, &format!("No.{open}[]{close}"), "No.", &[]);
        assert_eq!(codes, ["empty_section"]);
    }
    assert_eq!(check("mistral-array", "[TOOL_CALLS][]", "", &[]), ["empty_section"]);
    is_text("mistral-array", "[TOOL_CALLS][] is an empty list");
}

#[test]
fn a_fence_around_tags_is_dropped() {
    let call = tagged("{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}");
    let now = tagged("{\"name\": \"now\", \"arguments\": {}}");
    check("hermes", &format!("So:\n```\n{call}\n```\nOk."), "So:\n\nOk.", &[W]);
    check("hermes", &format!("```xml\n{call}\n{now}\n```"), "", &[W, N]);
    // Tags that begin with another character.
    let p = "]<]minimax[>[";
    let elements = format!(
        "{p}<tool_call>\n{p}<invoke name=\"get_weather\">{p}<city>Paris{p}</city>{p}</invoke>\n{p}</tool_call>"
    );
    check("minimax-m3", &format!("So:\n```\n{elements}\n```\nOk."), "So:\n\nOk.", &[W]);
    is_text("minimax-m3", "```\n](a)\n```");
    is_text("hermes", "```\n<tool_call> opens a call\n```");
    is_text("hermes", "```html\n<table>\n```");
    let object =
        "{\"tool_calls\": [{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}]}";
    for format in ["hermes", "llama3", "gemma4"] {
        check(format, &format!("```json\n{object}\n```"), "", &[W]);
    }
    is_text("hermes", "```json\n{\"tool_calls\": []}\n```");
}

#[test]
fn calls_without_tags() {
    check("llama3", "{\"name\": \"now\"}", "", &[N]);
    is_text("llama3", "{\"name\": \"get_weather\"}");
    is_text("llama3", "See {\"name\": \"now\"}.");
    is_text("llama3", "{\"get_weather\": {\"city\": \"Paris\"}}");
    is_text("llama3", "{\"name\": \"get_weather\", \"town\": \"Paris\"}");
    check("llama3", "[get_weather(city=\"Paris\"), now()]", "", &[W, N]);
    is_text("llama3", "[later(city=\"Paris\")]");
    is_text("llama3", "See [now()] for it.");
    let codes = check("llama3", "<|python_tag|>get_weather.call(city=\"Paris\")", "", &[W]);
    assert_eq!(codes, ["eog_text_removed"]);
    let codes = check("llama3", "<|python_tag|>print(1)", "print(1)", &[]);
    assert_eq!(codes, ["eog_text_removed"]);
    check("pythonic", "[ get_weather( city = \"Paris\" ) ]", "", &[W]);
    check("pythonic", "[\n  get_weather(\n    city=\"Paris\",\n  ),\n]", "", &[W]);
    check("pythonic", "[now()], and so on", ", and so on", &[N]);
}

#[test]
fn an_end_of_a_turn_that_opens_calls_is_an_end() {
    let sep = "<|message_sep|>";
    let no_calls = Setting { calls_allowed: false, ..PLAIN };
    for setting in [PLAIN, no_calls] {
        let parsed = parse(&family("gigachat3.1"), &tools(), setting, &format!("Hi.{sep}\n\n"));
        assert_eq!((&*parsed.content, parsed.tool_calls.len()), ("Hi.", 0));
    }
}

#[test]
fn messages_of_other_roles_are_no_content() {
    let tool =
        "<|start|>functions.now to=assistant<|channel|>commentary<|message|>{\"t\": 1}<|end|>";
    for (next, content, reasoning) in [
        ("<|start|>user<|message|>And?", "Hi.", None),
        ("<|start|>system<|message|>Be brief.<|end|>", "Hi.", None),
        (&*format!("{tool}<|start|>assistant<|channel|>analysis<|message|>R"), "Hi.", Some("R")),
    ] {
        let text = format!("<|channel|>final<|message|>Hi.<|end|>{next}");
        let parsed = parse(&family("harmony"), &tools(), PLAIN, &text);
        assert_eq!((&*parsed.content, parsed.reasoning.as_deref()), (content, reasoning), "{text}");
        assert_eq!(parsed.diagnostics[0].code, "next_turn_removed");
    }
    let text = "<|channel|>final<|message|>The tag <|start|> opens a message.";
    let parsed = parse(&family("harmony"), &tools(), PLAIN, text);
    assert_eq!(parsed.content, "The tag <|start|> opens a message.");
}

#[test]
fn a_header_that_the_end_cuts_off_is_reported() {
    for text in ["<|channel|>analysis", "<|channel|>commentary to=functions.now", "<|channel|>"] {
        let parsed = parse(&family("harmony"), &tools(), PLAIN, text);
        assert_eq!((&*parsed.content, parsed.complete), ("", false), "{text}");
        assert_eq!(parsed.leftover, [text]);
        assert_eq!(parsed.diagnostics[0].code, "dangling_marker");
    }
}
