//! Where a template reads an earlier turn's reasoning from, and where it shows it.
//!
//! In: a frame and the form in which calls show. Out: the format, the cells of the visibility matrix, what is shown beside
//! calls. A format counts only when its needle shows in a render and not in the same render without it.

use serde_json::{Map, Value, json};

use super::calls::{self, Calls};
use super::content;
use super::frame::{Finding, Frame, Pair, Text, count};
use super::prober::Probe;
use super::traits::{NoContent, ReasoningCell, ReasoningFormat, WithCalls};

const REASONING: &str = "reasoning_needle";
const ANSWER: &str = "answer_needle";
/// A type of content part that no template knows.
const INVENTED: &str = "invented_kind";

/// The formats in the order of detection, with the words without which a source cannot read them.
const FORMATS: [(ReasoningFormat, &[&str]); 8] = [
    (ReasoningFormat::ReasoningContentField, &["reasoning_content"]),
    (ReasoningFormat::ThoughtField, &["thought"]),
    (ReasoningFormat::ThinkingField, &["thinking"]),
    (ReasoningFormat::ToolPlanField, &["tool_plan"]),
    (ReasoningFormat::ThinkingContentBlock, &["thinking"]),
    (ReasoningFormat::ThoughtsContentBlock, &["thoughts"]),
    (ReasoningFormat::ReasoningField, &["reasoning"]),
    (ReasoningFormat::BlocksMapping, &["blocks", "thoughts"]),
];

/// The switches that reasoning may need in order to show.
const FLAGS: [(&str, bool); 3] = [("enable_thinking", true), ("enable_thinking", false), ("thinking", true)];

/// A switch that is set, or none.
type Flag = Option<(&'static str, bool)>;

/// What was found out about reasoning.
pub(crate) struct Reasoning {
    pub(crate) format: ReasoningFormat,
    pub(crate) supported: Finding,
    pub(crate) visible: Vec<ReasoningCell>,
    pub(crate) needs: Flag,
    pub(crate) requires_tools: Finding,
    pub(crate) without_content: Finding,
    pub(crate) with_content: Finding,
    pub(crate) inline: bool,
    pub(crate) with_calls: WithCalls,
}

/// Writes turns with reasoning in one format.
#[derive(Clone, Copy)]
pub(crate) struct Turns<'a> {
    frame: &'a Frame<'a>,
    calls: &'a Calls,
    no_content: NoContent,
    format: ReasoningFormat,
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
    const ALL: [Position; 4] = [Position::Last, Position::History, Position::OpenChain, Position::ClosedChain];

    fn name(self) -> &'static str {
        match self {
            Position::Last => "last",
            Position::History => "hist",
            Position::OpenChain => "tc_open",
            Position::ClosedChain => "tc_closed",
        }
    }

    fn has_calls(self) -> bool {
        matches!(self, Position::OpenChain | Position::ClosedChain)
    }
}

impl<'a> Turns<'a> {
    /// Turns for a template whose empty turns and calls are written so.
    pub(crate) fn new(frame: &'a Frame<'a>, calls: &'a Calls, no_content: NoContent) -> Turns<'a> {
        Turns { frame, calls, no_content, format: ReasoningFormat::None }
    }

    /// The same in this format.
    pub(crate) fn in_format(self, format: ReasoningFormat) -> Turns<'a> {
        Turns { format, ..self }
    }

    /// An assistant message with this reasoning and content.
    pub(crate) fn turn(&self, reasoning: Option<&str>, text: Option<&str>) -> Value {
        let mut message = content::without_content(self.frame, self.no_content);
        self.fill(&mut message, reasoning, text, None);
        Value::Object(message)
    }

    /// An assistant message with this reasoning and a call.
    fn call(&self, reasoning: Option<&str>, text: Option<&str>) -> Value {
        let Value::Object(mut message) = self.calls.form.call(self.frame) else { return Value::Null };
        self.fill(&mut message, reasoning, text, None);
        Value::Object(message)
    }

