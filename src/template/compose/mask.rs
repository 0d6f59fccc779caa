//! Which bytes of a prompt an assistant is trained to write.

use std::ops::Range;

use serde_json::Value;

use super::spec::Spec;

/// What decides the form of an answer's turn.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Answer {
    /// It has calls.
    calls: bool,
    /// It follows a tool result.
    continues: bool,
}

/// The answers among these messages.
pub(crate) fn answers(messages: &[Value]) -> Vec<Answer> {
    let role = |at: usize| messages.get(at).map(|message| &message["role"]);
    let answers = messages.iter().enumerate().filter(|(_, message)| message["role"] == "assistant");
    let answer = |(at, message): (usize, &Value)| Answer {
        calls: message["tool_calls"].as_array().is_some_and(|calls| !calls.is_empty()),
        continues: at.checked_sub(1).and_then(role).is_some_and(|role| role == "tool"),
    };
    answers.map(answer).collect()
}

/// The trainable range of each assistant's turn. `turns` are the whole turns in the prompt.
///
/// A range begins behind the generation prompt, or else behind the text before the content, and ends where the spec's
/// `assistant_end` does. `last` tells that the last turn is the last message. Where nothing stands behind the content and the prompt goes on with a stop word, as the opener of the
/// next turn may be one, the range has it.
pub(crate) fn ranges(
    spec: &Spec,
    prompt: &str,
    turns: &[Range<usize>],
    last: bool,
    answers: &[Answer],
) -> Option<Vec<Range<usize>>> {
    let generation_prompt = spec.generation_prompt();
    let range = |(at, turn): (usize, &Range<usize>)| {
        let own = spec.turns.last_answer.as_ref().filter(|_| last && at + 1 == turns.len());
        let answer = answers.get(at).copied().unwrap_or_default();
        let with_calls = spec.calls_turn.as_ref().filter(|_| answer.calls);
        let template = with_calls.or(own).unwrap_or(&spec.assistant_template);
        let continues = answer.continues && spec.policies.calls.continues;
        let before = match template {
            _ if continues => String::new(),
            own if !own.has("content") => own.head().to_owned(),
            usual => usual.text_before("content"),
        };
        let (behind, end) = (template.text_after(), spec.end_of(template));
        let text = prompt.get(turn.clone())?;
        let asked = !continues && text.starts_with(&generation_prompt);
        let start = if asked { generation_prompt.len() } else { before.len() };
        let mut stop = turn.end - (behind.len() - end.len());
        if behind.is_empty() {
            let rest = &prompt[turn.end..];
            let opener = spec.stop_words.iter().find(|word| rest.starts_with(word.as_str()));
            stop += opener.map_or(0, String::len);
        }
        let start = (turn.start + start).min(stop);
        Some(start..stop)
    };
    turns.iter().enumerate().map(range).collect()
}
