//! What stands for a picture in a prompt, by the sides of the picture alone.
//!
//! Source: `calc_size_preserved_ratio` in tools/mtmd/mtmd-image.cpp, `clip_n_output_tokens` in clip.cpp,
//! and `add_media` in mtmd.cpp. The numbers of 32 bits are those of the source: others would round
//! some pictures to another size.

use super::grids::{Grids, RATIO_TILE, RATIO_TILES, nearest_grid};
use super::layout::{MediaPart, PictureLayout, ratio_tiled, sliced, tiled};
use super::slices::{MAX_SLICES, Slices};
use super::squares::{MAX_SIDE, Squares, scaled};

/// How a projector scales pictures.
#[derive(Debug, Clone, Copy)]
pub(super) enum Sizing {
    /// Every picture to one square.
    Fixed {
        /// In pixels.
        side: u32,
        tokens: u32,
    },
    /// To whole squares, each of which is one embedding, in about the ratio of its sides.
    Squares(Squares),
    /// Every picture to whole squares, so that the longer side has a length.
    LongestSide {
        /// The side of a square, in pixels.
        side: u32,
        /// In pixels.
        longest: u32,
    },
    /// A small one to whole squares. A larger one to the grid of 2 to 10 tiles of 512 pixels whose
    /// ratio is nearest, with the whole picture as squares after them.
    RatioTiles {
        whole: Squares,
        /// The side of a patch, in pixels.
        patch: u32,
    },
    /// To whole tiles, which are encoded one by one and written row by row, with the whole picture
    /// as one more tile after them.
    Tiles {
        /// The side of a tile, in pixels.
        side: u32,
        tokens: u32,
        /// The longer side of a scaled picture, in pixels. `None`: about that of the picture.
        longest: Option<u32>,
    },
    /// To a size near that of a square, and a larger one also to a grid of slices.
    Slices(Slices),
    /// One that is larger than a tile to the grid of tiles that keeps most of it, with the whole
    /// picture as one more tile after them.
    Grid {
        /// The side of a tile, in pixels.
        side: u32,
        tokens: u32,
        grids: Grids,
    },
}

/// The most patches of a whole picture or a slice. Attention grows with their square.
const MAX_PATCHES: u64 = 16_384;

/// The most embeddings of a picture of tiles.
pub(super) const MAX_TILED_TOKENS: u32 = 16_384;

