//! The round trip: a format is believed only if what the model's own template writes comes back as what went in.

use serde_json::{Value, json};

use super::legacy::Render;
use super::{Format, Recogniser, RecogniserInput};
use crate::error::Result;

const CONTENT: &str = "Zarvox quillem.";
const REASONING: &str = "Brindle first, then quorv.";
const NAMES: [&str; 2] = ["fetch_plimsoll", "rank_quagga"];
const IDS: [&str; 2] = ["pQ7xK2mWz", "vR4tN9bLc"];

/// How a row came back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The same message.
    Exact,
    /// The same message but for blanks around its text.
    Blanks,
    /// Something else, or the template refused.
    Failed,
}

/// One history that was rendered and read back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// Which history.
    pub name: &'static str,
    /// Whether the format is believed only if this row is exact.
    pub required: bool,
    /// How it came back.
    pub verdict: Verdict,
    /// What was different, empty when nothing was.
    pub because: String,
}

/// All rows of a round trip.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Report {
    /// The rows, in the order tried.
    pub rows: Vec<Row>,
    /// Whether the template wants arguments as text rather than as an object.
    pub text_arguments: bool,
}

impl Report {
    /// Whether every required row came back exactly.
    pub fn accepted(&self) -> bool {
        !self.rows.is_empty() && self.rows.iter().all(|row| !row.required || row.verdict == Verdict::Exact)
    }

    /// The rows that did not come back exactly.
    pub fn failed(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(|row| row.verdict != Verdict::Exact)
    }
}

struct History {
    name: &'static str,
    required: bool,
    content: &'static str,
    reasoning: &'static str,
    calls: Vec<Value>,
}

fn histories() -> Vec<History> {
    let row = |name, required, calls| History { name, required, content: "", reasoning: "", calls };
    let simple = json!({ "velk": 41237 });
    vec![
        row("one call", true, vec![simple.clone()]),
        row("two calls", true, vec![simple.clone(), json!({ "velk": 90431, "morn": "tessil" })]),
        row("no arguments", true, vec![json!({})]),
        row(
            "nested and quote-heavy arguments",
            true,
            vec![json!({
                "velk": "say \"orv\" \\ it's <b>\n{done} </x> é \u{1F999}",
                "morn": [1, -2.5, true, null, { "deep": [[], {}, "'"] }],
            })],
        ),
        History { content: CONTENT, ..row("content and call", false, vec![simple.clone()]) },
        History { reasoning: REASONING, ..row("reasoning and call", false, vec![simple]) },
    ]
}

pub(super) fn round_trip(format: &Format, render: Render<'_>) -> Report {
    let mut report = run(format, render, false);
    if !report.accepted() {
        let text = run(format, render, true);
        if text.accepted() {
            report = text;
        }
    }
    report
}

fn run(format: &Format, render: Render<'_>, text_arguments: bool) -> Report {
    let rows = histories().into_iter().map(|history| {
        let (verdict, because) = match check(format, render, text_arguments, &history) {
            Ok(verdict) => (verdict, String::new()),
            Err(because) => (Verdict::Failed, because),
        };
        Row { name: history.name, required: history.required, verdict, because }
    });
    Report { rows: rows.collect(), text_arguments }
}

fn check(format: &Format, render: Render<'_>, text: bool, history: &History) -> Result<Verdict, String> {
    let tools = tools();
    let user = json!({ "role": "user", "content": "Gimble the wabe." });
    let calls: Vec<Value> = history.calls.iter().enumerate().map(|(i, arguments)| call(i, arguments, text)).collect();
    let mut reply = json!({ "role": "assistant", "content": history.content, "tool_calls": calls });
    if !history.reasoning.is_empty() {
        reply["reasoning_content"] = history.reasoning.into();
    }
    let answer = json!({ "role": "assistant", "content": CONTENT });
    let render = |messages: &[Value], prompt| render(messages, &tools, prompt).map_err(|e| e.to_string());

    let prompt = render(std::slice::from_ref(&user), true)?;
    let plain = render(&[user.clone(), answer], false)?;
    let whole = render(&[user, reply], false)?;

    let end_of_turn = plain.rsplit_once(CONTENT).map_or("", |(_, end)| end);
    let start = start_of_reply(format, &prompt, &whole);
    let reply = &whole[start..];
    let reply = reply.strip_suffix(end_of_turn).unwrap_or(reply);
    let reasoning_open =
        start == prompt.len() && format.reasoning.as_ref().is_some_and(|markers| prompt.trim_end().ends_with(&*markers.open));

    let mut recogniser = Recogniser::new(RecogniserInput {
        format: Some(format),
        tools: &tools,
        calls_allowed: true,
        reasoning_open,
        parallel: true,
        new_id: Box::new(String::new),
    });
    recogniser.push(reply);
    let (_, parsed) = recogniser.finish();

    if let Some(diagnostic) = parsed.diagnostics.first() {
        return Err(format!("{}: {}", diagnostic.code, diagnostic.message));
    }
    if parsed.tool_calls.len() != history.calls.len() {
        return Err(format!("{} of {} calls came back", parsed.tool_calls.len(), history.calls.len()));
    }
    for (i, (call, arguments)) in parsed.tool_calls.iter().zip(&history.calls).enumerate() {
        if call.name != NAMES[i] {
            return Err(format!("call {i} came back as `{}`", call.name));
        }
        if serde_json::from_str::<Value>(&call.arguments).ok().as_ref() != Some(arguments) {
            return Err(format!("the arguments of call {i} came back as {}", call.arguments));
        }
    }
    let got = (parsed.content.as_str(), parsed.reasoning.as_deref().unwrap_or_default());
    if got == (history.content, history.reasoning) {
        Ok(Verdict::Exact)
    } else if (got.0.trim(), got.1.trim()) == (history.content, history.reasoning) {
        Ok(Verdict::Blanks)
    } else {
        Err(format!("text came back as {:?}, reasoning as {:?}", got.0, got.1))
    }
}

/// Where the assistant's part begins: behind the generation prompt, or where history stops agreeing with it.
fn start_of_reply(format: &Format, prompt: &str, whole: &str) -> usize {
    if whole.starts_with(prompt) {
        return prompt.len();
    }
    let equal = prompt.chars().zip(whole.chars()).take_while(|(a, b)| a == b).map(|(a, _)| a.len_utf8()).sum::<usize>();
    // A marker both begin alike must not be cut: `<` is shared by many.
    let markers = format.markers();
    let longest = markers.iter().map(|marker| marker.len()).max().unwrap_or(0);
    let first = equal.saturating_sub(longest);
    (first..equal)
        .filter(|&at| whole.is_char_boundary(at))
        .find(|&at| markers.iter().any(|marker| at + marker.len() > equal && whole[at..].starts_with(marker)))
        .unwrap_or(equal)
}

fn call(index: usize, arguments: &Value, text: bool) -> Value {
    let arguments = if text { arguments.to_string().into() } else { arguments.clone() };
    json!({
        "id": IDS[index],
        "type": "function",
        "function": { "name": NAMES[index], "arguments": arguments },
    })
}

fn tools() -> Vec<Value> {
    let tool = |name: &str| {
        json!({
            "type": "function",
            "function": {
                "name": name,
                "description": "Ollits.",
                "parameters": { "type": "object", "properties": { "velk": {}, "morn": {} } },
            },
        })
    };
    NAMES.map(tool).to_vec()
}
