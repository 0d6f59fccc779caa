//! The round trip: a format is believed only if what the model's own template writes comes back as
//! what went in.

use std::borrow::Cow;

use serde_json::{Value, json};

use super::turn::{Opener, behind, common};
use crate::diagnostic::Diagnostic;
use crate::error::Result;
use crate::output::format::Format;
use crate::output::{ReplyParser, ReplyParserInput};

/// `render(messages, tools, add_generation_prompt)`: a conversation through the model's own
/// template.
pub type Render<'a> = &'a dyn Fn(&[Value], &[Value], bool) -> Result<String>;

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
}

impl Report {
    /// Whether every required row came back exactly.
    pub fn accepted(&self) -> bool {
        !self.rows.is_empty()
            && self.rows.iter().all(|row| !row.required || row.verdict == Verdict::Exact)
    }

    /// Whether two calls of one turn came back.
    pub fn parallel(&self) -> bool {
        self.rows.iter().any(|row| row.name == TWO_CALLS && row.verdict == Verdict::Exact)
    }

    /// The rows that did not come back exactly.
    pub fn failed(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(|row| row.verdict != Verdict::Exact)
    }
}

const TWO_CALLS: &str = "two calls";

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
        row(TWO_CALLS, false, vec![simple.clone(), json!({ "velk": 90431, "morn": "tessil" })]),
        row("no arguments", true, vec![json!({})]),
        row(
            "nested and quote-heavy arguments",
            true,
            vec![json!({
                "morn": "say \"orv\" \\ it's <b>\n{done} </x> é \u{1F999}",
                "tove": [1, -2.5, true, { "deep": [[2], { "k": "v" }, "'"] }],
            })],
        ),
        History { content: CONTENT, ..row("content and call", false, vec![simple.clone()]) },
        History { reasoning: REASONING, ..row("reasoning and call", false, vec![simple]) },
    ]
}

/// How a template begins and ends an assistant's turn, with these tools.
pub(crate) struct Frame {
    user: String,
    with_prompt: Result<String, String>,
    plain: String,
}

/// What the user says in every history.
const USER: &str = "Gimble the wabe.";

impl Frame {
    pub(crate) fn new(render: Render<'_>, tools: &[Value]) -> Frame {
        let answer = json!({ "role": "assistant", "content": CONTENT });
        let render = |messages: &[Value], prompt| {
            render(messages, tools, prompt).map_err(|error| error.to_string())
        };
        Frame {
            user: render(&[user()], false).unwrap_or_default(),
            with_prompt: render(&[user()], true),
            plain: render(&[user(), answer], false).unwrap_or_default(),
        }
    }

    /// What opens an assistant's turn, for a reader of this format.
    pub(crate) fn opener(&self, format: Option<&Format>) -> Opener {
        match &self.with_prompt {
            Ok(with_prompt) => Opener::find(&self.user, with_prompt, &self.plain, format),
            Err(_) => Opener::default(),
        }
    }

    /// What opens an assistant's turn though no prompt was asked for: it stands behind the user's
    /// words in any case.
    fn always(&self) -> &str {
        if self.with_prompt.as_ref() != Ok(&self.user) {
            return "";
        }
        let prompt = behind(&self.user, USER).trim_start();
        prompt[..common(prompt, behind(&self.plain, USER).trim_start())].trim()
    }

    /// The assistant's part of a history that ends with it. A message that the template writes as
    /// several turns is one.
    pub(crate) fn reply<'a>(&self, format: &Format, whole: &'a str) -> Cow<'a, str> {
        let opener = self.opener(Some(format));
        let end_of_turn = self.plain.rsplit_once(CONTENT).map_or("", |(_, end)| end);
        let reply = &whole[opener.start(&self.user, whole, USER)..];
        let reply = reply
            .trim_start()
            .strip_prefix(self.always())
            .filter(|_| !self.always().is_empty())
            .unwrap_or(reply);
        let reply = without_turns(reply, end_of_turn, opener.text());
        let own = opener.text().trim();
        let written =
            || format.channels.is_some() || format.texts().iter().any(|text| text.contains(own));
        if own.len() < 2 || !reply.contains(own) || written() {
            return reply.into();
        }
        let next = format!("{}{}", end_of_turn.trim_start(), opener.text());
        reply.replace(&next, "").replace(opener.text(), "").into()
    }
}

