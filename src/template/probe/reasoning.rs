//! Where a template reads an earlier turn's reasoning from, and where it shows it.
//!
//! In: turns, and the form in which calls appear. Out: the format, the cells of the visibility
//! matrix, and what a turn with calls shows. A format counts only if its needle appears in a
//! render, and not in the same render without reasoning.

use super::baseline::count;
use super::evidence::{Evidence, Pair, RenderResult};
use super::reasoning_turns::{
    ANSWER, REASONING, ReasoningTurns, RenderSummary, SwitchSetting, field, kwargs,
};
use super::traits::{ReasoningCell, ReasoningFormat, TurnPosition, WithCalls};

/// The formats in the order of detection, with words that any source that reads them contains.
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

/// The switches that a template may require to show reasoning.
const FLAGS: [(&str, bool); 3] =
    [("enable_thinking", true), ("enable_thinking", false), ("thinking", true)];

/// The probed traits of reasoning.
pub(crate) struct ReasoningTraits {
    pub(crate) format: ReasoningFormat,
    pub(crate) supported: Evidence,
    pub(crate) visible: Vec<ReasoningCell>,
    pub(crate) needs: SwitchSetting,
    pub(crate) requires_tools: Evidence,
    pub(crate) without_content: Evidence,
    pub(crate) with_content: Evidence,
    pub(crate) inline: bool,
    pub(crate) with_calls: WithCalls,
}

const SUPPORTED: Pair = Pair {
    probe: "reasoning",
    control: "no_reasoning",
    yes: "the reasoning of an earlier turn appears in the prompt, read from this format",
    no: "the reasoning of an earlier turn appears in the prompt in no known format",
};

