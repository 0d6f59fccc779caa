#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::atomic::{AtomicUsize, Ordering};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

use super::*;

const RATE: u32 = 16_000;

fn decode(file: &[u8]) -> Result<Sound, String> {
    Sound::decode(file, RATE, &MediaLimits::default(), &|| false)
}

/// scripts/sounds.py writes it.
#[derive(Deserialize)]
struct SoundFiles {
    cases: Vec<SoundFile>,
}

#[derive(Deserialize)]
struct SoundFile {
    name: String,
    rate: u32,
    file: String,
    /// The mean of the channels as libsndfile decodes them, in 16 bits.
    samples: String,
}

impl SoundFile {
    fn file(&self) -> Vec<u8> {
        STANDARD.decode(&self.file).unwrap()
    }

    fn samples(&self) -> Vec<f32> {
        let bytes = STANDARD.decode(&self.samples).unwrap();
        let sample = |two: &[u8]| f32::from(i16::from_le_bytes([two[0], two[1]])) / 32_768.0;
        bytes.chunks_exact(2).map(sample).collect()
    }
}

fn cases() -> Vec<SoundFile> {
    let text = include_str!("../../../tests/data/sounds.json");
    serde_json::from_str::<SoundFiles>(text).unwrap().cases
}

fn case(name: &str) -> Vec<u8> {
    cases().into_iter().find(|case| case.name == name).unwrap().file()
}

#[test]
fn samples_are_those_of_libsndfile() {
    let cases = cases();
    assert!(cases.len() > 12);
    for case in &cases {
        let sound = decode(&case.file()).unwrap_or_else(|error| panic!("{}: {error}", case.name));
        let samples = case.samples();
        let count = (samples.len() as u64 * u64::from(RATE)).div_ceil(case.rate.into()) as usize;
        assert_eq!(sound.samples().len(), count, "{}", case.name);
        if case.rate == RATE {
            let furthest = sound.samples().iter().zip(&samples).map(|(a, b)| (a - b).abs());
            let furthest = furthest.fold(0.0, f32::max);
            // Of 8 bits, and of what 16 bits round.
            let tolerance = if case.name.contains("mp3") { 1e-3 } else { 4e-5 };
            assert!(furthest < tolerance, "{}: {furthest}", case.name);
        }
    }
}

#[test]
fn the_same_sound_at_another_rate_is_the_same() {
    let two = decode(&case("flac of two channels")).unwrap();
    for name in ["wav of two channels at 44.1 kHz", "flac at 48 kHz"] {
        let other = decode(&case(name)).unwrap();
        let pairs = other.samples().iter().zip(two.samples());
        // The edges have silence on one side.
        let furthest = pairs.skip(100).take(1400).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(furthest < 5e-3, "{name}: {furthest}");
    }
}

/// A WAV file with these fields and this data.
fn wav(tag: u16, channels: u16, rate: u32, bits: u16, data: &[u8]) -> Vec<u8> {
    let align = channels.wrapping_mul(bits / 8);
    let mut file = b"RIFF\0\0\0\0WAVEfmt \x10\0\0\0".to_vec();
    file.extend(tag.to_le_bytes());
    file.extend(channels.to_le_bytes());
    file.extend(rate.to_le_bytes());
    file.extend((rate.wrapping_mul(align.into())).to_le_bytes());
    file.extend(align.to_le_bytes());
    file.extend(bits.to_le_bytes());
    file.extend(b"data");
    file.extend((data.len() as u32).to_le_bytes());
    file.extend(data);
    file
}

#[test]
fn channels_are_averaged() {
    let frames: Vec<u8> = [[16_384_i16, 0, -8_192], [0, 0, 24_576]]
        .as_flattened()
        .iter()
        .flat_map(|it| it.to_le_bytes())
        .collect();
    let sound = decode(&wav(1, 3, RATE, 16, &frames)).unwrap();
    let expected = [(0.5 - 0.25) / 3.0, 0.25];
    assert!(sound.samples().iter().zip(expected).all(|(a, b): (&f32, f32)| (a - b).abs() < 1e-6));
    // What is no number is silence.
    let frames: Vec<u8> =
        [f32::NAN, f32::INFINITY, 7.0, -7.0].iter().flat_map(|it| it.to_le_bytes()).collect();
    assert_eq!(decode(&wav(3, 1, RATE, 32, &frames)).unwrap().samples(), [0.0, 0.0, 1.0, -1.0]);
}

#[test]
fn a_short_sound_is_filled_up() {
    assert_eq!(decode(&wav(1, 1, RATE, 16, &[0, 64])).unwrap().samples(), [0.5, 0.0]);
}

#[track_caller]
fn check_refused(file: &[u8], expected: &str) {
    assert_eq!(decode(file).err().as_deref(), Some(expected));
}

