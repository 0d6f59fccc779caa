//! Templates and conversations of the shared conformance set, and two longer conversations that are
//! made here.

#[path = "../../src/test_support/conformance_folder.rs"]
mod conformance_folder;

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::Path;

use flate2::read::GzDecoder;
use serde_json::{Value, json};

/// The label in the table, and the name in the set. The set has no Mistral template; the last one
/// has its `[INST]` turns.
const TEMPLATES: [(&str, &str); 8] = [
    ("Qwen2.5", "gguf.qwen2.5-coder-0.5b-instruct"),
    ("Llama 3.1", "lcp.meta-llama-Llama-3.1-8B-Instruct"),
    ("gpt-oss", "lcp.openai-gpt-oss-120b"),
    ("Gemma 3", "axolotl.gemma3"),
    ("Gemma 4", "lcp.google-gemma-4-31B-it"),
    ("DeepSeek V3.1", "lcp.deepseek-ai-DeepSeek-V3.1"),
    ("GLM 4.6", "lcp.GLM-4.6"),
    ("Llama 2 [INST]", "mistralrs.default"),
];

const CONTEXTS: [(&str, &str); 3] =
    [("short", "simple_user"), ("one tool", "tool_single_system"), ("10 with calls", "multi_step")];

/// The date of all conversations, as in the goldens.
pub(crate) const NOW: &str = "2026-07-03T14:05:09";

/// A chat template and its variables.
pub(crate) struct Template {
    pub(crate) label: &'static str,
    name: &'static str,
    pub(crate) source: String,
    pub(crate) bos_token: String,
    pub(crate) eos_token: String,
}

/// A conversation: `messages`, `tools`?, `documents`?, `add_generation_prompt`, `kwargs`.
pub(crate) struct Conversation {
    pub(crate) label: &'static str,
    name: Option<&'static str>,
    pub(crate) json: Value,
}

/// The result of transformers for a template and a conversation.
#[derive(Clone, Copy)]
pub(crate) enum Golden<'a> {
    Text(&'a str),
    Refused,
    /// There is no golden, or the conversation was made here.
    Unknown,
}

pub(crate) struct Data {
    pub(crate) templates: Vec<Template>,
    pub(crate) conversations: Vec<Conversation>,
    goldens: HashMap<(String, String), Option<String>>,
}

impl Data {
    /// Reads the conformance set. Prints a line if there is none.
    pub(crate) fn read() -> Option<Data> {
        let root = conformance_folder::folder("the template benchmark")?;
        let templates = templates(&root);
        let mut conversations: Vec<Conversation> = CONTEXTS
            .into_iter()
            .map(|(label, name)| {
                let text = read(&root.join(format!("contexts/{name}.json")));
                let json: Value = serde_json::from_str(&text).expect("a context is JSON");
                assert_eq!(json["now"], NOW, "all goldens have the same date");
                Conversation { label, name: Some(name), json }
            })
            .collect();
        conversations.push(Conversation { label: "12 messages", name: None, json: plain(12) });
        conversations.push(Conversation { label: "240 messages", name: None, json: plain(240) });
        conversations.push(Conversation {
            label: "240 with calls",
            name: None,
            json: with_calls(240),
        });
        Some(Data { templates, conversations, goldens: goldens(&root) })
    }

    pub(crate) fn golden(&self, template: &Template, conversation: &Conversation) -> Golden<'_> {
        let Some(context) = conversation.name else { return Golden::Unknown };
        match self.goldens.get(&(template.name.to_owned(), context.to_owned())) {
            Some(Some(text)) => Golden::Text(text),
            Some(None) => Golden::Refused,
            None => Golden::Unknown,
        }
    }
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn templates(root: &Path) -> Vec<Template> {
    let table = read(&root.join("templates.tsv"));
    let mut lines = table.lines().map(|line| line.split('\t').collect::<Vec<_>>());
    let titles = lines.next().expect("the table has titles");
    let column = |title: &str| {
        titles.iter().position(|known| *known == title).expect("the table has this column")
    };
    let (name, bos_token, eos_token) = (column("name"), column("bos_token"), column("eos_token"));
    let rows: HashMap<&str, Vec<&str>> = lines.map(|row| (row[name], row)).collect();
    TEMPLATES
        .into_iter()
        // A set that somebody built may lack one.
        .filter(|(_, name)| rows.contains_key(name))
        .map(|(label, name)| Template {
            label,
            name,
            source: read(&root.join(format!("templates/{name}.jinja"))),
            bos_token: rows[name][bos_token].to_owned(),
            eos_token: rows[name][eos_token].to_owned(),
        })
        .collect()
}

