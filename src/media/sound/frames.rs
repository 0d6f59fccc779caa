//! FLAC and MP3 files, by the readers and decoders of symphonia. They get no tags, whose sizes they
//! would believe.

use std::io::{Cursor, Read};

use symphonia_bundle_flac::{FlacDecoder, FlacReader};
use symphonia_bundle_mp3::{MpaDecoder, MpaReader};
use symphonia_core::codecs::audio::{AudioCodecParameters, AudioDecoder, AudioDecoderOptions};
use symphonia_core::errors::Error;
use symphonia_core::formats::{FormatOptions, FormatReader, Track};
use symphonia_core::io::{MediaSourceStream, ReadOnlySource};

use super::tags;
use super::writer::SoundWriter;
use crate::media::OverCheck;
use crate::media::interruptible::InterruptibleFile;

/// The head of a FLAC file whose only block has the properties of the stream, which are 34 bytes.
const FLAC_HEAD: [u8; 8] = *b"fLaC\x80\0\0\x22";

pub(super) fn read_flac(
    file: &[u8],
    writer: &mut SoundWriter,
    is_over: OverCheck,
) -> Result<(), String> {
    let stream = tags::flac_stream(file);
    let (info, frames) = stream.ok_or("a damaged sound: it has no properties of FLAC")?;
    let frames = InterruptibleFile::new(frames, is_over);
    let source = Cursor::new(FLAC_HEAD).chain(info).chain(frames);
    let mut reader = FlacReader::try_new(stream_of(source), FormatOptions::default())
        .map_err(|error| damaged(&error))?;
    let track = reader.tracks().first();
    let expected = track.and_then(|track| track.num_frames);
    // The properties have a hash of the samples.
    let options = AudioDecoderOptions::default().verify(true);
    let mut decoder =
        FlacDecoder::try_new(parameters(track)?, &options).map_err(|error| damaged(&error))?;
    let frames = decode(&mut reader, &mut decoder, writer)?;
    if expected.is_some_and(|expected| expected != frames) {
        let expected = expected.unwrap_or_default();
        return Err(format!("a damaged sound: it has {frames} of {expected} samples"));
    }
    match decoder.finalize().verify_ok {
        Some(false) => Err("a damaged sound: its samples are not those of its hash".to_owned()),
        _ => Ok(()),
    }
}

pub(super) fn read_mp3(
    file: &[u8],
    writer: &mut SoundWriter,
    is_over: OverCheck,
) -> Result<(), String> {
    let file = InterruptibleFile::new(file, is_over);
    let mut reader = MpaReader::try_new(stream_of(file), FormatOptions::default())
        .map_err(|error| damaged(&error))?;
    let parameters = parameters(reader.tracks().first())?;
    let mut decoder = MpaDecoder::try_new(parameters, &AudioDecoderOptions::default())
        .map_err(|error| damaged(&error))?;
    decode(&mut reader, &mut decoder, writer).map(|_| ())
}

/// A source that cannot be searched: the file is read once.
fn stream_of<'a>(source: impl Read + Send + Sync + 'a) -> MediaSourceStream<'a> {
    MediaSourceStream::new(Box::new(ReadOnlySource::new(source)), Default::default())
}

fn parameters(track: Option<&Track>) -> Result<&AudioCodecParameters, String> {
    let parameters = track.and_then(|track| track.codec_params.as_ref()?.audio());
    parameters.ok_or_else(|| "a damaged sound: it has no format".to_owned())
}

/// Decodes all packets. Returns the number of samples of a channel.
fn decode(
    reader: &mut impl FormatReader,
    decoder: &mut impl AudioDecoder,
    writer: &mut SoundWriter,
) -> Result<u64, String> {
    let (mut samples, mut count) = (Vec::new(), 0);
    while let Some(packet) = reader.next_packet().map_err(|error| damaged(&error))? {
        let block = decoder.decode(&packet).map_err(|error| damaged(&error))?;
        block.copy_to_vec_interleaved::<f32>(&mut samples);
        count += block.frames() as u64;
        writer.write(&samples, block.spec().channels().count(), block.spec().rate())?;
    }
    Ok(count)
}

fn damaged(error: &Error) -> String {
    format!("a damaged sound: {error}")
}
