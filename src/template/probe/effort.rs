//! The variable that sets the reasoning effort, and its values.

use super::baseline::{Baseline, RenderResult};
use super::traits::{Effort, Switch};
use crate::probing::Probe;

const VARIABLES: [&str; 2] = ["reasoning_effort", "reasoning_strength"];
const VALUES: [&str; 8] = ["none", "minimal", "low", "medium", "high", "xhigh", "max", "no_think"];

/// The first variable whose values change the prompt. Reasoning is switched on if there is a
/// switch.
pub(crate) fn probe(base: &Baseline<'_>, switches: &[Switch]) -> Option<Effort> {
    let on = switches.first();
    VARIABLES
        .into_iter()
        .filter(|name| base.prober.mentions(name))
        .find_map(|variable| of(base, variable, on))
}

fn of(base: &Baseline<'_>, variable: &'static str, on: Option<&Switch>) -> Option<Effort> {
    let render = |value: Option<&str>| -> RenderResult {
        let switch = on.map(|switch| (switch.variable, switch.on.clone()));
        let kwargs =
            value.map(|value| (variable, value.into())).into_iter().chain(switch).collect();
        let plain = base.probe(vec![base.user()]);
        base.prober.render(Probe { kwargs, add_generation_prompt: true, ..plain })
    };
    let unset = render(None);
    let texts = VALUES.map(|value| (value, render(Some(value))));
    let values = |wanted: &dyn Fn(&RenderResult) -> bool| -> Vec<&'static str> {
        texts.iter().filter(|(_, text)| wanted(text)).map(|(value, _)| *value).collect()
    };
    let refused = values(&|text| text.as_ref().is_err_and(|failure| failure.kind == "raised"));
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
    let accepted = VALUES
        .into_iter()
        .filter(|value| changed.contains(value) || default == Some(value))
        .collect();
    Some(Effort { variable, accepted, refused, default })
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
            Some(("reasoning_effort", &VALUES, &[], Some("medium"))),
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
