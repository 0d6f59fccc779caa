//! The details of a template as JSON, and whether it can carry tools at all. This module does no
//! probing.

use serde_json::{Map, Value, json};

use super::traits::{Details, Effort, ToolSupport, Traits};

impl Traits {
    /// `{"content", "messages", "tools", "reasoning"}`.
    pub fn details_json(&self) -> Value {
        let details = &self.details;
        json!({
            "content": {
                "ladder": ladder(details),
                "parts": details.accepts_parts,
                "requires_non_empty_content": details.requires_non_empty_content,
                "none": details.no_content.as_str(),
            },
            "messages": {
                "developer": details.developer.as_str(),
                "later_system": details.later_system.as_str(),
                "needs_alternation": details.needs_alternation,
            },
            "tools": {
                "content": self.caps.supports_tool_calls.then(|| details.no_content_with_calls.as_str()),
                "arguments": details.arguments.as_str(),
                "nine_character_ids": details.nine_character_ids,
                "results_by_position": details.results_by_position,
                "refuses_user_after_result": details.refuses_user_after_result,
                "example": self.tool_call_example,
            },
            "reasoning": self.reasoning_json(),
        })
    }

    fn reasoning_json(&self) -> Value {
        let details = &self.details.reasoning;
        let visible: Vec<Value> = details
            .visible
            .iter()
            .map(|cell| {
                json!({
                    "position": cell.position,
                    "add_generation_prompt": cell.add_generation_prompt,
                    "flag": flag(cell.flag),
                })
            })
            .collect();
        let switches: Vec<Value> = details
            .switches
            .iter()
            .map(|switch| {
                json!({
                    "variable": switch.variable, "on": switch.on, "off": switch.off,
                    "default": switch.default.map(|on| if on { &switch.on } else { &switch.off }),
                    "positions": switch.positions,
                })
            })
            .collect();
        json!({
            "inline": details.inline,
            "visible": visible,
            "needs": flag(details.needs),
            "with_calls": (self.caps.supports_reasoning && self.caps.supports_tool_calls)
                .then(|| details.with_calls.as_str()),
            "switch": switches.first(),
            "switches": switches,
            "effort": details.effort.as_ref().map(effort_json),
        })
    }

    /// How tools are supported, and why.
    pub fn tool_support(&self) -> (ToolSupport, Vec<String>) {
        let caps = &self.caps;
        if caps.supports_tools && caps.supports_tool_calls {
            let reason = "the template shows declared tools and tool calls".to_owned();
            return (ToolSupport::Native, vec![reason]);
        }
        let mut reasons = Vec::new();
        if !caps.supports_tools {
            reasons.push("the template does not show declared tools".to_owned());
        }
        if !caps.supports_tool_calls {
            reasons.push("the template does not show tool calls".to_owned());
        }
        let text = self
            .details
            .content_ladder
            .iter()
            .find(|(step, _)| *step == "\"aa\"")
            .map(|(_, state)| state.as_str());
        match text {
            Some("ok") => (ToolSupport::Polyfilled, reasons),
            state => {
                let state = state.unwrap_or("not tried");
                reasons.push(format!("a conversation of text does not show either: {state}"));
                (ToolSupport::None, reasons)
            }
        }
    }
}

fn ladder(details: &Details) -> Map<String, Value> {
    details
        .content_ladder
        .iter()
        .map(|(step, state)| ((*step).to_owned(), state.as_str().into()))
        .collect()
}

/// The variables of the effort. `flags` is there if there are any.
fn effort_json(effort: &Effort) -> Value {
    let mut json = json!({
        "variable": effort.variable,
        "accepted": effort.accepted,
        "refused": effort.refused,
        "default": effort.default,
    });
    if !effort.flags.is_empty() {
        json["flags"] = effort.flags.iter().map(|(effort, flag)| (*effort, *flag)).collect();
    }
    json
}

fn flag(flag: Option<(&'static str, bool)>) -> Value {
    flag.map_or(Value::Null, |(name, value)| json!({ name: value }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::template::probe::{prober, template_caps};

    #[track_caller]
    fn check(source: &str, support: &str, reasons: usize) -> Value {
        let traits = template_caps::report(prober::for_source(source)).traits;
        let found = traits.tool_support();
        assert_eq!((found.0.as_str(), found.1.len()), (support, reasons));
        traits.details_json()
    }

    #[test]
    fn tool_support() {
        let turns = "{% for m in messages %}{{ m.content or '' }}{% for c in m.tool_calls %}{{ c.function.name }}{{ c.function.arguments|tojson }}{% endfor %}{% endfor %}";
        check(&format!("{{{{ tools|tojson if tools }}}}{turns}"), "native", 1);
        check(turns, "polyfilled", 1);
        check("{% for m in messages %}{{ m.content }}{% endfor %}", "polyfilled", 2);
        check("{{ messages[0].content }}", "none", 3);
        check("{{ raise_exception('never') }}", "none", 3);
    }

    #[test]
    fn json() {
        let details = check(
            "{% for m in messages %}{{ m.role + m.content }}{% if thinking %}{{ m.thinking }}{% endif %}{% endfor %}{{ reasoning_effort }}",
            "polyfilled",
            2,
        );
        assert_eq!(details["content"]["ladder"]["\"aa\""], "ok");
        assert_eq!(details["content"]["none"], "\"\"");
        assert_eq!(details["tools"]["content"], Value::Null);
        assert_eq!(details["reasoning"]["needs"], json!({ "thinking": true }));
        let switch = json!({ "variable": "thinking", "on": true, "off": false, "default": false, "positions": ["history", "last"] });
        assert_eq!(details["reasoning"]["switch"], switch);
        assert_eq!(details["reasoning"]["effort"]["variable"], "reasoning_effort");
        assert_eq!(
            details["reasoning"]["visible"][0],
            json!({ "position": "last", "add_generation_prompt": false, "flag": { "thinking": true } })
        );
    }
}
