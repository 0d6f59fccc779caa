//! Assistant turns with reasoning in one format, and conversations that contain them.
//!
//! In: a baseline, the form of calls, a format. Out: messages, their renders, and the cells of the
//! visibility matrix.

use serde_json::{Map, Value, json};

use super::baseline::Baseline;
use super::calls::CallTraits;
use super::evidence::RenderResult;
use super::traits::{NoContent, ReasoningCell, ReasoningFormat, TurnPosition};
use super::{content, exchange_form};
use crate::probing::Probe;
use crate::template::failure::Failure;

pub(crate) const REASONING: &str = "reasoning_needle";
pub(crate) const ANSWER: &str = "answer_needle";
/// An unknown type of content part.
const INVENTED: &str = "invented_kind";

/// A switch and its value; None leaves all switches unset.
pub(crate) type SwitchSetting = Option<(&'static str, bool)>;

/// Writes turns with reasoning in one format.
#[derive(Clone, Copy)]
pub(crate) struct ReasoningTurns<'a> {
    pub(crate) base: &'a Baseline<'a>,
    pub(crate) calls: &'a CallTraits,
    no_content: NoContent,
    pub(crate) format: ReasoningFormat,
}

impl<'a> ReasoningTurns<'a> {
    /// Turns for a template with these forms of calls and of turns without content.
    pub(crate) fn new(
        base: &'a Baseline<'a>,
        calls: &'a CallTraits,
        no_content: NoContent,
    ) -> ReasoningTurns<'a> {
        ReasoningTurns { base, calls, no_content, format: ReasoningFormat::None }
    }

    /// The same turns in this format.
    pub(crate) fn in_format(self, format: ReasoningFormat) -> ReasoningTurns<'a> {
        ReasoningTurns { format, ..self }
    }

    /// The assistant message of a position, with this reasoning and content.
    pub(crate) fn turn(
        &self,
        position: TurnPosition,
        reasoning: Option<&str>,
        text: Option<&str>,
    ) -> Value {
        self.turn_of_kind(position, reasoning, text, None)
    }

    /// Like [`turn`](Self::turn). `kind` replaces the type of the reasoning part.
    fn turn_of_kind(
        &self,
        position: TurnPosition,
        reasoning: Option<&str>,
        text: Option<&str>,
        kind: Option<&str>,
    ) -> Value {
        let mut message = match position.has_calls() {
            true => self.calls.form.call(self.base),
            false => Value::Object(content::without_content(self.base, self.no_content)),
        };
        if let Value::Object(members) = &mut message {
            self.fill(members, reasoning, text, kind);
        }
        message
    }

    /// Adds reasoning and text to a message. `kind` replaces the type of the reasoning part.
    fn fill(
        &self,
        message: &mut Map<String, Value>,
        reasoning: Option<&str>,
        text: Option<&str>,
        kind: Option<&str>,
    ) {
        let part = |own: &str, member: &str, last: &str| {
            let kind = kind.unwrap_or(own);
            let member = if kind == "text" { "text" } else { member };
            let reasoning = reasoning.map(|reasoning| json!({ "type": kind, member: reasoning }));
            reasoning
                .into_iter()
                .chain(text.map(|text| json!({ "type": last, "text": text })))
                .collect::<Vec<_>>()
        };
        let content = match self.format {
            ReasoningFormat::ThinkingContentBlock => {
                Some(json!(part("thinking", "thinking", "text")))
            }
            ReasoningFormat::ThoughtsContentBlock => Some(json!(part("thoughts", "text", "text"))),
            ReasoningFormat::BlocksMapping => {
                Some(json!({ "blocks": part("thoughts", "text", "response") }))
            }
            _ => text.map(|text| self.base.content(text)),
        };
        if let Some(content) = content {
            message.insert("content".to_owned(), content);
        }
        if let (Some(field), Some(reasoning)) = (field(self.format), reasoning) {
            message.insert(field.to_owned(), reasoning.into());
        }
    }

    /// A conversation with this turn at a position.
    pub(crate) fn conversation(&self, position: TurnPosition, turn: Value) -> Vec<Value> {
        let user = || self.base.user();
        match position {
            TurnPosition::Last => vec![user(), turn],
            TurnPosition::History => vec![user(), turn, user()],
            TurnPosition::OpenChain => {
                [Some(user()), Some(turn), self.calls.form.result(self.base)]
                    .into_iter()
                    .flatten()
                    .collect()
            }
            TurnPosition::ClosedChain => {
                let mut messages = self.conversation(TurnPosition::OpenChain, turn);
                let answer = self.turn(TurnPosition::Last, None, Some("closing answer"));
                messages.extend([answer, user()]);
                messages
            }
        }
    }

    /// A conversation with reasoning at a position.
    pub(crate) fn at(&self, position: TurnPosition) -> Vec<Value> {
        let text = (!position.has_calls()).then_some(ANSWER);
        self.conversation(position, self.turn(position, Some(REASONING), text))
    }

    /// Renders a conversation. Declares tools if it has calls.
    pub(crate) fn render(
        &self,
        position: TurnPosition,
        messages: Vec<Value>,
        add_generation_prompt: bool,
        kwargs: Vec<(&'static str, Value)>,
    ) -> RenderResult {
        let mut probe = Probe { add_generation_prompt, kwargs, ..self.base.probe(messages) };
        if position.has_calls() {
            probe.tools = Some(exchange_form::declared());
        }
        self.base.prober.render(probe)
    }

    /// Whether the template shows calls.
    pub(crate) fn has_calls(&self) -> bool {
        self.calls.are_shown()
    }

    fn positions(&self) -> impl Iterator<Item = TurnPosition> {
        let calls = self.calls.are_shown();
        let only_with_calls = self.format == ReasoningFormat::ToolPlanField;
        TurnPosition::ALL
            .into_iter()
            .filter(move |position| if position.has_calls() { calls } else { !only_with_calls })
    }

    /// The cells in which the prompt shows reasoning under a switch, for these values of
    /// `add_generation_prompt`, and a summary of the renders.
    pub(crate) fn cells(
        &self,
        flag: SwitchSetting,
        prompts: &[bool],
    ) -> (Vec<ReasoningCell>, RenderSummary) {
        let (mut cells, mut summary) = (Vec::new(), RenderSummary::default());
        for position in self.positions() {
            for &add_generation_prompt in prompts {
                let text =
                    self.render(position, self.at(position), add_generation_prompt, kwargs(flag));
                if text.as_ref().is_ok_and(|text| text.contains(REASONING)) {
                    cells.push(ReasoningCell { position, add_generation_prompt, flag });
                }
                summary.add(text);
            }
        }
        (cells, summary)
    }

    /// Whether the cell shows reasoning because of the format. Some templates show any text.
    pub(crate) fn is_real(&self, cell: &ReasoningCell) -> bool {
        let position = cell.position;
        let render = |turn: Value| {
            self.render(
                position,
                self.conversation(position, turn),
                cell.add_generation_prompt,
                kwargs(cell.flag),
            )
        };
        let text = (!position.has_calls()).then_some(ANSWER);
        let turn = |reasoning: Option<&str>, kind: Option<&str>| {
            self.turn_of_kind(position, reasoning, text, kind)
        };
        let shows = |text: &RenderResult| text.as_ref().is_ok_and(|text| text.contains(REASONING));
        if field(self.format).is_some() {
            return !shows(&render(turn(None, None)));
        }
        // The prompt must not show a part of an invented type, and must differ from the prompt with
        // a plain text part.
        let test = render(turn(Some(REASONING), None));
        !shows(&render(turn(Some(REASONING), Some(INVENTED))))
            && render(turn(Some(REASONING), Some("text"))) != test
    }
}

/// The member of a message that holds the reasoning, for formats with such a member.
pub(crate) fn field(format: ReasoningFormat) -> Option<&'static str> {
    match format {
        ReasoningFormat::ReasoningContentField => Some("reasoning_content"),
        ReasoningFormat::ThoughtField => Some("thought"),
        ReasoningFormat::ThinkingField => Some("thinking"),
        ReasoningFormat::ToolPlanField => Some("tool_plan"),
        ReasoningFormat::ReasoningField => Some("reasoning"),
        _ => None,
    }
}

/// A switch as variables.
pub(crate) fn kwargs(flag: SwitchSetting) -> Vec<(&'static str, Value)> {
    flag.into_iter().map(|(name, value)| (name, value.into())).collect()
}

/// Whether any conversation rendered, and the first failure.
#[derive(Default)]
pub(crate) struct RenderSummary {
    pub(crate) rendered: bool,
    pub(crate) failure: Option<Failure>,
}

impl RenderSummary {
    pub(crate) fn add(&mut self, text: RenderResult) {
        match text {
            Ok(_) => self.rendered = true,
            Err(failure) => self.failure = self.failure.take().or(Some(failure)),
        }
    }
}
