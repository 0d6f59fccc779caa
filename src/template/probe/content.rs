//! The forms of content that a template accepts: text, parts, none.

use serde_json::{Map, Value, json};

use super::baseline::{Baseline, USER, count, parts, shows_part};
use super::evidence::{Evidence, Pair, RenderResult};
use super::traits::NoContent;

/// The probed traits of content.
pub(crate) struct ContentTraits {
    pub(crate) requires_parts: Evidence,
    pub(crate) requires_non_null: Evidence,
    pub(crate) accepts_parts: bool,
    pub(crate) requires_non_empty: bool,
    pub(crate) ladder: Vec<(&'static str, String)>,
    pub(crate) no_content: NoContent,
}

/// The steps of the ladder.
const STEPS: [(&str, Option<NoContent>); 5] = [
    ("absent", Some(NoContent::Absent)),
    ("null", Some(NoContent::Null)),
    ("\"\"", Some(NoContent::Empty)),
    ("\" \"", Some(NoContent::Space)),
    ("\"aa\"", None),
];

/// Probes the forms of content.
pub(crate) fn probe(base: &Baseline<'_>) -> ContentTraits {
    let texts: Vec<RenderResult> = STEPS
        .iter()
        .map(|(_, form)| {
            let turn = || match form {
                Some(form) => Value::Object(without_content(base, *form)),
                None => base.message("assistant", "aa"),
            };
            let (first, second) =
                (base.message("user", "first_user"), base.message("user", "second_user"));
            base.render(vec![first, turn(), second, turn()])
        })
        .collect();
    // A `None` that the template always prints is not the content.
    let none = texts[4].as_ref().or(base.plain.as_ref()).map_or(0, |text| count(text, "None"));
    let ladder: Vec<(&'static str, String)> =
        STEPS.iter().zip(&texts).map(|((name, _), text)| (*name, state(text, none))).collect();
    let ok = |step: usize| ladder[step].1 == "ok";
    ContentTraits {
        requires_parts: requires_parts(base),
        requires_non_null: requires_non_null(&texts),
        accepts_parts: accepts_parts(base),
        requires_non_empty: !ok(2) && ok(4),
        no_content: if ok(0) {
            NoContent::Absent
        } else if ok(2) {
            NoContent::Empty
        } else {
            NoContent::Space
        },
        ladder,
    }
}

/// An assistant message without content, in this form.
pub(crate) fn without_content(base: &Baseline<'_>, form: NoContent) -> Map<String, Value> {
    let mut message = Map::new();
    message.insert("role".to_owned(), "assistant".into());
    let content = match form {
        NoContent::Absent => return message,
        NoContent::Null => Value::Null,
        NoContent::Empty => base.content(""),
        NoContent::Space => base.content(" "),
    };
    message.insert("content".to_owned(), content);
    message
}

fn lost(text: &str) -> bool {
    !text.contains("first_user") || !text.contains("second_user")
}

fn state(text: &RenderResult, none: usize) -> String {
    match text {
        Err(failure) => failure.message.clone(),
        Ok(text) if lost(text) => "lost".to_owned(),
        Ok(text) if count(text, "None") > none => "prints None".to_owned(),
        Ok(_) => "ok".to_owned(),
    }
}

fn requires_non_null(texts: &[RenderResult]) -> Evidence {
    let pair = Pair {
        probe: "null_content",
        control: "string_content",
        yes: "an assistant message with null content fails or loses text, one with a string does not",
        no: "an assistant message with null content renders",
    };
    let renders = |text: &&RenderResult| text.as_ref().is_ok_and(|text| !lost(text));
    let Some(_) = texts[2..].iter().find(renders) else {
        return match &texts[4] {
            Err(failure) => {
                pair.unknown("an assistant message does not render with any content", failure)
            }
            Ok(_) => pair.conclude(false),
        };
    };
    // A failure of any kind counts, since the other form renders.
    let mut outcome = pair.conclude(!renders(&&texts[1]));
    outcome.error = texts[1].as_ref().err().cloned();
    outcome
}

fn requires_parts(base: &Baseline<'_>) -> Evidence {
    let pair = Pair {
        probe: "user_string",
        control: "user_parts",
        yes: "a user's text appears only as a list of parts",
        no: "a user's text appears as a string",
    };
    if base.typed() {
        return pair.conclude(true);
    }
    match &base.plain {
        Ok(text) if text.contains(USER) => pair.conclude(false),
        Ok(_) => Evidence {
            because: "a user's text appears neither as a string nor as a list of parts".to_owned(),
            ..pair.conclude(false)
        },
        Err(failure) => pair.failed(failure),
    }
}

fn accepts_parts(base: &Baseline<'_>) -> bool {
    if base.typed() {
        return true;
    }
    let message = json!({ "role": "user", "content": parts(USER) });
    base.render(vec![message]).is_ok_and(|text| shows_part(&text, USER))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::template::probe::evidence::EvidenceStatus;
    use crate::template::probe::prober;

    #[track_caller]
    fn check(
        source: &str,
        ladder: [&str; 5],
        no_content: NoContent,
        non_null: EvidenceStatus,
    ) -> ContentTraits {
        let mut prober = prober::for_source(source);
        let content = probe(&Baseline::find(&mut prober));
        let states: Vec<&str> = content.ladder.iter().map(|(_, state)| state.as_str()).collect();
        assert_eq!(states, ladder);
        assert_eq!((content.no_content, content.requires_non_null.status), (no_content, non_null));
        content
    }

    #[test]
    fn a_template_that_tests_its_content_takes_every_form() {
        let source =
            "{% for m in messages %}{% if m.content %}{{ m.content }}{% endif %}{% endfor %}";
        let content = check(source, ["ok"; 5], NoContent::Absent, EvidenceStatus::No);
        assert!(!content.requires_non_empty && content.requires_parts.status == EvidenceStatus::No);
    }

    #[test]
    fn null_is_printed() {
        let source = "{% for m in messages %}{{ m.content }}{% endfor %}";
        check(
            source,
            ["ok", "prints None", "ok", "ok", "ok"],
            NoContent::Absent,
            EvidenceStatus::No,
        );
    }

    #[test]
    fn null_loses_the_conversation() {
        let source = "{% if messages|length > 3 and messages[3].content is none %}lost{% else %}{% for m in messages %}{{ m.content }}{% endfor %}{% endif %}";
        check(source, ["ok", "lost", "ok", "ok", "ok"], NoContent::Absent, EvidenceStatus::Yes);
    }

    #[test]
    fn content_must_not_be_whitespace() {
        let source = "{% for m in messages %}{% if m.content is not string or m.content == '' %}{{ raise_exception('empty') }}{% endif %}{{ m.content }}{% endfor %}";
        let content = check(
            source,
            ["empty", "empty", "empty", "ok", "ok"],
            NoContent::Space,
            EvidenceStatus::Yes,
        );
        assert!(content.requires_non_empty);
        assert_eq!(
            content.requires_non_null.error.map(|failure| failure.kind.as_str()),
            Some("raised")
        );
    }

    #[test]
    fn a_template_without_assistant_turns_is_unknown() {
        let source = "{% for m in messages %}{% if m.role == 'assistant' %}{{ raise_exception('no') }}{% endif %}{{ m.content }}{% endfor %}";
        check(source, ["no"; 5], NoContent::Space, EvidenceStatus::Unknown);
    }

    #[test]
    fn parts() {
        let find = |source: &str| {
            let mut prober = prober::for_source(source);
            let content = probe(&Baseline::find(&mut prober));
            (content.requires_parts.status, content.accepts_parts)
        };
        assert_eq!(find("{{ messages[0].content }}"), (EvidenceStatus::No, false));
        assert_eq!(
            find("{% for p in messages[0].content %}{{ p.text }}{% endfor %}"),
            (EvidenceStatus::Yes, true)
        );
        let both = "{% if messages[0].content is string %}{{ messages[0].content }}{% else %}{{ messages[0].content[0].text }}{% endif %}";
        assert_eq!(find(both), (EvidenceStatus::No, true));
        assert_eq!(find("{{ 'a' + 1 }}"), (EvidenceStatus::Unknown, false));
        assert_eq!(find("{{ raise_exception('never') }}"), (EvidenceStatus::No, false));
    }
}
