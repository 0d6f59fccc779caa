//! The simplest conversation that a template renders, and probes that vary it.
//!
//! In: a prober. Out: renders of such conversations.

use serde_json::{Value, json};

use super::evidence::RenderResult;
use super::prober::Prober;
use crate::probing::{self, Probe};

/// The text of the user message in every probe.
pub(crate) const USER: &str = "user_needle";

/// The minimum that a template needs to render anything. Probes change one thing at a time.
pub(crate) struct Baseline<'a> {
    pub(crate) prober: &'a Prober,
    /// The value of `tools` when no tools are declared: null, or another value if null does not
    /// render.
    tools: Value,
    /// Whether content must be a list of parts.
    typed: bool,
    /// The prompt of one user message.
    pub(crate) plain: RenderResult,
}

impl<'a> Baseline<'a> {
    /// Finds the simplest conversation. If none renders, binds missing variables.
    pub(crate) fn find(prober: &'a mut Prober) -> Baseline<'a> {
        let probe = |tools: &Value, content: Value| Probe {
            messages: vec![json!({ "role": "user", "content": content })],
            tools: Some(tools.clone()),
            ..Probe::default()
        };
        let bases = [Value::Null, json!([]), json!([tool("other_tool")])];
        let mut first = None;
        for tools in &bases {
            for typed in [false, true] {
                let content = if typed { parts(USER) } else { USER.into() };
                let plain = prober.render(probe(tools, content));
                let shows = plain.as_ref().is_ok_and(|text| {
                    if typed { shows_part(text, USER) } else { text.contains(USER) }
                });
                if shows {
                    return Baseline { prober, tools: tools.clone(), typed, plain };
                }
                first.get_or_insert(plain);
            }
        }
        prober.bind_missing_variables(&probe(&bases[0], USER.into()));
        let plain = match prober.assumed().is_empty() {
            true => first.expect("every base was rendered"),
            false => prober.render(probe(&bases[0], USER.into())),
        };
        Baseline { prober, tools: Value::Null, typed: false, plain }
    }

    /// Whether content must be a list of parts.
    pub(crate) fn typed(&self) -> bool {
        self.typed
    }

    /// The value of `tools` without declared tools.
    pub(crate) fn no_tools(&self) -> &Value {
        &self.tools
    }

    /// This text as content that the template accepts.
    pub(crate) fn content(&self, text: &str) -> Value {
        if self.typed { parts(text) } else { text.into() }
    }

    /// A message with this text.
    pub(crate) fn message(&self, role: &str, text: &str) -> Value {
        json!({ "role": role, "content": self.content(text) })
    }

    /// The user message of every probe.
    pub(crate) fn user(&self) -> Value {
        self.message("user", USER)
    }

    /// A conversation without declared tools.
    pub(crate) fn probe(&self, messages: Vec<Value>) -> Probe {
        Probe { messages, tools: Some(self.tools.clone()), ..Probe::default() }
    }

    /// The prompt of a conversation without declared tools.
    pub(crate) fn render(&self, messages: Vec<Value>) -> RenderResult {
        self.prober.render(self.probe(messages))
    }

    /// The prompt of a conversation with these tools.
    pub(crate) fn render_with(&self, messages: Vec<Value>, tools: &Value) -> RenderResult {
        self.prober.render(Probe { tools: Some(tools.clone()), ..self.probe(messages) })
    }
}

/// A list of one text part.
pub(crate) fn parts(text: &str) -> Value {
    json!([{ "type": "text", "text": text }])
}

/// Whether the text of a content part is printed as text, and not inside a part that is printed as
/// Python or JSON.
pub(crate) fn shows_part(prompt: &str, needle: &str) -> bool {
    let printed = |before: &str| {
        let Some(before) = before.strip_suffix(['\'', '"']) else { return false };
        let Some(before) = before.trim_end_matches([' ', '\\']).strip_suffix(':') else {
            return false;
        };
        before.trim_end_matches([' ', '\\']).ends_with(['\'', '"'])
    };
    prompt.match_indices(needle).any(|(at, _)| !printed(&prompt[..at]))
}

/// A declared tool of this name.
pub(crate) fn tool(name: &str) -> Value {
    let parameters = json!({
        "type": "object",
        "properties": { "declared_parameter": { "type": "string", "description": "Parameter description." } },
        "required": ["declared_parameter"],
    });
    probing::tool(name, "Tool description.", &parameters)
}

/// How often `needle` occurs.
pub(crate) fn count(text: &str, needle: &str) -> usize {
    text.matches(needle).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::template::probe::prober;

    #[track_caller]
    fn check(source: &str, tools: &Value, typed: bool, plain: Option<&str>) {
        let mut prober = prober::for_source(source);
        let base = Baseline::find(&mut prober);
        assert_eq!((&base.tools, base.typed), (tools, typed));
        assert_eq!(base.plain.as_deref().ok(), plain);
    }

    #[test]
    fn the_plainest_conversation() {
        check("{{ messages[0].content }}", &Value::Null, false, Some(USER));
        check(
            "{% for p in messages[0].content %}{{ p.text }}{% endfor %}",
            &Value::Null,
            true,
            Some(USER),
        );
        check(
            "{{ messages[0].content ~ (tools|length) }}",
            &json!([]),
            false,
            Some("user_needle0"),
        );
        let unrelated = json!([tool("other_tool")]);
        check(
            "{{ messages[0].content ~ tools[0].function.name }}",
            &unrelated,
            false,
            Some("user_needleother_tool"),
        );
        check(
            "{{ 'a' + functions + messages[0].content }}",
            &Value::Null,
            false,
            Some("auser_needle"),
        );
        check("{{ raise_exception('never') }}", &Value::Null, false, None);
    }

    #[test]
    fn a_printed_part_is_not_text() {
        assert!(shows_part("User: user_needle", USER));
        assert!(shows_part("User: \"user_needle\"", USER));
        assert!(!shows_part("[{'type': 'text', 'text': 'user_needle'}]", USER));
        assert!(!shows_part(r#"[{"type":"text","text":"user_needle"}]"#, USER));
        assert!(!shows_part(r#""[{\"text\": \"user_needle"#, USER));
        assert!(shows_part("[{'text': 'user_needle'}] user_needle", USER));
    }
}
