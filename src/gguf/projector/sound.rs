//! Encoders of sound: that of Whisper, which takes spectra of 30 seconds, and its projections.
//!
//! Source: `load_hparams`, `load_tensors`, `clip_n_output_tokens` and `build_stack` in
//! tools/mtmd/clip.cpp, the graph in models/whisper-enc.cpp, and mtmd_audio_preprocessor_whisper in
//! mtmd-audio.cpp.

use super::keys::{EncoderSizes, Keys};
use super::kind::{ProjectorType, refused};
use super::tensors::{Types, Unchecked};
use crate::error::Result;

/// The samples of a second.
const SAMPLE_RATE: u32 = 16_000;
/// The samples between two spectra.
const HOP: usize = 160;
/// The spectra of a window, and the positions that a convolution makes of them.
const FRAMES: u64 = 3000;
const POSITIONS: u64 = FRAMES / 2;
/// A shorter sound is filled up to this many samples.
const MIN_SAMPLES: usize = 201;
/// The samples of silence that are added to a sound.
const SILENCE: usize = 30 * SAMPLE_RATE as usize;
/// The most frequencies of a spectrum, in llama.cpp.
const MAX_MEL_BINS: u32 = 256;

/// The windows of 30 seconds that an encoder takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SoundWindows {
    /// The frequencies of a spectrum.
    mel_bins: u32,
    /// The number of embeddings of a window.
    tokens: u32,
}

impl SoundWindows {
    /// The samples of a second.
    pub fn sample_rate(&self) -> u32 {
        SAMPLE_RATE
    }

    /// The number of embeddings of a window, whatever is in it.
    pub fn tokens(&self) -> u32 {
        self.tokens
    }

    /// The numbers in the spectra of a window.
    pub fn spectra_len(&self) -> u64 {
        FRAMES * u64::from(self.mel_bins)
    }

    /// The windows of a sound with this many samples. llama.cpp adds 30 seconds of silence, and leaves
    /// out a window that is not full then.
    pub fn count(&self, samples: usize) -> usize {
        let frames = (samples.max(MIN_SAMPLES) + SILENCE) / HOP + 1;
        frames / FRAMES as usize
    }
}

/// Checks an encoder of sound. Returns its windows, and the length of the embeddings that the
/// projector computes.
pub(super) fn check_encoder(
    kind: ProjectorType,
    keys: &Keys,
    rest: &mut Unchecked,
) -> Result<(SoundWindows, u64)> {
    let EncoderSizes { width, layers, .. } = keys.check_encoder()?;
    let width = u64::from(width);
    let mel_bins = keys.number("clip.audio.num_mel_bins", 1..=MAX_MEL_BINS)?;
    let (stack, tokens) = windows(kind, keys, width)?;
    rest.required("a.conv1d.1.weight", Types::Floats, &[3, mel_bins.into(), width])?;
    rest.required("a.conv1d.1.bias", Types::F32, &[1, width])?;
    rest.required("a.conv1d.2.weight", Types::Floats, &[3, width, width])?;
    rest.required("a.conv1d.2.bias", Types::F32, &[1, width])?;
    rest.required("a.position_embd.weight", Types::F32, &[width, POSITIONS])?;
    rest.norm("a.pre_ln", width, false)?;
    rest.norm("a.post_ln", width, false)?;
    for layer in 0..layers {
        check_layer(rest, layer, width)?;
    }
    let stacked = stack * width;
    let embedding = match kind {
        ProjectorType::Ultravox => {
            rest.vector("mm.a.norm_pre.weight", stacked)?;
            let inner = rest.matrix("mm.a.mlp.1.weight", stacked)?;
            if inner % 2 != 0 {
                let message = "tensor \"mm.a.mlp.1.weight\" has no half for its gate";
                return Err(refused(format!("{message}: it makes {inner} numbers of a row")));
            }
            rest.vector("mm.a.norm_mid.weight", inner / 2)?;
            rest.matrix("mm.a.mlp.2.weight", inner / 2)?
        }
        ProjectorType::Voxtral => {
            let inner = rest.matrix("mm.a.mlp.1.weight", stacked)?;
            rest.matrix("mm.a.mlp.2.weight", inner)?
        }
        ProjectorType::MusicFlamingo => {
            let inner = rest.linear("mm.a.mlp.1", stacked)?;
            rest.linear("mm.a.mlp.2", inner)?
        }
        ProjectorType::Meralion => {
            rest.full_norm("mm.a.norm_pre", stacked)?;
            let row = rest.linear("mm.a.mlp.0", stacked)?;
            let inner = rest.linear("mm.a.mlp.1", row)?;
            rest.required("mm.a.mlp.2.weight", Types::Matrix, &[row, inner])?;
            rest.vector("mm.a.mlp.2.bias", inner)?;
            rest.linear("mm.a.mlp.3", inner)?
        }
        ProjectorType::GlmAsr => {
            rest.full_norm("mm.a.norm_pre", width)?;
            let inner = rest.linear("mm.a.mlp.1", stacked)?;
            let embedding = rest.linear("mm.a.mlp.2", inner)?;
            rest.vector("v.boi", embedding)?;
            rest.vector("v.eoi", embedding)?;
            embedding
        }
        ProjectorType::Qwen2Audio => rest.linear("mm.a.fc", width)?,
        _ => unreachable!("the type is one of sound"),
    };
    Ok((SoundWindows { mel_bins, tokens }, embedding))
}

