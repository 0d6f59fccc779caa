//! Picture and sound files as content parts of messages.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use imagesize::ImageType;
use serde_json::{Value, json};

use crate::failure::{Failure, Result};

/// The largest file that the library takes.
const MAX_BYTES: u64 = 32 << 20;

/// A file that is shown to the model.
pub(crate) struct MediaFile {
    /// As the user wrote it.
    name: String,
    /// Its content part.
    pub(crate) part: Value,
}

/// A picture, which the library decodes.
pub(crate) fn picture(path: &Path) -> Result<MediaFile> {
    let file = bytes(path, "give the name of a picture file")?;
    let media_type = match imagesize::image_type(&file) {
        Ok(ImageType::Png) => "image/png",
        Ok(ImageType::Jpeg) => "image/jpeg",
        Ok(ImageType::Gif) => "image/gif",
        Ok(ImageType::Webp) => "image/webp",
        // The library knows others, and says what is wrong with a file that is no picture.
        _ => "application/octet-stream",
    };
    let url = format!("data:{media_type};base64,{}", STANDARD.encode(&file));
    let part = json!({ "type": "image_url", "image_url": { "url": url } });
    Ok(MediaFile { name: path.display().to_string(), part })
}

/// A sound. The library recognizes the format.
pub(crate) fn sound(path: &Path) -> Result<MediaFile> {
    let data = STANDARD.encode(bytes(path, "give the name of a sound file")?);
    let format = path.extension().and_then(OsStr::to_str).unwrap_or_default();
    let part = json!({ "type": "input_audio", "input_audio": { "data": data, "format": format } });
    Ok(MediaFile { name: path.display().to_string(), part })
}

/// The bytes of a file. `next` is what to do if it cannot be read.
fn bytes(path: &Path, next: &str) -> Result<Vec<u8>> {
    let about = |what: &dyn std::fmt::Display| Failure::new(format!("{}: {what}", path.display()));
    let mut file = Vec::new();
    let read = File::open(path).and_then(|open| open.take(MAX_BYTES + 1).read_to_end(&mut file));
    read.map_err(|error| about(&error).next(next))?;
    if file.len() as u64 > MAX_BYTES {
        return Err(about(&format!("has more than {} MiB", MAX_BYTES >> 20)));
    }
    Ok(file)
}

/// The content of a message: the text, with pictures and sounds before it.
pub(crate) fn content(media: &[MediaFile], text: &str) -> Value {
    if media.is_empty() {
        return text.into();
    }
    let parts = media.iter().map(|file| file.part.clone());
    parts.chain([json!({ "type": "text", "text": text })]).collect()
}

/// The failure of a request whose message number `index` has these files. One about a file begins with
/// its name; the second value is the file's number.
pub(crate) fn in_files(
    mut failure: Failure,
    index: usize,
    media: &[MediaFile],
) -> (Failure, Option<usize>) {
    let number = media.iter().enumerate().find_map(|(number, file)| {
        let path = format!("messages[{index}].content[{number}]");
        let rest = failure.message.strip_prefix(&path)?;
        let (member, problem) = rest.split_once(": ")?;
        (member.is_empty() || member.starts_with('.')).then_some(())?;
        failure.message = format!("{}: {problem}", file.name);
        Some(number)
    });
    (failure, number)
}
