//! The variables that switch reasoning on and off, that set its effort, and that keep it in earlier
//! turns.
//!
//! Variables that the source does not mention are not tried. The others are set to on, set to off,
//! and left unset, in four conversations. A switch is a variable that changes the prompt.

use serde_json::Value;

use super::baseline::Baseline;
use super::evidence::{Evidence, Pair, RenderResult};
use super::reasoning::ReasoningTraits;
use super::reasoning_turns::ReasoningTurns;
use super::traits::{Effort, Switch, TurnPosition};
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

/// The variables that set the reasoning effort.
const EFFORT_VARIABLES: [&str; 2] = ["reasoning_effort", "reasoning_strength"];
const EFFORTS: [&str; 8] = ["none", "minimal", "low", "medium", "high", "xhigh", "max", "no_think"];

/// The first variable that sets the effort, with the values that change the prompt. Reasoning is switched on if there is a
/// switch.
pub(crate) fn effort(base: &Baseline<'_>, switches: &[Switch]) -> Option<Effort> {
    let on = switches.first();
    EFFORT_VARIABLES
        .into_iter()
        .filter(|name| base.prober.mentions(name))
        .find_map(|variable| effort_of(base, variable, on))
}

fn effort_of(base: &Baseline<'_>, variable: &'static str, on: Option<&Switch>) -> Option<Effort> {
    let render = |value: Option<&str>| -> RenderResult {
        let switch = on.map(|switch| (switch.variable, switch.on.clone()));
        let kwargs =
            value.map(|value| (variable, value.into())).into_iter().chain(switch).collect();
        let plain = base.probe(vec![base.user()]);
        base.prober.render(Probe { kwargs, add_generation_prompt: true, ..plain })
    };
    let unset = render(None);
    let texts = EFFORTS.map(|value| (value, render(Some(value))));
    let values = |wanted: &dyn Fn(&RenderResult) -> bool| -> Vec<&'static str> {
        texts.iter().filter(|(_, text)| wanted(text)).map(|(value, _)| *value).collect()
    };
    let refused = values(&|text| text.as_ref().is_err_and(|failure| failure.is_refusal()));
    let same = values(&|text| text.is_ok() && *text == unset);
    let changed = values(&|text| text.is_ok() && *text != unset);
    if changed.is_empty() && (refused.is_empty() || same.is_empty()) {
        return None;
    }
    // If several values change nothing, the template does not know them.
    let default = match same.as_slice() {
        [only] => Some(*only),
        _ => None,
    };
    let accepted = EFFORTS
        .into_iter()
        .filter(|value| changed.contains(value) || default == Some(value))
        .collect();
    Some(Effort { variable, accepted, refused, default })
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

    mod effort_tests {
        use serde_json::json;

        use super::super::*;
        use crate::template::probe::prober;

        /// Variable, accepted, refused, default.
        type ExpectedEffort<'a> = (&'a str, &'a [&'a str], &'a [&'a str], Option<&'a str>);

        #[track_caller]
        fn check(source: &str, expected: Option<ExpectedEffort<'_>>) {
            let mut prober = prober::for_source(source);
            let base = Baseline::find(&mut prober);
            let on = Switch {
                variable: "thinking",
                on: json!(true),
                off: json!(false),
                default: None,
                positions: Vec::new(),
            };
            let found = effort(&base, &[on]);
            let found = found
                .as_ref()
                .map(|e| (e.variable, e.accepted.as_slice(), e.refused.as_slice(), e.default));
            assert_eq!(found, expected);
        }

        #[test]
        fn efforts() {
            let user = "{{ messages[0].content }}";
            check(user, None);
            check(&format!("{user}{{% if reasoning_effort %}}{{% endif %}}"), None);
            check(
                &format!("{user}{{{{ reasoning_effort|default('medium') }}}}"),
                Some(("reasoning_effort", &EFFORTS, &[], Some("medium"))),
            );
            check(
                &format!("{user}{{% if reasoning_strength in ['low', 'minimal'] %}}-{{% endif %}}"),
                Some(("reasoning_strength", &["minimal", "low"], &[], None)),
            );
            check(
                &format!("{user}{{% if thinking and reasoning_effort == 'max' %}}+{{% endif %}}"),
                Some(("reasoning_effort", &["max"], &[], None)),
            );
            let strict = "{% set e = reasoning_effort|default('no_think') %}{% if e not in ['low', 'high', 'no_think'] %}{{ raise_exception('effort') }}{% endif %}{{ e }}";
            check(
                &format!("{user}{strict}"),
                Some((
                    "reasoning_effort",
                    &["low", "high", "no_think"],
                    &["none", "minimal", "medium", "xhigh", "max"],
                    Some("no_think"),
                )),
            );
        }
    }
}
