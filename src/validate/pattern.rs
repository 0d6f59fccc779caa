//! Regular expressions of schemas: ECMA-262 syntax, run in linear time by an automaton.

use regex_automata::nfa::thompson;
use regex_automata::nfa::thompson::pikevm::{Cache, PikeVM};
use regex_automata::util::syntax;
use regex_automata::{Input, MatchKind};

/// The maximum number of bytes of an expression, and of its automaton.
const MAX_PATTERN: usize = 4096;
const MAX_AUTOMATON: usize = 1 << 20;
const MAX_NESTING: u32 = 100;

/// A compiled expression.
pub(super) struct SchemaPattern {
    automaton: PikeVM,
    cache: Cache,
}

impl SchemaPattern {
    /// `None` if an automaton cannot run the expression, because it has a look-around or a
    /// back-reference or is too large.
    pub(super) fn new(pattern: &str) -> Option<SchemaPattern> {
        if pattern.len() > MAX_PATTERN {
            return None;
        }
        let size = thompson::Config::new()
            .nfa_size_limit(Some(MAX_AUTOMATON))
            .which_captures(thompson::WhichCaptures::None);
        let automaton = PikeVM::builder()
            .configure(PikeVM::config().match_kind(MatchKind::LeftmostFirst))
            .syntax(syntax::Config::new().nest_limit(MAX_NESTING))
            .thompson(size)
            .build(&to_rust_syntax(pattern))
            .ok()?;
        let cache = automaton.create_cache();
        Some(SchemaPattern { automaton, cache })
    }

    /// The maximum number of states that a search visits per character.
    pub(super) fn states(&self) -> usize {
        self.automaton.get_nfa().states().len()
    }

    /// Whether a part of the text matches.
    pub(super) fn matches(&mut self, text: &str) -> bool {
        self.automaton.is_match(&mut self.cache, Input::new(text).earliest(true))
    }
}

/// Converts an ECMA-262 expression to the syntax of `regex`: `\d` and `\w` match only ASCII, and a
/// class has no operators.
fn to_rust_syntax(pattern: &str) -> String {
    let mut result = String::with_capacity(pattern.len() + 8);
    let mut in_class = false;
    let mut chars = pattern.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some('d') => result.push_str(if in_class { "0-9" } else { "[0-9]" }),
                Some('D') => result.push_str("[^0-9]"),
                Some('w') => result.push_str(if in_class { "0-9A-Za-z_" } else { "[0-9A-Za-z_]" }),
                Some('W') => result.push_str("[^0-9A-Za-z_]"),
                Some('b') if !in_class => result.push_str(r"(?-u:\b)"),
                Some(escaped) => result.extend(['\\', escaped]),
                None => result.push('\\'),
            },
            '[' if in_class => result.push_str(r"\["),
            '&' | '~' if in_class => result.extend(['\\', c]),
            '[' => {
                in_class = true;
                result.push('[');
            }
            ']' => {
                in_class = false;
                result.push(']');
            }
            c => result.push(c),
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(pattern: &str, text: &str, expected: Option<bool>) {
        assert_eq!(
            SchemaPattern::new(pattern).map(|mut pattern| pattern.matches(text)),
            expected,
            "{pattern}"
        );
    }

    #[test]
    fn patterns_are_searched_for() {
        check("b", "abc", Some(true));
        check("^b", "abc", Some(false));
        check("^abc$", "abc\n", Some(false));
        check(r"^\d+$", "\u{661}", Some(false));
        check(r"^[\w-]+$", "a-b", Some(true));
        check(r"^[^\d]+$", "ab", Some(true));
        check(r"^[[&~]+$", "[&~", Some(true));
        check(r"^\p{L}+$", "é", Some(true));
        check(r"\bfoo\b", "a foo", Some(true));
        check(r"^a\/b$", "a/b", Some(true));
        check("^.{3}$", "äöü", Some(true));
    }

    #[test]
    fn unsupported_patterns() {
        check("(?=a)", "a", None);
        check(r"(a)\1", "aa", None);
        check("(", "", None);
        check("((a{1000}){1000}){1000}", "a", None);
        check(&"(".repeat(2000), "", None);
        check(&r"\p{L}".repeat(2000), "", None);
    }

    #[test]
    fn nested_repetition_is_linear() {
        check("^(a+)+$", &format!("{}!", "a".repeat(5000)), Some(false));
    }
}
