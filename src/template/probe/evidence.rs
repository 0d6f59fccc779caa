//! Evidence: why a capability flag is set or not. In: two renders that differ in one thing. Out: what
//! they show about a flag.

use serde::Serialize;
use serde_json::{Value, json};

use crate::template::failure::Failure;

named_enum! {
    /// Whether a template has a capability.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub enum EvidenceStatus {
        /// The template has the capability.
        Yes = "yes",
        /// The template lacks the capability, or refuses by `raise_exception`.
        No = "no",
        /// The engine failed before there was an answer.
        #[default]
        Unknown = "unknown",
    }
}

/// A prompt, or the failure of the render.
pub(crate) type RenderResult = Result<String, Failure>;

/// The evidence of one flag.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Evidence {
    /// Whether the template has the capability.
    pub status: EvidenceStatus,
    /// The reason, as one sentence for people.
    pub because: String,
    /// The name of the deciding probe.
    pub probe: &'static str,
    /// The name of the control, which differs from the probe in exactly one thing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub control: Option<&'static str>,
    /// The failure, if a render failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<Failure>,
    /// Variables that were bound to "" because the template does not render without them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub assumed: Vec<String>,
    /// The evidence of llama.cpp's flag of the same name, if it differs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub caps: Option<Box<Evidence>>,
}

impl Evidence {
    /// The evidence as JSON: `{"status","because","probe","control"?,"error"?,"assumed"?,"caps"?}`.
    pub fn to_json(&self) -> Value {
        json!(self)
    }

    /// Whether the flag is set.
    pub(crate) fn is_yes(&self) -> bool {
        self.status == EvidenceStatus::Yes
    }

    /// The evidence for a capability that requires this one.
    pub(crate) fn deny_dependent(&self, because: &'static str) -> Evidence {
        let status = if self.status == EvidenceStatus::Unknown {
            EvidenceStatus::Unknown
        } else {
            EvidenceStatus::No
        };
        Evidence { status, because: because.to_owned(), ..self.clone() }
    }
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
    ) -> Evidence {
        match (test, control) {
            (Ok(test), Ok(control)) => self.conclude(effect(test, control)),
            (_, Err(failure)) => self.unknown("the control of the probe does not render", failure),
            (Err(failure), Ok(_)) => self.failed(failure),
        }
    }

    /// An outcome that needs no comparison.
    pub(crate) fn conclude(self, flag: bool) -> Evidence {
        let (status, because) =
            if flag { (EvidenceStatus::Yes, self.yes) } else { (EvidenceStatus::No, self.no) };
        self.evidence(status, because, None)
    }

    /// The outcome if the test fails and the control renders.
    pub(crate) fn failed(self, failure: &Failure) -> Evidence {
        if !failure.is_refusal() {
            return self.unknown("the engine could not render the probe", failure);
        }
        self.evidence(EvidenceStatus::No, "the template refuses the probe", Some(failure))
    }

    /// The outcome if a render fails for another reason.
    pub(crate) fn unknown(self, because: &'static str, failure: &Failure) -> Evidence {
        self.evidence(EvidenceStatus::Unknown, because, Some(failure))
    }

    fn evidence(
        self,
        status: EvidenceStatus,
        because: &'static str,
        failure: Option<&Failure>,
    ) -> Evidence {
        Evidence {
            status,
            because: because.to_owned(),
            probe: self.probe,
            control: Some(self.control),
            error: failure.cloned(),
            ..Evidence::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jinja::ErrorKind;

    #[test]
    fn findings_of_pairs() {
        let pair = Pair { probe: "test", control: "control", yes: "shows", no: "does not show" };
        let fail = |kind| {
            Err(Failure {
                kind: ErrorKind::parse(kind).expect("a kind"),
                message: "m".to_owned(),
                line: None,
            })
        };
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
