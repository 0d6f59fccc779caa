//! A sound of any supported file as samples of one channel.
//!
//! In: the bytes of a file. Out: the mean of its channels, at the rate that an encoder takes. Files
//! are read in blocks, so a file that claims or expands to more than the limit takes no memory for
//! it.

mod frames;
mod resampler;
mod tags;
mod wav;
mod writer;

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::{OverCheck, too_long};
use crate::api::MediaLimits;
use crate::panic::Quiet;
use writer::SoundWriter;

/// llama.cpp asserts that a sound has more than one sample.
const MIN_SAMPLES: usize = 2;

/// What decoding takes for each sample: the samples twice while their list grows, a copy of them, and
/// the spectrum.
const BYTES_OF_SAMPLE: u64 = 20;

/// A sound of one channel.
#[derive(Debug, Clone, PartialEq)]
pub struct Sound(Vec<f32>);

/// The formats that are decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SoundFormat {
    Wav,
    Flac,
    Mp3,
}

impl SoundFormat {
    /// The format of a file by its content.
    fn of(file: &[u8]) -> Option<SoundFormat> {
        let audio = tags::without_id3(file);
        match audio {
            [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'A', b'V', b'E', ..] => {
                Some(SoundFormat::Wav)
            }
            [b'f', b'L', b'a', b'C', ..] => Some(SoundFormat::Flac),
            // The first 11 bits are set. Then follow a version other than 1, and layer 3.
            [0xff, second, ..] if second & 0xe6 == 0xe2 && second & 0x18 != 0x08 => {
                Some(SoundFormat::Mp3)
            }
            _ => None,
        }
    }
}

impl Sound {
    /// A sound of these samples, which are from -1 to 1.
    pub fn new(mut samples: Vec<f32>) -> Sound {
        samples.resize(samples.len().max(MIN_SAMPLES), 0.0);
        Sound(samples)
    }

    /// The sound with silence after it, if it has fewer samples than these.
    pub fn filled(mut self, samples: usize) -> Sound {
        self.0.resize(self.0.len().max(samples), 0.0);
        self
    }

    /// The samples.
    pub fn samples(&self) -> &[f32] {
        &self.0
    }

    /// Decodes a file. `rate` is the number of samples of a second.
    ///
    /// # Errors
    /// A message, if the file is beyond a limit, is no sound, or is damaged, or if the call is over
    /// before it is decoded.
    pub fn decode(
        file: &[u8],
        rate: u32,
        limits: &MediaLimits,
        is_over: OverCheck,
    ) -> Result<Sound, String> {
        let format = format_within(file, limits)?;
        let decode = || {
            let mut writer = SoundWriter::new(rate, limits, is_over);
            let audio = tags::without_id3(file);
            match format {
                SoundFormat::Wav => wav::read(audio, &mut writer)?,
                SoundFormat::Flac => frames::read_flac(audio, &mut writer, is_over)?,
                SoundFormat::Mp3 => frames::read_mp3(audio, &mut writer, is_over)?,
            }
            let samples = writer.finish()?;
            Ok(Sound::new(samples))
        };
        let _quiet = Quiet::enter();
        catch_unwind(AssertUnwindSafe(decode)).unwrap_or_else(|_| Err("a damaged sound".to_owned()))
    }

    /// The most bytes that it takes to decode a file and to prepare its sound.
    pub fn decoding_bytes(file: &[u8], rate: u32, limits: &MediaLimits) -> u64 {
        let longest = limits.seconds.saturating_mul(rate.into());
        let samples = match SoundFormat::of(file) {
            // A byte is at most one sample, of the lowest rate.
            Some(SoundFormat::Wav) => {
                (file.len() as u64).saturating_mul(writer::most_for_one(rate))
            }
            _ => longest,
        };
        samples.min(longest).saturating_mul(BYTES_OF_SAMPLE)
    }

    /// Checks what can be known of a file without decoding it.
    ///
    /// # Errors
    /// As for [`Sound::decode`].
    pub fn check_file(file: &[u8], limits: &MediaLimits) -> Result<(), String> {
        format_within(file, limits).map(|_| ())
    }

    /// Checks that so many samples are within the limit.
    ///
    /// # Errors
    /// A message.
    pub fn check_length(samples: usize, rate: u32, limits: &MediaLimits) -> Result<(), String> {
        writer::check_length(samples, rate, limits)
    }
}

fn format_within(file: &[u8], limits: &MediaLimits) -> Result<SoundFormat, String> {
    if file.len() > limits.bytes {
        return Err(too_long(limits.bytes));
    }
    let format = SoundFormat::of(file);
    format.ok_or_else(|| "not a sound; WAV, MP3 and FLAC are supported".to_owned())
}

#[cfg(test)]
mod tests;
