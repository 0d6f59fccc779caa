//! Tests of the reply parser and of detection with the public types of this module. The cases are
//! in one file so that they can be compared.

mod adverse;
mod conformance;
mod deviations;
mod family_replies;
mod foreign;
mod markup;
mod untagged;
mod whitespace;

use serde_json::{Value, json};

use super::detect::round_trip::RoundTrip;
use super::*;
use crate::diagnostic::Diagnostic;
use crate::probing::{Probe, ProbeRenderer};
use crate::test_support::conformance::thread_time;
use crate::test_support::random::Random;
use crate::test_support::replies::{PLAIN, Setting, family, feed, parse, reply_parser};

/// The name of a tool and the arguments of a call.
type NamedCall = (&'static str, &'static str);

const NO_CALLS: Setting = Setting { calls_allowed: false, ..PLAIN };
const THINKING: Setting = Setting { prompt: "<think>\n", ..PLAIN };

fn hermes() -> Format {
    family("hermes")
}

fn tools() -> Vec<Value> {
    ["f", "g"]
        .map(|name| json!({ "type": "function", "function": { "name": name, "parameters": {} } }))
        .to_vec()
}

/// Checks one text and its message. Calls are `(name, arguments)`.
#[track_caller]
fn check(
    setting: Setting,
    text: &str,
    content: &str,
    reasoning: Option<&str>,
    calls: &[(&str, &str)],
    diagnostics: &[&str],
) -> ParsedReply {
    let parsed = parse(&hermes(), &tools(), setting, text);
    assert_eq!(parsed.content, content, "content of {text:?}");
    assert_eq!(parsed.reasoning.as_deref(), reasoning, "reasoning of {text:?}");
    let got: Vec<_> = parsed
        .tool_calls
        .iter()
        .map(|call| (call.name.as_str(), call.arguments.as_str()))
        .collect();
    assert_eq!(got, calls, "calls of {text:?}");
    let got: Vec<_> = parsed.diagnostics.iter().map(|diagnostic| diagnostic.code).collect();
    assert_eq!(got, diagnostics, "diagnostics of {text:?}");
    parsed
}

/// Checks a text without reasoning.
#[track_caller]
fn text_case(text: &str, content: &str, calls: &[(&str, &str)], diagnostics: &[&str]) {
    check(PLAIN, text, content, None, calls, diagnostics);
}

const C: &str = "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>";
const C2: &str = "<tool_call>\n{\"name\": \"g\", \"arguments\": {\"a\": 2}}\n</tool_call>";
const F1: (&str, &str) = ("f", "{\"a\": 1}");
const G2: (&str, &str) = ("g", "{\"a\": 2}");

#[test]
fn plain_text_is_content() {
    for text in [
        "",
        " ",
        "Hello, world!\nWhat's up?\n",
        "Use a set like {1,2}. a < b && c <= d",
        "Here is JSON: {\"a\": 1} done",
        "{\"a\": 1}",
        "tail <thi",
        "tail <tool_cal",
        "naïve 🦙 <\u{FF5C}x",
        "```python\nprint({'name': 'f'})\n```",
        "```json\n{\"location\": \"Paris\"}\n```\n",
        "```json\n{\"name\": \"f\"}\n```",
        "```json\n{\"name\": \"f\", \"arg",
        "```\n\n  ",
        "say ```json\n{\"name\": \"f\", \"arguments\": {}}\n```",
        "``",
    ] {
        text_case(text, text, &[], &[]);
    }
}

#[test]
fn calls_as_the_templates_write_them() {
    text_case(C, "", &[F1], &[]);
    text_case(&format!("{C}\n{C2}"), "", &[F1, G2], &[]);
    text_case(&format!("{C}{C2}"), "", &[F1, G2], &[]);
    text_case(&format!("Let me see.\n{C}"), "Let me see.", &[F1], &[]);
    text_case(&format!("T\n\n{C}\n"), "T", &[F1], &[]);
    text_case(&format!("{C}\nThat was it.\n"), "That was it.\n", &[F1], &[]);
    text_case(&C.replace('\n', ""), "", &[F1], &[]);
    text_case(&C.replace('\n', "\r\n"), "", &[F1], &[]);
    text_case(&C.replace("{\"a\": 1}", "{}"), "", &[("f", "{}")], &[]);
    let odd = "{\"a\":[1.5e10,  {\"b\":\"</tool_call> \\\"\\u00e9\\ud83e\\udd99\\\\\"}],\"n\":1234567890123456789012345}";
    text_case(&C.replace("{\"a\": 1}", odd), "", &[("f", odd)], &[]);
    check(
        Setting { parallel: false, ..PLAIN },
        &format!("{C}{C2}"),
        "",
        None,
        &[F1, G2],
        &["parallel_not_requested"],
    );
}

