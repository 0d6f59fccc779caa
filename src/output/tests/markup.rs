//! Tests that markup never reaches the user.

use super::*;
use crate::profile::ModelProfile;
use crate::template::Sources;
use crate::test_support::replies::drive;

fn sources(template: &str) -> Sources {
    Sources { default: Some(template.to_owned()), ..Sources::default() }
}

#[test]
fn tags_that_a_template_writes_around_content_are_markup() {
    #[track_caller]
    fn check(template: &str, reply: &str, content: &str) {
        let profile = ModelProfile::of(&sources(template)).unwrap();
        let format = profile.format().unwrap();
        assert_eq!(parse(format, &tools(), PLAIN, reply).content, content, "{reply:?}");
    }
    // No calls: the format is that of the polyfill.
    let plain = "{% for m in messages %}{% if m.role == 'assistant' %}<|bot|><|say|>{{ m.content }}<|/say|><|stop|>\
                 {% else %}<|{{ m.role }}|>{{ m.content }}<|stop|>{% endif %}{% endfor %}\
                 {% if add_generation_prompt %}<|bot|>{% endif %}";
    check(plain, "<|say|>Hello.<|/say|>", "Hello.");
    check(plain, "Hello.", "Hello.");
    check(plain, "<|sa", "<|sa");
    // Calls of a family, and content in tags only after reasoning.
    let hermes = "{% for m in messages %}<|im_start|>{{ m.role }}\n\
                  {% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think><reply>{{ m.content }}</reply>\
                  {% else %}{{ m.content or '' }}{% endif %}\
                  {% for c in m.tool_calls %}<tool_call>\n{\"name\": {{ c.function.name | tojson }}, \"arguments\": \
                  {{ c.function.arguments | tojson }}}\n</tool_call>{% if not loop.last %}\n{% endif %}{% endfor %}<|im_end|>\n\
                  {% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
    check(hermes, "<think>r</think><reply>Hello.</reply>", "Hello.");
    check(hermes, &format!("<reply>Look.</reply>{C}"), "Look.");
    // The template has no generation prompt.
    let bare = "{% for m in messages %}{% if m.role == 'user' %}<|q|>{{ m.content }}<|e|>\
                {% else %}<answer>{{ m.content }}</answer><|e|>{% endif %}{% endfor %}";
    check(bare, "<answer>\nHello.\n</answer>", "Hello.");
}

/// Parses with reasoning that stays in the content.
fn unsplit(family: &str, prompt: &str, reply: &str) -> ParsedReply {
    let format = super::family(family);
    let parser = || {
        let mut parser = ReplyParser::new(ReplyParserInput {
            format: Some(&format),
            tools: tools().into(),
            calls_allowed: true,
            reasoning: false,
            json: false,
            parallel: true,
            new_id: Box::new(|| "id1".to_owned()),
        });
        parser.prime(prompt, true);
        parser
    };
    let whole = drive(parser(), [reply]);
    let single: Vec<String> = reply.chars().map(String::from).collect();
    assert_eq!(whole, drive(parser(), single.iter().map(String::as_str)), "{reply:?}");
    whole
}

