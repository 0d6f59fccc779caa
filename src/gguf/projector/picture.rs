//! Encoders of pictures: their metadata, and how they scale a picture.

use std::ops::RangeInclusive;

use super::grids::{Grids, RATIO_TILE};
use super::keys::{EncoderSizes, Keys, MAX_LAYERS};
use super::kind::{ProjectorType, refused};
use super::mobilenet::check_mobilenet;
use super::shapes::Shapes;
use super::sizing::{MAX_TILED_TOKENS, Sizing};
use super::slices::{MAX_SLICES, Slices};
use super::squares::Squares;
use super::tensors::Unchecked;
use crate::error::Result;
use crate::gguf::value::GgufValue;

/// A larger picture or more tokens would take gigabytes for each encode.
const MAX_IMAGE_SIZE: u32 = 4096;
const MAX_TOKENS: u32 = 16_384;
/// The key of the number of patches, in each direction, that become one token.
const SCALE_FACTOR: &str = "clip.vision.projector.scale_factor";
/// That number for Gemma 3 without the key.
const GEMMA3_MERGE: u32 = 4;
/// That number for Gemma 4 without the key.
const GEMMA4_MERGE: u32 = 3;
/// The patches in a row for MobileVLM, whose graph is written for this number, and its merge.
const MOBILE_PATCHES: u32 = 24;
const MOBILE_MERGE: u32 = 2;
/// That number for GLM-Edge, whose graph is written for it.
const GLM_EDGE_MERGE: u32 = 2;
/// The most tiles of InternVL without a key for them.
const INTERNVL_TILES: u32 = 12;
/// The most tiles of Llama 4 in a direction.
const LLAMA4_TILES: u32 = 3;
/// The number of patches for Qwen2-VL and later, whose graphs are written for this number.
const QWEN_MERGE: u32 = 2;
/// The key of that number for them and for Pixtral.
const MERGE_SIZE: &str = "clip.vision.spatial_merge_size";
/// The key of the longer side of a picture.
const MAX_SIDE_KEY: &str = "clip.vision.preproc_image_size";
/// Larger patches would make pictures of more than `MAX_IMAGE_SIZE` in both directions.
const QWEN_MAX_PATCH: u32 = 32;
/// The squares in a row of the picture for which llama.cpp makes its first buffers.
const FIRST_SQUARES: u32 = 16;
const PADDLE_FIRST_SQUARES: u32 = 28;
const DOTS_FIRST_SQUARES: u32 = 46;
/// The least and the most squares of a picture, in llama.cpp.
const QWEN_SQUARES: [u32; 2] = [8, 4096];
const GEMMA4_SQUARES: [u32; 2] = [70, 1120];
const PIXTRAL_SQUARES: [u32; 2] = [8, 1024];
const KIMI_SQUARES: [u32; 2] = [8, 1024];
const LFM2_SQUARES: [u32; 2] = [64, 256];

