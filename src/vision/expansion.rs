//! What one placeholder becomes: tokens, rows, steps in time or pictures, and the text round them.

use super::limited_text::LimitedText;
use super::rule::Markup;
use crate::error::Result;

/// An image or a video, counted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Expansion {
    /// So many tokens.
    Tokens(u64),
    /// Rows of so many tokens, each with a break behind it.
    Rows { rows: u64, columns: u64 },
    /// So many tokens for each two frames, with their mean time in front.
    Steps { frames: u32, fps: f64, each: u64 },
    /// So many tokens for each frame, with its number in front.
    Pictures { frames: u32, each: u64 },
}

/// The texts of a run.
#[derive(Debug, Clone, Copy)]
pub(super) struct ExpansionTexts<'a> {
    /// What is repeated.
    pub(super) token: &'a str,
    /// Round a step in time.
    pub(super) step_start: &'a str,
    pub(super) step_end: &'a str,
    pub(super) markup: &'a Markup,
}

impl Expansion {
    /// Tokens that stand for the image or video: breaks of rows among them, what stands round them
    /// not.
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
    pub(super) fn write(self, texts: ExpansionTexts<'_>, page: &mut LimitedText) -> Result<()> {
        let markup = texts.markup;
        match self {
            Expansion::Tokens(count) => {
                page.push(&markup.start)?;
                page.repeat(texts.token, count)?;
                page.push(&markup.end)
            }
            Expansion::Rows { rows, columns } => {
                for row in 1..=rows {
                    page.repeat(texts.token, columns)?;
                    page.push(if row == rows { &markup.last_row_end } else { &markup.row_end })?;
                }
                Ok(())
            }
            Expansion::Steps { frames, fps, each } => {
                for first in (0..frames).step_by(2) {
                    // An odd last frame is shown twice.
                    let second = (first + 1).min(frames - 1);
                    let seconds = (f64::from(first) / fps + f64::from(second) / fps) / 2.0;
                    page.push(&format!("<{seconds:.1} seconds>"))?;
                    page.push(texts.step_start)?;
                    page.repeat(texts.token, each)?;
                    page.push(texts.step_end)?;
                }
                Ok(())
            }
            Expansion::Pictures { frames, each } => {
                for frame in 1..=frames {
                    let line = if frame == 1 { "" } else { "\n" };
                    page.push(&format!("{line}Frame{frame}: "))?;
                    page.push(&markup.start)?;
                    page.repeat(texts.token, each)?;
                    page.push(&markup.end)?;
                }
                Ok(())
            }
        }
    }
}
