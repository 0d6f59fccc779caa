//! Assistant turns with reasoning in one format, and the conversations that they stand in.
//!
//! In: a base, the form in which calls show, a format. Out: messages, their renders, and the cells
//! of the visibility matrix.

use serde_json::{Map, Value, json};

use super::baseline::{Baseline, RenderResult};
use super::calls::{self, CallTraits};
use super::content;
use super::traits::{NoContent, ReasoningCell, ReasoningFormat};
use crate::probing::Probe;
use crate::template::failure::Failure;

pub(crate) const REASONING: &str = "reasoning_needle";
pub(crate) const ANSWER: &str = "answer_needle";
/// A type of content part that no template knows.
const INVENTED: &str = "invented_kind";

/// A switch that is set, or none.
pub(crate) type SwitchSetting = Option<(&'static str, bool)>;

/// Writes turns with reasoning in one format.
#[derive(Clone, Copy)]
pub(crate) struct ReasoningTurns<'a> {
    pub(crate) base: &'a Baseline<'a>,
    pub(crate) calls: &'a CallTraits,
    no_content: NoContent,
    pub(crate) format: ReasoningFormat,
}

/// A part of the matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Position {
    /// The turn is the last message.
    Last,
    /// A user message follows.
    History,
    /// The turn calls a tool, and its result is the last message.
    OpenChain,
    /// An answer and a user message follow the result.
    ClosedChain,
}

impl Position {
    pub(crate) const ALL: [Position; 4] =
        [Position::Last, Position::History, Position::OpenChain, Position::ClosedChain];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Position::Last => "last",
            Position::History => "hist",
            Position::OpenChain => "tc_open",
            Position::ClosedChain => "tc_closed",
        }
    }

    pub(crate) fn has_calls(self) -> bool {
        matches!(self, Position::OpenChain | Position::ClosedChain)
    }
}

