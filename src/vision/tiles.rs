//! Counts the tokens of an image that is cut into tiles of one size, with a thumbnail if there are
//! several (family `internvl` of spec/compose.md §7).

use super::size::Size;

/// Parameters of the family.
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
