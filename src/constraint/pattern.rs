//! Translates regular expressions of schemas, for verbatim text.

/// The expression that the whole text must match, without enclosing slashes. The error is the
/// reason why the pattern is not supported.
///
/// JSON Schema searches for a pattern: without `^` and `$`, any text may come before and after the
/// match.
pub(super) fn whole(pattern: &str) -> Result<String, &'static str> {
    if let Some(reason) = refusal(pattern) {
        return Err(reason);
    }
    let (inner, from_start) = match pattern.strip_prefix('^') {
        Some(inner) => (inner, true),
        None => (pattern, false),
    };
    let ends = inner.ends_with('$')
        && inner[..inner.len() - 1].chars().rev().take_while(|char| *char == '\\').count() % 2 == 0;
    let (inner, to_end) = if ends { (&inner[..inner.len() - 1], true) } else { (inner, false) };
    let mut result = String::new();
    let mut in_class = false;
    let mut depth = 0usize;
    let mut chars = inner.chars();
    while let Some(char) = chars.next() {
        match char {
            '\\' => match chars.next() {
                Some('d') => result.push_str(if in_class { "0-9" } else { "[0-9]" }),
                Some('w') => result.push_str(if in_class { "0-9a-zA-Z_" } else { "[0-9a-zA-Z_]" }),
                // In Rust's syntax, the escaped forms would be word boundaries.
                Some(other @ ('<' | '>')) => result.push(other),
                Some(other) => result.extend(['\\', other]),
                None => return Err("it ends with a backslash"),
            },
            '[' if !in_class => {
                in_class = true;
                result.push('[');
            }
            ']' => {
                in_class = false;
                result.push(']');
            }
            '^' | '$' if !in_class && !result.ends_with('[') => {
                return Err("it has an anchor in the middle");
            }
            '|' if !in_class && depth == 0 && (from_start || to_end) => {
                return Err("it has an anchor in one alternative");
            }
            '/' => result.push_str("\\/"),
            '\n' => result.push_str("\\n"),
            '\r' => result.push_str("\\r"),
            '\t' => result.push_str("\\t"),
            char => {
                match char {
                    '(' if !in_class => depth += 1,
                    ')' if !in_class => depth = depth.saturating_sub(1),
                    _ => {}
                }
                result.push(char);
            }
        }
    }
    let any = |needed: bool| if needed { "(?s:.*)" } else { "" };
    Ok(format!("{}({result}){}", any(!from_start), any(!to_end)))
}

/// Why an automaton cannot run a pattern; None if it can.
pub(super) fn refusal(pattern: &str) -> Option<&'static str> {
    let mut escaped = false;
    let mut in_class = false;
    for (at, char) in pattern.char_indices() {
        if escaped {
            escaped = false;
            match char {
                'b' | 'B' if !in_class => return Some("it has a word boundary"),
                '1'..='9' | 'k' if !in_class => return Some("it has a back-reference"),
                _ => {}
            }
            continue;
        }
        match char {
            '\\' => escaped = true,
            '[' => in_class = true,
            ']' => in_class = false,
            '(' if !in_class => {
                let rest = &pattern[at + 1..];
                if ["?=", "?!", "?<=", "?<!"].iter().any(|look| rest.starts_with(look)) {
                    return Some("it has a look-around");
                }
            }
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn anchors() {
        assert_eq!(whole("^a/b$"), Ok(r"(a\/b)".into()));
        assert_eq!(whole(r"\d+"), Ok("(?s:.*)([0-9]+)(?s:.*)".into()));
        assert_eq!(whole(r"^[\w-]{2}"), Ok("([0-9a-zA-Z_-]{2})(?s:.*)".into()));
        assert_eq!(whole(r"^(a|b)$"), Ok("((a|b))".into()));
        assert_eq!(whole(r"a\$"), Ok(r"(?s:.*)(a\$)(?s:.*)".into()));
        assert_eq!(whole("^a|b$"), Err("it has an anchor in one alternative"));
        assert_eq!(whole("a^b"), Err("it has an anchor in the middle"));
        assert_eq!(whole("[^a]"), Ok("(?s:.*)([^a])(?s:.*)".into()));
        assert_eq!(whole("(?=a)b"), Err("it has a look-around"));
        assert_eq!(whole(r"(a)\1"), Err("it has a back-reference"));
        assert_eq!(whole(r"\bfoo"), Err("it has a word boundary"));
    }
}