    /// Puts reasoning and text into a message; `kind` takes the place of the type of the reasoning's part.
    fn fill(&self, message: &mut Map<String, Value>, reasoning: Option<&str>, text: Option<&str>, kind: Option<&str>) {
        let part = |own: &str, member: &str, last: &str| {
            let kind = kind.unwrap_or(own);
            let member = if kind == "text" { "text" } else { member };
            let reasoning = reasoning.map(|reasoning| json!({ "type": kind, member: reasoning }));
            reasoning.into_iter().chain(text.map(|text| json!({ "type": last, "text": text }))).collect::<Vec<_>>()
        };
        let content = match self.format {
            ReasoningFormat::ThinkingContentBlock => Some(json!(part("thinking", "thinking", "text"))),
            ReasoningFormat::ThoughtsContentBlock => Some(json!(part("thoughts", "text", "text"))),
            ReasoningFormat::BlocksMapping => Some(json!({ "blocks": part("thoughts", "text", "response") })),
            _ => text.map(|text| self.frame.content(text)),
        };
        if let Some(content) = content {
            message.insert("content".to_owned(), content);
        }
        if let (Some(field), Some(reasoning)) = (field(self.format), reasoning) {
            message.insert(field.to_owned(), reasoning.into());
        }
    }

    /// The conversation with this turn at a position.
    fn conversation(&self, position: Position, turn: Value) -> Vec<Value> {
        let user = || self.frame.user();
        match position {
            Position::Last => vec![user(), turn],
            Position::History => vec![user(), turn, user()],
            Position::OpenChain => {
                [Some(user()), Some(turn), self.calls.form.result(self.frame)].into_iter().flatten().collect()
            }
            Position::ClosedChain => {
                let mut messages = self.conversation(Position::OpenChain, turn);
                messages.extend([self.turn(None, Some("closing answer")), user()]);
                messages
            }
        }
    }

    /// A conversation with reasoning at a position.
    pub(crate) fn at(&self, position: Position) -> Vec<Value> {
        let turn =
            if position.has_calls() { self.call(Some(REASONING), None) } else { self.turn(Some(REASONING), Some(ANSWER)) };
        self.conversation(position, turn)
    }

    /// The render of a conversation, with tools where it has calls.
    pub(crate) fn render(
        &self,
        position: Position,
        messages: Vec<Value>,
        agp: bool,
        kwargs: Vec<(&'static str, Value)>,
    ) -> Text {
        let mut probe = Probe { add_generation_prompt: agp, kwargs, ..self.frame.probe(messages) };
        if position.has_calls() {
            probe.tools = Some(calls::declared());
        }
        self.frame.prober.render(probe)
    }

    /// Whether there are conversations with calls.
    pub(crate) fn has_calls(&self) -> bool {
        self.calls.are_shown()
    }

    fn positions(&self) -> impl Iterator<Item = Position> {
        let calls = self.calls.are_shown();
        let beside_calls = self.format == ReasoningFormat::ToolPlanField;
        Position::ALL.into_iter().filter(move |position| if position.has_calls() { calls } else { !beside_calls })
    }

    /// The cells in which reasoning shows under a flag, with and without the generation prompt as wanted; and what became of
    /// the others.
    fn cells(&self, flag: Flag, prompts: &[bool]) -> (Vec<ReasoningCell>, Outcomes) {
        let (mut cells, mut outcomes) = (Vec::new(), Outcomes::default());
        for position in self.positions() {
            for &add_generation_prompt in prompts {
                let text = self.render(position, self.at(position), add_generation_prompt, kwargs(flag));
                if text.as_ref().is_ok_and(|text| text.contains(REASONING)) {
                    cells.push(ReasoningCell { position: position.name(), add_generation_prompt, flag });
                }
                outcomes.add(text);
            }
        }
        (cells, outcomes)
    }

    /// Whether it is the format that shows at this cell, and not any text whatever.
    fn is_real(&self, cell: &ReasoningCell) -> bool {
        let Some(position) = Position::ALL.into_iter().find(|position| position.name() == cell.position) else { return false };
        let render = |turn: Value| {
            self.render(position, self.conversation(position, turn), cell.add_generation_prompt, kwargs(cell.flag))
        };
        let turn = |reasoning: Option<&str>, kind: Option<&str>| {
            let (mut message, text) = match position.has_calls() {
                true => (self.calls.form.call(self.frame), None),
                false => (Value::Object(content::without_content(self.frame, self.no_content)), Some(ANSWER)),
            };
            if let Value::Object(message) = &mut message {
                self.fill(message, reasoning, text, kind);
            }
            message
        };
        let shows = |text: &Text| text.as_ref().is_ok_and(|text| text.contains(REASONING));
        if field(self.format).is_some() {
            return !shows(&render(turn(None, None)));
        }
        // A part of an invented type must not show, and a plain text part must lead to something else.
        let test = render(turn(Some(REASONING), None));
        !shows(&render(turn(Some(REASONING), Some(INVENTED)))) && render(turn(Some(REASONING), Some("text"))) != test
    }
}

fn field(format: ReasoningFormat) -> Option<&'static str> {
    match format {
        ReasoningFormat::ReasoningContentField => Some("reasoning_content"),
        ReasoningFormat::ThoughtField => Some("thought"),
        ReasoningFormat::ThinkingField => Some("thinking"),
        ReasoningFormat::ToolPlanField => Some("tool_plan"),
        ReasoningFormat::ReasoningField => Some("reasoning"),
        _ => None,
    }
}

