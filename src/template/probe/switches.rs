//! The variables that switch reasoning on and off, and that keep it in earlier turns.
//!
//! Variables that the source does not mention are not tried. The others are set to on, set to off,
//! and left unset, in four conversations. A switch is a variable that changes the prompt.

use serde_json::Value;

use super::baseline::Baseline;
use super::evidence::{Evidence, Pair, RenderResult};
use super::reasoning::ReasoningTraits;
use super::reasoning_turns::ReasoningTurns;
use super::traits::{Switch, TurnPosition};
use crate::probing::Probe;

/// The known variables with their values for on and off. If a variable has several rows, the first
/// row that changes the prompt counts.
fn known() -> Vec<(&'static str, Value, Value)> {
    let boolean = |name| (name, Value::from(true), Value::from(false));
    let words = |name, on: &str, off: &str| (name, Value::from(on), Value::from(off));
    vec![
        boolean("enable_thinking"),
        boolean("thinking"),
        boolean("enable_reasoning"),
        boolean("reasoning"),
        words("reasoning", "on", "off"),
        words("thinking_mode", "enabled", "disabled"),
        words("thinking_mode", "on", "off"),
        boolean("thinking_mode"),
        words("reasoning_mode", "on", "off"),
        words("reasoning_mode", "/think", "/no_think"),
        boolean("thinking_enabled"),
        boolean("use_thinking"),
        boolean("show_think"),
        boolean("think"),
        ("skip_think", false.into(), true.into()),
        ("skip_thinking", false.into(), true.into()),
        ("disable_thinking", false.into(), true.into()),
        words("thinking_option", "on", "off"),
        ("thinking_budget", 1024.into(), 0.into()),
        ("reasoning_budget", 1024.into(), 0.into()),
    ]
}

/// Whether this variable is known to switch reasoning.
pub(crate) fn is_known(variable: &str) -> bool {
    known().iter().any(|(name, ..)| *name == variable)
}

const PROMPT: &str = "prompt";
const HISTORY: &str = "history";
const LAST: &str = "last";
const TOOL_CHAIN: &str = "tool_chain";

/// All switches that change a prompt.
pub(crate) fn probe(turns: ReasoningTurns<'_>, base: &Baseline<'_>) -> (Vec<Switch>, Evidence) {
    let mut switches: Vec<Switch> = Vec::new();
    let mut respects = ENABLE.conclude(false);
    for (variable, on, off) in known() {
        if switches.iter().any(|known| known.variable == variable)
            || !base.prober.mentions(variable)
        {
            continue;
        }
        let renders = SwitchRenders::of(turns, base, variable, &on, &off);
        if variable == ENABLE_THINKING {
            respects = renders.respects();
        }
        switches.extend(renders.switch(variable, on, off));
    }
    (switches, respects)
}

const ENABLE_THINKING: &str = "enable_thinking";
const ENABLE: Pair = Pair {
    probe: "enable_thinking_false",
    control: "enable_thinking_true",
    yes: "enable_thinking changes the prompt",
    no: "enable_thinking does not change the prompt",
};

