//! Brings assistant messages without content into the form that the template accepts: absent, null,
//! empty or a space.

use serde_json::Value;

use super::conversation::{PolyfillContext, PolyfillConversation, PolyfillMessage};
use super::node::Node;
use super::segmented_text::SegmentedText;
use super::step::{PolyfillStep, SentMessage};
use crate::error::Result;
use crate::template::probe::traits::NoContent;

pub(super) const STEP: PolyfillStep = PolyfillStep {
    name: "null_content",
    applies: |context| context.options.null_content,
    needs,
    run,
};

fn needs(message: &SentMessage, context: &PolyfillContext) -> bool {
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

fn run(conversation: &mut PolyfillConversation, context: &PolyfillContext) -> Result<bool> {
    let mut changed = false;
    for message in conversation.messages.iter_mut().filter(|message| message.has_role("assistant"))
    {
        changed |= set_no_content(message, context);
    }
    Ok(changed)
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
    use super::super::tests::case::{PolyfillCase, call, traits};
    use super::*;
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
