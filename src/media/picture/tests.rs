#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::atomic::{AtomicUsize, Ordering};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use image::{ExtendedColorType, ImageEncoder};
use serde::Deserialize;

use super::*;

fn limits() -> MediaLimits {
    MediaLimits::default()
}

fn decode(file: &[u8]) -> Result<Picture, String> {
    Picture::decode(file, &limits(), &|| false)
}

fn size(file: &[u8]) -> Result<(u32, u32), String> {
    Picture::size(file, &limits())
}

/// scripts/pictures.py writes it.
#[derive(Deserialize)]
struct Cases {
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    name: String,
    file: String,
    width: u32,
    height: u32,
    rgb: String,
    /// The most by which a value may differ from Pillow's.
    tolerance: u8,
}

impl Case {
    fn file(&self) -> Vec<u8> {
        STANDARD.decode(&self.file).unwrap()
    }
}

fn cases() -> Vec<Case> {
    let text = include_str!("../../../tests/data/pictures.json");
    serde_json::from_str::<Cases>(text).unwrap().cases
}

#[test]
fn pixels_are_those_of_pillow() {
    let cases = cases();
    assert!(cases.len() > 20);
    for case in &cases {
        let picture = decode(&case.file()).unwrap();
        assert_eq!((picture.width, picture.height), (case.width, case.height), "{}", case.name);
        assert_eq!(size(&case.file()), Ok((case.width, case.height)), "{}", case.name);
        let expected = STANDARD.decode(&case.rgb).unwrap();
        assert_eq!(picture.rgb.len(), expected.len(), "{}", case.name);
        let furthest = picture.rgb.iter().zip(&expected).map(|(a, b)| a.abs_diff(*b)).max();
        assert!(furthest <= Some(case.tolerance), "{}: {furthest:?}", case.name);
    }
}

#[test]
fn a_cut_file_is_no_fault() {
    for case in cases() {
        let file = case.file();
        for length in 0..file.len() {
            // The last bytes of a file may be missing without loss.
            if let Err(message) = decode(&file[..length]) {
                assert!(message.contains("picture"), "{}: {message}", case.name);
            }
        }
        assert!(decode(&file[..file.len() / 3]).is_err(), "{}", case.name);
    }
}

#[test]
fn a_changed_file_is_no_fault() {
    // Each byte of the first part of a file, which has its sizes, and some of the others.
    for case in cases() {
        let file = case.file();
        for place in (0..file.len()).filter(|place| *place < 80 || place % 13 == 0) {
            for change in [0x00, 0x01, 0x7F, 0x80, 0xFF] {
                let mut changed = file.clone();
                changed[place] = if change == 0x01 { changed[place] ^ 1 } else { change };
                if let Ok(picture) = decode(&changed) {
                    let pixels = u64::from(picture.width) * u64::from(picture.height);
                    assert!(pixels <= limits().pixels, "{} {place}", case.name);
                    assert_eq!(picture.rgb.len() as u64, pixels * 3);
                }
            }
        }
    }
}

/// A PNG file of these sides and this compressed data.
fn png(width: u32, height: u32, data: &[u8]) -> Vec<u8> {
    let mut file = b"\x89PNG\r\n\x1a\n".to_vec();
    let mut chunk = |kind: &[u8; 4], data: &[u8]| {
        file.extend_from_slice(&u32::try_from(data.len()).unwrap().to_be_bytes());
        let start = file.len();
        file.extend_from_slice(kind);
        file.extend_from_slice(data);
        let mut sum = flate2::Crc::new();
        sum.update(&file[start..]);
        file.extend_from_slice(&sum.sum().to_be_bytes());
    };
    let mut header = [width.to_be_bytes(), height.to_be_bytes()].concat();
    header.extend_from_slice(&[8, 2, 0, 0, 0]);
    chunk(b"IHDR", &header);
    chunk(b"IDAT", data);
    chunk(b"IEND", &[]);
    file
}

/// A BMP file without pixels.
fn bmp(width: i32, height: i32) -> Vec<u8> {
    let mut file = b"BM\x36\0\0\0\0\0\0\0\x36\0\0\0\x28\0\0\0".to_vec();
    file.extend_from_slice(&width.to_le_bytes());
    file.extend_from_slice(&height.to_le_bytes());
    file.extend_from_slice(b"\x01\0\x18\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0");
    file
}

