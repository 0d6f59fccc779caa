//! Tests the formats of model families: replies that are accepted, and where others are refused.

use super::*;
use crate::test_support::replies::{PLAIN, drive, reply_parser};

pub(in crate::constraint) fn auto(format: Format) -> GrammarCase {
    GrammarCase::new(format, ToolChoice::Auto)
}

pub(in crate::constraint) fn required(format: Format) -> GrammarCase {
    GrammarCase::new(format, ToolChoice::Required)
}

pub(in crate::constraint) fn hermes() -> Format {
    let call = vec![
        text("<tool_call>\n{\"name\": \""),
        CallPart::Name,
        text("\", \"arguments\": "),
        CallPart::Arguments(Encoding::Json),
        text("}\n</tool_call>"),
    ];
    thinking(format("", call, "\n", ""), "<think>", "</think>")
}

#[test]
fn hermes_forced() {
    let one = "<tool_call>\n{\"name\": \"get\", \"arguments\": {\"a\": 1}}\n</tool_call>";
    let other = "<tool_call>\n{\"name\": \"get_all\", \"arguments\": {\"o\": {\"k\": [true, false]}, \"e\": \"xy\"}}\n</tool_call>";
    required(hermes())
        .accepts(one)
        .accepts(&format!("\n\n{one}\n{other}"))
        .accepts(&format!("<think>\nwhy <tool_call> not\n</think>\n\n{other}"))
        .refuses("¦Hello")
        .refuses("<tool_call>\n{\"name\": \"get\", \"arguments\": {¦}}")
        .refuses("<tool_call>\n{\"name\": \"get¦x")
        .refuses("<tool_call>\n{\"name\": \"get\", \"arguments\": {\"a\": ¦\"1\"}}")
        .refuses("<think>only thoughts¦")
        .refuses(&format!("{one}¦Hello"))
        .refuses("¦<|eos|>");
    let mut single = required(hermes());
    single.parallel = false;
    single.accepts(one).refuses(&format!("{one}¦\n{one}"));
    let named = GrammarCase::new(hermes(), ToolChoice::Function("get_all".into()));
    named.accepts(other).refuses("<tool_call>\n{\"name\": \"get¦\", \"arguments\": {\"a\": 1}}");
    let mut open = required(hermes());
    open.reasoning_open = true;
    open.accepts(&format!("so {one}</think>\n\n{one}")).refuses(&format!("so {one}¦"));
}

#[test]
fn hermes_auto() {
    let one = "<tool_call>\n{\"name\": \"get\", \"arguments\": {\"a\": 1}}\n</tool_call>";
    auto(hermes())
        .accepts("")
        .accepts("Hello <tool_cal> and </tool_call>")
        .accepts(&format!("Hello\n{one}"))
        .accepts(&format!("{one}\n{one}"))
        .accepts("<think>a <tool_call> b")
        .accepts(&format!("<think>a <tool_call> b</think>\n\n{one}"))
        .accepts("{\"name\": \"get\"}")
        .refuses("Hello <tool_call>¦x")
        .refuses("Hello <tool_call>\n¦<")
        .refuses("<think>a</think>b<tool_call>¦ ")
        .refuses(&format!("{one}¦ and more"));
    // Every end-of-generation token may end a text. None may end an incomplete call.
    let ends = [256, 257];
    for end in ends {
        let mut constraint = auto(hermes()).compile();
        for token in "Hi".bytes().map(i32::from) {
            constraint.accept(token).unwrap();
        }
        assert!(
            constraint.validate(end).unwrap() && constraint.mask().unwrap().is_allowed(end as u32),
            "{end}"
        );
        constraint.accept(end).unwrap();
        assert!(constraint.is_finished());
        let mut constraint = auto(hermes()).compile();
        for token in "<tool_call>".bytes().map(i32::from) {
            constraint.accept(token).unwrap();
        }
        assert!(
            !constraint.validate(end).unwrap()
                && !constraint.mask().unwrap().is_allowed(end as u32),
            "{end}"
        );
    }
    // A token that completes the marker and continues after it is refused as a whole.
    let case = auto(hermes());
    let mut constraint = case.compile();
    for token in [i32::from(b'h'), i32::from(b'i')] {
        constraint.accept(token).unwrap();
    }
    let carrying = (256 + CONTROL.len() + 2) as i32;
    assert_eq!(WORDS[2], "l<tool_call>x");
    assert!(!constraint.validate(carrying).unwrap());
    assert!(constraint.validate(carrying - 2).unwrap());
}

