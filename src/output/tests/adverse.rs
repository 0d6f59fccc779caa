//! Tests replies of every family, as templates write them and with the deviations of models.
//!
//! The expected messages are written by hand. The cases are in one file so that they can be
//! compared.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};

use serde_json::{Value, json};

use super::family_replies::TABLE;
use crate::output::*;
use crate::test_support::cpu_time;
use crate::test_support::random::Random;
use crate::test_support::replies::{PLAIN, Setting, family, feed, lost, parse};

const A1: &str = "{\"a\": 1}";
const F1: (&str, &str) = ("f", "{\"a\": 1}");
const G2: (&str, &str) = ("g", "{\"a\": 2}");
const O1: &str = "{\"name\": \"f\", \"arguments\": {\"a\": 1}}";
const O2: &str = "{\"name\": \"g\", \"arguments\": {\"a\": 2}}";

fn tool(name: &str, parameters: Value) -> Value {
    json!({ "type": "function", "function": { "name": name, "parameters": parameters } })
}

fn tools() -> Vec<Value> {
    let a = json!({ "type": "integer" });
    vec![
        tool(
            "f",
            json!({ "type": "object", "properties": { "a": a, "b": { "type": "string" } }, "required": ["a"] }),
        ),
        tool("g", json!({ "type": "object", "properties": { "a": a } })),
    ]
}

/// A reply and the expected result.
struct ReplyCase {
    format: Format,
    setting: Setting,
    tools: Vec<Value>,
    text: String,
    content: String,
    reasoning: Option<String>,
    calls: Vec<(String, String)>,
    ids: Option<Vec<String>>,
    codes: Vec<&'static str>,
    leftover: Vec<String>,
    incomplete: bool,
}

/// A case of a family. The expected message is empty.
fn row(name: &str, text: impl Into<String>) -> ReplyCase {
    ReplyCase {
        format: family(name),
        setting: PLAIN,
        tools: tools(),
        text: text.into(),
        content: String::new(),
        reasoning: None,
        calls: Vec::new(),
        ids: None,
        codes: Vec::new(),
        leftover: Vec::new(),
        incomplete: false,
    }
}

/// A reply that is text only.
fn plain(name: &str, text: &str) -> ReplyCase {
    row(name, text).content(text)
}

impl ReplyCase {
    fn content(mut self, text: &str) -> ReplyCase {
        self.content = text.to_owned();
        self
    }

    fn reasoning(mut self, text: &str) -> ReplyCase {
        self.reasoning = Some(text.to_owned());
        self
    }

    fn calls(mut self, calls: &[(&str, &str)]) -> ReplyCase {
        self.calls = calls
            .iter()
            .map(|(name, arguments)| ((*name).to_owned(), (*arguments).to_owned()))
            .collect();
        self
    }

    fn ids(mut self, ids: &[&str]) -> ReplyCase {
        self.ids = Some(ids.iter().map(|id| (*id).to_owned()).collect());
        self
    }

