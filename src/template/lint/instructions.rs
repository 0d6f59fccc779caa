//! Lints of sentences that the template adds to prompts.

use super::review::{ANSWER, Review, SYSTEM, Severity, cut};
use crate::probing::Probe;
use crate::template::probe::baseline::{USER, count};

/// A line with at least this many words is a sentence, not a label.
const WORDS: usize = 4;

pub(super) fn review(review: &mut Review<'_>) {
    // A prompt with required tools contains sentences about them.
    if review.base.no_tools().as_array().is_some_and(|tools| !tools.is_empty()) {
        return;
    }
    let Ok(plain) = review.base.plain.clone() else { return };
    let with_system = review.render(vec![review.system(), review.user()]);
    let (user, answer) = (review.user(), review.answer());
    let turns = review.render(vec![user.clone(), answer, user.clone()]);
    let own = sentences(&plain);
    let mut added = AddedSentences::default();
    for sentence in &own {
        if turns.as_ref().is_ok_and(|turns| count(turns, sentence) > count(&plain, sentence)) {
            added.push("adds to every user turn", sentence);
            continue;
        }
        added.push(
            match &with_system {
                Ok(text) if !text.contains(sentence) && text.contains(SYSTEM) => {
                    "adds unless there is a system message"
                }
                Ok(text) if text.contains(SYSTEM) => {
                    "adds to every prompt, even with a system message"
                }
                _ => "adds to every prompt",
            },
            sentence,
        );
    }
    let known = |sentence: &str| own.iter().any(|own| own.contains(sentence));
    let turns = turns.map(|turns| sentences(&turns)).unwrap_or_default();
    turns
        .iter()
        .filter(|sentence| !known(sentence))
        .for_each(|sentence| added.push("adds around an assistant turn", sentence));
    let prompt = review
        .base
        .prober
        .render(Probe { add_generation_prompt: true, ..review.base.probe(vec![user]) });
    let prompt = prompt.map(|prompt| sentences(&prompt)).unwrap_or_default();
    let prompt = prompt.iter().filter(|sentence| !plain.contains(*sentence));
    prompt.for_each(|sentence| added.push("adds to every generation prompt", sentence));
    for (what, texts) in added.0 {
        let line = line_of(review, &texts[0]);
        let more = match texts.len() {
            1 => String::new(),
            count => format!(" (and {} more)", count - 1),
        };
        let message = format!("{what}: {}{more}", cut(&texts[0]));
        let in_turns = what.ends_with("turn");
        let code = if in_turns { "hidden_instructions_in_turns" } else { "hidden_instructions" };
        review.add_at(Severity::Warning, code, line, message);
    }
}

