//! Replies of every family as models write them: as their templates show, and as they should not
//! be.
//!
//! What must become of each is written by hand.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use serde_json::{Value, json};

use crate::output::*;
use crate::test_support::replies::{PLAIN, Random, Setting, family, feed, lost, parse};

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

/// A reply, and what must become of it.
struct Row {
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

/// A reply of a family.
fn row(name: &str, text: impl Into<String>) -> Row {
    Row {
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

/// A reply that is text and nothing else.
fn plain(name: &str, text: &str) -> Row {
    row(name, text).content(text)
}

impl Row {
    fn content(mut self, text: &str) -> Row {
        self.content = text.to_owned();
        self
    }

    fn reasoning(mut self, text: &str) -> Row {
        self.reasoning = Some(text.to_owned());
        self
    }

    fn calls(mut self, calls: &[(&str, &str)]) -> Row {
        self.calls = calls
            .iter()
            .map(|(name, arguments)| ((*name).to_owned(), (*arguments).to_owned()))
            .collect();
        self
    }

    fn ids(mut self, ids: &[&str]) -> Row {
        self.ids = Some(ids.iter().map(|id| (*id).to_owned()).collect());
        self
    }

    fn codes(mut self, codes: &[&'static str]) -> Row {
        self.codes = codes.to_vec();
        self
    }

    fn prompt(mut self, prompt: &'static str) -> Row {
        self.setting.prompt = prompt;
        self
    }

    fn with(mut self, change: impl FnOnce(&mut Row)) -> Row {
        change(&mut self);
        self
    }

    /// What is wrong with the answer.
    fn check(&self) -> Option<String> {
        let parsed = catch_unwind(AssertUnwindSafe(|| {
            parse(&self.format, &self.tools, self.setting, &self.text)
        }));
        let Ok(parsed) = parsed else {
            return Some(format!(
                "{} {:?}: a property does not hold",
                self.format.family, self.text
            ));
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

/// All rows are tried before any is reported.
#[track_caller]
fn check(rows: impl IntoIterator<Item = Row>) {
    let wrong: Vec<String> = rows.into_iter().filter_map(|row| row.check()).collect();
    assert!(wrong.is_empty(), "{} rows:\n{}", wrong.len(), wrong.join("\n"));
}

/// The shapes of one family: a call of `f` with 1, and one of `g` with 2.
struct Shapes {
    family: &'static str,
    one: String,
    two: String,
    /// The ids of the two calls, where the model gives them before the arguments.
    ids: Option<[&'static str; 2]>,
    /// Reasoning "R" and the call of `f`, behind the prompt.
    thinks: Option<(&'static str, String)>,
    /// Text "T" and the call.
    says: String,
    /// The call and the text "Done."
    after: String,
    /// What the prompt ends with.
    prompt: &'static str,
    /// The codes of every call whose ids stand behind the arguments, and of turns that end in the
    /// middle.
    codes: &'static [&'static str],
    /// Whether a call needs no tag: then only given names are calls.
    bare: bool,
}

#[allow(clippy::too_many_lines, reason = "a table")]
fn shapes() -> Vec<Shapes> {
    let new = |family, one: &str, two: &str| Shapes {
        family,
        one: one.to_owned(),
        two: two.to_owned(),
        ids: None,
        thinks: None,
        says: format!("T\n{one}"),
        after: format!("{one}\nDone."),
        prompt: "",
        codes: &[],
        bare: false,
    };
    let thinks = |mut shapes: Shapes, prompt: &'static str, reasoning: &str| {
        shapes.thinks = Some((prompt, format!("{reasoning}{}", shapes.one)));
        shapes
    };
    let hermes = |family| {
        new(
            family,
            "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>",
            "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>\n<tool_call>\n{\"name\": \"g\", \"arguments\": {\"a\": 2}}\n</tool_call>",
        )
    };
    let listed = |family, open: &str, close: &str| {
        new(
            family,
            &format!("{open}[{{\"name\": \"f\", \"arguments\": {{\"a\": 1}}}}]{close}"),
            &format!(
                "{open}[{{\"name\": \"f\", \"arguments\": {{\"a\": 1}}}}, {{\"name\": \"g\", \"arguments\": {{\"a\": 2}}}}]{close}"
            ),
        )
    };
    let dsml = |family, section: &str| {
        let k = |name: &str, value: &str| {
            format!(
                "<｜DSML｜invoke name=\"{name}\">\n<｜DSML｜parameter name=\"a\" string=\"false\">{value}</｜DSML｜parameter>\n</｜DSML｜invoke>\n"
            )
        };
        let (k, k2) = (k("f", "1"), k("g", "2"));
        let shapes = new(
            family,
            &format!("<｜DSML｜{section}>\n{k}</｜DSML｜{section}>"),
            &format!("<｜DSML｜{section}>\n{k}{k2}</｜DSML｜{section}>"),
        );
        thinks(shapes, "<think>", "R</think>\n\n")
    };
    let m = "]<]minimax[>[";
    let m3 = |name: &str, value: &str| {
        format!("{m}<invoke name=\"{name}\">{m}<a>{value}{m}</a>{m}</invoke>\n")
    };
    let glm = |name: &str, value: &str| {
        format!(
            "<tool_call>{name}\n<arg_key>a</arg_key>\n<arg_value>{value}</arg_value>\n</tool_call>"
        )
    };
    let compact = |name: &str, value: &str| {
        format!("<tool_call>{name}<arg_key>a</arg_key><arg_value>{value}</arg_value></tool_call>")
    };
    let hy = |name: &str, value: &str| {
        format!(
            "<tool_call:opensource>{name}<tool_sep:opensource>\n<arg_key:opensource>a</arg_key:opensource>\n<arg_value:opensource>{value}</arg_value:opensource>\n</tool_call:opensource>\n"
        )
    };
    let k3 = |name: &str, index: u8, value: &str| {
        format!(
            "<|open|>call tool=\"{name}\" index=\"{index}\"<|sep|><|open|>argument key=\"a\" type=\"number\"<|sep|>{value}<|close|>argument<|sep|><|close|>call<|sep|>"
        )
    };
    let muse = |name: &str, value: &str| {
        format!(
            " to={name}<|message|><atem:function_calls>\n<atem:invoke name=\"{name}\">\n<atem:parameter name=\"a\">{value}</atem:parameter>\n</atem:invoke>\n</atem:function_calls>"
        )
    };
    let r1 = |name: &str, value: u8| {
        format!(
            "<｜tool▁call▁begin｜>function<｜tool▁sep｜>{name}\n```json\n{{\"a\": {value}}}\n```<｜tool▁call▁end｜>"
        )
    };
    let v31 = |name: &str, value: u8| {
        format!("<｜tool▁call▁begin｜>{name}<｜tool▁sep｜>{{\"a\": {value}}}<｜tool▁call▁end｜>")
    };
    let v3 = |name: &str, value: u8| {
        format!(
            "<｜tool▁call▁begin｜>{{\"name\": \"{name}\", \"parameters\": {{\"a\": {value}}}}}<｜tool▁call▁end｜>"
        )
    };
    let deepseek = |family, k: String, between: &str, k2: String| {
        let shapes = new(
            family,
            &format!("<｜tool▁calls▁begin｜>{k}<｜tool▁calls▁end｜>"),
            &format!("<｜tool▁calls▁begin｜>{k}{between}{k2}<｜tool▁calls▁end｜>"),
        );
        thinks(shapes, "<think>\n", "R</think>")
    };
    let qwen = |name: &str, value: &str| {
        format!(
            "<tool_call>\n<function={name}>\n<parameter=a>\n{value}\n</parameter>\n</function>\n</tool_call>"
        )
    };
    let seed = |name: &str, value: &str| {
        format!(
            "<seed:tool_call>\n<function={name}>\n<parameter=a>{value}</parameter>\n</function>\n</seed:tool_call>"
        )
    };
    let m2 = |name: &str, value: &str| {
        format!("<invoke name=\"{name}\">\n<parameter name=\"a\">{value}</parameter>\n</invoke>\n")
    };
    let llama = |family| Shapes {
        says: "T {\"name\": \"f\", \"parameters\": {\"a\": 1}}".to_owned(),
        bare: true,
        ..new(
            family,
            "{\"name\": \"f\", \"parameters\": {\"a\": 1}}",
            "{\"name\": \"f\", \"parameters\": {\"a\": 1}}; {\"name\": \"g\", \"parameters\": {\"a\": 2}}",
        )
    };
    vec![
        thinks(hermes("hermes"), "", "<think>\nR\n</think>\n\n"),
        thinks(hermes("polyfilled"), "", "<think>\nR\n</think>\n\n"),
        thinks(
            new(
                "exaone4",
                "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1}}</tool_call>",
                "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1}}</tool_call>\n<tool_call>{\"name\": \"g\", \"arguments\": {\"a\": 2}}</tool_call>",
            ),
            "<think>\n",
            "R\n</think>\n\n",
        ),
        new(
            "hermes-reversed",
            "<tool_call>\n{ \"arguments\": {\"a\": 1}, \"name\": \"f\"}\n</tool_call>",
            "<tool_call>\n{ \"arguments\": {\"a\": 1}, \"name\": \"f\"}\n</tool_call>\n<tool_call>\n{ \"arguments\": {\"a\": 2}, \"name\": \"g\"}\n</tool_call>",
        ),
        llama("llama3"),
        llama("llama4"),
        Shapes { codes: &["id_generated"], ..new(
            "mistral-array",
            "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {\"a\": 1}, \"id\": \"123456789\"}]",
            "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {\"a\": 1}, \"id\": \"000000001\"}, {\"name\": \"g\", \"arguments\": {\"a\": 2}, \"id\": \"000000002\"}]",
        )},
        Shapes {
            ids: Some(["123456789", "123456780"]),
            ..new(
                "mistral-id",
                "[TOOL_CALLS]f[CALL_ID]123456789[ARGS]{\"a\": 1}",
                "[TOOL_CALLS]f[CALL_ID]123456789[ARGS]{\"a\": 1}[TOOL_CALLS]g[CALL_ID]123456780[ARGS]{\"a\": 2}",
            )
        },
        thinks(
            new("mistral-args", "[TOOL_CALLS]f[ARGS]{\"a\": 1}", "[TOOL_CALLS]f[ARGS]{\"a\": 1}[TOOL_CALLS]g[ARGS]{\"a\": 2}"),
            "",
            "[THINK]R[/THINK]",
        ),
        deepseek("deepseek-r1", r1("f", 1), "\n", r1("g", 2)),
        deepseek("deepseek-v3.1", v31("f", 1), "", v31("g", 2)),
        deepseek("deepseek-v3", v3("f", 1), "", v3("g", 2)),
        dsml("dsml", "function_calls"),
        dsml("dsml-v4", "tool_calls"),
        thinks(
            Shapes {
                ids: Some(["0", "1"]),
                ..new(
                    "cohere-action",
                    "<|START_ACTION|>[\n    {\"tool_call_id\": \"0\", \"tool_name\": \"f\", \"parameters\": {\"a\": 1}}\n]<|END_ACTION|>",
                    "<|START_ACTION|>[\n    {\"tool_call_id\": \"0\", \"tool_name\": \"f\", \"parameters\": {\"a\": 1}},\n    {\"tool_call_id\": \"1\", \"tool_name\": \"g\", \"parameters\": {\"a\": 2}}\n]<|END_ACTION|>",
                )
            },
            "",
            "<|START_THINKING|>R<|END_THINKING|>",
        ),
        new(
            "command-r-plus",
            "Action:\n```json\n[\n    {\n        \"tool_name\": \"f\",\n        \"parameters\": {\"a\": 1}\n    }\n]```",
            "Action:\n```json\n[\n    {\n        \"tool_name\": \"f\",\n        \"parameters\": {\"a\": 1}\n    },\n    {\n        \"tool_name\": \"g\",\n        \"parameters\": {\"a\": 2}\n    }\n]```",
        ),
        new(
            "functionary-3.1",
            "<function=f>{\"a\": 1}</function>",
            "<function=f>{\"a\": 1}</function><function=g>{\"a\": 2}</function>",
        ),
        Shapes {
            says: "all\nT>>>f\n{\"a\": 1}".to_owned(),
            after: "f\n{\"a\": 1}>>>all\nDone.".to_owned(),
            prompt: ">>>",
            bare: true,
            ..new("functionary-3.2", "f\n{\"a\": 1}", "f\n{\"a\": 1}>>>g\n{\"a\": 2}")
        },
        Shapes {
            says: "<|from|>assistant\n<|recipient|>all\n<|content|>T\n<|from|>assistant\n<|recipient|>f\n<|content|>{\"a\": 1}".to_owned(),
            after: "<|from|>assistant\n<|recipient|>f\n<|content|>{\"a\": 1}\n<|from|>assistant\n<|recipient|>all\n<|content|>Done.".to_owned(),
            bare: true,
            ..new(
                "functionary-2.2",
                "<|from|>assistant\n<|recipient|>f\n<|content|>{\"a\": 1}",
                "<|from|>assistant\n<|recipient|>f\n<|content|>{\"a\": 1}\n<|from|>assistant\n<|recipient|>g\n<|content|>{\"a\": 2}",
            )
        },
        listed("firefunction", " functools", ""),
        Shapes {
            thinks: Some((
                "",
                "<|channel|>analysis<|message|>R<|end|><|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{\"a\": 1}"
                    .to_owned(),
            )),
            says: "<|channel|>commentary<|message|>T<|end|><|start|>assistant to=functions.f<|channel|>commentary <|constrain|>json<|message|>{\"a\": 1}<|call|>"
                .to_owned(),
            after: "<|channel|>commentary to=functions.f<|message|>{\"a\": 1}<|end|><|start|>assistant<|channel|>final<|message|>Done.<|return|>"
                .to_owned(),
            ..new(
                "harmony",
                "<|channel|>commentary to=functions.f <|constrain|>json<|message|>{\"a\": 1}",
                "<|channel|>commentary to=functions.f <|constrain|>json<|message|>{\"a\": 1}<|end|><|start|>assistant<|channel|>commentary to=functions.g <|constrain|>json<|message|>{\"a\": 2}",
            )
        },
        Shapes {
            thinks: Some((
                "",
                "<|channel|> analysis<|message|> R<|end|><|start|> assistant to=functions.f<|channel|> commentary <|constrain|>  json<|message|> {\"a\": 1}"
                    .to_owned(),
            )),
            says: "<|channel|> commentary<|message|> T<|end|><|start|> assistant to=functions.f<|channel|> commentary<|message|> {\"a\": 1}".to_owned(),
            after: "<|channel|> commentary to=functions.f<|message|> {\"a\": 1}<|end|><|start|> assistant<|channel|> final<|message|> Done.".to_owned(),
            ..new(
                "harmony-spaced",
                "<|channel|> commentary to=functions.f<|message|> {\"a\": 1}",
                "<|channel|> commentary to=functions.f<|message|> {\"a\": 1}<|end|><|start|> assistant to=functions.g<|channel|> commentary <|constrain|>  json<|message|> {\"a\": 2}",
            )
        },
        thinks(
            Shapes {
                ids: Some(["functions.f:0", "functions.g:1"]),
                ..new(
                    "kimi-k2",
                    "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{\"a\": 1}<|tool_call_end|><|tool_calls_section_end|>",
                    "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{\"a\": 1}<|tool_call_end|><|tool_call_begin|>functions.g:1<|tool_call_argument_begin|>{\"a\": 2}<|tool_call_end|><|tool_calls_section_end|>",
                )
            },
            "",
            "<think>R</think>",
        ),
        {
            let one = format!("<|open|>tools<|sep|>{}<|close|>tools<|sep|>", k3("f", 1, "1"));
            let two = format!("<|open|>tools<|sep|>{}{}<|close|>tools<|sep|>", k3("f", 1, "1"), k3("g", 2, "2"));
            Shapes {
                says: format!("<|open|>response<|sep|>T<|close|>response<|sep|>{one}<|close|>message<|sep|>"),
                thinks: Some((
                    "<|open|>think<|sep|>",
                    format!("R<|close|>think<|sep|><|open|>response<|sep|><|close|>response<|sep|>{one}"),
                )),
                ids: Some(["1", "2"]),
                ..new("kimi-k3", &one, &two)
            }
        },
        new(
            "minimax-m1",
            &format!("<tool_calls>\n{O1}\n</tool_calls>"),
            &format!("<tool_calls>\n{O1}\n{O2}\n</tool_calls>"),
        ),
        thinks(
            new(
                "minimax-m2",
                &format!("<minimax:tool_call>\n{}</minimax:tool_call>", m2("f", "1")),
                &format!("<minimax:tool_call>\n{}{}</minimax:tool_call>", m2("f", "1"), m2("g", "2")),
            ),
            "<think>\n",
            "R\n</think>\n\n",
        ),
        thinks(
            new(
                "minimax-m3",
                &format!("{m}<tool_call>\n{}{m}</tool_call>", m3("f", "1")),
                &format!("{m}<tool_call>\n{}{}{m}</tool_call>", m3("f", "1"), m3("g", "2")),
            ),
            "",
            "<mm:think>R</mm:think>",
        ),
        thinks(
            new("qwen-xml", &qwen("f", "1"), &format!("{}\n{}", qwen("f", "1"), qwen("g", "2"))),
            "<think>\n",
            "R\n</think>\n\n",
        ),
        thinks(
            new("seed-oss", &seed("f", "1"), &format!("{}\n{}", seed("f", "1"), seed("g", "2"))),
            "",
            "<seed:think>R</seed:think>\n",
        ),
        thinks(new("glm-kv", &glm("f", "1"), &format!("{}\n{}", glm("f", "1"), glm("g", "2"))), "", "<think>R</think>\n"),
        thinks(
            new("glm-kv-compact", &compact("f", "1"), &format!("{}{}", compact("f", "1"), compact("g", "2"))),
            "<think>",
            "R</think>",
        ),
        thinks(new("ling", &glm("f", "1"), &format!("{}\n{}", glm("f", "1"), glm("g", "2"))), "<think>", "R"),
        thinks(
            new(
                "hy3",
                &format!("<tool_calls:opensource>\n{}</tool_calls:opensource>", hy("f", "1")),
                &format!("<tool_calls:opensource>\n{}{}</tool_calls:opensource>", hy("f", "1"), hy("g", "2")),
            ),
            "",
            "<think:opensource>R</think:opensource>",
        ),
        thinks(
            Shapes {
                says: format!("<answer>T</answer><tool_calls>[{O1}]</tool_calls>"),
                ..listed("hunyuan-a13b", "<tool_calls>", "</tool_calls>")
            },
            "",
            "<think>\nR\n</think>\n",
        ),
        thinks(
            new(
                "gemma4",
                "<|tool_call>call:f{a:1}<tool_call|>",
                "<|tool_call>call:f{a:1}<tool_call|><|tool_call>call:g{a:2}<tool_call|>",
            ),
            "",
            "<|channel>thought\nR\n<channel|>",
        ),
        thinks(listed("toolcall-array", "<TOOLCALL>", "</TOOLCALL>"), "<think>\n", "R\n</think>\n"),
        thinks(
            new(
                "apertus",
                "<|tools_prefix|>[{\"f\": {\"a\": 1}}]<|tools_suffix|>",
                "<|tools_prefix|>[{\"f\": {\"a\": 1}}, {\"g\": {\"a\": 2}}]<|tools_suffix|>",
            ),
            "",
            "<|inner_prefix|>R<|inner_suffix|>",
        ),
        thinks(
            new("lfm2", "<|tool_call_start|>[f(a=1)]<|tool_call_end|>", "<|tool_call_start|>[f(a=1), g(a=2)]<|tool_call_end|>"),
            "",
            "<think>R</think>",
        ),
        thinks(
            new("olmo", "<function_calls>f(a=1)</function_calls>", "<function_calls>f(a=1)\ng(a=2)</function_calls>"),
            "",
            "<think>R</think>",
        ),
        Shapes { bare: true, says: "T [f(a=1)]".to_owned(), ..new("pythonic", "[f(a=1)]", "[f(a=1), g(a=2)]") },
        Shapes {
            thinks: Some((
                "Here are my reasoning steps:\n",
                format!("R\n[BEGIN FINAL RESPONSE]\n<tool_calls>[{O1}]</tool_calls>"),
            )),
            ..listed("apriel", "<tool_calls>", "</tool_calls>")
        },
        new(
            "gigachat3",
            &format!("<|message_sep|>\n\nfunction call<|role_sep|>\n{O1}"),
            &format!("<|message_sep|>\n\nfunction call<|role_sep|>\n{O1}<|message_sep|>\n\nfunction call<|role_sep|>\n{O2}"),
        ),
        new("gigachat3.1", &format!("<|function_call|>{O1}"), &format!("<|function_call|>{O1}<|function_call|>{O2}")),
        thinks(
            new(
                "minicpm5",
                "<function name=\"f\"><param name=\"a\">1</param></function>",
                "<function name=\"f\"><param name=\"a\">1</param></function>\n<function name=\"g\"><param name=\"a\">2</param></function>",
            ),
            "<think>\n",
            "R\n</think>\n\n",
        ),
        {
            let turn = "<|eom|><|start|>assistant";
            Shapes {
                thinks: Some(("", format!(" to=self<|message|>R{turn}{}", muse("f", "1")))),
                says: format!(" to=user<|message|>T{turn}{}", muse("f", "1")),
                after: format!("{}{turn} to=user<|message|>Done.<|eot|>", muse("f", "1")),
                prompt: "<|start|>assistant",
                ..new("muse", &muse("f", "1"), &format!("{}{turn}{}", muse("f", "1"), muse("g", "2")))
            }
        },
        {
            let one = "<|tool_calls|><|tool_call:begin|>x-1<|tool_call:name|>f<|tool_call:args|>{\"a\": 1}<|tool_call:end|><|calls|>";
            Shapes {
                ids: Some(["x-1", "x-2"]),
                thinks: Some(("", format!("<|think|>R<|end|><|begin|>assistant{one}"))),
                says: format!("<|content|>T<|end|><|begin|>assistant{one}"),
                ..new(
                    "solar",
                    one,
                    "<|tool_calls|><|tool_call:begin|>x-1<|tool_call:name|>f<|tool_call:args|>{\"a\": 1}<|tool_call:end|><|tool_call:begin|>x-2<|tool_call:name|>g<|tool_call:args|>{\"a\": 2}<|tool_call:end|><|calls|>",
                )
            }
        },
        thinks(listed("granite-3.3", "<|tool_call|>", ""), "", "<think>R</think>"),
        listed("phi4-mini", "<|tool_call|>", "<|/tool_call|>"),
        new(
            "internlm2",
            &format!("<|action_start|><|plugin|>\n{O1}<|action_end|>"),
            &format!("<|action_start|><|plugin|>\n{O1}<|action_end|><|action_start|><|plugin|>\n{O2}<|action_end|>"),
        ),
        Shapes {
            bare: true,
            codes: &["id_generated"],
            says: "T [{\"name\": \"f\", \"arguments\": {\"a\": 1}, \"id\": \"x\"}]".to_owned(),
            ..new(
                "bare-array-id",
                "[{\"name\": \"f\", \"arguments\": {\"a\": 1}, \"id\": \"x\"}]",
                "[{\"name\": \"f\", \"arguments\": {\"a\": 1}, \"id\": \"x\"}, {\"name\": \"g\", \"arguments\": {\"a\": 2}, \"id\": \"y\"}]",
            )
        },
        Shapes { bare: true, says: format!("T [{O1}]"), ..listed("bare-array", "", "") },
    ]
}

#[test]
fn every_family_has_its_shapes() {
    let named: BTreeSet<_> = shapes().iter().map(|shapes| shapes.family.to_owned()).collect();
    let all = families::all().into_iter().chain([families::polyfilled()]);
    assert_eq!(named, all.map(|format| format.family.into_owned()).collect());
}

#[test]
fn calls_as_templates_write_them() {
    check(shapes().into_iter().flat_map(|shapes| {
        let Shapes { family, one, two, ids, thinks, says, after, prompt, codes, .. } = shapes;
        let with_ids = move |mut row: Row| {
            row.ids =
                ids.map(|ids| ids[..row.calls.len()].iter().map(|id| (*id).to_owned()).collect());
            row.codes.extend(row.calls.iter().flat_map(|_| codes));
            if row.setting.prompt.is_empty() {
                row.setting.prompt = prompt;
            }
            // A message that ends within the turn.
            if row.text.contains("<|begin|>") || row.text.contains("<|close|>message") {
                row.codes.push("eog_text_removed");
            }
            row
        };
        let thinks = thinks
            .map(|(prompt, text)| row(family, text).prompt(prompt).reasoning("R").calls(&[F1]));
        let rows = [
            row(family, one).calls(&[F1]),
            row(family, two).calls(&[F1, G2]),
            row(family, says).content("T").calls(&[F1]),
            row(family, after).content("Done.").calls(&[F1]),
        ];
        rows.into_iter().chain(thinks).map(with_ids)
    }));
}

#[test]
fn calls_of_unknown_tools() {
    check(shapes().into_iter().map(|shapes| {
        let text = shapes.one.clone();
        let row = row(shapes.family, text)
            .prompt(shapes.prompt)
            .with(|row| row.tools = vec![tool("other", json!({}))]);
        match (shapes.bare, shapes.family) {
            (true, "functionary-3.2" | "pythonic") => row.content(&shapes.one),
            (true, "functionary-2.2") => row.content(&shapes.one),
            (true, _) if shapes.one.starts_with('{') => {
                row.content(&shapes.one).codes(&["call_like_content"])
            }
            (true, _) => row.content(&shapes.one),
            (false, _) => row.calls(&[F1]).codes(&[&["unknown_tool"], shapes.codes].concat()),
        }
    }));
}

#[test]
fn calls_that_nobody_asked_for_are_text() {
    for shapes in shapes() {
        let format = family(shapes.family);
        if format.channels.is_some() {
            continue;
        }
        let parsed = parse(&format, &[], Setting { calls_allowed: false, ..PLAIN }, &shapes.one);
        let ends = |text: &str| {
            format.ends.iter().fold(text.to_owned(), |text, end| text.replace(&**end, ""))
        };
        assert_eq!(ends(&parsed.content).trim(), ends(&shapes.one).trim(), "{}", shapes.family);
        assert!(parsed.tool_calls.is_empty());
    }
}

/// Wherever a call is cut off, its text is somewhere, and what was certain stays.
#[test]
fn calls_that_are_cut_off_lose_nothing() {
    for shapes in shapes() {
        let format = family(shapes.family);
        let setting = Setting { prompt: shapes.prompt, ..PLAIN };
        let whole = parse(&format, &tools(), setting, &shapes.two);
        for (at, _) in shapes.two.char_indices() {
            let text = &shapes.two[..at];
            let parsed = feed(&format, &tools(), setting, [text]);
            let lost = lost(&format, text, &parsed);
            // The beginning of a word of the markup is no word.
            let cut = text.rsplit(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
            assert!(
                lost.iter().all(|word| word == cut),
                "{}: {text:?} lost {lost:?}\n{parsed:?}",
                shapes.family
            );
            assert!(parsed.tool_calls.len() <= whole.tool_calls.len());
            for (part, all) in parsed.tool_calls.iter().zip(&whole.tool_calls) {
                assert_eq!(
                    (&part.id, &part.name),
                    (&all.id, &all.name),
                    "{}: {text:?}",
                    shapes.family
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

/// The beginning of a marker at the end of the text is text.
#[test]
fn half_markers_are_given_out() {
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

// Outputs that are not as the template shows them.

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
            .codes(&["foreign_family"]),
        row("llama3", format!("<|python_tag|>{c}")).calls(&[F1]).codes(&["eog_text_removed"]),
        plain("llama3", other).codes(&["call_like_content"]),
        row("llama3", O1).calls(&[F1]),
        plain("llama3", "<function=f> to call"),
        plain("llama3", "<function=zz>{}</function>"),
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
        plain("hermes", O1).codes(&["call_like_content"]),
        // The table wants content here too, but for an opt-in: this family's format opts in.
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
    check([
        plain("qwen-xml", "Hello <tool_call> is a tag"),
        row("qwen-xml", "Hello <tool_call> is a tag</think>x")
            .prompt("<think>\n")
            .reasoning("Hello <tool_call> is a tag")
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
        // The other GLM's newlines, and none at all.
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
        row("mistral-array", format!("[{O1}]")).calls(&[F1]),
        row("mistral-array", format!("[{O1}, {O2}]")).calls(&[F1, G2]),
        plain("mistral-array", "[{\"name\": \"zz\", \"arguments\": {\"a\": 1}}]"),
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
        // LFM2.5 may leave the markers out: given names only.
        row("lfm2", "[f(a=1)]").calls(&[F1]),
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

/// The template prints no calls, but its source or its vocabulary names a family's markers.
#[test]
fn calls_of_evident_families() {
    let r1 = "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{\"a\": 1}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>";
    let evident = |markers: &'static [&'static str]| {
        move |row: &mut Row| {
            row.format.accepted_families = families::evident(&|marker| markers.contains(&marker))
        }
    };
    check([
        row("polyfilled", r1)
            .with(evident(&["<｜tool▁calls▁begin｜>"]))
            .calls(&[F1])
            .codes(&["foreign_family"]),
        row("polyfilled", format!("<|tool_call|>[{O1}]"))
            .with(evident(&["<|tool_call|>"]))
            .calls(&[F1])
            .codes(&["foreign_family"]),
        row("polyfilled", "<|tool_call_start|>[f(a=1), g(a=2)]<|tool_call_end|>")
            .with(evident(&["<|tool_call_start|>"]))
            .calls(&[F1, G2])
            .codes(&["foreign_family", "foreign_family"]),
        row("polyfilled", "<|tool_call_start|>[zz(a=1)]<|tool_call_end|>")
            .with(evident(&["<|tool_call_start|>"]))
            .content("<|tool_call_start|>[zz(a=1)]<|tool_call_end|>")
            .codes(&["malformed_call"]),
        plain("polyfilled", r1),
        row("polyfilled", tagged(O1)).with(evident(&["<|tool_call|>"])).calls(&[F1]),
        // Without any tag, as the only text.
        row("polyfilled", O1).calls(&[F1]),
        row("polyfilled", format!("[{O1}, {O2}]")).calls(&[F1, G2]),
        row("granite-3.3", format!("[{O1}]")).calls(&[F1]),
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
        let start = Instant::now();
        feed(format, &tools(), PLAIN, [text.as_str()]);
        let elapsed = start.elapsed();
        // A megabyte takes some tenths of a second; other tests run at the same time. Quadratic
        // would be minutes.
        if elapsed.as_secs() > 30 {
            slow.push(format!("{}: {what} takes {elapsed:?}", format.family));
        }
    };
    for shapes in shapes() {
        let format = family(shapes.family);
        let one = shapes.one.trim();
        let name = one.find("f\"").or_else(|| one.find('f')).unwrap();
        let value = one.rfind('1').unwrap();
        time(&format, "brackets", "[".repeat(SIZE / 10));
        time(&format, "braces", "{".repeat(SIZE / 10));
        time(&format, "another's tag", "<tool_call>".repeat(SIZE / 11));
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
fn odd_characters() {
    for shapes in shapes() {
        let format = family(shapes.family);
        let mut random = Random::new();
        for _ in 0..60 {
            // A character in the middle of a reply, or one that is missing.
            let mut text = format!("T {}", shapes.two);
            for _ in 0..=random.below(3) {
                let mut at = random.below(text.len());
                while !text.is_char_boundary(at) {
                    at -= 1;
                }
                let odd = ["\0", "\u{FFFD}", "\\ud83e", "\"", "{", "<", "é", "\u{E000}", "\n"]
                    [random.below(9)];
                if random.below(3) == 0 {
                    text.remove(at);
                } else {
                    text.insert_str(at, odd);
                }
            }
            let whole = feed(&format, &tools(), PLAIN, [text.as_str()]);
            assert_eq!(whole, feed(&format, &tools(), PLAIN, random.pieces(&text)), "{text:?}");
        }
    }
}