    fn codes(mut self, codes: &[&'static str]) -> ReplyCase {
        self.codes = codes.to_vec();
        self
    }

    fn prompt(mut self, prompt: &'static str) -> ReplyCase {
        self.setting.prompt = prompt;
        self
    }

    fn with(mut self, change: impl FnOnce(&mut ReplyCase)) -> ReplyCase {
        change(&mut self);
        self
    }

    /// Describes how the result differs from the expected one.
    fn check(&self) -> Option<String> {
        let parsed = catch_unwind(AssertUnwindSafe(|| {
            parse(&self.format, &self.tools, self.setting, &self.text)
        }));
        let Ok(parsed) = parsed else {
            return Some(format!("{} {:?}: a property is violated", self.format.family, self.text));
        };
        let calls: Vec<_> = parsed
            .tool_calls
            .iter()
            .map(|call| (call.name.clone(), call.arguments.clone()))
            .collect();
        let ids: Vec<_> = parsed.tool_calls.iter().map(|call| call.id.clone()).collect();
        let codes: Vec<_> = parsed.diagnostics.iter().map(|diagnostic| diagnostic.code).collect();
        let same = parsed.content == self.content
            && parsed.reasoning == self.reasoning
            && calls == self.calls
            && self.ids.as_ref().is_none_or(|wanted| *wanted == ids)
            && codes == self.codes
            && parsed.leftover == self.leftover
            && parsed.complete != self.incomplete;
        if !same {
            return Some(format!(
                "{} {:?}\n  want {:?} {:?} {:?} {:?} {:?} {:?}\n  got  {:?} {:?} {:?} {:?} {:?} {:?} complete {}",
                self.format.family,
                self.text,
                self.content,
                self.reasoning,
                self.calls,
                self.ids,
                self.codes,
                self.leftover,
                parsed.content,
                parsed.reasoning,
                calls,
                ids,
                codes,
                parsed.leftover,
                parsed.complete
            ));
        }
        let lost = lost(&self.format, &self.text, &parsed);
        (!lost.is_empty()).then(|| format!("{} {:?}: lost {lost:?}", self.format.family, self.text))
    }
}

/// Checks all cases before it reports the failed ones.
#[track_caller]
fn check(rows: impl IntoIterator<Item = ReplyCase>) {
    let wrong: Vec<String> = rows.into_iter().filter_map(|row| row.check()).collect();
    assert!(wrong.is_empty(), "{} cases:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn the_table_contains_every_family() {
    let named: BTreeSet<_> = TABLE.iter().map(|replies| replies.family.to_owned()).collect();
    let all = families::all().into_iter().chain([families::polyfilled()]);
    assert_eq!(named, all.map(|format| format.family.into_owned()).collect());
}

#[test]
fn calls_as_templates_write_them() {
    check(TABLE.iter().flat_map(|replies| {
        let family = replies.family;
        let with_ids = move |mut row: ReplyCase| {
            row.ids = replies
                .ids()
                .map(|ids| ids[..row.calls.len()].iter().map(|id| (*id).to_owned()).collect());
            if replies.late_ids {
                row.codes.extend(row.calls.iter().map(|_| "id_generated"));
            }
            if row.setting.prompt.is_empty() {
                row.setting.prompt = replies.prompt;
            }
            // In these replies a message ends within the turn.
            if row.text.contains("<|begin|>") || row.text.contains("<|close|>message") {
                row.codes.push("eog_text_removed");
            }
            row
        };
        let reasoning = replies
            .reasoning()
            .map(|(prompt, text)| row(family, text).prompt(prompt).reasoning("R").calls(&[F1]));
        let rows = [
            row(family, replies.one()).calls(&[F1]),
            row(family, replies.two()).calls(&[F1, G2]),
            row(family, replies.text_before()).content("T").calls(&[F1]),
            row(family, replies.text_after()).content("Done.").calls(&[F1]),
        ];
        rows.into_iter().chain(reasoning).map(with_ids)
    }));
}

#[test]
fn calls_of_unknown_tools() {
    check(TABLE.iter().map(|replies| {
        let one = replies.one();
        let row = row(replies.family, &*one)
            .prompt(replies.prompt)
            .with(|row| row.tools = vec![tool("other", json!({}))]);
        match replies.untagged {
            true if one.starts_with(['{', '[']) && one.contains('{') => {
                row.content(&one).codes(&["call_like_content"])
            }
            true => row.content(&one),
            false if replies.late_ids => row.calls(&[F1]).codes(&["unknown_tool", "id_generated"]),
            false => row.calls(&[F1]).codes(&["unknown_tool"]),
        }
    }));
}

#[test]
fn calls_are_text_if_the_request_allows_none() {
    for replies in TABLE {
        let format = family(replies.family);
        if format.channels.is_some() {
            continue;
        }
        let one = replies.one();
        let parsed = parse(&format, &[], Setting { calls_allowed: false, ..PLAIN }, &one);
        let ends = |text: &str| {
            format.ends.iter().fold(text.to_owned(), |text, end| text.replace(&**end, ""))
        };
        assert_eq!(ends(&parsed.content).trim(), ends(&one).trim(), "{}", replies.family);
        assert!(parsed.tool_calls.is_empty());
    }
}

/// A call may be cut off anywhere. No text is lost, and calls that were emitted stay.
#[test]
fn truncated_calls_lose_nothing() {
    for replies in TABLE {
        let format = family(replies.family);
        let setting = Setting { prompt: replies.prompt, ..PLAIN };
        let two = replies.two();
        let whole = parse(&format, &tools(), setting, &two);
        for (at, _) in two.char_indices() {
            let text = &two[..at];
            let parsed = feed(&format, &tools(), setting, [text]);
            let lost = lost(&format, text, &parsed);
            // The last word may be an incomplete word of the markup.
            let cut = text.rsplit(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
            assert!(
                lost.iter().all(|word| word == cut),
                "{}: {text:?} lost {lost:?}\n{parsed:?}",
                replies.family
            );
            assert!(parsed.tool_calls.len() <= whole.tool_calls.len());
            for (part, all) in parsed.tool_calls.iter().zip(&whole.tool_calls) {
                assert_eq!(
                    (&part.id, &part.name),
                    (&all.id, &all.name),
                    "{}: {text:?}",
                    replies.family
                );
            }
        }
    }
}

#[test]
fn prose_is_text_in_every_family() {
    let all: Vec<Format> = families::all().into_iter().chain([families::polyfilled()]).collect();
    check(all.iter().flat_map(|format| {
        [
            "Use a set like {1,2} or [3], or [link](url): a < b && c <= d > e.",
            "Here is JSON: {\"a\": 1} done",
            "{\"a\": 1}",
            "[1, 2]",
            "[]",
            "[x for x in y] and f(x)",
            "- [ ] to do\n- [x] done",
            "naïve 🦙 <\u{FF5C}x \u{0} <|y|> </z> <a>b</a>",
            "if (a[1] == '{') { b(); }",
            "```python\nprint({'name': 'f'})\n```",
        ]
        .map(|text| plain(&format.family, text))
    }));
}

/// The start of a marker at the end of the text is text.
#[test]
fn incomplete_markers_are_text() {
    let mut wrong = Vec::new();
    for format in families::all().into_iter().filter(|format| format.channels.is_none()) {
        for marker in format.texts() {
            let marker = marker.trim();
            for (at, _) in marker.char_indices().skip(1) {
                let text = format!("T {}", &marker[..at]);
                if text.ends_with('\n') || text.ends_with(' ') {
                    continue;
                }
                let parsed = parse(&format, &tools(), PLAIN, &text);
                let shown = parsed.content.clone() + &parsed.leftover.concat();
                let inked =
                    |text: &str| text.chars().filter(|c| !c.is_whitespace()).collect::<String>();
                let whole = format.texts().iter().any(|known| {
                    let mut pieces = known
                        .split_inclusive(['>', ']'])
                        .map(str::trim)
                        .filter(|piece| piece.len() > 2);
                    pieces.any(|piece| text.contains(piece))
                });
                if inked(&shown) != inked(&text) && !whole {
                    wrong.push(format!("{}: {text:?} {parsed:?}", format.family));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

// Replies that deviate from the template.

fn tagged(object: &str) -> String {
    format!("<tool_call>\n{object}\n</tool_call>")
}

#[test]
fn bare_objects() {
    let c = "{\"name\": \"f\", \"parameters\": {\"a\": 1}}";
    let c2 = "{\"name\": \"g\", \"parameters\": {\"a\": 2}}";
    let other = "{\"name\": \"other\", \"parameters\": {\"x\": 1}}";
    check([
        plain("llama3", "Use a set like {1,2}."),
        plain("llama3", "Here is JSON: {\"a\": 1} done"),
        plain("llama3", "{\"arg1\": 1}"),
        row("llama3", format!("{c}; {c2}")).calls(&[F1, G2]),
        row("llama3", format!("[{c}]")).calls(&[F1]),
        row("llama3", format!("[{c}, {c2}]")).calls(&[F1, G2]),
        row("llama3", format!("{c}<|eom_id|>")).calls(&[F1]).codes(&["eog_text_removed"]),
        row("llama3", format!("<function=f>{A1}</function>"))
            .calls(&[F1])
            .codes(&["call_in_foreign_format"]),
        row("llama3", format!("<|python_tag|>{c}")).calls(&[F1]).codes(&["eog_text_removed"]),
        plain("llama3", other).codes(&["call_like_content"]),
        row("llama3", O1).calls(&[F1]),
        plain("llama3", "<function=f> to call"),
        plain("llama3", "<function=zz>{}</function>"),
    ]);
}

#[test]
fn calls_without_arguments() {
    let one = "[TOOL_CALLS]f[ARGS]";
    let empty = ("f", "{}");
    check([
        row("mistral-args", "[TOOL_CALLS]g[ARGS]")
            .calls(&[("g", "{}")])
            .codes(&["arguments_missing"]),
        row("mistral-args", format!("{one}</s>")).calls(&[empty]).codes(&["eog_text_removed"]),
        row("mistral-args", format!("{one}[TOOL_CALLS]g[ARGS]{{\"a\": 2}}")).calls(&[empty, G2]),
        row("mistral-args", format!("Go.\n{one}[TOOL_CALLS]g[ARGS]"))
            .content("Go.")
            .calls(&[empty, ("g", "{}")])
            .codes(&["arguments_missing"]),
        plain("hermes", "<function=f>"),
    ]);
}

#[test]
fn several_calls_in_one_block() {
    let [a, b] = ["call:f{a:1}", "call:g{a:2}"];
    check([
        row("gemma4", format!("<|tool_call>{a}{b}<tool_call|>")).calls(&[F1, G2]),
        row("gemma4", format!("<|tool_call>{a}\n{b}<tool_call|>")).calls(&[F1, G2]),
        row("gemma4", format!("<|tool_call>call:f{{}}{b}<tool_call|>")).calls(&[("f", "{}"), G2]),
        row("gemma4", format!("<|tool_call>{a}<tool_call|>call me"))
            .content("call me")
            .calls(&[F1]),
    ]);
}

#[test]
fn tagged_objects() {
    let c = tagged(O1);
    let c2 = tagged(O2);
    check([
        row("hermes", tagged("{\"name\": \"zz\", \"arguments\": {\"a\": 1}}"))
            .calls(&[("zz", A1)])
            .codes(&["unknown_tool"]),
        row("hermes", tagged("{\"arguments\": {\"a\": 1}, \"name\": \"f\"}")).calls(&[F1]),
        row("hermes", tagged("{\"name\": \"f\", \"parameters\": {\"a\": 1}}")).calls(&[F1]),
        row("hermes", tagged(&format!("{{\"type\": \"function\", \"function\": {O1}}}")))
            .calls(&[F1]),
        row("hermes", tagged("{\"name\": \"f\"}"))
            .calls(&[("f", "{}")])
            .codes(&["arguments_missing"]),
        row("hermes", tagged("{\"name\": \"f\", \"arguments\": \"{\\\"a\\\": 1}\"}"))
            .calls(&[F1])
            .codes(&["arguments_string_unwrapped"]),
        row("hermes", tagged("{\"name\": \"f\", \"arguments\": null}"))
            .calls(&[("f", "{}")])
            .codes(&["arguments_null"]),
        row("hermes", format!("{c}\nDone.")).content("Done.").calls(&[F1]),
        row("hermes", format!("<tool_call>{O1}\n</tool_call>")).calls(&[F1]),
        row("hermes", c.replace('\n', "\r\n")).calls(&[F1]),
        row("hermes", tagged("{'name': 'f', 'arguments': {'a': 1}}"))
            .calls(&[F1])
            .codes(&["python_literals"]),
        row("hermes", tagged("{\"name\": \"f\", \"arguments\": {\"a\": 1}"))
            .calls(&[F1])
            .codes(&["unbalanced_wrapper"]),
        row("hermes", tagged("{\"name\": \"f\", \"arguments\": {\"a\": 1,}}"))
            .calls(&[("f", "{\"a\": 1,}")])
            .codes(&["arguments_invalid_json"]),
        row("hermes", tagged(&format!("[{O1}, {O2}]"))).calls(&[F1, G2]),
        row("hermes", tagged(&format!("{O1}\n{O2}"))).calls(&[F1, G2]),
        row("hermes", "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1")
            .calls(&[("f", "{\"a\": 1")])
            .codes(&["truncated_call"])
            .with(|row| row.incomplete = true),
        row("hermes", format!("<tool_call>\n{O1}")).calls(&[F1]).codes(&["missing_end_marker"]),
        row("hermes", format!("{c}\n<tool_call>\n")).calls(&[F1]).codes(&["dangling_marker"]),
        row("hermes", format!("<tool_call>\n{c}")).calls(&[F1]).codes(&["dangling_marker"]),
        plain("hermes", "<tool_call>\nlook it up\n</tool_call>").codes(&["malformed_call"]),
        row("hermes", "<tool_call>\n</tool_call>").codes(&["empty_section"]),
        plain("hermes", "The tag <tool_call> is used…"),
        plain("hermes", "Text </tool_call> more").codes(&["stray_end_marker"]),
        row("hermes", O1).calls(&[F1]).codes(&["untagged_call"]),
        row("hermes", format!("```json\n{O1}\n```")).calls(&[F1]).codes(&["fenced_call"]),
        plain("hermes", &c)
            .codes(&["call_without_tools"])
            .with(|row| row.setting.calls_allowed = false),
        row("hermes", format!("{c}\n{c2}"))
            .calls(&[F1, G2])
            .codes(&["parallel_not_requested"])
            .with(|row| row.setting.parallel = false),
        row("hermes", tagged("{\"name\": \"f\", \"arguments\": {\"b\": \"x\"}}"))
            .calls(&[("f", "{\"b\": \"x\"}")]),
        row("hermes", format!("Think.\n{c}"))
            .prompt("<think>\n")
            .reasoning("Think.")
            .calls(&[F1])
            .codes(&["call_in_reasoning"]),
    ]);
}

#[test]
fn elements() {
    let f = |parameters: &str| {
        format!("<tool_call>\n<function=f>\n{parameters}</function>\n</tool_call>")
    };
    let p = |key: &str, value: &str| format!("<parameter={key}>\n{value}\n</parameter>\n");
    let call = f(&p("a", "1"));
    check([
        plain("qwen-xml", "Hello <tool_call> is a tag"),
        row("qwen-xml", "Hello <tool_call> is a tag</think>x")
            .prompt("<think>\n")
            .reasoning("Hello <tool_call> is a tag")
            .content("x"),
        // The model may end its reasoning with a call, but here it does not.
        row("qwen-xml", format!("R\n{call}\n</think>\n\nx"))
            .prompt("<think>\n")
            .reasoning(&format!("R\n{call}"))
            .content("x"),
        row("qwen-xml", format!("R\n{call}\n</think>\n\n{call}"))
            .prompt("<think>\n")
            .reasoning(&format!("R\n{call}"))
            .calls(&[F1]),
        row("qwen-xml", format!("R\n{call}\n{call}"))
            .prompt("<think>\n")
            .reasoning("R")
            .calls(&[F1, F1]),
        row("qwen-xml", format!("R\n```\n{call}\n```"))
            .prompt("<think>\n")
            .reasoning("R")
            .calls(&[F1]),
        row("kimi-k2", "R<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{\"a\": 1}<|tool_call_end|></think>x")
            .prompt("<think>")
            .reasoning("R<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{\"a\": 1}<|tool_call_end|>")
            .content("x"),
        plain("qwen-xml", "Use <function=f> to call"),
        row("qwen-xml", f(&p("a", "1")).replace("=f", "=zz"))
            .calls(&[("zz", A1)])
            .codes(&["unknown_tool"]),
        row("qwen-xml", f(&p("a", "abc")))
            .calls(&[("f", "{\"a\": \"abc\"}")])
            .codes(&["arg_type_mismatch"]),
        row("qwen-xml", f(&p("b", "x"))).calls(&[("f", "{\"b\": \"x\"}")]),
        row("qwen-xml", f(&(p("a", "1") + &p("c", "2"))))
            .calls(&[("f", "{\"a\": 1, \"c\": 2}")])
            .codes(&["arg_unknown"]),
        row("qwen-xml", f(&(p("a", "1") + &p("a", "2"))))
            .calls(&[F1])
            .codes(&["arg_duplicate"])
            .with(|row| {
                row.leftover = vec!["2".to_owned()];
            }),
        row("qwen-xml", f(&p("a", "1")).replace('\n', "")).calls(&[F1]),
        row("qwen-xml", tagged(O1)).calls(&[F1]).codes(&["foreign_family"]),
        row("qwen-xml", f(&p("a", "1")) + "\n\nDone.").calls(&[F1]).content("Done."),
        row("qwen-xml", "<tool_call>\n<function=f>\n<parameter=b>\nx\n</function>\n</tool_call>")
            .calls(&[("f", "{\"b\": \"x\"}")]),
        row("qwen-xml", "<function=f>\n<parameter=a>\n1\n</parameter>\n</function>").calls(&[F1]),
        row("qwen-xml", f(&(p("b", "x") + &p("a", "1"))))
            .calls(&[("f", "{\"b\": \"x\", \"a\": 1}")]),
        row("qwen-xml", f(&p("b", "print(\"</parameter>\")")))
            .calls(&[("f", "{\"b\": \"print(\\\"</parameter>\\\")\"}")]),
        row("qwen-xml", f("")).calls(&[("f", "{}")]),
        row("qwen-xml", format!("R {}", f(&p("a", "1"))))
            .prompt("<think>\n")
            .reasoning("R")
            .calls(&[F1]),
    ]);
}

#[test]
fn parameters_in_any_order() {
    let ba = [("f", "{\"b\": \"x\", \"a\": 1}")];
    check([
        row(
            "seed-oss",
            "<seed:tool_call>\n<function=f>\n<parameter=b>x</parameter>\n<parameter=a>1</parameter>\n</function>\n</seed:tool_call>",
        )
        .calls(&ba),
        row(
            "glm-kv",
            "<tool_call>f\n<arg_key>b</arg_key>\n<arg_value>x</arg_value>\n<arg_key>a</arg_key>\n<arg_value>1</arg_value>\n</tool_call>",
        )
        .calls(&ba),
        row(
            "dsml",
            "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"f\">\n<｜DSML｜parameter name=\"b\" string=\"true\">x</｜DSML｜parameter>\n<｜DSML｜parameter name=\"a\" string=\"false\">1</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>",
        )
        .calls(&ba),
        row(
            "minimax-m2",
            "<minimax:tool_call>\n<invoke name=\"f\">\n<parameter name=\"b\">x</parameter>\n<parameter name=\"a\">1</parameter>\n</invoke>\n</minimax:tool_call>",
        )
        .calls(&ba),
        // With the newlines of the other GLM families, and without newlines.
        row("glm-kv", "<tool_call>f<arg_key>a</arg_key><arg_value>1</arg_value></tool_call>").calls(&[F1]),
        row("glm-kv-compact", "<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>1</arg_value>\n</tool_call>").calls(&[F1]),
        row("glm-kv", "<tool_call>zz\n<arg_key>a</arg_key>\n<arg_value>1</arg_value>\n</tool_call>")
            .calls(&[("zz", A1)])
            .codes(&["unknown_tool"]),
        plain("glm-kv", "hi <tool_call> is a tag"),
        plain("glm-kv-compact", "hi <tool_call> is a tag"),
        row("glm-kv", "<tool_call>g\n</tool_call>").calls(&[("g", "{}")]),
        row("seed-oss", "<seed:tool_call><function=f><parameter=a>1</parameter></function></seed:tool_call>").calls(&[F1]),
        row(
            "dsml",
            "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"f\">\n<｜DSML｜parameter name=\"a\" string=\"true\">1</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>",
        )
        .calls(&[F1])
        .codes(&["arg_coerced"]),
    ]);
}

#[test]
fn names_and_ids() {
    let kimi = |id: &str| {
        format!(
            "<|tool_calls_section_begin|><|tool_call_begin|>{id}<|tool_call_argument_begin|>{A1}<|tool_call_end|><|tool_calls_section_end|>"
        )
    };
    check([
        row("kimi-k2", kimi("f")).calls(&[F1]).ids(&["f"]),
        row("kimi-k2", kimi("call_abc")).calls(&[("call_abc", A1)]).codes(&["unknown_tool"]).ids(&["call_abc"]),
        row("kimi-k2", kimi("functions.zz:0")).calls(&[("zz", A1)]).codes(&["unknown_tool"]).ids(&["functions.zz:0"]),
        row("kimi-k2", format!("<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{A1}<|tool_call_end|>")).calls(&[F1]),
        row("kimi-k2", format!("R<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{A1}"))
            .prompt("<think>")
            .reasoning("R")
            .calls(&[F1])
            .codes(&["missing_end_marker"]),
        row("mistral-array", "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {\"a\": 1}}]").calls(&[F1]),
        row("mistral-array", "[TOOL_CALLS]f[ARGS]{\"a\": 1}").calls(&[F1]).codes(&["foreign_family"]),
        row("mistral-array", format!("[{O1}]")).calls(&[F1]).codes(&["untagged_call"]),
        row("mistral-array", format!("[{O1}, {O2}]"))
            .calls(&[F1, G2])
            .codes(&["untagged_call", "untagged_call"]),
        plain("mistral-array", "[{\"name\": \"zz\", \"arguments\": {\"a\": 1}}]")
            .codes(&["call_like_content"]),
        row("mistral-array", "[TOOL_CALLS]f[CALL_ID]123456789[ARGS]{\"a\": 1}")
            .calls(&[F1])
            .codes(&["foreign_family"])
            .ids(&["123456789"]),
        row("mistral-id", "[TOOL_CALLS]f[ARGS]{\"a\": 1}").calls(&[F1]).codes(&["foreign_family", "id_generated"]),
        row("mistral-id", format!("[TOOL_CALLS][{O1}]")).calls(&[F1]).codes(&["foreign_family", "id_generated"]),
        row("mistral-id", "[TOOL_CALLS]f[CALL_ID]123456789[ARGS]{\"a\": 1}[TOOL_CALLS]g[CALL_ID]123456789[ARGS]{\"a\": 2}")
            .calls(&[F1, G2])
            .ids(&["123456789", "id1"])
            .codes(&["id_generated"]),
        row("mistral-args", "[TOOL_CALLS]f{\"a\": 1}").calls(&[F1]),
        row("mistral-args", "[TOOL_CALLS]zz[ARGS]{\"a\": 1}").calls(&[("zz", A1)]).codes(&["unknown_tool"]),
        row("mistral-args", format!("[TOOL_CALLS][{O1}]")).calls(&[F1]).codes(&["foreign_family"]),
        row("mistral-args", "[TOOL_CALLS]f[CALL_ID]123456789[ARGS]{\"a\": 1}").calls(&[F1]).codes(&["foreign_family"]),
        row("deepseek-v3.1", "<｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"a\": 1}<｜tool▁call▁end｜>").calls(&[F1]),
        row(
            "deepseek-v3.1",
            "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{\"a\": 1}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        )
        .calls(&[F1])
        .codes(&["foreign_family"]),
        row("cohere-action", "<|START_ACTION|>[\n    {\"tool_name\": \"f\", \"parameters\": {\"a\": 1}}\n]<|END_ACTION|>").calls(&[F1]),
        plain("cohere-action", "Hello, world!"),
        row("cohere-action", "<|START_RESPONSE|>Hello<|END_RESPONSE|>").content("Hello"),
        row("lfm2", "<|tool_call_start|>[g(1)]<|tool_call_end|>").calls(&[("g", A1)]).codes(&["arg_positional"]),
        row("lfm2", "<|tool_call_start|>[f(a=1, b='it\\'s', c=None)]<|tool_call_end|>")
            .calls(&[("f", "{\"a\": 1, \"b\": \"it's\", \"c\": null}")])
            .codes(&["arg_unknown"]),
        // LFM2.5 may omit the markers. Then only names of given tools make calls.
        row("lfm2", "[f(a=1)]").calls(&[F1]).codes(&["untagged_call"]),
        plain("lfm2", "[zz(a=1)]"),
        plain("lfm2", "See [f(a=1)] above"),
    ]);
}

#[test]
fn messages_with_headers() {
    let to = |recipient: &str, body: &str| {
        format!("<|channel|>commentary to={recipient}<|message|>{body}<|call|>")
    };
    check([
        row("harmony", to("functions.zz", A1)).calls(&[("zz", A1)]).codes(&["unknown_tool"]),
        plain("harmony", "Hello, world!"),
        row("harmony", "<|channel|>final<|message|>One.<|end|><|start|>assistant<|channel|>final<|message|> Two.<|return|>")
            .content("One.Two."),
        row("harmony", "hi<|return|>").content("hi"),
        row("harmony", to("container.exec", "ls -l"))
            .calls(&[("container.exec", "ls -l")])
            .codes(&["unknown_tool", "arguments_invalid_json"]),
        row("harmony", to("python", "print(1)"))
            .calls(&[("python", "print(1)")])
            .codes(&["unknown_tool", "arguments_invalid_json"]),
        row("harmony", to("functions.f", "{}")).calls(&[("f", "{}")]),
        row("harmony", "<|channel|>analysis to=functions.f<|message|>{\"a\": 1}").calls(&[F1]),
        plain("functionary-3.2", "Hello, world!").prompt(">>>"),
        row("functionary-3.2", "f\n{\"a\": 1}>>>g\n{\"a\": 2}").prompt(">>>").calls(&[F1, G2]),
        row("functionary-3.2", "all\nT>>>f\n{\"a\": 1}").prompt(">>>").content("T").calls(&[F1]),
    ]);
}

/// Calls in the forms of other families, with and without their markers in the vocabulary.
#[test]
fn calls_of_families_with_known_markers() {
    let r1 = "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{\"a\": 1}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>";
    let special =
        |tokens: &'static [&'static str]| move |row: &mut ReplyCase| row.setting.special = tokens;
    check([
        row("polyfilled", r1)
            .with(special(&["<｜tool▁calls▁begin｜>"]))
            .calls(&[F1])
            .codes(&["call_in_foreign_format"]),
        row("polyfilled", format!("<|tool_call|>[{O1}]"))
            .with(special(&["<|tool_call|>"]))
            .calls(&[F1])
            .codes(&["call_in_foreign_format"]),
        row("polyfilled", "<|tool_call_start|>[f(a=1), g(a=2)]<|tool_call_end|>")
            .with(special(&["<|tool_call_start|>"]))
            .calls(&[F1, G2])
            .codes(&["call_in_foreign_format", "call_in_foreign_format"]),
        row("polyfilled", "<|tool_call_start|>[zz(a=1)]<|tool_call_end|>")
            .with(special(&["<|tool_call_start|>"]))
            .calls(&[("zz", A1)])
            .codes(&["call_in_foreign_format", "unknown_tool"]),
        plain("polyfilled", "<|tool_call_start|>[zz(a=1)]<|tool_call_end|>"),
        row("polyfilled", r1).calls(&[F1]).codes(&["call_in_foreign_format"]),
        row("polyfilled", tagged(O1)).with(special(&["<|tool_call|>"])).calls(&[F1]),
        // Without a tag, as the whole reply.
        row("polyfilled", O1).calls(&[F1]).codes(&["untagged_call"]),
        row("polyfilled", format!("[{O1}, {O2}]"))
            .calls(&[F1, G2])
            .codes(&["untagged_call", "untagged_call"]),
        row("granite-3.3", format!("[{O1}]")).calls(&[F1]).codes(&["untagged_call"]),
        row("polyfilled", format!("```json\n{O1}\n```")).calls(&[F1]).codes(&["fenced_call"]),
        plain("polyfilled", &format!("Look: {O1}")),
        plain("polyfilled", "{\"name\": \"zz\", \"arguments\": {}}").codes(&["call_like_content"]),
        plain("polyfilled", "{\"name\": \"f\", \"age\": 3}"),
    ]);
}

#[test]
fn hostile_replies_take_linear_time() {
    const SIZE: usize = if cfg!(debug_assertions) { 1 << 16 } else { 1 << 19 };
    let mut slow = Vec::new();
    let mut time = |format: &Format, what: &str, text: String| {
        let elapsed = cpu_time(|| drop(feed(format, &tools(), PLAIN, [text.as_str()])));
        // Linear work on a megabyte takes less than a second. Quadratic work would take minutes.
        if elapsed.as_secs() > 20 {
            slow.push(format!("{}: {what} takes {elapsed:?}", format.family));
        }
    };
    for replies in TABLE {
        let format = family(replies.family);
        let one = replies.one();
        let one = one.trim();
        let name = one.find("f\"").or_else(|| one.find('f')).unwrap();
        let value = one.rfind('1').unwrap();
        time(&format, "brackets", "[".repeat(SIZE / 10));
        time(&format, "braces", "{".repeat(SIZE / 10));
        time(&format, "another family's tag", "<tool_call>".repeat(SIZE / 11));
        time(&format, "an open name", one[..name].to_owned() + &"f".repeat(SIZE));
        time(&format, "an open value", one[..value].to_owned() + &"[".repeat(SIZE / 10));
        for at in [1, 3, name / 2, name, value] {
            let at =
                (1..=at.max(1)).rev().find(|at| one.is_char_boundary(*at)).unwrap_or(one.len());
            let unit = &one[..at];
            time(&format, unit, unit.repeat(SIZE / 16 / unit.len()));
            time(&format, unit, format!("{unit} ").repeat(SIZE / 16 / (unit.len() + 1)));
        }
    }
    assert!(slow.is_empty(), "{}", slow.join("\n"));
}

#[test]
fn unusual_characters_anywhere() {
    for replies in TABLE {
        let format = family(replies.family);
        let mut random = Random::new(1);
        for _ in 0..60 {
            // Characters are inserted or removed.
            let mut text = format!("T {}", replies.two());
            for _ in 0..=random.below(3) {
                let mut at = random.below(text.len());
                while !text.is_char_boundary(at) {
                    at -= 1;
                }
                let inserted = ["\0", "\u{FFFD}", "\\ud83e", "\"", "{", "<", "é", "\u{E000}", "\n"]
                    [random.below(9)];
                if random.below(3) == 0 {
                    text.remove(at);
                } else {
                    text.insert_str(at, inserted);
                }
            }
            let whole = feed(&format, &tools(), PLAIN, [text.as_str()]);
            assert_eq!(whole, feed(&format, &tools(), PLAIN, random.pieces(&text)), "{text:?}");
        }
    }
}
