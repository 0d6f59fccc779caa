//! Puts results in the order of their calls, for templates that show them by position alone.

use super::super::conversation::{PolyfillContext, PolyfillConversation};
use super::super::node::Node;
use super::super::step::PolyfillStep;
use super::super::tool_exchanges::{ExchangeFault, ToolExchanges};
use crate::error::Result;

/// Orders each run of results by their calls. Reports calls and results that do not belong
/// together, for every template: it shows a conversation that cannot have happened.
pub(super) const RESULT_ORDER: PolyfillStep = PolyfillStep {
    name: "result_order",
    applies: |context| context.options.result_order,
    // One look at the whole conversation.
    needs: |message, context| {
        message.index == 0 && {
            let exchanges =
                ToolExchanges::of_request(message.conversation, context.is_answered_next);
            !exchanges.faults.is_empty() || is_order_lost(&exchanges, context)
        }
    },
    run,
};

fn is_order_lost(exchanges: &ToolExchanges, context: &PolyfillContext) -> bool {
    context.details.results_by_position && !exchanges.unordered.is_empty()
}

fn run(conversation: &mut PolyfillConversation, context: &PolyfillContext) -> Result<bool> {
    let exchanges = ToolExchanges::of(conversation, context.is_answered_next);
    for fault in &exchanges.faults {
        report(conversation, fault);
    }
    if !is_order_lost(&exchanges, context) {
        return Ok(false);
    }
    for by_call in &exchanges.unordered {
        let results: Vec<_> =
            by_call.iter().map(|position| conversation.messages[*position].clone()).collect();
        let start = by_call.iter().copied().min().unwrap_or_default();
        let first = conversation.messages[start].index;
        for (position, result) in (start..).zip(results) {
            conversation.messages[position] = result;
        }
        let message = format!(
            "{} results from this one on were put in the order of their calls, because the prompt \
             does not show which result belongs to which call",
            by_call.len()
        );
        conversation.report("tool_results_reordered", first, message);
    }
    Ok(true)
}

fn report(conversation: &mut PolyfillConversation, fault: &ExchangeFault) {
    let message = &conversation.messages[fault.message()];
    let call_id = |call: usize| {
        let id = message.calls().get(call).and_then(Node::as_map).and_then(|call| call.str("id"));
        id.map_or_else(|| format!("number {}", call + 1), |id| format!("{id:?}"))
    };
    let result_id = message.members.str("tool_call_id").unwrap_or_default();
    let index = message.index;
    match fault {
        ExchangeFault::CallWithoutResult { call, .. } => {
            let text = format!(
                "the call {} has no result; the prompt shows it without one",
                call_id(*call)
            );
            conversation.report("tool_call_without_result", index, text);
        }
        ExchangeFault::ResultWithoutCall { .. } => {
            let text = format!(
                "no call right before this result has the id {result_id:?}; the prompt shows the \
                 result all the same"
            );
            conversation.report("tool_result_without_call", index, text);
        }
        ExchangeFault::RepeatedResult { first, .. } => {
            let first = conversation.messages[*first].path();
            let text =
                format!("the call {result_id:?} has a result in {first}; the prompt shows both");
            conversation.report("tool_result_repeated", index, text);
        }
        ExchangeFault::RepeatedCallId { call, .. } => {
            let text = format!(
                "an earlier call has the id {}; results belong to the calls in their order",
                call_id(*call)
            );
            conversation.report("tool_call_id_repeated", index, text);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::template::polyfill::tests::case::{PolyfillCase, call, traits};
    use crate::template::probe::traits::Traits;
    use serde_json::{Value, json};

    fn by_position() -> Traits {
        let mut traits = traits();
        traits.details.results_by_position = true;
        traits
    }

    fn calls(ids: &[&str]) -> Value {
        let calls: Vec<Value> = ids.iter().map(|id| call(id, "f", json!({}))).collect();
        json!({"role": "assistant", "content": "A", "tool_calls": calls})
    }

    fn result(id: &str, text: &str) -> Value {
        json!({"role": "tool", "tool_call_id": id, "content": text})
    }

    #[test]
    fn order() {
        let user = json!({"role": "user", "content": "U"});
        let sent = json!([user, calls(&["a", "b"]), result("b", "y"), result("a", "x"), user]);
        let ordered = json!([user, calls(&["a", "b"]), result("a", "x"), result("b", "y"), user]);
        PolyfillCase::new(by_position(), sent.clone())
            .notes(&[("tool_results_reordered", 2)])
            .check(ordered.clone(), &["result_order"]);
        PolyfillCase::new(by_position(), ordered).unchanged();
        PolyfillCase::new(by_position(), sent.clone())
            .with(|options| options.result_order = false)
            .unchanged();
        // The template shows ids, so the model can match the results itself.
        PolyfillCase::new(traits(), sent).unchanged();
    }

    #[test]
    fn faults() {
        let user = json!({"role": "user", "content": "U"});
        for traits in [traits(), by_position()] {
            let check = |messages: Value, notes: &[(&'static str, usize)]| {
                PolyfillCase::new(traits.clone(), messages).notes(notes).unchanged();
            };
            check(
                json!([calls(&["a", "b"]), result("b", "y"), user]),
                &[("tool_call_without_result", 0)],
            );
            check(json!([user, result("a", "x")]), &[("tool_result_without_call", 1)]);
            check(
                json!([calls(&["a", "b"]), result("b", "y"), result("b", "z"), result("a", "x")]),
                &[("tool_result_repeated", 2)],
            );
            check(
                json!([calls(&["a", "a"]), result("a", "y"), result("a", "z")]),
                &[("tool_call_id_repeated", 0)],
            );
            check(json!([user, calls(&["a"])]), &[]);
        }
        PolyfillCase::new(traits(), json!([user, result("a", "x")]))
            .with(|options| options.result_order = false)
            .unchanged();
    }

    #[test]
    fn results_that_become_text_are_ordered_too() {
        let mut traits = by_position();
        traits.caps.supports_tool_responses = false;
        let sent = json!([calls(&["a", "b"]), result("b", "y"), result("a", "x")]);
        let text = |id: &str, content: &str| {
            let text = format!(
                "{{\n  \"tool_response\": {{\n    \"content\": \"{content}\",\n    \"tool_call_id\": \"{id}\"\n  }}\n}}"
            );
            json!({"role": "user", "tool_call_id": id, "content": text})
        };
        PolyfillCase::new(traits, sent).notes(&[("tool_results_reordered", 1)]).check(
            json!([calls(&["a", "b"]), text("a", "x"), text("b", "y")]),
            &["result_order", "tool_responses"],
        );
    }
}