#[test]
fn damaged_files_are_refused() {
    let not_a_sound = "not a sound; WAV, MP3 and FLAC are supported";
    for file in [
        &b""[..],
        b"hello",
        b"RIFF\0\0\0\0WEBP",
        b"\xff\xd8\xff\xe0",
        b"ID3\x04\0\0\0\0\0\x01",
        b"ID3",
    ] {
        check_refused(file, not_a_sound);
    }
    check_refused(b"RIFF\0\0\0\0WAVE", "a damaged sound: it has no samples");
    check_refused(&wav(1, 1, RATE, 16, &[]), "a sound without samples");
    check_refused(
        &wav(1, 0, RATE, 16, &[0; 8]),
        "a damaged sound: 0 channels of 16 bits in 0 bytes",
    );
    check_refused(
        &wav(2, 1, RATE, 4, &[0; 8]),
        "a WAV file with samples of format 2 and 4 bits; PCM of 8, 16, 24 and 32 bits, and \
         floats of 32 and 64 bits are supported",
    );
    check_refused(
        &wav(1, 1, 999, 16, &[0; 8]),
        "a sound of 999 samples a second; from 1000 to 192000 are supported",
    );
    let whole = wav(1, 1, RATE, 16, &[0; 100]);
    check_refused(&whole[..whole.len() - 1], "a damaged sound: it has 99 of 100 bytes of samples");
    let mut early = whole.clone();
    early[12..16].copy_from_slice(b"junk");
    check_refused(&early, "a damaged sound: it has samples before their format");
    let flac = case("flac");
    check_refused(&flac[..20], "a damaged sound: it has no properties of FLAC");
    for name in ["flac", "flac of two channels", "flac at 48 kHz"] {
        let file = case(name);
        let error = decode(&file[..file.len() * 2 / 3]).unwrap_err();
        assert!(error.starts_with("a damaged sound"), "{name}: {error}");
    }
}

#[test]
fn streamed_wav_files_have_no_length() {
    let whole = wav(1, 1, RATE, 16, &[0, 64].repeat(50));
    let at = whole.len() - 100 - 4;
    for length in [0, u32::MAX] {
        let mut streamed = whole.clone();
        streamed[at..at + 4].copy_from_slice(&length.to_le_bytes());
        assert_eq!(decode(&streamed), decode(&whole), "{length}");
    }
}

#[test]
fn tags_are_left_out() {
    // Of 300 bytes, and one that claims to be longer than the file.
    let tag = [&b"ID3\x04\0\0\0\0\x02\x2c"[..], &[7; 300]].concat();
    for name in ["mp3", "flac", "wav PCM_16"] {
        let file = case(name);
        assert_eq!(decode(&[&tag[..], &tag, &file].concat()), decode(&file), "{name}");
        let lying = [&b"ID3\x04\0\0\x7f\x7f\x7f\x7f"[..], &file].concat();
        check_refused(&lying, "not a sound; WAV, MP3 and FLAC are supported");
    }
    // A picture in FLAC that claims four gigabytes.
    let file = case("flac");
    let info = &file[4..42];
    assert_eq!(info[..4], [0, 0, 0, 34], "the first block is not the last");
    let picture = [&[6_u8, 0, 0, 8][..], &[0xff; 8]].concat();
    let with = [b"fLaC", info, &picture, &file[42..]].concat();
    assert_eq!(decode(&with), decode(&file));
}

#[test]
fn limits_are_kept() {
    let limits = |seconds, bytes| MediaLimits { seconds, bytes, ..MediaLimits::default() };
    let second = wav(1, 1, 8_000, 8, &[128; 8_000]);
    let longer = wav(1, 1, 8_000, 8, &[128; 8_001]);
    let of = |file: &[u8], limits| {
        Sound::decode(file, RATE, &limits, &|| false).map(|it| it.samples().len())
    };
    assert_eq!(of(&second, limits(1, 1 << 20)), Ok(16_000));
    let too_long = "a sound of more than 1 seconds; shorten it, or raise media_limits.seconds";
    assert_eq!(of(&longer, limits(1, 1 << 20)), Err(too_long.to_owned()));
    assert_eq!(of(&second, limits(1, second.len())), Ok(16_000));
    let error = of(&second, limits(1, second.len() - 1)).unwrap_err();
    assert!(error.starts_with("a media file of more than"), "{error}");
    assert!(Sound::check_file(&second, &limits(1, second.len() - 1)).is_err());
    // The work of a decoder grows with the channels. A second of 192,000 samples is allowed.
    let channels = |count: u16| wav(1, count, 8_000, 8, &vec![128; 8_000 * usize::from(count)]);
    assert_eq!(of(&channels(24), limits(1, 1 << 20)), Ok(16_000));
    let error = of(&channels(25), limits(1, 1 << 20)).unwrap_err();
    assert!(error.starts_with("a sound of more than 192000 samples in all channels"), "{error}");
}

#[test]
fn decoding_ends_when_the_call_is_over() {
    for case in cases() {
        let file = case.file();
        // The number of checks, the last of which says that the call is over.
        let checked = |last: usize| {
            let checks = AtomicUsize::new(0);
            let is_over = || checks.fetch_add(1, Ordering::Relaxed) + 1 >= last;
            let sound = Sound::decode(&file, RATE, &MediaLimits::default(), &is_over);
            (sound.is_ok(), checks.into_inner())
        };
        let (is_whole, count) = checked(usize::MAX);
        assert!(is_whole && count > 0, "{}: {count}", case.name);
        for last in 1..=count {
            let (is_whole, count) = checked(last);
            assert!(!is_whole && count < last + 4, "{}: {count} of {last}", case.name);
        }
    }
    // A longer one has more blocks.
    let checks = AtomicUsize::new(0);
    let is_over = || checks.fetch_add(1, Ordering::Relaxed) >= 10;
    let file = wav(1, 1, 8_000, 16, &vec![0; 1 << 20]);
    assert!(Sound::decode(&file, RATE, &MediaLimits::default(), &is_over).is_err());
    assert_eq!(checks.into_inner(), 11);
}

/// Every file, cut and changed, is a sound or an error.
#[test]
fn damage_is_an_error() {
    let mut state = 7_u64;
    let mut random = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) as usize % below
    };
    for case in cases() {
        let whole = case.file();
        for _ in 0..60 {
            let mut file = whole.clone();
            for _ in 0..=random(4) {
                let at = random(file.len());
                file[at] = random(256) as u8;
            }
            if random(3) == 0 {
                file.truncate(random(file.len()));
            }
            if let Err(message) = decode(&file) {
                assert!(!message.is_empty());
            }
        }
    }
}
