//! Encoders of pictures: their metadata, and how they scale a picture.

use super::keys::{EncoderSizes, Keys, MAX_LAYERS};
use super::kind::{ProjectorType, refused};
use super::shapes::Shapes;
use super::sizing::{MAX_TILED_TOKENS, Sizing};
use crate::error::Result;
use crate::gguf::tensors::TensorInfo;
use crate::gguf::value::GgufValue;

/// A larger picture or more tokens would take gigabytes for each encode.
const MAX_IMAGE_SIZE: u32 = 4096;
const MAX_TOKENS: u32 = 16_384;
/// The key of the number of patches, in each direction, that become one token.
const SCALE_FACTOR: &str = "clip.vision.projector.scale_factor";
/// That number for Gemma 3 without the key.
const GEMMA3_MERGE: u32 = 4;
/// The most tiles of InternVL without a key for them.
const INTERNVL_TILES: u32 = 12;
/// The number of patches for Qwen2-VL and later, whose graphs are written for this number.
const QWEN_MERGE: u32 = 2;
/// The least and the most tokens of a picture there, in llama.cpp. Larger patches would make pictures
/// of more than `MAX_IMAGE_SIZE` in both directions.
const QWEN_TOKENS: [u32; 2] = [8, 4096];
const QWEN_MAX_PATCH: u32 = 32;

/// Checks an encoder of pictures. Returns how it scales a picture, and the length of the embeddings
/// that the projector computes.
pub(super) fn check_encoder(
    kind: ProjectorType,
    keys: &Keys,
    tensors: &[TensorInfo],
) -> Result<(Sizing, u64)> {
    let EncoderSizes { width, head, layers } = keys.check_encoder()?;
    let image_size = keys.number("clip.vision.image_size", 1..=MAX_IMAGE_SIZE)?;
    let patch_size = keys.number("clip.vision.patch_size", 1..=image_size)?;
    let patches = (image_size / patch_size) * (image_size / patch_size);
    if patches > MAX_TOKENS {
        return Err(refused(format!(
            "clip.vision.image_size {image_size} has {patches} patches; at most {MAX_TOKENS} are supported"
        )));
    }
    let sizing = match kind {
        ProjectorType::Mlp | ProjectorType::JanusPro | ProjectorType::Gemma3 => {
            fixed(keys, kind, image_size, patch_size)?
        }
        ProjectorType::Qwen2Vl | ProjectorType::Qwen25Vl | ProjectorType::Qwen3Vl => {
            squares(keys, kind, patch_size, head)?
        }
        ProjectorType::Idefics3 => tiles(keys, image_size, patch_size)?,
        ProjectorType::InternVl => grid(keys, image_size, patch_size)?,
        _ => unreachable!("the type is one of pictures"),
    };
    let patches_of_token = match sizing {
        Sizing::Fixed { tokens, .. }
        | Sizing::Tiles { tokens, .. }
        | Sizing::Grid { tokens, .. } => patches / tokens,
        Sizing::Squares { .. } => QWEN_MERGE * QWEN_MERGE,
    };
    let shapes = Shapes {
        tensors,
        width: width.into(),
        patch: patch_size.into(),
        patches: patches.into(),
        patches_of_token: patches_of_token.into(),
        layers,
    };
    let embedding_length = shapes.check(kind)?;
    if kind == ProjectorType::Qwen25Vl {
        // Its windows are put in order by this length.
        check_projection(keys, embedding_length)?;
    }
    Ok((sizing, embedding_length))
}

/// How pictures are scaled to one size.
fn fixed(keys: &Keys, kind: ProjectorType, image_size: u32, patch_size: u32) -> Result<Sizing> {
    let patches = image_size / patch_size;
    let merge = match kind {
        ProjectorType::Gemma3 if keys.value(SCALE_FACTOR).is_some() => {
            keys.number(SCALE_FACTOR, 1..=patches)?
        }
        ProjectorType::Gemma3 => GEMMA3_MERGE,
        _ => 1,
    };
    let tokens = merged(patches, merge)?;
    Ok(Sizing::Fixed { side: image_size, tokens })
}

/// How pictures become tiles of this size.
fn tiles(keys: &Keys, image_size: u32, patch_size: u32) -> Result<Sizing> {
    let patches = image_size / patch_size;
    let tokens = merged(patches, keys.number(SCALE_FACTOR, 2..=patches.max(2))?)?;
    let key = "clip.vision.preproc_image_size";
    let longest = match keys.value(key) {
        None | Some(GgufValue::U32(0)) => None,
        Some(_) => Some(keys.number(key, 1..=MAX_IMAGE_SIZE)?),
    };
    let sizing = Sizing::Tiles { side: image_size, tokens, longest };
    let most = sizing.most_tokens();
    if most > MAX_TILED_TOKENS {
        return Err(refused(format!(
            "{key} makes pictures of {most} tokens; at most {MAX_TILED_TOKENS} are supported"
        )));
    }
    Ok(sizing)
}

/// How pictures become grids of tiles of this size.
fn grid(keys: &Keys, image_size: u32, patch_size: u32) -> Result<Sizing> {
    let patches = image_size / patch_size;
    let merge = match keys.value(SCALE_FACTOR) {
        None => 1,
        Some(_) => keys.number(SCALE_FACTOR, 1..=patches)?,
    };
    let tokens = merged(patches, merge)?;
    // With more, there may be no grid.
    keys.optional("clip.vision.preproc_min_tiles", 1)?;
    let key = "clip.vision.preproc_max_tiles";
    let most = match keys.value(key) {
        None => INTERNVL_TILES,
        Some(_) => keys.number(key, 1..=MAX_TILED_TOKENS / tokens)?,
    };
    Ok(Sizing::Grid { side: image_size, tokens, most })
}

/// How pictures become squares of patches. Heads of this length have a rotary position in each
/// direction.
fn squares(keys: &Keys, kind: ProjectorType, patch_size: u32, head: u32) -> Result<Sizing> {
    if !head.is_multiple_of(4) {
        return Err(refused(format!(
            "clip.vision.attention.head_count makes heads of length {head}, which 4 must divide"
        )));
    }
    keys.number("clip.vision.patch_size", 1..=QWEN_MAX_PATCH)?;
    keys.optional("clip.vision.spatial_merge_size", QWEN_MERGE)?;
    match kind {
        // The graph would read windows that are not there.
        ProjectorType::Qwen2Vl => keys.optional("clip.vision.n_wa_pattern", 0)?,
        ProjectorType::Qwen25Vl => {
            keys.number("clip.vision.n_wa_pattern", 0..=MAX_LAYERS)?;
        }
        _ => (),
    }
    let [least, most] = QWEN_TOKENS;
    Ok(Sizing::Squares { square: patch_size * QWEN_MERGE, least, most })
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
