//! What one template may use: limits in, a bounded writer out. A hostile template ends in `TEMPLATE_LIMIT`, not in a hang.

use std::fmt;
use std::io;

/// The longest template source that is compiled, in bytes.
pub(crate) const SOURCE_BYTES: usize = 1 << 20;

/// Bounds of one render; going over one is `TEMPLATE_LIMIT` with `{"kind":"limit"}` in the details.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Engine steps; roughly one for each operation. Real templates stay below 250,000.
    pub fuel: u64,
    /// The longest prompt, in bytes, checked while it is written.
    pub output_bytes: usize,
    /// How deep blocks and macros may nest; a macro call counts four. 500 is also the engine's own maximum.
    pub recursion: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { fuel: 50_000_000, output_bytes: 16 << 20, recursion: 500 }
    }
}

/// A limit was exceeded; travels as the source of engine errors, so that it is recognised without reading messages.
#[derive(Debug, Clone)]
pub(crate) struct Exceeded(pub(crate) String);

impl fmt::Display for Exceeded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Exceeded {}

/// Collects a prompt up to a number of bytes.
pub(crate) struct BoundedText {
    text: Vec<u8>,
    limit: usize,
    /// Whether a write was refused; what was collected is then incomplete.
    pub(crate) full: bool,
}

impl BoundedText {
    pub(crate) fn new(limit: usize) -> Self {
        BoundedText { text: Vec::new(), limit, full: false }
    }

    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.text
    }
}

impl io::Write for BoundedText {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.len() > self.limit - self.text.len() {
            self.full = true;
            return Err(io::Error::other(Exceeded("the output is too long".to_owned())));
        }
        self.text.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::io::Write;

    use super::*;

    #[test]
    fn bounded_text_takes_exactly_its_limit() {
        let mut text = BoundedText::new(4);
        assert!(text.write_all(b"abcd").is_ok());
        assert!(!text.full);
        assert!(text.write_all(b"e").is_err());
        assert!(text.full);
        assert_eq!(text.into_bytes(), b"abcd");
    }
}
