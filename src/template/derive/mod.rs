//! Reverse derivation: a foreign chat template in, building blocks out, as far as renders show them.
//!
//! Conversations with texts of their own are rendered; what stands between these texts in the prompts is what the blocks are
//! made of. What was found is composed, and both templates are rendered on conversations with other values: only where these
//! agree is a part called exact. Nothing is read in the template's source, and no family of templates is known by name.
//!
//! A derivation takes at most [`MAX_RENDERS`] renders of the foreign template, each within the limits of a probe.

mod arguments;
mod beyond;
mod call_form;
mod calls;
mod chat;
mod contexts;
mod conversation;
mod draft;
mod formatter;
mod media;
mod part;
mod place;
mod reasoning;
mod renderer;
mod results;
mod roles;
mod rows;
mod skills;
mod system;
mod text;
mod tools;

#[cfg(test)]
mod conformance;

use serde_json::{Map, Value, json};

pub use part::{Part, Status, Verdict};

use super::compose::Composed;
use super::{Sources, Templates};
use crate::error::Result;
use draft::Draft;
use renderer::{Compiled, Renderer};

/// The most renders of a foreign template that one derivation takes.
pub const MAX_RENDERS: usize = 200;

/// A spec in, what renders it out; None for one that cannot be composed.
pub(crate) type Compose<'a> = dyn Fn(&Value) -> Option<Box<dyn Renderer>> + 'a;

/// What was found of a foreign template.
#[derive(Debug, Clone, PartialEq)]
pub struct Derivation {
    /// The ComponentSpec; None when not even plain chat could be found.
    pub spec: Option<Value>,
    /// The parts, in the order of [`Part::ALL`].
    pub parts: Vec<Verdict>,
    /// What the blocks do not say, in words, each once.
    pub residual: Vec<String>,
    /// How often the foreign template was rendered.
    pub renders: usize,
}

impl Derivation {
    /// `{"spec", "parts": {NAME: {"status", "failing"?, "refused"?, "reason"?}}, "residual": [TEXT]}`; `spec` may be null.
    pub fn to_json(&self) -> Value {
        let parts: Map<String, Value> =
            self.parts.iter().map(|verdict| (verdict.part.name().to_owned(), verdict.to_json())).collect();
        json!({ "spec": self.spec, "parts": parts, "residual": self.residual })
    }

    /// How far this part is known.
    pub fn status(&self, part: Part) -> Status {
        self.parts.iter().find(|verdict| verdict.part == part).map_or(Status::Opaque, |verdict| verdict.status)
    }
}

/// Derives building blocks of a template, given with the texts of its BOS and EOS token.
///
/// `TEMPLATE_ERROR` when it does not parse. A template of which nothing can be found is no error: its parts are opaque.
pub fn derive(sources: &Sources) -> Result<Derivation> {
    let foreign = Compiled::new(Templates::compile(sources)?);
    let compose = |spec: &Value| -> Option<Box<dyn Renderer>> {
        let composed = Composed::of(spec, "components").ok()?;
        Some(Box::new(Compiled::new(Templates::compile(&composed.sources()).ok()?)))
    };
    let mut derivation = derivation(&foreign, sources, &compose);
    derivation.renders = foreign.renders();
    Ok(derivation)
}

