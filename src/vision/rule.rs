//! A vision rule: how many tokens an image or a video takes, and the text of its expansion
//! (docs/vision.md, Rules).
//!
//! In: `{"family": …, parameters}` or the name of a preset. Out: a [`VisionRule`]. The family
//! decides how tokens are computed from a size. Everything else is data.

use std::ops::RangeInclusive;

use serde_json::Value;

use super::expansion::{Expansion, Markup};
use super::preset;
use super::size::{Clip, Size, missing, refused};
use super::token_counts::{AnyRes, BadAspect, Grid, Pixels, Rows, Tiles};
use crate::api::Fields;
use crate::error::Result;

/// The allowed pixels of an image or video.
const PIXELS: RangeInclusive<i64> = 1..=1_000_000_000_000;
/// The allowed sides of patches, tiles and canvases, in pixels.
const SIDE: RangeInclusive<i64> = 1..=100_000;
/// The maximum number of canvases.
const CANVASES: usize = 256;
/// The maximum number of tiles.
const TILES: i64 = 64;

/// A family with its parameters.
#[derive(Debug, Clone, PartialEq)]
pub struct VisionRule {
    images: Images,
    videos: Videos,
    pub(super) markup: Markup,
}

/// How the tokens of images are counted, with one variant per method.
#[derive(Debug, Clone, PartialEq)]
enum Images {
    Resized(Grid, Pixels),
    /// Every image has this many tokens.
    Fixed(u64),
    /// The tiles of a canvas, and the number of extra tokens plus one.
    AnyRes(AnyRes, u64),
    Rows(Rows),
    Tiles(Tiles),
}

/// How the tokens of videos are counted.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Videos {
    Refused,
    /// Every frame is an image within these bounds. Two frames share their tokens, and all tokens
    /// form one run.
    Frames(Grid, Pixels),
    /// The bounds apply to the whole video. Two frames share their tokens, which follow their time.
    Steps(Grid, Pixels),
    /// Every frame is an image of this many tokens, which follow its number.
    Pictures(u32),
}

/// Reads the parameters of a family.
type RuleReader = fn(&mut Fields) -> Result<VisionRule>;

const FAMILIES: [(&str, RuleReader); 8] = [
    ("qwen", qwen),
    ("llava", llava),
    ("llava_next", llava_next),
    ("pixtral", pixtral),
    ("internvl", internvl),
    ("gemma3", gemma3),
    ("paligemma", paligemma),
    ("mllama", mllama),
];

impl VisionRule {
    /// Reads the rule at a JSON path, and lists the paths of unknown members.
    ///
    /// `INVALID_REQUEST` with details `{"reason": "missing_field"|"bad_value", "path"}`.
    pub(crate) fn read(path: &str, value: &Value) -> Result<(VisionRule, Vec<String>)> {
        match value {
            Value::String(name) => VisionRule::read(path, &preset::find(path, name)?),
            _ => {
                let mut fields = Fields::with_details(path, value)?;
                let family = fields.one_of("family", &FAMILIES)?;
                let rule = family.ok_or_else(|| missing(&fields, "family"))?(&mut fields)?;
                Ok((rule, fields.ignored()))
            }
        }
    }

    /// Whether the token count depends on the size of an image.
    pub(super) fn needs_image_size(&self) -> bool {
        !matches!(self.images, Images::Fixed(_))
    }

    /// Whether the token count depends on the size of a video; None if the rule has no videos.
    pub(super) fn needs_video_size(&self) -> Option<bool> {
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

    /// The expansion of an image. Errors (`bad_aspect`) name `path`.
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

    /// The expansion of a video; `None` if the rule has no videos. Errors (`bad_aspect`) name
    /// `path`.
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
                // A rule that writes times requires `fps`.
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
        "the longer side is {aspect:.1} times the shorter one, the limit is 200 times; crop or pad it"
    );
    refused("bad_aspect", path, problem)
}