/// How many embeddings of the encoder are one row of the projection, and the rows of a window.
fn windows(kind: ProjectorType, keys: &Keys, width: u64) -> Result<(u64, u32)> {
    const KEY: &str = "clip.audio.projector.stack_factor";
    // Pairs of embeddings are averaged.
    let is_halved = matches!(
        kind,
        ProjectorType::Qwen2Audio | ProjectorType::Voxtral | ProjectorType::MusicFlamingo
    );
    let halved = |number: u64| if is_halved { number / 2 } else { number };
    let positions = halved(POSITIONS);
    if matches!(kind, ProjectorType::Qwen2Audio | ProjectorType::MusicFlamingo) {
        return Ok((1, positions as u32));
    }
    let stack = u64::from(keys.number(KEY, 1..=positions as u32)?);
    let (counted, around) = match kind {
        // With one embedding before them and one after them.
        ProjectorType::GlmAsr => (positions / stack, 2),
        _ => (halved(FRAMES.div_ceil(stack) / 2), 0),
    };
    let computed = match stack {
        1 => positions,
        // `GGML_PAD` rounds to a multiple only if that is a power of two.
        stack => {
            let row = stack * width;
            ((positions * width + row - 1) & !(row - 1)) / row
        }
    };
    if counted != computed || counted == 0 {
        return Err(refused(format!(
            "{KEY} {stack} cannot be computed: of 30 seconds of sound, llama.cpp expects \
             {counted} embeddings and computes {computed}"
        )));
    }
    Ok((stack, counted as u32 + around))
}

/// The graph asserts that norms, queries and values have biases, and that keys have none.
fn check_layer(rest: &mut Unchecked, layer: u32, width: u64) -> Result<()> {
    let name = |tensor: &str| format!("a.blk.{layer}.{tensor}");
    for norm in ["ln1", "ln2"] {
        rest.full_norm(&name(norm), width)?;
    }
    for matrix in ["attn_q", "attn_k", "attn_v", "attn_out"] {
        rest.required(&name(&format!("{matrix}.weight")), Types::Matrix, &[width, width])?;
    }
    for required in ["attn_q.bias", "attn_v.bias"] {
        rest.vector(&name(required), width)?;
    }
    rest.optional_vector(&name("attn_out.bias"), width)?;
    let inner = rest.matrix(&name("ffn_up.weight"), width)?;
    rest.required(&name("ffn_down.weight"), Types::Matrix, &[inner, width])?;
    rest.optional_vector(&name("ffn_up.bias"), inner)?;
    rest.optional_vector(&name("ffn_down.bias"), width)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sound_has_a_window_for_each_30_seconds() {
        let windows = SoundWindows { mel_bins: 80, tokens: 750 };
        // 30 seconds of 16,000 samples, less one hop.
        const FULL: usize = 479_840;
        for (samples, expected) in [
            (1, 1),
            (16_000, 1),
            (FULL - 1, 1),
            (FULL, 2),
            (2 * 480_000 - 161, 2),
            (2 * 480_000 - 160, 3),
            (600 * 16_000, 21),
        ] {
            assert_eq!(windows.count(samples), expected, "{samples}");
        }
    }
}
