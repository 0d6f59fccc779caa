//! How a template treats unusual roles and orders: system, developer, a later system message, a
//! second user message.

use super::baseline::{Baseline, USER};
use super::evidence::{Evidence, Pair, RenderResult};
use super::traits::RoleSupport;

const SYSTEM: &str = "system_needle";

/// The probed traits of roles.
pub(crate) struct RoleTraits {
    pub(crate) system: Evidence,
    pub(crate) developer: RoleSupport,
    pub(crate) later_system: RoleSupport,
    pub(crate) needs_alternation: bool,
}

/// Probes the roles.
pub(crate) fn probe(base: &Baseline<'_>) -> RoleTraits {
    let with = |role: &str| base.render(vec![base.message(role, SYSTEM), base.user()]);
    let system = Pair {
        probe: "system_and_user",
        control: "user",
        yes: "the text of a system message appears in the prompt",
        no: "the text of a system message does not appear in the prompt",
    };
    let later = vec![
        base.user(),
        base.message("assistant", "answer"),
        base.message("system", SYSTEM),
        base.user(),
    ];
    RoleTraits {
        system: system.compare(&with("system"), &base.plain, |test, control| {
            test.contains(SYSTEM) && !control.contains(SYSTEM)
        }),
        developer: role_support(&with("developer")),
        later_system: role_support(&base.render(later)),
        needs_alternation: base.plain.is_ok()
            && base.render(vec![base.user(), base.user()]).is_err(),
    }
}

fn role_support(text: &RenderResult) -> RoleSupport {
    match text {
        Ok(text) if text.contains(SYSTEM) && text.contains(USER) => RoleSupport::Shown,
        Ok(_) => RoleSupport::Lost,
        Err(_) => RoleSupport::Refused,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::template::probe::evidence::EvidenceStatus;
    use crate::template::probe::prober;

    #[track_caller]
    fn check(
        source: &str,
        system: EvidenceStatus,
        developer: RoleSupport,
        later_system: RoleSupport,
        needs_alternation: bool,
    ) {
        let mut prober = prober::for_source(source);
        let roles = probe(&Baseline::find(&mut prober));
        assert_eq!(
            (roles.system.status, roles.developer, roles.later_system, roles.needs_alternation),
            (system, developer, later_system, needs_alternation)
        );
    }

    #[test]
    fn roles() {
        let all = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}";
        check(all, EvidenceStatus::Yes, RoleSupport::Shown, RoleSupport::Shown, false);
        let users = "{% for m in messages %}{% if m.role == 'user' %}{{ m.content }}{% endif %}{% endfor %}";
        check(users, EvidenceStatus::No, RoleSupport::Lost, RoleSupport::Lost, false);
        let strict = "{% if messages[0].role == 'system' %}{{ messages[0].content }}{% set messages = messages[1:] %}{% endif %}\
             {% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles') }}{% endif %}\
             {{ m.content }}{% endfor %}";
        check(strict, EvidenceStatus::Yes, RoleSupport::Refused, RoleSupport::Refused, true);
        let fails = "{% for m in messages %}{% if m.role == 'system' %}{{ 1 + 'a' }}{% endif %}{{ m.content }}{% endfor %}";
        check(fails, EvidenceStatus::Unknown, RoleSupport::Shown, RoleSupport::Refused, false);
        let refuses = "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no') }}{% endif %}{{ m.content }}{% endfor %}";
        check(refuses, EvidenceStatus::No, RoleSupport::Shown, RoleSupport::Refused, false);
    }
}
