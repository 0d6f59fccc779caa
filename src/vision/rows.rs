//! Counts rows of patches with a break after each row (family `pixtral` of spec/compose.md §7).

use super::size::Size;

/// Parameters of the family.
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
