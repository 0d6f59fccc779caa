//! What a JSON text takes when a request with it is parsed and runs, found without parsing it.

/// The most values and member names, as in the library.
pub(super) const MAX_VALUES: usize = 1_000_000;
/// The memory for each value or name: in the server, or in the library after that. Measured with
/// lists of small objects and arrays, the worst kinds.
const BYTES_OF_VALUE: u64 = 768;
/// The memory for each byte of the text: its copies, the prompt and its tokens.
const BYTES_OF_BYTE: u64 = 16;

#[derive(Debug, PartialEq, Eq)]
pub(super) struct JsonWeight {
    bytes: usize,
    /// Separators outside of strings. Each value and name except the first follows one.
    pub(super) values: usize,
    /// The member `timeout_ms` of the outermost object, if it is a whole number.
    pub(super) timeout_ms: Option<u64>,
}

impl JsonWeight {
    /// The weight of a text, which need not be valid.
    pub(super) fn of(text: &[u8]) -> JsonWeight {
        let mut weight = JsonWeight { bytes: text.len(), values: 0, timeout_ms: None };
        let (mut depth, mut index) = (0_usize, 0);
        while let Some(byte) = text.get(index) {
            match byte {
                b'"' => {
                    let start = index + 1;
                    index = end_of_string(text, start);
                    if depth == 1 && text.get(start..index) == Some(b"timeout_ms") {
                        weight.timeout_ms = number(&text[index..]).or(weight.timeout_ms);
                    }
                }
                b',' | b':' => weight.values += 1,
                b'[' | b'{' => {
                    weight.values += 1;
                    depth += 1;
                }
                b']' | b'}' => depth = depth.saturating_sub(1),
                _ => {}
            }
            index += 1;
        }
        weight
    }

    /// An upper bound for the bytes of memory.
    pub(super) fn memory(&self) -> u64 {
        BYTES_OF_VALUE * self.values as u64 + BYTES_OF_BYTE * self.bytes as u64
    }
}

/// The index of the quote that ends a string, or the length of the text.
fn end_of_string(text: &[u8], start: usize) -> usize {
    let mut index = start;
    while let Some(rest) = text.get(index..) {
        let Some(found) = rest.iter().position(|byte| matches!(byte, b'"' | b'\\')) else { break };
        if rest[found] == b'"' {
            return index + found;
        }
        index += found + 2;
    }
    text.len()
}

/// The whole number after the quote and the colon at the end of a member's name.
fn number(text: &[u8]) -> Option<u64> {
    let text = text.strip_prefix(b"\"")?.trim_ascii_start();
    let text = text.strip_prefix(b":")?.trim_ascii_start();
    let end = text.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    // `1.5` and `1e300` are others.
    let is_whole = text.get(end).is_none_or(|byte| b",} \t\r\n".contains(byte));
    std::str::from_utf8(text.get(..end).filter(|_| is_whole)?).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, values: usize, timeout_ms: Option<u64>) {
        let expected = JsonWeight { bytes: text.len(), values, timeout_ms };
        assert_eq!(JsonWeight::of(text.as_bytes()), expected, "{text}");
    }

    #[test]
    fn values_and_names_are_counted_outside_of_strings() {
        check("", 0, None);
        check(r#"{"a,\",b": [1, 2]}"#, 4, None);
        check(r#"{"a\\": {"b": "{[,:\\"}, "c": []}"#, 7, None);
        check(r#"["unclosed\"#, 1, None);
        check(r#"["unclosed"#, 1, None);
        check("]]}}", 0, None);
    }

    #[test]
    fn the_timeout_is_that_of_the_request() {
        check(r#"{"timeout_ms": 20, "a": 1}"#, 4, Some(20));
        check(r#"{"a": {"timeout_ms": 20}}"#, 4, None);
        check(r#"{"timeout_ms": 1e300, "a": 1}"#, 4, None);
        check(r#"{"a": "timeout_ms", "b": 20}"#, 4, None);
        check(r#"{"a":"\"timeout_ms\":1","timeout_ms" : 3}"#, 4, Some(3));
        check(r#"{"timeout_ms": "20"}"#, 2, None);
        check(r#"{"timeout_ms": -1}"#, 2, None);
        check(r#"{"timeout_ms"#, 1, None);
    }
}
