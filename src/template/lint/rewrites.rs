//! Lints about contents that change on their way to the prompt: cut at tags, or stripped of
//! whitespace.

use serde_json::Value;

use super::review::{Review, Severity};
use crate::jinja::Inspection;

/// The maximum number of strings of the source to try.
const MAX: usize = 24;
const BEFORE: &str = "text_before";
const AFTER: &str = "text_after";

pub(super) fn review(review: &mut Review<'_>) {
    cuts(review);
    strips(review);
}

/// Returns a conversation with this text.
type ConversationWith<'a> = Box<dyn Fn(&str) -> Vec<Value> + 'a>;

/// Roles, each with a conversation that has a message of the role.
fn conversations<'a>(review: &'a Review<'_>) -> [(&'static str, ConversationWith<'a>); 3] {
    let base = review.base;
    [
        ("system", Box::new(move |text| vec![base.message("system", text), base.user()])),
        ("user", Box::new(move |text| vec![base.message("user", text)])),
        (
            "assistant",
            Box::new(move |text| vec![base.user(), base.message("assistant", text), base.user()]),
        ),
    ]
}

fn cuts(review: &mut Review<'_>) {
    let source: &Inspection = review.source;
    let is_tag = |text: &str| {
        text.starts_with(['<', '['])
            && text.len() > 2
            && text.contains(char::is_alphabetic)
            && !text.contains(|c: char| c.is_whitespace() || c == '"' || c == '\\')
    };
    let mut found = Vec::new();
    for site in source.cuts.iter().filter(|site| is_tag(&site.text)).take(MAX) {
        let tag = &site.text;
        // A template may look for a closing tag only after its opening tag.
        let opening = tag.strip_prefix("</").map(|name| format!("<{name}"));
        let mut roles: Vec<&str> = Vec::new();
        for (role, messages) in conversations(review) {
            let shows = |text: &str| {
                review.render(messages(text)).is_ok_and(|prompt| prompt.contains(text))
            };
            let changes = |text: String, control: String| {
                shows(&control)
                    && review.render(messages(&text)).is_ok_and(|prompt| !prompt.contains(&text))
            };
            let alone = changes(format!("{BEFORE} {tag} {AFTER}"), format!("{BEFORE} - {AFTER}"));
            let both = || {
                opening.as_ref().is_some_and(|opening| {
                    changes(
                        format!("{opening}{BEFORE}{tag} {AFTER}"),
                        format!("-{BEFORE}- {AFTER}"),
                    )
                })
            };
            if alone || both() {
                roles.push(role);
            }
        }
        if !roles.is_empty() {
            let message =
                format!("content that contains `{tag}` is changed ({})", roles.join(", "));
            found.push((site.line, message));
        }
    }
    for (line, message) in found {
        review.add_at(Severity::Warning, "rewrites_content", Some(line), message);
    }
}

fn strips(review: &mut Review<'_>) {
    let mut roles: Vec<&str> = Vec::new();
    for (role, messages) in conversations(review) {
        let text = format!("  {BEFORE}  ");
        let stripped = review
            .render(messages(&text))
            .is_ok_and(|prompt| prompt.contains(BEFORE) && !prompt.contains(&text));
        if stripped {
            roles.push(role);
        }
    }
    if !roles.is_empty() {
        let message = format!("whitespace around the content is removed ({})", roles.join(", "));
        // If several places in the source qualify, the line is unknown.
        let line = match review.source.trims.as_slice() {
            [only] => Some(only.line),
            _ => None,
        };
        review.add_at(Severity::Info, "strips_content", line, message);
    }
}
