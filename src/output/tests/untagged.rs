//! Calls without the tags of the model's format: bare, in a fence, in an element of any name.

use super::*;
use crate::test_support::replies::drive;

const CITY: NamedCall = ("weather", "{\"city\": \"Oslo\"}");
const ROME: NamedCall = ("weather", "{\"city\": \"Rome\"}");
const OBJECT: &str = "{\"name\": \"weather\", \"arguments\": {\"city\": \"Oslo\"}}";
const OTHER: &str = "{\"name\": \"weather\", \"arguments\": {\"city\": \"Rome\"}}";
/// No city.
const UNFIT: &str = "{\"name\": \"weather\", \"arguments\": {\"town\": \"Oslo\"}}";
const UNKNOWN: &str = "{\"name\": \"wether\", \"arguments\": {\"city\": \"Oslo\"}}";
const UNTAGGED: &[&str] = &["untagged_call"];
const TWO: &[&str] = &["untagged_call", "untagged_call"];
const CALL_LIKE: &[&str] = &["call_like_content"];
/// Formats whose calls have tags, of several kinds.
const FORMATS: [&str; 4] = ["hermes", "internlm2", "granite-3.3", "mistral-array"];

fn weather() -> Vec<Value> {
    let city = json!({ "type": "string" });
    let schema = json!({ "type": "object", "properties": { "city": city }, "required": ["city"] });
    let now = json!({ "type": "object", "properties": {} });
    [("weather", schema), ("now", now)]
        .map(|(name, schema)| {
            json!({ "type": "function", "function": { "name": name, "parameters": schema } })
        })
        .to_vec()
}

/// A parser whose validator wants a city for `weather`.
fn parser(format: &Format, setting: Setting, accepted: bool) -> ReplyParser {
    let mut parser = reply_parser(format, &weather(), setting);
    parser.set_call_validator(Box::new(|name, arguments| {
        let arguments: Value = serde_json::from_str(arguments).unwrap_or_default();
        match arguments.is_object() && (name != "weather" || arguments["city"].is_string()) {
            true => Ok(()),
            false => Err(Diagnostic::new("wrong", format!("{name}: no city")).with("tool", name)),
        }
    }));
    parser.set_untagged_calls(accepted);
    parser
}

/// The content, the calls and the codes of a reply, which are the same however it is cut.
#[track_caller]
fn read(
    format: &str,
    setting: Setting,
    accepted: bool,
    text: &str,
) -> (String, Vec<(String, String)>, Vec<&'static str>) {
    let format = family(format);
    let whole = drive(parser(&format, setting, accepted), [text]);
    for (at, _) in text.char_indices() {
        let (head, tail) = text.split_at(at);
        let cut = drive(parser(&format, setting, accepted), [head, tail]);
        assert_eq!(whole, cut, "split at {at}: {text:?}");
    }
    let single: Vec<String> = text.chars().map(String::from).collect();
    let single = single.iter().map(String::as_str);
    assert_eq!(whole, drive(parser(&format, setting, accepted), single), "{text:?}");
    let calls = whole.tool_calls.into_iter().map(|call| (call.name, call.arguments)).collect();
    let codes = whole.diagnostics.iter().map(|diagnostic| diagnostic.code);
    // A format may want ids, which such calls do not have.
    (whole.content, calls, codes.filter(|code| *code != "id_generated").collect())
}

#[track_caller]
fn check_in(format: &str, text: &str, content: &str, calls: &[NamedCall], codes: &[&str]) {
    let (seen, seen_calls, seen_codes) = read(format, PLAIN, true, text);
    let seen_calls: Vec<_> =
        seen_calls.iter().map(|(name, arguments)| (&**name, &**arguments)).collect();
    assert_eq!((&*seen, &*seen_calls, &*seen_codes), (content, calls, codes), "{format} {text:?}");
}

#[track_caller]
fn check_all(text: &str, content: &str, calls: &[NamedCall], codes: &[&str]) {
    for format in FORMATS {
        check_in(format, text, content, calls, codes);
    }
}

