//! Tests replies with several messages, JSON replies, and the caller's grammars.

use super::families::{auto, hermes, required, tagged};
use super::*;

fn harmony() -> Format {
    let call = vec![
        text("<|start|>assistant<|channel|>commentary to=functions."),
        CallPart::Name,
        text(" <|constrain|>json<|message|>"),
        CallPart::Arguments(Encoding::Json),
        text("<|call|>"),
    ];
    let mut format = format("", call, "", "");
    format.channels = Some(Channels {
        turn: "<|start|>assistant".into(),
        header: "<|channel|>".into(),
        body: "<|message|>".into(),
        ends: vec!["<|end|>".into()],
        recipient: "to=".into(),
        function: "functions.".into(),
        reasoning: vec!["analysis".into()],
        content: vec!["final".into(), "commentary".into()],
    });
    format
}

#[test]
fn channels() {
    let call =
        "<|channel|>commentary to=functions.get <|constrain|>json<|message|>{\"a\": 1}<|call|>";
    let thought = "<|channel|>analysis<|message|>why?<|end|><|start|>assistant";
    auto(harmony())
        .accepts("<|channel|>final<|message|>Hello")
        .accepts(&format!("{thought}{call}"))
        .accepts(&format!(
            "{thought}<|channel|>commentary<|message|>I will<|end|><|start|>assistant{call}"
        ))
        .accepts(&format!("{thought}{thought}<|channel|>final<|message|>Hello"))
        .accepts(
            " to=functions.get<|channel|>commentary <|constrain|>json<|message|>{\"a\": 1}<|call|>",
        )
        .refuses(" to=functions.get<|channel|>commentary <|constrain|>json<|message|>{¦}<|call|>")
        .refuses("¦Hello")
        .refuses("<|channel|>commentary to=functions.¦put");
    required(harmony())
        .accepts(&format!("{thought}{call}"))
        .refuses("<|channel|>¦final")
        .refuses("<|channel|>analysis<|message|>why?¦<|eos|>");
    let mut case = auto(harmony());
    case.response = Some(
        json!({"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}),
    );
    case.accepts(&format!("{thought}<|channel|>final<|message|>{{\"x\": 1}}"))
        .accepts(&format!("{thought}{call}"))
        .refuses("<|channel|>final<|message|>¦Hello");
}

#[test]
fn recipients_alone() {
    let mut functionary = format(
        "",
        vec![CallPart::Name, text("\n"), CallPart::Arguments(Encoding::Json)],
        ">>>",
        "",
    );
    functionary.channels = Some(Channels {
        turn: ">>>".into(),
        header: "".into(),
        body: "\n".into(),
        ends: Vec::new(),
        recipient: "".into(),
        function: "".into(),
        reasoning: Vec::new(),
        content: vec!["all".into()],
    });
    auto(functionary.clone())
        .accepts("all\nHello >> there")
        .accepts("all\nHello>>>get\n{\"a\": 1}>>>get_all\n{\"o\": {\"k\": []}}")
        .accepts("get\n{\"a\": 1}")
        .refuses("¦Hello")
        .refuses("get\n¦x");
    required(functionary).accepts("get\n{\"a\": 1}").refuses("¦all\n");
    let encoding = tagged("<atem:parameter name=\"", "\">", "</atem:parameter>\n", "");
    let call = vec![
        text(" to="),
        CallPart::Name,
        text("<|message|><atem:function_calls>\n<atem:invoke name=\""),
        CallPart::Name,
        text("\">\n"),
        CallPart::Arguments(encoding),
        text("</atem:invoke>\n</atem:function_calls>"),
    ];
    let mut muse = format("", call, "<|end|><|start|>assistant", "");
    muse.channels = Some(Channels {
        turn: "<|start|>assistant".into(),
        header: "".into(),
        body: "<|message|>".into(),
        ends: vec!["<|end|>".into()],
        recipient: "to=".into(),
        function: "".into(),
        reasoning: vec!["self".into()],
        content: vec!["user".into()],
    });
    let one = " to=get<|message|><atem:function_calls>\n<atem:invoke name=\"get\">\n<atem:parameter name=\"a\">1</atem:parameter>\n\
               </atem:invoke>\n</atem:function_calls>";
    auto(muse).accepts(" to=user<|message|>Hello").accepts(&format!(
        " to=self<|message|>R<|end|><|start|>assistant{one}<|end|><|start|>assistant{one}"
    ));
}

#[test]
fn json_replies() {
    let mut case = auto(hermes());
    case.response = Some(
        json!({"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}),
    );
    let one = "<tool_call>\n{\"name\": \"get\", \"arguments\": {\"a\": 1}}\n</tool_call>";
    case.accepts("{\"x\": 1}")
        .accepts(one)
        .accepts(&format!("<think>R</think>\n\n{one}"))
        .accepts("<think>R</think>\n\n{\"x\": 1}")
        .refuses("<think>R</think>\n\n{\"x\": 1¦, \"y\": [1.5]}")
        .refuses("¦Hello")
        .refuses("```¦json".trim_start_matches('`').replace("¦json", "¦```json").as_str())
        .refuses("{\"x\": ¦\"1\"");
    case.choice = ToolChoice::Required;
    case.accepts(one).refuses("¦{");
    case.choice = ToolChoice::None;
    case.response = Some(Value::Null);
    case.accepts("{\"x\": [null]}").refuses("¦[").refuses("<t¦ool_call>");
}

#[test]
fn a_continued_answer_is_the_rest_of_what_is_required() {
    for format in [hermes(), harmony()] {
        let end = if format.channels.is_some() { "<|end|>" } else { "" };
        let mut case = auto(format);
        case.response = Some(
            json!({"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"],
            "additionalProperties": false}),
        );
        case.content_before = "{\"x\": 1";
        case.accepts("2}").accepts(&format!("}}{end}")).refuses("¦{").refuses("2¦, \"y\": 1}");
        // After the beginning of an answer, neither reasoning nor a call is allowed.
        case.refuses("¦<think>").refuses("¦<|channel|>");
        // The caller has chosen the layout of the JSON.
        case.content_before = "{\n    \"x\"";
        case.accepts(" :3\n}").refuses(&format!(": 3{}¦ }}", " ".repeat(64)));
        for text in ["{\"y", "Sure: ", "{\"x\": 1}"] {
            case.content_before = text;
            let grammar = case.build().unwrap().lark.unwrap();
            let mut constraint = grammars().compile(&grammar, &CompileTime::unlimited()).unwrap();
            assert_eq!(case.begin(&mut constraint), text.ends_with('}'), "{text:?}");
        }
        (case.response, case.grammar) = (None, Some("start: \"yes\" | /no+/"));
        case.tools.clear();
        case.content_before = "n";
        case.accepts("oo").refuses("¦yes");
    }
}

#[test]
fn a_message_of_a_channel_is_continued() {
    let one = "<|start|>assistant<|channel|>commentary to=functions.get <|constrain|>json<|message|>{\"a\": 1}<|call|>";
    let mut case = auto(harmony());
    case.content_before = "One,";
    case.accepts(" two").accepts(&format!(" two<|end|>{one}")).refuses(" two¦<|channel|>");
    case.choice = ToolChoice::Required;
    case.accepts(&format!(" two<|end|>{one}")).refuses(" two¦");
    (case.content_before, case.reasoning_open) = ("", true);
    case.accepts(&format!("why?<|end|>{one}")).refuses("¦<|channel|>");
}

#[test]
fn user_grammar() {
    let mut case = GrammarCase::new(hermes(), ToolChoice::None);
    case.grammar = Some("start: \"yes\" | NO\nNO: /no+/");
    case.reasoning_open = true;
    case.accepts("R</think>\n\nyes")
        .accepts("R</think>nooo")
        .refuses("R</think>¦maybe")
        .refuses("R¦");
    let plain = GrammarCase::new(hermes(), ToolChoice::None);
    assert_eq!(plain.build().unwrap(), ReplyGrammar::default());
}

#[test]
fn only_a_reasoning_model_reasons_before_a_forced_call() {
    let one = "<tool_call>\n{\"name\": \"get\", \"arguments\": {\"a\": 1}}\n</tool_call>";
    let mut case = GrammarCase::new(hermes(), ToolChoice::Required);
    case.accepts(&format!("<think>R</think>\n\n{one}")).accepts(one);
    case.reasons = false;
    case.accepts(one).refuses("<t¦hink>");
    case.reasoning_open = true;
    case.accepts(&format!("R</think>\n\n{one}"));
    // Nothing is forced, so any text is allowed.
    (case.choice, case.reasoning_open) = (ToolChoice::Auto, false);
    case.accepts(&format!("<think>R</think>\n\n{one}")).accepts("Hello");
}

/// The grammar takes effect after the name of a tool and `arguments`, at the start of a line.
#[test]
fn calls_without_tags() {
    let get = r#"{"name": "get", "arguments": {"a": 1}}"#;
    let unfit = r#"{"name": "get", "arguments": {"a": ¦"x"}}"#;
    let fence = format!("```json\n{get}\n```");
    let tag = format!("<tool_call>\n{get}\n</tool_call>");
    let mut case = auto(hermes());
    case.accepts(&fence)
        .accepts("Sure.\n\n```\n{\n  \"name\": \"get_all\",\n  \"arguments\": {\"o\": {\"k\": []}}\n}\n```\nDone.")
        .accepts(&format!("{fence}\n{fence} Both."))
        .accepts(&format!("{fence}\n{tag}"))
        .accepts(get)
        .accepts(&format!("{get}\n{get}\n{tag}"))
        .accepts(&format!("[{get}, {get}]"))
        .accepts(&format!("<json>\n{get}\n</json>\nDone."))
        .accepts("```json\n{\"name\": \"put\", \"arguments\": {\"a\": []}}\n```")
        .accepts("```python\nprint({\"name\": \"get\"})\n```")
        .accepts("They write {\"name\": \"get\", \"arguments\": 7} in the middle.")
        .refuses(unfit)
        .refuses(&unfit.replace("arguments", "parameters"))
        .refuses(&format!("Sure.\n{unfit}"))
        .refuses(&format!("[{get}, {unfit}]"))
        .refuses(&format!("{get}\n{unfit}"))
        .refuses(&format!("<json>\n{unfit}"))
        .refuses(&format!("```json\n{unfit}\n```"))
        .refuses("Now:\n```tool_call\n{\"name\":\"get\",\"arguments\":{\"¦s\": \"\"}}\n```");
    case.parallel = false;
    case.accepts(&format!("{fence}\nDone.")).accepts(&format!("{get}\nDone."));
    required(hermes()).refuses(&format!("¦{fence}")).refuses(&format!("¦{get}"));
    case.untagged = false;
    case.accepts(&unfit.replace('¦', "")).refuses(&format!("```json\n{unfit}\n```"));
    auto(thinking(hermes(), "<think>", "</think>"))
        .accepts(&format!("<think>{fence}</think>{fence}"))
        .refuses(&format!("<think>a</think>\n```\n{unfit}"))
        .refuses(&format!("<think>a</think>\n\n{unfit}"));
}

#[test]
fn bounds_of_a_schema() {
    let mut case = auto(hermes());
    let object = |properties: Value| {
        let names: Vec<&String> = properties.as_object().expect("an object").keys().collect();
        json!({"type": "object", "properties": properties, "required": names})
    };
    let list = |count: usize, item: &str| format!("[{}]", vec![item; count].join(", "));
    let text = |length: usize| format!("\"{}\"", "a".repeat(length));
    let too_long = |length: usize| format!("{{\"v\": \"{}¦a\"}}", "a".repeat(length));
    let too_many = |count: usize| list(count, "\"b\"").replace(']', "¦, \"b\"]");
    let names = json!({"type": "array", "items": {"type": "string"}});

    case.response = Some(object(json!({"v": names})));
    case.accepts(&format!("{{\"v\": {}}}", list(65, "\"b\"")));
    case.bounded = true;
    case.accepts(&format!("{{\"v\": {}}}", list(64, "\"b\"")))
        .refuses(&format!("{{\"v\": {}}}", too_many(64)));

    case.response = Some(object(json!({"v": {"type": "string"}})));
    case.accepts(&format!("{{\"v\": {}}}", text(2_000))).refuses(&too_long(2_000));

    // Bounds of the caller stay.
    case.response = Some(object(json!({"v": {"type": "string", "maxLength": 2_100}})));
    case.accepts(&format!("{{\"v\": {}}}", text(2_100)));
    case.response =
        Some(object(json!({"v": {"type": "array", "items": {"type": "null"}, "minItems": 65}})));
    case.accepts(&format!("{{\"v\": {}}}", list(66, "null")));

    // In definitions, alternatives and maps.
    case.response = Some(json!({
        "type": "object", "properties": {"v": {"$ref": "#/$defs/n"}}, "required": ["v"],
        "$defs": {"n": {"anyOf": [names, {"type": "null"}]}}
    }));
    case.accepts("{\"v\": null}").refuses(&format!("{{\"v\": {}}}", too_many(64)));
    case.response = Some(json!({"type": "object", "additionalProperties": {"type": "null"}}));
    let member = |index: usize| format!("\"{index}\": null");
    let members = |count| (0..count).map(member).collect::<Vec<_>>().join(", ");
    case.accepts(&format!("{{{}}}", members(64))).refuses(&format!(
        "{{{}¦, {}}}",
        members(64),
        member(64)
    ));
}
