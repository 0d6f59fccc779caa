//! The tokens of an image, from its size alone: one type for each way of counting.
//!
//! In: a size, the parameters of a family. Out: numbers of tokens. The formulas are in
//! docs/vision.md, Formulas.

use super::size::Size;

/// The largest ratio of the longer side to the shorter one.
const MAX_ASPECT: f64 = 200.0;

/// Bounds of an image or a video, in pixels (family `qwen`).
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Pixels {
    pub(crate) min: f64,
    pub(crate) max: f64,
}

/// The grid that sizes are rounded to: one token for each merged square of patches (family `qwen`).
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Grid {
    /// The side of a patch in pixels.
    pub(crate) patch: f64,
    /// The side of a merged square in patches.
    pub(crate) merge: f64,
}

/// An aspect ratio above the maximum.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct BadAspect(pub(crate) f64);

impl Grid {
    /// The side of the square for one token, in pixels.
    fn unit(self) -> f64 {
        self.patch * self.merge
    }

    /// The tokens of one image.
    pub(super) fn tokens(self, size: Size, pixels: Pixels) -> Result<u64, BadAspect> {
        self.fit(size, size, 1.0, 1.0, pixels)
    }

    /// The tokens of one time step (two frames) of a video. The bounds apply to the pixels of the
    /// whole video.
    ///
    /// As in transformers 5.23 for videos with timestamps, sides below the unit are scaled up to it
    /// first.
    pub(super) fn tokens_of_step(
        self,
        size: Size,
        frames: f64,
        pixels: Pixels,
    ) -> Result<u64, BadAspect> {
        let unit = self.unit();
        let scale =
            if size.h < unit || size.w < unit { (unit / size.h).max(unit / size.w) } else { 1.0 };
        let scaled = Size { h: (size.h * scale).floor(), w: (size.w * scale).floor() };
        self.fit(size, scaled, frames, (frames / 2.0).round_ties_even() * 2.0, pixels)
    }

    /// The tokens of one of `depth` layers. `frames` layers share the pixels.
    fn fit(
        self,
        sent: Size,
        size: Size,
        frames: f64,
        depth: f64,
        pixels: Pixels,
    ) -> Result<u64, BadAspect> {
        if size.aspect() > MAX_ASPECT {
            return Err(BadAspect(sent.aspect()));
        }
        let unit = self.unit();
        let each = |side: &dyn Fn(f64) -> f64| Size { h: side(size.h), w: side(size.w) };
        let mut fitted = each(&|side| (side / unit).round_ties_even() * unit);
        let volume = depth * fitted.h * fitted.w;
        if volume > pixels.max {
            let by = (frames * size.h * size.w / pixels.max).sqrt();
            fitted = each(&|side| unit.max((side / by / unit).floor() * unit));
        } else if volume < pixels.min {
            let by = (pixels.min / (frames * size.h * size.w)).sqrt();
            fitted = each(&|side| (side * by / unit).ceil() * unit);
        }
        // Both sides are whole multiples of the unit.
        Ok(((fitted.h / unit).round() * (fitted.w / unit).round()) as u64)
    }
}

/// Rows of patches with a break after each row (family `pixtral`).
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Rows {
    /// The side of a patch in pixels.
    pub(crate) patch: f64,
    /// The longest side that is not scaled down, in pixels.
    pub(crate) longest: f64,
}

impl Rows {
    /// The numbers of rows and columns. A side that is scaled to zero has none.
    pub(super) fn count(self, size: Size) -> (u64, u64) {
        let scale = (size.h / self.longest).max(size.w / self.longest);
        let patches = |side: f64| {
            let side = if scale > 1.0 { (side / scale).floor() } else { side };
            (side / self.patch).ceil() as u64
        };
        (patches(size.h), patches(size.w))
    }
}

/// Tiles of one size, with a thumbnail if there are several (family `internvl`).
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Tiles {
    /// The side of a tile in pixels.
    pub(crate) tile: u32,
    /// The maximum number of tiles, without the thumbnail.
    pub(crate) most: u32,
    /// Tokens per tile.
    pub(crate) per: u32,
}

impl Tiles {
    /// The tokens of all tiles, including the thumbnail.
    pub(super) fn tokens(self, size: Size) -> u64 {
        let tiles = u64::from(self.count(size));
        u64::from(self.per) * (tiles + u64::from(tiles > 1))
    }

    /// The number of tiles, without the thumbnail, of the canvas whose aspect ratio is closest to
    /// the image's.
    fn count(self, size: Size) -> u32 {
        let tile = f64::from(self.tile);
        let (mut best, mut least) = (1, f64::INFINITY);
        for count in 1..=self.most {
            for columns in (1..=count).filter(|columns| count % columns == 0) {
                let distance =
                    (size.w / size.h - f64::from(columns) / f64::from(count / columns)).abs();
                // Of equally close canvases the larger one, if the image has enough pixels for half
                // of it.
                let large = size.h * size.w > 0.5 * tile * tile * f64::from(count);
                if distance < least || (distance == least && large) {
                    (best, least) = (count, distance);
                }
            }
        }
        best
    }
}

/// One tile plus the tiles of the canvas that fits best (family `llava_next`).
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
