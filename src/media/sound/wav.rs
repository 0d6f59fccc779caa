//! WAV files: chunks of RIFF, one with the format of the samples, one with the samples.
//!
//! Source: Multimedia Programming Interface and Data Specifications 1.0 (IBM and Microsoft), and
//! `WAVEFORMATEXTENSIBLE` in mmreg.h.

use super::writer::SoundWriter;

/// `RIFF`, a length, `WAVE`.
const HEADER: usize = 12;
/// The formats of samples.
const PCM: u16 = 1;
const FLOAT: u16 = 3;
/// The format is that of a field further on.
const EXTENSIBLE: u16 = 0xfffe;
/// The lengths of programs that do not know the length when they begin to write.
const UNKNOWN_LENGTHS: [u32; 2] = [0, u32::MAX];
/// The samples of a block.
const BLOCK: usize = 1 << 14;

/// The content of the chunk `fmt `.
struct SampleFormat {
    tag: u16,
    channels: usize,
    rate: u32,
    /// Of a sample.
    bytes: usize,
}

impl SampleFormat {
    fn read(chunk: &[u8]) -> Result<SampleFormat, String> {
        let number = |at: usize| {
            let bytes = chunk.get(at..at + 2).ok_or("a damaged sound: its format is cut off")?;
            Ok::<u16, String>(u16::from_le_bytes([bytes[0], bytes[1]]))
        };
        let mut tag = number(0)?;
        let rate = u32::from(number(4)?) | u32::from(number(6)?) << 16;
        let (channels, align, bits) = (number(2)?, number(12)?, number(14)?);
        if tag == EXTENSIBLE {
            tag = number(24)?;
        }
        let is_known = match tag {
            PCM => matches!(bits, 8 | 16 | 24 | 32),
            FLOAT => matches!(bits, 32 | 64),
            _ => false,
        };
        if !is_known {
            return Err(format!(
                "a WAV file with samples of format {tag} and {bits} bits; PCM of 8, 16, 24 and \
                 32 bits, and floats of 32 and 64 bits are supported"
            ));
        }
        let bytes = usize::from(bits / 8);
        let channels = usize::from(channels);
        if channels == 0 || usize::from(align) != channels * bytes {
            return Err(format!(
                "a damaged sound: {channels} channels of {bits} bits in {align} bytes"
            ));
        }
        Ok(SampleFormat { tag, channels, rate, bytes })
    }

    /// The number that these bytes stand for.
    fn sample(&self, bytes: &[u8]) -> f32 {
        match (self.tag, bytes) {
            (PCM, [byte]) => (f32::from(*byte) - 128.0) / 128.0,
            (PCM, [a, b]) => f32::from(i16::from_le_bytes([*a, *b])) / 32_768.0,
            (PCM, [a, b, c]) => i32::from_le_bytes([0, *a, *b, *c]) as f32 / 2_147_483_648.0,
            (PCM, [a, b, c, d]) => i32::from_le_bytes([*a, *b, *c, *d]) as f32 / 2_147_483_648.0,
            (_, [a, b, c, d]) => f32::from_le_bytes([*a, *b, *c, *d]),
            (_, bytes) => {
                let eight = bytes.try_into().expect("floats have 32 or 64 bits");
                f64::from_le_bytes(eight) as f32
            }
        }
    }
}

/// Reads a file. Chunks other than the two are left out.
pub(super) fn read(file: &[u8], writer: &mut SoundWriter) -> Result<(), String> {
    let mut rest = file.get(HEADER..).unwrap_or_default();
    let mut format = None;
    loop {
        let Some((head, content)) = rest.split_at_checked(8) else {
            return Err("a damaged sound: it has no samples".to_owned());
        };
        let length = u32::from_le_bytes([head[4], head[5], head[6], head[7]]);
        match &head[..4] {
            b"fmt " => {
                let chunk = content.get(..length as usize);
                format = Some(SampleFormat::read(chunk.unwrap_or(content))?);
            }
            b"data" => {
                let Some(format) = format else {
                    return Err("a damaged sound: it has samples before their format".to_owned());
                };
                return read_samples(&format, length, content, writer);
            }
            _ => (),
        }
        // Chunks begin at even places.
        let next = length as usize + (length % 2) as usize;
        rest = content.get(next..).unwrap_or_default();
    }
}

fn read_samples(
    format: &SampleFormat,
    length: u32,
    content: &[u8],
    writer: &mut SoundWriter,
) -> Result<(), String> {
    let data = match content.get(..length as usize) {
        Some(_) if length == 0 => content,
        Some(data) => data,
        None if UNKNOWN_LENGTHS.contains(&length) => content,
        None => {
            return Err(format!(
                "a damaged sound: it has {} of {length} bytes of samples",
                content.len()
            ));
        }
    };
    let frame = format.channels * format.bytes;
    let mut samples = Vec::new();
    for block in data.chunks(BLOCK.next_multiple_of(frame)) {
        samples.clear();
        let whole = block.len() / frame * frame;
        samples.extend(block[..whole].chunks_exact(format.bytes).map(|it| format.sample(it)));
        writer.write(&samples, format.channels, format.rate)?;
    }
    Ok(())
}
