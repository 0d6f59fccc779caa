//! Which bytes of a prompt an assistant is trained to write.

use std::ops::Range;

use serde_json::Value;

use super::spec::Spec;

/// How many calls each of the answers among these messages has; None without a list of them.
pub(crate) fn calling(messages: &[Value]) -> Vec<Option<usize>> {
    let answers = messages.iter().filter(|message| message["role"] == "assistant");
    answers.map(|message| message["tool_calls"].as_array().map(Vec::len)).collect()
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
    calling: &[Option<usize>],
) -> Option<Vec<Range<usize>>> {
    let generation_prompt = spec.generation_prompt();
    let range = |(at, turn): (usize, &Range<usize>)| {
        let own = spec.turns.last_answer.as_ref().filter(|_| last && at + 1 == turns.len());
        let with_calls = match calling.get(at) {
            Some(Some(0)) => spec.empty_calls_turn.as_ref(),
            Some(Some(_)) => spec.calls_turn.as_ref(),
            _ => None,
        };
        let template = with_calls.or(own).unwrap_or(&spec.assistant_template);
        let before = if template.has("content") { template.text_before("content") } else { template.head().to_owned() };
        let (behind, end) = (template.text_after(), spec.end_of(template));
        let text = prompt.get(turn.clone())?;
        let start = if text.starts_with(&generation_prompt) {
            generation_prompt.len()
        } else if text.starts_with(&before) {
            before.len()
        } else {
            0
        };
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
