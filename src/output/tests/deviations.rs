//! Tests calls that models write differently from their format, and text that only looks like a
//! call. The expected messages are written by hand.

use serde_json::{Value, json};

use super::NamedCall;
use crate::diagnostic::Diagnostic;
use crate::output::format::{CallPart, CallSyntax, Encoding};
use crate::output::{CallValidator, Delta, Format, ParsedReply, ToolCall, families};
use crate::test_support::replies::{PLAIN, Setting, family, parse, reply_parser};

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

/// Accepts arguments in which both numbers are numbers.
fn numbers() -> CallValidator {
    Box::new(|_, arguments| match serde_json::from_str::<Value>(arguments) {
        Ok(arguments) if arguments["a"].is_u64() && arguments["b"].is_u64() => Ok(()),
        _ => Err(Diagnostic::new("wrong", "no numbers")),
    })
}

#[test]
fn strings_in_place_of_numbers() {
    let object = |a: &str, b: &str| {
        format!("{{\"name\": \"add\", \"arguments\": {{\"a\": {a}, \"b\": {b}}}}}")
    };
    let read = |text: &str| {
        let mut parser = reply_parser(&family("lfm2"), &tools(), PLAIN);
        parser.set_call_validator(numbers());
        parser.validate_unconstrained_calls();
        parser.push(text);
        parser.finish().1
    };
    for text in [
        object("\"1\"", "2"),
        format!("```json\n{}\n```", object("\"1\"", "\" 2 \"")),
        tagged(&object("1", "\"2\"")),
        "[TOOL_CALLS]add[ARGS]{\"a\":\"1\",\"b\":\"2\"}".to_owned(),
    ] {
        let parsed = read(&text);
        assert_eq!(parsed.tool_calls.len(), 1, "{text}: {parsed:?}");
        assert_eq!((&*parsed.content, &*parsed.tool_calls[0].arguments), ("", A.1), "{text}");
        assert!(parsed.diagnostics.iter().any(|it| it.code == "arg_coerced"), "{text}");
    }
    for text in [object("\"one\"", "2"), tagged(&object("\"1.5\"", "2")), object("\"1\"", "null")] {
        let parsed = read(&text);
        assert_eq!((&*parsed.content, parsed.tool_calls.len()), (&*text, 0));
    }
}

#[test]
fn elements_without_their_end_tags() {
    let p = "]<]minimax[>[";
    let section = |calls: &str| {
        format!("{p}<tool_call>\n{calls}\n{p}</tool_call>").replace("P<", &format!("{p}<"))
    };
    for call in [
        "P<invoke name=\"get_weather\">P<city>ParisP</invoke>",
        "P<invoke name=\"get_weather\">P<city>ParisP</invoke>\nP<invoke name=\"now\">P</invoke>",
        "P<invoke name=\"add\">P<a>1P<b>2P</invoke>",
    ] {
        let calls = match call {
            call if call.contains("now") => &[W, N][..],
            call if call.contains("add") => &[A],
            _ => &[W],
        };
        assert!(check("minimax-m3", &section(call), "", calls).is_empty(), "{call}");
    }
    // Two single tags are not the end of a text.
    let text = format!("Paris{p}</invoke> and{p}</tool_call>.");
    let call = section(&format!("P<invoke name=\"get_weather\">P<city>{text}P</city>P</invoke>"));
    let arguments = json!({ "city": text }).to_string().replace(':', ": ");
    check("minimax-m3", &call, "", &[("get_weather", Box::leak(arguments.into_boxed_str()))]);
    let codes = check(
        "minimax-m3",
        &format!("Hi.{p}</tool_call> Yes."),
        &format!("Hi.{p}</tool_call> Yes."),
        &[],
    );
    assert_eq!(codes, ["stray_end_marker"]);
}

#[test]
fn a_later_form_of_the_same_tags() {
    let call = |between: &str| {
        format!(
            "<tool_calls:opensource><tool_call:opensource>get_weather{between}\
             <arg_key:opensource>city</arg_key:opensource>\
             <arg_value:opensource>Paris</arg_value:opensource></tool_call:opensource>\
             <tool_call:opensource>now{between}</tool_call:opensource></tool_calls:opensource>"
        )
    };
    assert!(check("hy3", &call("<tool_sep:opensource>"), "", &[W, N]).is_empty());
    assert_eq!(check("hy3", &call(""), "", &[W, N])[0], "foreign_family");
}