/// Text, content, calls, codes of diagnostics.
type TextCase =
    (&'static str, &'static str, &'static [(&'static str, &'static str)], &'static [&'static str]);

const CALLS_OF_MODELS: &[TextCase] = &[
    ("<tool_call>{\"arguments\": {\"a\": 1}, \"name\": \"f\"}</tool_call>", "", &[F1], &[]),
    ("<tool_call>{\"name\": \"f\", \"parameters\": {\"a\": 1}}</tool_call>", "", &[F1], &[]),
    (
        "<tool_call>{\"id\": 7, \"name\": \"f\", \"arguments\": {\"a\": 1}, \"x\": [1]}</tool_call>",
        "",
        &[F1],
        &[],
    ),
    (
        "<tool_call>{\"type\": \"function\", \"function\": {\"name\": \"f\", \"arguments\": {\"a\": 1}}}</tool_call>",
        "",
        &[F1],
        &[],
    ),
    ("<tool_call>{\"name\": \"f\"}</tool_call>", "", &[("f", "{}")], &["arguments_missing"]),
    (
        "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 01}}</tool_call>",
        "",
        &[F1],
        &["arg_coerced"],
    ),
    (
        "<tool_call>{\"arguments\": {\"a\": 01}, \"name\": \"f\"}</tool_call>",
        "",
        &[F1],
        &["arg_coerced"],
    ),
    (
        "<tool_call>{\"name\": \"f\", \"arguments\": null}</tool_call>",
        "",
        &[("f", "{}")],
        &["arguments_null"],
    ),
    (
        "<tool_call>{\"name\": \"f\", \"arguments\": \"{\\\"a\\\": 1}\"}</tool_call>",
        "",
        &[F1],
        &["arguments_string_unwrapped"],
    ),
    (
        "<tool_call>{\"arguments\": \"{\\\"a\\\": 1}\", \"name\": \"f\"}</tool_call>",
        "",
        &[F1],
        &["arguments_string_unwrapped"],
    ),
    (
        "<tool_call>{\"name\": \"f\", \"arguments\": \"\"}</tool_call>",
        "",
        &[("f", "{}")],
        &["arguments_string_unwrapped"],
    ),
    (
        "<tool_call>{\"name\": \"f\", \"arguments\": [1]}</tool_call>",
        "",
        &[("f", "[1]")],
        &["arguments_invalid_json"],
    ),
    (
        "<tool_call>\n{'name': 'f', 'arguments': {'a': True, 'b': [None, False], 'c': 'say \"hi\"', 'd': 'it\\'s'}}\n</tool_call>",
        "",
        &[("f", "{\"a\": true, \"b\": [null, false], \"c\": \"say \\\"hi\\\"\", \"d\": \"it's\"}")],
        &["python_literals"],
    ),
    (
        "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1}</tool_call>",
        "",
        &[F1],
        &["unbalanced_wrapper"],
    ),
    (
        "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1}}}\n</tool_call> x",
        "x",
        &[F1],
        &["unbalanced_wrapper"],
    ),
    (
        "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1}\nDone.",
        "Done.",
        &[F1],
        &["unbalanced_wrapper"],
    ),
    (
        "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1,}}</tool_call>",
        "",
        &[("f", "{\"a\": 1,}")],
        &["arguments_invalid_json"],
    ),
    (
        "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"x\ny\"}}</tool_call>",
        "",
        &[("f", "{\"a\": \"x\ny\"}")],
        &["arguments_invalid_json"],
    ),
    (
        "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": oops}}</tool_call>.",
        ".",
        &[("f", "{\"a\": oops}")],
        &["arguments_invalid_json"],
    ),
];

#[test]
fn calls_as_models_write_them() {
    for (text, content, calls, codes) in CALLS_OF_MODELS {
        text_case(text, content, calls, codes);
    }
    let unknown = C.replace("\"f\"", "\"zz\"");
    text_case(&unknown, "", &[("zz", F1.1)], &["unknown_tool"]);
    let two = "{\"name\": \"f\", \"arguments\": {\"a\": 1}}, {\"name\": \"g\", \"arguments\": {\"a\": 2}}";
    text_case(&format!("<tool_call>[{two}]</tool_call>"), "", &[F1, G2], &[]);
    text_case(
        &format!("<tool_call>\n{}\n</tool_call>", two.replace(", {\"n", "\n{\"n")),
        "",
        &[F1, G2],
        &[],
    );
}

