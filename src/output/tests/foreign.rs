//! Tests calls in the form of a family other than the model's own. The expected messages are
//! written by hand. The cases are in one file because they share the checks.

use serde_json::{Value, json};

use super::{NamedCall, good_arguments};
use crate::output::*;
use crate::test_support::random::Random;
use crate::test_support::replies::{PLAIN, Setting, drive, family, feed, parse, reply_parser};

const W: NamedCall = ("get_weather", "{\"city\": \"Paris\"}");
const N: NamedCall = ("now", "{}");

/// Forms of calls with the calls in them: `get_weather` with a city, and `now` without arguments.
const FORMS: &[(&str, &str, &[NamedCall])] = &[
    (
        "hermes",
        "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}\n</tool_call>",
        &[W],
    ),
    ("mistral-args", "[TOOL_CALLS]get_weather[ARGS]{\"city\": \"Paris\"}", &[W]),
    (
        "mistral-array",
        "[TOOL_CALLS] [{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}, {\"name\": \"now\", \"arguments\": {}}]",
        &[W, N],
    ),
    (
        "kimi-k2",
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>{\"city\": \"Paris\"}<|tool_call_end|><|tool_calls_section_end|>",
        &[W],
    ),
    ("lfm2", "<|tool_call_start|>[get_weather(city=\"Paris\"), now()]<|tool_call_end|>", &[W, N]),
    (
        "deepseek-v3.1",
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{\"city\": \"Paris\"}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        &[W],
    ),
    (
        "qwen-xml",
        "<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n</function>\n</tool_call>\n<tool_call>\n<function=now>\n</function>\n</tool_call>",
        &[W, N],
    ),
    ("functionary-3.1", "<function=get_weather>{\"city\": \"Paris\"}</function>", &[W]),
    (
        "glm-kv",
        "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n</tool_call>",
        &[W],
    ),
    ("gemma4", "<|tool_call>call:get_weather{city:<|\"|>Paris<|\"|>}<tool_call|>", &[W]),
    (
        "toolcall-array",
        "<TOOLCALL>[{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}]</TOOLCALL>",
        &[W],
    ),
    (
        "cohere-action",
        "<|START_ACTION|>[\n    {\"tool_call_id\": \"0\", \"tool_name\": \"get_weather\", \"parameters\": {\"city\": \"Paris\"}}\n]<|END_ACTION|>",
        &[W],
    ),
    (
        "command-r-plus",
        "Action:\n```json\n[\n    {\n        \"tool_name\": \"get_weather\",\n        \"parameters\": {\"city\": \"Paris\"}\n    }\n]```",
        &[W],
    ),
    (
        "phi4-mini",
        "<|tool_call|>[{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}]<|/tool_call|>",
        &[W],
    ),
    (
        "firefunction",
        "functools[{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}]",
        &[W],
    ),
    (
        "joined-tag",
        "<toolcall>{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}</toolcall>",
        &[W],
    ),
    ("react", "Action: get_weather\nAction Input: {\"city\": \"Paris\"}", &[W]),
    ("qwen-agent", "✿FUNCTION✿: get_weather\n✿ARGS✿: {\"city\": \"Paris\"}", &[W]),
    (
        "lm-studio",
        "[TOOL_REQUEST]{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}[END_TOOL_REQUEST]",
        &[W],
    ),
    (
        "tools-tag",
        "<tools>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}\n</tools>",
        &[W],
    ),
    (
        "function-call-tag",
        "<function_call>{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}</function_call>",
        &[W],
    ),
    (
        "glaive",
        "<functioncall> {\"name\": \"get_weather\", \"arguments\": '{\"city\": \"Paris\"}'} <|endoftext|>",
        &[W],
    ),
    (
        "tool-call-elements",
        "<tool_call>\n<name>get_weather</name>\n<arguments>{\"city\": \"Paris\"}</arguments>\n</tool_call>",
        &[W],
    ),
    (
        "tool-call-attribute",
        "<tool_call name=\"get_weather\">{\"city\": \"Paris\"}</tool_call>",
        &[W],
    ),
    (
        "function-parameters",
        "<function=get_weather>\n<parameter name=\"city\">\nParis\n</parameter>\n</function>",
        &[W],
    ),
    (
        "named-parameters",
        "<function name=\"get_weather\">\n<parameter name=\"city\">Paris</parameter>\n</function>",
        &[W],
    ),
    (
        "deepseek-underscores",
        "<｜tool_calls_begin｜><｜tool_call_begin｜>function<｜tool_sep｜>get_weather\n```json\n{\"city\": \"Paris\"}\n```<｜tool_call_end｜><｜tool_calls_end｜>",
        &[W],
    ),
    (
        "named-object",
        "<tool_call>get_weather\n```json\n{\"city\": \"Paris\"}\n```\n</tool_call>",
        &[W],
    ),
    (
        "claude",
        "<function_calls>\n<invoke name=\"get_weather\">\n<parameter name=\"city\">Paris</parameter>\n</invoke>\n</function_calls>",
        &[W],
    ),
    (
        "python-tag",
        "<|python_tag|>{\"name\": \"get_weather\", \"parameters\": {\"city\": \"Paris\"}}",
        &[W],
    ),
    ("python-tag-call", "<|python_tag|>get_weather.call(city=\"Paris\")", &[W]),
    ("python-start", "<|python_start|>[get_weather(city=\"Paris\"), now()]<|python_end|>", &[W, N]),
    (
        "functiongemma",
        "<start_function_call>call:get_weather{city:<escape>Paris<escape>}<end_function_call>",
        &[W],
    ),
    (
        "longcat",
        "<longcat_tool_call>get_weather\n<longcat_arg_key>city</longcat_arg_key>\n<longcat_arg_value>Paris</longcat_arg_value>\n</longcat_tool_call>",
        &[W],
    ),
    (
        "step3",
        "<｜tool_calls_begin｜><｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name=\"get_weather\"><steptml:parameter name=\"city\">Paris</steptml:parameter></steptml:invoke><｜tool_call_end｜><｜tool_calls_end｜>",
        &[W],
    ),
    (
        "dsml-spaced",
        "<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"get_weather\">\n<｜DSML｜ parameter name=\"city\" string=\"true\">Paris</｜DSML｜ parameter>\n</｜DSML｜ invoke>\n</｜DSML｜ calls>",
        &[W],
    ),
    (
        "hy3-plain",
        "<tool_calls>\n<tool_call>get_weather<tool_sep>\n<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n</tool_call>\n</tool_calls>",
        &[W],
    ),
    (
        "hy4-plain",
        "<tool_calls><tool_call>get_weather<arg_key>city</arg_key><arg_value>Paris</arg_value></tool_call><tool_call>now</tool_call></tool_calls>",
        &[W, N],
    ),
    (
        "k2-horizon",
        "<ifm|tool_calls><ifm|tool_call>get_weather<ifm|arg_key>city</ifm|arg_key><ifm|arg_value>Paris</ifm|arg_value></ifm|tool_call>\n<ifm|tool_call>now</ifm|tool_call></ifm|tool_calls>",
        &[W, N],
    ),
    (
        "k2-horizon-typed",
        "<ifm|tool_calls><ifm|tool_call>get_weather<ifm|arg_key>city</ifm|arg_key><ifm|arg_type>string</ifm|arg_type><ifm|arg_value>Paris</ifm|arg_value></ifm|tool_call></ifm|tool_calls>",
        &[W],
    ),
    (
        "k2-horizon-json",
        "<ifm|tool_calls><ifm|tool_call>{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}</ifm|tool_call></ifm|tool_calls>",
        &[W],
    ),
    ("gemma4-name", "<|tool_call>get_weather{city:<|\"|>Paris<|\"|>}<tool_call|>", &[W]),
    ("gemma4-colon", "<|tool_call>:get_weather{city:<|\"|>Paris<|\"|>}<tool_call|>", &[W]),
    (
        "functions-list",
        "functions[{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}]",
        &[W],
    ),
    (
        "pangu",
        "[unused11][{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}][unused12]",
        &[W],
    ),
    ("gorilla", "<<function>>get_weather(city=\"Paris\")", &[W]),
    ("nexusraven", "Call: get_weather(city=\"Paris\")<bot_end>", &[W]),
];

/// Formats whose own calls begin with other tags.
const HOSTS: [&str; 4] = ["internlm2", "hy3", "solar", "bare-array"];

fn tools() -> Vec<Value> {
    let city = json!({ "type": "object", "properties": { "city": { "type": "string" } } });
    let tool = |name: &str, parameters: Value| json!({ "type": "function", "function": { "name": name, "parameters": parameters } });
    vec![tool("get_weather", city), tool("now", json!({ "type": "object", "properties": {} }))]
}

fn calls(parsed: &ParsedReply) -> Vec<(&str, &str)> {
    parsed.tool_calls.iter().map(|call| (&*call.name, &*call.arguments)).collect()
}

fn codes(parsed: &ParsedReply) -> Vec<&str> {
    parsed.diagnostics.iter().map(|diagnostic| diagnostic.code).collect()
}

#[track_caller]
fn is_text(format: &str, setting: Setting, text: &str) {
    let parsed = parse(&family(format), &tools(), setting, text);
    assert_eq!((&*parsed.content, calls(&parsed)), (text, Vec::new()), "{format}");
    assert_eq!(codes(&parsed), Vec::<&str>::new(), "{format}: {text:?}");
}

#[test]
fn a_call_of_a_given_tool_counts_in_any_form() {
    for host in HOSTS {
        for (form, text, expected) in FORMS {
            let parsed = parse(&family(host), &tools(), PLAIN, &format!("Let me see.\n\n{text}\n"));
            assert_eq!(calls(&parsed), *expected, "{form} in {host}: {parsed:?}");
            assert_eq!(parsed.content, "Let me see.", "{form} in {host}");
            let note = &parsed.diagnostics[0];
            assert_eq!(note.code, "call_in_foreign_format", "{form} in {host}");
            let tag: String = text.chars().take_while(|c| !c.is_whitespace()).collect();
            let shown = note.message.split('`').nth(1).unwrap();
            assert!(tag.starts_with(shown), "{form} in {host}: {}", note.message);
        }
    }
}

#[test]
fn a_reply_without_a_format_may_have_calls() {
    for (form, text, expected) in FORMS {
        let mut parser = ReplyParser::new(ReplyParserInput {
            format: None,
            tools: tools().into(),
            calls_allowed: true,
            reasoning: true,
            json: false,
            parallel: true,
            new_id: Box::new(|| "id".to_owned()),
        });
        for c in text.chars() {
            parser.push(c.encode_utf8(&mut [0; 4]));
        }
        let (_, parsed) = parser.finish();
        assert_eq!((&*parsed.content, calls(&parsed)), ("", expected.to_vec()), "{form}");
    }
}

#[test]
fn forms_of_other_families_are_text_without_a_given_tool() {
    for (form, text, _) in FORMS {
        for host in HOSTS {
            let no_calls = Setting { calls_allowed: false, ..PLAIN };
            let parsed = parse(&family(host), &[], no_calls, text);
            assert_eq!((&*parsed.content, calls(&parsed)), (*text, Vec::new()), "{form} in {host}");
            let other = text.replace("get_weather", "get_wether");
            let other = other.split("now").next().unwrap().trim_end();
            let parsed = feed(&family(host), &tools(), PLAIN, [other]);
            assert_eq!((&*parsed.content, calls(&parsed)), (other, Vec::new()), "{form} in {host}");
        }
    }
}

#[test]
fn a_mention_of_an_opening_is_text() {
    for text in [
        "The tag <tool_call> opens a call, </tool_call> closes it.",
        "Mistral writes [TOOL_CALLS] and then get_weather.",
        "<tool_call> <tool_call>",
        "Use <function=NAME> or <function name=\"NAME\">.",
        "import functools\nfunctools[0]\nfunctools.reduce(f)",
        "functions[0] is the first.\nfunctions [are] values",
        "Action: wait.\nAction Input: none",
        "Action: get_weather is what I would use.",
        "Call: get_weather, please",
        "<invoke name=\"get_weather\"> begins a call",
        "[TOOL_CALLS",
        "[TOOL_CALLS]",
        "[TOOL_CALLS]get_weather",
        "<function=get_weather>",
        "See functools[{\"name\": \"get_weather\", \"arguments\": {}}] above",
        "<tool_call></tool_call>",
        "<tools>[]</tools>",
    ] {
        is_text("internlm2", PLAIN, text);
    }
}

#[test]
fn a_call_between_tags_of_another_family() {
    let hermes = "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}\n</tool_call>";
    let glm = "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n</tool_call>";
    for (format, call) in [("hermes", hermes), ("glm-kv", glm), ("lfm2", glm), ("hy3", hermes)] {
        for (open, close) in [
            ("<tools>\n", "\n</tools>"),
            ("<TOOLCALL>", "</TOOLCALL>"),
            ("<toolcall> ", " </toolcall>"),
            ("<function_call>", "</function_call>"),
        ] {
            let text = format!("So: {open}{call}{close}");
            let parsed = parse(&family(format), &tools(), PLAIN, &text);
            assert_eq!(calls(&parsed), [W], "{format}: {text}");
            let content: String = parsed.content.split_whitespace().collect();
            assert_eq!(content, format!("So:{}{}", open.trim(), close.trim()), "{format}");
        }
    }
}

#[test]
fn calls_of_other_families_in_code_are_text() {
    let call = "<function=get_weather>{\"city\": \"Paris\"}</function>";
    for text in [
        format!("```xml\n{call}\n```"),
        format!("Write\n\n```\nx = 1\n{call}\n```\nthen."),
        format!("Write `{call}` then."),
    ] {
        is_text("internlm2", PLAIN, &text);
    }
    let after = format!("```\nx = 1\n```\n{call}");
    let parsed = parse(&family("internlm2"), &tools(), PLAIN, &after);
    assert_eq!((&*parsed.content, calls(&parsed)), ("```\nx = 1\n```", vec![W]));
    // A special token cannot be a mention.
    let setting = Setting { special: &["[TOOL_CALLS]"], ..PLAIN };
    let text = "```\n[TOOL_CALLS]zz[ARGS]{\"a\": 1}";
    let parsed = parse(&family("internlm2"), &tools(), setting, text);
    assert_eq!((&*parsed.content, calls(&parsed)), ("```", vec![("zz", "{\"a\": 1}")]));
    assert_eq!(codes(&parsed), ["call_in_foreign_format", "unknown_tool"]);
}

#[test]
fn strings_of_a_json_reply_are_text() {
    let text = "{\"a\": \"[TOOL_CALLS]get_weather[ARGS]{}\"}";
    for format in ["internlm2", "hermes"] {
        let format = family(format);
        let mut parser = ReplyParser::new(ReplyParserInput {
            format: Some(&format),
            tools: tools().into(),
            calls_allowed: true,
            reasoning: true,
            json: true,
            parallel: true,
            new_id: Box::new(|| "id".to_owned()),
        });
        parser.push(text);
        let (_, parsed) = parser.finish();
        assert_eq!((&*parsed.content, calls(&parsed)), (text, Vec::new()));
    }
}

#[test]
fn the_own_form_comes_first() {
    // Both families begin with this tag. The model's own family treats a name without arguments as
    // text.
    let own = "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n</tool_call>";
    let parsed = parse(&family("glm-kv"), &tools(), PLAIN, own);
    assert_eq!((calls(&parsed), codes(&parsed)), (vec![W], Vec::new()));
    let both = format!("{own}\n[TOOL_CALLS]now{{}}\n{own}\nDone.");
    let parsed = parse(&family("glm-kv"), &tools(), PLAIN, &both);
    assert_eq!((&*parsed.content, calls(&parsed)), ("Done.", vec![W, N, W]));
    assert_eq!(codes(&parsed), ["call_in_foreign_format"]);
}

#[test]
fn calls_of_other_families_in_reasoning() {
    let call = "[TOOL_CALLS]now[ARGS]{}";
    let setting = Setting { prompt: "<think>\n", ..PLAIN };
    let closed = format!("I may write {call} here.\n</think>\nNo.");
    let parsed = parse(&family("hermes"), &tools(), setting, &closed);
    let reasoning = format!("I may write {call} here.");
    assert_eq!(parsed.reasoning, Some(reasoning));
    assert_eq!((&*parsed.content, calls(&parsed)), ("No.", Vec::new()));
    let parsed = parse(&family("hermes"), &tools(), setting, &format!("Now.\n{call}"));
    assert_eq!((parsed.reasoning.as_deref(), calls(&parsed)), (Some("Now."), vec![N]));
}

#[test]
fn calls_of_other_families_are_validated() {
    for (argument, counts) in [("good", true), ("bad", false)] {
        let mut parser = reply_parser(&family("internlm2"), &tools(), PLAIN);
        parser.set_call_validator(good_arguments());
        parser.validate_unconstrained_calls();
        let text = format!("[TOOL_CALLS]get_weather[ARGS]{{\"city\": \"{argument}\"}}");
        parser.push(&text);
        let (_, parsed) = parser.finish();
        assert_eq!(parsed.tool_calls.len() == 1, counts);
        assert_eq!(parsed.content == text, !counts);
        let codes = codes(&parsed);
        assert_eq!(codes == ["malformed_call"], !counts, "{codes:?}");
    }
}

/// When a reply grows, the message parsed from its beginning only gains parts.
#[test]
fn the_message_of_a_longer_beginning_only_adds() {
    for (form, text, _) in FORMS {
        let text = format!("So:\n{text}\nDone.");
        let mut last = ParsedReply::default();
        for (at, _) in text.char_indices() {
            let mut parser = reply_parser(&family("internlm2"), &tools(), PLAIN);
            parser.expect_more();
            parser.push(&text[..at]);
            let (_, parsed) = parser.finish();
            assert!(parsed.content.starts_with(&last.content), "{form}: {:?}", &text[..at]);
            assert!(parsed.tool_calls.len() >= last.tool_calls.len(), "{form}: {:?}", &text[..at]);
            for (longer, shorter) in parsed.tool_calls.iter().zip(&last.tool_calls) {
                let same = longer.name == shorter.name;
                assert!(same && longer.arguments.starts_with(&shorter.arguments), "{form}");
            }
            last = parsed;
        }
    }
}

#[test]
fn a_namespace_before_the_name_of_a_tool_is_left_out() {
    let call = |name: &str| {
        format!("<tool_call>\n{{\"name\": \"{name}\", \"arguments\": {{}}}}\n</tool_call>")
    };
    for name in ["functions.now", "default_api.now", "a.b:now", "server/now"] {
        let parsed = parse(&family("hermes"), &tools(), PLAIN, &call(name));
        assert_eq!((calls(&parsed), codes(&parsed)), (vec![N], vec!["tool_name_shortened"]));
    }
    for name in ["functions.later", "now.functions", "xnow"] {
        let parsed = parse(&family("hermes"), &tools(), PLAIN, &call(name));
        assert_eq!((calls(&parsed), codes(&parsed)), (vec![(name, "{}")], vec!["unknown_tool"]));
    }
}

#[test]
fn objects_with_other_keys_are_calls() {
    let city = "{\"city\": \"Paris\"}";
    for object in [
        format!("{{\"tool\": \"get_weather\", \"tool_input\": {city}}}"),
        format!("{{\"action\": \"get_weather\", \"action_input\": {city}}}"),
        format!("{{\"function\": \"get_weather\", \"arguments\": {city}}}"),
        format!("{{\"function_name\": \"get_weather\", \"args\": {city}}}"),
        format!("{{\"input\": {city}, \"name\": \"get_weather\"}}"),
        format!("{{\"tool_name\": \"get_weather\", \"tool_arguments\": {city}}}"),
        format!("```json\n{{\"name\": \"get_weather\", \"arguments\": {city}}}\n```"),
    ] {
        let parsed = parse(
            &family("hermes"),
            &tools(),
            PLAIN,
            &format!("<tool_call>\n{object}\n</tool_call>"),
        );
        let seen = (&*parsed.content, calls(&parsed), codes(&parsed));
        assert_eq!(seen, ("", vec![W], Vec::new()), "{object}");
    }
}

#[test]
fn a_closing_tag_that_the_end_cuts_off_is_no_text() {
    let text = "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>";
    for at in "</".len().."</tool_call>".len() {
        let cut = &text[..text.len() - "</tool_call>".len() + at];
        let parsed = parse(&family("hermes"), &tools(), PLAIN, cut);
        let seen = (&*parsed.content, calls(&parsed), codes(&parsed));
        assert_eq!(seen, ("", vec![N], vec!["missing_end_marker"]), "{cut:?}");
    }
}

#[test]
fn a_reply_that_is_an_object_with_calls_counts_in_any_format() {
    let weather = "{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}";
    let openai = "{\"id\": \"x\", \"type\": \"function\", \"function\": {\"name\": \"get_weather\", \
                  \"arguments\": \"{\\\"city\\\": \\\"Paris\\\"}\"}}";
    let now = "{\"name\": \"now\", \"arguments\": {}}";
    let cases: [(String, &[NamedCall], &str); 5] = [
        (format!("{{\"tool_calls\": [{weather}, {now}]}}"), &[W, N], ""),
        (format!("{{\"tool_calls\": [{openai}]}}"), &[W], ""),
        (format!("{{\"tool_call\": {weather}}}"), &[W], ""),
        (format!("{{\"function_call\": {weather}}}\nDone."), &[W], "Done."),
        (format!("{{\"tool_calls\": [{now}], \"content\": \"Wait.\"}}"), &[N], "Wait."),
    ];
    for host in ["hermes", "llama3", "internlm2", "gemma4"] {
        for (text, expected, content) in &cases {
            let parsed = parse(&family(host), &tools(), PLAIN, text);
            assert_eq!((&*parsed.content, calls(&parsed)), (*content, expected.to_vec()), "{host}");
            assert!(codes(&parsed).contains(&"call_in_foreign_format"), "{host}");
        }
        // A format without tags has calls inside other text.
        for text in [
            "{\"tool_calls\": []}",
            "{\"content\": \"x\", \"tool_calls\": [{\"name\": \"now\", \"arguments\": {}}]}",
            "{\"tool_call\": \"now\"}",
            "{\"function_call\": {\"name\": \"now\", \"arguments\"",
            "{\"a\": {\"tool_calls\": [{\"name\": \"now\", \"arguments\": {}}]}}",
        ] {
            if host != "llama3" {
                is_text(host, PLAIN, text);
            }
        }
        let unknown = "{\"tool_calls\": [{\"name\": \"later\", \"arguments\": {}}]}";
        let parsed = parse(&family(host), &tools(), PLAIN, unknown);
        if host != "llama3" {
            let seen = (&*parsed.content, calls(&parsed), codes(&parsed));
            assert_eq!(seen, (unknown, Vec::new(), vec!["call_like_content"]), "{host}");
        }
    }
}

#[test]
fn a_call_in_a_fence_counts_in_any_format() {
    for host in ["llama3", "internlm2", "gemma4", "toolcall-array"] {
        for language in ["", "json", "tool_call"] {
            let text = format!(
                "Sure.\n```{language}\n{{\"name\": \"get_weather\", \"arguments\": {{\"city\": \"Paris\"}}}}\n```"
            );
            let parsed = parse(&family(host), &tools(), PLAIN, &text);
            let seen = (&*parsed.content, calls(&parsed), codes(&parsed));
            assert_eq!(seen, ("Sure.", vec![W], vec!["fenced_call"]), "{host}");
        }
        let unknown = "```json\n{\"name\": \"later\", \"arguments\": {}}\n```";
        let parsed = parse(&family(host), &tools(), PLAIN, unknown);
        let seen = (&*parsed.content, calls(&parsed), codes(&parsed));
        assert_eq!(seen, (unknown, Vec::new(), vec!["call_like_content"]), "{host}");
        is_text(host, PLAIN, "```json\n{\"city\": \"Paris\"}\n```");
    }
}

#[test]
fn a_fenced_list_or_python_call_counts() {
    let weather = "{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}";
    let now = "{\"name\": \"now\", \"arguments\": {}}";
    let cases: [(String, &[(&str, &str)]); 7] = [
        (format!("```json\n[{weather}]\n```"), &[W]),
        (format!("```\n[\n  {weather},\n  {now}\n]\n```"), &[W, N]),
        ("```tool_code\nget_weather(city=\"Paris\")\n```".to_owned(), &[W]),
        ("```tool_code\nprint(get_weather(city='Paris'))\n```".to_owned(), &[W]),
        ("```tool_code\nprint(default_api.get_weather(city = \"Paris\"))\n```".to_owned(), &[W]),
        ("```tool_code\nnow()\n```".to_owned(), &[N]),
        ("```tool_code\n[get_weather(city=\"Paris\"), now()]\n```".to_owned(), &[W, N]),
    ];
    for host in ["hermes", "llama3", "gemma4", "internlm2"] {
        for (text, expected) in &cases {
            let parsed = parse(&family(host), &tools(), PLAIN, &format!("So:\n{text}\nOk."));
            let seen = (&*parsed.content, calls(&parsed));
            assert_eq!(seen, ("So:\n\nOk.", expected.to_vec()), "{host}: {text}");
            assert!(codes(&parsed).contains(&"fenced_call"));
        }
        for text in [
            "```tool_code\nlater(city=\"Paris\")\n```",
            "```tool_code\nprint(\"x\")\n```",
            "```python\nnow()\n```",
            "```tool_code\nx = 1\n```",
        ] {
            is_text(host, PLAIN, text);
        }
    }
    for text in [
        format!("```json\n[{weather}, {weather}"),
        format!("```json\n[{weather}] and\n```"),
        "```tool_code\nnow() + 1\n```".to_owned(),
        "```tool_code\nnow(".to_owned(),
    ] {
        let parsed = parse(&family("internlm2"), &tools(), PLAIN, &text);
        assert_eq!((&*parsed.content, calls(&parsed)), (&*text, Vec::new()));
    }
}

/// Replies of the markers and calls of all families, in formats of every kind and with
/// vocabularies: cutting the text changes nothing, deltas add up, and the message of a longer
/// beginning only adds. `LLB_ROUNDS` sets the number of replies.
#[test]
fn random_replies_with_vocabularies() {
    let rounds = std::env::var("LLB_ROUNDS").ok().and_then(|rounds| rounds.parse().ok());
    let families = families::all();
    let markers: Vec<String> =
        families.iter().flat_map(Format::texts).map(str::to_owned).chain(call_tags()).collect();
    let mut random = Random::new(7);
    for _ in 0..rounds.unwrap_or(400) {
        let special: Vec<String> =
            (0..random.below(4)).map(|_| markers[random.below(markers.len())].clone()).collect();
        let own = &families[random.below(families.len())];
        let format = match random.below(4) {
            0 => None,
            1 => evident(own, &special),
            _ => Some(own.clone()),
        };
        let texts = own.texts();
        let mut text = String::new();
        for _ in 0..random.below(16) {
            match random.below(8) {
                0 | 1 if !texts.is_empty() => text += texts[random.below(texts.len())],
                2 => text += &markers[random.below(markers.len())],
                3 => text += FORMS[random.below(FORMS.len())].1,
                4 => {
                    let form = FORMS[random.below(FORMS.len())].1;
                    let at = random.below(form.len());
                    text += &form[..form.floor_char_boundary(at)];
                }
                _ => text += random.pick(&PIECES),
            }
        }
        let parser = |partial: bool| {
            let mut ids = 0;
            let mut parser = ReplyParser::new(ReplyParserInput {
                format: format.as_ref(),
                tools: tools().into(),
                calls_allowed: true,
                reasoning: !text.len().is_multiple_of(5),
                json: text.len().is_multiple_of(7),
                parallel: true,
                new_id: Box::new(move || {
                    ids += 1;
                    format!("id{ids}")
                }),
            });
            parser.set_special_openings(special.clone().into());
            if partial {
                parser.expect_more();
            }
            parser
        };
        let read =
            |pieces: &mut dyn Iterator<Item = &str>, partial: bool| drive(parser(partial), pieces);
        let whole = read(&mut std::iter::once(&*text), false);
        let mut cut = random.pieces(&text).into_iter();
        assert_eq!(whole, read(&mut cut, false), "{format:?} {special:?} {text:?}");
        // The same with control tokens: cutting the text between them changes nothing.
        let controls: Vec<&str> =
            texts.iter().copied().chain(special.iter().map(|token| &**token)).collect();
        let parts = parts(&text, &controls);
        let [whole_parts, characters] =
            [false, true].map(|single| read_controls(parser(false), &parts, single));
        assert_eq!(whole_parts, characters, "{format:?} {special:?} {text:?}");
        for _ in 0..4 {
            let at = text.floor_char_boundary(random.below(text.len() + 1));
            let beginning = read(&mut std::iter::once(&text[..at]), true);
            assert!(
                extends(&whole, &beginning),
                "{at} {whole:?} {beginning:?} {special:?} {text:?}"
            );
        }
    }
}

/// Text between markers.
const PIECES: [&str; 20] = [
    "get_weather",
    "now",
    "later",
    "{\"name\": \"now\", \"arguments\": {}}",
    "{\"city\": \"Paris\"}",
    "{",
    "}",
    "[",
    "]",
    "(",
    ")",
    "\"",
    "\n",
    " ",
    "```",
    "```json\n",
    "```tool_code\n",
    "text",
    "é🦙",
    "`",
];

/// Parses parts of which every second one is a control token. If `single`, the other parts are
/// pushed one character at a time.
fn read_controls(mut parser: ReplyParser, parts: &[&str], single: bool) -> ParsedReply {
    let mut deltas = Vec::new();
    for (index, part) in parts.iter().enumerate() {
        match (index % 4, single) {
            (1, _) => deltas.extend(parser.push_control(part)),
            (_, false) => deltas.extend(parser.push(part)),
            (_, true) => part.chars().for_each(|c| {
                deltas.extend(parser.push(c.encode_utf8(&mut [0; 4])));
            }),
        }
    }
    let (last, parsed) = parser.finish();
    deltas.extend(last);
    let shown = deltas.iter().filter_map(|delta| match delta {
        Delta::Content(text) => Some(&**text),
        _ => None,
    });
    assert_eq!(shown.collect::<String>(), parsed.content, "{parts:?}");
    parsed
}

/// Splits a text at these markers into the text before each marker and the marker.
fn parts<'t>(text: &'t str, markers: &[&str]) -> Vec<&'t str> {
    let (mut parts, mut start, mut at) = (Vec::new(), 0, 0);
    while at < text.len() {
        let rest = &text[at..];
        match markers.iter().find(|marker| rest.starts_with(**marker)) {
            Some(marker) => {
                parts.extend([&text[start..at], &rest[..marker.len()]]);
                at += marker.len();
                start = at;
            }
            None => at += rest.chars().next().map_or(1, char::len_utf8),
        }
    }
    parts.push(&text[start..]);
    parts
}

fn call_tags() -> impl Iterator<Item = String> {
    families::call_markers().into_iter()
}

fn evident(family: &Format, special: &[String]) -> Option<Format> {
    let instructions = family.texts().join("NAME");
    let clues = FormatClues {
        instructions: if special.len() > 1 { "" } else { &instructions },
        tool_words: &["plimsoll"],
        turns: &[],
        is_special: &|text| special.iter().any(|token| token == text),
        in_source: &|_| true,
    };
    clues.find().ok().flatten().map(|found| found.format)
}

fn extends(longer: &ParsedReply, shorter: &ParsedReply) -> bool {
    let reasoning = |parsed: &ParsedReply| parsed.reasoning.clone().unwrap_or_default();
    let grown = |(longer, shorter): (&ToolCall, &ToolCall)| {
        longer.id == shorter.id
            && longer.name == shorter.name
            && longer.arguments.starts_with(&shorter.arguments)
    };
    longer.content.starts_with(&shorter.content)
        && reasoning(longer).starts_with(&reasoning(shorter))
        && longer.tool_calls.len() >= shorter.tool_calls.len()
        && longer.tool_calls.iter().zip(&shorter.tool_calls).all(grown)
}
