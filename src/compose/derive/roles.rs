//! Derives how late system messages and unknown roles are written.

use serde_json::{Value, json};

use super::chat::ChatForm;
use super::probes::{ANSWER, USER, USER_2};
use super::wrapping::with_slot;
use crate::probing::diff::split_at_needles;
use crate::probing::{Probe, ProbeRenderer};

const LATE: &str = "Qlateone";

/// How a template writes late system messages and unknown roles.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct RolesForm {
    /// The value of `unknown_roles`.
    unknown: Option<&'static str>,
    /// The texts around a late system message.
    late: Option<[String; 2]>,
}

/// Derives how both are written.
pub(super) fn derive(foreign: &ProbeRenderer<'_>, chat: &ChatForm) -> RolesForm {
    let with = |role: &str| {
        let message = json!({ "role": role, "content": LATE });
        foreign.prompt(&Probe::from_user(USER).message(message).assistant(ANSWER))
    };
    let system = with("system");
    let unknown = with("developer");
    let mut found = RolesForm::default();
    if unknown.is_some() {
        let without = foreign.prompt(&Probe::from_user(USER).assistant(ANSWER));
        found.unknown = if unknown == without { Some("drop") } else { None };
        if found.unknown.is_none() && unknown == with("user") {
            found.unknown = Some("as_user");
        }
    }
    let known = found.unknown.is_some() && system == unknown;
    if system.is_none() || known {
        return found;
    }
    let late = json!({ "role": "system", "content": LATE });
    let late = foreign.prompt(&Probe::from_user(USER).message(late).user(USER_2));
    let late = late.as_deref().and_then(|late| split_at_needles(late, [USER, LATE, USER_2]));
    if let Some([_, before, after, _]) = late.as_deref()
        && let (Some(before), Some(after)) =
            (before.strip_prefix(&*chat.user.after), after.strip_suffix(&*chat.user.before))
    {
        found.late = Some([before.to_owned(), after.to_owned()]);
    } else if unknown.is_none()
        && system == foreign.prompt(&Probe::from_user(USER).assistant(ANSWER))
    {
        found.unknown = Some("drop");
    }
    found
}

impl RolesForm {
    /// The members of the spec.
    pub(super) fn fields(&self) -> Vec<(&'static str, Value)> {
        let late = self.late.as_ref().map(|[before, after]| with_slot(before, "content", after));
        let late = late.map(|late| ("late_system_template", late.into()));
        late.into_iter()
            .chain(self.unknown.map(|unknown| ("unknown_roles", unknown.into())))
            .collect()
    }
}