#[test]
fn mistral_array() {
    let call = vec![
        text("{\"name\": \""),
        CallPart::Name,
        text("\", \"arguments\": "),
        CallPart::Arguments(Encoding::Json),
        text(", \"id\": \""),
        CallPart::Id(IdForm::Alphanumeric(9)),
        text("\"}"),
    ];
    let format = format("[TOOL_CALLS][", call, ", ", "]");
    auto(format.clone())
        .accepts("Text [TOOL_ without")
        .accepts(
            "Hi[TOOL_CALLS][{\"name\": \"get\", \"arguments\": {\"a\": 1}, \"id\": \"123456789\"}]",
        )
        .refuses(
            "[TOOL_CALLS][{\"name\": \"get\", \"arguments\": {\"a\": 1}, \"id\": \"12345678¦\"}]",
        );
    required(format).accepts(
        "[TOOL_CALLS][{\"name\": \"get\", \"arguments\": {\"a\": 1}, \"id\": \"000000001\"}, \
         {\"name\": \"get\", \"arguments\": {\"a\": 1, \"s\": \"\"}, \"id\": \"000000002\"}]",
    );
}

#[test]
fn mistral_id() {
    let call = vec![
        text("[TOOL_CALLS]"),
        CallPart::Name,
        text("[CALL_ID]"),
        CallPart::Id(IdForm::Alphanumeric(9)),
        text("[ARGS]"),
        CallPart::Arguments(Encoding::Json),
    ];
    let case = auto(format("", call, "", ""));
    let one = "[TOOL_CALLS]get[CALL_ID]abcdefghi[ARGS]{\"a\": 1}";
    case.accepts(one)
        .accepts(&format!("x{one}{one}"))
        .refuses("[TOOL_CALLS]get¦[ARGS]")
        .refuses("[TOOL_CALLS]¦put");
}

#[test]
fn deepseek_r1() {
    let call = vec![
        text("<｜tool▁call▁begin｜>function<｜tool▁sep｜>"),
        CallPart::Name,
        text("\n```json\n"),
        CallPart::Arguments(Encoding::Json),
        text("\n```<｜tool▁call▁end｜>"),
    ];
    let format = thinking(
        format("<｜tool▁calls▁begin｜>", call, "\n", "<｜tool▁calls▁end｜>"),
        "<think>",
        "</think>",
    );
    let one = "<｜tool▁call▁begin｜>function<｜tool▁sep｜>get\n```json\n{\"a\": 1}\n```<｜tool▁call▁end｜>";
    let mut case = auto(format);
    case.reasoning_open = true;
    case.accepts(&format!("R</think>T<｜tool▁calls▁begin｜>{one}\n{one}<｜tool▁calls▁end｜>"))
        .accepts("R</think>T")
        .refuses("R¦<｜tool▁calls▁begin｜>");
}

pub(in crate::constraint) fn tagged(
    open: &'static str,
    after_key: &'static str,
    close: &'static str,
    separator: &'static str,
) -> Encoding {
    Encoding::Tagged(Tagged {
        open: open.into(),
        after_key: after_key.into(),
        kind: None,
        close: close.into(),
        separator: separator.into(),
        entities: &[],
        raw_json: false,
    })
}

#[test]
fn dsml() {
    let encoding = Encoding::Tagged(Tagged {
        open: "<｜DSML｜parameter name=\"".into(),
        after_key: "\" string=\"".into(),
        kind: Some(Box::new(ValueKind {
            before_key: false,
            words: TypeWords::of_strings("true", "false"),
            after: "\">".into(),
            item: None,
        })),
        close: "</｜DSML｜parameter>\n".into(),
        separator: "".into(),
        entities: &[],
        raw_json: false,
    });
    let call = vec![
        text("<｜DSML｜invoke name=\""),
        CallPart::Name,
        text("\">\n"),
        CallPart::Arguments(encoding),
        text("</｜DSML｜invoke>"),
    ];
    let case =
        auto(format("<｜DSML｜function_calls>\n", call, "\n", "\n</｜DSML｜function_calls>"));
    let one = "<｜DSML｜invoke name=\"get\">\n<｜DSML｜parameter name=\"s\" string=\"true\">hi </a>\n</｜DSML｜parameter>\n\
               <｜DSML｜parameter name=\"a\" string=\"false\">1</｜DSML｜parameter>\n</｜DSML｜invoke>";
    let other = "<｜DSML｜invoke name=\"get_all\">\n\
                 <｜DSML｜parameter name=\"o\" string=\"false\">{\"k\": []}</｜DSML｜parameter>\n\
                 <｜DSML｜parameter name=\"e\" string=\"true\">xy</｜DSML｜parameter>\n</｜DSML｜invoke>";
    case.accepts(&format!("T\n\n<｜DSML｜function_calls>\n{one}\n</｜DSML｜function_calls>"))
        .accepts(&format!("<｜DSML｜function_calls>\n{one}\n{other}\n</｜DSML｜function_calls>"))
        .refuses("<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"get\">\n<｜DSML｜parameter name=\"a\" string=\"¦true")
        .refuses("<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"get\">\n<¦/｜DSML｜invoke>");
}

