//! A vision rule: how many tokens an image or a video takes, and the text that stands for it
//! (spec/compose.md §7).
//!
//! In: `{"family": …, parameters}` or the name of a preset. Out: a [`VisionRule`]. What an image's size
//! means is settled by the family; the rest is data.

use std::ops::RangeInclusive;

use serde_json::Value;

use super::anyres::AnyRes;
use super::expansion::Expansion;
use super::preset;
use super::refusal::{missing, refused, wrong};
use super::resize::{BadAspect, Grid, Pixels};
use super::rows::Rows;
use super::size::{Clip, Size};
use super::tiles::Tiles;
use crate::api::Fields;
use crate::error::Result;

/// Pixels of an image, or of a video.
const PIXELS: RangeInclusive<i64> = 1..=1_000_000_000_000;
/// Sides of what an image is cut into, in pixels.
const SIDE: RangeInclusive<i64> = 1..=100_000;
/// The most canvases.
const CANVASES: usize = 256;
/// The most tiles.
const TILES: i64 = 64;

/// A family with its parameters.
#[derive(Debug, Clone, PartialEq)]
pub struct VisionRule {
    images: Images,
    videos: Videos,
    pub(super) markup: Markup,
}

/// How images are counted. Closed: a new way of counting is a new variant.
#[derive(Debug, Clone, PartialEq)]
enum Images {
    Resized(Grid, Pixels),
    /// Every image has as many tokens.
    Fixed(u64),
    /// And so many tokens besides, less one.
    AnyRes(AnyRes, u64),
    Rows(Rows),
    Tiles(Tiles),
}

/// How videos are counted.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Videos {
    Refused,
    /// Every frame is an image within these bounds; two frames share their tokens, all in one run.
    Frames(Grid, Pixels),
    /// The bounds are of the whole video; two frames share their tokens, with their time in front.
    Steps(Grid, Pixels),
    /// Every frame is a picture of so many tokens, with its number in front.
    Pictures(u32),
}

/// The text of an expansion besides its tokens.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Markup {
    /// What is repeated; None is the placeholder itself.
    pub(super) token: Option<String>,
    /// Stands in front of an image's tokens, and behind them.
    pub(super) start: String,
    pub(super) end: String,
    /// The same for each part of a video that has its time in front; None is the template's.
    pub(super) step_start: Option<String>,
    pub(super) step_end: Option<String>,
    /// Ends a row, and the last row.
    pub(super) row_end: String,
    pub(super) last_row_end: String,
    /// All images stand before the text, with this behind them (or, inside, the template's own
    /// begin token).
    pub(super) front: Option<Option<String>>,
}

/// A rule from the parameters of its family.
type RuleReader = fn(&mut Fields) -> Result<VisionRule>;

const FAMILIES: [(&str, RuleReader); 8] = [
    ("qwen", resized),
    ("llava", square),
    ("llava_next", any_resolution),
    ("pixtral", rows),
    ("internvl", tiles),
    ("gemma3", wrapped),
    ("paligemma", in_front),
    ("mllama", single),
];

impl VisionRule {
    /// The rule at a JSON path, and the paths of members that no parameter is called by.
    ///
    /// `INVALID_REQUEST` with details `{"reason": "missing_field"|"bad_value", "path"}`.
    pub(crate) fn read(path: &str, value: &Value) -> Result<(VisionRule, Vec<String>)> {
        match value {
            Value::String(name) => preset::find(path, name).map(|rule| (rule, Vec::new())),
            _ => {
                let mut fields = Fields::new(path, value).map_err(|error| wrong(error, path))?;
                let family = fields
                    .one_of("family", &FAMILIES)
                    .map_err(|error| wrong(error, &fields.path("family")))?;
                let rule = family.ok_or_else(|| missing(&fields, "family"))?(&mut fields)?;
                Ok((rule, fields.ignored()))
            }
        }
    }

