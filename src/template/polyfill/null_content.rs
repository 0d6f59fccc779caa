//! An assistant message without content, said in the form the template accepts: absent, null, empty
//! or a blank.

use super::conversation::{PolyfillContext, PolyfillConversation, PolyfillMessage};
use super::node::Node;
use super::segmented_text::SegmentedText;
use crate::error::Result;
use crate::template::probe::traits::NoContent;

pub(super) fn run(
    conversation: &mut PolyfillConversation,
    context: &PolyfillContext,
) -> Result<bool> {
    let mut changed = false;
    if context.options.null_content {
        for message in conversation.messages.iter_mut().filter(|message| message.is("assistant")) {
            changed |= settle(message, context);
        }
    }
    Ok(changed)
}

fn settle(message: &mut PolyfillMessage, context: &PolyfillContext) -> bool {
    let beside_calls = message.has_calls();
    let details = context.details;
    let form = if beside_calls { details.no_content_beside_calls } else { details.no_content };
    let empty = message.content().and_then(Node::as_text).is_some_and(SegmentedText::is_empty);
    // An empty text is an answer of its own, but beside calls, where the two are the same to say;
    // absent is what it may stay.
    let nothing =
        message.content().is_none() || (empty && beside_calls && form != NoContent::Absent);
    if !nothing {
        return false;
    }
    let text = |text: &str| match context.caps.requires_typed_content_blocks
        && context.options.typed_content
    {
        true => Node::List(vec![Node::part("text", "text", SegmentedText::own(text))]),
        false => Node::own(text),
    };
    let node = match form {
        // A message of nothing but a role is no message.
        NoContent::Absent
            if message.members.iter().all(|(name, _)| name == "role" || name == "content") =>
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

    /// `None` is no member `content`.
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
        traits.details.no_content_beside_calls = form;
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