fn qwen(fields: &mut Fields) -> Result<VisionRule> {
    let grid = Grid {
        patch: number(fields, &["patch"], SIDE, None)? as f64,
        merge: number(fields, &["merge"], 1..=64, None)? as f64,
    };
    let pixels = bounds(fields, ["min", "min_pixels"], ["max", "max_pixels"], None)?;
    let steps = [("frames", false), ("volume", true)];
    let steps = fields.one_of("video", &steps)?.unwrap_or(false);
    // The default values of the classes in transformers 5.23.
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

fn llava(fields: &mut Fields) -> Result<VisionRule> {
    let size = number(fields, &["size"], SIDE, None)?;
    let patch = number(fields, &["patch"], 1..=size, None)?;
    let side = non_negative(size / patch);
    Ok(VisionRule::of_images(Images::Fixed(
        (side * side + extra_tokens(fields)?).saturating_sub(1),
    )))
}

fn llava_next(fields: &mut Fields) -> Result<VisionRule> {
    let size = number(fields, &["size"], SIDE, Some(336))?;
    let patch = number(fields, &["patch"], 1..=size, Some(14))?;
    let grid = canvases(fields, size)?;
    let (size, patch) = (to_u32(size), to_u32(patch));
    Ok(VisionRule::of_images(Images::AnyRes(AnyRes { size, patch, grid }, extra_tokens(fields)?)))
}

/// Reads pairs of height and width. The default is the five pairs of the family's first models.
fn canvases(fields: &mut Fields, size: i64) -> Result<Vec<(u32, u32)>> {
    const FIRST: [(u32, u32); 5] = [(336, 672), (672, 336), (672, 672), (1008, 336), (336, 1008)];
    let path = fields.path("grid");
    let given = fields.array("grid")?;
    let pairs: Option<Vec<(u32, u32)>> = match given {
        None => Some(FIRST.to_vec()),
        Some(given) => given.iter().map(height_and_width).collect(),
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

fn height_and_width(value: &Value) -> Option<(u32, u32)> {
    let [h, w] = value.as_array()?.as_slice() else { return None };
    let side = |value: &Value| value.as_u64().and_then(|side| u32::try_from(side).ok());
    Some((side(h)?, side(w)?))
}

fn pixtral(fields: &mut Fields) -> Result<VisionRule> {
    let patch = number(fields, &["patch"], SIDE, None)? as f64;
    let longest = number(fields, &["longest", "longest_edge"], SIDE, None)? as f64;
    // The breaks count as tokens, so they must not be empty.
    let row_end = token(fields, "break")?.unwrap_or_else(|| "[IMG_BREAK]".to_owned());
    let last_row_end = token(fields, "end")?.unwrap_or_else(|| "[IMG_END]".to_owned());
    let markup = Markup { row_end, last_row_end, ..Markup::default() };
    Ok(VisionRule { markup, ..VisionRule::of_images(Images::Rows(Rows { patch, longest })) })
}

fn internvl(fields: &mut Fields) -> Result<VisionRule> {
    let tile = to_u32(number(fields, &["tile"], SIDE, Some(448))?);
    let most = to_u32(number(fields, &["tiles"], 1..=TILES, Some(12))?);
    let per = to_u32(number(fields, &["per"], 1..=1_000_000, Some(256))?);
    let markup = wrapper(fields, ["<IMG_CONTEXT>", "<img>", "</img>"])?;
    Ok(VisionRule {
        images: Images::Tiles(Tiles { tile, most, per }),
        videos: Videos::Pictures(per),
        markup,
    })
}

fn gemma3(fields: &mut Fields) -> Result<VisionRule> {
    let markup =
        wrapper(fields, ["<image_soft_token>", "\n\n<start_of_image>", "<end_of_image>\n\n"])?;
    Ok(VisionRule { markup, ..VisionRule::of_images(Images::Fixed(256)) })
}

fn paligemma(fields: &mut Fields) -> Result<VisionRule> {
    let count = non_negative(number(fields, &["length"], 1..=1_000_000, None)?);
    let markup = Markup { front: Some(text(fields, "bos_token")?), ..Markup::default() };
    Ok(VisionRule { markup, ..VisionRule::of_images(Images::Fixed(count)) })
}

fn mllama(_: &mut Fields) -> Result<VisionRule> {
    Ok(VisionRule::of_images(Images::Fixed(1)))
}

impl VisionRule {
    fn of_images(images: Images) -> VisionRule {
        VisionRule { images, videos: Videos::Refused, markup: Markup::default() }
    }
}

/// `token`, `start` and `end`, with their defaults.
fn wrapper(fields: &mut Fields, defaults: [&str; 3]) -> Result<Markup> {
    let [repeated, start, end] = defaults;
    let repeated = token(fields, "token")?.unwrap_or_else(|| repeated.to_owned());
    let start = text(fields, "start")?.unwrap_or_else(|| start.to_owned());
    let end = text(fields, "end")?.unwrap_or_else(|| end.to_owned());
    Ok(Markup { token: Some(repeated), start, end, ..Markup::default() })
}

/// The number of `extra` tokens, plus one if `strategy` keeps all of them. The caller subtracts one
/// in either case.
fn extra_tokens(fields: &mut Fields) -> Result<u64> {
    let extra = number(fields, &["extra"], 0..=1_000_000, Some(1))?;
    let strategies = [("default", 0), ("full", 1)];
    let kept = fields.one_of("strategy", &strategies)?;
    Ok(non_negative(extra + kept.unwrap_or(0)))
}

fn bounds(
    fields: &mut Fields,
    min: [&'static str; 2],
    max: [&'static str; 2],
    default: Option<(i64, i64)>,
) -> Result<Pixels> {
    let low = number(fields, &min, PIXELS, default.map(|(low, _)| low))?;
    let high = number(fields, &max, PIXELS, default.map(|(_, high)| high))?;
    if low > high {
        let problem = format!("must not exceed `{}` ({high}), got {low}", max[0]);
        return Err(refused("bad_value", &fields.path(min[0]), problem));
    }
    Ok(Pixels { min: low as f64, max: high as f64 })
}

/// A number. `names` are its name and its aliases. Without a default it is required, and also if
/// the default is out of range.
fn number(
    fields: &mut Fields,
    names: &[&'static str],
    range: RangeInclusive<i64>,
    default: Option<i64>,
) -> Result<i64> {
    for &name in names {
        if let Some(number) = fields.integer(name, range.clone())? {
            return Ok(number);
        }
    }
    default.filter(|number| range.contains(number)).ok_or_else(|| missing(fields, names[0]))
}

fn text(fields: &mut Fields, key: &'static str) -> Result<Option<String>> {
    let text = fields.string(key)?;
    Ok(text.map(str::to_owned))
}

/// A text that is not empty.
pub(super) fn token(fields: &mut Fields, key: &'static str) -> Result<Option<String>> {
    let text = text(fields, key)?;
    match text.as_deref() {
        Some("") => Err(refused("bad_value", &fields.path(key), "expected a non-empty string")),
        _ => Ok(text),
    }
}

/// Converts a number whose range excludes negative values.
fn non_negative(number: i64) -> u64 {
    number.unsigned_abs()
}

/// Converts a number whose range fits.
fn to_u32(number: i64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