    /// Whether the size of an image decides anything.
    pub(super) fn reads_images(&self) -> bool {
        !matches!(self.images, Images::Fixed(_))
    }

    /// Whether the size of a video decides anything; None where there are no videos.
    pub(super) fn reads_videos(&self) -> Option<bool> {
        match self.videos {
            Videos::Refused => None,
            Videos::Frames(..) | Videos::Steps(..) => Some(true),
            Videos::Pictures(_) => Some(false),
        }
    }

    /// Whether the times of a video's frames are written.
    pub(super) fn writes_times(&self) -> bool {
        matches!(self.videos, Videos::Steps(..))
    }

    /// What an image becomes. `bad_aspect` at `path`.
    pub(super) fn image(&self, size: Size, path: &str) -> Result<Expansion> {
        Ok(match &self.images {
            Images::Resized(grid, pixels) => Expansion::Tokens(
                grid.tokens(size, *pixels).map_err(|aspect| bad_aspect(aspect, path))?,
            ),
            Images::Fixed(count) => Expansion::Tokens(*count),
            Images::AnyRes(canvases, extra) => {
                Expansion::Tokens((canvases.tokens(size) + extra).saturating_sub(1))
            }
            Images::Rows(rows) => {
                let (rows, columns) = rows.count(size);
                Expansion::Rows { rows, columns }
            }
            Images::Tiles(tiles) => Expansion::Tokens(tiles.tokens(size)),
        })
    }

    /// What a video becomes; None where the rule has no videos. `bad_aspect` at `path`.
    pub(super) fn video(&self, clip: Clip, path: &str) -> Result<Option<Expansion>> {
        let bad_aspect = |aspect| bad_aspect(aspect, path);
        let steps = u64::from(clip.frames.div_ceil(2));
        Ok(match self.videos {
            Videos::Refused => None,
            Videos::Frames(grid, pixels) => {
                let each = grid.tokens(clip.size, pixels).map_err(bad_aspect)?;
                Some(Expansion::Tokens(steps.saturating_mul(each)))
            }
            Videos::Steps(grid, pixels) => {
                let each = grid
                    .tokens_of_step(clip.size, f64::from(clip.frames), pixels)
                    .map_err(bad_aspect)?;
                // Where times are written the request was refused without them.
                Some(Expansion::Steps { frames: clip.frames, fps: clip.fps.unwrap_or(1.0), each })
            }
            Videos::Pictures(each) => {
                Some(Expansion::Pictures { frames: clip.frames, each: u64::from(each) })
            }
        })
    }
}

fn bad_aspect(BadAspect(aspect): BadAspect, path: &str) -> crate::error::Error {
    let problem = format!(
        "the longer side is {aspect:.1} times the shorter one, and may be 200 times; crop or pad it"
    );
    refused("bad_aspect", path, problem)
}

fn resized(fields: &mut Fields) -> Result<VisionRule> {
    let grid = Grid {
        patch: from(fields, &["patch"], SIDE)? as f64,
        merge: from(fields, &["merge"], 1..=64)? as f64,
    };
    let pixels = bounds(fields, ["min", "min_pixels"], ["max", "max_pixels"], None)?;
    let steps = [("frames", false), ("volume", true)];
    let steps = fields
        .one_of("video", &steps)
        .map_err(|error| wrong(error, &fields.path("video")))?
        .unwrap_or(false);
    // The classes' own defaults in transformers 5.23.
    let default = if steps { (131_072, 786_432) } else { (100_352, 602_112) };
    let of_video = bounds(
        fields,
        ["video_min", "video_min_pixels"],
        ["video_max", "video_max_pixels"],
        Some(default),
    )?;
    let videos = if steps { Videos::Steps(grid, of_video) } else { Videos::Frames(grid, of_video) };
    let markup = Markup {
        step_start: text(fields, "start")?,
        step_end: text(fields, "end")?,
        ..Markup::default()
    };
    Ok(VisionRule { images: Images::Resized(grid, pixels), videos, markup })
}

