//! Sentences that the template itself adds to prompts in which nobody said them.

use super::{ANSWER, Review, SYSTEM, Severity, cut};
use crate::template::frame::{USER, count};
use crate::template::prober::Probe;

/// So many words in a row are a sentence, and not a label.
const WORDS: usize = 4;

pub(super) fn review(review: &mut Review<'_>) {
    // Where tools must be declared, the prompt speaks of them.
    if review.frame.no_tools().as_array().is_some_and(|tools| !tools.is_empty()) {
        return;
    }
    let Ok(plain) = review.frame.plain.clone() else { return };
    let with_system = review.render(vec![review.system(), review.user()]);
    let (user, answer) = (review.user(), review.answer());
    let turns = review.render(vec![user.clone(), answer, user.clone()]);
    let own = sentences(&plain);
    for sentence in &own {
        let line = line_of(review, sentence);
        if turns.as_ref().is_ok_and(|turns| count(turns, sentence) > count(&plain, sentence)) {
            let message = format!("adds to every user turn: {}", cut(sentence));
            review.add(Severity::Warning, "hidden_instructions_in_turns", line, message);
            continue;
        }
        let what = match &with_system {
            Ok(text) if !text.contains(sentence) && text.contains(SYSTEM) => "unless there is a system message",
            Ok(text) if text.contains(SYSTEM) => "also beside a system message",
            _ => "always",
        };
        let message = format!("adds to the prompt, {what}: {}", cut(sentence));
        review.add(Severity::Warning, "hidden_instructions", line, message);
    }
    let known = |sentence: &str| own.iter().any(|own| own.contains(sentence));
    for sentence in turns.map(|turns| sentences(&turns)).unwrap_or_default() {
        if !known(&sentence) {
            let line = line_of(review, &sentence);
            let message = format!("adds around an assistant turn: {}", cut(&sentence));
            review.add(Severity::Warning, "hidden_instructions_in_turns", line, message);
        }
    }
    let prompt = review.frame.prober.render(Probe { add_generation_prompt: true, ..review.frame.probe(vec![user]) });
    for sentence in prompt.map(|prompt| sentences(&prompt)).unwrap_or_default() {
        if !plain.contains(&sentence) {
            let line = line_of(review, &sentence);
            let message = format!("adds to the generation prompt: {}", cut(&sentence));
            review.add(Severity::Warning, "hidden_instructions_in_turns", line, message);
        }
    }
}

/// Text of at least some words, between markers and what the probes say.
fn sentences(prompt: &str) -> Vec<String> {
    let mut text = prompt.to_owned();
    for needle in [USER, ANSWER, SYSTEM] {
        text = text.replace(needle, "\0");
    }
    let mut found: Vec<String> = Vec::new();
    for run in without_markers(&text).split('\0') {
        // A role's name on its own line is no part of the sentence.
        let mut lines = run.trim().lines().skip_while(|line| words(line) < 2).collect::<Vec<_>>();
        while lines.last().is_some_and(|line| words(line) < 2 && !line.trim_end().ends_with(['.', '!'])) {
            lines.pop();
        }
        let (Some(first), Some(last)) = (lines.first(), lines.last()) else { continue };
        // The same bytes as in the prompt.
        let start = first.as_ptr() as usize - run.as_ptr() as usize;
        let end = last.as_ptr() as usize - run.as_ptr() as usize + last.len();
        let sentence = run[start..end].trim();
        if words(sentence) >= WORDS && !found.iter().any(|known| known == sentence) {
            found.push(sentence.to_owned());
        }
    }
    found
}

/// Replaces `<…>` and `[…]` of one word by a mark.
fn without_markers(text: &str) -> String {
    let mut rest = text;
    let mut cleaned = String::with_capacity(text.len());
    while let Some(at) = rest.find(['<', '[']) {
        let close = if rest[at..].starts_with('<') { '>' } else { ']' };
        let end = rest[at..].find(|c: char| c == close || c.is_whitespace() || c == '\0');
        match end.filter(|end| rest[at + end..].starts_with(close)) {
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

/// How many words there are.
fn words(text: &str) -> usize {
    let is_word = |word: &&str| {
        let word = word.trim_matches(|c: char| c.is_ascii_punctuation());
        !word.is_empty() && word.chars().all(|c| c.is_alphabetic() || c == '\'' || c == '-')
    };
    text.split_whitespace().filter(is_word).count()
}

/// Where the source has the beginning of this sentence.
fn line_of(review: &Review<'_>, sentence: &str) -> Option<usize> {
    let beginning: String = sentence.chars().take(24).collect();
    let whole = review.source.texts.iter().find_map(|site| {
        let at = site.text.find(&beginning)?;
        Some(site.line + count(&site.text[..at], "\n"))
    });
    // Or the text that the sentence begins with.
    let start = || {
        let begins = |text: &str| words(text) >= 2 && sentence.starts_with(text);
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
        check("<|im_start|>system\nYou are a bot.<|im_end|>\n<|im_start|>user\nuser_needle<|im_end|>\n", &["You are a bot."]);
        check("<s>[INST] user_needle [/INST]", &[]);
        check("GPT4 Correct User: user_needle", &[]);
        check("Be kind. Speak in verse.\n\n### Instruction:\nuser_needle\n\n### Response:\n", &["Be kind. Speak in verse."]);
        check("USER: user_needle ASSISTANT: answer_needle a < b", &[]);
        check("Be kind\nto all.\nHe said: user_needle", &["Be kind\nto all.\nHe said:"]);
    }
}
