//! Steps for the reasoning of earlier turns: its names in requests, and the form that a template
//! reads.

use super::super::content;
use super::super::conversation::{
    PolyfillContext, PolyfillConversation, PolyfillMessage, diagnostic,
};
use super::super::node::Node;
use super::super::segmented_text::SegmentedText;
use super::super::step::{PolyfillStep, SentMessage, always};
use crate::api::ReasoningConflict;
use crate::diagnostic::Diagnostic;
use crate::error::Result;
use crate::template::probe::traits::{ReasoningFormat, WithCalls};

/// The names of reasoning in requests, besides `reasoning_content`.
const ALIASES: [&str; 2] = ["thinking", "reasoning"];

/// Unifies the names of an assistant's reasoning. `reasoning_content` becomes the first of itself,
/// `thinking` and `reasoning` that is not null, as in transformers 5.23.
pub(super) const REASONING_ALIAS: PolyfillStep = PolyfillStep {
    name: "reasoning_alias",
    applies: always,
    needs: |message, _| {
        message.role == "assistant"
            && !message.has_text("reasoning_content")
            && ALIASES.iter().any(|name| message.has_text(name))
    },
    run: |conversation, _| Ok(conversation.change_each(rename_alias)),
};

fn rename_alias(message: &mut PolyfillMessage) -> bool {
    if !message.has_role("assistant") || message.members.text("reasoning_content").is_some() {
        return false;
    }
    let alias = ALIASES.into_iter().find(|name| message.members.text(name).is_some());
    let Some(node) = alias.and_then(|name| message.members.get(name)).cloned() else {
        return false;
    };
    message.members.set("reasoning_content", node);
    true
}

fn is_canonical_or_alias(name: &str) -> bool {
    name == "reasoning_content" || ALIASES.contains(&name)
}

/// Brings `reasoning_content` into the form that a template reads: a member of another name, a part
/// of the content, or a mapping of blocks.
///
/// Also handles templates that refuse both content and reasoning in a message with calls, and
/// reports reasoning and content that the template does not show.
pub(super) const REASONING: PolyfillStep =
    PolyfillStep { name: "reasoning", applies: |context| context.options.reasoning, needs, run };

/// Whether the format is a part in a list of content parts.
pub(super) fn is_block(format: ReasoningFormat) -> bool {
    matches!(format, ReasoningFormat::ThinkingContentBlock | ReasoningFormat::ThoughtsContentBlock)
}

fn needs(message: &SentMessage, context: &PolyfillContext) -> bool {
    let shown_as_sent = context.caps.reasoning_format == ReasoningFormat::ReasoningContentField
        && !context.caps.reasoning_requires_tools
        && !(message.has("tool_calls") && message.has("content"));
    message.role == "assistant" && message.has_text("reasoning_content") && !shown_as_sent
}

fn run(conversation: &mut PolyfillConversation, context: &PolyfillContext) -> Result<bool> {
    if !conversation.messages.iter().any(|message| message.reasoning().is_some()) {
        return Ok(false);
    }
    let format = context.caps.reasoning_format;
    let PolyfillConversation { messages, diagnostics, .. } = conversation;
    let mut changed = false;
    for message in messages.iter_mut().filter(|message| message.has_role("assistant")) {
        if message.reasoning().is_some() {
            changed |= resolve_conflict(message, context, diagnostics);
            changed |= move_reasoning(message, context, diagnostics);
        } else if format == ReasoningFormat::BlocksMapping {
            changed |= to_blocks(message, None);
        }
    }
    Ok(changed)
}

/// Handles a message with calls, reasoning and content if the template refuses or drops some of
/// them.
fn resolve_conflict(
    message: &mut PolyfillMessage,
    context: &PolyfillContext,
    diagnostics: &mut Vec<Diagnostic>,
) -> bool {
    let reasoning = message.reasoning().filter(|text| !text.is_empty()).cloned();
    // This template may accept whitespace as the form of empty content.
    let content = message
        .content()
        .and_then(content::plain_text)
        .filter(|text| !text.as_str().trim().is_empty());
    let (Some(reasoning), Some(content), true) = (reasoning, content, message.has_calls()) else {
        return false;
    };
    let mut report = |code, text: &str| diagnostics.push(diagnostic(code, text, message.index));
    match (context.details.reasoning.with_calls, context.options.reasoning_conflict) {
        (WithCalls::Both, _) | (WithCalls::Raises, ReasoningConflict::Keep) => return false,
        (WithCalls::Raises, ReasoningConflict::Merge) => {
            report(
                "content_merged_into_reasoning",
                "the content was appended to the reasoning: the template refuses both in a message \
                 with tool calls",
            );
            message
                .members
                .set("reasoning_content", Node::Text(reasoning.followed_by("\n\n", &content)));
            message.members.retain(|name, _| name != "thinking" && name != "reasoning");
        }
        (WithCalls::Raises, ReasoningConflict::Drop) => {
            report(
                "content_dropped",
                "the content was dropped: the template refuses content and reasoning in a message \
                 with tool calls",
            );
        }
        (shown, _) => {
            if shown != WithCalls::ContentOnly {
                report(
                    "content_not_rendered",
                    "the template does not show the content of a message with reasoning and tool \
                     calls",
                );
            }
            if shown != WithCalls::ReasoningOnly {
                report(
                    "reasoning_not_rendered",
                    "the template does not show the reasoning of a message with content and tool \
                     calls",
                );
            }
            return false;
        }
    }
    message.members.remove("content");
    true
}