/// The four conversations, each with the variable off, on and unset.
struct SwitchRenders(Vec<(&'static str, [RenderResult; 3])>);

impl SwitchRenders {
    fn of(
        turns: ReasoningTurns<'_>,
        base: &Baseline<'_>,
        variable: &'static str,
        on: &Value,
        off: &Value,
    ) -> SwitchRenders {
        let render = |position: Option<TurnPosition>, agp: bool| {
            [Some(off), Some(on), None].map(|value| {
                let kwargs: Vec<_> =
                    value.map(|value| (variable, value.clone())).into_iter().collect();
                match position {
                    None => {
                        let plain = base.probe(vec![base.user()]);
                        base.prober.render(Probe { kwargs, add_generation_prompt: agp, ..plain })
                    }
                    Some(position) => turns.render(position, turns.at(position), agp, kwargs),
                }
            })
        };
        let mut renders = vec![
            (PROMPT, render(None, true)),
            (HISTORY, render(Some(TurnPosition::History), true)),
            (LAST, render(Some(TurnPosition::Last), false)),
        ];
        if turns.has_calls() {
            renders.push((TOOL_CHAIN, render(Some(TurnPosition::OpenChain), true)));
        }
        SwitchRenders(renders)
    }

    /// The conversations in which on, off and unset differ.
    fn positions(&self) -> Vec<&'static str> {
        let differs = |[off, on, unset]: &[RenderResult; 3]| {
            let differ = |a: &RenderResult, b: &RenderResult| a.is_ok() && b.is_ok() && a != b;
            differ(off, on) || differ(off, unset) || differ(on, unset)
        };
        self.0.iter().filter(|(_, texts)| differs(texts)).map(|(name, _)| *name).collect()
    }

    fn respects(&self) -> Evidence {
        if !self.positions().is_empty() {
            return ENABLE.conclude(true);
        }
        match self.0.iter().find(|(_, [off, on, _])| off.is_ok() && on.is_ok()) {
            Some(_) => ENABLE.conclude(false),
            None => {
                let [off, on, _] = &self.0[0].1;
                ENABLE.compare(off, on, |off, on| off != on)
            }
        }
    }

    fn switch(&self, variable: &'static str, on: Value, off: Value) -> Option<Switch> {
        let positions = self.positions();
        // On and off must differ in at least one conversation.
        if !self.0.iter().any(|(_, [off, on, _])| off.is_ok() && on.is_ok() && off != on) {
            return None;
        }
        let rendered = || self.0.iter().filter(|(_, texts)| texts.iter().all(Result::is_ok));
        let default = match (
            rendered().all(|(_, [_, on, unset])| on == unset),
            rendered().all(|(_, [off, _, unset])| off == unset),
        ) {
            (true, false) => Some(true),
            (false, true) => Some(false),
            _ => None,
        };
        Some(Switch { variable, on, off, default, positions })
    }
}

/// Whether `clear_thinking` decides if older reasoning is shown.
pub(crate) fn clear_thinking(
    turns: ReasoningTurns<'_>,
    base: &Baseline<'_>,
    reasoning: &ReasoningTraits,
) -> Evidence {
    let pair = Pair {
        probe: "clear_thinking_false",
        control: "clear_thinking_true",
        yes: "older reasoning shows with clear_thinking false and not with true",
        no: "clear_thinking does not decide whether older reasoning shows",
    };
    if !reasoning.supported.is_yes() || !base.prober.mentions("clear_thinking") {
        return if reasoning.supported.is_yes() {
            pair.conclude(false)
        } else {
            reasoning.supported.deny_dependent("reasoning does not show")
        };
    }
    let turn = |reasoning, text| turns.turn(TurnPosition::History, Some(reasoning), Some(text));
    let messages = || {
        vec![
            base.user(),
            turn("first_reasoning", "first answer"),
            base.user(),
            turn("second_reasoning", "second answer"),
            base.user(),
        ]
    };
    let render = |clear: bool| {
        let needed = reasoning.needs.map(|(name, value)| (name, Value::from(value)));
        let kwargs = needed.into_iter().chain([("clear_thinking", clear.into())]).collect();
        turns.render(TurnPosition::History, messages(), false, kwargs)
    };
    pair.compare(&render(false), &render(true), |kept, cleared| {
        kept.contains("first_reasoning") && !cleared.contains("first_reasoning")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::template::probe::evidence::EvidenceStatus;
    use crate::template::probe::{calls, content, prober, reasoning};

    fn find<T>(
        source: &str,
        look: impl FnOnce(ReasoningTurns<'_>, &Baseline<'_>, &ReasoningTraits) -> T,
    ) -> T {
        let mut prober = prober::for_source(source);
        let base = Baseline::find(&mut prober);
        let calls = calls::probe(&base);
        let turns = ReasoningTurns::new(&base, &calls, content::probe(&base).no_content);
        let found = reasoning::probe(turns);
        look(turns.in_format(found.format), &base, &found)
    }

    /// Variable, default and positions of each switch.
    #[track_caller]
    fn check(source: &str, expected: &[(&str, Option<bool>, &[&str])], respects: EvidenceStatus) {
        let (switches, outcome) = find(source, |turns, base, _| probe(turns, base));
        let found: Vec<_> =
            switches.iter().map(|s| (s.variable, s.default, s.positions.as_slice())).collect();
        assert_eq!(found, expected);
        assert_eq!(outcome.status, respects);
    }

    const TURNS: &str = "{% for m in messages %}{{ m.content }}{% endfor %}";

    #[test]
    fn switches() {
        check(TURNS, &[], EvidenceStatus::No);
        let prompt = "{% if add_generation_prompt and enable_thinking is defined and not enable_thinking %}<think></think>{% endif %}";
        check(
            &format!("{TURNS}{prompt}"),
            &[("enable_thinking", Some(true), &["prompt", "history"])],
            EvidenceStatus::Yes,
        );
        let off = "{% if thinking %}<think>{% endif %}";
        check(
            &format!("{TURNS}{off}"),
            &[("thinking", Some(false), &["prompt", "history", "last"])],
            EvidenceStatus::No,
        );
        let mode = "{% if thinking_mode == 'on' %}+{% elif thinking_mode == 'off' %}-{% endif %}";
        check(
            &format!("{TURNS}{mode}"),
            &[("thinking_mode", None, &["prompt", "history", "last"])],
            EvidenceStatus::No,
        );
        check(&format!("{TURNS}{{% if enable_thinking %}}{{% endif %}}"), &[], EvidenceStatus::No);
        check(
            &format!("{TURNS}{{% if enable_thinking is defined %}}{{{{ 1 + 'a' }}}}{{% endif %}}"),
            &[],
            EvidenceStatus::Unknown,
        );
        check(
            &format!(
                "{TURNS}{{% if enable_thinking is defined %}}{{{{ raise_exception('no') }}}}{{% endif %}}"
            ),
            &[],
            EvidenceStatus::Unknown,
        );
    }

    #[test]
    fn older_reasoning() {
        let clear = |source: &str| {
            find(source, |turns, base, found| clear_thinking(turns, base, found).status)
        };
        let reads = "{% for m in messages %}{% if m.reasoning_content and (loop.last or clear_thinking is defined and not clear_thinking) %}{{ m.reasoning_content }}{% endif %}{{ m.content }}{% endfor %}";
        assert_eq!(clear(reads), EvidenceStatus::Yes);
        let always = "{# clear_thinking #}{% for m in messages %}{{ m.reasoning_content }}{{ m.content }}{% endfor %}";
        assert_eq!(clear(always), EvidenceStatus::No);
        assert_eq!(clear(TURNS), EvidenceStatus::No);
        let fails = "{% if clear_thinking is defined and not clear_thinking %}{{ 1 + 'a' }}{% endif %}{% for m in messages %}{{ m.reasoning_content }}{{ m.content }}{% endfor %}";
        assert_eq!(clear(fails), EvidenceStatus::Unknown);
    }
}
