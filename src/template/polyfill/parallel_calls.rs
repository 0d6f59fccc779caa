//! Splits a message with several calls into one message per call, each followed by its result, for
//! templates that show one call per message.
//!
//! Every call must have its result, because a call without a result, or a result without a call,
//! would mislead the model.

use super::conversation::{PolyfillContext, PolyfillConversation, PolyfillMessage};
use super::node::Node;
use super::step::PolyfillStep;
use crate::error::{Error, Result};

pub(super) const STEP: PolyfillStep = PolyfillStep {
    name: "parallel_calls",
    applies,
    needs: |message, _| message.calls.is_some_and(|calls| calls.len() > 1),
    run,
};

fn applies(context: &PolyfillContext) -> bool {
    context.options.tool_calls
        && context.caps.supports_tool_calls
        && !context.caps.supports_parallel_tool_calls
}

fn run(conversation: &mut PolyfillConversation, _: &PolyfillContext) -> Result<bool> {
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
    use super::super::tests::case::{PolyfillCase, call, traits};
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
