//! Steps for the shape of calls: no empty lists, a type for each call, one call per message.

use serde_json::Value;

use super::super::conversation::{PolyfillContext, PolyfillConversation, PolyfillMessage};
use super::super::node::Node;
use super::super::step::{PolyfillStep, always};
use crate::error::{Error, Result};

/// Removes empty lists of calls, because templates mistake the member for a call.
pub(super) const EMPTY_TOOL_CALLS: PolyfillStep = PolyfillStep {
    name: "empty_tool_calls",
    applies: |context| context.options.empty_tool_calls,
    needs: |message, _| message.calls.is_some_and(<[_]>::is_empty),
    run: |conversation, _| {
        let is_empty = |node: &Node| matches!(node, Node::List(calls) if calls.is_empty());
        let keep = |name: &str, node: &Node| name != "tool_calls" || !is_empty(node);
        Ok(conversation.change_each(|message| message.members.retain(keep)))
    },
};

/// Adds the type `function` to calls without a type. Templates print the member, or skip calls of
/// other types.
pub(super) const CALL_TYPE: PolyfillStep = PolyfillStep {
    name: "call_type",
    applies: always,
    needs: |message, _| {
        message.each_call().any(|call| {
            call.get("function").is_some() && !call.get("type").is_some_and(Value::is_string)
        })
    },
    run: |conversation, _| Ok(conversation.change_each(add_types)),
};

fn add_types(message: &mut PolyfillMessage) -> bool {
    let mut changed = false;
    for call in message.calls_mut().iter_mut().filter_map(Node::as_map_mut) {
        if call.get("function").is_some() && call.text("type").is_none() {
            call.set_before("function", "type", Node::literal("function"));
            changed = true;
        }
    }
    changed
}

/// Splits a message with several calls into one message per call, each followed by its result, for
/// templates that show one call per message.
///
/// Every call must have its result, because a call without a result, or a result without a call,
/// would mislead the model.
pub(super) const PARALLEL_CALLS: PolyfillStep = PolyfillStep {
    name: "parallel_calls",
    applies: |context| {
        context.options.tool_calls
            && context.caps.supports_tool_calls
            && !context.caps.supports_parallel_tool_calls
    },
    needs: |message, _| message.calls.is_some_and(|calls| calls.len() > 1),
    run: split_calls,
};

fn split_calls(conversation: &mut PolyfillConversation, _: &PolyfillContext) -> Result<bool> {
    let mut changed = false;
    let mut rest = std::mem::take(&mut conversation.messages).into_iter().peekable();
    while let Some(message) = rest.next() {
        if message.calls().len() < 2 {
            conversation.messages.push(message);
            continue;
        }
        let mut results = Vec::new();
        while let Some(result) = rest.next_if(|message| message.has_role("tool")) {
            results.push(result);
        }
        let text = format!(
            "the message was split: its {} calls were sent one by one, each with its result",
            message.calls().len()
        );
        conversation.report("tool_calls_split", message.index, text);
        conversation.messages.extend(split(&message, results)?);
        changed = true;
    }
    Ok(changed)
}

fn split(
    message: &PolyfillMessage,
    mut results: Vec<PolyfillMessage>,
) -> Result<Vec<PolyfillMessage>> {
    let mut out = Vec::with_capacity(message.calls().len() + results.len());
    let mut first = true;
    for (number, call) in message.calls().iter().enumerate() {
        let id = call.as_map().and_then(|call| call.str("id"));
        let by_id = results
            .iter()
            .position(|result| id.is_some() && result.members.str("tool_call_id") == id);
        // Without ids, results are matched to calls by their order.
        let answer = by_id.or_else(|| {
            results.iter().position(|result| result.members.str("tool_call_id").is_none())
        });
        let Some(answer) = answer else {
            let path = format!("{}.tool_calls[{number}]", message.path());
            let problem = "no tool message follows with the result of this call; \
                           the chat template shows one call per message, each with its result";
            return Err(Error::invalid(path, problem));
        };
        let mut single = message.clone();
        if !first {
            // Content and reasoning are kept only once.
            single.members.retain(|name, _| name == "role" || name == "tool_calls");
        }
        first = false;
        single.members.set("tool_calls", Node::List(vec![call.clone()]));
        out.push(single);
        out.push(results.remove(answer));
    }
    out.append(&mut results);
    Ok(out)
}

