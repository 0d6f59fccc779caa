//! The media of a request: content parts become markers before the template is rendered, and
//! embeddings in the tokens of the prompt.
//!
//! A marker counts only where its text has the origin of a media part. The same text in a message
//! is text.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use serde_json::{Value, json};

use super::media_marker::{MARKER, MARKER_TYPE};
use super::render::plain_ranges;
use super::{MediaFiles, MediaLocation, MediaWait};
use crate::api::{ChatRequest, MediaLimits, Modality};
use crate::engine::{Interrupt, MediaChunk, MediaError, MediaReader, TokenizedPrompt, Vocab};
use crate::error::{Error, Result};
use crate::template::Prompt;

/// The types of content parts with media, as clients name them.
const MEDIA_TYPES: [&str; 8] = [
    "image_url",
    "input_image",
    "image",
    "input_audio",
    "audio_url",
    "audio",
    "video_url",
    "video",
];

/// The media of a request.
#[derive(Default)]
pub(super) struct RequestMedia {
    /// The messages with markers; `None` without media.
    messages: Option<Vec<Value>>,
    /// The content of each part, by the path of its text.
    contents: BTreeMap<String, (MediaPlace, Arc<[MediaChunk]>)>,
}

/// The place of a part in the request.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct MediaPlace {
    pub(super) message: usize,
    pub(super) part: usize,
}

/// The file of a media part.
pub(super) struct PartFile<'a> {
    pub(super) modality: Modality,
    pub(super) location: MediaLocation<'a>,
    /// The member of the part with the location, from the outermost.
    pub(super) members: &'static [&'static str],
}

impl MediaPlace {
    pub(super) fn path(self) -> String {
        format!("messages[{}].content[{}]", self.message, self.part)
    }

    /// An error about the file of the part.
    pub(super) fn invalid(self, file: &PartFile, problem: String) -> Error {
        Error::invalid(format!("{}.{}", self.path(), file.members.join(".")), problem)
    }

    /// The error about a file that was not read: `CANCELLED` if the call is over.
    pub(super) fn unreadable(
        self,
        file: &PartFile,
        problem: String,
        interrupt: &Interrupt,
    ) -> Error {
        interrupt.check().err().unwrap_or_else(|| self.invalid(file, problem))
    }

    /// Refuses a part after as many media parts as a request may have.
    pub(super) fn check_count(self, before: usize, limits: &MediaLimits) -> Result<()> {
        if before < limits.parts {
            return Ok(());
        }
        let problem = format!(
            "a request has at most {} media parts; send fewer, or raise media_limits.parts",
            limits.parts
        );
        Err(Error::invalid(self.path(), problem))
    }
}

impl RequestMedia {
    /// Reads the media of a request. Without a reader, a media part is an error.
    pub(super) fn read(
        request: &ChatRequest,
        reader: Option<&dyn MediaReader>,
        files: &MediaFiles,
        interrupt: &Interrupt,
    ) -> Result<RequestMedia> {
        let mut media = RequestMedia::default();
        for place in media_parts(&request.messages) {
            let part = &request.messages[place.message]["content"][place.part];
            let Some(reader) = reader else { return Err(refused(place, part)) };
            let file = part_file(place, part)?;
            check_modality(place, &file, part, reader)?;
            place.check_count(media.contents.len(), files.limits())?;
            interrupt.check()?;
            let content = content(reader, files, place, &file, interrupt)?;
            let messages = media.messages.get_or_insert_with(|| request.messages.clone());
            messages[place.message]["content"][place.part] =
                json!({ "type": MARKER_TYPE, "text": MARKER });
            media.contents.insert(format!("{}.text", place.path()), (place, content));
        }
        Ok(media)
    }

    /// The messages to render.
    pub(super) fn messages<'a>(&'a self, request: &'a ChatRequest) -> &'a [Value] {
        self.messages.as_deref().unwrap_or(&request.messages)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.contents.is_empty()
    }

