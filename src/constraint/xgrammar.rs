//! Rewrites a grammar for xgrammar, whose Lark is a part of llguidance's.
//!
//! In: a grammar in llguidance's Lark. Out: one that xgrammar (0.2.9) reads, with the same language,
//! except that xgrammar does not fix the whitespace of JSON. It knows no flags of regular
//! expressions, and no intersections and complements of terminals. Its lazy terminals match other
//! texts than those of llguidance.

/// The grammar for xgrammar. `None` if it cannot express this one.
pub fn for_xgrammar(lark: &str) -> Option<String> {
    if lark.contains("[lazy]") {
        return None;
    }
    let mut rewritten = String::with_capacity(lark.len() + lark.len() / 8);
    let mut rest = lark;
    while let Some(next) = rest.chars().next() {
        let length = match next {
            '"' => {
                let end = end_of(rest, '"')?;
                rewritten.push_str(&rest[..end]);
                end
            }
            '/' => {
                let end = end_of(rest, '/')?;
                rewritten.push('/');
                rewritten.push_str(&without_flags(&rest[1..end - 1])?);
                rewritten.push('/');
                end
            }
            '&' | '~' => return None,
            '%' if rest.starts_with("%json") => {
                let end = rest.find('\n').unwrap_or(rest.len());
                rewritten.push_str(&rest[..end]);
                end
            }
            other => {
                rewritten.push(other);
                other.len_utf8()
            }
        };
        rest = &rest[length..];
    }
    Some(rewritten)
}

/// The byte offset after the quote that ends a text, which begins with a quote. A quote after a
/// backslash does not end it, and neither does one in a character class of a regular expression.
pub(super) fn end_of(text: &str, quote: char) -> Option<usize> {
    let (mut escaped, mut in_class) = (false, false);
    for (at, char) in text.char_indices().skip(1) {
        match char {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '\n' => return None,
            '[' if quote == '/' => in_class = true,
            ']' if quote == '/' => in_class = false,
            char if char == quote && !in_class => return Some(at + char.len_utf8()),
            _ => {}
        }
    }
    None
}

/// A regular expression without `(?s:` and `(?:`, in which a dot within the former is written as
/// any character. `None` for other flags.
fn without_flags(regex: &str) -> Option<String> {
    let mut rewritten = String::with_capacity(regex.len());
    // For each open group, whether a dot in it is any character.
    let mut groups = vec![false];
    let mut in_class = false;
    let mut rest = regex;
    while let Some(next) = rest.chars().next() {
        let mut length = next.len_utf8();
        let dot_is_any = groups.last().copied().unwrap_or(false);
        match next {
            '\\' => {
                length += rest[1..].chars().next()?.len_utf8();
                rewritten.push_str(&rest[..length]);
            }
            '[' => {
                in_class = true;
                rewritten.push('[');
            }
            ']' => {
                in_class = false;
                rewritten.push(']');
            }
            '(' if !in_class => {
                let (prefix, any) = match &rest[1..] {
                    inner if inner.starts_with("?s:") => ("?s:", true),
                    inner if inner.starts_with("?:") => ("?:", dot_is_any),
                    inner if inner.starts_with('?') => return None,
                    _ => ("", dot_is_any),
                };
                groups.push(any);
                length += prefix.len();
                rewritten.push('(');
            }
            ')' if !in_class => {
                groups.pop();
                rewritten.push(')');
            }
            '.' if !in_class && dot_is_any => rewritten.push_str(r"[\s\S]"),
            other => rewritten.push(other),
        }
        rest = &rest[length..];
    }
    // A group around the whole text adds nothing.
    let whole = rewritten.strip_prefix('(').and_then(|text| text.strip_suffix(')'));
    match whole {
        Some(r"[\s\S]*") => Some(r"[\s\S]*".to_owned()),
        _ => Some(rewritten),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_written_out() {
        for (lark, expected) in [
            (
                "start: \"/(?s:.*)/\" T1\nT1: /(?s:.*)/\n",
                "start: \"/(?s:.*)/\" T1\nT1: /[\\s\\S]*/\n",
            ),
            (r"T: /(?s:a.(b.)[.]\.)./", r"T: /(a[\s\S](b[\s\S])[.]\.)./"),
            (r"T: /(?:a|.)[/(]\//", r"T: /(a|.)[/(]\//"),
            ("r: %json {\"pattern\": \"(?s:.)&~/\"}\n", "r: %json {\"pattern\": \"(?s:.)&~/\"}\n"),
            ("start: <[5]> ", "start: <[5]> "),
        ] {
            assert_eq!(for_xgrammar(lark).as_deref(), Some(expected), "{lark}");
        }
    }

    #[test]
    fn what_cannot_be_written_is_found() {
        for lark in [
            "T: /a/ & /b/",
            "T: ~/a/",
            "T: /(?i:a)/",
            "T: /(?si)a/",
            "T: /a",
            "T: \"a",
            "T: /a\\",
            "r1[lazy]: /(?s:.*)/ \"b\"",
        ] {
            assert_eq!(for_xgrammar(lark), None, "{lark}");
        }
    }
}