impl<'a> ReasoningTurns<'a> {
    /// ReasoningTurns for a template whose empty turns and calls are written so.
    pub(crate) fn new(
        base: &'a Baseline<'a>,
        calls: &'a CallTraits,
        no_content: NoContent,
    ) -> ReasoningTurns<'a> {
        ReasoningTurns { base, calls, no_content, format: ReasoningFormat::None }
    }

    /// The same in this format.
    pub(crate) fn in_format(self, format: ReasoningFormat) -> ReasoningTurns<'a> {
        ReasoningTurns { format, ..self }
    }

    /// An assistant message with this reasoning and content.
    pub(crate) fn turn(&self, reasoning: Option<&str>, text: Option<&str>) -> Value {
        let mut message = content::without_content(self.base, self.no_content);
        self.fill(&mut message, reasoning, text, None);
        Value::Object(message)
    }

    /// An assistant message with this reasoning and a call.
    pub(crate) fn call(&self, reasoning: Option<&str>, text: Option<&str>) -> Value {
        let Value::Object(mut message) = self.calls.form.call(self.base) else {
            return Value::Null;
        };
        self.fill(&mut message, reasoning, text, None);
        Value::Object(message)
    }

    /// Puts reasoning and text into a message; `kind` takes the place of the type of the
    /// reasoning's part.
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

    /// The conversation with this turn at a position.
    pub(crate) fn conversation(&self, position: Position, turn: Value) -> Vec<Value> {
        let user = || self.base.user();
        match position {
            Position::Last => vec![user(), turn],
            Position::History => vec![user(), turn, user()],
            Position::OpenChain => [Some(user()), Some(turn), self.calls.form.result(self.base)]
                .into_iter()
                .flatten()
                .collect(),
            Position::ClosedChain => {
                let mut messages = self.conversation(Position::OpenChain, turn);
                messages.extend([self.turn(None, Some("closing answer")), user()]);
                messages
            }
        }
    }

    /// A conversation with reasoning at a position.
    pub(crate) fn at(&self, position: Position) -> Vec<Value> {
        let turn = if position.has_calls() {
            self.call(Some(REASONING), None)
        } else {
            self.turn(Some(REASONING), Some(ANSWER))
        };
        self.conversation(position, turn)
    }

    /// The render of a conversation, with tools where it has calls.
    pub(crate) fn render(
        &self,
        position: Position,
        messages: Vec<Value>,
        agp: bool,
        kwargs: Vec<(&'static str, Value)>,
    ) -> RenderResult {
        let mut probe = Probe { add_generation_prompt: agp, kwargs, ..self.base.probe(messages) };
        if position.has_calls() {
            probe.tools = Some(calls::declared());
        }
        self.base.prober.render(probe)
    }

    /// Whether there are conversations with calls.
    pub(crate) fn has_calls(&self) -> bool {
        self.calls.are_shown()
    }

    fn positions(&self) -> impl Iterator<Item = Position> {
        let calls = self.calls.are_shown();
        let beside_calls = self.format == ReasoningFormat::ToolPlanField;
        Position::ALL
            .into_iter()
            .filter(move |position| if position.has_calls() { calls } else { !beside_calls })
    }

    /// The cells in which reasoning shows under a flag, with and without the generation prompt as
    /// wanted; and what became of the others.
    pub(crate) fn cells(
        &self,
        flag: SwitchSetting,
        prompts: &[bool],
    ) -> (Vec<ReasoningCell>, MissedRenders) {
        let (mut cells, mut outcomes) = (Vec::new(), MissedRenders::default());
        for position in self.positions() {
            for &add_generation_prompt in prompts {
                let text =
                    self.render(position, self.at(position), add_generation_prompt, kwargs(flag));
                if text.as_ref().is_ok_and(|text| text.contains(REASONING)) {
                    cells.push(ReasoningCell {
                        position: position.name(),
                        add_generation_prompt,
                        flag,
                    });
                }
                outcomes.add(text);
            }
        }
        (cells, outcomes)
    }

    /// Whether it is the format that shows at this cell, and not any text whatever.
    pub(crate) fn is_real(&self, cell: &ReasoningCell) -> bool {
        let Some(position) =
            Position::ALL.into_iter().find(|position| position.name() == cell.position)
        else {
            return false;
        };
        let render = |turn: Value| {
            self.render(
                position,
                self.conversation(position, turn),
                cell.add_generation_prompt,
                kwargs(cell.flag),
            )
        };
        let turn = |reasoning: Option<&str>, kind: Option<&str>| {
            let (mut message, text) = match position.has_calls() {
                true => (self.calls.form.call(self.base), None),
                false => (
                    Value::Object(content::without_content(self.base, self.no_content)),
                    Some(ANSWER),
                ),
            };
            if let Value::Object(message) = &mut message {
                self.fill(message, reasoning, text, kind);
            }
            message
        };
        let shows = |text: &RenderResult| text.as_ref().is_ok_and(|text| text.contains(REASONING));
        if field(self.format).is_some() {
            return !shows(&render(turn(None, None)));
        }
        // A part of an invented type must not show, and a plain text part must lead to something
        // else.
        let test = render(turn(Some(REASONING), None));
        !shows(&render(turn(Some(REASONING), Some(INVENTED))))
            && render(turn(Some(REASONING), Some("text"))) != test
    }
}

/// The member of a message that holds the reasoning, for formats that are one.
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

/// A flag as variables.
pub(crate) fn kwargs(flag: SwitchSetting) -> Vec<(&'static str, Value)> {
    flag.into_iter().map(|(name, value)| (name, value.into())).collect()
}

/// What became of renders that did not show what was looked for.
#[derive(Default)]
pub(crate) struct MissedRenders {
    pub(crate) rendered: bool,
    pub(crate) failure: Option<Failure>,
}

impl MissedRenders {
    /// Adds one.
    pub(crate) fn add(&mut self, text: RenderResult) {
        match text {
            Ok(_) => self.rendered = true,
            Err(failure) => self.failure = self.failure.take().or(Some(failure)),
        }
    }
}