/// Probes the formats, and the details where reasoning shows.
pub(crate) fn probe(turns: ReasoningTurns<'_>) -> ReasoningTraits {
    let base = turns.base;
    let inline = inline(turns);
    let (candidates, mut outcomes) = candidates(turns);
    let flags: Vec<SwitchSetting> =
        FLAGS.into_iter().filter(|(name, _)| base.prober.mentions(name)).map(Some).collect();
    for flag in [None].into_iter().chain(flags.iter().copied()) {
        for format in &candidates {
            let turns = turns.in_format(*format);
            // Cells without the generation prompt are sufficient, because it comes after everything
            // else.
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
        _ => SUPPORTED.conclude(false),
    };
    let denied = || supported.deny_dependent("reasoning does not show");
    ReasoningTraits {
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

/// The formats whose words occur in the source. For templates that print whole messages, also the
/// fields that appear anyway.
fn candidates(turns: ReasoningTurns<'_>) -> (Vec<ReasoningFormat>, RenderSummary) {
    let prober = turns.base.prober;
    let mut outcomes = RenderSummary::default();
    let (mut named, rest): (Vec<_>, Vec<_>) =
        FORMATS.into_iter().partition(|(_, words)| words.iter().all(|word| prober.mentions(word)));
    let fields: Vec<_> = rest.into_iter().filter(|(format, _)| field(*format).is_some()).collect();
    for position in [TurnPosition::Last, TurnPosition::OpenChain] {
        if fields.is_empty() || position.has_calls() && !turns.calls.are_shown() {
            continue;
        }
        let text = (!position.has_calls()).then_some(ANSWER);
        let mut turn = turns.turn(position, None, text);
        for (number, (format, _)) in fields.iter().enumerate() {
            if let Some(field) = field(*format) {
                turn[field] = format!("needle_{number}_of_fields").into();
            }
        }
        let text = turns.render(position, turns.conversation(position, turn), false, Vec::new());
        if let Ok(text) = &text {
            let shows = |number: usize| text.contains(&format!("needle_{number}_of_fields"));
            named.extend(
                fields
                    .iter()
                    .enumerate()
                    .filter(|(number, _)| shows(*number))
                    .map(|(_, format)| *format),
            );
        }
        outcomes.add(text);
    }
    let mut formats: Vec<ReasoningFormat> = named.into_iter().map(|(format, _)| format).collect();
    formats.sort_unstable();
    formats.dedup();
    (formats, outcomes)
}

fn found(
    turns: ReasoningTurns<'_>,
    needs: SwitchSetting,
    flags: &[SwitchSetting],
    inline: bool,
) -> ReasoningTraits {
    let (mut visible, _) = turns.cells(needs, &[false, true]);
    let first = visible[0];
    let position = first.position;
    let tools_only = visible.iter().all(|cell| cell.position.has_calls());
    for flag in flags.iter().filter(|flag| **flag != needs) {
        visible.extend(turns.cells(*flag, &[false, true]).0);
    }
    let render = |text: Option<&str>| {
        let turn = turns.turn(position, Some(REASONING), text);
        let messages = turns.conversation(position, turn);
        turns.render(position, messages, first.add_generation_prompt, kwargs(needs))
    };
    let requires_tools = Pair {
        probe: "reasoning",
        control: "reasoning_beside_tool_calls",
        yes: "reasoning shows only in turns with tool calls",
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
    // Only the test decides. Its control has other content and may fail for another reason.
    let decide = |pair: Pair, text: &RenderResult, needles: &[&str]| match text {
        Ok(text) => pair.conclude(needles.iter().all(|needle| text.contains(needle))),
        Err(failure) => pair.failed(failure),
    };
    ReasoningTraits {
        format: turns.format,
        supported: SUPPORTED.conclude(true),
        visible,
        needs,
        requires_tools: requires_tools.conclude(tools_only),
        without_content: decide(without, &alone, &[REASONING]),
        with_content: decide(with, &both, &[REASONING, ANSWER]),
        inline,
        with_calls: with_calls(turns, needs),
    }
}

/// Which of reasoning and content a turn with calls shows.
fn with_calls(turns: ReasoningTurns<'_>, flag: SwitchSetting) -> WithCalls {
    if !turns.calls.are_shown() {
        return WithCalls::Neither;
    }
    let position = TurnPosition::OpenChain;
    let turn = turns.turn(position, Some(REASONING), Some(ANSWER));
    match turns.render(position, turns.conversation(position, turn), true, kwargs(flag)) {
        Err(_) => WithCalls::Raises,
        Ok(text) => match (text.contains(REASONING), text.contains(ANSWER)) {
            (true, true) => WithCalls::Both,
            (true, false) => WithCalls::ReasoningOnly,
            (false, true) => WithCalls::ContentOnly,
            (false, false) => WithCalls::Neither,
        },
    }
}

/// Whether reasoning in tags in text content shows in the last turn and is removed from earlier
/// turns.
fn inline(turns: ReasoningTurns<'_>) -> bool {
    if !turns.base.prober.mentions("think") {
        return false;
    }
    let text = format!("<think>\n{REASONING}\n</think>\n\n{ANSWER}");
    let render = |position| {
        let turn = turns.base.message("assistant", &text);
        turns.render(position, turns.conversation(position, turn), false, Vec::new())
    };
    let (last, history) = (render(TurnPosition::Last), render(TurnPosition::History));
    last.is_ok_and(|last| last.contains(REASONING) && last.contains(ANSWER))
        && history.is_ok_and(|history| !history.contains(REASONING) && count(&history, ANSWER) > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::template::probe::baseline::Baseline;
    use crate::template::probe::{calls, content, prober};

    fn find(source: &str) -> ReasoningTraits {
        let mut prober = prober::for_source(source);
        let base = Baseline::find(&mut prober);
        let calls = calls::probe(&base);
        let no_content = content::probe(&base).no_content;
        probe(ReasoningTurns::new(&base, &calls, no_content))
    }

    /// Checks the format and the cells without a flag. Cells with a generation prompt have a plus.
    #[track_caller]
    fn check(source: &str, format: ReasoningFormat, cells: &str) -> ReasoningTraits {
        let found = find(source);
        let plain = found.visible.iter().filter(|cell| cell.flag.is_none());
        let plain: Vec<String> = plain
            .map(|cell| {
                format!(
                    "{}{}",
                    cell.position.as_str(),
                    if cell.add_generation_prompt { "+" } else { "" }
                )
            })
            .collect();
        assert_eq!((found.format, plain.join(" ")), (format, cells.to_owned()));
        found
    }

    /// A template that prints `what` for every message, followed by its calls.
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
        // Reading the member does not show it.
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
            assert!(
                found.without_content.is_yes()
                    && found.with_content.is_yes()
                    && !found.requires_tools.is_yes()
            );
            assert_eq!(found.with_calls, WithCalls::Both);
        }
        // The first format in the order of detection wins.
        check(
            &messages("{{ m.thinking or m.reasoning_content }}"),
            ReasoningFormat::ReasoningContentField,
            EVERYWHERE,
        );
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
        assert!(
            found.requires_tools.is_yes()
                && found.without_content.is_yes()
                && !found.with_content.is_yes()
        );
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
        // A part of any type is shown, even of an invented type.
        check(&with_parts("{# thoughts, thinking #}{{ p.text }}"), ReasoningFormat::None, "");
        check(&messages("{# thoughts, thinking #}{{ m.content }}"), ReasoningFormat::None, "");
        // It is shown, but like a text part.
        check(
            &with_parts("{% if p.type in ['text', 'thoughts'] %}{{ p.text }}{% endif %}"),
            ReasoningFormat::None,
            "",
        );
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
        let source =
            messages("{% if enable_thinking %}{{ m.reasoning_content }}{% endif %}{{ m.content }}");
        let found = check(&source, ReasoningFormat::ReasoningContentField, "");
        assert_eq!(found.needs, Some(("enable_thinking", true)));
        assert_eq!(found.visible.len(), 8);
        assert!(found.with_content.is_yes());
    }

    #[test]
    fn the_last_turn_only() {
        let source =
            messages("{% if loop.last %}{{ m.reasoning_content }}{% endif %}{{ m.content }}");
        check(&source, ReasoningFormat::ReasoningContentField, "last last+");
    }

    #[test]
    fn reasoning_with_calls() {
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
        assert_eq!(found.supported.status, crate::template::EvidenceStatus::Unknown);
        assert_eq!(found.with_content.status, crate::template::EvidenceStatus::Unknown);
    }
}
