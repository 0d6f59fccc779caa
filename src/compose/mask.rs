//! Finds the bytes of a prompt that an assistant is trained to write.

use std::ops::Range;

use serde_json::Value;

use super::spec::ComponentSpec;

/// The number of calls in each answer among these messages. None for an answer without a list of
/// calls.
pub(crate) fn call_counts(messages: &[Value]) -> Vec<Option<usize>> {
    let answers = messages.iter().filter(|message| message["role"] == "assistant");
    answers.map(|message| message["tool_calls"].as_array().map(Vec::len)).collect()
}

/// The trainable range of each assistant's turn. `turns` are the ranges of the whole turns in the
/// prompt.
///
/// A range begins after the generation prompt, or else after the text before the content. It ends
/// with the spec's `assistant_end`. `last` is true if the last turn has the form of a last answer.
/// `generation_prompt` is the prompt for the variables of the request. If the turn ends with its
/// content and a stop word follows, such as the opening of the next turn, the range includes the
/// stop word.
pub(crate) fn ranges(
    spec: &ComponentSpec,
    prompt: &str,
    turns: &[Range<usize>],
    last: bool,
    call_counts: &[Option<usize>],
    generation_prompt: &str,
) -> Option<Vec<Range<usize>>> {
    let range = |(at, turn): (usize, &Range<usize>)| {
        let own = spec.turns.last_answer.as_ref().filter(|_| last && at + 1 == turns.len());
        let with_calls = match call_counts.get(at) {
            Some(Some(0)) => spec.empty_calls_turn.as_ref(),
            Some(Some(_)) => spec.calls_turn.as_ref(),
            _ => None,
        };
        let template = with_calls.or(own).unwrap_or(&spec.assistant_template);
        let before = if template.has("content") {
            template.text_before("content")
        } else {
            template.head().to_owned()
        };
        let (after, end) = (template.text_after(), spec.end_of(template));
        let text = prompt.get(turn.clone())?;
        let omitted = Some(&*spec.turns.first_turn_without)
            .filter(|omitted| !omitted.is_empty() && !text.starts_with(omitted));
        let shortened = |head: &str| {
            omitted.and_then(|omitted| head.strip_prefix(omitted)).unwrap_or(head).to_owned()
        };
        let (before, prompt_head) = (shortened(&before), shortened(generation_prompt));
        let start = if text.starts_with(&prompt_head) {
            prompt_head.len()
        } else if text.starts_with(&before) {
            before.len()
        } else {
            0
        };
        let mut stop = turn.end - (after.len() - end.len());
        if after.is_empty() {
            let rest = &prompt[turn.end..];
            let opener = spec.stop_words.iter().find(|word| rest.starts_with(word.as_str()));
            stop += opener.map_or(0, String::len);
        }
        let start = (turn.start + start).min(stop);
        Some(start..stop)
    };
    turns.iter().enumerate().map(range).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use serde_json::{Map, Value, json};

    use crate::compose::Composed;
    use crate::template::{LocalTime, RenderInput, Templates, mask};

    /// A spec with many variants of answers.
    fn spec() -> Value {
        json!({
            "user_template": "<u>{content}</>",
            "assistant_template": "<a>{content}{tool_calls}</>\n",
            "last_assistant_template": "<a>{content}{tool_calls}<end>",
            "observations_template": "<t>{observations}</>",
            "reasoning_template": "<think>{reasoning}</think>",
            "no_thinking_prompt": "<a><think></think>",
            "late_system_template": "<s>{content}</>",
            "ending": "<eof>",
            "opener_after": ["user"],
            "stop_words": ["</>", "<end>"],
            "assistant_policy": {
                "keep_reasoning": "last_turn",
                "empty_reasoning": "last",
                "inline_reasoning": { "start": "<think>", "end": "</think>" },
                "no_question": { "start": "<t>", "end": "</t>" },
            },
        })
    }

    #[track_caller]
    fn check(
        change: &Value,
        messages: &Value,
        thinking: Option<bool>,
        prompt: &str,
        trained: &[&str],
    ) {
        let mut spec = spec();
        for (name, value) in change.as_object().unwrap() {
            spec[name] = value.clone();
        }
        let composed = Composed::parse(&spec, "components").unwrap();
        let templates = Templates::compile(&composed.sources()).unwrap();
        let kwargs = thinking
            .map(|thinking| Map::from_iter([("enable_thinking".to_owned(), thinking.into())]));
        let messages = messages.as_array().unwrap();
        let input = RenderInput {
            kwargs: kwargs.as_ref(),
            ..RenderInput::new(messages, LocalTime::from_unix_local(0, 0))
        };
        let rendered = templates.render(&input).unwrap();
        assert_eq!(rendered.text, prompt);
        let mask =
            composed.mask(mask::MaskScope::All, &rendered, &input, messages).unwrap().unwrap();
        let ranges: Vec<&str> =
            mask.turns.iter().map(|turn| &rendered.text[turn.range.clone()]).collect();
        assert_eq!(ranges, trained);
    }

    #[test]
    fn forms_of_answers() {
        let user = |text: &str| json!({ "role": "user", "content": text });
        let answer = |text: &str| json!({ "role": "assistant", "content": text });
        let reasoned =
            |text: &str| json!({ "role": "assistant", "content": text, "reasoning_content": "r" });
        let default = json!({});
        // Reasoning is removed from earlier answers. The last answer shows it, even if it is empty.
        check(
            &default,
            &json!([user("1"), answer("<think>\nx\n</think>\n\na"), user("2"), answer("b")]),
            None,
            "<u>1</><a>a</>\n<u>2</><a><think></think>b<end><eof>",
            &["a</>", "<think></think>b<end>"],
        );
        // The generation prompt contains an empty block, so the reply begins after it.
        check(
            &default,
            &json!([user("1"), answer("b")]),
            Some(false),
            "<u>1</><a><think></think>b<end><eof>",
            &["b<end>"],
        );
        // After a tool result, the answer has no opening. A result in a user's message does not
        // count as a question.
        check(
            &default,
            &json!([user("1"), reasoned("a"), { "role": "tool", "content": "5" }, user("<t>6</t>"), reasoned("b")]),
            None,
            "<u>1</><a><think>r</think>a</>\n<t>5</><u><t>6</t></><a><think>r</think>b<end><eof>",
            &["<think>r</think>a</>", "<think>r</think>b<end>"],
        );
        check(
            &default,
            &json!([user("1"), answer("a"), { "role": "tool", "content": "5" }, answer("b"), user("2")]),
            None,
            "<u>1</><a>a</>\n<t>5</>b</>\n<u>2</><eof>",
            &["a</>", "b</>"],
        );
        // The first turn omits the separator between turns.
        let between = json!({
            "user_template": "|<u>{content}", "assistant_template": "|<a>{content}", "generation_prompt": "|<a>",
            "first_turn_without": "|", "last_assistant_template": null, "reasoning_template": null, "ending": null,
            "opener_after": null, "stop_words": ["|"], "system_policy": { "use_system_without_system_message": false },
        });
        check(
            &between,
            &json!([answer("a"), user("1"), answer("b")]),
            None,
            "<a>a|<u>1|<a>b",
            &["a|", "b"],
        );
        // The last answer has no end.
        check(
            &json!({ "last_assistant_template": "<a>{content}", "reasoning_template": null, "ending": null }),
            &json!([user("1"), answer("a"), { "role": "system", "content": "s" }, user("2"), answer("b")]),
            None,
            "<u>1</><a>a</>\n<s>s</><u>2</><a>b",
            &["a</>", "b"],
        );
    }
}
