//! The texts of the probes. Each occurs once in a prompt, and templates do not change it.

pub(super) const USER: &str = "Quserone";
pub(super) const USER_2: &str = "Qusertwo";
/// A user message that precedes [`USER`].
pub(super) const USER_3: &str = "Quserthree";
pub(super) const ANSWER: &str = "Qanswerone";
pub(super) const SYSTEM: &str = "Qsystemone";
pub(super) const SYSTEM_2: &str = "Qsystemtwo";

/// The prefixes of the texts and names of all probes.
const PREFIXES: [&str; 11] = [
    "Quser", "Qanswer", "Qreason", "Qlate", "Qsystem", "Qresult", "Qplace", "qtool", "qcall",
    "qkey", "qskill",
];

/// Whether a text contains a part of a probe, so that it is not constant text of the template.
pub(super) fn contains_needle(text: &str) -> bool {
    PREFIXES.iter().any(|prefix| text.contains(prefix))
}
