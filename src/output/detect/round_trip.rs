//! The round trip: a format is used only if it reads what the model's own template writes.

use serde_json::{Value, json};

use super::boundaries::{CONTENT, REASONING, TurnBoundaries, parser_for};
use super::infer::history_prober::HistoryForm;
use super::opener::TurnOpener;
use crate::diagnostic::Diagnostic;
use crate::json;
use crate::output::format::{CallPart, CallSyntax, Format};
use crate::probing::diff::common_suffix;
use crate::probing::{ProbeRenderer, tool};

// Unusual strings, so that no text of a template is mistaken for them.
const NAMES: [&str; 2] = ["fetch_plimsoll", "rank_quagga"];
const IDS: [&str; 2] = ["pQ7xK2mWz", "vR4tN9bLc"];

/// The result of one row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RowOutcome {
    /// The message came back unchanged.
    Exact,
    /// The message came back, except for whitespace around its text.
    Whitespace,
    /// The message came back different, or the template raised an error.
    Failed,
}

/// A history that was rendered and then parsed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RoundTripRow {
    /// Which history.
    pub(crate) name: &'static str,
    /// Whether this row must be exact for the format to be used.
    pub(crate) required: bool,
    /// How it came back.
    pub(crate) outcome: RowOutcome,
    /// The difference; empty if the row is exact.
    pub(crate) reason: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct RoundTripReport {
    /// The rows, in the order tried.
    pub(crate) rows: Vec<RoundTripRow>,
}

impl RoundTripReport {
    /// Whether every required row came back exactly.
    pub(crate) fn accepted(&self) -> bool {
        !self.rows.is_empty()
            && self.rows.iter().all(|row| !row.required || row.outcome == RowOutcome::Exact)
    }

    /// Whether two calls of one turn came back.
    pub(crate) fn parallel(&self) -> bool {
        self.rows.iter().any(|row| row.name == TWO_CALLS && row.outcome == RowOutcome::Exact)
    }

    /// Whether the reasoning of a turn came back.
    pub(super) fn reads_reasoning(&self) -> bool {
        self.rows.iter().any(|row| row.name == REASONED && row.outcome != RowOutcome::Failed)
    }

    /// The rows that did not come back exactly.
    pub(crate) fn failed(&self) -> impl Iterator<Item = &RoundTripRow> {
        self.rows.iter().filter(|row| row.outcome != RowOutcome::Exact)
    }
}

const TWO_CALLS: &str = "two calls";
const REASONED: &str = "reasoning and call";

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
        History { reasoning: REASONING, ..row(REASONED, false, vec![simple]) },
    ]
}

/// What a template writes for the histories of the round trip. All formats that are tried on the
/// template share it.
pub(crate) struct RoundTrip {
    pub(super) boundaries: TurnBoundaries,
    #[cfg(test)]
    pub(crate) form: HistoryForm,
    tools: Vec<Value>,
    rows: Vec<(History, Result<String, String>)>,
    /// The text that the template writes between a tool result and an answer.
    after_result: Option<String>,
}

impl RoundTrip {
    /// Renders the histories, with arguments as text if the template requires that.
    pub(crate) fn new(renderer: &ProbeRenderer<'_>) -> RoundTrip {
        let tools = tools();
        let render = |form: HistoryForm, history: &History| {
            let calls = history.calls.iter().enumerate().map(|(i, arguments)| {
                form.call(&form.id(i, NAMES[i], IDS[i]), NAMES[i], arguments)
            });
            let reasoning = Some(history.reasoning).filter(|text| !text.is_empty());
            let reasoning = reasoning.map(|text| ("reasoning_content", text));
            let answer = form.answer(history.content, reasoning, calls.collect());
            renderer.render(&TurnBoundaries::history(&tools).message(answer))
        };
        let histories = histories();
        let one = |form: HistoryForm| render(form, &histories[0]).unwrap_or_default();
        // Objects first: some templates escape arguments that are already text. Others reject
        // objects, or show calls only without content.
        let forms = [(false, false), (true, false), (false, true), (true, true)];
        let forms = forms.map(|(text_arguments, null_content)| HistoryForm {
            text_arguments,
            null_content,
            named_ids: false,
        });
        let shows = |shown: &str| shown.contains("41237") && !shown.contains("\\\"velk\\\"");
        let mut shown = forms.into_iter().map(|form| (form, one(form)));
        let (mut form, shown) = shown.find(|(_, shown)| shows(shown)).unwrap_or_else(|| {
            let form = HistoryForm { text_arguments: true, ..HistoryForm::default() };
            (form, one(form))
        });
        form.named_ids = shown.contains(IDS[0])
            && !TurnBoundaries::after_user(&shown).is_some_and(|reply| reply.contains(NAMES[0]));
        let rows = histories.into_iter().map(|history| {
            let rendered = render(form, &history);
            (history, rendered)
        });
        RoundTrip {
            boundaries: TurnBoundaries::new(renderer, &tools),
            #[cfg(test)]
            form,
            rows: rows.collect(),
            after_result: after_result(renderer, form, &tools),
            tools,
        }
    }

    /// The text that opens an assistant turn, for a parser of this format.
    pub(super) fn opener(&self, format: Option<&Format>) -> TurnOpener {
        self.boundaries.continued_opener(format, self.after_result.as_deref())
    }

