//! Parses JSON text within limits on memory and stack.
//!
//! In: a text from outside. Out: its value. A value takes up to 50 times as many bytes as its text
//! (`[0,0,…]`), so the number of values is limited. Strings may be as long as the text. serde_json
//! limits the nesting to 128 levels. No name of a member has a meaning here, so no other module
//! calls serde_json's own functions (`tests/integration/layers.rs`).

mod plain_value;

use serde::de::{DeserializeOwned, Error, IgnoredAny};
use serde_json::{Deserializer, Map, Value};

pub use plain_value::PlainValue;

/// The maximum number of values and member names in a text. They take at most about 200 MB.
pub(crate) const MAX_VALUES: usize = 1_000_000;

/// The maximum number of arrays and objects inside each other: that of serde_json's parser.
#[cfg(feature = "engine")]
const MAX_LEVELS: usize = 127;

/// Parses a text. Fails if it has more than [`MAX_VALUES`] values and member names.
pub(crate) fn value(text: impl AsRef<[u8]>) -> serde_json::Result<Value> {
    typed(text).map(|PlainValue(value)| value)
}

/// Like [`value`]; `None` for anything but an object.
pub(crate) fn object(text: impl AsRef<[u8]>) -> Option<Map<String, Value>> {
    match value(text) {
        Ok(Value::Object(object)) => Some(object),
        _ => None,
    }
}

/// Like [`value`], for a type without a [`Value`] inside.
pub(crate) fn typed<T: DeserializeOwned>(text: impl AsRef<[u8]>) -> serde_json::Result<T> {
    let text = text.as_ref();
    if exceeds_limit(text) {
        return Err(serde_json::Error::custom(too_many()));
    }
    with_stack(|| serde_json::from_slice(text))
}

/// Like [`typed`], for a type whose values are small, which limits their number itself.
#[cfg(feature = "tokenizer-json")]
pub(crate) fn typed_unlimited<T: DeserializeOwned>(text: &[u8]) -> serde_json::Result<T> {
    with_stack(|| serde_json::from_slice(text))
}

/// A value as another type of a dependency. The value is within the limits.
#[cfg(feature = "tokenizer-json")]
pub(crate) fn into_type<T: DeserializeOwned>(value: Value) -> serde_json::Result<T> {
    with_stack(|| serde_json::from_value(value))
}

/// Whether a text is JSON. No value is built, so their number is not limited.
pub(crate) fn is_valid(text: &str) -> bool {
    with_stack(|| serde_json::from_str::<IgnoredAny>(text).is_ok())
}

/// The value at the start of a text and the number of bytes up to its end, within the limits of the
/// caller. `T` has no [`Value`] inside, except in [`PlainValue`].
pub(crate) fn leading<T: DeserializeOwned>(text: &str) -> Option<(T, usize)> {
    with_stack(|| {
        let mut values = Deserializer::from_str(text).into_iter();
        let value = values.next()?.ok()?;
        Some((value, values.byte_offset()))
    })
}

/// The problem with a text of more than [`MAX_VALUES`] values.
pub(crate) fn too_many() -> String {
    format!("has more than {MAX_VALUES} values and member names")
}

