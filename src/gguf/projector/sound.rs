//! Encoders of sound: that of Whisper, which takes spectra of 30 seconds, and its projections; that of
//! Qwen3-ASR, which takes up to 8 seconds; and those of Gemma 4: one (`conformer`) takes up to 30
//! seconds, and the other one is a matrix, which takes samples.
//!
//! Source: `load_hparams`, `load_tensors`, `clip_n_output_tokens` and `build_stack` in
//! tools/mtmd/clip.cpp, the graphs in models/whisper-enc.cpp and qwen3a.cpp and gemma4ua.cpp, and
//! mtmd_audio_preprocessor_whisper, _qwen3a, _gemma4a and _gemma4ua in mtmd-audio.cpp.

use super::conformer::{FRAMES_OF_TOKEN, check_conformer};
use super::keys::{EncoderSizes, Keys};
use super::kind::{ProjectorType, refused};
use super::tensors::{Types, Unchecked, check, length, missing};
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
/// The samples of 30 seconds. So many of silence are added to a sound for Whisper.
const SPAN: usize = 30 * SAMPLE_RATE as usize;
/// The samples of an embedding where a matrix takes samples.
const FRAME: usize = 640;
/// The most frequencies of a spectrum, in llama.cpp.
const MAX_MEL_BINS: u32 = 256;

/// The spectra of a second for Qwen3-ASR, the embeddings of these, and the seconds of a window.
const SECOND: usize = 100;
const SECOND_TOKENS: u32 = 13;
const WINDOW_SECONDS: usize = 8;
/// The sides of its convolutions, which halve the spectra and the frequencies.
const KERNEL: u64 = 3;

/// The windows that an encoder takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SoundWindows {
    /// The frequencies of a spectrum. llama.cpp computes none where a matrix takes samples.
    mel_bins: u32,
    form: WindowForm,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WindowForm {
    /// 30 seconds, with this number of embeddings.
    Whole { tokens: u32 },
    /// Up to 8 seconds, of which the last one is filled up.
    Seconds,
    /// Up to 30 seconds, with an embedding for each four spectra.
    Spans,
    /// The whole sound, with an embedding for each 640 samples.
    Samples,
}

impl SoundWindows {
    /// The samples of a second.
    pub fn sample_rate(&self) -> u32 {
        SAMPLE_RATE
    }

    /// The number of embeddings of a full window, or of 30 seconds.
    pub fn tokens(&self) -> u32 {
        match self.form {
            WindowForm::Whole { tokens } => tokens,
            WindowForm::Seconds => WINDOW_SECONDS as u32 * SECOND_TOKENS,
            WindowForm::Spans => span_tokens(SPAN),
            WindowForm::Samples => (SPAN / FRAME) as u32,
        }
    }

    /// The numbers in the spectra of a sound with this many samples, of full windows.
    pub fn spectra_len(&self, samples: usize) -> u64 {
        let frames = match self.form {
            WindowForm::Whole { .. } | WindowForm::Spans => FRAMES,
            WindowForm::Seconds => (WINDOW_SECONDS * SECOND) as u64,
            WindowForm::Samples => return samples.next_multiple_of(FRAME) as u64,
        };
        frames * u64::from(self.mel_bins) * self.of_sound(samples).count() as u64
    }

    /// How many samples a sound with so many must have: for Gemma 4 llama.cpp computes no spectrum of a
    /// last window with one sample, and refuses the whole sound.
    pub fn filled(&self, samples: usize) -> usize {
        samples + usize::from(self.form == WindowForm::Spans && samples % SPAN == 1)
    }

    /// The numbers of embeddings of the windows of a sound with this many samples. To windows of 30
    /// seconds llama.cpp adds 30 seconds of silence, and leaves out one that is not full then.
    pub fn of_sound(&self, samples: usize) -> impl Iterator<Item = u32> + use<> {
        let (full, tokens) = match self.form {
            WindowForm::Whole { .. } => {
                let frames = (samples.max(MIN_SAMPLES) + SPAN) / HOP + 1;
                (frames / FRAMES as usize, None)
            }
            WindowForm::Seconds => {
                let seconds = (samples / HOP + 1).div_ceil(SECOND);
                let rest = (seconds % WINDOW_SECONDS) as u32 * SECOND_TOKENS;
                (seconds / WINDOW_SECONDS, Some(rest).filter(|rest| *rest > 0))
            }
            WindowForm::Spans => {
                let rest = samples % SPAN;
                (samples / SPAN, (rest > 0).then(|| span_tokens(rest)))
            }
            WindowForm::Samples => (0, Some(samples.div_ceil(FRAME) as u32)),
        };
        std::iter::repeat_n(self.tokens(), full).chain(tokens)
    }
}

/// The embeddings of a window with so many samples: a spectrum for each hop before the last sample,
/// and at least one.
fn span_tokens(samples: usize) -> u32 {
    let frames = ((samples - 1) / HOP).max(1);
    frames.div_ceil(FRAMES_OF_TOKEN) as u32
}