#[test]
fn a_reply_of_objects_is_calls() {
    check_all(OBJECT, "", &[CITY], UNTAGGED);
    check_all(&format!("\n  {OBJECT}\n\n"), "", &[CITY], UNTAGGED);
    check_all(&OBJECT.replace("arguments", "parameters"), "", &[CITY], UNTAGGED);
    let lines = "{\n  \"name\": \"weather\",\n  \"arguments\": {\"city\": \"Oslo\"}\n}";
    check_all(lines, "", &[CITY], UNTAGGED);
    for separator in ["\n", " ", "", ", ", ",\n", "; ", "\n\n"] {
        check_all(&format!("{OBJECT}{separator}{OTHER}"), "", &[CITY, ROME], TWO);
    }
    for list in [format!("[{OBJECT},{OTHER}]"), format!("[\n  {OBJECT},\n  {OTHER}\n]\n")] {
        check_all(&list, "", &[CITY, ROME], TWO);
    }
    check_all(&format!("[{OBJECT}]"), "", &[CITY], UNTAGGED);
    check_all("[weather(city=\"Oslo\"), now()]", "", &[CITY, ("now", "{}")], TWO);
    let text = "{\"name\": \"weather\", \"arguments\": \"{\\\"city\\\": \\\"Oslo\\\"}\"}";
    check_all(text, "", &[CITY], &["untagged_call", "arguments_string_unwrapped"]);
}

/// A model that writes its arguments in one line may still close the object on a line of its own.
#[test]
fn a_bracket_too_many_closes_nothing() {
    let fence = "```";
    check_all(&format!("{fence}json\n{OBJECT}\n}}\n{fence}"), "", &[CITY], &["fenced_call"]);
    check_all(&format!("<json>\n{OBJECT}}}\n</json>"), "", &[CITY], UNTAGGED);
    let text = format!("{fence}json\n{OBJECT}\n}} x\n{fence}");
    check_all(&text, &text, &[], CALL_LIKE);
}

#[test]
fn an_element_of_any_name_may_surround_them() {
    for (open, close) in [("<json>\n", "\n</json>"), ("<my_call>", "</my_call>\n"), ("<|x|>", "")] {
        let codes = match close {
            "" => &["missing_end_marker", "untagged_call"],
            _ => UNTAGGED,
        };
        check_all(&format!("{open}{OBJECT}{close}"), "", &[CITY], codes);
    }
    check_all(&format!("<json>\n{OBJECT}\n{OTHER}\n</json>"), "", &[CITY, ROME], TWO);
    check_all(&format!("<json>[{OBJECT}, {OTHER}]</json> Done."), "Done.", &[CITY, ROME], TWO);
    // Only the end of the markup was written.
    for close in ["```", "\n```", "\n```\n", "\n</tool_call>", "</tool_call>\n", "\n</json>"] {
        check_all(&format!("{OBJECT}{close}"), "", &[CITY], UNTAGGED);
    }
    check_in(
        "hermes",
        &format!("{OBJECT}\n{C2}"),
        "",
        &[CITY, ("g", "{\"a\": 2}")],
        &["untagged_call", "unknown_tool"],
    );
    check_all(
        &format!("{OBJECT}\n```json\n{OTHER}\n```"),
        "",
        &[CITY, ROME],
        &["untagged_call", "fenced_call"],
    );
}

