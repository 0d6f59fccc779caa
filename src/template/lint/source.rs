//! Lints about the source: unknown names, tags that cannot work, undocumented variables.

use super::review::{Review, Severity};
use crate::template::probe::{effort, prober, switches};

/// Variables that transformers or a tokenizer's settings define.
const STANDARD: [&str; 13] = [
    "messages",
    "tools",
    "documents",
    "add_generation_prompt",
    "continue_final_message",
    "bos_token",
    "eos_token",
    "unk_token",
    "pad_token",
    "sep_token",
    "cls_token",
    "mask_token",
    "additional_special_tokens",
];
/// Variables that clients often set, in addition to reasoning switches.
const USUAL: [&str; 8] = [
    "clear_thinking",
    "truncate_history_thinking",
    "preserve_thinking",
    "drop_thinking",
    "date_string",
    "datetime",
    "functions",
    "custom_tools",
];
const BYTE_ORDER_MARK: char = '\u{feff}';
/// The maximum number of variables to name.
const MAX: usize = 16;

pub(super) fn review(review: &mut Review<'_>) {
    let source = review.source;
    if review.base.prober.source().starts_with(BYTE_ORDER_MARK) {
        let message = "the template begins with a byte order mark (U+FEFF), so every prompt does; \
                       save it as UTF-8 without one";
        review.add_at(Severity::Warning, "byte_order_mark", Some(1), message);
    }
    for site in &source.loaders {
        let message = "include, import and extends fail when they are reached: there is no loader";
        review.add_at(Severity::Error, "loader_tag", Some(site.line), message);
    }
    for site in &source.unknown_filters {
        let message = format!("unknown filter `{}`: a render that reaches it fails", site.text);
        review.add_at(Severity::Error, "unknown_filter", Some(site.line), message);
    }
    for site in &source.unknown_tests {
        let message = format!("unknown test `{}`: a render that reaches it fails", site.text);
        review.add_at(Severity::Error, "unknown_test", Some(site.line), message);
    }
    let needed = review.base.prober.assumed();
    for name in &needed {
        let line = source.variables.iter().find(|site| site.text == *name).map(|site| site.line);
        let message = format!("nothing renders unless the request sets the variable `{name}`");
        review.add_at(Severity::Error, "needs_variable", line, message);
    }
    let is_known = |name: &str| {
        STANDARD.contains(&name)
            || USUAL.contains(&name)
            || prober::GLOBALS.contains(&name)
            || switches::is_known(name)
            || effort::is_known(name)
    };
    let odd = source
        .variables
        .iter()
        .filter(|site| !is_known(&site.text) && !needed.contains(&site.text));
    for site in odd.take(MAX) {
        let message = format!(
            "the template reads the variable `{}`, which is undefined unless the request sets it",
            site.text
        );
        review.add_at(Severity::Info, "undocumented_variable", Some(site.line), message);
    }
    if !review.base.no_tools().is_null() && review.base.plain.is_ok() {
        let needed = if review.base.no_tools().as_array().is_some_and(Vec::is_empty) {
            "a list"
        } else {
            "a list of tools"
        };
        let message = format!("a single user message renders only if `tools` is {needed}");
        review.add(Severity::Warning, "needs_tools_list", message);
    }
}