#[test]
fn arguments_in_one_more_object() {
    let hermes = |arguments: &str| {
        tagged(&format!("{{\"name\": \"get_weather\", \"arguments\": {arguments}}}"))
    };
    let qwen = |key: &str, value: &str| {
        tagged(&format!(
            "<function=get_weather>\n<parameter={key}>\n{value}\n</parameter>\n</function>"
        ))
    };
    for (format, text) in [
        ("hermes", hermes("{\"arguments\": {\"city\": \"Paris\"}}")),
        ("hermes", hermes("{ \"properties\" : {\"city\": \"Paris\"} }")),
        ("hermes", hermes("{\"parameters\": \"{\\\"city\\\": \\\"Paris\\\"}\"}")),
        ("qwen-xml", qwen("arguments", "{\"city\": \"Paris\"}")),
        ("qwen-xml", qwen("input", "{'city': 'Paris'}")),
        ("mistral-args", "[TOOL_CALLS]get_weather[ARGS]{\"args\": {\"city\": \"Paris\"}}".into()),
        (
            "gemma4",
            "<|tool_call>call:get_weather{arguments:{city:<|\"|>Paris<|\"|>}}<tool_call|>".into(),
        ),
        (
            "lfm2",
            "<|tool_call_start|>[get_weather(arguments={'city': 'Paris'})]<|tool_call_end|>".into(),
        ),
    ] {
        assert_eq!(check(format, &text, "", &[W]), ["arguments_unwrapped"], "{text}");
    }
    for arguments in [
        // The keys or the types are not those of the parameters.
        "{\"arguments\": {\"town\": \"Paris\"}}",
        "{\"properties\": {\"city\": {\"type\": \"string\"}}}",
        "{\"arguments\": {}}",
        "{\"arguments\": [{\"city\": \"Paris\"}]}",
        // Another member.
        "{\"arguments\": {\"city\": \"Paris\"}, \"unit\": \"C\"}",
        "{\"city\": \"Paris\", \"arguments\": {\"city\": \"Rome\"}}",
        // Another key.
        "{\"argument\": {\"city\": \"Paris\"}}",
        "{\"value\": {\"city\": \"Paris\"}}",
    ] {
        let codes = check("hermes", &hermes(arguments), "", &[("get_weather", arguments)]);
        assert_eq!(codes, Vec::<&str>::new(), "{arguments}");
    }
    // The tool has a parameter of this name.
    let parameters = json!({ "type": "object", "properties": { "input": {}, "city": {} } });
    let tool = json!({ "type": "function", "function": { "name": "get_weather", "parameters": parameters } });
    let arguments = "{\"input\": {\"city\": \"Paris\"}}";
    let parsed = parse(&family("hermes"), &[tool], PLAIN, &hermes(arguments));
    assert_eq!(parsed.tool_calls[0].arguments, arguments);
    // A key that may become that of a parameter is shown at once.
    let parameters = json!({ "type": "object", "properties": { "arg1": {} } });
    let tool =
        json!({ "type": "function", "function": { "name": "now", "parameters": parameters } });
    let mut parser = reply_parser(&family("hermes"), &[tool], PLAIN);
    let deltas = parser.push("<tool_call>\n{\"name\": \"now\", \"arguments\": {\"arg");
    let arguments = deltas.iter().map(|delta| match delta {
        Delta::Arguments { fragment, .. } => &**fragment,
        _ => "",
    });
    assert_eq!(arguments.collect::<String>(), "{\"arg");
    // The end cuts the arguments off.
    let cut = hermes("{\"arguments\": {\"city\": \"Paris\"");
    let cut = cut.trim_end_matches("}\n</tool_call>");
    let parsed = parse(&family("hermes"), &tools(), PLAIN, cut);
    assert_eq!(parsed.tool_calls[0].arguments, "{\"arguments\": {\"city\": \"Paris\"");
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

/// A call of `get_weather` in a syntax of calls, with this text in place of its arguments.
fn with_body(calls: &CallSyntax, body: &str) -> String {
    let part = |part: &CallPart| match part {
        CallPart::Text(text) => text.to_string(),
        CallPart::Name => "get_weather".to_owned(),
        CallPart::Id(_) => "1".to_owned(),
        CallPart::Arguments(_) => format!("\n{body}"),
    };
    let call: String = calls.call.iter().map(part).collect();
    format!("{}{call}{}", calls.open, calls.close)
}

/// Reads a reply whose calls of other families must have a city, except those of `now`.
fn read_checked(format: &Format, text: &str) -> ParsedReply {
    let mut parser = reply_parser(format, &tools(), PLAIN);
    parser.set_call_validator(Box::new(|name, arguments| {
        let arguments: Option<Value> = serde_json::from_str(arguments).ok();
        match arguments.filter(|it| it.is_object() && (name == "now" || it["city"].is_string())) {
            Some(_) => Ok(()),
            None => Err(Diagnostic::new("wrong", "no city")),
        }
    }));
    parser.validate_unconstrained_calls();
    parser.push(text);
    parser.finish().1
}

#[test]
fn elements_with_another_body_are_no_call_without_arguments() {
    let bodies = [
        "Paris",
        "city=Paris",
        "[\"Paris\"]",
        "{\"city\": \"Paris\"}",
        "\"city\": \"Paris\"",
        "<city>Paris</city>",
        "<param name=\"city\">Paris</param>",
        "<parameter=city>Paris</parameter>",
        "<parameter name=\"city\">Paris</parameter>",
        "<arg_key>city</arg_key><arg_value>Paris</arg_value>",
        "<function=city>Paris</function>",
        "<invoke name=\"city\">Paris</invoke>",
        "<tool_call>to Paris</tool_call>",
        "<|open|>json type=\"object\"<|sep|>Paris<|close|>json<|sep|>",
        "<|open|>city<|sep|>Paris<|close|>city<|sep|>",
        "<|im_end|>Paris",
    ];
    let (mut families, mut wrong) = (0, Vec::new());
    for (name, calls) in families::calls() {
        let is_elements = |part: &CallPart| {
            matches!(part, CallPart::Arguments(Encoding::Tagged(_) | Encoding::Elements { .. }))
        };
        if !calls.call.iter().any(is_elements) {
            continue;
        }
        families += 1;
        let own = Format { calls: Some(calls.clone()), ..family("hermes") };
        for body in bodies {
            let text = with_body(calls, body);
            for format in [&own, &family("llama3"), &family("gemma4")] {
                let parsed = read_checked(format, &text);
                let has_city = |call: &ToolCall| call.arguments.contains("Paris");
                let is_shown =
                    parsed.content.contains("Paris") || parsed.tool_calls.iter().any(has_city);
                if !is_shown || !parsed.tool_calls.iter().all(has_city) {
                    wrong.push(format!("{name} in {}: {text:?}: {parsed:?}", format.family));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}:\n{}", wrong.len(), wrong.join("\n"));
    assert!(families > 15, "{families}");
}

#[test]
fn elements_with_text_are_reported() {
    for (format, text) in [
        ("qwen-xml", tagged("<function=get_weather>\nParis\n</function>")),
        ("glm-kv", tagged("get_weather\nParis")),
        (
            "seed-oss",
            "<seed:tool_call>\n<function=get_weather>\n<city>Paris</city>\n\
             </function>\n</seed:tool_call>"
                .into(),
        ),
        (
            "minimax-m2",
            "<minimax:tool_call>\n<invoke name=\"get_weather\">\nParis\n\
             </invoke>\n</minimax:tool_call>"
                .into(),
        ),
    ] {
        assert_eq!(check(format, &text, &text, &[])[0], "malformed_call", "{text}");
    }
    // Nothing closes the call, and its tool requires arguments.
    for (format, text) in [
        (
            "qwen-xml",
            "<tool_call>\n<function=get_weather>\n\
             <tool_call>\n<function=now>\n</function>\n</tool_call>",
        ),
        ("glm-kv", "<tool_call>get_weather\n<tool_call>now\n</tool_call>"),
    ] {
        let parsed = parse(&family(format), &tools(), PLAIN, text);
        let calls: Vec<_> = parsed.tool_calls.iter().map(|call| &*call.name).collect();
        assert_eq!(calls, ["now"], "{text}");
        assert!(parsed.content.contains("get_weather"), "{text}");
    }
}

#[test]
fn arguments_of_kimi_k3_as_one_object() {
    let call = |name: &str, index: usize, inside: &str| {
        format!("<|open|>call tool=\"{name}\" index=\"{index}\"<|sep|>{inside}<|close|>call<|sep|>")
    };
    let block =
        |inside: &str| format!("<|open|>json type=\"object\"<|sep|>{inside}<|close|>json<|sep|>");
    let section = |calls: &str| format!("<|open|>tools<|sep|>{calls}<|close|>tools<|sep|>");
    let read = |calls: &str| read_checked(&family("kimi-k3"), &section(calls));
    let named = |parsed: &ParsedReply| -> Vec<(String, String)> {
        let calls = parsed.tool_calls.iter();
        calls.map(|call| (call.name.clone(), call.arguments.clone())).collect()
    };
    let owned = |calls: &[NamedCall]| -> Vec<(String, String)> {
        calls
            .iter()
            .map(|(name, arguments)| ((*name).to_owned(), (*arguments).to_owned()))
            .collect()
    };
    let weather = call("get_weather", 1, &block(W.1));
    let now = call("now", 2, &block("{}"));
    let elements = call(
        "get_weather",
        2,
        "<|open|>argument key=\"city\" type=\"string\"<|sep|>Paris<|close|>argument<|sep|>",
    );
    for (calls, expected) in [
        (weather.clone(), &[W][..]),
        (format!("{weather}{now}"), &[W, N]),
        (format!("{weather}{elements}"), &[W, W]),
        (format!("{elements}{weather}"), &[W, W]),
        (call("now", 1, ""), &[N]),
        (format!("{}{weather}", call("now", 1, "")), &[N, W]),
        // The end of the first call is missing.
        (
            format!("{}{weather}", call("now", 1, "").trim_end_matches("<|close|>call<|sep|>")),
            &[N, W],
        ),
    ] {
        let parsed = read(&calls);
        assert_eq!((&*parsed.content, named(&parsed)), ("", owned(expected)), "{calls}");
    }
    let cut = "{\"city\": Paris";
    for inside in ["Paris", "[\"Paris\"]", "{\"town\": \"Paris\"}", "", cut] {
        let text = call("get_weather", 1, &block(inside));
        let parsed = read(&text);
        assert!(parsed.tool_calls.is_empty(), "{inside}: {parsed:?}");
        assert!(parsed.content.contains(&text), "{inside}: {parsed:?}");
        let code = parsed.diagnostics.first().map(|it| it.code);
        assert!(inside == cut || code == Some("malformed_call"), "{inside}: {parsed:?}");
    }
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
