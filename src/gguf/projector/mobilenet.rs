//! The tensors of MobileNetV5, the encoder of Gemma 3n, with their shapes and types.
//!
//! Source: `load_tensors` in tools/mtmd/clip.cpp, and the graph in models/mobilenetv5.cpp. How many
//! blocks there are follows from the names of tensors, and what each of them computes from the shapes.

use super::kind::refused;
use super::tensors::{Types, Unchecked, check, length};
use crate::error::Result;

/// The stages, each of which begins with a block that halves the sides.
const STAGES: u32 = 4;
/// The graph has room for these. Gemma 3n has 84.
const MAX_BLOCKS: u32 = 96;
/// The longest side of what the encoder computes.
const OUTPUT_SIDE: u64 = 16;
/// The largest square of a convolution of single channels. It is odd, so that the sides stay.
const MAX_SQUARE: u64 = 7;
/// Tensors of a projection that llama.cpp does not load.
const UNUSED: [&str; 3] =
    ["mm.embedding.weight", "mm.hard_emb_norm.weight", "mm.post_proj_norm.weight"];

/// What a block takes and computes.
#[derive(Clone, Copy)]
struct FeatureMap {
    side: u64,
    channels: u64,
}

/// Checks the encoder and its projection, for pictures with sides of this length. Returns the number
/// of its embeddings, whose length is that of the encoder's own.
pub(super) fn check_mobilenet(rest: &mut Unchecked, side: u64, width: u64) -> Result<u64> {
    let channels = convolve(rest, "v.conv_stem.conv.weight", 3, 3)?;
    rest.optional("v.conv_stem.conv.bias", Types::F32, &[1, 1, channels])?;
    rest.optional_vector("v.conv_stem.bn.weight", channels)?;
    let mut map = FeatureMap { side: side.div_ceil(2), channels };
    let (mut ends, mut blocks) = (Vec::new(), 0);
    for stage in 0..STAGES {
        let first = blocks;
        while let Some(next) = check_block(rest, stage, blocks - first, map)? {
            (map, blocks) = (next, blocks + 1);
            if blocks > MAX_BLOCKS {
                return Err(refused(format!("there are more than {MAX_BLOCKS} blocks")));
            }
        }
        if blocks == first {
            return Err(refused(format!("there is no block \"v.blk.{stage}.0\"")));
        }
        ends.push(map);
    }
    let [.., high, low] = ends[..] else { unreachable!("there are four stages") };
    let tokens = check_adapter(rest, high, low, width)?;
    rest.vector("mm.soft_emb_norm.weight", width)?;
    // llama.cpp takes the length of what it multiplies for that of the embeddings.
    rest.required("mm.input_projection.weight", Types::Matrix, &[width, width])?;
    UNUSED.iter().for_each(|name| rest.ignore(name));
    Ok(tokens)
}

/// Checks what joins the results of the last two stages. Returns the number of embeddings.
fn check_adapter(
    rest: &mut Unchecked,
    high: FeatureMap,
    low: FeatureMap,
    width: u64,
) -> Result<u64> {
    let mut channels = high.channels + low.channels;
    for part in ["pw_exp", "pw_proj"] {
        let name = format!("v.msfa.ffn.{part}");
        let convolution = format!("{name}.conv.weight");
        if rest.has(&convolution) {
            channels = convolve(rest, &convolution, 1, channels)?;
        }
        rest.optional_vector(&format!("{name}.bn.weight"), channels)?;
    }
    rest.optional_vector("v.msfa.norm.weight", channels)?;
    let pooled = high.side.min(OUTPUT_SIDE);
    if !high.side.is_multiple_of(low.side) || !high.side.is_multiple_of(pooled) {
        return Err(refused(format!(
            "the last stages compute sides of {} and {}, which llama.cpp cannot scale to {pooled}",
            high.side, low.side
        )));
    }
    if channels != width {
        return Err(refused(format!(
            "the encoder computes {channels} channels, but clip.vision.embedding_length is {width}"
        )));
    }
    Ok(pooled * pooled)
}

