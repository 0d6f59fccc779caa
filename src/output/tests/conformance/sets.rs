//! Random replies with calls, and the tools they call. All parameters have types, so that formats
//! without types can be parsed.

use serde_json::{Map, Value, json};

use crate::test_support::random::Random;

/// An assistant's message with calls.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct SampleReply {
    pub(super) content: String,
    pub(super) reasoning: String,
    pub(super) calls: Vec<SampleCall>,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct SampleCall {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) arguments: Value,
}

/// Pieces of strings: letters, quotes, brackets and whitespace, but no markers of any format.
const PIECES: &[&str] = &[
    "alpha",
    "Zug",
    "Übergröße",
    "漢字",
    "\u{1F999}",
    "e\u{301}",
    "שלום",
    "\"",
    "'",
    "\\",
    "\\n",
    "\n",
    "\n\n",
    "\t",
    "<",
    ">",
    "<b>",
    "</x>",
    "{",
    "}",
    "[",
    "]",
    "{\"k\": 1}",
    "a=b",
    ", ",
    ": ",
    "`",
    "```",
    "%s",
    "{{x}}",
    "{% y %}",
    "&amp;",
    "null",
    "12",
    "3.5",
    " ",
    "  ",
    "$",
    "#",
    "//",
    "|",
    "\u{2028}",
    ")",
    "(",
];
/// Strings that look like other values.
const AMBIGUOUS: &[&str] = &[
    "", " ", "None", "null", "true", "False", "12", "-0", "1.5e10", "[1]", "{}", "\"q\"", "'q'",
    "\n",
];
const INTEGERS: &[&str] = &[
    "0",
    "-0",
    "-1",
    "7",
    "41237",
    "9007199254740993",
    "1234567890123456789012345",
    "-9876543210987654321098765",
    "1000000",
];
const NUMBERS: &[&str] = &[
    "1.5e10",
    "0.1",
    "-2.5",
    "1e-7",
    "3.0",
    "6.02e23",
    "-0.0",
    "2",
    "123456789.125",
    "0.30000000000000004",
];
const PROSE: &[&str] = &[
    "Zarvox",
    "quillem",
    "Ünder",
    "漢字",
    "\u{1F999}",
    "don't",
    "\"so\"",
    "a < b",
    "(see 1)",
    "{x}",
    "x = 1;",
    "50 %",
    "first\nsecond",
    "one\n\ntwo",
    "- item",
    "C:\\dir",
];

/// A reply with at least one call. If the template does not show types, strings whose schema has no
/// type are words.
pub(super) fn reply(
    random: &mut Random,
    calls: usize,
    tools: &[Value],
    tells_types: bool,
) -> SampleReply {
    let prose = |random: &mut Random| {
        let words = (0..1 + random.below(8)).map(|_| random.pick(PROSE)).collect::<Vec<_>>();
        words.join(" ")
    };
    let content = if random.below(2) == 0 { prose(random) } else { String::new() };
    let reasoning = if random.below(2) == 0 { prose(random) } else { String::new() };
    let calls = (0..calls.max(1)).map(|_| {
        let function = &tools[random.below(tools.len())]["function"];
        let arguments = if random.below(8) == 0 {
            json!({})
        } else {
            value(random, &function["parameters"], tells_types, 0)
        };
        let id = (0..9)
            .map(|_| char::from(b"abcdefghijkLMNOPQRSTUVW0123456789"[random.below(33)]))
            .collect();
        SampleCall { id, name: function["name"].as_str().unwrap().to_owned(), arguments }
    });
    let calls = calls.collect();
    SampleReply { content, reasoning, calls }
}

/// A value that obeys the schema.
fn value(random: &mut Random, schema: &Value, tells_types: bool, depth: usize) -> Value {
    let kind = schema["type"]
        .as_str()
        .unwrap_or(["string", "integer", "boolean", "null", "array"][random.below(5)]);
    match kind {
        "object" => {
            let mut members = Map::new();
            let Some(properties) = schema["properties"].as_object() else {
                for _ in 0..random.below(4) {
                    let key = random.pick(&["k", "two words", "ключ", "x-y", "n1"]).to_owned();
                    members.insert(key, value(random, &json!({}), tells_types, depth + 1));
                }
                return Value::Object(members);
            };
            for (key, schema) in properties {
                if random.below(3) > 0 {
                    members.insert(key.clone(), value(random, schema, tells_types, depth + 1));
                }
            }
            Value::Object(members)
        }
        "array" => {
            let count = if depth > 4 { 0 } else { random.below(4) };
            (0..count).map(|_| value(random, &schema["items"], tells_types, depth + 1)).collect()
        }
        "string" if !tells_types && schema["type"].is_null() => random.pick(&PIECES[..7]).into(),
        "string" => match schema["enum"].as_array() {
            Some(words) => words[random.below(words.len())].clone(),
            None => string(random).into(),
        },
        "integer" if random.below(2) == 0 => random.below(100_000).into(),
        "integer" => serde_json::from_str(random.pick(INTEGERS)).unwrap(),
        "number" => serde_json::from_str(random.pick(NUMBERS)).unwrap(),
        "boolean" => (random.below(2) == 0).into(),
        _ => Value::Null,
    }
}

fn string(random: &mut Random) -> String {
    match random.below(6) {
        0 => random.pick(AMBIGUOUS).to_owned(),
        1 => format!("{} {}", random.pick(&PIECES[..7]), random.pick(&PIECES[..7])),
        _ => (0..1 + random.below(8)).map(|_| random.pick(PIECES)).collect(),
    }
}

/// Five functions, one of them without parameters.
pub(super) fn tools() -> Vec<Value> {
    let string = json!({ "type": "string", "description": "Ollit." });
    let integer = json!({ "type": "integer", "description": "Ollit." });
    let number = json!({ "type": "number", "description": "Ollit." });
    let list = |items: Value| json!({ "type": "array", "description": "Ollit.", "items": items });
    let object = |properties: Value| json!({ "type": "object", "description": "Ollit.", "properties": properties });
    let function = |name: &str, properties: Value| {
        let parameters = json!({ "type": "object", "properties": properties, "required": [] });
        json!({ "type": "function", "function": { "name": name, "description": "Ollits.", "parameters": parameters } })
    };
    vec![
        function(
            "fetch_plimsoll",
            json!({ "query": string, "limit": integer, "ratio": number, "exact": { "type": "boolean", "description": "Ollit." }, "note": string }),
        ),
        function(
            "rankQuagga",
            json!({
                "rows": list(object(json!({ "label": string, "weight": number, "marks": list(integer.clone()) }))),
                "order": { "type": "string", "description": "Ollit.", "enum": ["up", "down"] },
                "depth": integer,
            }),
        ),
        function(
            "sort_wimble_2",
            json!({
                "filter": object(json!({ "path": string, "range": object(json!({ "from": integer, "to": integer })), "words": list(string.clone()) })),
                "note": string,
            }),
        ),
        function("hover_dracht", json!({})),
        function(
            "store_brillig",
            json!({ "record": { "type": "object", "description": "Ollit." }, "matrix": list(list(number)), "code": string }),
        ),
    ]
}