    /// Tokenizes a prompt with media. The spans of the prompt have paths of the request, from whose
    /// messages `dropped` are left out.
    pub(super) fn tokenize(
        &self,
        vocab: &dyn Vocab,
        request: &ChatRequest,
        prompt: &Prompt,
        dropped: &Range<usize>,
        interrupt: &Interrupt,
    ) -> Result<TokenizedPrompt> {
        let mut tokenized = TokenizedPrompt::default();
        let places = self.contents.values().map(|(place, _)| *place);
        let mut missing: BTreeSet<MediaPlace> =
            places.filter(|place| !dropped.contains(&place.message)).collect();
        let plain = plain_ranges(request, prompt);
        let text = |range: Range<usize>, tokenized: &mut TokenizedPrompt| -> Result<()> {
            let plain = within(&plain, &range);
            let special = vocab.special_tokens();
            let part = &prompt.text[range];
            let part = special.tokenize(vocab, part, plain, None, interrupt)?;
            tokenized.tokens.extend(part.tokens);
            Ok(())
        };
        let mut done = 0;
        for span in &prompt.spans {
            let Some((place, content)) = self.contents.get(&*span.path) else { continue };
            let Some(at) = prompt.text[span.start..span.end].find(MARKER) else { continue };
            let start = span.start + at;
            text(done..start, &mut tokenized)?;
            done = start + MARKER.len();
            missing.remove(place);
            for chunk in content.iter() {
                match chunk {
                    MediaChunk::Tokens(tokens) => tokenized.tokens.extend(tokens),
                    MediaChunk::Piece(piece) => tokenized.push_media(Arc::clone(piece)),
                }
            }
        }
        text(done..prompt.text.len(), &mut tokenized)?;
        if let Some(place) = missing.first() {
            let problem = "the chat template does not write this part, or not as it is";
            return Err(Error::invalid(place.path(), problem));
        }
        if tokenized.ends_with_media() {
            let problem = "the prompt ends with media; add a text after them";
            return Err(Error::invalid("messages", problem));
        }
        Ok(tokenized)
    }
}

/// Refuses media in a request for a model that takes text only.
pub(super) fn check_text_only(request: &ChatRequest) -> Result<()> {
    match media_parts(&request.messages).next() {
        Some(place) => Err(refused(place, &request.messages[place.message]["content"][place.part])),
        None => Ok(()),
    }
}

/// The places of all media parts.
pub(super) fn media_parts(messages: &[Value]) -> impl Iterator<Item = MediaPlace> {
    messages.iter().enumerate().flat_map(|(message, value)| {
        let parts = value.get("content").and_then(Value::as_array);
        let parts = parts.into_iter().flatten().enumerate();
        let is_media = |part: &Value| {
            let kind = part.get("type").and_then(Value::as_str);
            kind.is_some_and(|kind| MEDIA_TYPES.contains(&kind))
        };
        parts
            .filter(move |(_, part)| is_media(part))
            .map(move |(part, _)| MediaPlace { message, part })
    })
}

fn refused(place: MediaPlace, part: &Value) -> Error {
    let kind = part["type"].as_str().unwrap_or_default();
    let problem = format!(
        "the model takes text only, but this part has the type {kind:?}; for pictures and sound, \
         name the model's mmproj file in the create option `projector`"
    );
    Error::invalid(place.path(), problem).with("kind", "unsupported_content_part")
}

/// Refuses a picture for a model that hears, and a sound for one that sees.
fn check_modality(
    place: MediaPlace,
    file: &PartFile,
    part: &Value,
    reader: &dyn MediaReader,
) -> Result<()> {
    if reader.takes(file.modality) {
        return Ok(());
    }
    let media = match file.modality {
        Modality::Image => "sound",
        Modality::Audio => "pictures",
    };
    let problem = format!(
        "the model takes text and {media}, but this part has the type {:?}; name a projector for \
         it in the create option `projector`",
        part["type"].as_str().unwrap_or_default()
    );
    Err(Error::invalid(place.path(), problem).with("kind", "unsupported_content_part"))
}

fn content(
    reader: &dyn MediaReader,
    files: &MediaFiles,
    place: MediaPlace,
    file: &PartFile,
    interrupt: &Interrupt,
) -> Result<Arc<[MediaChunk]>> {
    let wait = MediaWait { deadline: interrupt.deadline, is_over: &|| interrupt.is_over() };
    let bytes = files.read(file.location, wait);
    let bytes = bytes.map_err(|problem| place.unreadable(file, problem, interrupt))?;
    let content = reader.content(file.modality, &bytes, files.limits(), interrupt);
    content.map_err(|error| match error {
        MediaError::File(problem) => place.unreadable(file, problem, interrupt),
        MediaError::Engine(error) => error,
    })
}

