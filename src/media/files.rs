//! The files of a request's media parts: the bytes that a URL or a path stands for.

use super::data_url::from_base64;
use super::folders::MediaFolders;
#[cfg(not(feature = "hub"))]
use super::no_web_files::NoWebFiles as WebFiles;
#[cfg(feature = "hub")]
use super::web_files::WebFiles;
use super::{DataUrl, MediaWait, file_url};
use crate::api::{MediaChoice, MediaLimits, MediaUrls};
use crate::error::Result;

const NO_WEB: &str = "files are fetched only with the create option `media_urls`; set it, or send a data URL: data:image/png;base64,...";

/// Where the file of a media part is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MediaLocation<'a> {
    /// A URL.
    Url(&'a str),
    /// The path of a file. It may be a data URL: the host of an isolated chat puts the file there.
    Path(&'a str),
    /// The file itself, in base64.
    Base64(&'a str),
}

impl<'a> MediaLocation<'a> {
    /// The text in the request.
    pub fn text(self) -> &'a str {
        match self {
            MediaLocation::Url(text) | MediaLocation::Path(text) | MediaLocation::Base64(text) => {
                text
            }
        }
    }

    /// Whether the file is in the request itself.
    pub fn is_data(self) -> bool {
        matches!(self, MediaLocation::Base64(_)) || has_scheme(self.text(), "data:")
    }
}

/// Reads the files that a chat's requests may have.
pub struct MediaFiles {
    limits: MediaLimits,
    folders: MediaFolders,
    /// `None` unless files are fetched.
    web: Option<WebFiles>,
}

impl MediaFiles {
    /// Opens what the options name.
    ///
    /// # Errors
    /// `INVALID_REQUEST` with the path of the option.
    pub fn open(options: &MediaChoice) -> Result<MediaFiles> {
        let web = match options.urls {
            MediaUrls::None => None,
            urls => Some(WebFiles::new(urls)?),
        };
        Ok(MediaFiles {
            limits: options.limits,
            folders: MediaFolders::open(&options.folders)?,
            web,
        })
    }

    /// The limits of the chat's media files.
    pub fn limits(&self) -> &MediaLimits {
        &self.limits
    }

    /// Whether files may be read that are not in the request itself.
    pub fn reads_others(&self) -> bool {
        !self.folders.is_empty() || self.web.is_some()
    }

    /// The bytes of a file.
    ///
    /// # Errors
    /// A message, also if the call is over before the file is there.
    pub fn read(&self, location: MediaLocation, wait: MediaWait) -> Result<Vec<u8>, String> {
        let most = self.limits.bytes;
        match location {
            MediaLocation::Base64(data) => from_base64(data, most),
            data if data.is_data() => DataUrl::parse(data.text())?.decode(most),
            MediaLocation::Path(path) => self.folders.read(path, most),
            MediaLocation::Url(url) if has_scheme(url, "file:") => {
                self.folders.read(&file_url::path(url)?, most)
            }
            MediaLocation::Url(url) if has_scheme(url, "http:") || has_scheme(url, "https:") => {
                self.web.as_ref().ok_or(NO_WEB)?.fetch(url, most, wait)
            }
            // Its error.
            MediaLocation::Url(url) => DataUrl::parse(url)?.decode(most),
        }
    }

    /// Like [`MediaFiles::read`], as a data URL.
    ///
    /// # Errors
    /// A message, also if the call is over before the file is there.
    pub fn read_as_data_url(
        &self,
        location: MediaLocation,
        wait: MediaWait,
    ) -> Result<String, String> {
        Ok(DataUrl::write(&self.read(location, wait)?))
    }
}

fn has_scheme(url: &str, scheme: &str) -> bool {
    url.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme))
}
