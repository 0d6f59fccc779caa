//! Requests to isolated chats: the host puts media files inside of them, because the helper process
//! may not read files.

use serde_json::Value;

use super::media::{media_parts, part_file};
use super::{MediaFiles, MediaWait};
use crate::engine::Interrupt;
use crate::error::Result;

/// The maximum number of bytes of all files of a request, in base64. They are in memory at the same
/// time, in both processes.
const MAX_BYTES: usize = 512 << 20;

/// Replaces the locations of media files with data URLs. Returns whether there were any. Faults of
/// the request are left to its reader.
///
/// # Errors
/// `INVALID_REQUEST` with the JSON path, and `CANCELLED`.
pub(crate) fn put_files_inside(
    request: &mut Value,
    files: &MediaFiles,
    interrupt: &Interrupt,
) -> Result<bool> {
    let messages = request.get_mut("messages").and_then(Value::as_array_mut);
    let Some(messages) = messages else { return Ok(false) };
    let places: Vec<_> = media_parts(messages).collect();
    let mut remaining = MAX_BYTES;
    for (index, place) in places.into_iter().enumerate() {
        let part = &mut messages[place.message]["content"][place.part];
        let Ok(file) = part_file(place, part) else { continue };
        if file.location.is_data() {
            continue;
        }
        place.check_count(index, files.limits())?;
        interrupt.check()?;
        let wait = MediaWait { deadline: interrupt.deadline, is_over: &|| interrupt.is_over() };
        let url = files.read_as_data_url(file.location, wait);
        let url = url.map_err(|problem| place.unreadable(&file, problem, interrupt))?;
        let left = remaining.checked_sub(url.len());
        remaining = left.ok_or_else(|| {
            let problem = format!(
                "the files of a request to an isolated chat have at most {MAX_BYTES} bytes in base64; send fewer"
            );
            place.invalid(&file, problem)
        })?;
        let members = file.members;
        *members.iter().fold(part, |value, member| &mut value[*member]) = url.into();
    }
    Ok(remaining < MAX_BYTES)
}
