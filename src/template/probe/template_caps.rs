//! The sixteen flags of `template_caps`, with their details and evidence. In: a prober. Out:
//! everything that polyfills need.
//!
//! Every flag comes from a pair of renders that differ in one thing. An engine error makes a flag
//! unknown, which counts as false. A probe affects no other flag.

use serde_json::{Value, json};

use super::baseline::Baseline;
use super::calls::{self, CallTraits};
use super::content::{self, ContentTraits};
use super::evidence::Evidence;
use super::message_roles::{self, RoleTraits};
use super::prober::Prober;
use super::reasoning::{self, ReasoningTraits};
use super::reasoning_turns::ReasoningTurns;
use super::traits::{
    Details, Effort, ReasoningDetails, ReasoningFormat, Switch, TemplateCaps, Traits, TraitsReport,
};
use super::{call_example, effort, switches};
use crate::api::Polyfills;
use crate::template::polyfill;

/// Probes a template.
pub(crate) fn report(mut prober: Prober) -> TraitsReport {
    let base = Baseline::find(&mut prober);
    let probed = Probed::by(&base);
    let evidence = probed.evidence(&base);
    let (caps, details) = (probed.caps(), probed.into_details());
    let mut traits = Traits { caps, details, tool_call_example: None };
    if !caps.supports_tools {
        let prepare = |messages: Vec<Value>| {
            let prepared = polyfill::apply(&messages, None, &traits, &Polyfills::default()).ok()?;
            Some(prepared.messages.into_owned())
        };
        traits.tool_call_example = call_example::find(&base, &prepare);
    }
    TraitsReport { traits, evidence }
}

/// The results of all probes.
struct Probed {
    roles: RoleTraits,
    content: ContentTraits,
    calls: CallTraits,
    reasoning: ReasoningTraits,
    clear_thinking: Evidence,
    switches: Vec<Switch>,
    respects_enable: Evidence,
    effort: Option<Effort>,
}

impl Probed {
    fn by(base: &Baseline<'_>) -> Probed {
        let roles = message_roles::probe(base);
        let content = content::probe(base);
        let calls = calls::probe(base);
        let turns = ReasoningTurns::new(base, &calls, content.no_content);
        let reasoning = reasoning::probe(turns);
        // If no reasoning is shown, a switch may still affect the usual field.
        let format = match reasoning.format {
            ReasoningFormat::None => ReasoningFormat::ReasoningContentField,
            format => format,
        };
        let turns = turns.in_format(format);
        let clear_thinking = switches::clear_thinking(turns, base, &reasoning);
        let (switches, respects_enable) = switches::probe(turns, base);
        let effort = effort::probe(base, &switches);
        Probed {
            roles,
            content,
            calls,
            reasoning,
            clear_thinking,
            switches,
            respects_enable,
            effort,
        }
    }