/// The user's turn that every history begins with.
pub(crate) fn user() -> Value {
    json!({ "role": "user", "content": USER })
}

/// A reader at the beginning of a reply of the history.
pub(crate) fn reader(format: &Format, tools: &[Value], reply: &str) -> ReplyParser {
    let mut parser = ReplyParser::new(ReplyParserInput {
        format: Some(format),
        tools: tools.to_vec().into(),
        calls_allowed: true,
        reasoning: true,
        parallel: true,
        json: false,
        new_id: Box::new(String::new),
    });
    // Where only the end is written, a history without it holds no reasoning.
    if format
        .reasoning
        .as_ref()
        .is_some_and(|tags| tags.open.is_empty() && reply.contains(&*tags.close))
    {
        parser.prime("", false);
    }
    parser
}

/// How calls have to stand in the messages, for a template to write them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Given {
    /// Arguments as text, else as an object.
    pub(crate) text: bool,
    /// Ids that hold the name: `functions.f:0`.
    pub(crate) named_ids: bool,
}

impl Given {
    /// A call of a message.
    pub(crate) fn call(self, index: usize, id: &str, name: &str, arguments: &Value) -> Value {
        let arguments = if self.text { arguments.to_string().into() } else { arguments.clone() };
        let id = if self.named_ids { format!("functions.{name}:{index}") } else { id.to_owned() };
        json!({ "id": id, "type": "function", "function": { "name": name, "arguments": arguments } })
    }
}

/// What a template writes for the histories of the round trip: the same for every format that is
/// tried on it.
pub(crate) struct Renders {
    pub(crate) frame: Frame,
    #[cfg(test)]
    pub(crate) given: Given,
    tools: Vec<Value>,
    rows: Vec<(History, Result<String, String>)>,
}

impl Renders {
    /// Renders them, with arguments as objects, or as text where the template wants that.
    pub(crate) fn new(render: Render<'_>) -> Renders {
        let tools = tools();
        let row = |given: Given, history: History| {
            let calls = history
                .calls
                .iter()
                .enumerate()
                .map(|(i, arguments)| given.call(i, IDS[i], NAMES[i], arguments));
            let mut reply = json!({ "role": "assistant", "content": history.content, "tool_calls": calls.collect::<Vec<_>>() });
            if !history.reasoning.is_empty() {
                reply["reasoning_content"] = history.reasoning.into();
            }
            let rendered =
                render(&[user(), reply], &tools, false).map_err(|error| error.to_string());
            (history, rendered)
        };
        let one = |given: Given| {
            histories()
                .into_iter()
                .next()
                .and_then(|history| row(given, history).1.ok())
                .unwrap_or_default()
        };
        // Some templates escape what is already text, and some refuse objects: the objects are
        // tried first.
        let mut given = Given::default();
        let mut shown = one(given);
        if !shown.contains("41237") {
            let text = one(Given { text: true, ..given });
            if !text.contains("\\\"velk\\\"") {
                (given.text, shown) = (true, text);
            }
        }
        given.named_ids = shown.contains(IDS[0])
            && !shown.rsplit_once(USER).is_some_and(|(_, reply)| reply.contains(NAMES[0]));
        Renders {
            frame: Frame::new(render, &tools),
            #[cfg(test)]
            given,
            rows: histories().into_iter().map(|history| row(given, history)).collect(),
            tools,
        }
    }

    /// What opens an assistant's turn, for a reader of this format.
    pub(crate) fn opener(&self, format: Option<&Format>) -> Opener {
        self.frame.opener(format)
    }

    /// Whether the history of one call holds what begins a call of this format: if not, no reading
    /// is worth while.
    pub(crate) fn may_be(&self, format: &Format) -> bool {
        let first = format.calls.as_ref().and_then(|calls| match calls.call.first() {
            Some(crate::output::format::CallPart::Text(text)) => text
                .split_whitespace()
                .next()
                .map(|word| &word[..word.find('{').unwrap_or(word.len())]),
            _ => None,
        });
        first.is_none_or(|first| self.shows(first))
    }

