//! Arguments of calls in the form a template takes: the object that OpenAI's JSON text spells, or
//! that text.
//!
//! For templates that print `arguments | tojson` or walk the members, text would come out as a
//! quoted string or fail. Nothing (absent, null, the empty text) is the empty object; what is not
//! an object goes by `invalid_arguments`.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::conversation::{PolyfillContext, PolyfillConversation};
use super::node::{Node, NodeMembers};
use super::segmented_text::SegmentedText;
use super::{dump, tool_calls};
use crate::api::InvalidArguments;
use crate::error::{Error, Result};
use crate::template::probe::traits::ArgumentForm;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ArgumentsTarget {
    Object,
    Text,
    AsSent,
}

pub(super) fn wanted(context: &PolyfillContext) -> ArgumentsTarget {
    let (caps, taken) = (&context.caps, context.details.arguments);
    if !context.options.object_arguments {
        ArgumentsTarget::AsSent
    } else if caps.requires_object_arguments
        || taken == ArgumentForm::PrefersObject
        || tool_calls::wanted(context)
    {
        ArgumentsTarget::Object
    } else if taken == ArgumentForm::Text {
        ArgumentsTarget::Text
    } else {
        ArgumentsTarget::AsSent
    }
}

pub(super) fn run(
    conversation: &mut PolyfillConversation,
    context: &PolyfillContext,
) -> Result<bool> {
    let wanted = wanted(context);
    if wanted == ArgumentsTarget::AsSent {
        return Ok(false);
    }
    let mut changed = false;
    let mut notes = Vec::new();
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
            let (arguments, invalid) =
                convert(sent, wanted, context.options.invalid_arguments, &path)?;
            if invalid {
                notes.push((index, format!("{path}: not a JSON object")));
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
    for (index, message) in notes {
        conversation.note(code, index, message);
    }
    Ok(changed)
}

/// The arguments in the wanted form, and whether they were no object.
fn convert(
    sent: Option<&Node>,
    wanted: ArgumentsTarget,
    invalid: InvalidArguments,
    path: &str,
) -> Result<(Node, bool)> {
    let object = match sent {
        None | Some(Node::Null) => Some(Node::Map(NodeMembers::default())),
        Some(Node::Map(members)) => Some(Node::Map(members.clone())),
        Some(Node::Text(text)) => match spelled(text.as_str()) {
            Some(_) if wanted == ArgumentsTarget::Text && !text.as_str().trim().is_empty() => {
                return Ok((Node::Text(text.clone()), false));
            }
            Some(object) => {
                Some(Node::of_text(&Value::Object(object), &Arc::from(text.path().unwrap_or(path))))
            }
            None => None,
        },
        Some(_) => None,
    };
    let faulty = object.is_none();
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
        if wanted == ArgumentsTarget::Text { Node::Text(dump::plain(&object)) } else { object };
    Ok((node, faulty))
}

/// The object a text spells; the empty text is the empty object.
fn spelled(text: &str) -> Option<Map<String, Value>> {
    match text.trim() {
        "" => Some(Map::new()),
        text => serde_json::from_str(text).ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::case::{PolyfillCase, call, traits};
    use super::*;
    use crate::template::probe::traits::Traits;
    use serde_json::json;

    fn taking(arguments: ArgumentForm) -> Traits {
        let mut traits = traits();
        traits.details.arguments = arguments;
        traits.caps.requires_object_arguments = arguments == ArgumentForm::Object;
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
        for taken in [ArgumentForm::Object, ArgumentForm::PrefersObject] {
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
        PolyfillCase::new(taking(ArgumentForm::Object), missing)
            .check(empty, &["object_arguments"]);
    }

    #[test]
    fn texts() {
        check(
            taking(ArgumentForm::Text),
            json!({"a": ["é", 1.0]}),
            json!("{\"a\": [\"é\", 1.0]}"),
            None,
        );
        check(taking(ArgumentForm::Text), json!("{ \"a\":1}"), json!("{ \"a\":1}"), None);
        check(taking(ArgumentForm::Text), json!(""), json!("{}"), None);
        check(
            taking(ArgumentForm::Text),
            json!("no"),
            json!("{\"_raw\": \"no\"}"),
            Some("arguments_wrapped"),
        );
        check(taking(ArgumentForm::Either), json!("no"), json!("no"), None);
    }

    #[test]
    fn invalid_arguments_by_option() {
        PolyfillCase::new(taking(ArgumentForm::Object), with(json!("no")))
            .with(|options| options.invalid_arguments = InvalidArguments::String)
            .notes(&[("arguments_kept_as_text", 1)])
            .unchanged();
        PolyfillCase::new(taking(ArgumentForm::Object), with(json!("no")))
            .with(|options| options.invalid_arguments = InvalidArguments::Error)
            .refused("messages[1].tool_calls[0].function.arguments: not a JSON object: \"no\"");
        PolyfillCase::new(taking(ArgumentForm::Object), with(json!("{}")))
            .with(|options| options.object_arguments = false)
            .unchanged();
    }
}