    /// The outcome of each flag. The one of `reasoning_format` has only the evidence.
    fn outcomes(&self) -> [(&'static str, &Evidence); 16] {
        let Probed { roles, content, calls, reasoning, .. } = self;
        [
            ("supports_system_role", &roles.system),
            ("supports_tools", &calls.tools),
            ("supports_tool_calls", &calls.shown),
            ("supports_tool_responses", &calls.results),
            ("supports_tool_call_id", &calls.ids),
            ("supports_parallel_tool_calls", &calls.parallel),
            ("requires_object_arguments", &calls.object_only),
            ("requires_non_null_content", &content.requires_non_null),
            ("requires_typed_content_blocks", &content.requires_parts),
            ("supports_reasoning", &reasoning.supported),
            ("reasoning_format", &reasoning.supported),
            ("reasoning_requires_tools", &reasoning.requires_tools),
            ("supports_clear_thinking", &self.clear_thinking),
            ("supports_reasoning_without_content", &reasoning.without_content),
            ("supports_reasoning_with_content", &reasoning.with_content),
            ("respects_enable_reasoning", &self.respects_enable),
        ]
    }

    fn evidence(&self, base: &Baseline<'_>) -> Vec<(&'static str, Evidence)> {
        let assumed = base.prober.assumed();
        let evidence =
            |outcome: &Evidence| Evidence { assumed: assumed.clone(), ..outcome.clone() };
        self.outcomes().map(|(flag, outcome)| (flag, evidence(outcome))).into()
    }

    fn caps(&self) -> TemplateCaps {
        let flag = |(flag, outcome): (&str, &Evidence)| (flag.to_owned(), outcome.is_yes());
        let mut flags: Value = self.outcomes().into_iter().map(flag).collect();
        flags["reasoning_format"] = json!(self.reasoning.format);
        serde_json::from_value(flags).expect("there is an outcome for every flag")
    }

    fn into_details(self) -> Details {
        let Probed { roles, content, calls, reasoning, .. } = self;
        Details {
            accepts_parts: content.accepts_parts,
            requires_non_empty_content: content.requires_non_empty,
            content_ladder: content.ladder,
            no_content: content.no_content,
            no_content_with_calls: calls.form.content,
            arguments: calls.arguments,
            nine_character_ids: calls.nine_character_ids,
            results_by_position: calls.results_by_position,
            refuses_user_after_result: calls.refuses_user_after_result,
            developer: roles.developer,
            later_system: roles.later_system,
            needs_alternation: roles.needs_alternation,
            reasoning: ReasoningDetails {
                inline: reasoning.inline,
                with_calls: reasoning.with_calls,
                needs: reasoning.needs,
                visible: reasoning.visible,
                switches: self.switches,
                effort: self.effort,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::template::probe::evidence::EvidenceStatus;
    use crate::template::probe::prober;

    #[track_caller]
    fn check(source: &str, yes: &[&str], unknown: &[&str]) -> Traits {
        let TraitsReport { traits, evidence } = report(prober::for_source(source));
        let with = |status| {
            evidence.iter().filter(move |(_, e)| e.status == status).map(|(flag, _)| *flag)
        };
        assert_eq!(with(EvidenceStatus::Yes).collect::<Vec<_>>(), yes);
        assert_eq!(with(EvidenceStatus::Unknown).collect::<Vec<_>>(), unknown);
        // The flags agree with the evidence.
        let flags = traits.caps.to_json();
        for (flag, evidence) in &evidence {
            let expected = evidence.status == EvidenceStatus::Yes;
            let found = if *flag == "reasoning_format" {
                flags[*flag] != "NONE"
            } else {
                flags[*flag] == true
            };
            assert_eq!(found, expected, "{flag}");
        }
        traits
    }

    #[test]
    fn chatml() {
        let traits = check(
            crate::template::sources::CHATML_SOURCE,
            &["supports_system_role", "requires_non_null_content"],
            &[],
        );
        let call = "{\n  \"tool_calls\": [\n    {\n      \"name\": \"tool_name\",\n      \"arguments\": {\n        \"arg1\": \"some_value\"\n      },\n      \"id\": \"call00001\"\n    }\n  ]\n}";
        assert_eq!(traits.tool_call_example.as_deref(), Some(call));
    }

    #[test]
    fn a_template_with_everything() {
        let source = "{{ tools|tojson if tools }}{% for m in messages %}{% if m.reasoning_content and (loop.last or clear_thinking is false) %}{{ m.reasoning_content }}{% endif %}{{ m.role }}{{ m.content or '' }}{% for c in m.tool_calls %}{{ c.function.name }}{{ c.function.arguments|tojson }}{% endfor %}{{ m.tool_call_id }}{% endfor %}{% if enable_thinking is false %}-{% endif %}";
        let traits = check(
            source,
            &[
                "supports_system_role",
                "supports_tools",
                "supports_tool_calls",
                "supports_tool_responses",
                "supports_tool_call_id",
                "supports_parallel_tool_calls",
                "requires_object_arguments",
                "supports_reasoning",
                "reasoning_format",
                "supports_clear_thinking",
                "supports_reasoning_without_content",
                "supports_reasoning_with_content",
                "respects_enable_reasoning",
            ],
            &[],
        );
        assert_eq!(traits.tool_call_example, None);
    }

    #[test]
    fn one_failing_probe_changes_no_other_flag() {
        let source = "{% for m in messages %}{% if m.role == 'system' %}{{ 1 + 'a' }}{% endif %}{{ m.role + m.content }}{% endfor %}";
        check(source, &["requires_non_null_content"], &["supports_system_role"]);
    }

    #[test]
    fn a_hostile_template_is_soon_unknown() {
        let source =
            "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}";
        let TraitsReport { traits, evidence } = report(prober::for_source(source));
        assert!(!traits.caps.supports_tools);
        assert!(evidence.iter().filter(|(_, e)| e.status == EvidenceStatus::Unknown).count() >= 14);
    }
}
