//! A picture of any supported file as 8-bit RGB.

use std::panic::{AssertUnwindSafe, catch_unwind};

use image::metadata::Orientation;
use image::{DynamicImage, ImageDecoder, ImageFormat, ImageReader, Limits};

use super::interruptible::InterruptibleFile;
use super::{OverCheck, too_long};
use crate::api::MediaLimits;
use crate::panic::Quiet;

/// The bytes that a decoder may allocate for each pixel, and for its own buffers.
const BYTES_PER_PIXEL: u64 = 8;
const DECODER_BYTES: u64 = 128 << 20;
/// What decoding takes for each pixel beside the decoded picture: the state of a decoder, the
/// picture in 8 bits, and turned.
const BYTES_BESIDE: u64 = 10;

/// The formats that are decoded. Animations have their first frame.
const FORMATS: [ImageFormat; 5] =
    [ImageFormat::Png, ImageFormat::Jpeg, ImageFormat::WebP, ImageFormat::Gif, ImageFormat::Bmp];

/// An upright picture.
#[derive(Clone, PartialEq, Eq)]
pub struct Picture {
    /// Pixels in a row.
    pub width: u32,
    /// Rows.
    pub height: u32,
    /// Red, green and blue of each pixel, row by row.
    pub rgb: Vec<u8>,
}

impl Picture {
    /// Decodes a file and turns the picture as its EXIF orientation says. Transparency is left out:
    /// the colors under it stay, as in the preprocessors of Hugging Face and llama.cpp.
    ///
    /// # Errors
    /// A message, if the file is beyond a limit, is no picture, or is damaged, or if the call is over
    /// before it is decoded.
    pub fn decode(
        file: &[u8],
        limits: &MediaLimits,
        is_over: OverCheck,
    ) -> Result<Picture, String> {
        let (mut picture, orientation) = decoded(file, limits, is_over, |mut decoder| {
            // Without a readable orientation the picture is upright.
            let orientation = decoder.orientation().unwrap_or(Orientation::NoTransforms);
            let picture = DynamicImage::from_decoder(decoder).map_err(|error| damaged(&error))?;
            Ok((picture, orientation))
        })?;
        picture.apply_orientation(orientation);
        let pixels = picture.into_rgb8();
        let (width, height) = pixels.dimensions();
        Ok(Picture { width, height, rgb: pixels.into_raw() })
    }

    /// About how many bytes it takes to decode a file, its picture included. Reads its header only.
    ///
    /// # Errors
    /// As for [`Picture::size`].
    pub fn decoding_bytes(file: &[u8], limits: &MediaLimits) -> Result<u64, String> {
        decoded(file, limits, &|| false, |decoder| {
            let (width, height) = decoder.dimensions();
            let pixels = u64::from(width) * u64::from(height);
            Ok(decoder.total_bytes().saturating_add(pixels * BYTES_BESIDE))
        })
    }

    /// The width and height of a file's picture when it is upright. Reads its header only.
    ///
    /// # Errors
    /// As for [`Picture::decode`], as far as the header shows them.
    pub fn size(file: &[u8], limits: &MediaLimits) -> Result<(u32, u32), String> {
        decoded(file, limits, &|| false, |mut decoder| {
            let (width, height) = decoder.dimensions();
            let is_turned = decoder.orientation().is_ok_and(|orientation| {
                matches!(
                    orientation,
                    Orientation::Rotate90
                        | Orientation::Rotate270
                        | Orientation::Rotate90FlipH
                        | Orientation::Rotate270FlipH
                )
            });
            Ok(if is_turned { (height, width) } else { (width, height) })
        })
    }
}

/// Opens a file's decoder, checks sizes, and reads from it. A panic of a decoder is an error.
fn decoded<T>(
    file: &[u8],
    limits: &MediaLimits,
    is_over: OverCheck,
    read: impl FnOnce(Box<dyn ImageDecoder + '_>) -> Result<T, String>,
) -> Result<T, String> {
    let MediaLimits { bytes, pixels, .. } = *limits;
    if file.len() > bytes {
        return Err(too_long(bytes));
    }
    let format = image::guess_format(file).ok().filter(|format| FORMATS.contains(format));
    let format = format.ok_or("not a picture; PNG, JPEG, WebP, GIF and BMP are supported")?;
    let decode = || {
        let mut reader = ImageReader::with_format(InterruptibleFile::new(file, is_over), format);
        let mut limits = Limits::default();
        limits.max_alloc = Some(pixels * BYTES_PER_PIXEL + DECODER_BYTES);
        reader.limits(limits);
        let decoder = reader.into_decoder().map_err(|error| damaged(&error))?;
        let (width, height) = decoder.dimensions();
        if width == 0 || height == 0 {
            return Err("a picture without pixels".to_owned());
        }
        if u64::from(width) * u64::from(height) > pixels {
            return Err(format!(
                "a picture of {width}x{height} pixels, but at most {pixels} are allowed; make it smaller, or raise media_limits.pixels"
            ));
        }
        read(Box::new(decoder))
    };
    let _quiet = Quiet::enter();
    catch_unwind(AssertUnwindSafe(decode)).unwrap_or_else(|_| Err("a damaged picture".to_owned()))
}

fn damaged(error: &image::ImageError) -> String {
    format!("a damaged picture: {error}")
}

#[cfg(test)]
mod tests;