#[test]
fn missing_and_surplus_tags() {
    text_case(C.trim_end_matches("</tool_call>"), "", &[F1], &["missing_end_marker"]);
    let open = C.trim_end_matches("\n</tool_call>");
    text_case(
        &format!("{open} And {{1,2}} is a set."),
        "And {1,2} is a set.",
        &[F1],
        &["missing_end_marker"],
    );
    text_case(&format!("{open}\n{C2}"), "", &[F1, G2], &["missing_end_marker"]);
    text_case(&format!("{open} x </tool_call> y"), "xy", &[F1], &["missing_end_marker"]);
    text_case(&format!("{C}\n<tool_call>\n"), "", &[F1], &["dangling_marker"]);
    text_case(&format!("<tool_call>\n{C}"), "", &[F1], &["dangling_marker"]);
    text_case("<tool_call>\n\n</tool_call>", "", &[], &["empty_section"]);
    for text in [
        "<tool_call>\nlook it up\n</tool_call>",
        "<tool_call>{\"a\": 1}</tool_call>",
        "<tool_call>{nope}</tool_call>",
    ] {
        text_case(text, text, &[], &["malformed_call"]);
    }
    for text in [
        "The tag <tool_call> is used…",
        "a <tool_call> <tool_call> b",
        "x <tool_call>\n\n[link](y)",
    ] {
        text_case(text, text, &[], &[]);
    }
    for text in ["Text </tool_call> more", "no thinking </think> stray close"] {
        text_case(text, text, &[], &["stray_end_marker"]);
    }
    let text = format!("<tool_call>{{<think>r</think>{C}");
    check(
        PLAIN,
        &text,
        "<tool_call>{",
        Some("r"),
        &[F1],
        &["malformed_call", "reasoning_reopened"],
    );
}

#[test]
fn truncated_calls() {
    let cut = |text: &str, calls: &[(&str, &str)], leftover: &[&str]| {
        let parsed = check(PLAIN, text, "", None, calls, &["truncated_call"]);
        assert!(!parsed.complete);
        assert_eq!(parsed.leftover, leftover);
    };
    cut("<tool_call>\n{\"name\": \"f\", \"arguments\": {\"arg1\": ", &[("f", "{\"arg1\": ")], &[]);
    cut("<tool_call>\n{\"name\": \"f\", \"arguments\": {\"arg", &[("f", "{\"arg")], &[]);
    cut(
        "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": \"x\\ud83e\\u",
        &[("f", "{\"a\": \"x\\ud83e\\u")],
        &[],
    );
    cut("<tool_call>\n{\"name\": \"f\", \"argum", &[], &["<tool_call>\n{\"name\": \"f\", \"argum"]);
    cut("<tool_call>\n{", &[], &["<tool_call>\n{"]);
    check(
        PLAIN,
        "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1}",
        "",
        None,
        &[F1],
        &["unbalanced_wrapper"],
    );
}

#[test]
fn fenced_calls() {
    let object = "{\"name\": \"f\", \"arguments\": {\"a\": 1}}";
    for text in [
        format!("```json\n{object}\n```"),
        format!("```\n{object}```\n"),
        format!("```json{object}\n\n```"),
        "```json\n{\"arguments\": {\"a\": 1}, \"name\": \"f\"}\n```".to_owned(),
    ] {
        text_case(&text, "", &[F1], &["fenced_call"]);
    }
    text_case(
        &format!("Sure.\n\n```json\n{object}\n```\nOk"),
        "Sure.\n\n\nOk",
        &[F1],
        &["fenced_call"],
    );
    text_case(&format!("```json\n{object}\n"), "", &[F1], &["missing_end_marker", "fenced_call"]);
    let two = format!("```json\n{object}\n{object}\n```");
    text_case(&two, "", &[F1, F1], &["fenced_call", "fenced_call"]);
    let more = format!("```json\n{object}\nand so on\n```");
    text_case(&more, &more, &[], &["call_like_content"]);
    let fenced = format!("```json\n{object}\n```");
    check(NO_CALLS, &fenced, &fenced, None, &[], &[]);
    text_case(&format!("```xml\n{C}\n```"), "", &[F1], &[]);
}

#[test]
fn calls_are_text_if_the_request_allows_none() {
    check(NO_CALLS, C, C, None, &[], &["call_without_tools"]);
    check(NO_CALLS, "The tag <tool_call> is", "The tag <tool_call> is", None, &[], &[]);
}

#[test]
fn reasoning() {
    check(PLAIN, "<think>\nR\n</think>\n\nT", "T", Some("R"), &[], &[]);
    check(PLAIN, &format!("<think>\nR\n</think>\n\n{C}"), "", Some("R"), &[F1], &[]);
    check(PLAIN, "<think>\n\n</think>\n\nT", "T", None, &[], &[]);
    check(THINKING, "R\n</think>\n\nT", "T", Some("R"), &[], &[]);
    check(THINKING, "</think>T", "T", None, &[], &[]);
    check(THINKING, "<think>\nR</think>T", "T", Some("R"), &[], &[]);
    check(THINKING, "R </thin", "", Some("R </thin"), &[], &["reasoning_unclosed"]);
    check(PLAIN, "<think>\nx</think", "", Some("x</think"), &[], &["reasoning_unclosed"]);
    check(PLAIN, "Hello<think>", "Hello", None, &[], &["reasoning_reopened", "dangling_marker"]);
    check(
        PLAIN,
        "<think>a</think>b<think>c</think>d",
        "bd",
        Some("a\nc"),
        &[],
        &["reasoning_reopened"],
    );
    check(NO_CALLS, &format!("<think>{C}</think>x"), "x", Some(C), &[], &["call_without_tools"]);
}