/// Only for our own templates and contexts: the text, or None if the template refuses the
/// conversation.
fn goldens(root: &Path) -> HashMap<(String, String), Option<String>> {
    let path = root.join("goldens.jsonl.gz");
    let file = File::open(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let ours = |golden: &Value| {
        TEMPLATES.iter().any(|(_, name)| golden["template"] == *name)
            && CONTEXTS.iter().any(|(_, name)| golden["context"] == *name)
    };
    BufReader::new(GzDecoder::new(file))
        .lines()
        .map(|line| line.expect("the goldens are compressed text"))
        .filter(|line| TEMPLATES.iter().any(|(_, name)| line.contains(name)))
        .map(|line| serde_json::from_str(&line).expect("a golden is JSON"))
        .filter(ours)
        .map(|golden: Value| {
            let key = [&golden["template"], &golden["context"]]
                .map(|name| name.as_str().unwrap_or_default().to_owned());
            (key.into(), golden["text"].as_str().map(str::to_owned))
        })
        .collect()
}

const QUESTIONS: [&str; 3] = [
    "How do I keep a sourdough starter alive while I am away for two weeks?",
    "Write a function that returns the median of a list of numbers, and say what it does with an empty one.",
    "Und wie sagt man das auf Französisch? „Der Zug hat Verspätung.“",
];

const ANSWERS: [&str; 3] = [
    "Feed it, let it stand for an hour, and put it into the fridge.\n\nWhen you are back:\n\n1. pour off the liquid,\n\
     2. feed it twice a day,\n3. bake when it doubles within six hours.",
    "```python\ndef median(numbers):\n    if not numbers:\n        raise ValueError(\"no numbers\")\n\
     \u{20}   ordered = sorted(numbers)\n    middle = len(ordered) // 2\n\
     \u{20}   return ordered[middle] if len(ordered) % 2 else sum(ordered[middle - 1:middle + 1]) / 2\n```",
    "« Le train a du retard. »",
];

/// A system message, then alternating questions and answers.
fn plain(messages: usize) -> Value {
    let mut all = vec![
        json!({ "role": "system", "content": "You are a helpful assistant. Answer in full sentences." }),
    ];
    for turn in 0.. {
        all.push(json!({ "role": "user", "content": format!("{} ({turn})", QUESTIONS[turn % 3]) }));
        if all.len() == messages {
            break;
        }
        all.push(json!({ "role": "assistant", "content": ANSWERS[turn % 3] }));
        if all.len() == messages {
            break;
        }
    }
    json!({ "messages": all, "add_generation_prompt": true, "kwargs": {} })
}

/// A system message, then alternating questions, calls, results and answers.
fn with_calls(messages: usize) -> Value {
    let mut all = vec![json!({ "role": "system", "content": "Use the tools." })];
    for turn in 0..messages.div_ceil(4) {
        let id = format!("call_{turn:04}");
        let arguments = json!({ "city": "Málaga", "day": turn, "units": ["celsius", "m/s"] });
        let function = json!({ "name": "get_forecast", "arguments": arguments });
        let call = json!({ "id": id, "type": "function", "function": function });
        let result =
            json!({ "temperature": 11.5 + turn as f64, "wind": { "from": "NW", "speed": 4 }, "rain": false }).to_string();
        all.extend([
            json!({ "role": "user", "content": format!("What will the weather be like in {turn} days?") }),
            json!({ "role": "assistant", "content": "", "tool_calls": [call] }),
            json!({ "role": "tool", "tool_call_id": id, "name": "get_forecast", "content": result }),
            json!({ "role": "assistant", "content": "Dry and windy." }),
        ]);
    }
    all.truncate(messages);
    let parameters = json!({
        "type": "object",
        "properties": {
            "city": { "type": "string", "description": "City, for example Málaga." },
            "day": { "type": "integer", "description": "Days from now." },
            "units": { "type": "array", "items": { "type": "string" }, "description": "Of temperature and wind." },
        },
        "required": ["city", "day"],
    });
    let function = json!({ "name": "get_forecast", "description": "The forecast for a city.", "parameters": parameters });
    let tools = json!([{ "type": "function", "function": function }]);
    json!({ "messages": all, "tools": tools, "add_generation_prompt": true, "kwargs": {} })
}