/// Checks an encoder of sound. Returns its windows, and the length of the embeddings that the
/// projector computes.
pub(super) fn check_encoder(
    kind: ProjectorType,
    keys: &Keys,
    rest: &mut Unchecked,
) -> Result<(SoundWindows, u64)> {
    let sizes = keys.check_encoder(kind)?;
    let EncoderSizes { width, layers, .. } = sizes;
    let width = u64::from(width);
    if kind == ProjectorType::Gemma4UnifiedAudio {
        // llama.cpp reads it, and takes another number.
        let mel_bins = keys.number("clip.audio.num_mel_bins", 0..=i32::MAX as u32)?;
        let embedding = rest.matrix("mm.a.input_projection.weight", FRAME as u64)?;
        return Ok((SoundWindows { mel_bins, form: WindowForm::Samples }, embedding));
    }
    let mel_bins = keys.number("clip.audio.num_mel_bins", 1..=MAX_MEL_BINS)?;
    if kind == ProjectorType::Qwen3Audio {
        let embedding = check_qwen3(rest, mel_bins.into(), width, layers)?;
        return Ok((SoundWindows { mel_bins, form: WindowForm::Seconds }, embedding));
    }
    if kind == ProjectorType::Gemma4Audio {
        let embedding = check_conformer(rest, &sizes, mel_bins.into())?;
        return Ok((SoundWindows { mel_bins, form: WindowForm::Spans }, embedding));
    }
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
    Ok((SoundWindows { mel_bins, form: WindowForm::Whole { tokens } }, embedding))
}

/// Checks the encoder of Qwen3-ASR. Returns the length of the embeddings that it computes.
fn check_qwen3(rest: &mut Unchecked, mel_bins: u64, width: u64, layers: u32) -> Result<u64> {
    let (mut channels, mut frequencies) = (1, mel_bins);
    for number in 1..=3 {
        let made = rest.convolution(&format!("a.conv2d.{number}.weight"), KERNEL, channels)?;
        rest.channels(&format!("a.conv2d.{number}.bias"), made)?;
        (channels, frequencies) = (made, frequencies.div_ceil(2));
    }
    let conv_out = "a.conv_out.weight";
    rest.required(conv_out, Types::Matrix, &[frequencies * channels, width])?;
    // The graph adds the first ones to each second.
    let positions = rest.take("a.position_embd.weight", Types::F32)?;
    let rows = length(positions, 1)?;
    check(positions, Types::F32, &[width, rows.max(SECOND_TOKENS.into())])?;
    rest.norm("a.pre_ln", width, false)?;
    rest.norm("a.post_ln", width, false)?;
    for layer in 0..layers {
        check_layer_of(rest, layer, width, false)?;
    }
    let inner = rest.linear("mm.a.mlp.1", width)?;
    rest.linear("mm.a.mlp.2", inner)
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
    check_layer_of(rest, layer, width, true)
}

/// Checks a layer, either of Whisper or of one whose matrices and norms may all have biases.
fn check_layer_of(rest: &mut Unchecked, layer: u32, width: u64, is_whisper: bool) -> Result<()> {
    let name = |tensor: &str| format!("a.blk.{layer}.{tensor}");
    for norm in ["ln1", "ln2"] {
        match is_whisper {
            true => rest.full_norm(&name(norm), width)?,
            false => rest.norm(&name(norm), width, true)?,
        }
    }
    for matrix in ["attn_q", "attn_k", "attn_v", "attn_out"] {
        rest.required(&name(&format!("{matrix}.weight")), Types::Matrix, &[width, width])?;
    }
    for bias in ["attn_q.bias", "attn_v.bias"] {
        if !rest.optional_vector(&name(bias), width)? && is_whisper {
            return Err(missing(&name(bias)));
        }
    }
    if !is_whisper {
        rest.optional_vector(&name("attn_k.bias"), width)?;
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
    fn a_sound_has_13_embeddings_for_each_second() {
        let windows = SoundWindows { mel_bins: 128, form: WindowForm::Seconds };
        for (samples, expected) in [
            (2, vec![13]),
            // 100 spectra, and 101.
            (15_999, vec![13]),
            (16_000, vec![26]),
            // 800 spectra, and 801.
            (127_999, vec![104]),
            (128_000, vec![104, 13]),
            (30 * 16_000, vec![104, 104, 104, 91]),
        ] {
            assert_eq!(windows.of_sound(samples).collect::<Vec<_>>(), expected, "{samples}");
        }
    }

    #[test]
    fn a_sound_has_an_embedding_for_each_four_spectra() {
        let windows = SoundWindows { mel_bins: 128, form: WindowForm::Spans };
        assert_eq!(windows.tokens(), 750);
        const FULL: usize = 480_000;
        for (samples, expected) in [
            (2, vec![1]),
            (1_600, vec![3]),
            // Four spectra, and five.
            (800, vec![1]),
            (801, vec![2]),
            (16_000, vec![25]),
            (FULL - 1, vec![750]),
            (FULL, vec![750]),
            (FULL + 1, vec![750, 1]),
            (FULL + 801, vec![750, 2]),
            (3 * FULL, vec![750; 3]),
        ] {
            assert_eq!(windows.of_sound(samples).collect::<Vec<_>>(), expected, "{samples}");
        }
        assert_eq!([1, 2, FULL, FULL + 1].map(|it| windows.filled(it)), [2, 2, FULL, FULL + 2]);
    }

    #[test]
    fn a_sound_has_an_embedding_for_each_640_samples() {
        let windows = SoundWindows { mel_bins: 128, form: WindowForm::Samples };
        assert_eq!(windows.tokens(), 750);
        for (samples, expected) in
            [(2, 1), (640, 1), (641, 2), (480_000, 750), (480_001, 751), (9_600_000, 15_000)]
        {
            assert_eq!(windows.of_sound(samples).collect::<Vec<_>>(), [expected], "{samples}");
            assert_eq!(windows.spectra_len(samples), u64::from(expected) * 640);
            assert_eq!(windows.filled(samples), samples);
        }
    }

    #[test]
    fn a_sound_has_a_window_for_each_30_seconds() {
        let windows = SoundWindows { mel_bins: 80, form: WindowForm::Whole { tokens: 750 } };
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
            let found: Vec<u32> = windows.of_sound(samples).collect();
            assert_eq!(found, vec![750; expected], "{samples}");
        }
    }
}