fn square(fields: &mut Fields) -> Result<VisionRule> {
    let size = from(fields, &["size"], SIDE)?;
    let patch = from(fields, &["patch"], 1..=size)?;
    let side = whole(size / patch);
    Ok(VisionRule::of_images(Images::Fixed((side * side + besides(fields)?).saturating_sub(1))))
}

fn any_resolution(fields: &mut Fields) -> Result<VisionRule> {
    let size = or(fields, &["size"], SIDE, 336)?;
    let patch = or(fields, &["patch"], 1..=size, 14)?;
    let grid = canvases(fields, size)?;
    let (size, patch) = (small(size), small(patch));
    Ok(VisionRule::of_images(Images::AnyRes(AnyRes { size, patch, grid }, besides(fields)?)))
}

/// Pairs of height and width; the five of the family's first models where there are none.
fn canvases(fields: &mut Fields, size: i64) -> Result<Vec<(u32, u32)>> {
    const FIRST: [(u32, u32); 5] = [(336, 672), (672, 336), (672, 672), (1008, 336), (336, 1008)];
    let path = fields.path("grid");
    let given = fields.array("grid").map_err(|error| wrong(error, &path))?;
    let pairs: Option<Vec<(u32, u32)>> = match given {
        None => Some(FIRST.to_vec()),
        Some(given) => given.iter().map(pair).collect(),
    };
    let fits = |&(h, w): &(u32, u32)| {
        [h, w].iter().all(|side| (size..=*SIDE.end()).contains(&i64::from(*side)))
    };
    pairs.filter(|pairs| (1..=CANVASES).contains(&pairs.len()) && pairs.iter().all(fits)).ok_or_else(|| {
        let problem =
            format!("expected 1 to {CANVASES} pairs [height, width] of whole numbers from {size} (`size`) to {}", SIDE.end());
        refused("bad_value", &path, problem)
    })
}

fn pair(value: &Value) -> Option<(u32, u32)> {
    let [h, w] = value.as_array()?.as_slice() else { return None };
    let side = |value: &Value| value.as_u64().and_then(|side| u32::try_from(side).ok());
    Some((side(h)?, side(w)?))
}

fn rows(fields: &mut Fields) -> Result<VisionRule> {
    let patch = from(fields, &["patch"], SIDE)? as f64;
    let longest = from(fields, &["longest", "longest_edge"], SIDE)? as f64;
    // They are counted, so they are written.
    let row_end = token(fields, "break", "[IMG_BREAK]")?;
    let last_row_end = token(fields, "end", "[IMG_END]")?;
    let markup = Markup { row_end, last_row_end, ..Markup::default() };
    Ok(VisionRule { markup, ..VisionRule::of_images(Images::Rows(Rows { patch, longest })) })
}

fn tiles(fields: &mut Fields) -> Result<VisionRule> {
    let tile = small(or(fields, &["tile"], SIDE, 448)?);
    let most = small(or(fields, &["tiles"], 1..=TILES, 12)?);
    let per = small(or(fields, &["per"], 1..=1_000_000, 256)?);
    let markup = around(fields, ["<IMG_CONTEXT>", "<img>", "</img>"])?;
    Ok(VisionRule {
        images: Images::Tiles(Tiles { tile, most, per }),
        videos: Videos::Pictures(per),
        markup,
    })
}

fn wrapped(fields: &mut Fields) -> Result<VisionRule> {
    let markup =
        around(fields, ["<image_soft_token>", "\n\n<start_of_image>", "<end_of_image>\n\n"])?;
    Ok(VisionRule { markup, ..VisionRule::of_images(Images::Fixed(256)) })
}

fn in_front(fields: &mut Fields) -> Result<VisionRule> {
    let count = whole(from(fields, &["length"], 1..=1_000_000)?);
    let markup = Markup { front: Some(text(fields, "bos_token")?), ..Markup::default() };
    Ok(VisionRule { markup, ..VisionRule::of_images(Images::Fixed(count)) })
}