fn move_reasoning(
    message: &mut PolyfillMessage,
    context: &PolyfillContext,
    diagnostics: &mut Vec<Diagnostic>,
) -> bool {
    let Some(reasoning) = message.reasoning().cloned() else { return false };
    let index = message.index;
    let mut report = |code, text: &str| {
        if !reasoning.is_empty() {
            diagnostics.push(diagnostic(code, text, index));
        }
    };
    let format = context.caps.reasoning_format;
    let requires_calls =
        context.caps.reasoning_requires_tools && format != ReasoningFormat::ToolPlanField;
    if requires_calls && format != ReasoningFormat::None && !message.has_calls() {
        report(
            "reasoning_not_rendered",
            "the template shows reasoning only in messages with tool calls",
        );
    }
    match format {
        ReasoningFormat::ReasoningContentField => return false,
        ReasoningFormat::ThoughtField => move_to_member(message, "thought", reasoning),
        ReasoningFormat::ThinkingField => move_to_member(message, "thinking", reasoning),
        ReasoningFormat::ReasoningField => move_to_member(message, "reasoning", reasoning),
        ReasoningFormat::ToolPlanField if message.has_calls() => {
            move_to_member(message, "tool_plan", reasoning)
        }
        ReasoningFormat::ToolPlanField => {
            report(
                "tool_plan_without_calls",
                "the reasoning was dropped: the template shows it only in messages with tool calls",
            );
            remove_reasoning(message);
        }
        ReasoningFormat::ThinkingContentBlock => {
            prepend_part(message, reasoning, |text| Node::part("thinking", "thinking", text))
        }
        ReasoningFormat::ThoughtsContentBlock => {
            prepend_part(message, reasoning, |text| Node::part("thoughts", "text", text))
        }
        ReasoningFormat::BlocksMapping => {
            remove_reasoning(message);
            to_blocks(message, Some(reasoning));
        }
        ReasoningFormat::None
            if context.options.reasoning_inline && context.details.reasoning.inline =>
        {
            remove_reasoning(message);
            let mut text = SegmentedText::literal("<think>\n");
            text.push(&reasoning);
            text.push_str("\n</think>\n\n");
            let inline = content::join(Some(Node::Text(text)), "", message.take_content());
            message.set_content(inline);
        }
        ReasoningFormat::None => {
            report(
                "reasoning_not_rendered",
                "the template does not show reasoning of earlier turns",
            );
            return false;
        }
    }
    true
}

fn remove_reasoning(message: &mut PolyfillMessage) {
    message.members.retain(|name, _| !is_canonical_or_alias(name));
}

fn move_to_member(message: &mut PolyfillMessage, native: &str, reasoning: SegmentedText) {
    message.members.retain(|name, _| name == native || !is_canonical_or_alias(name));
    message.members.set(native, Node::Text(reasoning));
}

/// Makes the reasoning the first part of the content.
fn prepend_part(
    message: &mut PolyfillMessage,
    reasoning: SegmentedText,
    part: impl Fn(SegmentedText) -> Node,
) {
    remove_reasoning(message);
    if reasoning.is_empty() {
        return;
    }
    let mut parts = vec![part(reasoning)];
    parts.extend(message.take_content().map(content::into_parts).unwrap_or_default());
    message.set_content(Node::List(parts));
}

/// Makes the content `{"blocks":[thoughts?, response?]}`, unless it already is a mapping.
fn to_blocks(message: &mut PolyfillMessage, reasoning: Option<SegmentedText>) -> bool {
    let response = match message.content() {
        Some(content) => match content::plain_text(content) {
            Some(text) => Some(text),
            None => return false,
        },
        None if reasoning.is_none() => return false,
        None => None,
    };
    let thoughts =
        reasoning.filter(|text| !text.is_empty()).map(|text| Node::part("thoughts", "text", text));
    let response =
        response.filter(|text| !text.is_empty()).map(|text| Node::part("response", "text", text));
    let blocks = Node::List(thoughts.into_iter().chain(response).collect());
    message.set_content(Node::map([("blocks", blocks)]));
    true
}

