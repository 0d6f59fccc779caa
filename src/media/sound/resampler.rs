//! Changes the rate of samples, by a low-pass filter at each place of the new samples.
//!
//! The filter is a sinc function in a Hann window, cut off at half of the lower rate. Its values at
//! the fractions of a sample that occur are computed once: with `from` and `to` in lowest terms there
//! are `to` of them.

use std::f64::consts::PI;

/// The zero crossings of the sinc function on either side. More make the filter steeper.
const CROSSINGS: f64 = 16.0;
/// The part of the lower rate's band that passes.
const PASS_BAND: f64 = 0.95;
/// Samples that were used are removed when there are so many.
const MAX_USED: usize = 1 << 16;

/// Resamples blocks of one sound.
pub(super) struct Resampler {
    from: usize,
    to: usize,
    /// The weights of the samples around a place, for each fraction: `2 * half` of them.
    weights: Vec<f32>,
    half: usize,
    /// The samples that are still needed. The first `half - 1` are before the sound.
    buffer: Vec<f32>,
    /// The place of the next new sample: an index into `buffer` of the sample at or before it, less
    /// `half - 1`, and the fraction.
    at: usize,
    fraction: usize,
    taken: u64,
    written: u64,
}

impl Resampler {
    /// Both rates are at least 1.
    pub(super) fn new(from: u32, to: u32) -> Resampler {
        let divisor = greatest_common_divisor(from, to);
        let (from, to) = ((from / divisor) as usize, (to / divisor) as usize);
        let scale = (to as f64 / from as f64).min(1.0);
        let half = (CROSSINGS / scale).ceil() as usize;
        let mut weights = Vec::new();
        if from != to {
            weights.reserve_exact(to * half * 2);
            for fraction in 0..to {
                let first = weights.len();
                let place = (half - 1) as f64 + fraction as f64 / to as f64;
                weights.extend((0..2 * half).map(|index| {
                    weight(index as f64 - place, half as f64, scale * PASS_BAND) as f32
                }));
                // A constant stays as it is.
                let sum: f32 = weights[first..].iter().sum();
                weights[first..].iter_mut().for_each(|weight| *weight /= sum);
            }
        }
        let buffer = vec![0.0; half - 1];
        Resampler { from, to, weights, half, buffer, at: 0, fraction: 0, taken: 0, written: 0 }
    }

    /// Appends the new samples that can be computed with this block.
    pub(super) fn resample(&mut self, block: &[f32], out: &mut Vec<f32>) {
        if self.from == self.to {
            return out.extend(block);
        }
        self.taken += block.len() as u64;
        self.buffer.extend(block);
        self.write(u64::MAX, out);
    }

    /// Appends the last new samples: as many in all as fit into the time of the sound, rounded up.
    pub(super) fn finish(mut self, out: &mut Vec<f32>) {
        if self.from == self.to {
            return;
        }
        self.buffer.resize(self.buffer.len() + self.half, 0.0);
        let all = (self.taken * self.to as u64).div_ceil(self.from as u64);
        self.write(all, out);
    }

    /// Writes new samples until there are `most`, or none can be computed.
    fn write(&mut self, most: u64, out: &mut Vec<f32>) {
        let taps = 2 * self.half;
        while self.written < most
            && let Some(samples) = self.buffer.get(self.at..self.at + taps)
        {
            let weights = &self.weights[self.fraction * taps..][..taps];
            out.push(samples.iter().zip(weights).map(|(sample, weight)| sample * weight).sum());
            self.written += 1;
            let next = self.fraction + self.from;
            self.at += next / self.to;
            self.fraction = next % self.to;
        }
        if self.at > MAX_USED {
            let used = self.at.min(self.buffer.len());
            self.buffer.drain(..used);
            self.at -= used;
        }
    }
}

/// The filter at a distance in samples, where `cutoff` is a part of the band.
fn weight(distance: f64, half: f64, cutoff: f64) -> f64 {
    if distance.abs() >= half {
        return 0.0;
    }
    let angle = PI * distance * cutoff;
    let sinc = if angle == 0.0 { 1.0 } else { angle.sin() / angle };
    sinc * (0.5 + 0.5 * (PI * distance / half).cos())
}

fn greatest_common_divisor(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resampled(from: u32, to: u32, samples: &[f32], block: usize) -> Vec<f32> {
        let (mut resampler, mut out) = (Resampler::new(from, to), Vec::new());
        samples.chunks(block).for_each(|block| resampler.resample(block, &mut out));
        resampler.finish(&mut out);
        out
    }

    /// A tone of so many oscillations a second, of one second.
    fn tone(frequency: f64, rate: u32) -> Vec<f32> {
        let angle = |at: u32| 2.0 * PI * frequency * f64::from(at) / f64::from(rate);
        (0..rate).map(|at| angle(at).sin() as f32).collect()
    }

    fn loudness(samples: &[f32]) -> f32 {
        let sum: f32 = samples.iter().map(|sample| sample * sample).sum();
        (sum / samples.len() as f32).sqrt()
    }

    #[test]
    fn a_tone_stays_and_what_the_lower_rate_cannot_hold_goes() {
        for from in [8_000, 11_025, 22_050, 44_100, 48_000, 96_000, 192_000, 15_999] {
            let out = resampled(from, 16_000, &tone(440.0, from), 4096);
            assert_eq!(out.len(), 16_000, "{from}");
            let expected = tone(440.0, 16_000);
            // The edges have silence on one side.
            for at in 100..15_900 {
                assert!((out[at] - expected[at]).abs() < 2e-3, "{from} {at}");
            }
            if from > 32_000 {
                let high = resampled(from, 16_000, &tone(11_000.0, from), 4096);
                assert!(loudness(&high[100..15_900]) < 1e-3, "{from}");
            }
        }
    }

    #[test]
    fn blocks_do_not_matter() {
        let samples = tone(1000.0, 44_100);
        let whole = resampled(44_100, 16_000, &samples, samples.len());
        for block in [1, 7, 1152, 30_000] {
            assert_eq!(resampled(44_100, 16_000, &samples, block), whole, "{block}");
        }
        assert_eq!(resampled(16_000, 16_000, &samples, 1000), samples);
    }

    #[test]
    fn the_time_is_rounded_up() {
        for (from, samples, expected) in
            [(44_100, 1, 1), (44_100, 441, 160), (44_100, 442, 161), (8_000, 3, 6), (1_000, 1, 16)]
        {
            let out = resampled(from, 16_000, &vec![0.5; samples], 4096);
            assert_eq!(out.len(), expected, "{from} {samples}");
        }
        assert_eq!(resampled(44_100, 16_000, &[], 1), [0.0; 0]);
    }
}