/// Where the file of a media part is.
pub(super) fn part_file<'a>(place: MediaPlace, part: &'a Value) -> Result<PartFile<'a>> {
    let kind = part["type"].as_str().unwrap_or_default();
    let (image, audio) = (&part["image_url"], &part["audio_url"]);
    let url = |value: &'a Value| value.as_str().map(MediaLocation::Url);
    let path = part["path"].as_str().map(MediaLocation::Path);
    let (modality, location, members): (_, _, &[&str]) = match kind {
        "image_url" if image.is_string() => (Modality::Image, url(image), &["image_url"]),
        "image_url" => (Modality::Image, url(&image["url"]), &["image_url", "url"]),
        "image" => (Modality::Image, path, &["path"]),
        "input_audio" => {
            let data = part["input_audio"]["data"].as_str().map(MediaLocation::Base64);
            (Modality::Audio, data, &["input_audio", "data"])
        }
        "audio_url" if audio.is_string() => (Modality::Audio, url(audio), &["audio_url"]),
        "audio_url" => (Modality::Audio, url(&audio["url"]), &["audio_url", "url"]),
        "audio" => (Modality::Audio, path, &["path"]),
        _ => {
            let problem = format!(
                "parts of type {kind:?} are not supported; pictures have the type \"image_url\", \
                 and sound \"input_audio\""
            );
            let error = Error::invalid(place.path(), problem);
            return Err(error.with("kind", "unsupported_content_part"));
        }
    };
    match location {
        Some(location) => Ok(PartFile { modality, location, members }),
        None => Err(Error::invalid(format!("{}.{}", place.path(), members.join(".")), "missing")),
    }
}

/// The parts of `ranges`, which are in order, inside `within`, relative to its start.
fn within(ranges: &[Range<usize>], within: &Range<usize>) -> Vec<Range<usize>> {
    let overlap = |range: &Range<usize>| {
        let (start, end) = (range.start.max(within.start), range.end.min(within.end));
        (start < end).then(|| start - within.start..end - within.start)
    };
    ranges.iter().filter_map(overlap).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    #[test]
    fn ranges_inside_a_part() {
        let ranges = [0..4, 4..6, 8..20];
        assert_eq!(within(&ranges, &(3..10)), [0..1, 1..3, 5..7]);
        assert_eq!(within(&ranges, &(6..8)), [0..0; 0]);
    }
}

#[cfg(all(test, feature = "media"))]
mod damaged_file_tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::sync::atomic::Ordering;

    use super::*;
    use crate::api::{MediaChoice, MediaUrls};
    use crate::error::Code;

    /// Finds every file damaged, because the call is over or not.
    struct Damaged {
        cancels: bool,
    }

    impl MediaReader for Damaged {
        fn takes(&self, _: Modality) -> bool {
            true
        }

        fn content(
            &self,
            _: Modality,
            _: &[u8],
            _: &MediaLimits,
            interrupt: &Interrupt,
        ) -> Result<Arc<[MediaChunk]>, MediaError> {
            interrupt.cancel.store(self.cancels, Ordering::Relaxed);
            Err(MediaError::File("a damaged picture".to_owned()))
        }
    }

    #[test]
    fn a_file_whose_call_is_over_is_not_at_fault() {
        let limits = MediaLimits::default();
        let options = MediaChoice { limits, folders: Vec::new(), urls: MediaUrls::None };
        let files = MediaFiles::open(&options).unwrap();
        let part = json!({ "type": "input_audio", "input_audio": { "data": "" } });
        let place = MediaPlace { message: 0, part: 0 };
        let file = part_file(place, &part).unwrap();
        for (cancels, code) in [(false, Code::InvalidRequest), (true, Code::Cancelled)] {
            let interrupt = Interrupt::default();
            let error = content(&Damaged { cancels }, &files, place, &file, &interrupt);
            assert_eq!(error.err().unwrap().code(), code);
        }
    }
}