/// Checks a block, if it is there.
fn check_block(
    rest: &mut Unchecked,
    stage: u32,
    block: u32,
    map: FeatureMap,
) -> Result<Option<FeatureMap>> {
    let name = |part: &str| format!("v.blk.{stage}.{block}.{part}");
    let has = |rest: &Unchecked, part: &str| rest.has(&name(part));
    let halved = if block == 0 { map.side.div_ceil(2) } else { map.side };
    if has(rest, "conv_exp.weight") {
        let inner = convolve(rest, &name("conv_exp.weight"), 3, map.channels)?;
        rest.optional_vector(&name("bn1.weight"), inner)?;
        let channels = convolve(rest, &name("conv_pwl.weight"), 1, inner)?;
        rest.optional_vector(&name("bn2.weight"), channels)?;
        return Ok(Some(FeatureMap { side: halved, channels }));
    }
    if has(rest, "attn.query.proj.weight") {
        let channels = check_attention(rest, &name(""), map.channels)?;
        return Ok(Some(FeatureMap { channels, ..map }));
    }
    if !has(rest, "dw_start.conv.weight") && !has(rest, "pw_exp.conv.weight") {
        return Ok(None);
    }
    let mut made = map;
    for (part, is_single) in
        [("dw_start", true), ("pw_exp", false), ("dw_mid", true), ("pw_proj", false)]
    {
        let convolution = name(&format!("{part}.conv.weight"));
        if !rest.has(&convolution) {
            continue;
        }
        if is_single {
            convolve_channels(rest, &convolution, made.channels)?;
        } else {
            made.channels = convolve(rest, &convolution, 1, made.channels)?;
        }
        if part == "dw_mid" {
            made.side = halved;
        }
        rest.optional_vector(&name(&format!("{part}.bn.weight")), made.channels)?;
    }
    rest.optional(&name("layer_scale.gamma"), Types::F32, &[1, 1, made.channels])?;
    Ok(Some(made))
}

/// Checks attention with one head of keys and values. Returns the channels that it computes.
fn check_attention(rest: &mut Unchecked, block: &str, channels: u64) -> Result<u64> {
    let name = |part: &str| format!("{block}{part}");
    rest.optional_vector(&name("norm.weight"), channels)?;
    let queries = convolve(rest, &name("attn.query.proj.weight"), 1, channels)?;
    // Keys and values have the same number, so both are made smaller, or none.
    if rest.has(&name("attn.key.down_conv.weight")) {
        for part in ["key", "value"] {
            let convolution = name(&format!("attn.{part}.down_conv.weight"));
            convolve_channels(rest, &convolution, channels)?;
            rest.optional_vector(&name(&format!("attn.{part}.norm.weight")), channels)?;
        }
    }
    let head = convolve(rest, &name("attn.key.proj.weight"), 1, channels)?;
    let values = name("attn.value.proj.weight");
    rest.required(&values, Types::Floats, &[1, 1, channels, head])?;
    if !queries.is_multiple_of(head) {
        return Err(refused(format!(
            "tensor {:?} makes {queries} numbers, which the {head} of a head do not divide",
            name("attn.query.proj.weight")
        )));
    }
    let made = convolve(rest, &name("attn.output.proj.weight"), 1, queries)?;
    rest.optional(&name("layer_scale.gamma"), Types::F32, &[1, 1, made])?;
    Ok(made)
}

/// Checks a convolution of all channels with squares of this side. Returns the channels that it makes.
fn convolve(rest: &mut Unchecked, name: &str, side: u64, channels: u64) -> Result<u64> {
    let convolution = rest.take(name, Types::Floats)?;
    let made = length(convolution, 3)?;
    check(convolution, Types::Floats, &[side, side, channels, made])?;
    Ok(made)
}

/// Checks a convolution of each channel with a square.
fn convolve_channels(rest: &mut Unchecked, name: &str, channels: u64) -> Result<()> {
    let side = rest.row(name).filter(|side| side % 2 == 1 && *side <= MAX_SQUARE);
    rest.depthwise(name, side.unwrap_or(3), channels)
}
