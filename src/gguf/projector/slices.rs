//! The whole of a picture and the slices that it is cut into, as MiniCPM-V takes them.
//!
//! Source: `get_slice_instructions` of mtmd_image_preprocessor_llava_uhd in tools/mtmd/mtmd-image.cpp,
//! without pinpoints. The numbers of 32 bits are those of the source.

/// The most slices of a picture.
pub(super) const MAX_SLICES: u32 = 9;

/// How pictures are cut into slices.
#[derive(Debug, Clone, Copy)]
pub(super) struct Slices {
    /// The side of the square whose pixels a slice has, about.
    pub(super) side: u32,
    /// The side of a patch, in pixels.
    pub(super) patch: u32,
    /// The embeddings of the whole picture, and of each slice.
    pub(super) tokens: u32,
    /// There are tokens around all slices, and those of the whole picture are around each.
    pub(super) is_nested: bool,
}

/// A picture that is cut.
pub(super) struct CutPicture {
    /// The sides of the whole picture, in pixels.
    pub(super) whole: [u64; 2],
    /// The columns and rows of slices, and the sides of a slice. `None` if the picture is not cut.
    pub(super) slices: Option<([u32; 2], [u64; 2])>,
}

impl Slices {
    /// The whole and the slices of a picture with these sides.
    pub(super) fn cut(self, sides: [u32; 2]) -> CutPicture {
        let side = u64::from(self.side);
        if sides.iter().all(|length| *length <= self.side) {
            return CutPicture { whole: [side, side], slices: None };
        }
        let [width, height] = sides.map(|length| length as f32);
        let whole = self.resized(sides, false);
        let ratio = width * height / (self.side * self.side) as f32;
        let multiple = ratio.ceil().min(MAX_SLICES as f32) as u32;
        let grid = best_grid(multiple, f64::from(width / height).ln() as f32);
        let cell = |axis: usize| (aligned(sides[axis], grid[axis]) / u64::from(grid[axis])) as u32;
        let slice = self.resized([cell(0), cell(1)], true);
        CutPicture { whole, slices: Some((grid, slice)) }
    }

    /// The sides that a picture is scaled to: `get_best_resize`.
    fn resized(self, [width, height]: [u32; 2], may_grow: bool) -> [u64; 2] {
        let pixels = u64::from(width) * u64::from(height);
        let sides = if may_grow || pixels > u64::from(self.side).pow(2) {
            let ratio = width as f32 / height as f32;
            let height = (self.side as f32 / ratio.sqrt()) as u32;
            [(height as f32 * ratio) as u32, height]
        } else {
            [width, height]
        };
        sides.map(|length| aligned(length, self.patch))
    }
}

/// The nearest multiple of a unit, and at least one: `ensure_divide`.
fn aligned(length: u32, unit: u32) -> u64 {
    let multiple = (length as f32 / unit as f32).round() * unit as f32;
    (multiple as u64).max(unit.into())
}

/// The columns and rows of about so many slices whose ratio is nearest to that of the picture.
fn best_grid(multiple: u32, log_ratio: f32) -> [u32; 2] {
    let counts = [multiple.saturating_sub(1), multiple, multiple + 1];
    let counts = counts.into_iter().filter(|count| *count != 1 && *count <= MAX_SLICES);
    let grids = counts.flat_map(|count| {
        let columns = (1..=count).filter(move |columns| count.is_multiple_of(*columns));
        columns.map(move |columns| [columns, count / columns])
    });
    let (mut best, mut least) = ([1, 1], f32::INFINITY);
    for [columns, rows] in grids {
        let log = (f64::from(columns) / f64::from(rows)).ln();
        let error = (f64::from(log_ratio) - log).abs() as f32;
        if error < least {
            (best, least) = ([columns, rows], error);
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_is_cut_into_slices_of_its_ratio() {
        // What the functions of mtmd-image.cpp return for MiniCPM-V 2.6.
        let slices = Slices { side: 448, patch: 14, tokens: 64, is_nested: false };
        let cut = |width, height| {
            let cut = slices.cut([width, height]);
            (cut.whole, cut.slices)
        };
        assert_eq!(cut(448, 448), ([448, 448], None));
        assert_eq!(cut(10, 3), ([448, 448], None));
        // Less than the pixels of the square, but too wide.
        assert_eq!(cut(500, 20), ([504, 14], Some(([2, 1], [1582, 126]))));
        assert_eq!(cut(1000, 1000), ([448, 448], Some(([2, 2], [448, 448]))));
        assert_eq!(cut(1920, 1080), ([602, 336], Some(([4, 2], [420, 476]))));
        assert_eq!(cut(1, 40_000), ([14, 39_998], Some(([1, 2], [14, 63_350]))));
    }
}