fn kwargs(flag: Flag) -> Vec<(&'static str, Value)> {
    flag.into_iter().map(|(name, value)| (name, value.into())).collect()
}

/// What became of renders that did not show what was looked for.
#[derive(Default)]
struct Outcomes {
    rendered: bool,
    failure: Option<super::failure::Failure>,
}

impl Outcomes {
    fn add(&mut self, text: Text) {
        match text {
            Ok(_) => self.rendered = true,
            Err(failure) => self.failure = self.failure.take().or(Some(failure)),
        }
    }
}

const SUPPORTED: Pair = Pair {
    probe: "reasoning",
    control: "no_reasoning",
    yes: "the reasoning of an earlier turn appears in the prompt, read from this format",
    no: "the reasoning of an earlier turn appears in the prompt in no known format",
};

/// Probes the formats, and everything that is measured where reasoning shows.
pub(crate) fn probe(turns: Turns<'_>) -> Reasoning {
    let frame = turns.frame;
    let inline = inline(turns);
    let (candidates, mut outcomes) = candidates(turns);
    let flags: Vec<Flag> = FLAGS.into_iter().filter(|(name, _)| frame.prober.mentions(name)).map(Some).collect();
    for flag in [None].into_iter().chain(flags.iter().copied()) {
        for format in &candidates {
            let turns = turns.in_format(*format);
            // The generation prompt comes after everything: no template shows reasoning for its sake.
            let (cells, others) = turns.cells(flag, &[false]);
            outcomes.rendered |= others.rendered;
            outcomes.failure = outcomes.failure.take().or(others.failure);
            if cells.first().is_some_and(|cell| turns.is_real(cell)) {
                return found(turns, flag, &flags, inline);
            }
        }
    }
    let supported = match outcomes.failure {
        Some(failure) if !outcomes.rendered => SUPPORTED.failed(&failure),
        _ => SUPPORTED.decided(false),
    };
    let denied = || supported.denies("reasoning does not show");
    Reasoning {
        format: ReasoningFormat::None,
        visible: Vec::new(),
        needs: None,
        requires_tools: denied(),
        without_content: denied(),
        with_content: denied(),
        inline,
        with_calls: with_calls(turns.in_format(ReasoningFormat::ReasoningContentField), None),
        supported,
    }
}

