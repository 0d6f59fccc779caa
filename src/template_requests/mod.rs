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

use crate::api::{self, Fields};
use crate::error::Result;
use crate::output::{ParsedReply, ReplyParser};

/// Runs an `llb_template_compose` request: composes `components`, derives the components of a Jinja
/// template (`derive_from`), or lists the registered templates (`list`).
pub fn compose(request: &str) -> Result<Value> {
    run(request, compose::compose)
}

/// Runs an `llb_template_info` request.
pub fn info(request: &str) -> Result<Value> {
    run(request, info::info)
}

/// Runs an `llb_template_parse` request.
pub fn parse(request: &str) -> Result<Value> {
    parse_by(request, |mut parser, output| {
        parser.push(output);
        parser.finish().1
    })
}

/// Like [`parse()`]. `read` passes the output to the reply parser, in pieces of any size.
fn parse_by(request: &str, read: impl FnOnce(ReplyParser, &str) -> ParsedReply) -> Result<Value> {
    run(request, |fields| parse::parse(fields, read))
}

/// Runs an `llb_template_render` request.
pub fn render(request: &str) -> Result<Value> {
    run(request, render::render)
}

/// The reply to a request, with `ignored_keys` if the request has unknown members.
fn run(request: &str, reply: impl FnOnce(&mut Fields<'_>) -> Result<Value>) -> Result<Value> {
    let request = api::parse(request, "request_json")?;
    let mut fields = Fields::new("", &request)?;
    let mut reply = reply(&mut fields)?;
    let ignored = fields.ignored();
    if !ignored.is_empty() {
        reply["ignored_keys"] = json!(ignored);
    }
    Ok(reply)
}
