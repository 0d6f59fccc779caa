//! Tests `continue_final_message` with all shared templates: the prompt contains the beginning of
//! the reply, and the message is that beginning followed by the model's text.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::output::{ReplyParser, ReplyParserInput};
use crate::profile::ModelProfile;
use crate::template::{RenderInput, Sources, polyfill, probe_time};
use crate::template_requests::{parse, render};
use crate::test_support::conformance;

const BEGINNING: &str = "Zarvox [1] quillem";
const MORE: &str = ", and so on.";
const REASONING: &str = "Brindle first";

/// Templates whose prompts do not show where the answer begins, or that write something else there.
/// In a chat, the beginning is known from the request.
const UNKNOWN_IN_PROMPTS: [(&str, &str); 9] = [
    ("hfjs.blenderbot", "only spaces between question and answer"),
    ("vllm.template_basic", "nothing between question and answer"),
    ("vllm.template_deepseek_ocr", "nothing between question and answer"),
    ("vllm012.template_fuyu", "only a line break between question and answer"),
    ("vllm085.template_florence2", "nothing between question and answer"),
    ("lcp.Apriel-1.6-15b-Thinker-fixed", "reasoning opens without a tag, and is not closed"),
    ("lcp.NVIDIA-Nemotron-Nano-v2", "opens reasoning before the content of the last message"),
    ("lcp.Apertus-8B-Instruct", "only a bracket between result and answer"),
    ("vllm.tool_chat_template_apertus", "only a bracket between result and answer"),
];
/// The templates among them that differ in chats too.
const UNKNOWN_IN_CHATS: [&str; 2] =
    ["lcp.Apriel-1.6-15b-Thinker-fixed", "lcp.NVIDIA-Nemotron-Nano-v2"];

fn user(text: &str) -> Value {
    json!({ "role": "user", "content": text })
}

fn answer(content: &str) -> Value {
    json!({ "role": "assistant", "content": content })
}

fn tool() -> Value {
    json!({ "type": "function", "function": {
        "name": "get_weather", "description": "Weather",
        "parameters": { "type": "object", "properties": { "city": { "type": "string" } } },
    } })
}

/// Conversations up to an answer, with their tools.
fn conversations() -> [(Vec<Value>, Value); 5] {
    let call = json!({ "role": "assistant", "content": "", "tool_calls": [{
        "id": "call12345", "type": "function",
        "function": { "name": "get_weather", "arguments": "{\"city\": \"Paris\"}" },
    }] });
    let result = json!({ "role": "tool", "tool_call_id": "call12345", "content": "sunny" });
    let system = json!({ "role": "system", "content": "Be brief." });
    let tools = || json!([tool()]);
    [
        (vec![user("Gimble?")], Value::Null),
        (vec![system, user("Gimble?")], Value::Null),
        (vec![user("Gimble?"), answer("Yes."), user("And?")], Value::Null),
        (vec![user("Gimble?")], tools()),
        (vec![user("Weather?"), call, result], tools()),
    ]
}