#[test]
fn calls_inside_reasoning() {
    let inside = format!("Think of {C} hmm");
    check(THINKING, &format!("{inside}\n</think>\n\n{C2}"), "", Some(&inside), &[G2], &[]);
    check(THINKING, &format!("Think.\n{C}"), "", Some("Think."), &[F1], &["call_in_reasoning"]);
    let mut parser = reply_parser(&hermes(), &tools(), THINKING);
    parser.push(&format!("Think.\n{C}"));
    let (_, parsed) = parser.finish_early();
    assert_eq!((parsed.tool_calls, parsed.reasoning), (Vec::new(), Some(format!("Think.\n{C}"))));
    check(
        THINKING,
        &format!("Think.\n{C}\n{C2}"),
        "",
        Some("Think."),
        &[F1, G2],
        &["call_in_reasoning"],
    );
    // A fence around the call goes with it.
    let fenced = format!("Think.\n```xml\n{C}\n```");
    check(THINKING, &fenced, "", Some("Think."), &[F1], &["call_in_reasoning"]);
    check(
        THINKING,
        &format!("{fenced}\n\nSo."),
        "So.",
        Some("Think."),
        &[F1],
        &["call_in_reasoning"],
    );
    check(THINKING, &format!("{fenced}\n</think>Done."), "Done.", Some(&fenced), &[], &[]);
    for code in [
        "Think.\n```json\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n```",
        "```\n<tool_call> opens a call\n```\nhm",
        "Try this:\n```html\n<table>\n```",
        "```python\nf(a=1)\n```",
        "`` ` ```\n```",
    ] {
        check(THINKING, code, "", Some(code), &[], &["reasoning_unclosed"]);
    }
    let mention = "the <tool_call> tag";
    check(THINKING, mention, "", Some(mention), &[], &["reasoning_unclosed"]);
    check(THINKING, &format!("{mention}</think>{C}"), "", Some(mention), &[F1], &[]);
}

/// Calls of a family whose models may end their reasoning with a call.
#[test]
fn calls_that_end_reasoning() {
    let format = family("qwen-xml");
    let call = |a: &str| {
        format!(
            "R\n<tool_call>\n<function=f>\n<parameter=a>\n{a}\n</parameter>\n</function>\n</tool_call>"
        )
    };
    let parser = || reply_parser(&format, &tools(), THINKING);
    let has_call = |deltas: &[Delta]| deltas.iter().any(|it| matches!(it, Delta::ToolCall { .. }));
    let parts = |parsed: &ParsedReply| {
        let calls = parsed.tool_calls.iter().map(|call| call.arguments.clone());
        (parsed.reasoning.clone().unwrap_or_default(), calls.collect::<Vec<_>>())
    };
    let expected = ("R".to_owned(), vec!["{\"a\": 1}".to_owned()]);
    // The reasoning may still close, so the call is held. A limit may cut the reply after it.
    for early in [false, true] {
        let mut parser = parser();
        assert!(!has_call(&parser.push(&call("1"))));
        let (_, parsed) = if early { parser.finish_early() } else { parser.finish() };
        assert_eq!(parts(&parsed), expected);
    }
    // A grammar allows no closing tag after the call.
    let mut parser = parser();
    parser.expect_constrained_calls();
    assert!(has_call(&parser.push(&call("</think>"))));
    let (_, parsed) = parser.finish();
    assert_eq!(parts(&parsed), ("R".to_owned(), vec!["{\"a\": \"</think>\"}".to_owned()]));
}

#[test]
fn calls_in_the_prompt_are_text() {
    for reasoning in [true, false] {
        let tools = tools();
        let mut parser = ReplyParser::new(ReplyParserInput {
            format: Some(&hermes()),
            tools: tools.into(),
            calls_allowed: true,
            reasoning,
            json: false,
            parallel: true,
            new_id: Box::new(String::new),
        });
        parser.prime(&format!("{C} so"), true);
        parser.push(C2);
        let (deltas, parsed) = parser.finish();
        let names: Vec<_> = parsed.tool_calls.iter().map(|call| call.name.as_str()).collect();
        assert_eq!(
            (parsed.content, names),
            (format!("{C} so"), vec!["g"]),
            "reasoning is separated: {reasoning}"
        );
        assert!(deltas.is_empty() && parsed.diagnostics.is_empty(), "{:?}", parsed.diagnostics);
    }
}