fn derivation(foreign: &dyn Renderer, sources: &Sources, compose: &Compose<'_>) -> Derivation {
    let (drafts, found) = match chat::derive(foreign) {
        Ok(chat) => {
            let draft = draft(foreign, chat, sources, compose);
            let found = residuals(&draft);
            (draft.ways(), found)
        }
        Err(reason) => (Vec::new(), vec![(Part::Chat, vec![reason])]),
    };
    let wanted = part::wanted(contexts::all(), foreign);
    let judged = |derived: Option<&dyn Renderer>| -> Vec<Verdict> {
        let verdict = |part| {
            // A part rests on those before it.
            let below = found.iter().filter(|(other, _)| *other <= part);
            let known: Vec<String> = below.flat_map(|(_, words)| words.iter().cloned()).collect();
            part::judge(part, &wanted, derived, &known)
        };
        Part::ALL.map(verdict).into()
    };
    let mut best: Option<(Value, Vec<Verdict>)> = None;
    for spec in drafts.iter().map(Draft::spec) {
        let Some(derived) = compose(&spec) else { continue };
        let parts = judged(Some(&*derived));
        if best.as_ref().is_none_or(|(_, known)| part::score(known) < part::score(&parts)) {
            best = Some((spec, parts));
        }
    }
    let mut residual: Vec<String> = Vec::new();
    for words in found.iter().flat_map(|(_, words)| words) {
        if !residual.contains(words) {
            residual.push(words.clone());
        }
    }
    if let Some(derived) = best.as_ref().and_then(|(spec, _)| compose(spec)) {
        residual.extend(beyond::differences(foreign, &*derived));
    }
    let (spec, parts) = match best {
        Some((spec, parts)) => (Some(spec), parts),
        None => (None, judged(None)),
    };
    Derivation { spec, parts, residual, renders: 0 }
}

fn draft(foreign: &dyn Renderer, mut chat: chat::Chat, sources: &Sources, compose: &Compose<'_>) -> Draft {
    let mut reasoning = reasoning::derive(foreign, &mut chat);
    let mut system = system::derive(foreign, &chat, &sources.bos_token);
    if system.inside.is_some() {
        // What begins the first user's turn is the system's.
        system.prefix.clone_into(&mut chat.opening);
        chat.residual.retain(|words| words != chat::FIRST_DIFFERS);
    }
    let tools = tools::derive(foreign, &chat, &mut system, compose);
    let skills = skills::derive(foreign, &chat, &mut system);
    let calls = calls::derive(foreign, &chat, compose);
    let results = results::derive(foreign, &chat, calls.as_ref().is_some_and(|calls| calls.as_text));
    let null_content = calls::null_content(foreign);
    let media = media::derive(foreign);
    reasoning.questions(foreign, results.as_ref());
    let roles = roles::derive(foreign, &chat);
    let eos_token = sources.eos_token.clone();
    Draft { chat, system, tools, calls, results, null_content, skills, media, reasoning, roles, eos_token }
}

