//! Maps `enable_thinking`, `reasoning_effort` and `preserve_reasoning` of a request to the
//! variables that the template reads.
//!
//! Templates name their switches differently. The value is set under both the name found by probing
//! and the usual name. A variable that the caller sets always wins.

use serde_json::{Map, Value};

use super::probe::effort;
use super::probe::traits::Traits;
use crate::api::Thinking;
use crate::error::{Error, Result};

/// The caller's variables together with those of `thinking`.
///
/// `INVALID_REQUEST` for an effort that the template refuses.
pub fn variables(
    thinking: &Thinking,
    traits: &Traits,
    kwargs: &Map<String, Value>,
) -> Result<Map<String, Value>> {
    let mut variables = Map::new();
    if let Some(on) = thinking.enabled {
        variables.insert("enable_thinking".to_owned(), on.into());
        for switch in &traits.details.reasoning.switches {
            let value = if on { &switch.on } else { &switch.off };
            variables.insert(switch.variable.to_owned(), value.clone());
        }
    }
    if let Some(preserve) = thinking.preserve {
        variables.insert("preserve_thinking".to_owned(), preserve.into());
        for dropping in ["clear_thinking", "truncate_history_thinking", "drop_thinking"] {
            variables.insert(dropping.to_owned(), (!preserve).into());
        }
    }
    if let Some(effort) = &thinking.effort {
        let known = traits.details.reasoning.effort.as_ref();
        if let Some(known) = known
            && known.refused.contains(&effort.as_str())
        {
            let problem = format!(
                "the chat template refuses {effort:?}; it takes {}",
                known.accepted.join(", ")
            );
            return Err(Error::invalid("reasoning_effort", problem));
        }
        for name in effort::VARIABLES {
            variables.insert(name.to_owned(), effort.as_str().into());
        }
        for (level, flag) in known.iter().flat_map(|known| &known.flags) {
            variables.insert((*flag).to_owned(), (level == effort).into());
        }
    }
    variables.extend(kwargs.clone());
    Ok(variables)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use serde_json::json;

    use super::*;
    use crate::template::{Sources, Templates};

    #[track_caller]
    fn check(template: &str, thinking: &Thinking, kwargs: Value, expected: Value) {
        let sources = Sources { default: Some(template.to_owned()), ..Sources::default() };
        let templates = Templates::compile(&sources).unwrap();
        let got = variables(thinking, templates.traits(), kwargs.as_object().unwrap());
        assert_eq!(got.map_or_else(|error| error.message().into(), Value::Object), expected);
    }

    #[test]
    fn a_switch_with_another_name_is_set_too() {
        let template = "{% for m in messages %}{{ m.content }}{% endfor %}{% if thinking %}<think>{% else %}</think>{% endif %}";
        let on = Thinking { enabled: Some(true), ..Thinking::default() };
        check(template, &on, json!({}), json!({ "enable_thinking": true, "thinking": true }));
        check(
            template,
            &on,
            json!({ "thinking": false }),
            json!({ "enable_thinking": true, "thinking": false }),
        );
        check(template, &Thinking::default(), json!({ "a": 1 }), json!({ "a": 1 }));
    }

    #[test]
    fn an_effort_that_the_template_refuses_is_an_error() {
        let template = "{% set e = reasoning_effort|default('low') %}{% if e not in ['low', 'high'] %}{{ raise_exception('no') }}\
                        {% endif %}{{ e }}{{ messages[0].content }}";
        let effort =
            |effort: &str| Thinking { effort: Some(effort.to_owned()), ..Thinking::default() };
        let all = json!({
            "reasoning_effort": "high", "reasoning_strength": "high", "thinking_effort": "high"
        });
        check(template, &effort("high"), json!({}), all);
        let problem = "reasoning_effort: the chat template refuses \"max\"; it takes low, high";
        check(template, &effort("max"), json!({}), problem.into());
    }

    #[test]
    fn an_effort_with_a_flag_of_its_own_sets_it() {
        let template = "{{ messages[0].content }}{% if low_effort is defined and low_effort %} briefly{% endif %}";
        let flag = |effort: &str| {
            let sources = Sources { default: Some(template.to_owned()), ..Sources::default() };
            let templates = Templates::compile(&sources).unwrap();
            let thinking = Thinking { effort: Some(effort.to_owned()), ..Thinking::default() };
            variables(&thinking, templates.traits(), &Map::new()).unwrap()["low_effort"].clone()
        };
        assert_eq!([flag("low"), flag("high")], [json!(true), json!(false)]);
    }
}
