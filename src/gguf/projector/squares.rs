//! The squares of a scaled picture, each of which is one embedding.

use super::grids::RATIO_TILE;

/// The longest side to which llama.cpp scales a picture.
pub(super) const MAX_SIDE: u64 = 65_536;

/// A picture with so many times the most pixels of squares becomes tiles.
const RATIO_TOLERANCE: f64 = 2.0;

/// How a projector scales pictures to whole squares.
#[derive(Debug, Clone, Copy)]
pub(super) struct Squares {
    /// The side of a square, in pixels.
    pub(super) side: u32,
    /// How many pixels a picture has at least, and at most.
    pub(super) least: u32,
    pub(super) most: u32,
    /// A picture that is scaled to more pixels is refused.
    pub(super) supported: u32,
    /// There is one more embedding after each row but the last.
    pub(super) ends_rows: bool,
}

impl Squares {
    /// The pixels and the embeddings of a picture with these sides. `None` if it is too narrow.
    pub(super) fn scale(self, width: u32, height: u32) -> Option<(u64, u32)> {
        let [least, most] = [self.least, self.most].map(|pixels| pixels as f32);
        let sides = scaled([width, height], self.side, least, most);
        let pixels = sides[0].checked_mul(sides[1])?;
        if pixels > u64::from(self.most) || sides.iter().any(|side| *side > MAX_SIDE) {
            return None;
        }
        let [columns, rows] = sides.map(|length| (length / u64::from(self.side)) as u32);
        Some((pixels, columns * rows + if self.ends_rows { rows - 1 } else { 0 }))
    }

    pub(super) fn most_tokens(self) -> u32 {
        let squares = self.supported / (self.side * self.side);
        // A single column has the most rows.
        if self.ends_rows { 2 * squares - 1 } else { squares }
    }

    /// The embeddings of a tile, whose edges are filled up.
    pub(super) fn of_tile(self) -> u32 {
        RATIO_TILE.div_ceil(self.side).pow(2)
    }

    /// Whether a picture is so large that it becomes tiles of patches: `should_tile`.
    pub(super) fn becomes_tiles(self, patch: u32, width: u32, height: u32) -> bool {
        let side = f64::from(self.side);
        let [width, height] = [width, height].map(|length| {
            let squares = (f64::from(length as f32) / side).round_ties_even();
            (squares * side).max(patch.into())
        });
        width * height > f64::from(self.most) * RATIO_TOLERANCE
    }
}

/// The sides that a picture is scaled to: multiples of `square`, whose product is at least and at most
/// so many pixels, unless one side is that of a single square.
pub(super) fn scaled(sides: [u32; 2], square: u32, least: f32, most: f32) -> [u64; 2] {
    let unit = square as f32;
    let squares = |count: f32| count as u64 * u64::from(square);
    let aligned = sides.map(|side| squares((side as f32 / unit).round()).max(square.into()));
    let pixels = aligned[0].saturating_mul(aligned[1]);
    let area = sides[1] as f32 * sides[0] as f32;
    if pixels > most as u64 {
        let shrunk = (area / most).sqrt();
        sides.map(|side| squares((side as f32 / shrunk / unit).floor()).max(square.into()))
    } else if pixels < least as u64 {
        let grown = (least / area).sqrt();
        sides.map(|side| squares((side as f32 * grown / unit).ceil()))
    } else {
        aligned
    }
}