/// Checks an encoder of pictures. Returns how it scales a picture, and the length of the embeddings
/// that the projector computes.
pub(super) fn check_encoder(
    kind: ProjectorType,
    keys: &Keys,
    rest: &mut Unchecked,
) -> Result<(Sizing, u64)> {
    let EncoderSizes { width, head, layers } = keys.check_encoder(kind)?;
    let image_size = keys.number("clip.vision.image_size", 1..=MAX_IMAGE_SIZE)?;
    let mut patch_size = keys.number("clip.vision.patch_size", 1..=image_size)?;
    let patches = (image_size / patch_size) * (image_size / patch_size);
    if patches > MAX_TOKENS && kind != ProjectorType::Gemma3NV {
        return Err(refused(format!(
            "clip.vision.image_size {image_size} has {patches} patches; at most {MAX_TOKENS} are supported"
        )));
    }
    if kind == ProjectorType::Gemma3NV {
        let tokens = check_mobilenet(rest, image_size.into(), width.into())?;
        // llama.cpp counts so many, whatever the encoder computes.
        if u64::from(image_size / patch_size) != tokens {
            return Err(refused(format!(
                "clip.vision.patch_size {patch_size} makes {} tokens, but the encoder computes \
                 {tokens}",
                image_size / patch_size
            )));
        }
        let sizing = Sizing::Fixed { side: image_size, tokens: image_size / patch_size };
        return Ok((sizing, width.into()));
    }
    let (sizing, merge) = match kind {
        ProjectorType::Mlp
        | ProjectorType::Ldp
        | ProjectorType::LdpV2
        | ProjectorType::JanusPro
        | ProjectorType::Gemma3
        | ProjectorType::CogVlm
        | ProjectorType::GlmEdge => fixed(keys, kind, image_size, patch_size)?,
        ProjectorType::Qwen2Vl
        | ProjectorType::Qwen25Vl
        | ProjectorType::Qwen3Vl
        | ProjectorType::Glm4V => {
            check_rotary_head(head)?;
            qwen_squares(keys, kind, patch_size)?
        }
        ProjectorType::Gemma4V => {
            check_rotary_head(head)?;
            let merge = gemma4_merge(keys)?;
            (Sizing::Squares(squares(patch_size, merge, GEMMA4_SQUARES, false)?), merge)
        }
        ProjectorType::Gemma4UnifiedV => {
            patch_size *= gemma4_merge(keys)?;
            (Sizing::Squares(squares(patch_size, 1, GEMMA4_SQUARES, false)?), 1)
        }
        ProjectorType::MiniCpmV => (Sizing::Slices(slices(keys, image_size, patch_size)?), 1),
        ProjectorType::Idefics3 => tiles(keys, image_size, patch_size)?,
        ProjectorType::InternVl => grid(keys, image_size, patch_size, tiles_of_keys)?,
        ProjectorType::Llama4 => {
            check_rotary_head(head)?;
            grid(keys, image_size, patch_size, |_, _| Ok(Grids::Sides(LLAMA4_TILES)))?
        }
        ProjectorType::Pixtral => {
            check_rotary_head(head)?;
            let merge = pixtral_merge(keys, merges(1, PIXTRAL_SQUARES))?;
            (Sizing::Squares(squares(patch_size, merge, PIXTRAL_SQUARES, true)?), merge)
        }
        ProjectorType::LightOnOcr => {
            check_rotary_head(head)?;
            let most = (MAX_TOKENS.isqrt() / FIRST_SQUARES).min(image_size / patch_size);
            let merge = pixtral_merge(keys, 1..=most)?;
            check_first_picture(keys, FIRST_SQUARES * merge)?;
            (squares_of_side(keys, image_size, patch_size, merge)?, merge)
        }
        ProjectorType::KimiVl => {
            check_rotary_head(head)?;
            let merge = keys.number(SCALE_FACTOR, merges(2, KIMI_SQUARES))?;
            (Sizing::Squares(squares(patch_size, merge, KIMI_SQUARES, false)?), merge)
        }
        ProjectorType::Lfm2 => {
            let merge = keys.number(SCALE_FACTOR, merges(2, LFM2_SQUARES))?;
            (squares_or_tiles(patch_size, merge)?, merge)
        }
        ProjectorType::Phi4 => {
            check_first_picture(keys, FIRST_SQUARES)?;
            (squares_of_keys(keys, patch_size, 1)?, 1)
        }
        ProjectorType::PaddleOcr => {
            check_rotary_head(head)?;
            check_first_picture(keys, PADDLE_FIRST_SQUARES * QWEN_MERGE)?;
            (squares_of_keys(keys, patch_size, QWEN_MERGE)?, QWEN_MERGE)
        }
        ProjectorType::DotsOcr => {
            check_rotary_head(head)?;
            // With more, the first picture would have too many patches.
            let merge = keys.number(SCALE_FACTOR, QWEN_MERGE..=QWEN_MERGE)?;
            check_first_picture(keys, DOTS_FIRST_SQUARES * merge)?;
            (squares_of_keys(keys, patch_size, merge)?, merge)
        }
        _ => unreachable!("the type is one of pictures"),
    };
    let shapes = Shapes {
        width: width.into(),
        head: head.into(),
        patch: patch_size.into(),
        patches: patches.into(),
        patches_of_token: u64::from(merge) * u64::from(merge),
        queries: match sizing {
            Sizing::Slices(slices) => slices.tokens.into(),
            _ => 0,
        },
        longest_row: u64::from(merge) * u64::from(sizing.most_tokens()),
        layers,
    };
    let embedding_length = shapes.check(kind, rest)?;
    if kind == ProjectorType::Qwen25Vl {
        // Its windows are put in order by this length.
        check_projection(keys, embedding_length)?;
    }
    Ok((sizing, embedding_length))
}