pub(in crate::constraint) fn qwen_xml() -> Format {
    let call = vec![
        text("<tool_call>\n<function="),
        CallPart::Name,
        text(">\n"),
        CallPart::Arguments(tagged("<parameter=", ">\n", "\n</parameter>\n", "")),
        text("</function>\n</tool_call>"),
    ];
    thinking(format("", call, "\n", ""), "<think>", "</think>")
}

#[test]
fn qwen_coder() {
    let one =
        "<tool_call>\n<function=get>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>";
    let both = "<tool_call>\n<function=get>\n<parameter=s>\nprint(\"</param>\")\n\n</parameter>\n<parameter=a>\n-12\n</parameter>\n\
                </function>\n</tool_call>";
    let all = "<tool_call>\n<function=get_all>\n<parameter=o>\n{\"k\": [true]}\n</parameter>\n<parameter=e>\nnull\n</parameter>\n\
               </function>\n</tool_call>";
    required(qwen_xml())
        .accepts(one)
        .accepts(&format!("{both}\n{all}\n{one}"))
        .refuses("<tool_call>\n<function=get>\n<¦/function>")
        .refuses("<tool_call>\n<function=get>\n<parameter=a>\n¦x")
        .refuses("<tool_call>\n<function=get>\n<parameter=¦b")
        .refuses("<tool_call>\n<function=get>\n<parameter=s>\nx</parameter>¦")
        .refuses("<tool_call>\n<function=get>\n<parameter=a>\n1\n</parameter>\n<parameter=¦a");
    let mut case = auto(qwen_xml());
    let reasoning = case.format.reasoning.as_mut().unwrap();
    reasoning.closed_by_call = true;
    case.reasoning_open = true;
    case.accepts(&format!("R\n{one}"))
        .accepts(&format!("R</think>\n\nT\n\n{one}"))
        .accepts("R")
        .refuses("R<tool_call>¦ ");
}

#[test]
fn text_schemas_in_tags() {
    let mut case = required(qwen_xml());
    case.tools = vec![tool(
        "f",
        json!({"properties": {"p": {"type": "string", "pattern": "^[a-z]{2,3}$"}, "m": {"type": "string", "maxLength": 3},
                              "d": {"type": "string", "format": "date"}, "u": {"type": ["string", "integer"], "minLength": 5},
                              "n": {"anyOf": [{"type": "string", "pattern": "^[0-9]x+$"}, {"type": "null"}, {"type": "number"}]},
                              "any": {}}}),
    )];
    let call = |name: &str, value: &str| {
        format!(
            "<tool_call>\n<function=f>\n<parameter={name}>\n{value}\n</parameter>\n</function>\n</tool_call>"
        )
    };
    case.accepts(&call("p", "abc"))
        .accepts(&call("m", "é\n"))
        .accepts(&call("d", "2024-02-29"))
        .accepts(&call("u", "17"))
        .accepts(&call("u", "seventeen"))
        .accepts(&call("n", "1xx"))
        .accepts(&call("n", "1.5"))
        .accepts(&call("n", "null"))
        .refuses(&call("n", "nul¦"))
        .accepts(&call("any", "what\never"))
        .refuses(&call("p", "abc¦d"))
        .refuses(&call("p", "a¦"))
        .refuses(&call("m", "abc¦d"))
        .refuses(&call("d", "2024-02-¦30"));
}

#[test]
fn glm() {
    let call = vec![
        text("<tool_call>"),
        CallPart::Name,
        text("\n"),
        CallPart::Arguments(tagged("<arg_key>", "</arg_key>\n<arg_value>", "</arg_value>\n", "")),
        text("</tool_call>"),
    ];
    required(format("", call, "\n", ""))
        .accepts("<tool_call>get\n<arg_key>a</arg_key>\n<arg_value>1</arg_value>\n</tool_call>")
        .accepts("<tool_call>get\n<arg_key>s</arg_key>\n<arg_value>a b</arg_value>\n<arg_key>a</arg_key>\n<arg_value>1</arg_value>\n</tool_call>")
        .refuses("<tool_call>get\n<arg_key>a</arg_key>\n<arg_value>1¦.5");
}

pub(in crate::constraint) fn gemma4() -> Format {
    let call = vec![
        text("<|tool_call>call:"),
        CallPart::Name,
        CallPart::Arguments(Encoding::Pairs { quote: "<|\"|>".into() }),
        text("<tool_call|>"),
    ];
    format("", call, "", "")
}

