//! A regular expression that cuts a text into words, in the syntax of Oniguruma for Ruby.
//!
//! In: an expression of a tokenizer.json. Out: its matches. An automaton runs it in linear time and
//! without failures. The `fancy-regex` of `tokenizers` backtracks, and what follows the place where
//! it gives up is no match there. Look-arounds are refused, except the one that all known files
//! have: whitespace before a word leaves its last character to that word.

use regex_automata::Input;
use regex_automata::meta::Regex;
use regex_automata::util::syntax;
use tokenizers::pattern::Pattern;

use crate::engine::Interrupt;

/// The maximum number of bytes of an expression, and of its automaton.
const MAX_PATTERN: usize = 16 << 10;
const MAX_AUTOMATON: usize = 4 << 20;
const MAX_NESTING: u32 = 100;
/// The alternatives for whitespace at the end of an expression. The last one matches a single
/// character before a word.
const WHITESPACE: [&str; 2] = [r"|\s+(?!\S)|\s+", r"|\s+(?!\S)|\s"];

/// A compiled expression.
pub(super) struct WordPattern {
    /// The second pattern, if there is one, is that of whitespace.
    regex: Regex,
}

impl WordPattern {
    /// Compiles an expression. The error says what is wrong with it.
    pub(super) fn new(pattern: &str) -> Result<WordPattern, String> {
        if pattern.len() > MAX_PATTERN {
            return Err("it is too long".to_owned());
        }
        let words = WHITESPACE.iter().find_map(|end| pattern.strip_suffix(end));
        let parts: Vec<&str> = words.map_or_else(|| vec![pattern], |words| vec![words, r"\s+"]);
        // In Ruby, `$` is the end of a line.
        let config = syntax::Config::new().multi_line(true).nest_limit(MAX_NESTING);
        let mut parsed = Vec::with_capacity(parts.len());
        for part in &parts {
            check_syntax(part)?;
            let part = syntax::parse_with(part, &config).map_err(|error| last_line(&error))?;
            if part.properties().minimum_len() == Some(0) {
                return Err("it matches the empty text".to_owned());
            }
            parsed.push(part);
        }
        let size = Regex::config().nfa_size_limit(Some(MAX_AUTOMATON));
        let regex = Regex::builder().configure(size).build_many_from_hir(&parsed);
        Ok(WordPattern { regex: regex.map_err(|_| "it is too large")? })
    }

    /// The expression as `tokenizers` searches for it.
    pub(super) fn interruptible<'a>(&'a self, interrupt: &'a Interrupt) -> WordSearch<'a> {
        WordSearch { pattern: self, interrupt }
    }

    /// The first match from a place on.
    fn find(&self, text: &str, from: usize) -> Option<(usize, usize)> {
        let found = self.regex.find(Input::new(text).span(from..text.len()))?;
        let (start, end) = (found.start(), found.end());
        let precedes_word = text[end..].chars().next().is_some_and(|next| !next.is_whitespace());
        let last = text[..end].chars().next_back().map_or(0, char::len_utf8);
        if found.pattern().as_usize() == 1 && precedes_word && start < end - last {
            return Some((start, end - last));
        }
        Some((start, end))
    }
}

/// An expression with the interrupt of a call.
pub(super) struct WordSearch<'a> {
    pattern: &'a WordPattern,
    interrupt: &'a Interrupt,
}

impl Pattern for WordSearch<'_> {
    /// All ranges of a text, and which of them are matches.
    fn find_matches(&self, inside: &str) -> tokenizers::Result<Vec<((usize, usize), bool)>> {
        let mut ranges = Vec::new();
        let mut done = 0;
        while let Some((start, end)) = self.pattern.find(inside, done) {
            self.interrupt.check()?;
            if done < start {
                ranges.push(((done, start), false));
            }
            ranges.push(((start, end), true));
            done = end;
        }
        if done < inside.len() || inside.is_empty() {
            ranges.push(((done, inside.len()), false));
        }
        Ok(ranges)
    }
}

/// What is wrong with an expression: the lines before show it with a mark.
fn last_line(error: &dyn std::error::Error) -> String {
    let text = error.to_string();
    let line = text.lines().last().unwrap_or_default();
    line.strip_prefix("error: ").unwrap_or(line).to_owned()
}