#[test]
fn an_opened_block_without_text_is_not_shown() {
    #[track_caller]
    fn check(prompt: &str, reply: &str, content: &str, calls: usize) {
        let parsed = unsplit("qwen-xml", prompt, reply);
        assert_eq!((&*parsed.content, parsed.tool_calls.len()), (content, calls), "{reply:?}");
        assert!(parsed.diagnostics.is_empty(), "{reply:?} {:?}", parsed.diagnostics);
    }
    let call =
        "<tool_call>\n<function=f>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>";
    let open = "<think>\n";
    check(open, "", "", 0);
    check(open, "R\n</think>\n\nT", "<think>\nR\n</think>\n\nT", 0);
    check(open, "R", "<think>\nR", 0);
    check(open, "</think>\n\nT", "T", 0);
    check(open, "\n</think>\n\nT", "T", 0);
    check(open, "</thin", "<think>\n</thin", 0);
    check(open, "</think>", "", 0);
    check(open, &format!("</think>\n\n{call}"), "", 1);
    check(open, call, "", 1);
    check(open, &format!("R</think>\n{call}"), "<think>\nR</think>", 1);
    check(open, "<think>\nR\n</think>\n\nT", "<think>\n\nR\n</think>\n\nT", 0);
    check(open, "<think>\n\n</think>\n\nT", "T", 0);
    // The answer begins in tags of its own.
    let parsed = unsplit(
        "kimi-k3",
        "<|open|>think<|sep|>",
        "<|open|>response<|sep|>T<|close|>response<|sep|>",
    );
    assert_eq!((&*parsed.content, parsed.diagnostics.len()), ("T", 0));
    // The prompt contains text of the block, or closes it.
    check("<think>\nSo", " R</think>T", "<think>\nSo R</think>T", 0);
    check("<think>\n\n</think>\n\n", "T", "T", 0);
    // The model writes the block itself.
    check("", "<think>\n\n</think>\n\nT", "<think>\n\n</think>\n\nT", 0);
}

const CHATML: &str = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}\
                      {% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
const LLAMA3: &str = "<|begin_of_text|>{% for m in messages %}<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n\
                      {{ m.content }}<|eot_id|>{% endfor %}\
                      {% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}";
const GEMMA: &str = "{% for m in messages %}<start_of_turn>{{ 'model' if m.role == 'assistant' else m.role }}\n\
                     {{ m.content }}<end_of_turn>\n{% endfor %}\
                     {% if add_generation_prompt %}<start_of_turn>model\n{% endif %}";
const VICUNA: &str = "{% for m in messages %}{{ 'ASSISTANT' if m.role == 'assistant' else 'USER' }}: {{ m.content }}\
                      {{ eos_token if m.role == 'assistant' else '' }}\n{% endfor %}\
                      {% if add_generation_prompt %}ASSISTANT:{% endif %}";
const PHI: &str = "{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}<|end|>\n{% endfor %}\
                   {% if add_generation_prompt %}<|assistant|>\n{% else %}{{ eos_token }}{% endif %}";
const INST: &str = "{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}[INST] {{ m.content }} [/INST]\
                    {% else %} {{ m.content }}{{ eos_token }}{% endif %}{% endfor %}";
/// Always writes the header of the answer, whose own tags begin as the header does.
const SHARED_BEGINNING: &str = "{% for m in messages %}<|START_TURN|>{% if m.role == 'assistant' %}<|BOT|>\
                                <|START_ANSWER|>{{ m.content }}<|END_ANSWER|>{% else %}<|{{ m.role }}|>{{ m.content }}{% endif %}\
                                <|END_TURN|>{% endfor %}<|START_TURN|><|BOT|><|START_PLAN|><|END_PLAN|>";
const THINKS: &str = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}\
                      {% if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% endif %}";

/// A parser for the replies of a template, created like `llb_template_parse` creates it.
fn parser_of(template: &str, reasoning: bool) -> ReplyParser {
    let profile = ModelProfile::of(&Sources {
        bos_token: "<s>".to_owned(),
        eos_token: "</s>".to_owned(),
        ..sources(template)
    });
    let profile = profile.unwrap();
    let mut parser = ReplyParser::new(ReplyParserInput {
        format: profile.format(),
        tools: tools().into(),
        calls_allowed: true,
        reasoning,
        json: false,
        parallel: true,
        new_id: Box::new(|| "id1".to_owned()),
    });
    parser.expect_turn_markup(profile.turn_markup());
    parser.prime(profile.turn(profile.generation_prompt()), true);
    parser
}

/// Parses the text as a whole, one character at a time, and split in two at every position.
#[track_caller]
fn parsed_by(parser: &dyn Fn() -> ReplyParser, reply: &str) -> ParsedReply {
    let whole = drive(parser(), [reply]);
    let single: Vec<String> = reply.chars().map(String::from).collect();
    assert_eq!(whole, drive(parser(), single.iter().map(String::as_str)), "{reply:?}");
    for (at, _) in reply.char_indices() {
        let (head, tail) = reply.split_at(at);
        assert_eq!(whole, drive(parser(), [head, tail]), "split at {at}: {reply:?}");
    }
    whole
}