/// Where calls have no tag, they may follow text, but nothing follows them on their line.
#[test]
fn formats_without_tags() {
    let read = |format: &str, text: &str| {
        let mut parser = parser(&family(format), PLAIN, true);
        parser.validate_unconstrained_calls();
        let parsed = drive(parser, [text]);
        let codes: Vec<_> = parsed.diagnostics.iter().map(|diagnostic| diagnostic.code).collect();
        (parsed.content, parsed.tool_calls.len(), codes)
    };
    for format in ["llama3", "bare-array"] {
        for text in [OBJECT.to_owned(), format!("[{OBJECT}]"), format!("{OBJECT}\n```")] {
            assert_eq!(read(format, &text), (String::new(), 1, vec![]), "{format} {text:?}");
        }
        let two = format!("So: {OBJECT}; {OTHER}\nDone.");
        assert_eq!(read(format, &two), ("So: \nDone.".to_owned(), 2, vec![]), "{format}");
        let text = format!("I would send {OBJECT} to the service.");
        assert_eq!(read(format, &text), (text, 0, CALL_LIKE.to_vec()), "{format}");
        assert_eq!(read(format, UNFIT), (UNFIT.to_owned(), 0, CALL_LIKE.to_vec()), "{format}");
    }
}

/// The same content is calls or text, whether it is bare, in a fence, or in an element.
#[test]
fn a_fence_is_as_good_as_no_fence() {
    let cases: [(String, &[NamedCall]); 8] = [
        (OBJECT.to_owned(), &[CITY]),
        (format!("{OBJECT}, {OTHER}"), &[CITY, ROME]),
        (format!("[{OBJECT}, {OTHER}]"), &[CITY, ROME]),
        (UNFIT.to_owned(), &[]),
        (UNKNOWN.to_owned(), &[]),
        (format!("[{OBJECT}, {UNFIT}]"), &[]),
        (format!("[{OBJECT}, {UNKNOWN}]"), &[]),
        ("{\"city\": \"Oslo\"}".to_owned(), &[]),
    ];
    for (content, calls) in cases {
        let fence = |language: &str| format!("```{language}\n{content}\n```");
        let element = format!("<json>\n{content}\n</json>");
        for text in [content.clone(), fence(""), fence("json"), fence("plaintext"), element] {
            for (before, after) in [("", ""), ("Sure:\n\n", ""), ("", "\nDone."), ("A.\n", "\nB.")]
            {
                let reply = format!("{before}{text}{after}");
                let (shown, seen, _) = read("hermes", PLAIN, true, &reply);
                let seen: Vec<_> = seen.iter().map(|(name, text)| (&**name, &**text)).collect();
                // Whitespace between two texts is kept.
                let rest = match (before, after) {
                    ("", after) => after.trim_start().to_owned(),
                    (before, "") => before.trim_end().to_owned(),
                    (before, after) => format!("{before}{after}"),
                };
                let expected = if calls.is_empty() { reply.clone() } else { rest };
                assert_eq!((shown, &*seen), (expected, calls), "{reply:?}");
            }
        }
    }
}

#[test]
fn other_text_stays_text() {
    let text = |text: &str, codes: &[&str]| check_all(text, text, &[], codes);
    text(UNFIT, CALL_LIKE);
    text(UNKNOWN, CALL_LIKE);
    text(&format!("```json\n{UNKNOWN}\n```"), CALL_LIKE);
    text(&format!("<json>{UNKNOWN}</json>"), CALL_LIKE);
    text(&format!("[{UNKNOWN}, {OBJECT}]"), CALL_LIKE);
    text(&format!("I would send {OBJECT} to the service."), &[]);
    text(&format!("{OBJECT} is what I would send."), CALL_LIKE);
    text(&format!("So: {OBJECT}"), &[]);
    text(&format!("[{OBJECT}] and more"), CALL_LIKE);
    text(&format!("[{OBJECT}, 1]"), CALL_LIKE);
    text(&OBJECT[..OBJECT.len() - 1], CALL_LIKE);
    text(&format!("[{OBJECT}"), CALL_LIKE);
    text("{\"city\": \"Oslo\"}", &[]);
    text("{\"name\": \"Oslo\", \"arguments\": {\"for\": \"a visit\"}}", CALL_LIKE);
    text("{\"name\": \"weather\"}", &[]);
    text("{\"name\": \"weather\", \"arguments\": 3}", CALL_LIKE);
    text("{\"name\": \"weather\", \"age\": 3, \"arguments\": {\"city\": \"Oslo\"}}", CALL_LIKE);
    text("{\"type\": \"object\", \"properties\": {\"name\": {\"type\": \"string\"}}}", &[]);
    text("<p>Rain.</p>\n<ul>\n<li>{x}</li></ul>", &[]);
    text("[weather](https://example.org) is a link", &[]);
    text("[1, 2]\n{\n{\n<\n<a\n[[", &[]);
}

