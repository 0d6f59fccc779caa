//! Lints of prompts that depend on more than their messages in order: moved messages, the date,
//! later turns.

use serde_json::Value;

use super::review::{Review, Severity};
use crate::probing::Probe;
use crate::probing::diff::{common_prefix, start_of_unfinished_marker};
use crate::template::probe::baseline::count;

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
        let positions: Vec<Option<usize>> = said.iter().map(|needle| text.find(needle)).collect();
        let shown: Vec<usize> = positions.iter().flatten().copied().collect();
        if !shown.is_sorted() {
            let what = if skipped == 0 {
                "a system message comes after later messages"
            } else {
                "messages are not in their order"
            };
            let message = format!("{what} in the prompt of a longer conversation");
            review.add(Severity::Warning, "reorders_messages", message);
        }
        if let Some(twice) = said.iter().zip(roles).find(|(said, _)| count(&text, said) > 1) {
            let message =
                format!("the content of a {} message is in the prompt more than once", twice.1);
            review.add(Severity::Warning, "repeats_content", message);
        }
        if shown.len() == said.len() {
            break;
        }
    }
}

/// Whether the prompt of the second question starts with that of the first question.
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
        // The generation prompt may differ from the start of the answer.
        let kept = common_beginning(&ended, &prompt);
        let same = common_beginning(&prompt[..kept], &next);
        if same < kept && prompt[same..kept].chars().any(|c| !c.is_whitespace()) {
            let message = format!(
                "the next prompt of a conversation{when} does not start with the previous one: \
                 they differ from byte {same} of {kept}, where a prompt cache starts over"
            );
            review.add(Severity::Info, "breaks_prompt_cache", message);
            return;
        }
    }
}

/// The length of the common prefix, without a marker that is cut.
fn common_beginning(a: &str, b: &str) -> usize {
    start_of_unfinished_marker(a, common_prefix(a, b))
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
    // 100 days, a minute and a second later is another day of another month.
    const DAYS: i64 = 100 * 86_400;
    let none = review.base.no_tools();
    let (severity, message) = if differs(61, none) {
        (Severity::Warning, "the prompt contains the time of day: a prompt cache never helps")
    } else if differs(DAYS, none) {
        (Severity::Warning, "the prompt contains the date: prompt caches start over every day")
    } else if differs(DAYS, &tools) {
        let message = "the prompt contains the date when tools are declared: prompt caches start over \
                       every day";
        (Severity::Warning, message)
    } else {
        (Severity::Info, "the template reads the date, but not in a plain conversation")
    };
    review.add_at(severity, "depends_on_date", Some(line), message);
}
