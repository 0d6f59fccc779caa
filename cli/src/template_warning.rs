//! Warns before the first reply of a model whose chat template is missing, or leaves out what the
//! user says.

use serde_json::Value;

use crate::abi;
use crate::arguments::Loading;
use crate::failure::Result;
use crate::terminal::{Look, Style};

/// The findings that make replies useless, with what they mean and the way out.
const FINDINGS: [(&str, &str, &str); 3] = [
    (
        "no_chat_template",
        "the model has no chat template, as base models have none; ChatML is used instead, which it \
         may not understand",
        "`llb run --raw` completes a text; --chat-template FILE uses a template of yours",
    ),
    (
        "drops_last_user",
        "the chat template leaves out what the user says, so the model answers without it",
        "--chat-template FILE uses another template; `llb compose --list` lists some",
    ),
    (
        "drops_history",
        "the chat template leaves out earlier messages of the user",
        "--chat-template FILE uses another template; `llb compose --list` lists some",
    ),
];

/// Warns of the template of a model file, unless the arguments name another one.
pub(crate) fn warn_of_template(path: &str, loading: &Loading) -> Result<()> {
    if loading.chat_template.is_none() {
        warn_of_findings(&abi::model_info(path)?);
    }
    Ok(())
}

/// Warns of the findings in the description of a model.
pub(crate) fn warn_of_findings(info: &Value) {
    let style = Style::stderr();
    let findings = info["findings"].as_array().into_iter().flatten();
    let mut known = findings.filter_map(|finding| {
        FINDINGS.iter().find(|(code, ..)| finding["code"].as_str() == Some(code))
    });
    if let Some((_, meaning, next)) = known.next() {
        say!("{} {meaning}", style.paint(Look::Yellow, "llb:"));
        say!("{} {next}", style.paint(Look::Dim, "next:"));
    }
}
