//! A token or key that is sent to a server. No message and no debug output shows it: a
//! [`Redactor`](super::redactor::Redactor) removes it from text that the server sends back.

use std::fmt;

/// The secret, and the placeholder that replaces it in a server's text.
#[derive(Clone)]
pub(crate) struct Secret {
    text: String,
    placeholder: &'static str,
}

impl Secret {
    /// Trims the text. `None` if an HTTP header cannot carry it.
    pub(crate) fn new(text: &str, placeholder: &'static str) -> Option<Secret> {
        let text = text.trim();
        let is_printable = text.bytes().all(|byte| byte.is_ascii_graphic());
        is_printable.then(|| Secret { text: text.to_owned(), placeholder })
    }

    /// The value of the `Authorization` header.
    pub(crate) fn bearer(&self) -> String {
        format!("Bearer {}", self.text)
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    pub(super) fn placeholder(&self) -> &'static str {
        self.placeholder
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str(self.placeholder)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_never_shown() {
        let secret = Secret::new(" hf_x\n", "[token]").expect("printable");
        assert_eq!(secret.bearer(), "Bearer hf_x");
        assert_eq!(format!("{secret:?}"), "[token]");
        assert!(Secret::new("hf\nx", "[token]").is_none());
    }
}