/// What does not fit, by the part that it is about.
fn residuals(draft: &Draft) -> Vec<(Part, Vec<String>)> {
    vec![
        (Part::Chat, draft.chat.residual.clone()),
        (Part::System, draft.system.residual.clone()),
        (Part::Tools, draft.tools.as_ref().map(|tools| tools.residual.clone()).unwrap_or_default()),
        (Part::Calls, draft.calls.as_ref().map(|calls| calls.residual.clone()).unwrap_or_default()),
        (Part::Results, draft.results.as_ref().map(|results| results.residual.clone()).unwrap_or_default()),
    ]
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    fn derived(source: &str) -> Derivation {
        derive(&Sources { default: Some(source.to_owned()), bos_token: "<s>".to_owned(), ..Sources::default() }).unwrap()
    }

    #[track_caller]
    fn check(source: &str, expected: [Status; 5]) -> Value {
        let derivation = derived(source);
        let statuses: Vec<Status> = derivation.parts.iter().map(|verdict| verdict.status).collect();
        assert_eq!(statuses, expected, "{}", derivation.to_json());
        derivation.to_json()
    }

    const TURNS: &str = "{% for m in messages %}<{{ m.role }}>{{ m.content }}</>\n{% endfor %}";
    const PROMPT: &str = "{% if add_generation_prompt %}<assistant>{% endif %}";

    #[test]
    fn one_form_for_all_roles() {
        use Status::{Exact, Ignores};
        let source = format!("{{{{ bos_token }}}}{TURNS}{PROMPT}").replace("m.content", "m.content or ''");
        let json = check(&source, [Exact, Exact, Ignores, Ignores, Exact]);
        assert_eq!(
            json["spec"],
            json!({
                "system_template": "<system>{system_message}</>\n",
                "user_template": "<user>{content}</>\n",
                "assistant_template": "<assistant>{content}</>\n",
                "observations_template": "{observations}",
                "single_observation_template": "<tool>{observation}</>\n",
                "stop_words": ["</>"],
                "late_system_template": "<system>{content}</>\n",
                "global_policy": { "prefix": "<s>" },
                "system_policy": { "use_system_without_system_message": false, "use_system_with_tools_provided": false },
            })
        );
        let residual = json["residual"].as_array().unwrap();
        assert!(residual.contains(&json!("developer messages are treated differently")), "{residual:?}");
    }

    #[test]
    fn places() {
        use Status::{Exact, Ignores};
        // A system text in front of the first user's.
        let system = "{% set s = messages[0].content if messages and messages[0].role == 'system' else '' %}\
            {% set seen = namespace(user=false) %}{% for m in messages if m.role != 'system' %}<{{ m.role }}>\
            {% if m.role == 'user' and not seen.user %}{% set seen.user = true %}{{ s ~ '\\n\\n' if s }}{% endif %}\
            {{ m.content or '' }}</>{% endfor %}";
        let json = check(&format!("{system}{PROMPT}"), [Exact, Exact, Ignores, Ignores, Exact]);
        assert_eq!(json["spec"]["system_template"], "{system_message}\n\n");
        assert_eq!(json["spec"]["system_policy"]["placement"], "FIRST_USER");
        assert_eq!(json["spec"]["system_policy"]["empty_message"], "as_none");
        // Today, and each tool on a line of its own, also no tool at all.
        let tools = "[{{ strftime_now('%d %B %Y') }}]{% if tools is not none and tools is defined %}T{% for t in tools %}\
            {{ '\\n' ~ (t | tojson) }}{% endfor %}{% endif %}";
        let source = format!("{tools}{TURNS}{PROMPT}").replace("m.content", "m.content or ''");
        let json = check(&source, [Exact, Exact, Exact, Ignores, Exact]);
        let spec = &json["spec"];
        assert_eq!((&spec["tools_template"], &spec["single_tool_template"]), (&json!("T{tools}"), &json!("\n{tool}")));
        assert_eq!(spec["system_policy"]["date_format"], "%d %B %Y");
        assert_eq!(spec["tool_policy"]["empty_list"], "as_tools");
    }

    #[test]
    fn what_blocks_cannot_say_is_never_exact() {
        use Status::{Exact, Ignores, Opaque, Partial};
        // The date is part of the text.
        check(&format!("[{{{{ strftime_now('%j') }}}}]{TURNS}{PROMPT}"), [Partial, Partial, Ignores, Ignores, Partial]);
        // Words of a tool in other letters.
        let tools = "{% for t in tools or [] %}({{ t.function.name }}: {{ t.function.description | title }}){% endfor %}";
        let source = format!("{tools}{TURNS}{PROMPT}").replace("m.content", "m.content or ''");
        let json = check(&source, [Exact, Exact, Partial, Ignores, Partial]);
        assert!(json["parts"]["tools"]["reason"].as_str().unwrap().contains("no formatter"), "{json}");
        // Nothing at all.
        let json = check("always the same", [Opaque, Ignores, Ignores, Ignores, Ignores]);
        assert_eq!(json["spec"], Value::Null);
        assert_eq!(json["residual"], json!(["the text of a user message is not printed once"]));
    }

    #[test]
    fn forms_of_calls_come_back() {
        for (name, _, components) in crate::template::compose::examples::calls() {
            let composed = Composed::of(&components, "components").unwrap();
            let derivation = derive(&composed.sources()).unwrap();
            for part in [Part::Calls, Part::Results] {
                let status = derivation.status(part);
                let ignored = part == Part::Results && name == "as Python calls functions";
                let expected = if ignored { Status::Ignores } else { Status::Exact };
                assert_eq!(status, expected, "{name} {}: {}", part.name(), derivation.to_json());
            }
        }
    }

    #[test]
    fn a_hostile_template_takes_few_renders() {
        let derivation = derived("{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}");
        assert_eq!(derivation.spec, None);
        assert!(derivation.renders <= MAX_RENDERS);
    }
}
