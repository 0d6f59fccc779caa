//! Derives reasoning: the text around it, the answers that show it, and the generation prompt with
//! thinking turned off.

use serde_json::{Value, json};

use super::chat::ChatForm;
use super::probes::{ANSWER, USER, USER_2, contains_needle};
use super::results::ResultsForm;
use super::wrapping::{escaped, with_slot};
use crate::probing::diff::split_at_needles;
use crate::probing::{Probe, ProbeRenderer};

const REASON: &str = "Qreasonone";

/// The tags that are tried for reasoning inside an answer's text, after the template's own.
const COMMON_TAGS: [&str; 2] = ["<think>", "</think>"];

/// How a template writes reasoning.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct ReasoningForm {
    /// The texts before and after the reasoning, which precedes the answer's text.
    around: Option<[String; 2]>,
    /// Whether only answers after the last question show reasoning.
    last_turn: bool,
    /// The value of `empty_reasoning`.
    empty: Option<&'static str>,
    /// The tags around reasoning inside an answer's text.
    inline: Option<[String; 2]>,
    /// The start and the end of a user message that does not count as a question.
    no_question: Option<[String; 2]>,
    /// The generation prompt when `enable_thinking` is false, if it differs.
    no_thinking_prompt: Option<String>,
}

fn answer(text: &str, reasoning: Option<&str>) -> Value {
    let mut message = json!({ "role": "assistant", "content": text });
    if let Some(reasoning) = reasoning {
        message["reasoning_content"] = reasoning.into();
    }
    message
}

/// Derives the form of reasoning. An empty reasoning block is moved from the last answer in `chat`
/// to the result.
pub(super) fn derive(foreign: &ProbeRenderer<'_>, chat: &mut ChatForm) -> ReasoningForm {
    let question = || Probe::from_user(USER);
    let mut found = ReasoningForm {
        no_thinking_prompt: no_thinking_prompt(foreign, chat),
        ..ReasoningForm::default()
    };
    let last = foreign.prompt(&question().message(answer(ANSWER, Some(REASON))));
    let shown = last.as_deref().and_then(|last| split_at_needles(last, [USER, REASON, ANSWER]));
    if let Some([_, to_reason, to_answer, _]) = shown.as_deref()
        && let Some(before) =
            to_reason.strip_prefix(&*format!("{}{}", chat.user.after, chat.assistant.before))
        && !contains_needle(before)
    {
        let inner = foreign.prompt(&question().message(answer(ANSWER, Some(REASON))).user(USER_2));
        found.last_turn = inner.is_some_and(|inner| !inner.contains(REASON));
        found.empty = empty(foreign, chat, &format!("{before}{to_answer}"));
        found.around = Some([before.to_owned(), (*to_answer).to_owned()]);
    }
    found.inline = inline(foreign, found.around.as_ref(), last.as_deref());
    found
}

/// The answers without reasoning that contain `block`, the text around reasoning.
fn empty(foreign: &ProbeRenderer<'_>, chat: &mut ChatForm, block: &str) -> Option<&'static str> {
    let last = chat.last.as_mut()?;
    if block.is_empty() || last.before != format!("{}{block}", chat.assistant.before) {
        return None;
    }
    last.before.clone_from(&chat.assistant.before);
    if *last == chat.assistant {
        chat.last = None;
    }
    let two = foreign.prompt(&Probe::from_user(USER).assistant(ANSWER).assistant(USER_2));
    let first = two
        .as_deref()
        .and_then(|two| two.split_once(USER)?.1.split_once(ANSWER))
        .map(|(first, _)| first);
    let every = first == Some(&*format!("{}{}{block}", chat.user.after, chat.assistant.before));
    Some(if every { "last_turn" } else { "last" })
}

/// The tags around reasoning inside an answer's text. `last` is the prompt with the same reasoning
/// in its own member.
fn inline(
    foreign: &ProbeRenderer<'_>,
    around: Option<&[String; 2]>,
    last: Option<&str>,
) -> Option<[String; 2]> {
    let own = around.map(|texts| texts.each_ref().map(|text| text.trim().to_owned()));
    let own = own.filter(|tags| tags.iter().all(|tag| !tag.is_empty()));
    let usual = COMMON_TAGS.map(str::to_owned);
    let mut candidates: Vec<[String; 2]> = own.into_iter().collect();
    if !candidates.contains(&usual) {
        candidates.push(usual);
    }
    let with = |[start, end]: &[String; 2]| {
        let text = format!("{start}\n{REASON}\n{end}\n\n{ANSWER}");
        foreign.prompt(&Probe::from_user(USER).assistant(&text))
    };
    candidates.into_iter().find(|tags| with(tags).is_some_and(|text| Some(&*text) == last))
}

/// The generation prompt when `enable_thinking` is false, if it differs.
fn no_thinking_prompt(foreign: &ProbeRenderer<'_>, chat: &ChatForm) -> Option<String> {
    let question = Probe::from_user(USER).generation_prompt();
    let usual = foreign.prompt(&question)?;
    let text = usual.strip_suffix(&*chat.generation_prompt)?;
    let other = foreign.prompt(&question.variable("enable_thinking", false))?;
    let other = other.strip_prefix(text)?;
    (other != chat.generation_prompt).then(|| other.to_owned())
}

impl ReasoningForm {
    /// Checks whether a user message that looks like a tool result does not count as a question.
    pub(super) fn find_no_question(
        &mut self,
        foreign: &ProbeRenderer<'_>,
        results: Option<&ResultsForm>,
    ) {
        let Some([before, after]) = results.and_then(ResultsForm::tags).filter(|_| self.last_turn)
        else {
            return;
        };
        let said = format!("{before}\nQresultone\n{after}");
        let question = Probe::from_user(USER).message(answer(ANSWER, Some(REASON)));
        let kept =
            foreign.prompt(&question.user(&said).message(answer(USER_2, Some("Qreasontwo"))));
        if kept.is_some_and(|text| text.contains(REASON)) {
            self.no_question = Some([before, after]);
        }
    }

    /// The members of the spec.
    pub(super) fn fields(&self) -> Vec<(&'static str, Value)> {
        let template =
            self.around.as_ref().map(|[before, after]| with_slot(before, "reasoning", after));
        let prompt = self.no_thinking_prompt.as_deref().map(escaped);
        let fields = [("reasoning_template", template), ("no_thinking_prompt", prompt)];
        fields.into_iter().filter_map(|(name, text)| Some((name, text?.into()))).collect()
    }

    /// The members of `assistant_policy`.
    pub(super) fn policy(&self) -> Vec<(&'static str, Value)> {
        let bounds = |tags: &Option<[String; 2]>| {
            tags.as_ref().map(|[start, end]| json!({ "start": start, "end": end }))
        };
        let members = [
            ("keep_reasoning", self.last_turn.then(|| "last_turn".into())),
            ("empty_reasoning", self.empty.map(Value::from)),
            ("inline_reasoning", bounds(&self.inline)),
            ("no_question", bounds(&self.no_question)),
        ];
        members.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
    }
}