#[test]
fn pairs() {
    let one = "<|tool_call>call:get{a:1,s:<|\"|>x \"y\" \n<|\"|>}<tool_call|>";
    auto(gemma4())
        .accepts("no call")
        .accepts(&format!(
            "T{one}<|tool_call>call:get_all{{o:{{k:[true,false]}},e:<|\"|>xy<|\"|>}}<tool_call|>"
        ))
        .accepts("<|tool_call>call:get_all{o:{k:[]},e:null}<tool_call|>")
        .refuses("<|tool_call>call:get¦ {")
        .refuses("<|tool_call>call:get{¦s")
        .refuses("<|tool_call>call:get{a:1,s:¦x");
}

#[test]
fn pairs_of_anything() {
    let mut case = required(gemma4());
    case.tools = vec![tool(
        "f",
        json!({"type": "object", "required": ["t"], "$defs": {"n": {"type": "object", "properties": {"v": {"type": "number", "minimum": 0},
               "next": {"anyOf": [{"$ref": "#/$defs/n"}, {"type": "null"}]}}, "required": ["v"]}},
               "properties": {"t": {"$ref": "#/$defs/n"}, "x": {}, "m": {"type": "object"},
                              "l": {"type": "array", "minItems": 1, "maxItems": 2, "items": {"type": "string"}}}}),
    )];
    case.accepts("<|tool_call>call:f{t:{v:1.5,next:{v:2,next:null}},x:[1.5e10,{b:<|\"|>c<|\"|>}],m:{q:true}}<tool_call|>")
        .accepts("<|tool_call>call:f{t:{v:0},l:[<|\"|><|\"|>,<|\"|>b<|\"|>]}<tool_call|>")
        .refuses("<|tool_call>call:f{t:{v:¦-1}}")
        .refuses("<|tool_call>call:f{t:{v:0},l:[¦]}");
}

#[test]
fn keywords_without_escapes() {
    let form = Keywords { separator: ",".into(), raw_quote: Some('\'') };
    let arguments = CallPart::Arguments(Encoding::Python(form));
    let call = vec![CallPart::Name, text("("), arguments, text(")")];
    auto(format("<|tool_call_start|>[", call, ", ", "]<|tool_call_end|>"))
        .accepts("<|tool_call_start|>[get(a=1,s='C:\\new \"x\"\n')]<|tool_call_end|>")
        .accepts(
            "<|tool_call_start|>[get(a=1), get_all(o={'k': [False, True]},e='xy')]<|tool_call_end|>",
        )
        .refuses("<|tool_call_start|>[get(a=1,¦ s='x')")
        .refuses("<|tool_call_start|>[get(a=1,s=¦\"x\"");
}

#[test]
fn types_and_entities() {
    let encoding = Encoding::Tagged(Tagged {
        open: "<v name=\"".into(),
        after_key: "\" type=\"".into(),
        kind: Some(Box::new(ValueKind {
            before_key: false,
            words: TypeWords::of_strings("raw", "json"),
            after: "\">".into(),
            item: None,
        })),
        close: "</v>".into(),
        separator: "".into(),
        entities: ENTITY_SETS[0],
        raw_json: false,
    });
    let call = vec![
        text("<c n=\""),
        CallPart::Name,
        text("\">"),
        CallPart::Arguments(encoding),
        text("</c>"),
    ];
    auto(format("<calls>", call, "", "</calls>"))
        .accepts("<calls><c n=\"get\"><v name=\"a\" type=\"json\">1</v><v name=\"s\" type=\"raw\">1 &lt; 2 & 3</v></c></calls>")
        .refuses("<calls><c n=\"get\"><v name=\"a\" type=\"¦raw")
        .refuses("<calls><c n=\"get\"><v name=\"a\" type=\"json\">1</v><v name=\"s\" type=\"raw\">a <¦b");
}

#[test]
fn lfm2() {
    let call = vec![CallPart::Name, text("("), CallPart::Arguments(Encoding::python()), text(")")];
    let marked = format("<|tool_call_start|>[", call.clone(), ", ", "]<|tool_call_end|>");
    auto(marked)
        .accepts("[get(a=1)] is text")
        .accepts("<|tool_call_start|>[get(a=1, s='it\\'s'), get_all(o={'k': [True, False]}, e='xy')]<|tool_call_end|>")
        .accepts("<|tool_call_start|>[get(a=1, s=\"it's\")]<|tool_call_end|>")
        .accepts("<|tool_call_start|>[get_all(o={'k': []}, e=None)]<|tool_call_end|>")
        .refuses("<|tool_call_start|>[get(a=1, s='x\\¦q")
        .refuses("<|tool_call_start|>[get(a=¦True")
        .refuses("<|tool_call_start|>[get(¦)");
    // Without a marker, text counts as a call if it begins like a call of an allowed tool.
    auto(format("[", call, ", ", "]"))
        .accepts("[1, 2]")
        .accepts("[getter(b)]")
        .accepts("Well, [get(x)]")
        .accepts("[get(a=1)]")
        .refuses("[get(¦x)]");
}

