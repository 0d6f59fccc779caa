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

#[cfg(feature = "engine")]
pub(crate) use render::RenderedMessages;

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
    parse_by(request, parse_whole)
}

fn parse_whole(mut parser: ReplyParser, output: &str) -> ParsedReply {
    parser.push(output);
    parser.finish().1
}

/// Like [`parse()`]. `read` passes the output to the reply parser, in pieces of any size.
fn parse_by(request: &str, read: impl FnOnce(ReplyParser, &str) -> ParsedReply) -> Result<Value> {
    run(request, |fields| parse::parse(fields, read).map(parse::into_json))
}

/// Runs an `llb_template_render` request.
pub fn render(request: &str) -> Result<Value> {
    run(request, |fields| render::render(fields).map(render::RenderedMessages::into_json))
}

/// The reply to a request, with `ignored_keys` if the request has unknown members.
fn run(request: &str, reply: impl FnOnce(&mut Fields<'_>) -> Result<Value>) -> Result<Value> {
    let request = api::parse(request, "request_json")?;
    let (mut reply, ignored) = read(&request, reply)?;
    if !ignored.is_empty() {
        reply["ignored_keys"] = json!(ignored);
    }
    Ok(reply)
}

/// The reply to a request that is not text, and the unknown members of the request.
fn read<'a, T>(
    request: &'a Value,
    reply: impl FnOnce(&mut Fields<'a>) -> Result<T>,
) -> Result<(T, Vec<String>)> {
    let mut fields = Fields::new("", request)?;
    let reply = reply(&mut fields)?;
    Ok((reply, fields.ignored()))
}

/// Like [`info()`], for a request that is not text.
#[cfg(feature = "engine")]
pub(crate) fn info_value(request: &Value) -> Result<Value> {
    read(request, info::info).map(|(info, _)| info)
}

/// Like [`render()`], for a request that is not text. Also returns its unknown members.
#[cfg(feature = "engine")]
pub(crate) fn render_value(request: &Value) -> Result<(RenderedMessages, Vec<String>)> {
    read(request, render::render)
}

/// Like [`parse()`], for a request that is not text. Also returns its unknown members.
#[cfg(feature = "engine")]
pub(crate) fn parse_value(request: &Value) -> Result<(ParsedReply, Vec<String>)> {
    read(request, |fields| parse::parse(fields, parse_whole))
}
