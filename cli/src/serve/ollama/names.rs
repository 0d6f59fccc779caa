//! Names of models as Ollama's clients send them.

use crate::serve::call::ParsedCall;

/// What Ollama adds to names without a tag.
const TAG: &str = ":latest";

/// Removes the tag from the model's name if only the name without it is known.
pub(super) fn accept_tag(call: &mut ParsedCall) {
    let name = call.body["model"].as_str().or(call.body["name"].as_str());
    let Some(name) = name.map(str::to_owned) else { return };
    let is_known = |name: &str| call.app.named_model(name).is_ok();
    let short = name.strip_suffix(TAG).filter(|short| !is_known(&name) && is_known(short));
    call.body["model"] = short.unwrap_or(&name).into();
}