    /// Whether a turn that reasons is seen to close its reasoning with this tag.
    pub(crate) fn closes_reasoning(&self, tag: &str) -> bool {
        let reasons = |(history, text): &(History, Result<String, String>)| {
            let text = text.as_deref().unwrap_or_default();
            let reply = text.rsplit_once(REASONING).map_or("", |(_, after)| after);
            !history.reasoning.is_empty() && reply.contains(tag)
        };
        self.rows.iter().any(reasons)
    }

    /// Whether a tag stands in any of them.
    pub(crate) fn shows(&self, tag: &str) -> bool {
        self.rows.iter().any(|(_, text)| text.as_ref().is_ok_and(|text| text.contains(tag)))
    }

    /// What a prompt adds for the reply.
    pub(crate) fn generation_prompt(&self) -> &str {
        let with_prompt = self.frame.with_prompt.as_deref().unwrap_or_default();
        &with_prompt[common(&self.frame.user, with_prompt)..]
    }

    /// Reads the assistant's part of every history back, and says row by row whether it came back.
    ///
    /// Names, ids and values are rare strings of our own, so that nothing a template prints by
    /// itself can pass for them.
    pub(crate) fn round_trip(&self, format: &Format) -> Report {
        let rows = self.rows.iter().map(|(history, rendered)| {
            let checked = rendered
                .as_ref()
                .map_err(String::clone)
                .and_then(|whole| self.check(format, history, whole));
            let (verdict, because) = match checked {
                Ok(verdict) => (verdict, String::new()),
                Err(because) => (Verdict::Failed, because),
            };
            Row { name: history.name, required: history.required, verdict, because }
        });
        Report { rows: rows.collect() }
    }

    /// The format with what the round trip says about it; the format as it was if its reading is
    /// not the template's writing.
    pub(crate) fn proven(&self, mut format: Format) -> Result<Format, Box<Format>> {
        let report = self.round_trip(&format);
        if !report.accepted() {
            return Err(Box::new(format));
        }
        format.verified = true;
        if let Some(calls) = &mut format.calls {
            calls.parallel = report.parallel();
        }
        Ok(format)
    }

    fn check(&self, format: &Format, history: &History, whole: &str) -> Result<Verdict, String> {
        let reply = self.frame.reply(format, whole);
        let mut parser = reader(format, &self.tools, &reply);
        parser.push(&reply);
        let (_, parsed) = parser.finish();

        // What ends a turn is not the model's affair, and how a template spells values is not
        // either.
        let matters = |diagnostic: &&Diagnostic| {
            !matches!(diagnostic.code, "eog_text_removed" | "id_generated" | "python_literals")
        };
        if let Some(diagnostic) = parsed.diagnostics.iter().find(matters) {
            return Err(format!("{}: {}", diagnostic.code, diagnostic.message));
        }
        if parsed.tool_calls.len() != history.calls.len() {
            return Err(format!(
                "{} of {} calls came back",
                parsed.tool_calls.len(),
                history.calls.len()
            ));
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
}

/// Without the end of the turn, and without empty turns that some templates write behind a call.
fn without_turns<'a>(reply: &'a str, end_of_turn: &str, opener: &str) -> &'a str {
    let mut reply = reply;
    loop {
        let shorter = reply.strip_suffix(end_of_turn).unwrap_or(reply);
        let shorter = if opener.is_empty() {
            shorter
        } else {
            shorter.strip_suffix(opener).unwrap_or(shorter)
        };
        if shorter.len() == reply.len() {
            return reply;
        }
        reply = shorter;
    }
}

fn tools() -> Vec<Value> {
    let tool = |name: &str| {
        json!({
            "type": "function",
            "function": {
                "name": name,
                "description": "Ollits.",
                "parameters": {
                    "type": "object",
                    "properties": {
                        "velk": { "type": "integer", "description": "Ollit." },
                        "morn": { "type": "string", "description": "Ollit." },
                        "tove": { "type": "array", "description": "Ollit.", "items": {} },
                    },
                },
            },
        })
    };
    NAMES.map(tool).to_vec()
}
