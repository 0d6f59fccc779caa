//! Counts an image as one tile plus the tiles of the canvas that fits it best (family `llava_next`
//! of spec/compose.md §7).

use super::size::Size;

/// Parameters of the family.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct AnyRes {
    /// The side of a tile in pixels.
    pub(crate) size: u32,
    /// The side of a patch in pixels.
    pub(crate) patch: u32,
    /// Canvases: height and width in pixels, each side at least that of a tile.
    pub(crate) grid: Vec<(u32, u32)>,
}

impl AnyRes {
    /// The tokens of the canvas without its padding, of the line ends, and of the whole image as
    /// one tile.
    pub(super) fn tokens(&self, size: Size) -> u64 {
        let (height, width) = self.canvas(size);
        let side = u64::from(self.size / self.patch);
        let (rows, columns) =
            (side * u64::from(height / self.size), side * u64::from(width / self.size));
        let (across, down) = (columns as f64, rows as f64);
        let (rows, columns) = if size.w / size.h > across / down {
            (unpadded(rows, size.h * across / size.w), columns)
        } else {
            (rows, unpadded(columns, size.w * down / size.h))
        };
        rows * columns + rows + side * side
    }

    /// The canvas that keeps most of the image. Among these, the one that wastes least, then the
    /// first.
    fn canvas(&self, size: Size) -> (u32, u32) {
        let mut best = ((0, 0), f64::NEG_INFINITY, f64::INFINITY);
        for &(height, width) in &self.grid {
            let (h, w) = (f64::from(height), f64::from(width));
            let scale = (w / size.w).min(h / size.h);
            let kept = ((size.w * scale).floor() * (size.h * scale).floor()).min(size.h * size.w);
            let wasted = h * w - kept;
            if kept > best.1 || (kept == best.1 && wasted < best.2) {
                best = ((height, width), kept, wasted);
            }
        }
        best.0
    }
}

/// The number of patches without the padding on both sides of an image that fills `filled` patches.
fn unpadded(patches: u64, filled: f64) -> u64 {
    // Rounds to seven decimals, then down, as transformers does.
    let filled = ((filled * 1e7).round_ties_even() / 1e7).floor() as u64;
    patches - patches.saturating_sub(filled) / 2 * 2
}