/// The diagnostic of a lost call has the reason.
#[test]
fn the_diagnostic_says_why() {
    let unfit = json!({ "message": "weather: no city", "tool": "weather" });
    let unknown =
        json!({ "message": "`wether` is not among the tools `now`, `weather`", "name": "wether" });
    let reason = |text: &str| json!({ "message": text });
    let other = "{\"name\": \"weather\", \"age\": 3, \"arguments\": {\"city\": \"Oslo\"}}";
    let mut cases = vec![
        (
            UNFIT.replace("{\"town\": \"Oslo\"}", "3"),
            json!({
                "message": "the arguments of `weather` are not a JSON object",
                "tool": "weather",
            }),
        ),
        (other.to_owned(), reason("calls have no member `age`")),
    ];
    let list = |entry: &str| format!("[{OBJECT}, {entry}]");
    let object = |entry: &str| format!("{{\"tool_calls\": [{OBJECT}, {entry}]}}");
    for (entry, because) in [(UNFIT, unfit), (UNKNOWN, unknown)] {
        for text in [entry.to_owned(), list(entry), object(entry)] {
            cases.push((text, because.clone()));
        }
    }
    for (text, because) in cases {
        for reply in
            [text.clone(), format!("```json\n{text}\n```"), format!("<json>\n{text}\n</json>")]
        {
            let parsed = drive(parser(&hermes(), PLAIN, true), [&*reply]);
            assert_eq!(parsed.content, reply);
            let mut expected = json!({ "code": "call_like_content" });
            for (key, value) in because.as_object().unwrap() {
                expected[key] = value.clone();
            }
            let message = because["message"].as_str().unwrap();
            expected["message"] = format!("{message}; the call was kept as text").into();
            assert_eq!(json!(parsed.diagnostics), json!([expected]), "{reply}");
        }
    }
    let parsed = drive(parser(&hermes(), PLAIN, false), [OBJECT]);
    assert!(parsed.diagnostics[0].message.starts_with("`untagged_calls` is false"));
}

#[test]
fn long_lists_of_tools_are_cut() {
    let tool = |index: usize| json!({ "function": { "name": format!("f{index:02}") } });
    let tools: Vec<Value> = (0..11).map(tool).collect();
    let parsed = drive(reply_parser(&hermes(), &tools, PLAIN), [UNKNOWN]);
    let listed = "`f00`, `f01`, `f02`, `f03`, `f04`, `f05`, `f06`, `f07` and 3 more; the call";
    assert!(parsed.diagnostics[0].message.contains(listed), "{:?}", parsed.diagnostics);
}

#[test]
fn code_is_no_call() {
    let text = |text: &str, codes: &[&str]| check_all(text, text, &[], codes);
    text(&format!("```python\nx = 1\n{OBJECT}\n```"), &[]);
    text(&format!("say ```json\n{OBJECT}\n``` here"), &[]);
    text(&format!("```\nexample:\n{OBJECT}\n```\nDone."), &[]);
    // The code is closed.
    let code = "```python\nx = 1\n```";
    check_all(&format!("{code}\n{OBJECT}"), code, &[CITY], UNTAGGED);
    check_all(&format!("{code}\n```json\n{OBJECT}\n```"), code, &[CITY], &["fenced_call"]);
}

