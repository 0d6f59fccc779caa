//! Converts the arguments of calls to the form that the template takes: an object, or OpenAI's JSON
//! text.
//!
//! A template that prints `arguments | tojson` or loops over the members would quote the text or
//! fail on it. Absent arguments, null and the empty text count as the empty object. The option
//! `invalid_arguments` decides about arguments that are not an object.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::super::conversation::{PolyfillContext, PolyfillConversation};
use super::super::dump;
use super::super::node::{Node, NodeMembers};
use super::super::segmented_text::SegmentedText;
use super::super::step::{PolyfillStep, SentMessage};
use super::tools_as_text::TOOL_CALLS;
use crate::api::InvalidArguments;
use crate::error::{Error, Result};
use crate::json;
use crate::template::probe::traits::AcceptedArguments;

pub(super) const OBJECT_ARGUMENTS: PolyfillStep = PolyfillStep {
    name: "object_arguments",
    applies: |context| target(context) != ArgumentsTarget::AsSent,
    needs,
    run,
};

#[derive(Clone, Copy, PartialEq, Eq)]
enum ArgumentsTarget {
    Object,
    Text,
    AsSent,
}

fn target(context: &PolyfillContext) -> ArgumentsTarget {
    let (caps, form) = (&context.caps, context.details.arguments);
    if !context.options.object_arguments {
        ArgumentsTarget::AsSent
    } else if caps.requires_object_arguments
        || form == AcceptedArguments::PrefersObject
        || (TOOL_CALLS.applies)(context)
    {
        ArgumentsTarget::Object
    } else if form == AcceptedArguments::Text {
        ArgumentsTarget::Text
    } else {
        ArgumentsTarget::AsSent
    }
}

fn needs(message: &SentMessage, context: &PolyfillContext) -> bool {
    let is_object =
        |call: &Value| call.pointer("/function/arguments").is_some_and(Value::is_object);
    // Text must be parsed to find out whether it is an object.
    let parses_text = target(context) == ArgumentsTarget::Text;
    message.each_call().any(|call| parses_text || !is_object(call))
}

fn run(conversation: &mut PolyfillConversation, context: &PolyfillContext) -> Result<bool> {
    let target = target(context);
    let mut changed = false;
    let mut invalid = Vec::new();
    for message in &mut conversation.messages {
        let (index, path) = (message.index, message.path());
        for (number, call) in message.calls_mut().iter_mut().enumerate() {
            let function = call
                .as_map_mut()
                .and_then(|call| call.get_mut("function"))
                .and_then(Node::as_map_mut);
            let Some(function) = function else { continue };
            let path = format!("{path}.tool_calls[{number}].function.arguments");
            let sent = function.get("arguments");
            let (arguments, is_invalid) =
                convert(sent, target, context.options.invalid_arguments, &path)?;
            if is_invalid {
                invalid.push((index, format!("{path}: not a JSON object")));
            }
            if sent != Some(&arguments) {
                function.set("arguments", arguments);
                changed = true;
            }
        }
    }
    let code = match context.options.invalid_arguments {
        InvalidArguments::Wrap => "arguments_wrapped",
        InvalidArguments::String | InvalidArguments::Error => "arguments_kept_as_text",
    };
    for (index, message) in invalid {
        conversation.report(code, index, message);
    }
    Ok(changed)
}

/// The arguments in the target form, and whether they were not an object.
fn convert(
    sent: Option<&Node>,
    target: ArgumentsTarget,
    invalid: InvalidArguments,
    path: &str,
) -> Result<(Node, bool)> {
    let object = match sent {
        None | Some(Node::Null) => Some(Node::Map(NodeMembers::default())),
        Some(Node::Map(members)) => Some(Node::Map(members.clone())),
        Some(Node::Text(text)) => match parse_object(text.as_str()) {
            Some(_) if target == ArgumentsTarget::Text && !text.as_str().trim().is_empty() => {
                return Ok((Node::Text(text.clone()), false));
            }
            Some(object) => {
                let path = Arc::from(text.path().unwrap_or(path));
                Some(Node::parsed_from(&Value::Object(object), &path))
            }
            None => None,
        },
        Some(_) => None,
    };
    let is_invalid = object.is_none();
    let object = match object {
        Some(object) => object,
        None => {
            let text = match sent {
                Some(Node::Text(text)) => text.clone(),
                Some(other) => dump::plain(other),
                None => SegmentedText::default(),
            };
            match invalid {
                InvalidArguments::Wrap => Node::map([("_raw", Node::Text(text))]),
                InvalidArguments::String => return Ok((Node::Text(text), true)),
                InvalidArguments::Error => {
                    let shown: String = text.as_str().chars().take(40).collect();
                    return Err(Error::invalid(path, format!("not a JSON object: {shown:?}")));
                }
            }
        }
    };
    let node =
        if target == ArgumentsTarget::Text { Node::Text(dump::plain(&object)) } else { object };
    Ok((node, is_invalid))
}