/// Possible ends of a conversation: the last message, and the member of it that is continued.
fn endings() -> [(Value, &'static str); 3] {
    let with = |content: &str| json!({ "role": "assistant", "content": content, "reasoning_content": REASONING });
    [(answer(BEGINNING), "content"), (with(BEGINNING), "content"), (with(""), "reasoning_content")]
}

/// The message that results from continuing a last message, as far as the prompt shows it.
fn expected(last: &Value, member: &str, prompt: &str) -> Value {
    let mut message = last.clone();
    if !prompt.contains(REASONING) {
        message.as_object_mut().unwrap().remove("reasoning_content");
    }
    message[member] = format!("{}{MORE}", last[member].as_str().unwrap()).into();
    message
}

fn request(sources: &Sources, tools: &Value) -> Value {
    json!({
        "chat_template": sources.default,
        "bos_token": sources.bos_token,
        "eos_token": sources.eos_token,
        "tools": tools,
    })
}

/// The message that `llb_template_parse` returns for the whole prompt and the model's text.
fn parsed(sources: &Sources, tools: &Value, prompt: &str) -> Value {
    let mut parsing = request(sources, tools);
    parsing["prompt"] = prompt.into();
    parsing["output"] = MORE.into();
    parse(&parsing.to_string()).unwrap()["message"].clone()
}

/// The message of a chat, which knows the origins of the bytes of its prompt.
fn of_chat(profile: &ModelProfile, messages: &[Value], tools: &Value, member: &str) -> Value {
    let tools = tools.as_array().map(Vec::as_slice);
    let allowed = crate::api::Polyfills::default();
    let polyfilled = polyfill::apply(messages, tools, profile.polyfill_target(), &allowed).unwrap();
    let prompt = profile.templates.render(&RenderInput {
        polyfilled: Some(&polyfilled),
        tools,
        continue_final_message: Some(member),
        spans: true,
        ..RenderInput::new(&polyfilled.messages, probe_time(0))
    });
    let prompt = prompt.unwrap();
    let opening = prompt.opening_of_message(messages.len() - 1);
    let mut parser = ReplyParser::new(ReplyParserInput {
        format: profile.format(),
        tools: tools.unwrap_or_default().to_vec().into(),
        calls_allowed: tools.is_some(),
        reasoning: true,
        json: false,
        parallel: true,
        new_id: Box::new(String::new),
    });
    parser.prime(profile.turn_of_message(&prompt.text, opening), true);
    let beginning = parser.take_beginning();
    parser.push(MORE);
    let rest = parser.finish().1;
    let mut message = answer(&format!("{}{}", beginning.content, rest.content));
    let reasoning = beginning.reasoning + rest.reasoning.as_deref().unwrap_or_default();
    if !reasoning.is_empty() {
        message["reasoning_content"] = reasoning.into();
    }
    message
}

#[test]
fn every_shared_template_continues_a_message() {
    let Some(folder) = conformance::folder("continued replies") else { return };
    let (mut right, mut refused) = (BTreeMap::<&str, usize>::new(), 0);
    let (mut in_prompts, mut in_chats) = (BTreeSet::new(), BTreeSet::new());
    let templates = conformance::templates(&folder);
    // Unoptimised renders are slow.
    let step = if cfg!(debug_assertions) { 5 } else { 1 };
    let visited: BTreeMap<_, _> = templates.into_iter().step_by(step).collect();
    for (name, sources) in &visited {
        let name = name.as_str();
        let Ok(profile) = ModelProfile::of(sources) else { continue };
        for (messages, tools) in conversations() {
            for (last, member) in endings() {
                let messages = [messages.clone(), vec![last.clone()]].concat();
                let mut rendering = request(sources, &tools);
                rendering["messages"] = messages.as_slice().into();
                rendering["continue_final_message"] = member.into();
                // Most templates show no reasoning, and some allow no tool results or system
                // messages.
                let Ok(rendered) = render(&rendering.to_string()) else {
                    refused += 1;
                    continue;
                };
                let prompt = rendered["prompt"].as_str().unwrap();
                let expected = expected(&last, member, prompt);
                *right.entry(member).or_default() += 1;
                for (message, wrong) in [
                    (parsed(sources, &tools, prompt), &mut in_prompts),
                    (of_chat(&profile, &messages, &tools, member), &mut in_chats),
                ] {
                    if message != expected && wrong.insert(name) {
                        let at = prompt.len()
                            - prompt.chars().rev().take(80).map(char::len_utf8).sum::<usize>();
                        conformance::say(&format!(
                            "{name}: {message}, not {expected}, of {:?}",
                            &prompt[at..]
                        ));
                    }
                }
            }
        }
    }
    conformance::say(&format!("continued: {right:?}, refused: {refused}"));
    let is_visited = |name: &&str| visited.contains_key(*name);
    let known: BTreeSet<_> =
        UNKNOWN_IN_PROMPTS.iter().map(|(name, _)| *name).filter(is_visited).collect();
    assert_eq!(in_prompts, known);
    assert_eq!(in_chats, UNKNOWN_IN_CHATS.into_iter().filter(is_visited).collect());
    // The least number, of 335 templates.
    let shown = |member, least: usize| {
        assert!(right[member] * 335 > least * visited.len(), "{right:?}");
    };
    shown("content", 3200);
    shown("reasoning_content", 300);
}

/// A template without a generation prompt.
const NO_GENERATION_PROMPT: &str = "{{- bos_token -}}{%- for m in messages -%}\
    {%- if m.role == 'user' -%}[INST]{{ m.content }}[/INST]{%- else -%}\
    {%- if m.reasoning_content -%}[THINK]{{ m.reasoning_content }}[/THINK]{%- endif -%}\
    {{ m.content }}{%- for c in m.tool_calls or [] -%}[TOOL_CALLS]{{ c.function.name }}[ARGS]\
    {{- c.function.arguments if c.function.arguments is string else c.function.arguments | tojson -}}\
    {%- endfor -%}{{ eos_token }}{%- endif -%}{%- endfor -%}";

#[test]
fn a_prompt_may_be_the_beginning_of_the_answer_alone() {
    for (prompt, output, content, reasoning) in [
        ("Hello, ", "world", "Hello, world", None),
        ("[THINK]Hm", "m[/THINK]Hello", "Hello", Some("Hmm")),
        ("[THINK]Hm[/THINK]Hello, ", "world", "Hello, world", Some("Hm")),
        ("<s>[INST]Hi[/INST]Hello, ", "world", "Hello, world", None),
        ("<s>[INST]Hi[/INST]", "world", "world", None),
    ] {
        let request = json!({
            "chat_template": NO_GENERATION_PROMPT, "bos_token": "<s>", "eos_token": "</s>",
            "tools": [tool()], "prompt": prompt, "output": output,
        });
        let message = &parse(&request.to_string()).unwrap()["message"];
        assert_eq!(message["content"], content, "{prompt}");
        assert_eq!(message["reasoning_content"].as_str(), reasoning, "{prompt}");
    }
}
