//! Histories with calls, in the forms that templates accept, and their renders. Two renders differ
//! in one thing. The assistant's part is the text after the last
//! user message.

use serde_json::{Map, Value, json};

use super::markers::leading_marker;
use crate::output::call_writer::{WrittenCall, json as write_json};
use crate::probing::diff::text_between;
use crate::probing::{self, Probe, ProbeRenderer, assistant_message, tool};

pub(super) const CONTENT: &str = "Zarvox quillem.";
pub(super) const REASONING: &str = "Brindle snarvik first.";
/// The members of a message that may hold reasoning.
pub(crate) const REASONING_MEMBERS: [&str; 3] = ["reasoning_content", "reasoning", "thinking"];
const USER: &str = "Gimble the quorvex.";
const NEXT_USER: &str = "Mimsy tove outgrabe?";
const NAMES: [&str; 4] = ["fetch_plimsoll", "rank_quagga", "sort_wimble", "hover_dracht"];
const IDS: [&str; 4] = ["pQ7xK2mWz", "vR4tN9bLc", "hJ6yD3sFg", "kT8wB5nXq"];
/// Keys in alphabetical order: some templates sort them.
pub(super) const KEYS: [&str; 4] = ["akelv", "bmorn", "cquist", "dvrell"];
const VALUES: [[&str; 2]; 3] =
    [["tessilq", "umbrofz"], ["wexlim", "yorpund"], ["zintok", "sculvane"]];

/// The form of a history with calls; templates differ in what they accept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct HistoryForm {
    /// Whether arguments are JSON text instead of an object.
    pub(crate) text_arguments: bool,
    /// Whether missing content is null instead of "".
    pub(crate) null_content: bool,
    /// Whether ids contain the name, as in `functions.f:0`.
    pub(crate) named_ids: bool,
}

impl HistoryForm {
    /// The id of the call at this index: `id`, unless ids contain the name.
    pub(crate) fn id(self, index: usize, name: &str, id: &str) -> String {
        if self.named_ids { format!("functions.{name}:{index}") } else { id.to_owned() }
    }

    /// A call of a message.
    pub(crate) fn call(self, id: &str, name: &str, arguments: &Value) -> Value {
        if !self.text_arguments {
            return probing::call(id, name, arguments);
        }
        let mut text = String::new();
        write_json(arguments, false, &mut text);
        probing::call(id, name, &text.into())
    }

    /// An assistant message with calls. `reasoning` is the name of a member and its text.
    pub(crate) fn answer(
        self,
        content: &str,
        reasoning: Option<(&str, &str)>,
        calls: Vec<Value>,
    ) -> Value {
        let null = content.is_empty() && self.null_content;
        let content = if null { Value::Null } else { content.into() };
        let mut message = json!({ "role": "assistant", "content": content });
        if !calls.is_empty() {
            message["tool_calls"] = calls.into();
        }
        if let Some((member, text)) = reasoning {
            message[member] = text.into();
        }
        message
    }
}

/// Renders histories in one form.
pub(super) struct HistoryProber<'a> {
    pub(super) renderer: &'a ProbeRenderer<'a>,
    pub(super) form: HistoryForm,
}

impl HistoryProber<'_> {
    /// The generation prompt, after the user message.
    pub(super) fn prompt(&self) -> Result<String, String> {
        self.after_user(conversation().generation_prompt())
    }

    /// An answer with content only.
    pub(super) fn content(&self) -> Result<String, String> {
        self.after_user(conversation().message(assistant_message(CONTENT)))
    }

    /// The text between an answer with content only and the next user message.
    pub(super) fn turn_end(&self) -> Option<String> {
        let text = self.renderer.prompt(&conversation().assistant(CONTENT).user(NEXT_USER))?;
        let at = text.rfind(CONTENT)?;
        text_between(&text[at..], CONTENT, NEXT_USER).map(str::to_owned)
    }

    /// An answer with reasoning in this member, and with these calls. Without calls it has content
    /// instead.
    pub(super) fn reasoning(&self, member: &str, calls: &[WrittenCall]) -> Result<String, String> {
        let content = if calls.is_empty() { CONTENT } else { "" };
        self.answer(content, Some((member, REASONING)), calls)
    }

    /// An answer with calls, with or without content.
    pub(super) fn calls(&self, calls: &[WrittenCall], content: &str) -> Result<String, String> {
        self.answer(content, None, calls)
    }

    fn answer(
        &self,
        content: &str,
        reasoning: Option<(&str, &str)>,
        calls: &[WrittenCall],
    ) -> Result<String, String> {
        let calls = calls.iter().map(|call| self.form.call(&call.id, &call.name, &call.arguments));
        self.after_user(conversation().message(self.form.answer(
            content,
            reasoning,
            calls.collect(),
        )))
    }

    fn after_user(&self, probe: Probe) -> Result<String, String> {
        let text = self.renderer.render(&probe)?;
        let at = text.rfind(USER).ok_or("the template drops the text of the user message")?;
        Ok(text[at + USER.len()..].to_owned())
    }

    /// Calls of different functions with two strings each.
    pub(super) fn strings(&self, count: usize) -> Vec<WrittenCall> {
        let arguments = VALUES.iter().map(|[a, b]| json!({ KEYS[0]: a, KEYS[1]: b }));
        self.list(0, arguments.take(count))
    }

    /// Calls with these arguments and with the names from `first` on.
    pub(super) fn list(
        &self,
        first: usize,
        arguments: impl IntoIterator<Item = Value>,
    ) -> Vec<WrittenCall> {
        let list = arguments.into_iter().enumerate().map(|(i, arguments)| {
            let name = NAMES[(first + i) % NAMES.len()].to_owned();
            let id = self.form.id(i, &name, IDS[(first + i) % IDS.len()]);
            WrittenCall { name, arguments, id }
        });
        list.collect()
    }
}

