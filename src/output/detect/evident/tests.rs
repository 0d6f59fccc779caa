//! Instructions, turns and vocabularies, and the formats that they show.

use super::*;
use crate::output::call_writer::{ValueStyle, WrittenCall, section};

/// The text of a call `f` with the arguments `{"a": 1}` in a format.
fn written(format: &Format) -> String {
    let call =
        WrittenCall { name: "f".into(), arguments: serde_json::json!({ "a": 1 }), id: "x".into() };
    section(format.calls.as_ref().unwrap(), &[call], ValueStyle::repr())
}

fn find<'a>(instructions: &'a str, special: &'a [&'a str]) -> Result<Option<String>, String> {
    let clues = FormatClues {
        instructions,
        tool_words: &["probe_tool"],
        turns: &[],
        is_special: &|text| special.contains(&text),
        in_source: &|_| false,
    };
    match clues.find() {
        Ok(found) => Ok(found.map(|found| {
            assert_eq!(found.format.source, FormatSource::Evident);
            written(&found.format)
        })),
        Err(Contradiction(reason)) => Err(reason),
    }
}

/// Checks that these instructions show this call.
#[track_caller]
fn shows(instructions: &str, call: &str) {
    assert_eq!(find(instructions, &[]).as_ref().map(Option::as_deref), Ok(Some(call)));
}

#[test]
fn a_tag_that_the_instructions_mention_is_that_of_the_calls() {
    let list = "respond only with <|tool_call|> followed by a JSON list of tools used";
    let granite = "<|tool_call|>[{\"name\": \"f\", \"arguments\": {\"a\": 1}}]";
    shows(list, granite);
    assert_eq!(find(list, &["<|tool_call|>"]), Ok(Some(granite.to_owned())));
}

#[test]
fn families_are_found_by_an_example_with_placeholders() {
    let hermes = "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>";
    shows(
        "return a json object within <tool_call></tool_call> tags:\n<tool_call>\n{\"name\": <function-name>, \"arguments\": <args-json-object>}\n</tool_call>",
        hermes,
    );
    shows(
        r#"Use <tool_call>{"name": "$NAME", "arguments": {"key": "value", ...}}</tool_call>."#,
        "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1}}</tool_call>",
    );
    shows(
        "<tool_call>\n{'arguments': <args-dict>, 'name': <function-name>}\n</tool_call>",
        "<tool_call>\n{ \"arguments\": {\"a\": 1}, \"name\": \"f\"}\n</tool_call>",
    );
    shows(
        "<tool_call>\n<function=example_name>\n<parameter=first>\nvalue\n</parameter>\n<parameter=second>\ntext over\nlines\n</parameter>\n</function>\n</tool_call>",
        "<tool_call>\n<function=f>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>",
    );
    shows(
        "<tool_call>function_name\n<arg_key>name</arg_key>\n<arg_value>value</arg_value>\n</tool_call>",
        "<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>1</arg_value>\n</tool_call>",
    );
    shows(
        r#"write functools[{"name": [function name], "arguments": {...}}], or functools[{"name": "function name", "arguments": {"k": "v"}}]"#,
        r#" functools[{"name": "f", "arguments": {"a": 1}}]"#,
    );
    shows(
        "Reply with [func_name1(params_name1=params_value1, ...), func_name2(params)]",
        "[f(a=1)]",
    );
    shows(
        "Output a list:\n```\n[\n    {\"name\": \"func_name1\", \"arguments\": {\"argument1\": \"value1\"}},\n    ... (more tool calls as required)\n]\n```",
        r#"[{"name": "f", "arguments": {"a": 1}}]"#,
    );
}

#[test]
fn tags_without_a_family_are_taken_from_the_example() {
    shows(
        r#"Write <fn_call>{"name": "function name", "arguments": {"k": "v"}}</fn_call> for a call."#,
        r#"<fn_call>{"name": "f", "arguments": {"a": 1}}</fn_call>"#,
    );
    shows(
        "[CALLS]\n[{\"tool\": <name>, \"args\": <object>}, ...]\n[/CALLS]",
        "[CALLS]\n[{\"tool\": \"f\", \"args\": {\"a\": 1}}]\n[/CALLS]",
    );
}

