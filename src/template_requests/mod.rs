//! The `llb_template_*` requests: JSON in, JSON out. They need a chat template, but no model.

mod additions;
mod compose;
mod info;
mod parse;
mod render;
mod template;

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test reports by panicking")]
mod tests;

use serde_json::{Value, json};

use crate::api::Fields;

pub use compose::compose;
pub use info::info;
pub use parse::parse;
pub use render::render;

/// The reply with `ignored_keys`, if the request has unknown members.
fn with_ignored_keys(mut reply: Value, fields: &Fields) -> Value {
    let ignored = fields.ignored();
    if !ignored.is_empty() {
        reply["ignored_keys"] = json!(ignored);
    }
    reply
}
