//! Replaces `media::MediaFiles` in a build without the feature `media`: no file is read.

use std::time::Instant;

use crate::api::{MediaChoice, MediaLimits};
use crate::error::Result;

/// Where the file of a media part is.
#[derive(Clone, Copy)]
#[allow(dead_code, reason = "no file is read")]
pub(crate) enum NoMediaLocation<'a> {
    Url(&'a str),
    Path(&'a str),
    Base64(&'a str),
}

impl NoMediaLocation<'_> {
    pub(crate) fn is_data(self) -> bool {
        true
    }
}

/// What ends the wait for a file.
#[derive(Clone, Copy)]
#[allow(dead_code, reason = "no file is read")]
pub(crate) struct NoMediaWait<'a> {
    pub(crate) deadline: Option<Instant>,
    pub(crate) is_over: &'a dyn Fn() -> bool,
}

/// In place of what reads files.
pub(crate) struct NoMediaFiles(MediaLimits);

impl NoMediaFiles {
    pub(crate) fn open(options: &MediaChoice) -> Result<NoMediaFiles> {
        Ok(NoMediaFiles(options.limits))
    }

    pub(crate) fn limits(&self) -> &MediaLimits {
        &self.0
    }

    pub(crate) fn reads_others(&self) -> bool {
        false
    }

    /// Always fails.
    pub(crate) fn read_as_data_url(
        &self,
        location: NoMediaLocation,
        wait: NoMediaWait,
    ) -> Result<String, String> {
        self.read(location, wait).map(|_| String::new())
    }

    /// Always fails.
    pub(crate) fn read(&self, _: NoMediaLocation, _: NoMediaWait) -> Result<Vec<u8>, String> {
        Err("this llb was built without its feature `media`".to_owned())
    }
}