#[test]
fn placeholders_may_be_phrases() {
    shows(
        "Write a list of actions:\n<act>{\"name\": the tool to use, \"arguments\": a dict of parameters, or {} if there are none}</act>",
        r#"<act>{"name": "f", "arguments": {"a": 1}}</act>"#,
    );
    shows(
        r#"Reply with <TOOLCALL>[{{"name": "tool_1", "arguments": "args_1"}}, {{"name": "tool_2", "arguments": "args_2"}}]</TOOLCALL>"#,
        r#"<TOOLCALL>[{"name": "f", "arguments": {"a": 1}}]</TOOLCALL>"#,
    );
    shows(
        r#"functools[{"name": [function name], "arguments": [function arguments as JSON]}, ...]"#,
        r#" functools[{"name": "f", "arguments": {"a": 1}}]"#,
    );
}

#[test]
fn calls_without_tags_are_taken_from_the_example() {
    shows(
        r#"To use a tool, respond with {"tool": "<name>", "args": {"key": "value"}} and nothing else."#,
        r#"{"tool": "f", "args": {"a": 1}}"#,
    );
    shows(
        r#"Answer with JSON: {"name": "function_name", "arguments": {"k": "v"}}."#,
        r#"{"name": "f", "arguments": {"a": 1}}"#,
    );
    // Python in tags.
    shows("Wrap calls: <run>function_name(param1=value1, ...)</run>", "<run>f(a=1)</run>");
    // A form that no template writes.
    shows(
        "Use this:\nAction: tool_name\nAction Input: {\"key\": \"value\"}\n",
        "Action: f\nAction Input: {\"a\": 1}",
    );
}

#[test]
fn declarations_and_prose_show_nothing() {
    for text in [
        "",
        "You have tools. Call them when you need to.",
        r#"{"name": "probe_tool", "parameters": {"type": "object"}}"#,
        r#"<tools>[{"type": "function", "function": {"name": "probe_tool", "arguments": {}}}]</tools>"#,
        "Use <tool_call> and </tool_call> around calls.",
    ] {
        assert_eq!(find(text, &[]), Ok(None), "{text}");
    }
}

#[test]
fn two_forms_contradict_each_other() {
    let text = "<tool_call>\n{\"name\": \"n\", \"arguments\": {}}\n</tool_call> or [TOOL_CALLS][{\"name\": \"n\", \"arguments\": {}, \"id\": \"i\"}]";
    let reason = find(text, &[]).unwrap_err();
    assert!(reason.contains("<tool_call>") && reason.contains("[TOOL_CALLS]"), "{reason}");
}

#[test]
fn markers_of_the_vocabulary_decide_if_one_family_has_them() {
    let lfm2 = Ok(Some("<|tool_call_start|>[f(a=1)]<|tool_call_end|>".to_owned()));
    assert_eq!(find("tools: []", &["<|tool_call_start|>", "<|tool_call_end|>"]), lfm2);
    // The marker of the tool list pairs with it, so no vocabulary is needed.
    assert_eq!(find("<|tool_list_start|>[]<|tool_list_end|>", &[]), lfm2);
    // Several families have these tags and differ in nothing else.
    assert!(find("tools: []", &["<tool_call>", "</tool_call>"]).is_err());
    // The marker of the list pairs with that of the calls. Other families need unknown markers too.
    assert_eq!(
        find("[AVAILABLE_TOOLS][][/AVAILABLE_TOOLS]", &[]),
        Ok(Some(r#"[TOOL_CALLS][{"name": "f", "arguments": {"a": 1}, "id": "x"}]"#.to_owned()))
    );
    // Only calls of one family have this marker.
    let plugin = find("system name=<|plugin|>\n[]", &[]).unwrap().unwrap();
    assert!(plugin.starts_with("<|action_start|><|plugin|>"), "{plugin}");
    let phi = find("tools: []", &["<|tool_call|>", "<|/tool_call|>"]).unwrap().unwrap();
    assert!(phi.starts_with("<|tool_call|>[") && phi.ends_with("]<|/tool_call|>"), "{phi}");
}

#[test]
fn a_name_in_another_member_shows_the_call_around_it() {
    let turn = CallTurn {
        member: "metadata",
        text: "probe_tool \n{\"k\": 1}".to_owned(),
        name: "probe_tool",
        arguments: "{\"k\": 1}",
    };
    let clues = FormatClues {
        instructions: "",
        tool_words: &[],
        turns: &[turn],
        is_special: &|_| false,
        in_source: &|_| false,
    };
    let Ok(Some(found)) = clues.find() else { panic!("a format") };
    assert_eq!(written(&found.format), "f\n{\"a\": 1}");
}
