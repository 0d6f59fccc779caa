//! Media files of a request: bytes to pixels.
//!
//! In: the URL of a content part, or the bytes of a file. Out: a picture of 8-bit RGB, upright. Files
//! may be hostile: sizes are checked against limits before anything is decoded, a decoder's memory is limited, and
//! its faults are errors. Nothing here reads files or the network, and nothing is kept.

mod data_url;
mod picture;

pub use data_url::DataUrl;
pub use picture::Picture;

/// The message about a file with more bytes than the limit.
fn too_long(most: usize) -> String {
    format!("a media file of more than {most} bytes; shorten it, or raise media_limits.bytes")
}
