//! What the HTTP clients `hub` and `remote` share: one exchange on its own thread, cancellable
//! waits, trusted authorities, secrets, `Retry-After`.
//!
//! Neither URLs nor requests are built here.

pub(crate) mod exchange;
pub(crate) mod secret;
pub(crate) mod trust_store;
pub(crate) mod wait;

/// A server's text as one line for a message, cut to at most `most` characters.
pub(crate) fn one_line(text: &str, most: usize) -> String {
    let text = text.trim();
    let line: String =
        text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(most).collect();
    if line.len() < text.len() { format!("{line}...") } else { line }
}