impl Sizing {
    /// What stands for a picture with these sides, between two texts.
    ///
    /// # Errors
    /// A message, if llama.cpp cannot scale the picture.
    pub(super) fn layout(
        self,
        around: [&'static str; 2],
        width: u32,
        height: u32,
    ) -> Result<PictureLayout, String> {
        let refused = |most: u32| {
            format!(
                "a picture of {width}x{height} pixels, whose sides differ too much for the \
                 projector: scaled, it would have more than {most} embeddings or {MAX_SIDE} \
                 pixels in a row; cut it"
            )
        };
        let (pixels, parts) = match self {
            Sizing::Fixed { side, tokens } => {
                (u64::from(side) * u64::from(side), vec![MediaPart::Places(tokens)])
            }
            Sizing::Squares(squares) => {
                let (pixels, tokens) =
                    squares.scale(width, height).ok_or_else(|| refused(self.most_tokens()))?;
                let most = squares.supported;
                if pixels > most.into() {
                    return Err(format!(
                        "a picture of {width}x{height} pixels, which the projector scales to \
                         {pixels}; at most {most} are supported; make it smaller"
                    ));
                }
                (pixels, vec![MediaPart::Places(tokens)])
            }
            Sizing::LongestSide { side, longest } => {
                let sides = side_scaled([width, height], side, longest);
                let [columns, rows] = sides.map(|length| (length / u64::from(side)) as u32);
                (sides[0] * sides[1], vec![MediaPart::Places(columns * rows)])
            }
            Sizing::RatioTiles { whole, patch } => {
                let (mut pixels, tokens) =
                    whole.scale(width, height).ok_or_else(|| refused(self.most_tokens()))?;
                let mut parts = Vec::new();
                if whole.becomes_tiles(patch, width, height) {
                    let [columns, rows] = nearest_grid(width, height);
                    parts = ratio_tiled(columns, rows, whole.of_tile());
                    pixels += u64::from(columns * rows) * u64::from(RATIO_TILE).pow(2);
                }
                parts.push(MediaPart::Places(tokens));
                (pixels, parts)
            }
            Sizing::Tiles { side, tokens, longest } => {
                let sides = match longest {
                    Some(longest) => longest_scaled([width, height], longest),
                    None => scaled([width, height], side, 0.0, f32::INFINITY),
                };
                let [columns, rows] = sides.map(|length| length.div_ceil(side.into()));
                let tiles = columns.saturating_mul(rows).saturating_add(1);
                let most = self.most_tokens();
                if sides.contains(&0)
                    || sides.iter().any(|side| *side > MAX_SIDE)
                    || tiles.saturating_mul(tokens.into()) > most.into()
                {
                    return Err(refused(most));
                }
                let pixels = tiles * u64::from(side) * u64::from(side);
                (pixels, tiled(columns, rows, tokens))
            }
            Sizing::Slices(slices) => {
                let cut = slices.cut([width, height]);
                let (grid, slice) = cut.slices.unwrap_or(([0, 0], [0, 0]));
                let refined = [0, 1].map(|axis| u64::from(grid[axis]) * slice[axis]);
                let area = |sides: [u64; 2]| sides[0].saturating_mul(sides[1]);
                let is_large = |sides: [u64; 2]| {
                    sides.iter().any(|side| *side > MAX_SIDE)
                        || area(sides) / u64::from(slices.patch).pow(2) > MAX_PATCHES
                };
                if is_large(cut.whole) || is_large(slice) || refined.iter().any(|it| *it > MAX_SIDE)
                {
                    return Err(refused(self.most_tokens()));
                }
                (area(cut.whole) + area(refined), sliced(slices, grid))
            }
            Sizing::Grid { side, tokens, grids } => {
                let tiles = if width.max(height) <= side {
                    1
                } else {
                    let grid = grids.best([width, height], side);
                    let [columns, rows] = grid.ok_or_else(|| refused(self.most_tokens()))?;
                    columns * rows + 1
                };
                let pixels = u64::from(tiles) * u64::from(side) * u64::from(side);
                (pixels, vec![MediaPart::Places(tokens); tiles as usize])
            }
        };
        let [before, after] = around.map(|text| MediaPart::Text(text.into()));
        let parts = [before].into_iter().chain(parts).chain([after]);
        let is_empty = |part: &MediaPart| *part == MediaPart::Text("".into());
        Ok(PictureLayout { parts: parts.filter(|part| !is_empty(part)).collect(), pixels })
    }

    /// The most embeddings of a picture.
    pub(super) fn most_tokens(self) -> u32 {
        match self {
            Sizing::Fixed { tokens, .. } => tokens,
            Sizing::Squares(squares) => squares.most_tokens(),
            Sizing::LongestSide { side, longest } => {
                let [side, _] = side_scaled([longest, longest], side, longest)
                    .map(|length| (length / u64::from(side)) as u32);
                side * side
            }
            Sizing::RatioTiles { whole, .. } => {
                RATIO_TILES.end() * whole.of_tile() + whole.most_tokens()
            }
            Sizing::Tiles { side, tokens, longest } => match longest {
                Some(longest) => {
                    let tiles = longest.div_ceil(side);
                    tokens.saturating_mul(tiles * tiles + 1)
                }
                None => MAX_TILED_TOKENS,
            },
            Sizing::Slices(slices) => slices.tokens.saturating_mul(MAX_SLICES + 1),
            Sizing::Grid { tokens, grids, .. } => {
                tokens.saturating_mul(grids.most_tiles().saturating_add(1))
            }
        }
    }
}

/// The sides that a picture is scaled to if the longer one becomes `longest`. The other one is even.
fn longest_scaled([width, height]: [u32; 2], longest: u32) -> [u64; 2] {
    let ratio = f64::from(width) / f64::from(height);
    let even = |length: f64| (length as u64).next_multiple_of(2);
    if width >= height {
        [longest.into(), even(f64::from(longest) / ratio)]
    } else {
        [even(f64::from(longest) * ratio), longest.into()]
    }
}

/// The sides that a picture is scaled to if the longer one becomes `longest`: multiples of `square`.
fn side_scaled([width, height]: [u32; 2], square: u32, longest: u32) -> [u64; 2] {
    let [width, height, unit, longest] = [width, height, square, longest].map(|it| it as f32);
    let scale = (longest / width).min(longest / height);
    [width, height].map(|side| (side * scale / unit).ceil() as u64 * u64::from(square))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    /// Squares of 28 pixels, at least 8 and at most 4,096, as in Qwen2-VL.
    const QWEN: Sizing = Sizing::Squares(Squares {
        side: 28,
        least: 8 * 28 * 28,
        most: 4096 * 28 * 28,
        supported: 4096 * 28 * 28,
        ends_rows: false,
    });

    #[track_caller]
    fn check(width: u32, height: u32, expected: Option<(u64, u64)>) {
        let layout = QWEN.layout(["", ""], width, height);
        let found = layout.as_ref().ok().map(|layout| (layout.places(), layout.pixels));
        let expected = expected.map(|(columns, rows)| (columns * rows, columns * rows * 28 * 28));
        assert_eq!(found, expected, "{width}x{height} {layout:?}");
    }

    #[test]
    fn a_picture_keeps_its_ratio() {
        // Computed by hand from the formula that transformers calls `smart_resize`.
        check(280, 140, Some((10, 5)));
        check(294, 154, Some((11, 6)));
        check(1, 1, Some((3, 3)));
        check(16, 16, Some((3, 3)));
        check(200, 1, Some((40, 1)));
        check(4000, 3000, Some((73, 55)));
        check(1792, 1792, Some((64, 64)));
    }

    #[test]
    fn a_picture_that_cannot_be_scaled_is_refused() {
        check(65_000, 1, Some((2321, 1)));
        check(65_560, 1, None);
        check(1, 200_000, None);
        check(1, 1 << 30, None);
        let problem = QWEN.layout(["", ""], 1, 200_000).expect_err("refused");
        assert!(problem.starts_with("a picture of 1x200000 pixels, whose sides"), "{problem}");
    }

    #[test]
    fn texts_are_around_a_picture() {
        let fixed = Sizing::Fixed { side: 32, tokens: 64 };
        let layout = fixed.layout(["<a>", ""], 3, 4);
        let parts = vec![MediaPart::Text("<a>".into()), MediaPart::Places(64)];
        assert_eq!(layout, Ok(PictureLayout { parts, pixels: 1024 }));
    }

    #[test]
    fn a_picture_becomes_slices_with_tokens_around_them() {
        let texts = |is_nested, width, height| {
            let slices = Slices { side: 448, patch: 14, tokens: 64, is_nested };
            let layout = Sizing::Slices(slices).layout(["", ""], width, height).ok()?;
            let text = |part: &MediaPart| match part {
                MediaPart::Token(token) => (*token).to_owned(),
                MediaPart::Places(count) => count.to_string(),
                MediaPart::Text(text) => text.to_string(),
            };
            Some(layout.parts.iter().map(text).collect::<String>())
        };
        let whole = "<image>64</image>";
        assert_eq!(texts(false, 448, 1).as_deref(), Some(whole));
        let two = "<slice>64</slice><slice>64</slice>";
        assert_eq!(texts(false, 1000, 1000), Some(format!("{whole}{two}\n{two}")));
        let two = "<image>64</image><image>64</image>";
        let expected = format!("{whole}<slice>{two}\n{two}</slice>");
        assert_eq!(texts(true, 1000, 1000), Some(expected));
        assert_eq!(texts(false, 200_000, 1), None);
    }

    #[test]
    fn a_picture_becomes_rows_of_tiles() {
        let smol = Sizing::Tiles { side: 512, tokens: 64, longest: Some(2048) };
        let tiles = |sizing: Sizing, width, height| {
            let layout = sizing.layout(["", ""], width, height).ok()?;
            let texts = layout.parts.iter().filter_map(|part| match part {
                MediaPart::Text(text) => Some(text.as_ref()),
                MediaPart::Token(text) => Some(*text),
                MediaPart::Places(_) => None,
            });
            assert_eq!(layout.places() * 512 * 512, layout.pixels * 64);
            Some((layout.places() / 64, texts.collect::<String>()))
        };
        assert_eq!(smol.most_tokens(), 64 * 17);
        let (count, texts) = tiles(smol, 200, 100).unwrap();
        assert_eq!(count, 9);
        let [first, fourth] =
            [1, 4].map(|column| format!("<fake_token_around_image><row_1_col_{column}>"));
        assert!(texts.starts_with(&first), "{texts}");
        assert!(
            texts.contains(&format!("{fourth}\n<fake_token_around_image><row_2_col_1>")),
            "{texts}"
        );
        let end = "<row_2_col_4>\n\n<fake_token_around_image><global-img><fake_token_around_image>";
        assert!(texts.ends_with(end), "{texts}");
        assert_eq!(tiles(smol, 3000, 3000).unwrap().0, 17);
        assert_eq!(tiles(smol, 1, 100).unwrap().0, 5);
        // The shorter side would have no pixel.
        assert_eq!(tiles(smol, 1, 3000), None);
        // In older files, a picture keeps its size.
        let older = Sizing::Tiles { side: 512, tokens: 64, longest: None };
        assert_eq!(tiles(older, 100, 100).unwrap().0, 2);
        assert_eq!(tiles(older, 1300, 700).unwrap().0, 4);
        assert_eq!(tiles(older, 60_000, 2_000), None);
    }

    #[test]
    fn a_picture_becomes_the_best_grid() {
        let tiles = |width, height| {
            let intern = Sizing::Grid { side: 448, tokens: 256, grids: Grids::Tiles(12) };
            let layout = intern.layout(["<img>", "</img>"], width, height).ok()?;
            assert_eq!(layout.parts.len() as u64, layout.places() / 256 + 2);
            Some(layout.places() / 256)
        };
        assert_eq!(tiles(448, 100), Some(1));
        assert_eq!(tiles(896, 448), Some(3));
        assert_eq!(tiles(4000, 3000), Some(13));
        assert_eq!(tiles(449, 449), Some(5));
        assert_eq!(tiles(20_000, 1), None);
        // By hand from set_llava_uhd_res_candidates: a larger picture has at least two tiles.
        let llama4 = Sizing::Grid { side: 336, tokens: 144, grids: Grids::Sides(3) };
        let tiles =
            |width, height| Some(llama4.layout(["", ""], width, height).ok()?.places() / 144);
        assert_eq!(tiles(336, 336), Some(1));
        assert_eq!(tiles(337, 1), Some(3));
        assert_eq!(tiles(337, 337), Some(5));
        assert_eq!(tiles(4000, 3000), Some(10));
        assert_eq!(tiles(1008, 300), Some(4));
        assert_eq!(tiles(20_000, 1), None);
        assert_eq!(llama4.most_tokens(), 1440);
    }

    #[test]
    fn the_longer_side_has_a_length() {
        let sizing = Sizing::LongestSide { side: 28, longest: 1540 };
        let places = |width, height| sizing.layout(["", ""], width, height).unwrap().places();
        assert_eq!(places(1540, 1540), 55 * 55);
        assert_eq!(places(100, 50), 55 * 28);
        assert_eq!(places(1, 1), 55 * 55);
        assert_eq!(places(100_000, 1), 55);
        assert_eq!(places(3000, 4000), 42 * 55);
        assert_eq!(sizing.most_tokens(), 55 * 55);
    }

    #[test]
    fn a_picture_of_too_many_patches_is_refused() {
        let (least, most) = (3136, 11_289_600);
        let supported = 16_384 * 14 * 14;
        let dots = Sizing::Squares(Squares { side: 28, least, most, supported, ends_rows: false });
        let places = |width, height| Ok(dots.layout(["", ""], width, height)?.places());
        assert_eq!(places(1240, 1754), Ok(44 * 63));
        assert_eq!(places(1792, 1792), Ok(4096));
        let problem = "a picture of 2480x3508 pixels, which the projector scales to 8722000; at \
                       most 3211264 are supported; make it smaller";
        assert_eq!(places(2480, 3508), Err(problem.to_owned()));
        assert_eq!(dots.most_tokens(), 4096);
    }

    #[test]
    fn a_row_ends_with_an_embedding() {
        let pixtral = Sizing::Squares(Squares {
            side: 28,
            least: 8 * 28 * 28,
            most: 1024 * 28 * 28,
            supported: 1024 * 28 * 28,
            ends_rows: true,
        });
        let places = |width, height| Some(pixtral.layout(["", ""], width, height).ok()?.places());
        // One for each row but the last.
        assert_eq!(places(280, 140), Some(10 * 5 + 4));
        assert_eq!(places(280, 28), Some(10));
        assert_eq!(places(28, 28_672), Some(1024 + 1023));
        assert_eq!(pixtral.most_tokens(), 1024 + 1023);
    }

    #[test]
    fn a_large_picture_becomes_tiles_of_the_nearest_ratio() {
        // By hand from mtmd_image_preprocessor_lfm2, for patches of 16 pixels.
        let (least, most) = (64 * 1024, 256 * 1024);
        let whole = Squares { side: 32, least, most, supported: most, ends_rows: false };
        let lfm2 = Sizing::RatioTiles { whole, patch: 16 };
        let places = |width, height| {
            let layout = lfm2.layout(["<a>", "<b>"], width, height).ok()?;
            Some((layout.places(), layout.parts.len()))
        };
        assert_eq!(places(512, 512), Some((256, 3)));
        // At most twice the pixels of squares.
        assert_eq!(places(1024, 512), Some((22 * 11, 3)));
        assert_eq!(places(1056, 512), Some((2 * 256 + 22 * 11, 8)));
        // Of the grids with this ratio, the largest that is not too large.
        assert_eq!(nearest_grid(1056, 512), [2, 1]);
        assert_eq!(nearest_grid(2048, 1024), [4, 2]);
        assert_eq!(nearest_grid(1000, 1000), [2, 2]);
        assert_eq!(nearest_grid(2000, 2000), [3, 3]);
        assert_eq!(nearest_grid(2000, 1500), [3, 2]);
        assert_eq!(nearest_grid(30_000, 100), [10, 1]);
        assert_eq!(nearest_grid(100, 30_000), [1, 10]);
        assert_eq!(lfm2.most_tokens(), 10 * 256 + 256);
    }
}
