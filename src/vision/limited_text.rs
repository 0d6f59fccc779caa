//! A prompt of limited length, while it is written.

use crate::error::{Code, Error, Result};

/// A text that never exceeds its limit.
#[derive(Debug)]
pub(super) struct LimitedText {
    text: String,
    limit: usize,
}

impl LimitedText {
    /// An empty text of at most `limit` bytes.
    pub(super) fn new(limit: usize) -> LimitedText {
        LimitedText { text: String::new(), limit }
    }

    /// The number of bytes written so far.
    pub(super) fn len(&self) -> usize {
        self.text.len()
    }

    /// Appends a text. `TEMPLATE_LIMIT` if it does not fit.
    pub(super) fn push(&mut self, text: &str) -> Result<()> {
        self.repeat(text, 1)
    }

    /// Appends a text `times` times. The length is checked before anything is written.
    pub(super) fn repeat(&mut self, text: &str, times: u64) -> Result<()> {
        let bytes = usize::try_from(times).ok().and_then(|times| text.len().checked_mul(times));
        if bytes.is_none_or(|bytes| bytes > self.limit - self.text.len()) {
            let limit = self.limit;
            let message = format!(
                "vision: the expanded prompt has more than {limit} bytes; \
                 send fewer or smaller images and videos, or raise template_limits.output_bytes"
            );
            return Err(Error::new(Code::TemplateLimit, message)
                .with("kind", "limit")
                .with("path", "vision"));
        }
        if !text.is_empty() {
            (0..times).for_each(|_| self.text.push_str(text));
        }
        Ok(())
    }

    /// The text.
    pub(super) fn into_text(self) -> String {
        self.text
    }
}
