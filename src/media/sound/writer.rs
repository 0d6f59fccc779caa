//! Collects the samples of a file: the mean of its channels, at one rate, up to a limit.

use super::resampler::Resampler;
use crate::api::MediaLimits;
use crate::media::OverCheck;

/// The rates of files that are supported.
const MIN_RATE: u32 = 1_000;
const MAX_RATE: u32 = 192_000;

/// Takes the blocks of a file, and keeps the samples of one channel.
pub(super) struct SoundWriter<'a> {
    limits: &'a MediaLimits,
    /// The rate of the samples that are kept.
    rate: u32,
    is_over: OverCheck<'a>,
    /// Known with the first block.
    resampler: Option<(u32, Resampler)>,
    /// The mean of the channels of a block.
    mean: Vec<f32>,
    /// The number of samples of all channels until now.
    taken: u64,
    samples: Vec<f32>,
}

impl<'a> SoundWriter<'a> {
    pub(super) fn new(
        rate: u32,
        limits: &'a MediaLimits,
        is_over: OverCheck<'a>,
    ) -> SoundWriter<'a> {
        let (mean, samples) = (Vec::new(), Vec::new());
        SoundWriter { limits, rate, is_over, resampler: None, mean, taken: 0, samples }
    }

    /// Takes samples of several channels in turn, unless the call is over. `from` is their rate.
    pub(super) fn write(
        &mut self,
        block: &[f32],
        channels: usize,
        from: u32,
    ) -> Result<(), String> {
        if (self.is_over)() {
            return Err("the call is over".to_owned());
        }
        if channels == 0 {
            return Err("a sound without channels".to_owned());
        }
        if !(MIN_RATE..=MAX_RATE).contains(&from) {
            return Err(format!(
                "a sound of {from} samples a second; from {MIN_RATE} to {MAX_RATE} are supported"
            ));
        }
        let (known, resampler) =
            self.resampler.get_or_insert_with(|| (from, Resampler::new(from, self.rate)));
        if *known != from {
            return Err("a sound whose rate changes".to_owned());
        }
        self.taken += block.len() as u64;
        let most = self.limits.seconds * u64::from(MAX_RATE);
        if self.taken > most {
            return Err(format!(
                "a sound of more than {most} samples in all channels; convert it to fewer channels \
                 or a lower rate, or raise media_limits.seconds"
            ));
        }
        let part = 1.0 / channels as f32;
        self.mean.clear();
        self.mean.extend(block.chunks_exact(channels).map(|frame| {
            let mean = frame.iter().sum::<f32>() * part;
            if mean.is_finite() { mean.clamp(-1.0, 1.0) } else { 0.0 }
        }));
        resampler.resample(&self.mean, &mut self.samples);
        check_length(self.samples.len(), self.rate, self.limits)
    }

    /// The samples of the whole file.
    pub(super) fn finish(mut self) -> Result<Vec<f32>, String> {
        if let Some((_, resampler)) = self.resampler {
            resampler.finish(&mut self.samples);
        }
        if self.samples.is_empty() {
            return Err("a sound without samples".to_owned());
        }
        check_length(self.samples.len(), self.rate, self.limits)?;
        Ok(self.samples)
    }
}

/// The most samples of this rate that one sample of a file becomes.
pub(super) fn most_for_one(rate: u32) -> u64 {
    u64::from(rate.div_ceil(MIN_RATE))
}

/// Checks that so many samples are within the limit.
pub(super) fn check_length(samples: usize, rate: u32, limits: &MediaLimits) -> Result<(), String> {
    let most = limits.seconds;
    if samples as u64 <= most * u64::from(rate) {
        return Ok(());
    }
    Err(format!("a sound of more than {most} seconds; shorten it, or raise media_limits.seconds"))
}
