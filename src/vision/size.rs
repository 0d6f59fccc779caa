//! The sizes of images and videos in a request, and the errors of the member `vision`. Only the
//! shape of a size is checked; nothing is decoded.

use std::fmt::Display;

use crate::api::Fields;
use crate::error::{Error, Result};

/// The longest side in pixels. The product of two such sides is exact in f64.
const SIDE: i64 = 10_000_000;
/// The maximum number of frames of one video: eleven days at one frame per second.
const FRAMES: i64 = 1_000_000;
/// The allowed frames per second. The lowest is one frame in about 17 minutes.
const FPS: (f64, f64) = (0.001, 1000.0);

/// Height and width in pixels. They are integers of at least 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Size {
    pub(crate) h: f64,
    pub(crate) w: f64,
}

/// A video as it was sampled. Frame k is shown at k/fps seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Clip {
    pub(crate) frames: u32,
    pub(crate) size: Size,
    pub(crate) fps: Option<f64>,
}

impl Size {
    /// `{"h","w"}`. Both are optional if the count does not depend on the size (`required` is
    /// false).
    pub(super) fn read(fields: &mut Fields, required: bool) -> Result<Size> {
        let mut side = |key| {
            let side = fields.integer(key, 1..=SIDE)?;
            match side {
                None if required => Err(missing(fields, key)),
                // A size that is not used may have any value.
                side => Ok(side.unwrap_or(1) as f64),
            }
        };
        Ok(Size { h: side("h")?, w: side("w")? })
    }

    /// The ratio of the longer side to the shorter one.
    pub(super) fn aspect(self) -> f64 {
        self.h.max(self.w) / self.h.min(self.w)
    }
}

impl Clip {
    /// `{"frames","h","w","fps"}`. `timed` means that the times of frames are written, which
    /// requires `fps`.
    pub(super) fn read(fields: &mut Fields, size_required: bool, timed: bool) -> Result<Clip> {
        let frames = fields.integer("frames", 1..=FRAMES)?;
        let frames = frames
            .and_then(|frames| u32::try_from(frames).ok())
            .ok_or_else(|| missing(fields, "frames"))?;
        let size = Size::read(fields, size_required)?;
        let fps = fields.number("fps", FPS.0..=FPS.1)?;
        if timed && fps.is_none() {
            return Err(missing(fields, "fps"));
        }
        Ok(Clip { frames, size, fps })
    }
}

/// `INVALID_REQUEST` with details `{"reason","path"}`, as in compose requests.
pub(super) fn refused(reason: &str, path: &str, problem: impl Display) -> Error {
    Error::invalid(path, problem).with("reason", reason).with("path", path)
}

/// The error for a missing required member.
pub(super) fn missing(fields: &Fields, key: &str) -> Error {
    refused("missing_field", &fields.path(key), "missing")
}
