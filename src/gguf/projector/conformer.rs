//! The encoder of sound of Gemma 4: two convolutions, layers of a conformer, and a projection.
//!
//! Source: `load_tensors` in tools/mtmd/clip.cpp, and the graph in models/gemma4a.cpp. llama.cpp does
//! without some tensors that are required here: without them it ends the process later.

use super::keys::EncoderSizes;
use super::kind::refused;
use super::tensors::{Types, Unchecked};
use crate::error::Result;

/// The spectra that become one embedding: each convolution halves them, and the frequencies.
pub(super) const FRAMES_OF_TOKEN: usize = 4;
/// The side of the convolutions.
const SIDE: u64 = 3;
/// The embeddings that the convolution of a layer sees. The graph puts four of zeros before them.
const DEPTH: u64 = 5;

/// Checks the tensors. Returns the length of the embeddings that the projection computes.
pub(super) fn check_conformer(
    rest: &mut Unchecked,
    sizes: &EncoderSizes,
    mel_bins: u64,
) -> Result<u64> {
    let width = u64::from(sizes.width);
    let (mut channels, mut frequencies) = (1, mel_bins);
    for number in 0..2 {
        let name = format!("a.conv1d.{number}");
        channels = rest.convolution(&format!("{name}.weight"), SIDE, channels)?;
        rest.optional(&format!("{name}.bias"), Types::F32, &[1, 1, channels])?;
        rest.optional_vector(&format!("{name}.norm.weight"), channels)?;
        frequencies = frequencies.div_ceil(2);
    }
    check_bounded(rest, "a.input_projection", frequencies * channels, width)?;
    rest.optional_vector("a.input_projection.bias", width)?;
    for layer in 0..sizes.layers {
        check_layer(rest, layer, width, sizes.head.into())?;
    }
    let mut row = width;
    if rest.has("a.pre_encode.out.weight") {
        row = bounded(rest, "a.pre_encode.out", width)?;
        rest.optional_vector("a.pre_encode.out.bias", row)?;
    }
    rest.optional_vector("mm.a.soft_emb_norm.weight", row)?;
    bounded(rest, "mm.a.input_projection", row)
}

fn check_layer(rest: &mut Unchecked, layer: u32, width: u64, head: u64) -> Result<()> {
    let name = |tensor: &str| format!("a.blk.{layer}.{tensor}");
    // The blocks before and after attention and its convolution.
    for block in ["", "_1"] {
        rest.vector(&name(&format!("ffn_norm{block}.weight")), width)?;
        let inner = bounded(rest, &name(&format!("ffn_up{block}")), width)?;
        check_bounded(rest, &name(&format!("ffn_down{block}")), inner, width)?;
        rest.optional_vector(&name(&format!("ffn_post_norm{block}.weight")), width)?;
    }
    for norm in ["attn_pre_norm", "ln1", "attn_post_norm", "conv_norm", "ln2"] {
        rest.optional_vector(&name(&format!("{norm}.weight")), width)?;
    }
    for matrix in ["attn_q", "attn_k", "attn_v", "attn_out"] {
        check_bounded(rest, &name(matrix), width, width)?;
    }
    rest.optional_vector(&name("attn_out.bias"), width)?;
    rest.required(&name("attn_k_rel.weight"), Types::Matrix, &[width, width])?;
    for scale in ["per_dim_scale", "per_dim_k_scale"] {
        rest.optional_vector(&name(&format!("{scale}.weight")), head)?;
    }
    let first = name("conv_pw1");
    let halves = bounded(rest, &first, width)?;
    if halves % 2 != 0 {
        let problem = format!("tensor \"{first}.weight\" has no half for its gate");
        return Err(refused(format!("{problem}: it makes {halves} numbers of a row")));
    }
    let inner = halves / 2;
    rest.required(&name("conv_dw.weight"), Types::F32, &[DEPTH, inner])?;
    rest.optional_vector(&name("conv_dw.bias"), inner)?;
    rest.optional_vector(&name("norm_conv.weight"), inner)?;
    check_bounded(rest, &name("conv_pw2"), inner, width)
}

/// A matrix for rows of this length, with its bounds. Returns the length of the rows that it makes.
fn bounded(rest: &mut Unchecked, name: &str, row: u64) -> Result<u64> {
    rest.bounds(name)?;
    rest.matrix(&format!("{name}.weight"), row)
}

/// The same, for rows of a known length.
fn check_bounded(rest: &mut Unchecked, name: &str, row: u64, made: u64) -> Result<()> {
    rest.bounds(name)?;
    rest.required(&format!("{name}.weight"), Types::Matrix, &[row, made])
}
