//! Removes secrets from text that leaves the library.
//!
//! In: errors and JSON that contain text from servers. Out: the same, with a placeholder for each
//! spelling of a secret. All errors of a client pass through one redactor.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::secret::Secret;
use super::spelling::Spellings;
use crate::error::Error;

/// Removes a client's secrets. A redactor without secrets changes nothing.
#[derive(Clone, Default)]
pub(crate) struct Redactor(Arc<Vec<(Spellings, &'static str)>>);

impl Redactor {
    pub(crate) fn new<'a>(secrets: impl IntoIterator<Item = &'a Secret>) -> Redactor {
        let secrets = secrets.into_iter().filter(|secret| !secret.text().is_empty());
        let spellings = |secret: &Secret| (Spellings::of(secret.text()), secret.placeholder());
        Redactor(Arc::new(secrets.map(spellings).collect()))
    }

    /// Whether the text contains a whole secret.
    #[cfg(feature = "hub")]
    pub(crate) fn finds_in(&self, text: &str) -> bool {
        self.0.iter().any(|(spellings, _)| spellings.are_in(text))
    }

    pub(crate) fn text(&self, text: &str) -> String {
        // The placeholder that replaces each byte.
        let mut hidden: Vec<Option<&'static str>> = vec![None; text.len()];
        let mut is_clean = true;
        for (spellings, placeholder) in self.0.iter() {
            spellings.find(text, |range| {
                is_clean = false;
                hidden[range].fill(Some(*placeholder));
            });
        }
        if is_clean {
            return text.to_owned();
        }
        let mut redacted = String::new();
        let mut last = None;
        for (at, character) in text.char_indices() {
            match hidden[at] {
                None => redacted.push(character),
                Some(placeholder) if last != Some(placeholder) => redacted.push_str(placeholder),
                Some(_) => {}
            }
            last = hidden[at];
        }
        redacted
    }

    /// Replaces secrets in the strings, numbers and member names of a JSON value.
    pub(crate) fn value(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => self.text(text).into(),
            Value::Number(number) => {
                let (text, redacted) = (number.to_string(), self.text(&number.to_string()));
                if text == redacted { value.clone() } else { redacted.into() }
            }
            Value::Array(items) => items.iter().map(|item| self.value(item)).collect(),
            Value::Object(members) => {
                let member =
                    |(name, value): (&String, &Value)| (self.text(name), self.value(value));
                Value::Object(members.iter().map(member).collect::<Map<_, _>>())
            }
            Value::Null | Value::Bool(_) => value.clone(),
        }
    }

    /// Replaces secrets in the error's texts. Drops its source, whose text could show a secret.
    pub(crate) fn error(&self, error: Error) -> Error {
        if self.0.is_empty() {
            return error;
        }
        let redacted = Error::new(error.code(), self.text(error.message()));
        let details = error.details().into_iter().flatten();
        details.fold(redacted, |redacted, (name, value)| redacted.with(name, self.value(value)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Code;
    use serde_json::json;

    const KEY: &str = "sk-Ab/1+2=cdEF.gh";

    fn of(key: &str) -> Redactor {
        Redactor::new([&Secret::new(key, "[key]").expect("printable")])
    }

    #[track_caller]
    fn check(text: &str, expected: &str) {
        assert_eq!(of(KEY).text(text), expected, "{text}");
    }

    fn each(escaped: impl Fn(u32) -> String) -> String {
        KEY.chars().map(|c| escaped(u32::from(c))).collect()
    }

    #[test]
    fn spellings_of_a_key() {
        check("no key", "no key");
        check(&format!("bad Bearer {KEY}!"), "bad Bearer [key]!");
        check(&format!("<{}>", KEY.to_lowercase()), "<[key]>");
        check(&format!("{}, {KEY}{KEY}", KEY.to_uppercase()), "[key], [key]");
        for escaped in [
            each(|c| format!("%{c:02x}")),
            each(|c| format!("%{c:02X}")),
            each(|c| format!("%25{c:02X}")),
            each(|c| format!("\\u{c:04x}")),
            each(|c| format!("\\\\u{c:04X}")),
            each(|c| format!("\\u{{{c:x}}}")),
            each(|c| format!("\\x{c:02x}")),
            each(|c| format!("&#{c};")),
            each(|c| format!("&#x{c:X};")),
            each(|c| format!("{c:02x}")),
            each(|c| format!("{c:02X}")),
            KEY.replace('/', "\\/"),
            KEY.replace('+', "%2B"),
        ] {
            check(&format!("\u{fc} {escaped} \u{fc}"), "\u{fc} [key] \u{fc}");
        }
        // The first and last digits also depend on the text around the key.
        for (encoded, expected) in [
            ("c2stQWIvMSsyPWNkRUYuZ2g=", "[key]g="),
            ("OnNrLUFiLzErMj1jZEVGLmdo", "On[key]"),
            ("dTpzay1BYi8xKzI9Y2RFRi5naA==", "dTp[key]A=="),
            ("dXM6c2stQWIvMSsyPWNkRUYuZ2g=", "dXM6[key]g="),
        ] {
            check(&format!("Basic {encoded}"), &format!("Basic {expected}"));
        }
    }

    #[test]
    fn parts_of_a_key() {
        check("sk-Ab/1+", "[key]");
        check("sk-Ab/1", "sk-Ab/1");
        check("xx/1+2=cdEyy", "xx[key]yy");
        check("the key sk-A...", "the key [key]...");
        check("\"sk-Ab/1...\" and sk-", "\"[key]...\" and sk-");
        check("%73k-Ab%2F1...", "[key]...");
        check("%73%6b%2d%41%...", "[key]...");
        check("%73%6b%2d%41%6...", "[key]...");
        check("\\u0073\\u006b\\u002d\\u004...", "[key]...");
    }

    #[test]
    fn a_short_key_is_a_word() {
        for (key, text, expected) in [
            ("a", "a bad Bearer a, b%61", "[key] bad Bearer [key], b%61"),
            ("abc", "abcd abc", "abcd [key]"),
            ("abcd", "xABCDx abc", "x[key]x abc"),
            ("12345678", "n_ctx 123456789", "n_ctx [key]9"),
        ] {
            assert_eq!(of(key).text(text), expected, "{key}");
        }
    }

    #[test]
    fn errors_and_values() {
        let error = Error::new(Code::HubNetwork, format!("no {KEY}"))
            .with("host", KEY)
            .with("list", vec![KEY, "x"])
            .caused_by(KEY);
        let error = of(KEY).error(error);
        assert_eq!(error.message(), "no [key]");
        assert_eq!(json!(error.details()), json!({ "host": "[key]", "list": ["[key]", "x"] }));
        assert!(std::error::Error::source(&error).is_none());
        let value = json!({ "a": [1, 123_456_789_u64, null, true], "123456789": 1.5 });
        assert_eq!(
            of("123456789").value(&value),
            json!({ "a": [1, "[key]", null, true], "[key]": 1.5 })
        );
        assert_eq!(Redactor::default().text(KEY), KEY);
    }

    #[cfg(feature = "hub")]
    #[test]
    fn whole_secrets_are_found() {
        assert!(of(KEY).finds_in(&format!("a/{}.gguf", KEY.to_lowercase())));
        assert!(!of(KEY).finds_in("a/sk-Ab/1+2.gguf") && !of("abc").finds_in("abc.gguf"));
    }
}
