//! What changes a prompt apart from its own messages: the order they are put in, the date, what was
//! said later.

use serde_json::Value;

use super::{Review, Severity};
use crate::probing::Probe;
use crate::template::probe::baseline::count;
use crate::template::probe::generation_prompt::start_of_unfinished_marker;

const QUESTIONS: [&str; 4] = ["first_question", "first_answer", "second_question", "second_answer"];

pub(super) fn review(review: &mut Review<'_>) {
    positions(review);
    prefix(review);
    date(review);
}

fn positions(review: &mut Review<'_>) {
    let base = review.base;
    let said = ["system_needle", QUESTIONS[0], QUESTIONS[1], QUESTIONS[2]];
    let roles = ["system", "user", "assistant", "user"];
    for skipped in [0, 1] {
        let (said, roles) = (&said[skipped..], &roles[skipped..]);
        let messages =
            roles.iter().zip(said).map(|(role, text)| base.message(role, text)).collect();
        let Ok(text) = review.render(messages) else { continue };
        let places: Vec<Option<usize>> = said.iter().map(|text_of| text.find(text_of)).collect();
        let shown: Vec<usize> = places.iter().flatten().copied().collect();
        if !shown.is_sorted() {
            let what = if skipped == 0 {
                "a system message stands behind later messages"
            } else {
                "messages change places"
            };
            let message = format!("{what} in the prompt of a longer conversation");
            review.add(Severity::Warning, "reorders_messages", None, message);
        }
        if let Some(twice) = said.iter().zip(roles).find(|(said, _)| count(&text, said) > 1) {
            let message = format!(
                "the content of a message of role {} is in the prompt more than once",
                twice.1
            );
            review.add(Severity::Warning, "repeats_content", None, message);
        }
        if shown.len() == said.len() {
            break;
        }
    }
}

/// Whether what was sent for the first question is still how the prompt of the second one begins.
fn prefix(review: &mut Review<'_>) {
    let base = review.base;
    let first = || vec![base.message("user", QUESTIONS[0])];
    let second = || {
        let mut messages = first();
        messages.push(base.message("assistant", QUESTIONS[1]));
        messages.push(base.message("user", QUESTIONS[2]));
        messages
    };
    let tools = review.tools();
    let mut cases = vec![(base.no_tools().clone(), "")];
    if review.traits.caps.supports_tools {
        cases.push((tools, ", when tools are declared,"));
    }
    for (tools, when) in cases {
        let render = |messages: Vec<Value>, add_generation_prompt: bool| {
            let probe =
                Probe { tools: Some(tools.clone()), add_generation_prompt, ..base.probe(messages) };
            base.prober.render(probe)
        };
        let (Ok(ended), Ok(prompt), Ok(next)) =
            (render(first(), false), render(first(), true), render(second(), true))
        else {
            continue;
        };
        // The generation prompt itself may well be another one than the answer's beginning.
        let kept = shared(&ended, &prompt);
        let same = shared(&prompt[..kept], &next);
        if same < kept && prompt[same..kept].chars().any(|c| !c.is_whitespace()) {
            let message = format!(
                "an answered prompt{when} is not how the next one begins: they differ from byte {same} of {kept} on, so that a \
                 prompt cache starts over there"
            );
            review.add(Severity::Info, "breaks_prompt_cache", None, message);
            return;
        }
    }
}

/// How many bytes two texts begin with in common; no half characters or markers.
fn shared(a: &str, b: &str) -> usize {
    let mut cut = a.bytes().zip(b.bytes()).take_while(|(a, b)| a == b).count();
    while !a.is_char_boundary(cut) {
        cut -= 1;
    }
    start_of_unfinished_marker(a, cut)
}

fn date(review: &mut Review<'_>) {
    let source = review.source;
    let Some(line) =
        source.globals.iter().find(|site| site.text == "strftime_now").map(|site| site.line)
    else {
        return;
    };
    let at = |later: i64, tools: &Value| {
        let probe = review.base.probe(vec![review.base.user()]);
        review.base.prober.render(Probe {
            later,
            add_generation_prompt: true,
            tools: Some(tools.clone()),
            ..probe
        })
    };
    let tools = review.tools();
    let differs = |later: i64, tools: &Value| {
        let (now, then) = (at(0, tools), at(later, tools));
        now.is_ok() && then.is_ok() && now != then
    };
    // 100 days and a minute and a second: another day of another month.
    const DAYS: i64 = 100 * 86_400;
    let none = review.base.no_tools();
    let (severity, message) = if differs(61, none) {
        (
            Severity::Warning,
            "the prompt has the time of day in it: no two prompts begin alike, and no prompt cache helps",
        )
    } else if differs(DAYS, none) {
        (
            Severity::Warning,
            "the prompt has the date in it: it changes from day to day, and prompt caches start over",
        )
    } else if differs(DAYS, &tools) {
        (
            Severity::Warning,
            "the prompt has the date in it when tools are declared: prompt caches start over every day",
        )
    } else {
        (Severity::Info, "asks for the date, though not in a plain conversation")
    };
    review.add(severity, "depends_on_date", Some(line), message);
}