#[track_caller]
fn turn_case(template: &str, reply: &str, content: &str, codes: &[&str]) {
    let parsed = parsed_by(&|| parser_of(template, true), reply);
    let got: Vec<_> = parsed.diagnostics.iter().map(|diagnostic| diagnostic.code).collect();
    assert_eq!((&*parsed.content, &*got), (content, codes), "{reply:?}");
    assert!(parsed.reasoning.is_none(), "{reply:?}");
}

const HEADER: &[&str] = &["role_header_removed"];
const END: &[&str] = &["eog_text_removed"];

#[test]
fn repeated_headers_are_removed() {
    turn_case(CHATML, "<|im_start|>assistant\nHello.", "Hello.", HEADER);
    turn_case(CHATML, "\n<|im_start|>assistant\n\nHello.", "Hello.", HEADER);
    turn_case(CHATML, "<|im_start|>assistant\n<|im_start|>assistant\nHello.", "Hello.", HEADER);
    turn_case(CHATML, "<|im_start|>assistants", "<|im_start|>assistants", &[]);
    turn_case(CHATML, "<|im_start|>assistant", "", HEADER);
    turn_case(CHATML, "Hi <|im_start|>assistant", "Hi <|im_start|>assistant", &[]);
    turn_case(CHATML, "assistant\nHello.", "assistant\nHello.", &[]);
    turn_case(LLAMA3, "<|start_header_id|>assistant<|end_header_id|>\n\nHello.", "Hello.", HEADER);
    turn_case(LLAMA3, "assistant<|end_header_id|>\n\nHello.", "Hello.", HEADER);
    turn_case(LLAMA3, "assistant\n\nHello.", "assistant\n\nHello.", &[]);
    turn_case(GEMMA, "<start_of_turn>model\nHello.", "Hello.", HEADER);
    turn_case(GEMMA, "model\nHello.", "model\nHello.", &[]);
    turn_case(VICUNA, "ASSISTANT: Hello.", "Hello.", HEADER);
    turn_case(VICUNA, " ASSISTANT:Hello.", "Hello.", HEADER);
    turn_case(PHI, "<|assistant|>\nHello.", "Hello.", HEADER);
    turn_case(INST, "[/INST] Hello.", "[/INST] Hello.", &[]);
    turn_case(SHARED_BEGINNING, "<|START_ANSWER|>Hello.<|END_ANSWER|>", "Hello.", &[]);
    // A line break after the header is the template's, not the answer's.
    let broken = PHI
        .replace("{% if add", "{% set nl = '\n' %}{% if add")
        .replace("<|assistant|>\n{% else %}", "<|assistant|>\n{{ nl }}{% else %}");
    turn_case(&broken, "Hello.", "Hello.", &[]);
}

#[test]
fn ends_of_turns_are_removed() {
    for (template, end) in [
        (CHATML, "<|im_end|>"),
        (LLAMA3, "<|eot_id|>"),
        (GEMMA, "<end_of_turn>"),
        (PHI, "<|end|>"),
        (INST, "</s>"),
        (VICUNA, "</s>"),
        // The vocabulary's own token.
        (CHATML, "</s>"),
    ] {
        turn_case(template, &format!("Hello.{end}"), "Hello.", END);
        turn_case(template, &format!("Hello.\n{end}\n"), "Hello.", END);
        turn_case(template, &format!("Hello.{end}{end}"), "Hello.", &[END[0], END[0]]);
        turn_case(template, end, "", END);
        let half = &end[..end.len() - 1];
        turn_case(template, &format!("Hello.\n{half}"), "Hello.", END);
        let quoted = format!("The text {end} ends a turn.");
        turn_case(template, &quoted, &quoted, &[]);
    }
    turn_case(CHATML, "a < b <", "a < b <", &[]);
    turn_case(CHATML, "a <|", "a <|", &[]);
    turn_case(CHATML, "Hello.</s><|im_end|>\n", "Hello.", &[END[0], END[0]]);
}

