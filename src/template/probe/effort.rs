//! The variables that set the reasoning effort.
//!
//! A template has one variable whose value is the effort, or a variable for each effort, which is true
//! for it: `low_effort` in Nemotron 3 Super, `medium_effort` in Nemotron 3 Ultra. Variables that the
//! source does not mention are not tried.

use serde_json::Value;

use super::baseline::Baseline;
use super::evidence::RenderResult;
use super::traits::{Effort, Switch};
use crate::probing::Probe;

/// Variables whose value is the effort.
pub(crate) const VARIABLES: [&str; 3] =
    ["reasoning_effort", "reasoning_strength", "thinking_effort"];
const EFFORTS: [&str; 8] = ["none", "minimal", "low", "medium", "high", "xhigh", "max", "no_think"];
/// Variables that are true for one effort.
const FLAGS: [(&str, &str); 5] = [
    ("minimal", "minimal_effort"),
    ("low", "low_effort"),
    ("medium", "medium_effort"),
    ("high", "high_effort"),
    ("max", "max_effort"),
];

/// Whether this variable is known to set the effort.
pub(crate) fn is_known(variable: &str) -> bool {
    VARIABLES.contains(&variable) || FLAGS.iter().any(|(_, flag)| *flag == variable)
}

/// The first variable that sets the effort, with the values that change the prompt, or else the flags
/// that do. Reasoning is switched on if there is a switch.
pub(crate) fn probe(base: &Baseline<'_>, switches: &[Switch]) -> Option<Effort> {
    let renders = EffortRenders { base, on: switches.first() };
    let mentioned = VARIABLES.into_iter().filter(|name| base.prober.mentions(name));
    mentioned
        .into_iter()
        .find_map(|variable| renders.variable(variable))
        .or_else(|| renders.flags())
}

/// Renders one user message with an effort.
struct EffortRenders<'a> {
    base: &'a Baseline<'a>,
    on: Option<&'a Switch>,
}

impl EffortRenders<'_> {
    fn with(&self, setting: Option<(&'static str, Value)>) -> RenderResult {
        let switch = self.on.map(|switch| (switch.variable, switch.on.clone()));
        let kwargs = setting.into_iter().chain(switch).collect();
        let plain = self.base.probe(vec![self.base.user()]);
        self.base.prober.render(Probe { kwargs, add_generation_prompt: true, ..plain })
    }

    fn variable(&self, variable: &'static str) -> Option<Effort> {
        let unset = self.with(None);
        let texts = EFFORTS.map(|value| (value, self.with(Some((variable, value.into())))));
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
        Some(Effort { variable: Some(variable), flags: Vec::new(), accepted, refused, default })
    }

    fn flags(&self) -> Option<Effort> {
        let unset = self.with(None);
        let changes = |flag: &'static str| {
            let text = self.with(Some((flag, true.into())));
            self.base.prober.mentions(flag) && text.is_ok() && text != unset
        };
        let flags: Vec<_> = FLAGS.into_iter().filter(|(_, flag)| changes(flag)).collect();
        let accepted: Vec<_> = flags.iter().map(|(effort, _)| *effort).collect();
        let found = Effort { variable: None, flags, accepted, refused: Vec::new(), default: None };
        (!found.flags.is_empty()).then_some(found)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
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
        let found = probe(&base, &[on]);
        let found = found.as_ref().map(|e| {
            assert!(e.flags.is_empty());
            (
                e.variable.expect("a variable"),
                e.accepted.as_slice(),
                e.refused.as_slice(),
                e.default,
            )
        });
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
        check(
            &format!("{user}{{% set e = thinking_effort or 'max' %}}{{{{ e }}}}"),
            Some(("thinking_effort", &EFFORTS, &[], Some("max"))),
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

    #[test]
    fn flags() {
        let flags = |source: &str| {
            let mut prober = prober::for_source(source);
            let found = probe(&Baseline::find(&mut prober), &[]);
            found.map_or(Vec::new(), |effort| effort.flags)
        };
        let low =
            "{{ messages[0].content }}{% if low_effort is defined and low_effort %}-{% endif %}";
        assert_eq!(flags(low), [("low", "low_effort")]);
        let both = "{{ messages[0].content }}{{ low_effort or '' }}{{ max_effort or '' }}";
        assert_eq!(flags(both), [("low", "low_effort"), ("max", "max_effort")]);
        assert!(flags("{# low_effort #}{{ messages[0].content }}").is_empty());
    }
}
