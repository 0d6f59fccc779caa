//! Steps that bring content into the form that a template takes: results of tools as text, no null
//! members, parts or a string, and a form of absent content.

use serde_json::Value;

use super::super::conversation::{PolyfillContext, PolyfillConversation, PolyfillMessage};
use super::super::node::Node;
use super::super::segmented_text::SegmentedText;
use super::super::step::{PolyfillStep, SentMessage, always};
use super::super::{content, dump};
use super::reasoning;
use crate::error::{Error, Result};
use crate::template::probe::traits::NoContent;

/// Turns a tool result of any shape into text. An object, a number, or a list of anything but
/// content parts becomes JSON; null becomes "".
pub(super) const TOOL_CONTENT: PolyfillStep = PolyfillStep {
    name: "tool_content",
    applies: always,
    needs: is_other_result,
    run: |conversation, _| Ok(conversation.change_each(result_to_text)),
};

fn is_other_result(message: &SentMessage, _: &PolyfillContext) -> bool {
    let is_part = |part: &Value| part.get("type").is_some_and(Value::is_string);
    message.role == "tool"
        && match message.content {
            Some(Value::String(_)) | None => false,
            Some(Value::Array(parts)) => !parts.iter().all(is_part),
            Some(_) => true,
        }
}

fn result_to_text(message: &mut PolyfillMessage) -> bool {
    if !message.has_role("tool") {
        return false;
    }
    let text = match message.members.get("content") {
        Some(Node::Text(_)) | None => return false,
        Some(Node::List(parts)) if parts.iter().all(is_part) => return false,
        Some(Node::Null) => Node::literal(""),
        Some(result) => Node::Text(dump::plain(result)),
    };
    message.set_content(text);
    true
}

/// Whether the value is a content part, which has a type as in OpenAI's API.
fn is_part(node: &Node) -> bool {
    node.as_map().is_some_and(|part| part.text("type").is_some())
}

/// Removes null members, for templates that test whether a member is present. Null content is left
/// to [`NULL_CONTENT`].
pub(super) const NULL_MEMBERS: PolyfillStep = PolyfillStep {
    name: "null_members",
    applies: always,
    needs: |message, _| message.members().any(|(name, value)| value.is_null() && name != "content"),
    run: |conversation, _| {
        let keep = |name: &str, node: &Node| name == "content" || *node != Node::Null;
        Ok(conversation.change_each(|message| message.members.retain(keep)))
    },
};