/// Sentences grouped by where they are added, in the order of the prompt.
#[derive(Default)]
struct AddedSentences(Vec<(&'static str, Vec<String>)>);

impl AddedSentences {
    fn push(&mut self, what: &'static str, sentence: &str) {
        match self.0.iter_mut().find(|(known, _)| *known == what) {
            Some((_, texts)) => texts.push(sentence.to_owned()),
            None => self.0.push((what, vec![sentence.to_owned()])),
        }
    }
}

/// Texts of at least a few words, outside of markers and probe texts.
fn sentences(prompt: &str) -> Vec<String> {
    let mut text = prompt.to_owned();
    for needle in [USER, ANSWER, SYSTEM] {
        text = text.replace(needle, "\0");
    }
    let mut found: Vec<String> = Vec::new();
    for run in without_markers(&text).split('\0') {
        // A role name on its own line is not part of the sentence.
        let mut lines =
            run.trim().lines().skip_while(|line| count_words(line) < 2).collect::<Vec<_>>();
        while lines
            .last()
            .is_some_and(|line| count_words(line) < 2 && !line.trim_end().ends_with(['.', '!']))
        {
            lines.pop();
        }
        let (Some(first), Some(last)) = (lines.first(), lines.last()) else { continue };
        // Slicing the run preserves the bytes of the prompt.
        let start = first.as_ptr() as usize - run.as_ptr() as usize;
        let end = last.as_ptr() as usize - run.as_ptr() as usize + last.len();
        let sentence = run[start..end].trim();
        if sentence.lines().any(|line| count_words(line) >= WORDS)
            && !found.iter().any(|known| known == sentence)
        {
            found.push(sentence.to_owned());
        }
    }
    found
}

/// Replaces `<…>` and `[…]` of one word by NUL.
fn without_markers(text: &str) -> String {
    let mut rest = text;
    let mut cleaned = String::with_capacity(text.len());
    while let Some(at) = rest.find(['<', '[']) {
        let close = if rest[at..].starts_with('<') { '>' } else { ']' };
        let end = rest[at..].find(|c: char| c == close || c.is_whitespace() || c == '\0');
        let is_open = |end: &usize| rest[at + end..].starts_with(close);
        // `within <tools></tools> tags` is a sentence about tags.
        let in_sentence = |end: &usize| {
            let before = rest[..at].ends_with(' ') || cleaned.ends_with('>') && at == 0;
            let after = rest[at + end + 1..]
                .trim_start_matches(' ')
                .starts_with(|c: char| c.is_alphabetic() || c == '<');
            close == '>' && before && after && !rest[at..at + end].contains('|')
        };
        match end.filter(is_open) {
            Some(end) if in_sentence(&end) => {
                cleaned.push_str(&rest[..at + end + 1]);
                rest = &rest[at + end + 1..];
            }
            Some(end) => {
                cleaned.push_str(&rest[..at]);
                cleaned.push('\0');
                rest = &rest[at + end + 1..];
            }
            None => {
                cleaned.push_str(&rest[..at + 1]);
                rest = &rest[at + 1..];
            }
        }
    }
    cleaned.push_str(rest);
    cleaned
}

/// The number of words.
fn count_words(text: &str) -> usize {
    let is_word = |word: &&str| {
        let word = word.trim_matches(|c: char| c.is_ascii_punctuation());
        !word.is_empty() && word.chars().all(|c| c.is_alphabetic() || c == '\'' || c == '-')
    };
    text.split_whitespace().filter(is_word).count()
}

/// The line of the source where this sentence starts.
fn line_of(review: &Review<'_>, sentence: &str) -> Option<usize> {
    let beginning: String = sentence.chars().take(24).collect();
    let whole = review.source.texts.iter().find_map(|site| {
        let at = site.text.find(&beginning)?;
        Some(site.line + count(&site.text[..at], "\n"))
    });
    // Else the line of a text that the sentence starts with.
    let start = || {
        let begins = |text: &str| count_words(text) >= 2 && sentence.starts_with(text);
        review.source.texts.iter().find(|site| begins(site.text.trim())).map(|site| site.line)
    };
    whole.or_else(start)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(prompt: &str, expected: &[&str]) {
        assert_eq!(sentences(prompt), expected);
    }

    #[test]
    fn sentences_between_markers() {
        check(
            "<|im_start|>system\nYou are a bot.<|im_end|>\n<|im_start|>user\nuser_needle<|im_end|>\n",
            &["You are a bot."],
        );
        check("<s>[INST] user_needle [/INST]", &[]);
        check("GPT4 Correct User: user_needle", &[]);
        check(
            "Be kind. Speak in verse.\n\n### Instruction:\nuser_needle\n\n### Response:\n",
            &["Be kind. Speak in verse."],
        );
        check("Source: assistant\nDestination: user\nuser_needle", &[]);
        check("Write it within <a></a> tags.", &["Write it within <a></a> tags."]);
        check("USER: user_needle ASSISTANT: answer_needle a < b", &[]);
        check(
            "Be kind\nto all of the people.\nHe said: user_needle",
            &["Be kind\nto all of the people.\nHe said:"],
        );
    }
}