#[cfg(test)]
mod tests {
    mod reasoning_alias {
        use crate::template::polyfill::tests::case::{PolyfillCase, traits};
        use serde_json::json;

        #[test]
        fn cases() {
            PolyfillCase::new(traits(), json!([{"role": "assistant", "content": "A", "reasoning": "R"}])).check(
                json!([{"role": "assistant", "content": "A", "reasoning": "R", "reasoning_content": "R"}]),
                &["reasoning_alias"],
            );
            PolyfillCase::new(traits(), json!([{"role": "assistant", "content": "A", "reasoning": "R", "thinking": "T"}])).check(
                json!([{"role": "assistant", "content": "A", "reasoning": "R", "thinking": "T", "reasoning_content": "T"}]),
                &["reasoning_alias"],
            );
            PolyfillCase::new(traits(), json!([{"role": "assistant", "content": "A", "reasoning": "R", "reasoning_content": "C"}]))
                .unchanged();
            PolyfillCase::new(
                traits(),
                json!([{"role": "user", "content": "A", "reasoning": "R"}]),
            )
            .unchanged();
        }
    }

    mod reasoning {
        use super::super::*;
        use crate::template::polyfill::tests::case::{PolyfillCase, call, traits};
        use crate::template::probe::traits::{NoContent, Traits};
        use serde_json::{Value, json};

        fn reading(format: ReasoningFormat) -> Traits {
            let mut traits = traits();
            traits.caps.reasoning_format = format;
            traits
        }

        #[track_caller]
        fn check(format: ReasoningFormat, before: Value, after: Value) {
            PolyfillCase::new(reading(format), json!([before]))
                .check(json!([after]), &["reasoning"]);
        }

        #[test]
        fn members() {
            let sent = json!({"role": "assistant", "reasoning_content": "R", "content": "C"});
            check(
                ReasoningFormat::ThoughtField,
                sent.clone(),
                json!({"role": "assistant", "content": "C", "thought": "R"}),
            );
            check(
                ReasoningFormat::ThinkingField,
                sent.clone(),
                json!({"role": "assistant", "content": "C", "thinking": "R"}),
            );
            check(
                ReasoningFormat::ReasoningField,
                sent.clone(),
                json!({"role": "assistant", "content": "C", "reasoning": "R"}),
            );
            let overwritten = json!({"role": "assistant", "reasoning_content": "R", "content": "C", "thought": "old"});
            check(
                ReasoningFormat::ThoughtField,
                overwritten,
                json!({"role": "assistant", "content": "C", "thought": "R"}),
            );
            check(
                ReasoningFormat::ThoughtField,
                json!({"role": "assistant", "reasoning_content": "R"}),
                json!({"role": "assistant", "thought": "R"}),
            );
            PolyfillCase::new(reading(ReasoningFormat::ThinkingField), json!([sent]))
                .with(|options| options.reasoning = false)
                .unchanged();
            PolyfillCase::new(reading(ReasoningFormat::ReasoningContentField), json!([sent]))
                .unchanged();
            PolyfillCase::new(reading(ReasoningFormat::None), json!([sent]))
                .notes(&[("reasoning_not_rendered", 0)])
                .unchanged();
            let alias = json!([{"role": "assistant", "reasoning": "R", "content": "C"}]);
            PolyfillCase::new(reading(ReasoningFormat::ThoughtField), alias).check(
                json!([{"role": "assistant", "content": "C", "thought": "R"}]),
                &["reasoning_alias", "reasoning"],
            );
            let mut beside_calls = reading(ReasoningFormat::ReasoningContentField);
            beside_calls.caps.reasoning_requires_tools = true;
            PolyfillCase::new(beside_calls, json!([sent]))
                .notes(&[("reasoning_not_rendered", 0)])
                .unchanged();
        }

        #[test]
        fn tool_plan() {
            let calls = json!([call("1", "f", json!({}))]);
            check(
                ReasoningFormat::ToolPlanField,
                json!({"role": "assistant", "reasoning_content": "R", "content": "C", "tool_calls": calls}),
                json!({"role": "assistant", "content": "C", "tool_calls": calls, "tool_plan": "R"}),
            );
            PolyfillCase::new(
                reading(ReasoningFormat::ToolPlanField),
                json!([{"role": "assistant", "reasoning_content": "R", "content": "C"}]),
            )
            .notes(&[("tool_plan_without_calls", 0)])
            .check(json!([{"role": "assistant", "content": "C"}]), &["reasoning"]);
        }