#[cfg(test)]
mod tests {
    mod empty_tool_calls {
        use crate::template::polyfill::tests::case::{PolyfillCase, traits};
        use serde_json::json;

        #[test]
        fn cases() {
            let empty = json!([{"role": "assistant", "content": "A", "tool_calls": []}]);
            PolyfillCase::new(traits(), empty.clone())
                .check(json!([{"role": "assistant", "content": "A"}]), &["empty_tool_calls"]);
            PolyfillCase::new(traits(), empty)
                .with(|options| options.empty_tool_calls = false)
                .unchanged();
        }
    }

    mod call_type {
        use crate::template::polyfill::tests::case::{PolyfillCase, call, traits};
        use serde_json::json;

        #[test]
        fn cases() {
            let with = |calls: serde_json::Value| json!([{"role": "assistant", "content": "A", "tool_calls": calls}]);
            let whole =
                json!({"id": "1", "type": "function", "function": {"name": "f", "arguments": {}}});
            PolyfillCase::new(
                traits(),
                with(json!([{"id": "1", "function": {"name": "f", "arguments": {}}}])),
            )
            .check(with(json!([whole])), &["call_type"]);
            PolyfillCase::new(
                traits(),
                with(
                    json!([{"id": "1", "type": null, "function": {"name": "f", "arguments": {}}}]),
                ),
            )
            .check(with(json!([whole])), &["call_type"]);
            PolyfillCase::new(traits(), with(json!([call("1", "f", json!({}))]))).unchanged();
            // This is not OpenAI's shape, and no step guesses what it means.
            PolyfillCase::new(traits(), with(json!([{"name": "f", "arguments": {}}]))).unchanged();
        }
    }

    mod parallel_calls {
        use crate::template::polyfill::tests::case::{PolyfillCase, call, traits};
        use crate::template::probe::traits::Traits;
        use serde_json::json;

        fn single() -> Traits {
            let mut traits = traits();
            traits.caps.supports_parallel_tool_calls = false;
            traits
        }

        #[test]
        fn cases() {
            let (one, two) = (call("1", "f", json!({})), call("2", "g", json!({})));
            let result = |id: &str| json!({"role": "tool", "tool_call_id": id, "content": id});
            let user = json!({"role": "user", "content": "U"});
            let both = json!({"role": "assistant", "content": "A", "tool_calls": [one, two]});
            let sent = json!([user, both, result("2"), result("1"), user]);
            let first = json!({"role": "assistant", "content": "A", "tool_calls": [one]});
            let second = json!({"role": "assistant", "tool_calls": [two]});
            PolyfillCase::new(single(), sent.clone()).notes(&[("tool_calls_split", 1)]).check(
                json!([user, first, result("1"), second, result("2"), user]),
                &["parallel_calls"],
            );
            let bare = json!({"role": "tool", "content": "R"});
            PolyfillCase::new(single(), json!([both, bare, bare]))
                .notes(&[("tool_calls_split", 0)])
                .check(json!([first, bare, second, bare]), &["parallel_calls"]);
            PolyfillCase::new(single(), json!([user, both, result("1"), user])).refused(
                "messages[1].tool_calls[1]: no tool message follows with the result of this call; the chat template shows one call per message, each with its result",
            );
            PolyfillCase::new(single(), json!([user, first, result("1")])).unchanged();
            PolyfillCase::new(single(), sent.clone())
                .with(|options| options.tool_calls = false)
                .unchanged();
            PolyfillCase::new(traits(), sent).unchanged();
        }
    }
}