#[test]
fn a_turn_after_the_answer_is_not_content() {
    let codes = &[END[0], HEADER[0]];
    turn_case(CHATML, "Hello.<|im_end|>\n<|im_start|>assistant\nMore.", "Hello.\nMore.", codes);
    turn_case(CHATML, "<|im_end|>\n<|im_start|>assistant\nHello.", "Hello.", codes);
    turn_case(CHATML, "Hello.<|im_end|>\n<|im_start|>assistant\n", "Hello.", codes);
    turn_case(CHATML, "Hello.<|im_end|>\n<|im_start|>assis", "Hello.", codes);
    let codes = &[END[0], "next_turn_removed"];
    turn_case(
        CHATML,
        "Hello.<|im_end|>\n<|im_start|>user\nAnd?<|im_end|>\n<|im_start|>assistant\nNo.",
        "Hello.",
        codes,
    );
    let next = "Hello.<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nAnd?";
    turn_case(LLAMA3, next, "Hello.", codes);
    for role in ["system", "tool", "developer"] {
        let next = format!("Hello.<|im_end|>\n<|im_start|>{role}\nAnd?");
        turn_case(CHATML, &next, "Hello.", codes);
        let next = format!("Hello.<|eot_id|><|start_header_id|>{role}<|end_header_id|>\n\nAnd?");
        turn_case(LLAMA3, &next, "Hello.", codes);
    }
    turn_case(VICUNA, "Hello.</s>\nUSER: And?", "Hello.", codes);
}

#[test]
fn a_repeated_prompt_keeps_its_reasoning() {
    for (reply, reasoning, content) in [
        ("<|im_start|>assistant\n<think>\nR\n</think>\n\nT<|im_end|>", Some("R"), "T"),
        ("<|im_start|>assistant\nR\n</think>\n\nT", Some("R"), "T"),
        ("<|im_start|>assistant\n<think>\n\n</think>\n\nT", None, "T"),
    ] {
        let parsed = parsed_by(&|| parser_of(THINKS, true), reply);
        assert_eq!(
            (parsed.reasoning.as_deref(), &*parsed.content),
            (reasoning, content),
            "{reply:?}"
        );
    }
    let reply = "<|im_start|>assistant\n<think>\nR\n</think>\n\nT";
    let parsed = parsed_by(&|| parser_of(THINKS, false), reply);
    assert_eq!(parsed.content, "<think>\n\nR\n</think>\n\nT");
    let parsed = parsed_by(&|| parser_of(THINKS, false), "<|im_start|>assistant\n</think>\n\nT");
    assert_eq!(parsed.content, "T");
}

/// A parser of replies in which text spells these control tokens.
fn parser_with_controls(family_name: &str, tools: Vec<Value>, controls: &[&str]) -> ReplyParser {
    let mut parser = reply_parser(&family(family_name), &tools, PLAIN);
    let controls = controls.iter().map(|text| (*text).to_owned()).collect();
    parser.expect_control_spellings(&std::sync::Arc::new(ControlSpellings::new(controls)));
    parser
}

const CONTROLS: &[&str] = &[
    "<|x|>",
    "<|x|>y",
    "<|END_RESPONSE|>",
    "<|im_start|>",
    "[TOOL_CALLS]",
    "[ARGS]",
    "[CALL_ID]",
    "[THINK]",
    "[/THINK]",
    "</s>",
    "<unk>",
];

#[track_caller]
fn control_case(reply: &str, content: &str, calls: &[(&str, &str)], codes: &[&str]) {
    let parser = || parser_with_controls("mistral-args", tools(), CONTROLS);
    let parsed = parsed_by(&parser, reply);
    let got: Vec<_> =
        parsed.tool_calls.iter().map(|call| (&*call.name, &*call.arguments)).collect();
    let seen: Vec<_> = parsed.diagnostics.iter().map(|diagnostic| diagnostic.code).collect();
    assert_eq!((&*parsed.content, &*got, &*seen), (content, calls, codes), "{reply:?}");
}

const REMOVED: &str = "control_token_removed";