/// Whether a text has more than [`MAX_VALUES`] values and member names.
pub(crate) fn exceeds_limit(text: &[u8]) -> bool {
    // Each value and name but the first needs a separator of one byte.
    text.len() > MAX_VALUES && values(text) >= MAX_VALUES
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

/// Refuses a value that was not parsed from a text if a text of it would be refused.
#[cfg(feature = "engine")]
pub(crate) fn check_limits(value: &Value) -> Result<(), String> {
    /// `levels` and `values` are how many may follow.
    fn check(value: &Value, levels: usize, values: &mut usize) -> Result<(), String> {
        *values = values.checked_sub(1).ok_or_else(too_many)?;
        let deeper = || {
            let problem = || format!("has more than {MAX_LEVELS} levels of arrays and objects");
            levels.checked_sub(1).ok_or_else(problem)
        };
        match value {
            Value::Array(items) => {
                let levels = deeper()?;
                items.iter().try_for_each(|item| check(item, levels, values))
            }
            Value::Object(members) => {
                let levels = deeper()?;
                *values = values.checked_sub(members.len()).ok_or_else(too_many)?;
                members.values().try_for_each(|item| check(item, levels, values))
            }
            _ => Ok(()),
        }
    }
    with_stack(|| check(value, MAX_LEVELS, &mut { MAX_VALUES }))
}

/// Runs a parser with at least this much stack. A host's thread may have only 64 KiB.
pub(crate) fn with_stack<T>(run: impl FnOnce() -> T) -> T {
    // Enough for 128 levels. A build without optimization takes more than 2 KiB for each.
    const RED_ZONE: usize = if cfg!(debug_assertions) { 1 << 20 } else { 512 << 10 };
    const MORE_STACK: usize = 2 << 20;
    stacker::maybe_grow(RED_ZONE, MORE_STACK, run)
}

#[cfg(test)]
mod tests {
    use super::*;

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
        // The list is a value too.
        assert!(value(zeros(MAX_VALUES - 1)).is_ok());
        let error = value(zeros(MAX_VALUES)).expect_err("too many");
        assert_eq!(error.to_string(), "has more than 1000000 values and member names");
        assert!(typed::<String>(format!("\"{}\"", ",".repeat(2 * MAX_VALUES))).is_ok());
    }

    #[cfg(feature = "engine")]
    #[test]
    fn values_have_the_limits_of_texts() {
        for levels in [126, 127, 128] {
            let text = format!("{}{}", "[".repeat(levels), "]".repeat(levels));
            let built = (0..levels).fold(None, |inner, _| Some(Value::from_iter(inner)));
            let built = built.expect("at least one level");
            assert_eq!(check_limits(&built).is_ok(), value(text).is_ok(), "{levels}");
        }
        let zeros = |count: usize| Value::from(vec![0; count]);
        assert_eq!(check_limits(&zeros(MAX_VALUES - 1)), Ok(()));
        assert_eq!(check_limits(&zeros(MAX_VALUES)), Err(too_many()));
    }

    #[test]
    fn deep_text_needs_no_stack_of_the_caller() {
        let deep = format!("{}{}", "[".repeat(127), "]".repeat(127));
        let run = move || value(&deep).map(drop);
        for kib in [64, 150, 256, 600] {
            let thread = std::thread::Builder::new().stack_size(kib << 10);
            let thread = thread.spawn(run.clone()).expect("a thread");
            assert!(thread.join().expect("no panic").is_ok());
        }
    }

    #[test]
    fn values_are_those_of_serde_json() {
        for text in [
            r#"{"a":[1,-2,1.50,1e400,123456789012345678901234567890,0,-0.0,true,null],"b":{}}"#,
            r#"{"a":1,"b":2,"a":{"c":"\u0041\n"}}"#,
            r#""\ud83d\ude00""#,
            "7",
            " [ ] ",
        ] {
            let expected: Value = serde_json::from_str(text).expect("JSON");
            let read = value(text).expect("JSON");
            assert_eq!((read.to_string(), &read), (expected.to_string(), &expected));
        }
        for text in ["", "{", "[1,]", "01", "nul", r#"{"a" 1}"#, r#""\ud800""#, "1 2"] {
            let expected = serde_json::from_str::<Value>(text).expect_err("no JSON");
            assert_eq!(value(text).expect_err("no JSON").to_string(), expected.to_string());
        }
    }

    /// serde_json would read these objects as numbers, as other JSON, or not at all.
    #[test]
    fn no_name_has_a_meaning() {
        for name in ["Number", "RawValue"].map(|name| format!("$serde_json::private::{name}")) {
            for inside in [r#""x""#, r#""12""#, r#""[1,2]""#, "12", "null", r#"{"a":"1"}"#] {
                for text in [
                    format!(r#"{{"{name}":{inside}}}"#),
                    format!(r#"{{"\u0024{}":{inside}}}"#, &name[1..]),
                    format!(r#"{{"{name}":{inside},"b":1}}"#),
                    format!(r#"{{"a":1,"{name}":{inside}}}"#),
                    format!(r#"{{"{name}":1,"{name}":{inside}}}"#),
                ] {
                    let Ok(Value::Object(read)) = value(&text) else { panic!("{text}") };
                    let inner: Value = serde_json::from_str(inside).expect("JSON");
                    assert_eq!(read.get(&name), Some(&inner), "{text}");
                    let others = usize::from(text.contains(r#""a":1,"#) || text.contains(r#""b""#));
                    assert_eq!(read.len(), 1 + others, "{text}");
                    let nested = value(format!("[[{text}]]")).expect("JSON");
                    assert_eq!(nested[0][0], Value::Object(read.clone()), "{text}");
                    assert_eq!(object(Value::Object(read.clone()).to_string()), Some(read));
                }
            }
        }
    }

    #[test]
    fn a_value_at_the_start_of_a_text() {
        let read = |text| leading::<PlainValue>(text).map(|(PlainValue(value), end)| (value, end));
        assert_eq!(read(r#" {"a":1} {"#), Some((serde_json::json!({ "a": 1 }), 8)));
        assert_eq!(read("{"), None);
        assert!(is_valid("[1]") && !is_valid("[1] 2"));
    }
}