/// Parses JSON text that must be an object. The empty text is the empty object.
fn parse_object(text: &str) -> Option<Map<String, Value>> {
    match text.trim() {
        "" => Some(Map::new()),
        text => json::object(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::template::polyfill::tests::case::{PolyfillCase, call, traits};
    use crate::template::probe::traits::Traits;
    use serde_json::json;

    fn taking(arguments: AcceptedArguments) -> Traits {
        let mut traits = traits();
        traits.details.arguments = arguments;
        traits.caps.requires_object_arguments = arguments == AcceptedArguments::Object;
        traits
    }

    fn with(arguments: Value) -> Value {
        json!([{"role": "user", "content": "U"}, {"role": "assistant", "content": "A", "tool_calls": [call("1", "f", arguments)]}])
    }

    #[track_caller]
    fn check(traits: Traits, before: Value, after: Value, note: Option<&'static str>) {
        let notes: Vec<_> = note.into_iter().map(|code| (code, 1)).collect();
        let case = PolyfillCase::new(traits, with(before.clone())).notes(&notes);
        if before == after {
            case.unchanged()
        } else {
            case.check(with(after), &["object_arguments"])
        }
    }

    #[test]
    fn objects() {
        for taken in [AcceptedArguments::Object, AcceptedArguments::PrefersObject] {
            check(
                taking(taken),
                json!("{\"b\": 1, \"a\": [true, null]}"),
                json!({"b": 1, "a": [true, null]}),
                None,
            );
            check(taking(taken), json!(""), json!({}), None);
            check(taking(taken), json!(null), json!({}), None);
            check(taking(taken), json!({"a": 1}), json!({"a": 1}), None);
            check(
                taking(taken),
                json!("not JSON"),
                json!({"_raw": "not JSON"}),
                Some("arguments_wrapped"),
            );
            check(taking(taken), json!("[1]"), json!({"_raw": "[1]"}), Some("arguments_wrapped"));
            check(taking(taken), json!("42"), json!({"_raw": "42"}), Some("arguments_wrapped"));
            check(taking(taken), json!(42), json!({"_raw": "42"}), Some("arguments_wrapped"));
        }
        let missing = json!([{"role": "assistant", "content": "A", "tool_calls": [{"type": "function", "function": {"name": "f"}}]}]);
        let empty = json!([{"role": "assistant", "content": "A", "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": {}}}]}]);
        PolyfillCase::new(taking(AcceptedArguments::Object), missing)
            .check(empty, &["object_arguments"]);
    }

    #[test]
    fn texts() {
        check(
            taking(AcceptedArguments::Text),
            json!({"a": ["é", 1.0]}),
            json!("{\"a\": [\"é\", 1.0]}"),
            None,
        );
        check(taking(AcceptedArguments::Text), json!("{ \"a\":1}"), json!("{ \"a\":1}"), None);
        check(taking(AcceptedArguments::Text), json!(""), json!("{}"), None);
        check(
            taking(AcceptedArguments::Text),
            json!("no"),
            json!("{\"_raw\": \"no\"}"),
            Some("arguments_wrapped"),
        );
        check(taking(AcceptedArguments::Either), json!("no"), json!("no"), None);
    }

    #[test]
    fn invalid_arguments_by_option() {
        PolyfillCase::new(taking(AcceptedArguments::Object), with(json!("no")))
            .with(|options| options.invalid_arguments = InvalidArguments::String)
            .notes(&[("arguments_kept_as_text", 1)])
            .unchanged();
        PolyfillCase::new(taking(AcceptedArguments::Object), with(json!("no")))
            .with(|options| options.invalid_arguments = InvalidArguments::Error)
            .refused("messages[1].tool_calls[0].function.arguments: not a JSON object: \"no\"");
        PolyfillCase::new(taking(AcceptedArguments::Object), with(json!("{}")))
            .with(|options| options.object_arguments = false)
            .unchanged();
    }
}