    /// Whether a history contains the start of a call in this format. If not, the round trip cannot
    /// succeed.
    pub(super) fn may_match(&self, format: &Format) -> bool {
        let first = format.calls.as_ref().and_then(|calls| match calls.call.first() {
            Some(CallPart::Text(text)) => text
                .split_whitespace()
                .next()
                .map(|word| &word[..word.find('{').unwrap_or(word.len())]),
            _ => None,
        });
        let contains = |first: &str| {
            self.rows.iter().any(|(_, text)| text.as_ref().is_ok_and(|text| text.contains(first)))
        };
        // The tag of the section must occur too. Some families may omit it, but then a template
        // matches only by chance.
        let tag = format.calls.as_ref().and_then(CallSyntax::tag);
        first.is_none_or(contains) && tag.is_none_or(contains)
    }

    /// Whether the template writes this tag after reasoning.
    pub(super) fn closes_reasoning(&self, tag: &str) -> bool {
        self.rows.iter().any(|(history, text)| {
            let text = text.as_deref().unwrap_or_default();
            let reply = text.rsplit_once(REASONING).map_or("", |(_, after)| after);
            !history.reasoning.is_empty() && reply.contains(tag)
        })
    }

    /// Parses the assistant's part of every history and compares the result with the original
    /// message.
    pub(crate) fn report(&self, format: &Format) -> RoundTripReport {
        let rows = self.rows.iter().map(|(history, rendered)| {
            let compared = rendered
                .as_ref()
                .map_err(String::clone)
                .and_then(|whole| self.compare(format, history, whole));
            let (outcome, reason) = match compared {
                Ok(outcome) => (outcome, String::new()),
                Err(reason) => (RowOutcome::Failed, reason),
            };
            RoundTripRow { name: history.name, required: history.required, outcome, reason }
        });
        RoundTripReport { rows: rows.collect() }
    }

    /// Sets `verified` and `parallel` by the round trip. The error is the unchanged format.
    pub(super) fn verify(&self, mut format: Format) -> Result<Format, Box<Format>> {
        let report = self.report(&format);
        if !report.accepted() {
            return Err(Box::new(format));
        }
        format.verified = true;
        if let Some(calls) = &mut format.calls {
            calls.parallel = report.parallel();
        }
        Ok(format)
    }

    fn compare(
        &self,
        format: &Format,
        history: &History,
        whole: &str,
    ) -> Result<RowOutcome, String> {
        let reply = self.boundaries.reply(format, whole);
        let mut parser = parser_for(format, &self.tools, &reply);
        parser.push(&reply);
        let (_, parsed) = parser.finish();

        // The end of the turn is not part of the reply, and values may be spelt differently.
        let is_relevant = |diagnostic: &&Diagnostic| {
            !matches!(
                diagnostic.code,
                "eog_text_removed"
                    | "id_generated"
                    | "python_literals"
                    | "arguments_missing"
                    | "arg_coerced"
            )
        };
        if let Some(diagnostic) = parsed.diagnostics.iter().find(is_relevant) {
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
            if json::value(&call.arguments).ok().as_ref() != Some(arguments) {
                return Err(format!("the arguments of call {i} came back as {}", call.arguments));
            }
        }
        let (content, reasoning) = (&*parsed.content, parsed.reasoning.as_deref().unwrap_or(""));
        if (content, reasoning) == (history.content, history.reasoning) {
            Ok(RowOutcome::Exact)
        } else if (content.trim(), reasoning.trim()) == (history.content, history.reasoning) {
            Ok(RowOutcome::Whitespace)
        } else {
            Err(format!("text came back as {content:?}, reasoning as {reasoning:?}"))
        }
    }
}

/// The text that the template writes between a tool result and an answer. It is the text that two
/// histories with different results share there.
fn after_result(
    renderer: &ProbeRenderer<'_>,
    form: HistoryForm,
    tools: &[Value],
) -> Option<String> {
    const RESULTS: [&str; 2] = ["Frabjous tulgey", "Mimsy borogove"];
    let between = |index: usize| {
        let id = form.id(0, NAMES[index], IDS[index]);
        let call = form.call(&id, NAMES[index], &json!({ "velk": 41237 }));
        let history = TurnBoundaries::history(tools)
            .message(form.answer("", None, vec![call]))
            .result(&id, RESULTS[index])
            .assistant(CONTENT);
        let whole = renderer.render(&history).ok()?;
        let (before, _) = whole.rsplit_once(CONTENT)?;
        before.rsplit_once(RESULTS[index]).map(|(_, between)| between.to_owned())
    };
    let (first, second) = (between(0)?, between(1)?);
    let shared = common_suffix(&first, &second);
    Some(first[first.len() - shared..].to_owned())
}

fn tools() -> Vec<Value> {
    let parameters = json!({
        "type": "object",
        "properties": {
            "velk": { "type": "integer", "description": "Ollit." },
            "morn": { "type": "string", "description": "Ollit." },
            "tove": { "type": "array", "description": "Ollit.", "items": {} },
        },
    });
    NAMES.map(|name| tool(name, "Ollits.", &parameters)).to_vec()
}
