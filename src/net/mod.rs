//! What the HTTP clients of `hub`, `remote` and `media` share: one exchange on its own thread,
//! cancellable waits, trusted authorities, origins and redirects of URLs, public addresses, secrets,
//! `Retry-After`.
//!
//! No requests are built here.

pub(crate) mod exchange;
#[cfg(all(feature = "hub", feature = "media"))]
pub(crate) mod public_address;
pub(crate) mod secret;
pub(crate) mod trust_store;
#[cfg(feature = "hub")]
pub(crate) mod url;
pub(crate) mod wait;

/// A server's text as one line for a message, cut to at most `most` characters.
pub(crate) fn one_line(text: &str, most: usize) -> String {
    let text = text.trim();
    let line: String =
        text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(most).collect();
    if line.len() < text.len() { format!("{line}...") } else { line }
}
