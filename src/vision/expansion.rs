//! The expansion of one placeholder: tokens, rows, time steps or pictures, and their markup.

use super::limited_text::LimitedText;
use super::rule::Markup;
use crate::error::Result;

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
