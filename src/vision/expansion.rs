//! The expansion of one placeholder: tokens, rows, time steps or pictures, and their markup; the
//! text of limited length that it is written to.

use crate::error::{Code, Error, Result};

/// The texts of an expansion other than its tokens.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Markup {
    /// The repeated text; None is the placeholder itself.
    pub(super) token: Option<String>,
    /// The texts before and after the tokens of an image.
    pub(super) start: String,
    pub(super) end: String,
    /// The texts before and after each time step of a video; `None` uses the template's texts.
    pub(super) step_start: Option<String>,
    pub(super) step_end: Option<String>,
    /// The texts that end a row and the last row.
    pub(super) row_end: String,
    pub(super) last_row_end: String,
    /// If set, all images are at the start of the prompt, followed by this text. The inner `None`
    /// means the template's begin token.
    pub(super) front: Option<Option<String>>,
}

/// The counted tokens of an image or a video.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Expansion {
    /// This many tokens.
    Tokens(u64),
    /// Rows of `columns` tokens, with a break after each row.
    Rows { rows: u64, columns: u64 },
    /// `each` tokens for every two frames, after their mean time.
    Steps { frames: u32, fps: f64, each: u64 },
    /// `each` tokens for every frame, after the frame's number.
    Pictures { frames: u32, each: u64 },
}

#[derive(Debug, Clone, Copy)]
pub(super) struct ExpansionTexts<'a> {
    /// The repeated text.
    pub(super) token: &'a str,
    /// The texts before and after a time step.
    pub(super) step_start: &'a str,
    pub(super) step_end: &'a str,
    pub(super) markup: &'a Markup,
}

impl Expansion {
    /// The tokens of the image or video, including row breaks, without the surrounding markup.
    pub(super) fn count(self) -> u64 {
        match self {
            Expansion::Tokens(count) => count,
            Expansion::Rows { rows, columns } => rows.saturating_mul(columns.saturating_add(1)),
            Expansion::Steps { frames, each, .. } => {
                u64::from(frames.div_ceil(2)).saturating_mul(each)
            }
            Expansion::Pictures { frames, each } => u64::from(frames).saturating_mul(each),
        }
    }

    /// Writes the expansion.
    pub(super) fn write(self, texts: ExpansionTexts<'_>, out: &mut LimitedText) -> Result<()> {
        let markup = texts.markup;
        match self {
            Expansion::Tokens(count) => {
                out.push(&markup.start)?;
                out.repeat(texts.token, count)?;
                out.push(&markup.end)
            }
            Expansion::Rows { rows, columns } => {
                for row in 1..=rows {
                    out.repeat(texts.token, columns)?;
                    out.push(if row == rows { &markup.last_row_end } else { &markup.row_end })?;
                }
                Ok(())
            }
            Expansion::Steps { frames, fps, each } => {
                for first in (0..frames).step_by(2) {
                    // An odd last frame is paired with itself.
                    let second = (first + 1).min(frames - 1);
                    let seconds = (f64::from(first) / fps + f64::from(second) / fps) / 2.0;
                    out.push(&format!("<{seconds:.1} seconds>"))?;
                    out.push(texts.step_start)?;
                    out.repeat(texts.token, each)?;
                    out.push(texts.step_end)?;
                }
                Ok(())
            }
            Expansion::Pictures { frames, each } => {
                for frame in 1..=frames {
                    let line = if frame == 1 { "" } else { "\n" };
                    out.push(&format!("{line}Frame{frame}: "))?;
                    out.push(&markup.start)?;
                    out.repeat(texts.token, each)?;
                    out.push(&markup.end)?;
                }
                Ok(())
            }
        }
    }
}

/// A prompt while it is written. It never exceeds its limit.
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
