//! `options` of a request: the sampling of the library, under Ollama's names.

use serde_json::Value;

use crate::serve::error::ApiError;
use crate::serve::fields::{self, wrong};
use crate::serve::left_out::{LeftOut, Reason};

/// The names that differ.
const RENAMED: [(&str, &str); 1] = [("num_keep", "n_keep")];
/// The names that are the same.
const SAME: [&str; 14] = [
    "frequency_penalty",
    "min_p",
    "mirostat",
    "mirostat_eta",
    "mirostat_tau",
    "presence_penalty",
    "repeat_last_n",
    "repeat_penalty",
    "seed",
    "stop",
    "temperature",
    "top_k",
    "top_p",
    "typical_p",
];

/// Adds the options to a request. Those that belong to the load of a model are left out.
pub(super) fn add(
    body: &Value,
    request: &mut Value,
    left_out: &mut LeftOut,
) -> Result<(), ApiError> {
    let Some(options) = fields::get(body, "options").and_then(Value::as_object) else {
        return Ok(());
    };
    for (name, value) in options.iter().filter(|(_, value)| !value.is_null()) {
        let renamed = RENAMED.iter().find(|(theirs, _)| theirs == name).map(|(_, ours)| *ours);
        let same = SAME.iter().find(|same| *same == name).copied();
        if let Some(ours) = renamed.or(same) {
            request[ours] = value.clone();
        } else if name == "num_predict" {
            let tokens = value.as_i64();
            let tokens =
                tokens.ok_or_else(|| wrong("options.num_predict", "a whole number", value))?;
            // Negative numbers are no limit.
            if tokens >= 0 {
                request["max_tokens"] = tokens.max(1).into();
            }
        } else {
            let path = format!("options.{}", fields::brief(name));
            left_out.note(Reason::Item, &path, "is an option of the server, set when it starts");
        }
    }
    Ok(())
}
