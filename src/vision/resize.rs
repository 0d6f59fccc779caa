//! Counts the tokens of images that are scaled to a multiple of a square: one token per merged
//! square of patches (family `qwen` of spec/compose.md §7).

use super::size::Size;

/// The largest ratio of the longer side to the shorter one.
const MAX_ASPECT: f64 = 200.0;

/// Bounds of an image or a video, in pixels.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Pixels {
    pub(crate) min: f64,
    pub(crate) max: f64,
}

/// The grid that sizes are rounded to.
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