#[track_caller]
fn check_refused(file: &[u8], expected: &str) {
    let message = decode(file).err().expect("refused");
    assert!(message.contains(expected), "{message}");
    assert!(size(file).is_err());
}

#[test]
fn huge_sides_are_refused_before_memory_is_taken() {
    for (width, height) in
        [(1, 1 << 30), (1 << 30, 1), (7072, 7072), (u32::MAX >> 1, u32::MAX >> 1)]
    {
        check_refused(&png(width, height, &[]), "picture");
    }
    for (width, height) in [(1, i32::MAX), (i32::MAX, 1), (i32::MAX, i32::MIN + 1), (0, 0)] {
        check_refused(&bmp(width, height), "picture");
    }
    // GIF: 65535 x 65535.
    check_refused(b"GIF89a\xFF\xFF\xFF\xFF\x80\0\0\0\0\0\xFF\xFF\xFF,\0\0\0\0\xFF\xFF\xFF\xFF\0\x02\x02D\x01\0;", "65535x65535");
}

#[test]
fn data_beyond_the_pixels_takes_no_memory() {
    // 256 MB of zeros, compressed to 256 kB, for a picture of four pixels.
    let mut zeros = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
    for _ in 0..256 {
        std::io::Write::write_all(&mut zeros, &[0; 1 << 20]).unwrap();
    }
    let picture = decode(&png(2, 2, &zeros.finish().unwrap())).unwrap();
    assert_eq!(picture.rgb, [0; 12]);
}

#[test]
fn other_files_are_refused() {
    check_refused(b"", "not a picture");
    check_refused(b"<svg xmlns='http://www.w3.org/2000/svg'/>", "not a picture");
    check_refused(b"II*\0\x08\0\0\0", "not a picture");
    check_refused(&vec![0; limits().bytes + 1], "more than 33554432 bytes");
}

#[test]
fn the_largest_picture_is_decoded() {
    let pixels = vec![7_u8; 5000 * 10_000];
    let mut file = Vec::new();
    image::codecs::png::PngEncoder::new(&mut file)
        .write_image(&pixels, 5000, 10_000, ExtendedColorType::L8)
        .unwrap();
    let picture = decode(&file).unwrap();
    assert_eq!((picture.width, picture.height, picture.rgb[149_999_999]), (5000, 10_000, 7));
}

#[test]
fn limits_are_kept() {
    let file = png(4, 3, &[]);
    let with = |bytes, pixels| {
        let refused = Picture::size(&file, &MediaLimits { bytes, pixels, ..limits() }).err();
        refused.unwrap_or_default()
    };
    assert_eq!(with(file.len(), 12), "");
    assert!(with(file.len() - 1, 12).starts_with("a media file of more than"));
    assert_eq!(
        with(file.len(), 11),
        "a picture of 4x3 pixels, but at most 11 are allowed; make it smaller, or raise media_limits.pixels"
    );
}

#[test]
fn decoding_ends_when_the_call_is_over() {
    let (width, height) = (400, 300);
    // Pixels that do not compress.
    let mut state = 7_u32;
    let mut random = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    let pixels = (0..width * height * 3).map(|_| random()).collect();
    let picture = image::RgbImage::from_raw(width, height, pixels).unwrap();
    for format in FORMATS {
        let mut file = std::io::Cursor::new(Vec::new());
        picture.write_to(&mut file, format).unwrap();
        // The number of checks, the last of which says that the call is over.
        let checked = |last: usize| {
            let checks = AtomicUsize::new(0);
            let is_over = || checks.fetch_add(1, Ordering::Relaxed) + 1 >= last;
            let picture = Picture::decode(file.get_ref(), &limits(), &is_over);
            (picture, checks.into_inner())
        };
        let (whole, count) = checked(usize::MAX);
        assert_eq!(whole.unwrap().width, width, "{format:?}");
        assert!(count > 20, "{format:?}: {count}");
        for last in [1, count / 2, count - 4] {
            let (picture, count) = checked(last);
            assert!(picture.is_err(), "{format:?}");
            assert!(count < last + 4, "{format:?}: {count} checks");
        }
    }
}
