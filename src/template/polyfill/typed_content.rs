//! Brings content into the form that a template takes: a list of text parts, or a string.

use serde_json::Value;

use super::conversation::{PolyfillContext, PolyfillConversation, PolyfillMessage};
use super::node::Node;
use super::step::PolyfillStep;
use super::{content, reasoning};
use crate::error::{Error, Result};

pub(super) const STEP: PolyfillStep = PolyfillStep {
    name: "typed_content",
    applies: |context| target(context) != ContentTarget::AsSent,
    needs: |message, context| match target(context) {
        ContentTarget::Parts => message.content.is_some_and(Value::is_string),
        ContentTarget::String => message.content.is_some_and(Value::is_array),
        ContentTarget::AsSent => false,
    },
    run,
};

#[derive(Clone, Copy, PartialEq, Eq)]
enum ContentTarget {
    Parts,
    String,
    AsSent,
}

fn target(context: &PolyfillContext) -> ContentTarget {
    if !context.options.typed_content {
        ContentTarget::AsSent
    } else if context.caps.requires_typed_content_blocks {
        ContentTarget::Parts
    } else if context.details.accepts_parts {
        ContentTarget::AsSent
    } else {
        ContentTarget::String
    }
}

fn run(conversation: &mut PolyfillConversation, context: &PolyfillContext) -> Result<bool> {
    let target = target(context);
    let mut changed = false;
    for message in &mut conversation.messages {
        let new = match (message.content(), target) {
            (Some(Node::Text(text)), ContentTarget::Parts) => {
                Node::List(vec![Node::part("text", "text", text.clone())])
            }
            (Some(Node::List(parts)), ContentTarget::String) => {
                // The reasoning of an earlier turn is already in the template's own form.
                if message.has_role("assistant")
                    && reasoning::is_block(context.caps.reasoning_format)
                    && parts.iter().any(is_reasoning)
                {
                    continue;
                }
                let text = content::join_parts(parts);
                Node::Text(text.map_err(|part| unsupported(message, parts, part))?)
            }
            _ => continue,
        };
        message.set_content(new);
        changed = true;
    }
    Ok(changed)
}

fn is_reasoning(part: &Node) -> bool {
    part.as_map()
        .and_then(|part| part.str("type"))
        .is_some_and(|kind| kind == "thinking" || kind == "thoughts")
}

fn unsupported(message: &PolyfillMessage, parts: &[Node], part: &Node) -> Error {
    let kind = part.as_map().and_then(|part| part.text("type"));
    // An earlier step may have inserted parts. The text of the type keeps its path in the request.
    let sent = kind
        .and_then(|kind| kind.path())
        .and_then(|path| path.strip_suffix(".type"))
        .map(str::to_owned);
    let position = parts.iter().position(|other| other == part).unwrap_or_default();
    let path = sent.unwrap_or_else(|| format!("{}.content[{position}]", message.path()));
    let kind = kind.map_or("none", |kind| kind.as_str());
    Error::invalid(
        path,
        format!("the chat template takes text only, but this part has the type {kind:?}"),
    )
    .with("kind", "unsupported_content_part")
}

#[cfg(test)]
mod tests {
    use super::super::tests::case::{PolyfillCase, call, traits};
    use serde_json::json;

    #[test]
    fn wrap() {
        let mut typed = traits();
        typed.caps.requires_typed_content_blocks = true;
        let sent = json!([{"role": "assistant", "content": "A", "tool_calls": [call("1", "f", json!({}))], "name": "n"}]);
        let part = json!([{"type": "text", "text": "A"}]);
        PolyfillCase::new(typed.clone(), sent.clone()).check(
            json!([{"role": "assistant", "content": part, "tool_calls": [call("1", "f", json!({}))], "name": "n"}]),
            &["typed_content"],
        );
        PolyfillCase::new(typed.clone(), json!([{"role": "user", "content": part}])).unchanged();
        PolyfillCase::new(typed.clone(), sent.clone())
            .with(|options| options.typed_content = false)
            .unchanged();
        typed.details.no_content_with_calls = crate::template::NoContent::Empty;
        PolyfillCase::new(typed, json!([{"role": "assistant", "tool_calls": [call("1", "f", json!({}))]}])).check(
            json!([{"role": "assistant", "content": [{"type": "text", "text": ""}], "tool_calls": [call("1", "f", json!({}))]}]),
            &["null_content"],
        );
    }

    #[test]
    fn flatten() {
        let mut strings = traits();
        strings.details.accepts_parts = false;
        let part = |text: &str| json!({"type": "text", "text": text});
        let marker = json!({"type": "media_marker", "text": "<media>"});
        let sent = json!([{"role": "user", "content": [part("U"), part("V"), marker, part("W")]}]);
        PolyfillCase::new(strings.clone(), sent.clone())
            .check(json!([{"role": "user", "content": "U\nV<media>W"}]), &["typed_content"]);
        PolyfillCase::new(strings.clone(), json!([{"role": "user", "content": []}]))
            .check(json!([{"role": "user", "content": ""}]), &["typed_content"]);
        PolyfillCase::new(traits(), sent).unchanged();
        let image = json!({"type": "image_url", "image_url": {"url": "x"}});
        strings.caps.supports_system_role = false;
        PolyfillCase::new(strings, json!([{"role": "system", "content": "S"}, {"role": "user", "content": [part("U"), image]}]))
            .refused("messages[1].content[1]: the chat template takes text only, but this part has the type \"image_url\"");
    }
}