#[test]
fn a_header_without_a_known_name_is_text_at_once() {
    let mut parser =
        reply_parser(&family("functionary-3.2"), &tools(), Setting { prompt: ">>>", ..PLAIN });
    // If this text were held, the work on a long run of these markers would be quadratic.
    let deltas = [">>>", ">>>", ">>", ">z"].into_iter().flat_map(|text| parser.push(text));
    let shown = deltas.map(|delta| match delta {
        Delta::Content(text) => text,
        other => panic!("{other:?}"),
    });
    assert_eq!(shown.collect::<String>(), ">>>>>>>>>z");
}

#[test]
fn the_id_of_an_earlier_call_is_replaced() {
    for (id, codes) in [("abcdefgh1", vec!["id_generated"]), ("abcdefgh2", vec![])] {
        let mut parser = reply_parser(&family("mistral-id"), &tools(), PLAIN);
        parser.reserve_ids(["abcdefgh1".to_owned()].into_iter());
        parser.push(&format!("[TOOL_CALLS]f[CALL_ID]{id}[ARGS]{{\"a\": \"b\"}}"));
        let (_, parsed) = parser.finish();
        let codes_seen: Vec<_> =
            parsed.diagnostics.iter().map(|diagnostic| diagnostic.code).collect();
        let expected = if codes.is_empty() { id } else { "id1" };
        assert_eq!((&*parsed.tool_calls[0].id, codes_seen), (expected, codes));
    }
}

/// A validator that wants the word "good" in the arguments.
fn good_arguments() -> CallValidator {
    Box::new(|name, arguments| match arguments.contains("good") {
        true => Ok(()),
        false => Err(Diagnostic::new("wrong", format!("{name}: no good"))),
    })
}

#[test]
fn unconstrained_calls_are_validated() {
    let validated_as = |format: &str, text: &str| {
        let mut parser = reply_parser(&family(format), &tools(), PLAIN);
        parser.set_call_validator(good_arguments());
        parser.validate_unconstrained_calls();
        parser.push(text);
        let (_, parsed) = parser.finish();
        (
            parsed.content,
            parsed.tool_calls.into_iter().map(|call| call.arguments).collect::<Vec<_>>(),
        )
    };
    let validated = |text: &str| validated_as("hermes", text);
    let own = |value: &str| {
        format!(
            "<tool_call>\n{{\"name\": \"f\", \"arguments\": {{\"a\": \"{value}\"}}}}\n</tool_call>"
        )
    };
    let fenced = |value: &str| {
        format!("```json\n{{\"name\": \"f\", \"arguments\": {{\"a\": \"{value}\"}}}}\n```")
    };
    let foreign = |value: &str| {
        format!(
            "<tool_call>\n<function=f>\n<parameter=a>\n{value}\n</parameter>\n</function>\n</tool_call>"
        )
    };
    let call = |value: &str| (String::new(), vec![format!("{{\"a\": \"{value}\"}}")]);
    assert_eq!(validated(&own("bad")), call("bad"), "the grammar constrains this call");
    for way in [fenced, foreign] {
        assert_eq!(validated(&way("good")), call("good"));
        let bad = way("bad");
        assert_eq!(validated(&bad), (bad, vec![]));
    }
    let bare = |value: &str| format!("{{\"name\":\"f\",\"parameters\":{{\"a\": \"{value}\"}}}}");
    assert_eq!(validated_as("llama3", &bare("good")), call("good"));
    assert_eq!(validated_as("llama3", &bare("bad")), (bare("bad"), vec![]));
    let reasoned = format!("<think>{}", own("bad"));
    assert_eq!(validated(&reasoned), (String::new(), vec![]));
}