#[test]
fn apertus() {
    let call = vec![
        text("{\""),
        CallPart::Name,
        text("\": "),
        CallPart::Arguments(Encoding::Json),
        text("}"),
    ];
    required(format("<|tools_prefix|>[", call, ", ", "]<|tools_suffix|>"))
        .accepts("<|tools_prefix|>[{\"get\": {\"a\": 1}}, {\"get_all\": {\"o\": {\"k\": []}}}]<|tools_suffix|>")
        .refuses("<|tools_prefix|>[{\"get\": {\"a\": 1}}¦<|tools_suffix|>");
}

#[test]
fn cohere() {
    let call = vec![
        text("\n    {\"tool_call_id\": \""),
        CallPart::Id(IdForm::Index(0)),
        text("\", \"tool_name\": \""),
        CallPart::Name,
        text("\", \"parameters\": "),
        CallPart::Arguments(Encoding::Json),
        text("}"),
    ];
    let mut format = thinking(
        format("<|START_ACTION|>[", call, ",", "\n]<|END_ACTION|>"),
        "<|START_THINKING|>",
        "<|END_THINKING|>",
    );
    format.wrappers =
        vec![Wrapper { open: "<|START_RESPONSE|>".into(), close: "<|END_RESPONSE|>".into() }];
    let entry = |id: usize| {
        format!(
            "\n    {{\"tool_call_id\": \"{id}\", \"tool_name\": \"get\", \"parameters\": {{\"a\": 1}}}}"
        )
    };
    let (first, second) = (entry(0), entry(1));
    let entries = (0..13).map(entry).collect::<Vec<_>>().join(",");
    auto(format.clone())
        .accepts("<|START_RESPONSE|>Hello<|END_RESPONSE|>")
        .accepts("Hello")
        .accepts(&format!(
            "<|START_THINKING|>R<|END_THINKING|><|START_ACTION|>[{first},{second}\n]<|END_ACTION|>"
        ))
        .refuses("<|START_THINKING|>R¦<|START_ACTION|>")
        .refuses(&format!("<|START_ACTION|>[{first},\n    {{\"tool_call_id\": \"¦0\""));
    required(format)
        .accepts(&format!("<|START_ACTION|>[{entries}\n]<|END_ACTION|>"))
        .accepts(&format!(
            "<|START_THINKING|>R<|END_THINKING|><|START_ACTION|>[{first}\n]<|END_ACTION|>"
        ))
        .refuses("¦<|START_RESPONSE|>");
}

#[test]
fn kimi_k2() {
    let call = vec![
        text("<|tool_call_begin|>"),
        CallPart::Id(IdForm::Named { prefix: "functions.".into(), infix: ":".into() }),
        text("<|tool_call_argument_begin|>"),
        CallPart::Arguments(Encoding::Json),
        text("<|tool_call_end|>"),
    ];
    auto(format("<|tool_calls_section_begin|>", call, "", "<|tool_calls_section_end|>"))
        .accepts(
            "T<|tool_calls_section_begin|><|tool_call_begin|>functions.get:0<|tool_call_argument_begin|>{\"a\": 1}<|tool_call_end|>\
             <|tool_call_begin|>functions.get_all:1<|tool_call_argument_begin|>{\"o\": {\"k\": []}}<|tool_call_end|>\
             <|tool_calls_section_end|>",
        )
        .refuses("<|tool_calls_section_begin|><|tool_call_begin|>functions.get:¦1");
}

pub(in crate::constraint) fn minimax_m3() -> Format {
    let call = vec![
        text("]<]minimax[>[<invoke name=\""),
        CallPart::Name,
        text("\">"),
        CallPart::Arguments(Encoding::Elements {
            prefix: "]<]minimax[>[".into(),
            item: "item".into(),
        }),
        text("]<]minimax[>[</invoke>\n"),
    ];
    format("]<]minimax[>[<tool_call>\n", call, "", "]<]minimax[>[</tool_call>")
}

#[test]
fn elements() {
    const P: &str = "]<]minimax[>[";
    let one = format!("{P}<invoke name=\"get\">{P}<a>1{P}</a>{P}<s>x]<] y{P}</s>{P}</invoke>\n");
    let all = format!(
        "{P}<invoke name=\"get_all\">{P}<o>{P}<k>{P}<item>true{P}</item>{P}<item>false{P}</item>{P}</k>{P}</o>{P}<e>xy{P}</e>{P}</invoke>\n"
    );
    auto(minimax_m3())
        .accepts(&format!("T{P}<tool_call>\n{one}{all}{P}</tool_call>"))
        .accepts("T ]<]mini")
        .refuses(&format!("{P}<tool_call>\n{P}<invoke name=\"get\">{P}<¦s>"))
        .refuses(&format!("{P}<tool_call>\n{P}<invoke name=\"get\">{P}<a>¦x"));
}

