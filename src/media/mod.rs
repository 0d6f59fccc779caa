//! Media files of a request: where they are to bytes, and bytes to pixels or samples.
//!
//! In: the URL or the path of a content part, or the bytes of a file. Out: those bytes, a picture of
//! 8-bit RGB, upright, or a sound of one channel. Requests and files may be hostile: only files that
//! the options of the chat allow are read, sizes are checked against limits before anything is read
//! or decoded, a decoder's memory is limited, and its faults are errors. Decoding ends when the call is
//! over. Nothing is kept.

mod data_url;
mod file_url;
mod files;
mod folders;
mod interruptible;
#[cfg(not(feature = "hub"))]
mod no_web_files;
mod picture;
mod sound;
mod wait;
#[cfg(feature = "hub")]
mod web_files;

pub use data_url::DataUrl;
pub use files::{MediaFiles, MediaLocation};
pub use picture::Picture;
pub use sound::Sound;
pub use wait::{MediaWait, OverCheck};

/// The message about a file with more bytes than the limit.
fn too_long(most: usize) -> String {
    format!("a media file of more than {most} bytes; shorten it, or raise media_limits.bytes")
}
