//! Grids of tiles that pictures are scaled to.

use std::ops::RangeInclusive;

/// The side of a tile of `Sizing::RatioTiles`, in pixels.
pub(super) const RATIO_TILE: u32 = 512;
/// The least and the most tiles there.
pub(super) const RATIO_TILES: RangeInclusive<u32> = 2..=10;

/// The grids of tiles that a picture may become.
#[derive(Debug, Clone, Copy)]
pub(super) enum Grids {
    /// Those of at most so many tiles.
    Tiles(u32),
    /// Those of at most so many tiles in each direction, and of at least two.
    Sides(u32),
}

impl Grids {
    /// Their columns and rows.
    fn all(self) -> impl Iterator<Item = [u32; 2]> {
        let (Grids::Tiles(most) | Grids::Sides(most)) = self;
        let rows = move |columns| match self {
            Grids::Tiles(most) => most / columns,
            Grids::Sides(most) => most,
        };
        let least = match self {
            Grids::Tiles(_) => 1,
            Grids::Sides(_) => 2,
        };
        let grids = (1..=most)
            .flat_map(move |columns| (1..=rows(columns)).map(move |rows| [columns, rows]));
        grids.filter(move |[columns, rows]| columns * rows >= least)
    }

    /// The number of tiles of the largest one.
    pub(super) fn most_tiles(self) -> u32 {
        match self {
            Grids::Tiles(most) => most,
            Grids::Sides(most) => most * most,
        }
    }

    /// The columns and rows of the grid that keeps most pixels of a picture, and of several the
    /// smallest: `select_best_resolution`. `None` if a side would have no pixel in any.
    pub(super) fn best(self, sides: [u32; 2], tile: u32) -> Option<[u32; 2]> {
        let area = |[width, height]: [u32; 2]| u64::from(width) * u64::from(height);
        let mut best = None;
        let (mut most_kept, mut least_wasted) = (0, u64::MAX);
        for grid in self.all() {
            let target = grid.map(|tiles| tiles * tile);
            let scale =
                (target[0] as f32 / sides[0] as f32).min(target[1] as f32 / sides[1] as f32);
            let scaled = sides.map(|side| (side as f32 * scale) as u32);
            let kept = area(scaled).min(area(sides));
            let wasted = area(target) - kept;
            if kept > most_kept || kept == most_kept && kept > 0 && wasted < least_wasted {
                (best, most_kept, least_wasted) = (Some(grid), kept, wasted);
            }
        }
        best
    }
}

/// The columns and rows of the grid whose ratio is nearest to that of a picture: of several the
/// largest that has less than twice its pixels (`find_closest_aspect_ratio`).
pub(super) fn nearest_grid(width: u32, height: u32) -> [u32; 2] {
    let side = 1..=*RATIO_TILES.end();
    let mut grids: Vec<[u32; 2]> = side
        .clone()
        .flat_map(|columns| side.clone().map(move |rows| [columns, rows]))
        .filter(|[columns, rows]| RATIO_TILES.contains(&(columns * rows)))
        .collect();
    grids.sort_by_key(|[columns, rows]| columns * rows);
    let ratio = width as f32 / height as f32;
    let area = (u64::from(width) * u64::from(height)) as f32;
    let (mut best, mut least_difference) = ([1, 1], f32::MAX);
    for [columns, rows] in grids {
        let difference = (ratio - columns as f32 / rows as f32).abs();
        let of_tiles = (RATIO_TILE * RATIO_TILE * columns * rows) as f32;
        if difference < least_difference {
            (best, least_difference) = ([columns, rows], difference);
        } else if difference == least_difference && area > 0.5 * of_tiles {
            best = [columns, rows];
        }
    }
    best
}
