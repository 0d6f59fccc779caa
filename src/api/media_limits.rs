//! The option `media_limits`: bounds of the media files of a request.

use super::fields::Fields;
use crate::error::Result;

/// The member `media_limits`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MediaLimits {
    /// The most bytes of a file.
    pub bytes: usize,
    /// The most pixels of a picture.
    pub pixels: u64,
    /// The most seconds of a sound.
    pub seconds: u64,
    /// The most media parts of a request.
    pub parts: usize,
}

impl Default for MediaLimits {
    /// Sized for a laptop: a picture of a camera takes half a gigabyte while it is decoded, and ten
    /// minutes of sound 100 megabytes.
    fn default() -> MediaLimits {
        MediaLimits { bytes: 32 << 20, pixels: 50_000_000, seconds: 600, parts: 256 }
    }
}

impl MediaLimits {
    /// Reads the member. Zero is refused: a chat without `projector` takes no media.
    pub(crate) fn read(fields: &mut Fields) -> Result<MediaLimits> {
        let (path, default) = (fields.path("media_limits"), MediaLimits::default());
        let Some(value) = fields.get("media_limits") else { return Ok(default) };
        let mut limits = Fields::new(path, value)?;
        let bytes = limits.integer("bytes", 1..=1 << 30)?;
        let pixels = limits.integer("pixels", 1..=1 << 30)?;
        let seconds = limits.integer("seconds", 1..=36_000)?;
        let parts = limits.integer("parts", 1..=1 << 16)?;
        limits.refuse_ignored("unknown limit")?;
        Ok(MediaLimits {
            bytes: bytes.map_or(default.bytes, |bytes| bytes as usize),
            pixels: pixels.map_or(default.pixels, |pixels| pixels as u64),
            seconds: seconds.map_or(default.seconds, |seconds| seconds as u64),
            parts: parts.map_or(default.parts, |parts| parts as usize),
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::api::CreateOptions;

    #[track_caller]
    fn check(limits: Value, expected: Result<MediaLimits, &str>) {
        let read = CreateOptions::read(&json!({ "media_limits": limits }));
        let read = read.map(|options| options.media.limits);
        assert_eq!(
            read.as_ref().map_err(|error| error.message()),
            expected.as_ref().map_err(|it| *it)
        );
    }

    #[test]
    fn limits_are_read() {
        let default = MediaLimits::default();
        check(Value::Null, Ok(default));
        check(json!({}), Ok(default));
        check(json!({ "pixels": 4 }), Ok(MediaLimits { pixels: 4, ..default }));
        check(
            json!({ "bytes": 1, "pixels": 2, "parts": 3, "seconds": 4 }),
            Ok(MediaLimits { bytes: 1, pixels: 2, parts: 3, seconds: 4 }),
        );
        check(json!({ "parts": 0 }), Err("media_limits.parts: must be from 1 to 65536, got 0"));
        check(
            json!({ "bytes": "1" }),
            Err("media_limits.bytes: expected a whole number, got \"1\""),
        );
        let most = "media_limits.seconds: must be from 1 to 36000, got 36001";
        check(json!({ "seconds": 36_001 }), Err(most));
        check(json!({ "minutes": 1 }), Err("media_limits.minutes: unknown limit"));
        check(json!(3), Err("media_limits: expected an object, got 3"));
    }
}
