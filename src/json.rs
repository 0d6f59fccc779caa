//! Parses JSON text within limits on memory and stack.
//!
//! In: a text from outside. Out: its value. A value takes up to 50 times as many bytes as its text
//! (`[0,0,…]`), so the number of values is limited. Strings may be as long as the text. serde_json
//! limits the nesting to 128 levels.

use serde::de::{DeserializeOwned, Error};

/// The maximum number of values and member names in a text. They take at most about 200 MB.
pub(crate) const MAX_VALUES: usize = 1_000_000;

/// Parses a text. Fails if it has more than [`MAX_VALUES`] values and member names.
pub(crate) fn from_str<T: DeserializeOwned>(text: &str) -> serde_json::Result<T> {
    from_slice(text.as_bytes())
}

/// Like [`from_str`], for bytes.
pub(crate) fn from_slice<T: DeserializeOwned>(text: &[u8]) -> serde_json::Result<T> {
    if exceeds_limit(text) {
        return Err(serde_json::Error::custom(too_many()));
    }
    with_stack(|| serde_json::from_slice(text))
}

/// The problem with a text of more than [`MAX_VALUES`] values.
pub(crate) fn too_many() -> String {
    format!("has more than {MAX_VALUES} values and member names")
}

/// Whether a text has more than [`MAX_VALUES`] values and member names.
pub(crate) fn exceeds_limit(text: &[u8]) -> bool {
    // Each value and name needs a separator of one byte.
    text.len() > MAX_VALUES && values(text) > MAX_VALUES
}

/// An upper bound for the number of values and member names in a text. Each of them except the
/// first follows one of these characters outside of strings.
pub(crate) fn values(text: &[u8]) -> usize {
    let (mut count, mut rest) = (0, text);
    loop {
        let quote = rest.iter().position(|byte| *byte == b'"').unwrap_or(rest.len());
        let separators =
            rest[..quote].iter().filter(|byte| matches!(byte, b',' | b':' | b'[' | b'{'));
        count += separators.count();
        rest = rest.get(quote + 1..).unwrap_or_default();
        // Skips to the end of the string.
        while let Some(end) = rest.iter().position(|byte| matches!(byte, b'"' | b'\\')) {
            let (ends, skipped) = (rest[end] == b'"', end + 1);
            rest = &rest[skipped..];
            if ends {
                break;
            }
            rest = rest.get(1..).unwrap_or_default();
        }
        if rest.is_empty() {
            return count;
        }
    }
}

/// Runs a parser with at least this much stack. A host's thread may have only 64 KiB.
pub(crate) fn with_stack<T>(run: impl FnOnce() -> T) -> T {
    // Enough for 128 levels. A build without optimization takes more than 2 KiB for each.
    const RED_ZONE: usize = if cfg!(debug_assertions) { 512 << 10 } else { 128 << 10 };
    const MORE_STACK: usize = 1 << 20;
    stacker::maybe_grow(RED_ZONE, MORE_STACK, run)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    #[track_caller]
    fn check(text: &str, expected: usize) {
        assert_eq!(values(text.as_bytes()), expected, "{text}");
        assert!(count(&serde_json::from_str(text).expect("JSON")) <= expected + 1, "{text}");
    }

    /// The number of values and member names.
    fn count(value: &Value) -> usize {
        1 + match value {
            Value::Array(items) => items.iter().map(count).sum::<usize>(),
            Value::Object(members) => members.values().map(|value| 1 + count(value)).sum(),
            _ => 0,
        }
    }

    #[test]
    fn values_are_counted_outside_of_strings() {
        check("1", 0);
        check(r#""a,b:c[\"{,\\""#, 0);
        check("[1,2,[3]]", 4);
        check(r#"{"a":1,"b\"":{"c":"x,y"}}"#, 6);
        check(r#"["",[],{},"\\",null]"#, 7);
        assert_eq!(values(b"\"unclosed\\"), 0);
        assert_eq!(values(b"[\"unclosed"), 1);
    }

    #[test]
    fn the_number_of_values_is_limited() {
        let zeros = |count: usize| format!("[0{}]", ",0".repeat(count - 1));
        assert!(from_str::<Value>(&zeros(MAX_VALUES)).is_ok());
        let error = from_str::<Value>(&zeros(MAX_VALUES + 1)).expect_err("too many");
        assert_eq!(error.to_string(), "has more than 1000000 values and member names");
        assert!(from_str::<String>(&format!("\"{}\"", ",".repeat(2 * MAX_VALUES))).is_ok());
    }

    #[test]
    fn deep_text_needs_no_stack_of_the_caller() {
        let deep = format!("{}{}", "[".repeat(127), "]".repeat(127));
        let run = move || from_str::<Value>(&deep).map(drop);
        for kib in [64, 150, 256, 600] {
            let thread = std::thread::Builder::new().stack_size(kib << 10);
            let thread = thread.spawn(run.clone()).expect("a thread");
            assert!(thread.join().expect("no panic").is_ok());
        }
    }

    #[test]
    fn a_string_is_not_parsed() {
        // With serde_json's feature `raw_value`, this text would have another meaning.
        let text = r#"{"$serde_json::private::RawValue":"[1,2]"}"#;
        let value: Value = from_str(text).expect("JSON");
        assert_eq!(value["$serde_json::private::RawValue"], "[1,2]");
    }
}