/// The formats that the source has words for; and, for templates that print whole messages, the fields that show anyway.
fn candidates(turns: Turns<'_>) -> (Vec<ReasoningFormat>, Outcomes) {
    let prober = turns.frame.prober;
    let mut outcomes = Outcomes::default();
    let (mut named, rest): (Vec<_>, Vec<_>) =
        FORMATS.into_iter().partition(|(_, words)| words.iter().all(|word| prober.mentions(word)));
    let fields: Vec<_> = rest.into_iter().filter(|(format, _)| field(*format).is_some()).collect();
    for position in [Position::Last, Position::OpenChain] {
        if fields.is_empty() || position.has_calls() && !turns.calls.are_shown() {
            continue;
        }
        let mut turn = if position.has_calls() { turns.call(None, None) } else { turns.turn(None, Some(ANSWER)) };
        for (number, (format, _)) in fields.iter().enumerate() {
            if let Some(field) = field(*format) {
                turn[field] = format!("needle_{number}_of_fields").into();
            }
        }
        let text = turns.render(position, turns.conversation(position, turn), false, Vec::new());
        if let Ok(text) = &text {
            let shows = |number: usize| text.contains(&format!("needle_{number}_of_fields"));
            named.extend(fields.iter().enumerate().filter(|(number, _)| shows(*number)).map(|(_, format)| *format));
        }
        outcomes.add(text);
    }
    let mut formats: Vec<ReasoningFormat> = named.into_iter().map(|(format, _)| format).collect();
    formats.sort_unstable();
    formats.dedup();
    (formats, outcomes)
}

fn found(turns: Turns<'_>, needs: Flag, flags: &[Flag], inline: bool) -> Reasoning {
    let (mut visible, _) = turns.cells(needs, &[false, true]);
    let first = visible[0];
    let position = Position::ALL.into_iter().find(|position| position.name() == first.position).unwrap_or(Position::Last);
    let tools_only = visible.iter().all(|cell| cell.position.starts_with("tc_"));
    for flag in flags.iter().filter(|flag| **flag != needs) {
        visible.extend(turns.cells(*flag, &[false, true]).0);
    }
    let render = |text: Option<&str>| {
        let turn =
            |text| if position.has_calls() { turns.call(Some(REASONING), text) } else { turns.turn(Some(REASONING), text) };
        turns.render(position, turns.conversation(position, turn(text)), first.add_generation_prompt, kwargs(needs))
    };
    let requires_tools = Pair {
        probe: "reasoning",
        control: "reasoning_beside_tool_calls",
        yes: "reasoning shows beside tool calls only",
        no: "reasoning shows in turns without tool calls",
    };
    let without = Pair {
        probe: "reasoning_without_content",
        control: "reasoning_with_content",
        yes: "reasoning shows when the turn has no content",
        no: "reasoning does not show when the turn has no content",
    };
    let with = Pair {
        probe: "reasoning_with_content",
        control: "reasoning_without_content",
        yes: "reasoning and content of a turn both show",
        no: "reasoning and content of a turn do not both show",
    };
    let (alone, both) = (render(None), render(Some(ANSWER)));
    // The test alone decides: its twin differs in the content, whose failure is no failure of the test.
    let decide = |pair: Pair, text: &Text, needles: &[&str]| match text {
        Ok(text) => pair.decided(needles.iter().all(|needle| text.contains(needle))),
        Err(failure) => pair.failed(failure),
    };
    Reasoning {
        format: turns.format,
        supported: SUPPORTED.decided(true),
        visible,
        needs,
        requires_tools: requires_tools.decided(tools_only),
        without_content: decide(without, &alone, &[REASONING]),
        with_content: decide(with, &both, &[REASONING, ANSWER]),
        inline,
        with_calls: with_calls(turns, needs),
    }
}

/// What shows of reasoning and content beside calls.
fn with_calls(turns: Turns<'_>, flag: Flag) -> WithCalls {
    if !turns.calls.are_shown() {
        return WithCalls::Neither;
    }
    let messages = turns.conversation(Position::OpenChain, turns.call(Some(REASONING), Some(ANSWER)));
    match turns.render(Position::OpenChain, messages, true, kwargs(flag)) {
        Err(_) => WithCalls::Raises,
        Ok(text) => match (text.contains(REASONING), text.contains(ANSWER)) {
            (true, true) => WithCalls::Both,
            (true, false) => WithCalls::ReasoningOnly,
            (false, true) => WithCalls::ContentOnly,
            (false, false) => WithCalls::Neither,
        },
    }
}