/// Each case lists the pushed pieces and the deltas of each push (`>` before reasoning, `#` before
/// a call).
#[test]
fn certain_text_is_emitted_at_once() {
    type Pushes = &'static [(&'static str, &'static str)];
    let cases: &[(&str, Setting, Pushes)] = &[
        ("content", PLAIN, &[("Hello", "Hello"), (" ", ""), ("you <", " you"), ("b", " <b")]),
        (
            "reasoning",
            THINKING,
            &[("\nI ", ">I"), ("see</", "> see"), ("think>\n\n", ""), ("So", "So")],
        ),
        (
            "call",
            PLAIN,
            &[
                ("Ok\n<tool_call>\n{\"name\": \"f\", \"arguments\": ", "Ok"),
                ("{\"a\":", "#f{\"a\":"),
                (" \"x\\u00", " \"x"),
                ("e9\\ud83e", "\\u00e9"),
                ("\\udd99\"", "\\ud83e\\udd99\""),
                ("}}\n</tool_call>\n", "}"),
            ],
        ),
        (
            "other fence",
            PLAIN,
            &[
                ("```py\n", ""),
                ("x", "```py\nx"),
                ("\n```\n", "\n```"),
                ("```json\n{\"name\": \"z", ""),
                ("\"", "\n```json\n{\"name\": \"z\""),
            ],
        ),
    ];
    for (name, setting, pushes) in cases {
        let mut parser = reply_parser(&hermes(), &tools(), *setting);
        for (piece, expected) in *pushes {
            let shown: String = parser
                .push(piece)
                .into_iter()
                .map(|delta| match delta {
                    Delta::Content(text) => text,
                    Delta::Reasoning(text) => format!(">{text}"),
                    Delta::ToolCall { name, .. } => format!("#{name}"),
                    Delta::Arguments { fragment, .. } => fragment,
                })
                .collect();
            assert_eq!(shown, *expected, "{name}: after {piece:?}");
        }
    }
}

#[test]
fn hostile_texts_take_linear_time() {
    let deep =
        format!("<tool_call>{{\"name\": \"f\", \"arguments\": {{\"a\": {}", "[".repeat(100_000));
    let parsed = feed(&hermes(), &tools(), PLAIN, [deep.as_str()]);
    assert_eq!(parsed.diagnostics[0].code, "truncated_call");
    let deep = format!("{deep}{}}}}}</tool_call>", "]".repeat(100_000));
    let parsed = feed(&hermes(), &tools(), PLAIN, [deep.as_str()]);
    assert_eq!(parsed.diagnostics[0].code, "arguments_too_deep");
    assert_eq!(parsed.tool_calls[0].arguments.len(), 200_000 + "{\"a\": }".len());
    for unit in [
        "<tool_call",
        "<tool_call>",
        "<tool_call>{",
        "<tool_call>{\"name\":\"",
        "<tool_call>{\"name\": \"f\", \"arguments\": {}, \"<tool_call>{'name': 'f', 'arguments': {}, '",
        "<think>",
        "</think>",
        "```json\n{\"name\": \"f\"\n",
        "{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n",
        "\n{\"name\": \"f\", \"arguments\": {\"a\": ",
        "{\"name\": \"f\", \"arguments\": {\"a\": '\n{\"id\": \"",
        "[f(a='\n",
        "<json>\n{\"name\": \"f\"",
        "\n</",
        "```json ",
        " \n",
        "{\"name\":",
        "</tool_call>,",
    ] {
        let text = unit.repeat(300_000 / unit.len());
        let start = thread_time();
        feed(&hermes(), &tools(), PLAIN, [text.as_str()]);
        // Linear work takes less than two seconds without optimization. Quadratic work would take
        // hours.
        let took = thread_time().saturating_sub(start);
        assert!(took.as_secs() < 30, "{unit:?} takes {took:?}");
    }
}

/// Pieces of markup, complete or not.
const PIECES: &[&str] = &[
    "<tool_call>",
    "</tool_call>",
    "<think>",
    "</think>",
    "```",
    "```json\n",
    "\n",
    " ",
    "\n\n",
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "\"",
    "'",
    "\\",
    "<",
    "</",
    "<tool",
    "{\"name\": \"f\", \"arguments\": {",
    "{\"name\": \"g\", ",
    "\"name\": \"f\"",
    "\"arguments\": ",
    "\"arguments\": \"{}\"",
    "null",
    "True",
    "1.5",
    "\\ud83e",
    "\\udd99",
    "é",
    "🦙",
    C,
    "}}\n</tool_call>",
    "{\"name\": \"f\", \"arguments\": {\"a\": 1}}",
    "\"x\"",
    "\"function\": {",
];
const FENCED: &str = "\n```json\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n```";
/// Pieces with complete calls only. Words next to them cannot be part of a call.
const WHOLE: &[&str] = &[
    "<tool_call>",
    "</tool_call>",
    "<think>",
    "</think>",
    "\n",
    " ",
    "\n\n",
    "<",
    "</too",
    "}",
    "]",
    ",",
    "é",
    "{1}",
    C,
    C2,
    FENCED,
];