#[test]
fn requests_may_turn_them_off() {
    for text in [OBJECT.to_owned(), format!("<json>{OBJECT}</json>"), format!("{OBJECT}\n```")] {
        let (content, calls, _) = read("hermes", PLAIN, false, &text);
        assert_eq!((content, calls), (text, Vec::new()));
    }
    let fenced = format!("```json\n{OBJECT}\n```");
    assert_eq!(read("hermes", PLAIN, false, &fenced).1.len(), 1);
    // Models with this format omit the tags.
    assert_eq!(read("granite-3.3", PLAIN, false, OBJECT).1.len(), 1);
    let (content, calls, codes) = read("hermes", NO_CALLS, true, OBJECT);
    assert_eq!((&*content, calls.len(), codes.len()), (OBJECT, 0, 0));
}

#[test]
fn they_follow_reasoning() {
    let thinking = Setting { prompt: "<think>\n", ..PLAIN };
    let reply = format!("I need it.\n{OBJECT}\n</think>\n\n{OTHER}");
    let (content, calls, codes) = read("hermes", thinking, true, &reply);
    assert_eq!((&*content, calls.len(), &*codes), ("", 1, UNTAGGED));
    assert_eq!(calls[0].1, ROME.1);
    // A fence that the reasoning leaves open does not matter.
    let reply = format!("```\ncode\n</think>\n{OBJECT}");
    assert_eq!(read("hermes", thinking, true, &reply).1.len(), 1);
}

/// Text is held back while it can still become calls, and no longer.
#[test]
fn text_is_emitted_as_soon_as_it_is_certain() {
    let cases: [&[(&str, &str)]; 6] = [
        &[
            ("{\"name\": \"weather\", \"arguments\": {\"city\": \"Oslo\"}}", ""),
            ("\n", ""),
            ("N", "#N"),
        ],
        &[("{\"city", ""), ("\"", "{\"city\""), (": 1", ": 1")],
        &[("{\"name\": \"wether", ""), ("\"", "{\"name\": \"wether\"")],
        &[("<js", ""), ("on>\n", ""), ("S", "<json>\nS")],
        &[
            ("{\"name\": \"weather\", \"arguments\": {}", ""),
            ("}", "{\"name\": \"weather\", \"arguments\": {}}"),
        ],
        &[("[", ""), ("1", "[1")],
    ];
    for pushes in cases {
        let mut parser = parser(&hermes(), PLAIN, true);
        for (piece, expected) in pushes {
            let shown = parser.push(piece).into_iter().map(|delta| match delta {
                Delta::Content(text) => text,
                Delta::ToolCall { .. } => "#".to_owned(),
                _ => String::new(),
            });
            assert_eq!(shown.collect::<String>(), *expected, "{pushes:?}");
        }
    }
}

/// The format's own notation without its opening tag.
#[test]
fn only_the_opening_tag_may_lack() {
    for (format, call) in [
        ("gemma4", "call:weather{city:<|\"|>Oslo<|\"|>}"),
        ("gemma4", "call:weather{city:<|\"|>Oslo<|\"|>}<tool_call|>"),
        ("glm-kv", "weather\n<arg_key>city</arg_key>\n<arg_value>Oslo</arg_value>\n</tool_call>"),
        ("mistral-args", "weather[ARGS]{\"city\": \"Oslo\"}"),
    ] {
        check_in(format, call, "", &[CITY], UNTAGGED);
        check_in(format, &format!("I look.\n{call}"), "I look.", &[CITY], UNTAGGED);
        check_in(format, &format!("{call}\n{call}"), "", &[CITY, CITY], TWO);
        let (content, calls, _) = read(format, PLAIN, true, &format!("so {call}"));
        assert!(calls.is_empty() && content.contains("weather"), "{format} {content:?}");
        let (content, calls, _) = read(format, PLAIN, false, call);
        assert!(calls.is_empty() && content.starts_with(&call[..7]), "{format} {content:?}");
    }
    let unfit = "call:weather{town:1}";
    check_in("gemma4", unfit, unfit, &[], CALL_LIKE);
    for text in ["call:other{city:1}", "call: weather", "called", "call:weather{city:<|\"|>Os"] {
        check_in("gemma4", text, text, &[], &[]);
    }
    check_in("glm-kv", "weather is fine.\nnow\n", "weather is fine.\nnow\n", &[], &[]);
}