/// Refuses what means something else in Ruby, and look-arounds.
fn check_syntax(pattern: &str) -> Result<(), String> {
    let mut depth = 0_usize;
    let mut chars = pattern.char_indices();
    while let Some((at, char)) = chars.next() {
        let rest = &pattern[at + char.len_utf8()..];
        let next = rest.chars().next();
        match char {
            '\\' => drop(chars.next()),
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            '-' | '~' if depth > 0 && next == Some(char) => {
                return Err(format!("its class has {char}{char}"));
            }
            '?' | '*' | '+' if depth == 0 && next == Some('+') => {
                return Err(format!("its repetition {char}+ is possessive"));
            }
            '(' if depth == 0 && rest.starts_with('?') && !is_plain_group(rest) => {
                let group: String = rest.chars().take(2).collect();
                return Err(format!("it has the group ({group}"));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Whether these are the first characters in a group of which nothing is special but its case.
fn is_plain_group(text: &str) -> bool {
    text.starts_with("?:") || text.starts_with("?i:")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The parts of a text, in brackets if they match.
    #[track_caller]
    fn check(pattern: &str, text: &str, expected: &str) {
        let pattern = WordPattern::new(pattern).expect(pattern);
        let never = Interrupt::default();
        let found = pattern.interruptible(&never).find_matches(text).expect("no interrupt");
        let shown = found.into_iter().map(|((start, end), matches)| {
            let part = &text[start..end];
            if matches { format!("[{part}]") } else { part.to_owned() }
        });
        assert_eq!(shown.collect::<String>(), expected);
    }

    #[test]
    fn a_text_is_cut() {
        check("a+", "baac", "b[aa]c");
        check("a", "", "");
        // As in Ruby.
        check(r"\s+$", "a  \n b ", "a[  ]\n b[ ]");
    }

    #[test]
    fn whitespace_leaves_its_last_character_to_a_word() {
        for end in [r"\s+", r"\s"] {
            let pattern = format!(r" ?\p{{L}}+|\s*\n|\s+(?!\S)|{end}");
            check(&pattern, "a   b  ", "[a][  ][ b][  ]");
            check(&pattern, "a\t\tb\tc", "[a][\t][\t][b][\t][c]");
            check(&pattern, "a \n  b", "[a][ \n][ ][ b]");
            check(&pattern, "a\u{3000}\u{3000}b", "[a][\u{3000}][\u{3000}][b]");
        }
    }

    #[test]
    fn other_expressions_are_refused() {
        for (pattern, says) in [
            ("(", "unclosed group"),
            ("a(?=b)", "it has the group (?="),
            ("(?<!a)b", "it has the group (?<"),
            ("(?m:a.b)", "it has the group (?m"),
            (r"a|\s+(?!\S)|\s+|b", "it has the group (?!"),
            (r"(a|\s+(?!\S)|\s+)", "it has the group (?!"),
            (r"(a)\1", "backreferences"),
            ("a++", "its repetition ++ is possessive"),
            ("[+]a?+", "its repetition ?+ is possessive"),
            ("[a--b]", "its class has --"),
            ("a*", "it matches the empty text"),
            (r"a|\b", "it matches the empty text"),
            ("((a{1000}){1000}){1000}", "it is too large"),
        ] {
            let problem = WordPattern::new(pattern).err().expect(pattern);
            assert!(problem.contains(says), "{pattern}: {problem}");
        }
        assert!(WordPattern::new(&"(".repeat(1000)).is_err());
        assert!(WordPattern::new(&"a".repeat(MAX_PATTERN + 1)).is_err());
        // Not repetitions.
        check(r"\++[?+]+", "a++?+", "a[++?+]");
    }

    #[test]
    fn nested_repetition_is_linear() {
        check("(a+)+b", &"a".repeat(20_000), &"a".repeat(20_000));
    }

    #[test]
    fn a_search_can_be_cancelled() {
        let pattern = WordPattern::new("a").expect("valid");
        let over = Interrupt { deadline: Some(std::time::Instant::now()), ..Interrupt::default() };
        assert!(pattern.interruptible(&over).find_matches("aa").is_err());
    }
}