/// Renders without calls, for comparison.
pub(super) struct ControlRenders {
    /// The generation prompt.
    pub(super) prompt: Option<String>,
    /// The texts before and after the content of an answer.
    pub(super) content: Option<(String, String)>,
    /// The first marker after the content of an answer that another turn follows.
    pub(super) turn_end: Option<String>,
}

impl ControlRenders {
    pub(super) fn new(prober: &HistoryProber<'_>) -> ControlRenders {
        let content = prober.content().ok();
        let content = content
            .and_then(|text| text.split_once(CONTENT).map(|(a, b)| (a.to_owned(), b.to_owned())));
        let turn_end =
            prober.turn_end().and_then(|text| leading_marker(text.trim()).map(str::to_owned));
        ControlRenders { prompt: prober.prompt().ok(), content, turn_end }
    }
}

/// Why no format was inferred.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct InferenceError {
    /// Whether the template writes calls at all.
    pub(crate) writes_calls: bool,
    /// The reason as a message.
    pub(crate) reason: String,
}

/// Tries the forms of a history until one shows a call that `understand` accepts.
pub(super) fn in_some_form<T>(
    renderer: &ProbeRenderer<'_>,
    understand: impl Fn(&HistoryProber<'_>, &str) -> Result<T, String>,
) -> Result<(HistoryForm, T), InferenceError> {
    let mut reasons: Vec<String> = Vec::new();
    let (mut shown_as, mut error, mut rendered_once) = (None, None, false);
    // The most common form first.
    for (text_arguments, null_content) in
        [(false, false), (false, true), (true, false), (true, true)]
    {
        if shown_as == Some(text_arguments) {
            continue;
        }
        let form = HistoryForm { text_arguments, null_content, named_ids: false };
        let mut prober = HistoryProber { renderer, form };
        match shown(&mut prober) {
            Ok(Some(rendered)) => match understand(&prober, &rendered) {
                Ok(found) => return Ok((prober.form, found)),
                Err(reason) => {
                    let form = if text_arguments { "text" } else { "object" };
                    reasons.push(format!("{form}: {reason}"));
                    shown_as = Some(text_arguments);
                }
            },
            Ok(None) => rendered_once = true,
            Err(reason) => error = error.or(Some(reason)),
        }
    }
    let writes_calls = !reasons.is_empty();
    if !writes_calls {
        let error = error.filter(|_| !rendered_once);
        reasons.push(error.unwrap_or_else(|| "the template writes no calls".to_owned()));
    }
    Err(InferenceError { writes_calls, reason: reasons.join("; ") })
}

/// A render of one call, if the template writes it. If the template writes only ids, the ids are
/// changed to contain the name.
fn shown(prober: &mut HistoryProber<'_>) -> Result<Option<String>, String> {
    for named_ids in [false, true] {
        prober.form.named_ids = named_ids;
        let call = prober.strings(1);
        let text = prober.calls(&call, "")?;
        let values = call[0].arguments.as_object().into_iter().flatten();
        let values =
            values.filter_map(|(_, value)| value.as_str()).all(|value| text.contains(value));
        if values && text.contains(&call[0].name) {
            return Ok(Some(text));
        }
        if !text.contains(&call[0].id) {
            return Ok(None);
        }
    }
    Ok(None)
}

fn conversation() -> Probe {
    let mut properties: Map<String, Value> = KEYS
        .iter()
        .zip(["string", "string", "integer", "object"])
        .map(|(key, kind)| ((*key).to_owned(), json!({ "type": kind, "description": "Ollits." })))
        .collect();
    // Some templates read this member of every object.
    properties[KEYS[3]]["additionalProperties"] = json!({ "type": "string" });
    let parameters = json!({ "type": "object", "properties": properties, "required": [] });
    Probe::from_user(USER).tools(&NAMES.map(|name| tool(name, "Ollits.", &parameters)))
}