#[test]
fn control_tokens_never_reach_a_user() {
    control_case("a < b, <|x and <|y|>", "a < b, <|x and <|y|>", &[], &[]);
    control_case("Hello <|x|>world.", "Hello world.", &[], &[REMOVED]);
    control_case("<|x|>\nHello<|x|>.\n<|END_RESPONSE|>\n", "\nHello.", &[], &[REMOVED, REMOVED]);
    control_case("<|x|>yes<|x|>no", "esno", &[], &[REMOVED, REMOVED]);
    control_case("<<|x|><|x|", "<<|x|", &[], &[REMOVED]);
    control_case("[THINK]a<|x|>b[/THINK]c<unk>", "c", &[], &[REMOVED, REMOVED]);
    // Tokens of the format that do not form a call.
    control_case("The [TOOL_CALLS] (token).", "The  (token).", &[], &[REMOVED]);
    control_case("[TOOL_CALLS]", "", &[], &["dangling_marker"]);
    control_case("a [ARGS] b", "a  b", &[], &[REMOVED]);
    control_case("Hm. [TOOL_CALLS]\"f\"", "Hm. \"f\"", &[], &[REMOVED]);
    control_case("[TOOL_CALLS]f[ARGS]{\"a\": 1}", "", &[F1], &[]);
    control_case("[TOOL_CALLS]<|x|>f<|x|>[ARGS]{\"a\": <|x|>1}", "", &[F1], &[REMOVED]);
    control_case(
        "[TOOL_CALLS]f[ARGS]{\"a\": \"[ARGS] <|x|>[THINK]\"}",
        "",
        &[("f", "{\"a\": \" \"}")],
        &[REMOVED, REMOVED, REMOVED],
    );
    // Without tools the markup of calls is text, except for control tokens.
    let mut parser = reply_parser(&family("mistral-args"), &[], NO_CALLS);
    let controls = CONTROLS.iter().map(|text| (*text).to_owned()).collect();
    parser.expect_control_spellings(&std::sync::Arc::new(ControlSpellings::new(controls)));
    parser.push("[TOOL_CALLS]f[ARGS]{\"a\": 1}");
    assert_eq!(parser.finish().1.content, "f{\"a\": 1}");
}

#[test]
fn only_tokens_are_control_tokens_where_tokens_are_known() {
    let parser = || {
        let mut parser = reply_parser(&family("mistral-args"), &tools(), PLAIN);
        let mut text = String::new();
        let mut take = |deltas: Vec<Delta>| {
            for delta in deltas {
                let Delta::Content(piece) = delta else { panic!("{delta:?}") };
                text += &piece;
            }
        };
        take(parser.push("Write <|x|> or [TOOL_CALLS], here"));
        take(parser.push_control("<|x|>"));
        take(parser.push_control("[TOOL_CALLS]"));
        take(parser.push(", or [TOOL_CALLS], there"));
        let (last, parsed) = parser.finish();
        take(last);
        assert_eq!(text, parsed.content);
        parsed
    };
    let parsed = parser();
    assert_eq!(parsed.content, "Write <|x|> or [TOOL_CALLS], here, or [TOOL_CALLS], there");
    let codes: Vec<_> = parsed.diagnostics.iter().map(|diagnostic| diagnostic.code).collect();
    assert_eq!(codes, [REMOVED, REMOVED]);
}

/// A parser of replies to a request for an object with the member `a`.
fn json_parser() -> ReplyParser {
    let mut parser = ReplyParser::new(ReplyParserInput {
        format: Some(&hermes()),
        tools: tools().into(),
        calls_allowed: true,
        reasoning: true,
        json: true,
        parallel: true,
        new_id: Box::new(|| "id1".to_owned()),
    });
    parser.set_json_validator(Box::new(|text| {
        serde_json::from_str::<Value>(text).is_ok_and(|value| value.get("a").is_some())
    }));
    parser
}

#[track_caller]
fn json_case(reply: &str, content: &str, unwrapped: bool) {
    let parsed = parsed_by(&json_parser, reply);
    let codes: Vec<_> = parsed.diagnostics.iter().map(|diagnostic| diagnostic.code).collect();
    let expected = if unwrapped { vec!["json_unwrapped"] } else { vec![] };
    assert_eq!((&*parsed.content, codes), (content, expected), "{reply:?}");
}

