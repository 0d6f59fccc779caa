//! The simplest conversation that a template renders, and probes that vary it.
//!
//! In: a prober. Out: renders of such conversations, and outcomes of pairs of renders that differ
//! in one thing.

use serde_json::{Value, json};

use super::evidence::{Evidence, EvidenceStatus};
use super::prober::Prober;
use crate::probing::{self, Probe};
use crate::template::failure::Failure;

/// A prompt, or the failure of the render.
pub(crate) type RenderResult = Result<String, Failure>;

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

    /// Converts an outcome to an entry of the evidence.
    pub(crate) fn evidence(&self, outcome: ProbeOutcome) -> Evidence {
        Evidence {
            status: outcome.status,
            because: outcome.because.to_owned(),
            probe: outcome.probe,
            control: outcome.control,
            error: outcome.error,
            assumed: self.prober.assumed(),
            ..Evidence::default()
        }
    }
}

/// The conclusion from a pair of renders.
#[derive(Debug, Clone)]
pub(crate) struct ProbeOutcome {
    pub(crate) status: EvidenceStatus,
    pub(crate) because: &'static str,
    pub(crate) probe: &'static str,
    pub(crate) control: Option<&'static str>,
    pub(crate) error: Option<Failure>,
}

/// The names of a pair of renders, and the reasons for either outcome.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pair {
    pub(crate) probe: &'static str,
    pub(crate) control: &'static str,
    pub(crate) yes: &'static str,
    pub(crate) no: &'static str,
}

impl Pair {
    /// Yes if both prompts rendered and `effect` holds for them. No if it does not hold, or if the
    /// template itself rejects only the test. Otherwise unknown.
    pub(crate) fn compare(
        self,
        test: &RenderResult,
        control: &RenderResult,
        effect: impl FnOnce(&str, &str) -> bool,
    ) -> ProbeOutcome {
        match (test, control) {
            (Ok(test), Ok(control)) => self.conclude(effect(test, control)),
            (_, Err(failure)) => self.unknown("the control of the probe does not render", failure),
            (Err(failure), Ok(_)) => self.failed(failure),
        }
    }

    /// An outcome that needs no comparison.
    pub(crate) fn conclude(self, flag: bool) -> ProbeOutcome {
        let (status, because) =
            if flag { (EvidenceStatus::Yes, self.yes) } else { (EvidenceStatus::No, self.no) };
        self.outcome(status, because, None)
    }

    /// The outcome if the test fails and the control renders.
    pub(crate) fn failed(self, failure: &Failure) -> ProbeOutcome {
        if failure.kind != "raised" {
            return self.unknown("the engine could not render the probe", failure);
        }
        self.outcome(EvidenceStatus::No, "the template refuses the probe", Some(failure))
    }

    /// The outcome if a render fails for another reason.
    pub(crate) fn unknown(self, because: &'static str, failure: &Failure) -> ProbeOutcome {
        self.outcome(EvidenceStatus::Unknown, because, Some(failure))
    }

    fn outcome(
        self,
        status: EvidenceStatus,
        because: &'static str,
        failure: Option<&Failure>,
    ) -> ProbeOutcome {
        let (probe, control) = (self.probe, Some(self.control));
        ProbeOutcome { status, because, probe, control, error: failure.cloned() }
    }
}

impl ProbeOutcome {
    /// Whether the flag is set.
    pub(crate) fn is_yes(&self) -> bool {
        self.status == EvidenceStatus::Yes
    }

    /// The outcome for a capability that requires this one.
    pub(crate) fn deny_dependent(&self, because: &'static str) -> ProbeOutcome {
        let status = if self.status == EvidenceStatus::Unknown {
            EvidenceStatus::Unknown
        } else {
            EvidenceStatus::No
        };
        ProbeOutcome { status, because, ..self.clone() }
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

    #[test]
    fn findings_of_pairs() {
        let pair = Pair { probe: "test", control: "control", yes: "shows", no: "does not show" };
        let fail = |kind| Err(Failure { kind, message: "m".to_owned(), line: None });
        let judge = |test: &RenderResult, control: &RenderResult| {
            let outcome = pair.compare(test, control, |test, control| {
                test.contains('x') && !control.contains('x')
            });
            (outcome.status, outcome.error.is_some())
        };
        let ok = |text: &str| Ok(text.to_owned());
        assert_eq!(judge(&ok("x"), &ok("")), (EvidenceStatus::Yes, false));
        assert_eq!(judge(&ok("x"), &ok("x")), (EvidenceStatus::No, false));
        assert_eq!(judge(&ok(""), &ok("")), (EvidenceStatus::No, false));
        assert_eq!(judge(&fail("raised"), &ok("")), (EvidenceStatus::No, true));
        assert_eq!(judge(&fail("type"), &ok("")), (EvidenceStatus::Unknown, true));
        assert_eq!(judge(&ok("x"), &fail("raised")), (EvidenceStatus::Unknown, true));
        assert_eq!(judge(&fail("raised"), &fail("raised")), (EvidenceStatus::Unknown, true));
    }
}