#[test]
fn random_mixes_lose_nothing() {
    let (format, tools) = (hermes(), tools());
    let mut random = Random::new(1);
    for round in 0..4000 {
        let pieces = if round % 2 == 0 { PIECES } else { WHOLE };
        let (mut text, mut words) = (String::new(), Vec::new());
        for _ in 0..random.below(24) {
            if random.below(3) == 0 {
                let word = format!("w{}q", words.len());
                text += &word;
                words.push(word);
            } else {
                text += random.pick(pieces);
            }
        }
        let setting = Setting {
            calls_allowed: random.below(4) != 0,
            prompt: if random.below(4) == 0 { "<think>\n" } else { "" },
            parallel: random.below(2) == 0,
            ..PLAIN
        };
        let parsed = if round % 50 < 2 {
            parse(&format, &tools, setting, &text)
        } else {
            let whole = feed(&format, &tools, setting, [text.as_str()]);
            let pieces = random.pieces(&text);
            assert_eq!(whole, feed(&format, &tools, setting, pieces), "cut at random: {text:?}");
            whole
        };
        let mut shown =
            parsed.content.clone() + "\n" + parsed.reasoning.as_deref().unwrap_or_default();
        for call in &parsed.tool_calls {
            shown += &format!("\n{}\n{}", call.name, call.arguments);
        }
        shown += &parsed.leftover.concat();
        for word in &words {
            // Only unknown members of a call's object are removed. They are part of the markup.
            let lost = !shown.contains(word.as_str());
            assert!(
                !lost || round % 2 == 0 && !parsed.tool_calls.is_empty(),
                "{word} is lost: {text:?}\n{parsed:?}"
            );
        }
        if !setting.calls_allowed {
            let visible = |text: &str| text.chars().filter(|c| !c.is_whitespace()).count();
            let tags = text.matches("<think>").count() * 7 + text.matches("</think>").count() * 8;
            assert!(parsed.tool_calls.is_empty());
            assert!(
                visible(&parsed.content)
                    + visible(parsed.reasoning.as_deref().unwrap_or_default())
                    + tags
                    >= visible(&text)
            );
        }
    }
}

// Detection.

fn qwen_like(probe: &Probe, close: &str) -> String {
    with_calls(probe, |function| {
        let (name, arguments) = (&function["name"], &function["arguments"]);
        format!("\n<tool_call>\n{{\"name\": {name}, \"arguments\": {arguments}}}\n{close}")
    })
}

/// A prompt of Qwen's, with calls in the text that `write` returns for their functions.
fn with_calls(probe: &Probe, write: impl Fn(&Value) -> String) -> String {
    let tools = probe.tool_list().unwrap_or_default();
    let mut text = format!(
        "<|im_start|>system\n<tools>{}</tools> like <tool_call>{{\"name\": <n>}}</tool_call><|im_end|>\n",
        json!(tools)
    );
    for message in &probe.messages {
        text += &format!("<|im_start|>{}", message["role"].as_str().unwrap());
        if let Some(reasoning) = message["reasoning_content"].as_str() {
            text += &format!("\n<think>\n{reasoning}\n</think>\n");
        }
        if let Some(content) = message["content"].as_str().filter(|content| !content.is_empty()) {
            text += &format!("\n{content}");
        }
        for call in message["tool_calls"].as_array().into_iter().flatten() {
            text += &write(&call["function"]);
        }
        text += "<|im_end|>\n";
    }
    if probe.add_generation_prompt { text + "<|im_start|>assistant\n" } else { text }
}

fn qwen_renderer(change: fn(&Probe) -> String) -> ProbeRenderer<'static> {
    ProbeRenderer::new(move |probe| Ok::<_, String>(change(probe)))
}

fn native(renderer: &ProbeRenderer<'_>) -> Detected {
    Detected::native(renderer, &ReasoningEvidence::default())
}

#[test]
fn a_template_that_writes_the_format_is_detected() {
    let renderer = qwen_renderer(|probe| qwen_like(probe, "</tool_call>"));
    let format = native(&renderer).format.unwrap();
    assert_eq!(format, Format { verified: true, ..hermes() });
    let report = RoundTrip::new(&renderer).report(&format);
    assert_eq!(report.failed().count(), 0, "{report:?}");
}

#[test]
fn a_template_that_opens_reasoning_is_detected() {
    let renderer = qwen_renderer(|probe| {
        let text = qwen_like(probe, "</tool_call>");
        if probe.add_generation_prompt { text + "<think>\n" } else { text }
    });
    assert!(native(&renderer).format.is_some());
}

#[test]
fn a_family_has_the_whitespace_of_the_template() {
    // Qwen3-Coder's elements, but values without lines of their own.
    let renderer = qwen_renderer(|probe| {
        with_calls(probe, |function| {
            let members = function["arguments"].as_object().into_iter().flatten();
            let parameters: String = members
                .map(|(key, value)| match value.as_str() {
                    Some(text) => format!("<parameter={key}>{text}</parameter>\n"),
                    None => format!("<parameter={key}>{value}</parameter>\n"),
                })
                .collect();
            let name = function["name"].as_str().unwrap();
            format!("<tool_call>\n<function={name}>\n{parameters}</function>\n</tool_call>")
        })
    });
    let format = native(&renderer).format.unwrap();
    assert_eq!((&*format.family, format.verified), ("qwen-xml", true));
    let text =
        "<tool_call>\n<function=f>\n<parameter=a>\n x\n</parameter>\n</function>\n</tool_call>";
    let tools =
        [crate::probing::tool("f", "", &json!({ "properties": { "a": { "type": "string" } } }))];
    let parsed = parse(&format, &tools, PLAIN, text);
    assert_eq!(parsed.tool_calls[0].arguments, "{\"a\": \"\\n x\\n\"}");
}