/// How pictures are scaled to one size.
fn fixed(
    keys: &Keys,
    kind: ProjectorType,
    image_size: u32,
    patch_size: u32,
) -> Result<(Sizing, u32)> {
    let patches = image_size / patch_size;
    let merge = match kind {
        ProjectorType::Gemma3 if keys.value(SCALE_FACTOR).is_some() => {
            keys.number(SCALE_FACTOR, 1..=patches)?
        }
        ProjectorType::Gemma3 => GEMMA3_MERGE,
        ProjectorType::Ldp | ProjectorType::LdpV2 if patches != MOBILE_PATCHES => {
            return Err(refused(format!(
                "clip.vision.image_size {image_size} has {patches} patches in a row; it must have \
                 {MOBILE_PATCHES}"
            )));
        }
        ProjectorType::Ldp | ProjectorType::LdpV2 => MOBILE_MERGE,
        // llama.cpp would count more than it computes.
        ProjectorType::GlmEdge if !patches.is_multiple_of(GLM_EDGE_MERGE) => {
            return Err(refused(format!(
                "clip.vision.image_size {image_size} has {patches} patches in a row, which \
                 {GLM_EDGE_MERGE} must divide"
            )));
        }
        ProjectorType::GlmEdge => GLM_EDGE_MERGE,
        _ => 1,
    };
    // Those have embeddings of their own before and after a picture.
    let around = match kind {
        ProjectorType::CogVlm | ProjectorType::GlmEdge => 2,
        _ => 0,
    };
    let tokens = merged(patches, merge)? + around;
    Ok((Sizing::Fixed { side: image_size, tokens }, merge))
}

/// How pictures become slices.
fn slices(keys: &Keys, side: u32, patch: u32) -> Result<Slices> {
    const VERSION: &str = "clip.minicpmv_version";
    const QUERIES: &str = "clip.minicpmv_query_num";
    let version = match keys.value(VERSION) {
        None | Some(GgufValue::I32(0)) => None,
        Some(GgufValue::I32(version @ (2..=6 | 100_045))) => Some(*version),
        Some(_) => {
            let problem = format!("{VERSION} must be from 2 to 6, or 100045");
            return Err(refused(problem));
        }
    };
    let tokens = match (keys.value(QUERIES), version) {
        (Some(_), _) => keys.number(QUERIES, 1..=MAX_TILED_TOKENS / (MAX_SLICES + 1))?,
        (None, None | Some(2)) => 96,
        (None, Some(_)) => 64,
    };
    Ok(Slices { side, patch, tokens, is_nested: version.is_none_or(|version| version == 2) })
}

/// How pictures become tiles of this size.
fn tiles(keys: &Keys, image_size: u32, patch_size: u32) -> Result<(Sizing, u32)> {
    let patches = image_size / patch_size;
    let merge = keys.number(SCALE_FACTOR, 2..=patches.max(2))?;
    let tokens = merged(patches, merge)?;
    let longest = match keys.value(MAX_SIDE_KEY) {
        None | Some(GgufValue::U32(0)) => None,
        Some(_) => Some(keys.number(MAX_SIDE_KEY, 1..=MAX_IMAGE_SIZE)?),
    };
    let sizing = Sizing::Tiles { side: image_size, tokens, longest };
    let most = sizing.most_tokens();
    if most > MAX_TILED_TOKENS {
        return Err(refused(format!(
            "{MAX_SIDE_KEY} makes pictures of {most} tokens; at most {MAX_TILED_TOKENS} are supported"
        )));
    }
    Ok((sizing, merge))
}