#[test]
fn json_text() {
    let call = vec![
        text("<c>{\"name\": \""),
        CallPart::Name,
        text("\", \"arguments\": "),
        CallPart::Arguments(Encoding::JsonText),
        text("}</c>"),
    ];
    required(format("", call, "\n", ""))
        .accepts(r#"<c>{"name": "get", "arguments": "{\"a\": 1, \"s\": \"q\\\"\\n\\\\\"}"}</c>"#)
        .refuses(r#"<c>{"name": "get", "arguments": "{\"a\": ¦\"x"#);
}

#[test]
fn bare_json() {
    let call = vec![
        text("{\"name\": \""),
        CallPart::Name,
        text("\", \"parameters\": "),
        CallPart::Arguments(Encoding::Json),
        text("}"),
    ];
    auto(format("", call, "", ""))
        .accepts("{\"name\": \"Bob\"}")
        .accepts("{\"name\": \"get\", \"age\": 3}")
        .accepts("{\"name\": \"get\", \"parameters\": {\"a\": 1}}")
        .accepts("I think {\"name\": \"get\", \"parameters\": {}}")
        .refuses("{\"name\": \"get\", \"parameters\": {¦}}");
}

/// Elements that name the types of their values, with arrays and objects as nested elements.
pub(in crate::constraint) fn nested_elements() -> Format {
    let kind = ValueKind {
        before_key: false,
        words: TypeWords {
            string: "raw".into(),
            array: "array".into(),
            object: "object".into(),
            ..TypeWords::of_strings("raw", "json")
        },
        after: "\">".into(),
        item: Some("<v type=\"".into()),
    };
    let tagged = Tagged {
        open: "<v name=\"".into(),
        after_key: "\" type=\"".into(),
        kind: Some(Box::new(kind)),
        close: "</v>".into(),
        separator: "".into(),
        entities: &[],
        raw_json: false,
    };
    let call = vec![
        text("<call name=\""),
        CallPart::Name,
        text("\">"),
        CallPart::Arguments(Encoding::Tagged(tagged)),
        text("</call>"),
    ];
    format("", call, "", "")
}

/// Like [`nested_elements`], with the types before the keys. Strings have entities.
pub(in crate::constraint) fn types_before_keys(nested: bool) -> Format {
    let mut format = nested_elements();
    let parts = format.calls.iter_mut().flat_map(|calls| &mut calls.call);
    for part in parts {
        if let CallPart::Arguments(Encoding::Tagged(tagged)) = part {
            (tagged.open, tagged.after_key) = ("<v type=\"".into(), "\">".into());
            (tagged.entities, tagged.raw_json) = (ENTITY_SETS[0], true);
            let kind = tagged.kind.as_mut().unwrap();
            (kind.before_key, kind.after) = (true, "\" name=\"".into());
            if !nested {
                kind.item = None;
                kind.words = TypeWords::of_strings("raw", "json");
            }
        }
    }
    format
}

/// Elements that name no types, in which these characters are entities, in JSON too.
pub(in crate::constraint) fn entities_in_json(entities: Entities) -> Format {
    let tagged = Tagged {
        open: "<p name=\"".into(),
        after_key: "\">".into(),
        kind: None,
        close: "</p>".into(),
        separator: "".into(),
        entities,
        raw_json: false,
    };
    let call = vec![
        text("<call name=\""),
        CallPart::Name,
        text("\">"),
        CallPart::Arguments(Encoding::Tagged(tagged)),
        text("</call>"),
    ];
    format("", call, "", "")
}

#[test]
fn json_with_entities() {
    let mut case = required(entities_in_json(ENTITY_SETS[1]));
    case.tools = vec![tool(
        "f",
        json!({"type": "object", "required": ["o"], "properties": {
            "o": {"type": "object", "required": ["k"], "properties": {
                "k": {"type": "array", "items": {"enum": ["a", "<"]}}, "s": {"type": "string"}}},
            "n": {"type": "integer"}}}),
    )];
    let call = |value: &str| format!("<call name=\"f\"><p name=\"o\">{value}</p></call>");
    let q = "&quot;";
    case.accepts(&call(&format!("{{{q}k{q}: []}}")))
        .accepts(&call(&format!("{{{q}k{q}: [{q}a{q}, {q}&lt;{q}]}}")))
        .accepts(&call(&format!("{{{q}k{q}: [], {q}s{q}: {q}a\\{q}b &amp;amp; c{q}}}")))
        .refuses("<call name=\"f\"><p name=\"o\">{¦\"k\"")
        .refuses(&format!("<call name=\"f\"><p name=\"o\">{{{q}k{q}: [{q}¦<"))
        .refuses(&format!("<call name=\"f\"><p name=\"o\">{{{q}k{q}: [], {q}s{q}: {q}a&¦c"));
}

/// Elements of which an array repeats that of its key.
pub(in crate::constraint) fn repeated_elements() -> Format {
    calls_of_elements("~|~", "")
}

/// Elements whose tags begin with `prefix`. `item` is the element in an array; if it is empty, an
/// array repeats the element of its key.
pub(in crate::constraint) fn calls_of_elements(prefix: &'static str, item: &'static str) -> Format {
    let arguments =
        CallPart::Arguments(Encoding::Elements { prefix: prefix.into(), item: item.into() });
    let text = |text: &str| CallPart::Text(format!("{prefix}{text}").into());
    let call =
        vec![text("<call name=\""), CallPart::Name, super::text("\">"), arguments, text("</call>")];
    format("", call, "", "")
}

/// Without a prefix, a text has no tags of the elements that are open around it.
#[test]
fn elements_without_a_prefix() {
    let mut case = required(calls_of_elements("", "item"));
    case.tools = vec![tool(
        "f",
        json!({"type": "object", "required": ["s"], "properties": {
            "s": {"type": "string"},
            "o": {"type": "object", "properties": {"e": {"enum": ["<", "</o>", "<s>"]}}}}}),
    )];
    case.accepts("<call name=\"f\"><s>a <o> <e>b</e></s><o><e><</e></o></call>")
        .accepts("<call name=\"f\"><s><b></o></s></call>")
        .refuses("<call name=\"f\"><s>a<s¦>")
        .refuses("<call name=\"f\"><s>a</call¦>")
        .refuses("<call name=\"f\"><s></s><o><e><¦/o");
}

/// An array or object that must be one of several values is JSON, and is read as that value.
#[test]
fn constant_arrays_and_objects_in_elements() {
    let (list, object) = (json!([1, "2"]), json!({"k": ["<"]}));
    let property = |kind: &str, value: &Value| json!({"type": kind, "enum": [value]});
    let any = json!({"enum": [list, object, []]});
    let (of_list, of_object) = (property("array", &list), property("object", &object));
    for (item, properties, calls) in [
        (
            "item",
            json!({"a": any, "b": of_list, "c": of_object}),
            vec![
                json!({"a": list, "b": list, "c": object}),
                json!({"a": object, "b": list}),
                json!({"a": []}),
            ],
        ),
        ("", json!({"a": of_object}), vec![json!({"a": object})]),
    ] {
        let format = calls_of_elements("", item);
        let mut case = required(format.clone());
        let schema = json!({"type": "object", "required": ["a"], "properties": properties});
        case.tools = vec![tool("f", schema)];
        let tools = case.tools.clone();
        for call in calls {
            let members = call.as_object().unwrap().iter();
            let elements = members.map(|(name, value)| format!("<{name}>{value}</{name}>"));
            let text = format!("<call name=\"f\">{}</call>", elements.collect::<String>());
            case.accepts(&text);
            let parsed = drive(reply_parser(&format, &tools, PLAIN), [&*text]);
            let read: Value = serde_json::from_str(&parsed.tool_calls[0].arguments).unwrap();
            assert_eq!((read, parsed.content), (call, String::new()), "{text}");
        }
        case.refuses("<call name=\"f\"><a>{\"k\":¦1");
        if item.is_empty() {
            case.tools = vec![tool("f", json!({"required": ["a"], "properties": {"a": of_list}}))];
            case.tools[0]["function"]["strict"] = true.into();
            let refused = case.build().unwrap_err();
            assert!(refused.message().contains("first item"), "{}", refused.message());
        }
    }
}

/// Objects with members of any name are JSON, and arrays of any items are elements.
#[test]
fn elements_without_a_schema() {
    let mut case = required(minimax_m3());
    case.tools = vec![tool(
        "f",
        json!({"type": "object", "required": ["o"], "properties": {
            "o": {"type": "object"}, "l": {"type": "array", "items": {"type": "object"}},
            "any": {}}}),
    )];
    let call = |values: &str| {
        format!("P<tool_call>\nP<invoke name=\"f\">{values}P</invoke>\nP</tool_call>")
            .replace("P<", "]<]minimax[>[<")
    };
    let element = |name: &str, value: &str| format!("P<{name}>{value}P</{name}>");
    let object = element("o", "{\"a\": [1]}");
    let list = element("l", &element("item", "{\"a\": \"</o>\"}").repeat(2));
    let any = element("item", &element("item", "{\"a\": 1}")) + &element("item", "x");
    case.accepts(&call(&object))
        .accepts(&call(&format!("{object}{list}")))
        .accepts(&call(&format!("{object}{}", element("any", &any))))
        .refuses("]<]minimax[>[<tool_call>\n]<]minimax[>[<invoke name=\"f\">]<]minimax[>[<o>¦]");
}

#[test]
fn arrays_as_repeated_elements() {
    let mut case = required(repeated_elements());
    case.tools = vec![tool(
        "f",
        json!({"type": "object", "required": ["a"], "properties": {
            "a": {"type": "array", "items": {"type": "integer"}, "maxItems": 2},
            "o": {"type": "array", "minItems": 2, "items": {"type": "object", "properties": {
                "k": {"type": "string"}}}}}}),
    )];
    let e = |name: &str, value: &str| format!("~|~<{name}>{value}~|~</{name}>");
    let call = |values: &str| format!("~|~<call name=\"f\">{values}~|~</call>");
    let (one, two) = (e("a", "1"), e("a", "2"));
    case.accepts(&call(&one))
        .accepts(&call(&format!("{one}{two}")))
        .accepts(&call(&format!("{one}{}{}", e("o", &e("k", "x")), e("o", ""))))
        .refuses("~|~<call name=\"f\">~|~<¦/call>")
        .refuses("~|~<call name=\"f\">~|~<a>¦~|~</a>")
        .refuses(&format!("~|~<call name=\"f\">{one}{two}~|~<¦a>"))
        .refuses(&format!("~|~<call name=\"f\">{one}{}~|~<¦/call>", e("o", "")));
    // An array that must be empty is refused before anything is generated.
    case.tools = vec![tool(
        "f",
        json!({"type": "object", "required": ["a"], "properties": {
            "a": {"type": "array", "maxItems": 0}}}),
    )];
    let refused = case.build().unwrap_err();
    assert_eq!(refused.code(), Code::SchemaUnsupported);
    assert!(refused.message().contains("(f): /properties/a"), "{}", refused.message());
    case.tools[0]["function"]["strict"] = true.into();
    let refused = case.build().unwrap_err();
    assert!(refused.message().contains("an empty array"), "{}", refused.message());
}

#[test]
fn types_before_keys_and_entities_in_strings() {
    let value = |kind: &str, name: &str, value: &str| {
        format!("<v type=\"{kind}\" name=\"{name}\">{value}</v>")
    };
    let call = |values: &str| format!("<call name=\"get\">{values}</call>");
    required(types_before_keys(false))
        .accepts(&call(&format!("{}{}", value("json", "a", "1"), value("raw", "s", "1 &lt; 2"))))
        .refuses("<call name=\"get\"><v type=\"¦x")
        .refuses("<call name=\"get\"><v type=\"raw\" name=\"¦a");
}

#[test]
fn arrays_and_objects_as_nested_elements() {
    let mut case = required(nested_elements());
    let list = json!({"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 2});
    let node = json!({"type": "object", "required": ["n"], "properties": {
        "n": {"type": "integer"}, "next": {"$ref": "#/$defs/node"}}});
    case.tools = vec![tool(
        "f",
        json!({"type": "object", "required": ["a"], "$defs": {"node": node}, "properties": {
            "a": {"type": ["string", "object", "array"], "items": {"enum": ["x", 1, null]},
                  "properties": {"k": list}},
            "o": {"$ref": "#/$defs/node"}, "any": {}}}),
    )];
    let call = |values: &str| format!("<call name=\"f\">{values}</call>");
    let a = |value: &str| format!("<v name=\"a\" type={value}</v>");
    let text = |value: &str| format!("<v type=\"raw\">{value}</v>");
    let list = |items: &str| a(&format!("\"object\"><v name=\"k\" type=\"array\">{items}</v>"));
    case.accepts(&call(&a("\"raw\">a text")))
        .accepts(&call(&a("\"object\">")))
        .accepts(&call(&list(&text("b & c"))))
        .accepts(&call(&list(&format!("{}{}", text("b"), text("[\"c\"]")))))
        .refuses(&call(&list("<¦/v>")))
        .refuses(&call(&list(&format!("{0}{0}<¦v>", text("b")))))
        .refuses(&call(&a("\"object\">¦{\"k\": []}")))
        .accepts(&call(&a(&format!("\"array\">{}<v type=\"json\">null</v>", text("x")))))
        .refuses(&call(&a(&format!("\"array\">{}", text("¦y")))))
        .accepts(&call(&format!(
            "{}<v name=\"o\" type=\"object\"><v name=\"n\" type=\"json\">1</v>\
             <v name=\"next\" type=\"object\"><v name=\"n\" type=\"json\">2</v></v></v>",
            a("\"array\">")
        )))
        .accepts(&call(&format!(
            "{}<v name=\"any\" type=\"array\"><v type=\"object\"><v name=\"z\" type=\"raw\">y</v></v>\
             <v type=\"array\"></v><v type=\"json\">true</v></v>",
            a("\"array\">")
        )));
}