fn single(_: &mut Fields) -> Result<VisionRule> {
    Ok(VisionRule::of_images(Images::Fixed(1)))
}

impl VisionRule {
    fn of_images(images: Images) -> VisionRule {
        VisionRule { images, videos: Videos::Refused, markup: Markup::default() }
    }
}

/// `token`, `start` and `end`, with their defaults.
fn around(fields: &mut Fields, defaults: [&str; 3]) -> Result<Markup> {
    let [repeated, start, end] = defaults;
    let repeated = token(fields, "token", repeated)?;
    let start = text(fields, "start")?.unwrap_or_else(|| start.to_owned());
    let end = text(fields, "end")?.unwrap_or_else(|| end.to_owned());
    Ok(Markup { token: Some(repeated), start, end, ..Markup::default() })
}

/// `extra` tokens; one more where `strategy` keeps all of them, so that less one is right for both.
fn besides(fields: &mut Fields) -> Result<u64> {
    let extra = or(fields, &["extra"], 0..=1_000_000, 1)?;
    let strategies = [("default", 0), ("full", 1)];
    let kept = fields
        .one_of("strategy", &strategies)
        .map_err(|error| wrong(error, &fields.path("strategy")))?;
    Ok(whole(extra + kept.unwrap_or(0)))
}

fn bounds(
    fields: &mut Fields,
    min: [&'static str; 2],
    max: [&'static str; 2],
    default: Option<(i64, i64)>,
) -> Result<Pixels> {
    let (low, high) = match default {
        Some((low, high)) => (or(fields, &min, PIXELS, low)?, or(fields, &max, PIXELS, high)?),
        None => (from(fields, &min, PIXELS)?, from(fields, &max, PIXELS)?),
    };
    if low > high {
        let problem = format!("must not be more than `{}`, {high}, got {low}", max[0]);
        return Err(refused("bad_value", &fields.path(min[0]), problem));
    }
    Ok(Pixels { min: low as f64, max: high as f64 })
}

/// A parameter that must be there. It may go by any of these names; the first is its own.
fn from(fields: &mut Fields, names: &[&'static str], range: RangeInclusive<i64>) -> Result<i64> {
    given(fields, names, range)?.ok_or_else(|| missing(fields, names[0]))
}

/// A parameter with a default.
fn or(
    fields: &mut Fields,
    names: &[&'static str],
    range: RangeInclusive<i64>,
    default: i64,
) -> Result<i64> {
    let given = given(fields, names, range.clone())?;
    match given {
        None if !range.contains(&default) => Err(missing(fields, names[0])),
        given => Ok(given.unwrap_or(default)),
    }
}

fn given(
    fields: &mut Fields,
    names: &[&'static str],
    range: RangeInclusive<i64>,
) -> Result<Option<i64>> {
    for &name in names {
        if let Some(number) =
            fields.integer(name, range.clone()).map_err(|error| wrong(error, &fields.path(name)))?
        {
            return Ok(Some(number));
        }
    }
    Ok(None)
}

fn text(fields: &mut Fields, key: &'static str) -> Result<Option<String>> {
    let text = fields.string(key).map_err(|error| wrong(error, &fields.path(key)))?;
    Ok(text.map(str::to_owned))
}

/// A text that is not empty.
fn token(fields: &mut Fields, key: &'static str, default: &str) -> Result<String> {
    match text(fields, key)? {
        Some(text) if text.is_empty() => {
            Err(refused("bad_value", &fields.path(key), "expected a text that is not empty"))
        }
        text => Ok(text.unwrap_or_else(|| default.to_owned())),
    }
}

/// A number that its range keeps from being negative.
fn whole(number: i64) -> u64 {
    number.unsigned_abs()
}

/// A number that its range keeps small.
fn small(number: i64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