        #[test]
        fn parts() {
            let block = json!({"type": "thinking", "thinking": "R"});
            let text = json!({"type": "text", "text": "C"});
            let format = ReasoningFormat::ThinkingContentBlock;
            let sent = |content: Value| json!({"role": "assistant", "reasoning_content": "R", "content": content});
            let after = |content: Value| json!({"role": "assistant", "content": content});
            check(format, sent(json!("C")), after(json!([block, text])));
            check(format, sent(json!(null)), after(json!([block])));
            check(format, sent(json!([text])), after(json!([block, text])));
            let thoughts = json!({"type": "thoughts", "text": "R"});
            check(
                ReasoningFormat::ThoughtsContentBlock,
                sent(json!("C")),
                after(json!([thoughts, text])),
            );
            let alias = json!([{"role": "assistant", "thinking": "R", "content": "C"}]);
            PolyfillCase::new(reading(format), alias)
                .check(json!([after(json!([block, text]))]), &["reasoning_alias", "reasoning"]);
            let mut strings = reading(format);
            strings.details.accepts_parts = false;
            strings.caps.supports_system_role = false;
            PolyfillCase::new(strings, json!([{"role": "system", "content": "S"}, {"role": "user", "content": "U"}, sent(json!("C"))]))
                .notes(&[("system_message_merged", 0)])
                .check(json!([{"role": "user", "content": "S\nU"}, after(json!([block, text]))]), &["reasoning", "system_role"]);
        }

        #[test]
        fn mapping() {
            let format = ReasoningFormat::BlocksMapping;
            let response = |text: &str| json!({"type": "response", "text": text});
            PolyfillCase::new(
                reading(format),
                json!([
                    {"role": "assistant", "content": "A"},
                    {"role": "user", "content": "U"},
                    {"role": "assistant", "reasoning_content": "R", "content": "C"},
                ]),
            )
            .check(
                json!([
                    {"role": "assistant", "content": {"blocks": [response("A")]}},
                    {"role": "user", "content": "U"},
                    {"role": "assistant", "content": {"blocks": [{"type": "thoughts", "text": "R"}, response("C")]}},
                ]),
                &["reasoning"],
            );
            PolyfillCase::new(reading(format), json!([{"role": "assistant", "content": "A"}]))
                .unchanged();
        }

        #[test]
        fn conflict() {
            let mut refusing = reading(ReasoningFormat::ThinkingField);
            refusing.details.reasoning.with_calls = WithCalls::Raises;
            let calls = json!([call("1", "f", json!({}))]);
            let sent = json!([{"role": "assistant", "reasoning_content": "R", "content": "C", "tool_calls": calls}]);
            PolyfillCase::new(refusing.clone(), sent.clone())
                .notes(&[("content_merged_into_reasoning", 0)])
                .check(
                    json!([{"role": "assistant", "tool_calls": calls, "thinking": "R\n\nC"}]),
                    &["reasoning"],
                );
            PolyfillCase::new(refusing.clone(), sent.clone())
                .with(|options| options.reasoning_conflict = ReasoningConflict::Drop)
                .notes(&[("content_dropped", 0)])
                .check(
                    json!([{"role": "assistant", "tool_calls": calls, "thinking": "R"}]),
                    &["reasoning"],
                );
            PolyfillCase::new(refusing.clone(), sent.clone())
                .with(|options| options.reasoning_conflict = ReasoningConflict::Keep)
                .check(json!([{"role": "assistant", "content": "C", "tool_calls": calls, "thinking": "R"}]), &["reasoning"]);
            refusing.details.no_content_with_calls = NoContent::Empty;
            PolyfillCase::new(refusing, sent.clone()).notes(&[("content_merged_into_reasoning", 0)]).check(
                json!([{"role": "assistant", "content": "", "tool_calls": calls, "thinking": "R\n\nC"}]),
                &["reasoning", "null_content"],
            );
            let mut dropping = reading(ReasoningFormat::ReasoningContentField);
            dropping.details.reasoning.with_calls = WithCalls::ReasoningOnly;
            PolyfillCase::new(dropping, sent).notes(&[("content_not_rendered", 0)]).unchanged();
        }

        #[test]
        fn inline() {
            let mut inline = reading(ReasoningFormat::None);
            inline.details.reasoning.inline = true;
            let sent = json!([{"role": "assistant", "reasoning_content": "R", "content": "C"}]);
            PolyfillCase::new(inline.clone(), sent.clone())
                .with(|options| options.reasoning_inline = true)
                .check(
                    json!([{"role": "assistant", "content": "<think>\nR\n</think>\n\nC"}]),
                    &["reasoning"],
                );
            PolyfillCase::new(inline, sent).notes(&[("reasoning_not_rendered", 0)]).unchanged();
        }
    }
}