#[test]
fn the_content_of_a_json_reply_is_the_value() {
    const V: &str = "{\"a\": [1, {\"b\": \"}`\\\"\"}]}";
    json_case(V, V, false);
    json_case(&format!("\n{V}\n"), &format!("\n{V}\n"), false);
    for wrapped in [
        format!("```json\n{V}\n```"),
        format!("```\n{V}\n```\n"),
        format!("```json{V}```"),
        format!("```json\n{V}"),
        format!("```json\n{V}\n```\nThat is all."),
        format!("Here is the JSON:\n{V}"),
        format!("Here is the JSON:\n\n```json\n{V}\n```\nIt has one {{member}}."),
        format!("[Note] {V} [1]"),
        format!("{V}\n\nI hope this helps!"),
        format!("{V}\n```"),
        format!("json\n{V}"),
        format!("<output>{V}</output>"),
        format!("Not {{\"x\": 1}} but {V}."),
        format!("<think>{{\"a\": 2}}</think>Sure: {V}"),
    ] {
        json_case(&wrapped, V, true);
    }
    // Text without a value, with several values, or with a value that violates the schema stays
    // unchanged.
    for kept in [
        "No.".to_owned(),
        "{\"x\": 1}".to_owned(),
        "It is {\"x\": 1}.".to_owned(),
        format!("{V}\n{V}"),
        format!("First {V}, then {V}."),
        "{not JSON} at all".to_owned(),
        "{\"a\": ".to_owned(),
        "``".to_owned(),
        "true".to_owned(),
        "```json\n".to_owned(),
    ] {
        json_case(&kept, &kept, false);
    }
}

#[test]
fn json_is_shown_once_its_start_is_certain() {
    let mut parser = json_parser();
    let shown: Vec<String> = ["``", "`json\n", "{", "\"a\"", ": 1", "}", "\n```"]
        .map(|piece| {
            let deltas = parser.push(piece).into_iter();
            deltas
                .map(|delta| if let Delta::Content(text) = delta { text } else { panic!() })
                .collect()
        })
        .to_vec();
    assert_eq!(shown, ["", "", "", "{\"a\"", ": 1", "}", ""]);
    let parsed = parsed_by(&json_parser, &format!("Let me look: {C}"));
    assert_eq!((&*parsed.content, parsed.tool_calls.len()), ("Let me look:", 1));
}

#[test]
fn prose_with_many_brackets_takes_linear_time() {
    for unit in ["{", "[", "[1,", "{\"a\":", "```\n", "[\"", "{\"a\": 1} "] {
        let mut parser = json_parser();
        let start = thread_time();
        parser.push("So ");
        parser.push(&unit.repeat(60_000 / unit.len()));
        parser.finish();
        let took = thread_time().saturating_sub(start);
        assert!(took.as_secs() < 30, "{unit:?} takes {took:?}");
    }
}

#[test]
fn repeated_markup_takes_linear_time_and_memory() {
    // If each removed part copied or kept the rest, a text would take minutes and gigabytes.
    for (template, unit, content) in [
        (CHATML, "<|im_start|>assistant\n", ""),
        (CHATML, "<|im_end|>a", "<|im_end|>a"),
        (CHATML, "<|im_end|>\n<|im_start|>assistant\n", ""),
        (VICUNA, "</s>{\"", "</s>{\""),
        (PHI, "<|assistant|>", ""),
        (LLAMA3, "<|start_header_id|>assistant<|end_header_id|>\n\n", ""),
    ] {
        let count = 2_000_000 / unit.len();
        let parsed = drive(parser_of(template, true), [&*unit.repeat(count)]);
        assert!(parsed.content == content.repeat(count), "{unit:?}");
    }
    let mut parser = parser_of(CHATML, true);
    for _ in 0..300_000 {
        parser.push("\n");
    }
    parser.push("<|im_start|>assistant\nHello.");
    assert_eq!(parser.finish().1.content, "Hello.");
}
