//! Replaces `web_files` in a build without the feature `hub`: nothing is fetched.

use super::MediaWait;
use crate::api::MediaUrls;
use crate::error::{Error, Result};

/// Takes the place of the client. It fetches nothing.
pub(super) enum NoWebFiles {}

impl NoWebFiles {
    /// Always fails.
    pub(super) fn new(_: MediaUrls) -> Result<NoWebFiles> {
        Err(Error::invalid("media_urls", "this llb was built without its feature `hub`"))
    }

    /// Cannot be called.
    pub(super) fn fetch(&self, _: &str, _: usize, _: MediaWait) -> Result<Vec<u8>, String> {
        match *self {}
    }
}
