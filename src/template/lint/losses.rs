//! Lints about parts of a request that are missing from the prompt, although it renders.

use serde_json::{Value, json};

use super::review::{ANSWER, CALLED, ID, RESULT, Review, SECOND, SECOND_ID, SYSTEM, Severity};
use crate::probing::Probe;
use crate::template::probe::baseline::{USER, parts};
use crate::template::probe::reasoning_turns;
use crate::template::probe::traits::{RoleSupport, TurnPosition, WithCalls};

pub(super) fn review(review: &mut Review<'_>) {
    messages(review);
    tools(review);
    let caps = &review.traits.caps;
    let (user, answer) = (review.user(), review.answer());
    if !caps.supports_reasoning {
        let mut turn = answer.clone();
        turn["reasoning_content"] = "reasoning_needle".into();
        let text = review.render(vec![user, turn]);
        if text.is_ok_and(|text| !text.contains("reasoning_needle") && text.contains(ANSWER)) {
            review.add(
                Severity::Info,
                "drops_reasoning",
                "the reasoning of an assistant message is not in the prompt in any form",
            );
        }
    } else if drops_old_reasoning(review) {
        review.add(
            Severity::Info,
            "drops_old_reasoning",
            "the reasoning of turns before the last user message is not in the prompt",
        );
    }
}

/// Whether reasoning is dropped from every turn before the last user message, with or without
/// calls. True only if such a turn rendered without its reasoning.
fn drops_old_reasoning(review: &Review<'_>) -> bool {
    let details = &review.traits.details;
    let caps = &review.traits.caps;
    let is_earlier =
        |at: TurnPosition| matches!(at, TurnPosition::History | TurnPosition::ClosedChain);
    if details.reasoning.visible.iter().any(|cell| is_earlier(cell.position)) {
        return false;
    }
    let Some(field) = reasoning_turns::field(caps.reasoning_format) else { return false };
    let with_reasoning = |mut message: Value| {
        message[field] = "reasoning_needle".into();
        message
    };
    let mut conversations = Vec::new();
    if !caps.reasoning_requires_tools {
        conversations.push(vec![review.user(), with_reasoning(review.answer()), review.user()]);
    }
    if caps.supports_tool_calls {
        let call = with_reasoning(review.plain_call());
        conversations.push(vec![
            review.user(),
            call,
            review.result(),
            review.answer(),
            review.user(),
        ]);
    }
    conversations.into_iter().all(|messages| {
        let probe = Probe {
            kwargs: reasoning_turns::kwargs(details.reasoning.needs),
            ..review.base.probe(messages)
        };
        let text = review.base.prober.render(Probe { tools: Some(review.tools()), ..probe });
        text.is_ok_and(|text| text.contains(ANSWER) && !text.contains("reasoning_needle"))
    })
}

fn messages(review: &mut Review<'_>) {
    let (user, answer, system) = (review.user(), review.answer(), review.system());
    let text = review.render(vec![system, user.clone()]);
    if text.as_ref().is_ok_and(|text| !text.contains(SYSTEM)) {
        review.add(Severity::Warning, "drops_system", "a system message is not in the prompt");
    } else if text.is_ok() && review.traits.details.later_system == RoleSupport::Lost {
        review.add(
            Severity::Warning,
            "drops_later_system",
            "a system message after the first message is not in the prompt",
        );
    }
    if review.traits.details.developer == RoleSupport::Lost {
        review.add(
            Severity::Warning,
            "drops_developer",
            "a developer message is not in the prompt",
        );
    }
    let first = review.base.message("user", "first_needle");
    let text = review.render(vec![first, answer, user]);
    if let Ok(text) = text {
        if !text.contains(USER) {
            review.add(
                Severity::Error,
                "drops_last_user",
                "the last user message is not in the prompt",
            );
        }
        if !text.contains("first_needle") {
            review.add(
                Severity::Error,
                "drops_history",
                "an earlier user message is not in the prompt",
            );
        }
        if !text.contains(ANSWER) {
            review.add(
                Severity::Error,
                "drops_answers",
                "an earlier assistant message is not in the prompt",
            );
        }
    }
    let mut two = parts("first_part");
    two.as_array_mut()
        .into_iter()
        .for_each(|list| list.push(json!({ "type": "text", "text": "second_part" })));
    let text = review.render(vec![json!({ "role": "user", "content": two })]);
    if let Ok(text) = text {
        let what = match (text.contains("first_part"), text.contains("second_part")) {
            (true, true) => return,
            (false, false) => "content as a list of text parts",
            (false, true) => "the first of two text parts",
            (true, false) => "the second of two text parts",
        };
        review.add(
            Severity::Warning,
            "drops_content_parts",
            format!("{what} is not in the prompt"),
        );
    }
}

fn tools(review: &mut Review<'_>) {
    let caps = &review.traits.caps;
    let (user, call, result) = (review.user(), review.plain_call(), review.result());
    let declared = review.render_called(vec![user.clone()]);
    if declared.is_ok() && !caps.supports_tools {
        review.add(Severity::Info, "drops_tools", "declared tools are not in the prompt");
    }
    let Ok(text) = review.render_called(vec![user.clone(), call.clone(), result.clone()]) else {
        return;
    };
    // A template without tools is merely plain. A template that shows only some of their parts is a
    // trap.
    let severity = if caps.supports_tools { Severity::Error } else { Severity::Info };
    if !caps.supports_tool_calls && !text.contains("value_needle") {
        let message = "the tool calls of an assistant message are not in the prompt";
        review.add(severity, "drops_tool_calls", message);
    }
    if !text.contains(RESULT) {
        let severity = if caps.supports_tool_calls { Severity::Error } else { severity };
        let message = "the results of tool calls are not in the prompt";
        review.add(severity, "drops_tool_results", message);
    }
    if !caps.supports_tool_calls {
        return;
    }
    let form = review.form();
    let calls = [(ID, CALLED, "value_needle"), (SECOND_ID, SECOND, "other_value")];
    let calls = calls.map(|(id, name, value)| {
        let mut call =
            form.call_of(review.base, name, json!({ "argument": value }))["tool_calls"][0].clone();
        call["id"] = id.into();
        call
    });
    let mut second = result.clone();
    second["tool_call_id"] = SECOND_ID.into();
    second["name"] = SECOND.into();
    let messages = vec![user.clone(), form.calls(review.base, &calls), result.clone(), second];
    if review
        .render_called(messages)
        .is_ok_and(|text| !text.contains("value_needle") || !text.contains("other_value"))
    {
        review.add(
            Severity::Warning,
            "drops_parallel_calls",
            "only one of two tool calls in a message is in the prompt",
        );
    }
    let mut spoken = call;
    spoken["content"] = review.base.content(ANSWER);
    if review.render_called(vec![user, spoken, result]).is_ok_and(|text| !text.contains(ANSWER)) {
        review.add(
            Severity::Warning,
            "drops_content_beside_calls",
            "the content of an assistant message with tool calls is not in the prompt",
        );
    } else if review.traits.details.reasoning.with_calls == WithCalls::ReasoningOnly {
        let message = "the content of an assistant message with reasoning and tool calls is not in \
                       the prompt";
        review.add(Severity::Warning, "drops_content_beside_reasoning", message);
    }
    if caps.supports_reasoning
        && review.traits.details.reasoning.with_calls == WithCalls::ContentOnly
    {
        let message = "the reasoning of an assistant message with content and tool calls is not in \
                       the prompt";
        review.add(Severity::Info, "drops_reasoning_beside_calls", message);
    }
}