/// Brings content into the form that a template takes: a list of text parts, or a string.
pub(super) const TYPED_CONTENT: PolyfillStep = PolyfillStep {
    name: "typed_content",
    applies: |context| target(context) != ContentTarget::AsSent,
    needs: |message, context| match target(context) {
        ContentTarget::Parts => message.content.is_some_and(Value::is_string),
        ContentTarget::String => message.content.is_some_and(Value::is_array),
        ContentTarget::AsSent => false,
    },
    run: set_form,
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

fn set_form(conversation: &mut PolyfillConversation, context: &PolyfillContext) -> Result<bool> {
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

/// Brings assistant messages without content into the form that the template accepts: absent, null,
/// empty or a space.
pub(super) const NULL_CONTENT: PolyfillStep = PolyfillStep {
    name: "null_content",
    applies: |context| context.options.null_content,
    needs: may_lack_content,
    run: |conversation, context| {
        Ok(conversation.change_each(|message| {
            message.has_role("assistant") && set_no_content(message, context)
        }))
    },
};

fn may_lack_content(message: &SentMessage, context: &PolyfillContext) -> bool {
    let details = context.details;
    message.role == "assistant"
        && match message.content {
            None => [details.no_content, details.no_content_with_calls]
                .iter()
                .any(|form| *form != NoContent::Absent),
            Some(Value::String(text)) => text.is_empty() && message.has("tool_calls"),
            Some(content) => content.is_null(),
        }
}

fn set_no_content(message: &mut PolyfillMessage, context: &PolyfillContext) -> bool {
    let has_calls = message.has_calls();
    let details = context.details;
    let form = if has_calls { details.no_content_with_calls } else { details.no_content };
    let empty = message.content().and_then(Node::as_text).is_some_and(SegmentedText::is_empty);
    // Without calls, an empty text is an answer. With calls it means the same as no content, and
    // stays if the template accepts absent content.
    let has_no_content =
        message.content().is_none() || (empty && has_calls && form != NoContent::Absent);
    if !has_no_content {
        return false;
    }
    let text = |text: &str| match context.caps.requires_typed_content_blocks
        && context.options.typed_content
    {
        true => Node::List(vec![Node::part("text", "text", SegmentedText::literal(text))]),
        false => Node::literal(text),
    };
    let node = match form {
        // A message must have more than a role.
        NoContent::Absent
            if message
                .members
                .iter()
                .all(|member| member.name == "role" || member.name == "content") =>
        {
            text("")
        }
        NoContent::Absent => return message.members.remove("content").is_some(),
        NoContent::Null => Node::Null,
        NoContent::Empty => text(""),
        NoContent::Space => text(" "),
    };
    if message.members.get("content") == Some(&node) {
        return false;
    }
    message.set_content(node);
    true
}

#[cfg(test)]
mod tests {
    mod tool_content {
        use crate::template::polyfill::tests::case::{PolyfillCase, traits};
        use serde_json::{Value, json};

        #[track_caller]
        fn check(content: Value, text: &str) {
            let result =
                |content: Value| json!([{"role": "tool", "tool_call_id": "1", "content": content}]);
            PolyfillCase::new(traits(), result(content))
                .part()
                .check(result(json!(text)), &["tool_content"]);
        }

        #[test]
        fn cases() {
            check(json!({"temp": 21.5, "note": "é \"x\""}), r#"{"temp": 21.5, "note": "é \"x\""}"#);
            check(json!([1, {"a": null}]), r#"[1, {"a": null}]"#);
            check(json!(7), "7");
            check(json!(false), "false");
            check(json!(null), "");
            for content in [json!("{}"), json!([{"type": "text", "text": "R"}])] {
                PolyfillCase::new(
                    traits(),
                    json!([{"role": "tool", "tool_call_id": "1", "content": content}]),
                )
                .part()
                .unchanged();
            }
            PolyfillCase::new(traits(), json!([{"role": "user", "content": {"a": 1}}])).unchanged();
        }
    }

    mod null_members {
        use crate::template::polyfill::tests::case::{PolyfillCase, traits};
        use serde_json::json;

        #[test]
        fn cases() {
            PolyfillCase::new(
                traits(),
                json!([{"role": "user", "content": "U", "name": null, "x": 1}]),
            )
            .check(json!([{"role": "user", "content": "U", "x": 1}]), &["null_members"]);
            PolyfillCase::new(
                traits(),
                json!([{"role": "assistant", "content": "A", "tool_calls": null}]),
            )
            .check(json!([{"role": "assistant", "content": "A"}]), &["null_members"]);
        }
    }

    mod typed_content {
        use crate::template::polyfill::tests::case::{PolyfillCase, call, traits};
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
            PolyfillCase::new(typed.clone(), json!([{"role": "user", "content": part}]))
                .unchanged();
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
            let sent =
                json!([{"role": "user", "content": [part("U"), part("V"), marker, part("W")]}]);
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

    mod null_content {
        use super::super::*;
        use crate::template::polyfill::tests::case::{PolyfillCase, call, traits};
        use serde_json::{Value, json};

        /// Checks a form. `None` means that the member `content` is absent.
        #[track_caller]
        fn check(form: NoContent, calls: bool, before: Option<Value>, after: Option<Value>) {
            let message = |content: &Option<Value>| {
                let mut message = json!({"role": "assistant"});
                if let Some(content) = content {
                    message["content"] = content.clone();
                }
                if calls {
                    message["tool_calls"] = json!([call("1", "f", json!({}))]);
                } else {
                    message["reasoning_content"] = json!("R");
                }
                json!([message])
            };
            let mut traits = traits();
            traits.details.no_content = form;
            traits.details.no_content_with_calls = form;
            let case = PolyfillCase::new(traits.clone(), message(&before));
            if before == after {
                return case.unchanged();
            }
            case.check(message(&after), &["null_content"]);
            PolyfillCase::new(traits, message(&before))
                .with(|options| options.null_content = false)
                .unchanged();
        }

        #[test]
        fn cases() {
            let (null, empty, space, text) =
                (Some(json!(null)), Some(json!("")), Some(json!(" ")), Some(json!("A")));
            for calls in [false, true] {
                check(NoContent::Absent, calls, None, None);
                check(NoContent::Absent, calls, null.clone(), None);
                check(NoContent::Absent, calls, empty.clone(), empty.clone());
                check(NoContent::Empty, calls, None, empty.clone());
                check(NoContent::Empty, calls, null.clone(), empty.clone());
                check(NoContent::Empty, calls, empty.clone(), empty.clone());
                check(NoContent::Null, calls, null.clone(), null.clone());
                check(NoContent::Null, calls, None, null.clone());
                check(NoContent::Space, calls, null.clone(), space.clone());
                check(NoContent::Space, calls, text.clone(), text.clone());
            }
            check(NoContent::Null, true, empty.clone(), null);
            check(NoContent::Space, true, empty.clone(), space);
            check(NoContent::Space, false, empty.clone(), empty);
            PolyfillCase::new(
                traits(),
                json!([{"role": "assistant", "content": null, "tool_calls": []}]),
            )
            .check(
                json!([{"role": "assistant", "content": ""}]),
                &["empty_tool_calls", "null_content"],
            );
            PolyfillCase::new(traits(), json!([{"role": "user", "content": null}])).unchanged();
        }
    }
}