/// Whether reasoning between tags in text content shows in the last turn and is taken out of earlier ones.
fn inline(turns: Turns<'_>) -> bool {
    if !turns.frame.prober.mentions("think") {
        return false;
    }
    let text = format!("<think>\n{REASONING}\n</think>\n\n{ANSWER}");
    let render = |position| {
        let turn = turns.frame.message("assistant", &text);
        turns.render(position, turns.conversation(position, turn), false, Vec::new())
    };
    let (last, history) = (render(Position::Last), render(Position::History));
    last.is_ok_and(|last| last.contains(REASONING) && last.contains(ANSWER))
        && history.is_ok_and(|history| !history.contains(REASONING) && count(&history, ANSWER) > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::template::frame::Frame;
    use crate::template::prober;

    fn find(source: &str) -> Reasoning {
        let mut prober = prober::of(source);
        let frame = Frame::find(&mut prober);
        let calls = calls::probe(&frame);
        let no_content = content::probe(&frame).no_content;
        probe(Turns::new(&frame, &calls, no_content))
    }

    /// The format and the cells without a flag, `agp` ones with a plus.
    #[track_caller]
    fn check(source: &str, format: ReasoningFormat, cells: &str) -> Reasoning {
        let found = find(source);
        let plain = found.visible.iter().filter(|cell| cell.flag.is_none());
        let plain: Vec<String> =
            plain.map(|cell| format!("{}{}", cell.position, if cell.add_generation_prompt { "+" } else { "" })).collect();
        assert_eq!((found.format, plain.join(" ")), (format, cells.to_owned()));
        found
    }

    /// A template that prints this of every message, after its calls.
    fn messages(what: &str) -> String {
        let calls = "{% for c in m.tool_calls %}{{ c.function.name }}{{ c.function.arguments|tojson }}{% endfor %}";
        format!("{{% for m in messages %}}{{{{ m.role }}}}:{calls}{what}{{% endfor %}}")
    }

    const TEXT: &str = "{{ m.content if m.content }}";
    const EVERYWHERE: &str = "last last+ hist hist+ tc_open tc_open+ tc_closed tc_closed+";

    #[test]
    fn none() {
        let found = check(&messages(TEXT), ReasoningFormat::None, "");
        assert_eq!((found.with_calls, found.inline), (WithCalls::ContentOnly, false));
        // Reading is not showing.
        check(&messages("{% if m.reasoning_content %}{% endif %}"), ReasoningFormat::None, "");
    }

    #[test]
    fn fields() {
        for (field, format) in [
            ("reasoning_content", ReasoningFormat::ReasoningContentField),
            ("thought", ReasoningFormat::ThoughtField),
            ("thinking", ReasoningFormat::ThinkingField),
            ("reasoning", ReasoningFormat::ReasoningField),
        ] {
            let found = check(&messages(&format!("{{{{ m.{field} }}}}{TEXT}")), format, EVERYWHERE);
            assert!(found.without_content.is_yes() && found.with_content.is_yes() && !found.requires_tools.is_yes());
            assert_eq!(found.with_calls, WithCalls::Both);
        }
        // The first in the order of detection.
        check(&messages("{{ m.thinking or m.reasoning_content }}"), ReasoningFormat::ReasoningContentField, EVERYWHERE);
    }

    #[test]
    fn whole_messages() {
        check("{{ messages|tojson }}", ReasoningFormat::ReasoningContentField, EVERYWHERE);
    }

    #[test]
    fn tool_plan() {
        let found = check(
            &messages("{% if m.tool_calls %}{{ m.tool_plan }}{% else %}{{ m.content }}{% endif %}"),
            ReasoningFormat::ToolPlanField,
            "tc_open tc_open+ tc_closed tc_closed+",
        );
        assert!(found.requires_tools.is_yes() && found.without_content.is_yes() && !found.with_content.is_yes());
        assert_eq!(found.with_calls, WithCalls::ReasoningOnly);
    }

    fn with_parts(part: &str) -> String {
        messages(&format!(
            "{{% if m.content is string %}}{{{{ m.content }}}}{{% else %}}{{% for p in m.content %}}{part}{{% endfor %}}{{% endif %}}"
        ))
    }

    #[test]
    fn blocks() {
        let thinking = "{% if p.type == 'thinking' %}<{{ p.thinking }}>{% elif p.type == 'text' %}{{ p.text }}{% endif %}";
        check(&with_parts(thinking), ReasoningFormat::ThinkingContentBlock, EVERYWHERE);
        let thoughts = "{% if p.type == 'thoughts' %}<{{ p.text }}>{% elif p.type == 'text' %}{{ p.text }}{% endif %}";
        check(&with_parts(thoughts), ReasoningFormat::ThoughtsContentBlock, EVERYWHERE);
        // Any part shows: an invented one too.
        check(&with_parts("{# thoughts, thinking #}{{ p.text }}"), ReasoningFormat::None, "");
        check(&messages("{# thoughts, thinking #}{{ m.content }}"), ReasoningFormat::None, "");
        // Shown, but not as anything else than text.
        check(&with_parts("{% if p.type in ['text', 'thoughts'] %}{{ p.text }}{% endif %}"), ReasoningFormat::None, "");
    }

    #[test]
    fn mapping() {
        let source = messages(
            "{% if m.content is mapping %}{% for b in m.content.blocks %}{% if b.type == 'thoughts' %}<{{ b.text }}>{% elif b.type == 'response' %}{{ b.text }}{% endif %}{% endfor %}{% else %}{{ m.content }}{% endif %}",
        );
        check(&source, ReasoningFormat::BlocksMapping, EVERYWHERE);
    }

    #[test]
    fn a_switch_is_needed() {
        let source = messages("{% if enable_thinking %}{{ m.reasoning_content }}{% endif %}{{ m.content }}");
        let found = check(&source, ReasoningFormat::ReasoningContentField, "");
        assert_eq!(found.needs, Some(("enable_thinking", true)));
        assert_eq!(found.visible.len(), 8);
        assert!(found.with_content.is_yes());
    }

    #[test]
    fn the_last_turn_only() {
        let source = messages("{% if loop.last %}{{ m.reasoning_content }}{% endif %}{{ m.content }}");
        check(&source, ReasoningFormat::ReasoningContentField, "last last+");
    }

    #[test]
    fn beside_calls() {
        let refuses = "{% if m.tool_calls and m.content and m.thinking %}{{ raise_exception('both') }}{% endif %}{{ m.thinking }}{{ m.content if m.content }}";
        assert_eq!(find(&messages(refuses)).with_calls, WithCalls::Raises);
        let drops = "{% if m.tool_calls %}{{ m.content if m.content }}{% else %}{{ m.thinking }}{{ m.content }}{% endif %}";
        assert_eq!(find(&messages(drops)).with_calls, WithCalls::ContentOnly);
    }

    #[test]
    fn tags_in_content() {
        let strips = "{% if loop.last or m.role != 'assistant' %}{{ m.content }}{% else %}{{ (m.content or '').split('</think>')[-1] }}{% endif %}";
        assert!(find(&messages(strips)).inline);
        let everywhere = "{{ (m.content or '').split('</think>')[-1] }}";
        assert!(!find(&messages(everywhere)).inline);
        assert!(!find(&messages("{# think #}{{ m.content }}")).inline);
    }

    #[test]
    fn an_engine_error_is_unknown() {
        let source = "{% for m in messages %}{% if m.role == 'assistant' %}{{ 1 + 'a' }}{% endif %}{{ m.content }}{% endfor %}";
        let found = find(source);
        assert_eq!(found.supported.status, crate::template::Status::Unknown);
        assert_eq!(found.with_content.status, crate::template::Status::Unknown);
    }
}