#[test]
fn a_template_that_writes_another_format_is_inferred_or_unverified() {
    let wrong_close = qwen_renderer(|probe| qwen_like(probe, "</call>"));
    let other = native(&wrong_close).format.unwrap();
    assert!(
        other.verified
            && other.family == "inferred"
            && other.texts().iter().any(|text| text.contains("</call>")),
        "{other:?}"
    );
    let no_calls = qwen_renderer(|probe| {
        let mut plain = probe.clone();
        for message in &mut plain.messages {
            *message = json!({ "role": message["role"], "content": message["content"] });
        }
        qwen_like(&plain, "")
    });
    assert!(!native(&no_calls).format.unwrap().verified);
    let refuses = ProbeRenderer::new(|_| Err::<String, _>("no"));
    assert!(!native(&refuses).format.unwrap().verified);
    let report = RoundTrip::new(&refuses).report(&hermes());
    assert!(report.failed().all(|row| row.reason.contains("no")));
}

/// Checks one text in the polyfilled format.
#[track_caller]
fn polyfilled(
    text: &str,
    content: &str,
    calls: &[(&str, &str)],
    diagnostics: &[&str],
) -> ParsedReply {
    let parsed = parse(&families::polyfilled(), &tools(), PLAIN, text);
    let got: Vec<_> = parsed
        .tool_calls
        .iter()
        .map(|call| (call.name.as_str(), call.arguments.as_str()))
        .collect();
    let codes: Vec<_> = parsed.diagnostics.iter().map(|diagnostic| diagnostic.code).collect();
    assert_eq!(
        (parsed.content.as_str(), &got[..], &codes[..]),
        (content, calls, diagnostics),
        "{text:?}"
    );
    parsed
}

#[test]
fn calls_as_the_polyfill_writes_them() {
    let odd =
        "{\"a\": [1.50, 1234567890123456789012345, \"}]<tool_call>\\\"\"], \"tool_calls\": {}}";
    let one = |arguments: &str| {
        format!(
            "{{\n  \"tool_calls\": [\n    {{\"name\": \"f\", \"arguments\": {arguments}, \"id\": \"x\"}}\n  ]"
        )
    };
    polyfilled(&format!("{}\n}}", one(F1.1)), "", &[F1], &[]);
    polyfilled(
        &format!("\n {}, \"content\": \"Let \\\"me\\\" see.\"}}\n", one(odd)),
        "Let \"me\" see.",
        &[("f", odd)],
        &[],
    );
    polyfilled(
        "{\"content\":null,\"tool_calls\":[{\"name\":\"f\",\"arguments\":{\"a\": 1}},{\"name\":\"g\"}]}",
        "",
        &[F1, ("g", "{}")],
        &["arguments_missing"],
    );
    polyfilled(
        &format!("{}}} Done.", one("\"{}\"")),
        "Done.",
        &[("f", "{}")],
        &["arguments_string_unwrapped"],
    );
    polyfilled(C, "", &[F1], &[]);
    let cut = polyfilled(&one(F1.1), "", &[], &["truncated_call"]);
    assert!(!cut.complete && cut.leftover == [one(F1.1)]);
}

#[test]
fn other_objects_are_text_in_the_polyfilled_format() {
    for text in [
        "{\"a\": 1}",
        "{}",
        "{",
        "{\"con",
        "{\"tool_calls\": []}",
        "{\"tool_calls\": \"f\"}",
        "{\"tool_calls\": [1]}",
        "{\"tool_calls\": {}}",
        "{\"content\": \"c\"}",
        "{not JSON}",
        "Look: {\"tool_calls\": [{\"name\": \"f\", \"arguments\": {}}]}",
    ] {
        polyfilled(text, text, &[], &[]);
    }
    let text = "{\"tool_calls\": [{\"id\": \"x\"}]}";
    polyfilled(text, text, &[], &["malformed_call"]);
    polyfilled(&format!("{{\"a\": {C}"), "{\"a\":", &[F1], &[]);
    let tools = tools();
    let parsed =
        parse(&families::polyfilled(), &tools, NO_CALLS, "{\"tool_calls\": [{\"name\": \"f\"}]}");
    assert_eq!(
        (parsed.content.as_str(), parsed.tool_calls.len()),
        ("{\"tool_calls\": [{\"name\": \"f\"}]}", 0)
    );
}