/// How pictures become grids of tiles of this size. `grids` says which, by the tokens of a tile.
fn grid(
    keys: &Keys,
    image_size: u32,
    patch_size: u32,
    grids: impl FnOnce(&Keys, u32) -> Result<Grids>,
) -> Result<(Sizing, u32)> {
    let patches = image_size / patch_size;
    let merge = match keys.value(SCALE_FACTOR) {
        None => 1,
        Some(_) => keys.number(SCALE_FACTOR, 1..=patches)?,
    };
    let tokens = merged(patches, merge)?;
    let sizing = Sizing::Grid { side: image_size, tokens, grids: grids(keys, tokens)? };
    let most = sizing.most_tokens();
    if most > MAX_TILED_TOKENS {
        return Err(refused(format!(
            "clip.vision.image_size {image_size} makes pictures of {most} tokens; at most \
             {MAX_TILED_TOKENS} are supported"
        )));
    }
    Ok((sizing, merge))
}

/// The grids of at most as many tiles as the file says.
fn tiles_of_keys(keys: &Keys, tokens: u32) -> Result<Grids> {
    // With more, there may be no grid.
    keys.optional("clip.vision.preproc_min_tiles", 1)?;
    let key = "clip.vision.preproc_max_tiles";
    let most = match keys.value(key) {
        None => INTERNVL_TILES,
        Some(_) => keys.number(key, 1..=MAX_TILED_TOKENS / tokens)?,
    };
    Ok(Grids::Tiles(most))
}

/// Checks that a head of this length has a rotary position in each direction.
fn check_rotary_head(head: u32) -> Result<()> {
    if head.is_multiple_of(4) {
        return Ok(());
    }
    Err(refused(format!(
        "clip.vision.attention.head_count makes heads of length {head}, which 4 must divide"
    )))
}

/// Checks the size of a patch. llama.cpp makes its first buffers, and fills them, for a picture with
/// so many patches in each direction, whatever else the file says.
fn check_first_picture(keys: &Keys, patches: u32) -> Result<()> {
    keys.number("clip.vision.patch_size", 1..=MAX_IMAGE_SIZE / patches).map(|_| ())
}

/// How pictures become squares of two by two patches.
fn qwen_squares(keys: &Keys, kind: ProjectorType, patch_size: u32) -> Result<(Sizing, u32)> {
    keys.number("clip.vision.patch_size", 1..=QWEN_MAX_PATCH)?;
    keys.optional(MERGE_SIZE, QWEN_MERGE)?;
    match kind {
        // The graph would read windows that are not there.
        ProjectorType::Qwen2Vl => keys.optional("clip.vision.n_wa_pattern", 0)?,
        ProjectorType::Qwen25Vl => {
            keys.number("clip.vision.n_wa_pattern", 0..=MAX_LAYERS)?;
        }
        _ => (),
    }
    let squares = squares(patch_size, QWEN_MERGE, QWEN_SQUARES, false)?;
    Ok((Sizing::Squares(squares), QWEN_MERGE))
}

/// The numbers of patches, in each direction, of which a picture has at most `MAX_TOKENS`.
fn merges(least: u32, [_, most]: [u32; 2]) -> RangeInclusive<u32> {
    least..=(MAX_TOKENS / most).isqrt()
}

/// The number of patches, in each direction, that become one token.
fn gemma4_merge(keys: &Keys) -> Result<u32> {
    match keys.value(SCALE_FACTOR) {
        None => Ok(GEMMA4_MERGE),
        Some(_) => keys.number(SCALE_FACTOR, merges(1, GEMMA4_SQUARES)),
    }
}

/// That number for Pixtral.
fn pixtral_merge(keys: &Keys, allowed: RangeInclusive<u32>) -> Result<u32> {
    match keys.value(MERGE_SIZE) {
        None => Ok(1),
        Some(_) => keys.number(MERGE_SIZE, allowed),
    }
}

/// How pictures become squares of patches if the longer side gets the size that the file states.
fn squares_of_side(keys: &Keys, image_size: u32, patch_size: u32, merge: u32) -> Result<Sizing> {
    let longest = match keys.value(MAX_SIDE_KEY) {
        None => image_size,
        Some(_) => keys.number(MAX_SIDE_KEY, 1..=MAX_IMAGE_SIZE)?,
    };
    let patches = longest.div_ceil(patch_size * merge) * merge;
    if patches * patches > MAX_TOKENS {
        return Err(refused(format!(
            "a picture of {longest} pixels in a row has {} patches; at most {MAX_TOKENS} are \
             supported",
            patches * patches
        )));
    }
    Ok(Sizing::LongestSide { side: patch_size * merge, longest })
}

/// How pictures become squares of patches.
fn squares(patch_size: u32, merge: u32, squares: [u32; 2], ends_rows: bool) -> Result<Squares> {
    let square = patch_size * merge;
    let [least, most] = squares.map(|count| u64::from(count) * u64::from(square).pow(2));
    let [Some(least), Some(most)] = [least, most].map(image_pixels) else {
        return Err(refused(format!(
            "clip.vision.patch_size {patch_size} makes pictures of {most} pixels; at most \
             {MAX_IMAGE_SIZE} x {MAX_IMAGE_SIZE} are supported"
        )));
    };
    Ok(Squares { side: square, least, most, supported: most, ends_rows })
}

/// How pictures become squares of patches if they are small, and tiles of squares if not.
fn squares_or_tiles(patch_size: u32, merge: u32) -> Result<Sizing> {
    if !RATIO_TILE.is_multiple_of(patch_size) {
        return Err(refused(format!(
            "clip.vision.patch_size {patch_size} does not divide {RATIO_TILE}, the side of a tile"
        )));
    }
    let patches = RATIO_TILE / patch_size;
    if patches * patches > MAX_TOKENS {
        return Err(refused(format!(
            "clip.vision.patch_size {patch_size} makes tiles of {} patches; at most {MAX_TOKENS} \
             are supported",
            patches * patches
        )));
    }
    let whole = squares(patch_size, merge, LFM2_SQUARES, false)?;
    let sizing = Sizing::RatioTiles { whole, patch: patch_size };
    let most = sizing.most_tokens();
    if most > MAX_TILED_TOKENS {
        return Err(refused(format!(
            "clip.vision.patch_size {patch_size} makes pictures of {most} tokens; at most \
             {MAX_TILED_TOKENS} are supported"
        )));
    }
    Ok(sizing)
}

/// How pictures become squares of patches, by the pixels that the file states.
fn squares_of_keys(keys: &Keys, patch_size: u32, merge: u32) -> Result<Sizing> {
    let square = patch_size * merge;
    let largest = MAX_IMAGE_SIZE * MAX_IMAGE_SIZE;
    let most = keys.number("clip.vision.image_max_pixels", square * square..=largest)?;
    // Some files allow pictures of more patches.
    let supported = most.min(MAX_TOKENS * patch_size * patch_size);
    let least = keys.number("clip.vision.image_min_pixels", 1..=supported)?;
    Ok(Sizing::Squares(Squares { side: square, least, most, supported, ends_rows: false }))
}

/// A number of pixels, if it is not more than those of the largest picture.
fn image_pixels(pixels: u64) -> Option<u32> {
    let pixels = u32::try_from(pixels).ok()?;
    (pixels <= MAX_IMAGE_SIZE * MAX_IMAGE_SIZE).then_some(pixels)
}

/// Checks the length of embeddings as the metadata has it.
fn check_projection(keys: &Keys, length: u64) -> Result<()> {
    let key = "clip.vision.projection_dim";
    match keys.value(key).and_then(GgufValue::as_u64) {
        Some(stated) if stated == length => Ok(()),
        _ => Err(refused(format!("{key} must be {length}, the length of the embeddings"))),
    }
}

/// The tokens of a square of patches.
fn merged(patches: u32, merge: u32) -> Result<u32> {
    if patches.is_multiple_of(merge) {
        return Ok((patches / merge) * (patches / merge));
    }
    let problem = format!("{SCALE_FACTOR} {merge} does not divide the {patches} patches of a side");
    Err(refused(problem))
}
