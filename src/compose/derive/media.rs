//! Derives images and videos in user messages.

use serde_json::{Value, json};

use super::probes::{ANSWER, USER};
use crate::probing::diff::{common_prefix, common_suffix, split_at_needles};
use crate::probing::{Probe, ProbeRenderer};

/// How a template writes images and videos.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct MediaForm {
    pub(super) start: String,
    pub(super) end: String,
    pub(super) image: Option<String>,
    pub(super) video: Option<String>,
    /// The value of `content_parts`.
    pub(super) parts: Option<&'static str>,
}

/// Derives the placeholders.
pub(super) fn derive(foreign: &ProbeRenderer<'_>) -> MediaForm {
    let printed = |part: Value| {
        let parts =
            json!([{ "type": "text", "text": USER }, part, { "type": "text", "text": ANSWER }]);
        let text = foreign
            .prompt(&Probe::default().message(json!({ "role": "user", "content": parts })))?;
        let between = split_at_needles(&text, [USER, ANSWER])?[1].to_owned();
        // A template that prints a list in Python's notation prints the whole part.
        (!between.is_empty() && !between.contains("type")).then_some(between)
    };
    let parts = content_parts(foreign);
    let image = printed(json!({ "type": "image", "image": "https://example.com/a.png" }));
    let video = printed(json!({ "type": "video", "video": "https://example.com/a.mp4" }));
    match (image, video) {
        (Some(image), Some(video)) if image != video => {
            let shortest = image.len().min(video.len());
            let start = whole_start(&image[..common_prefix(&image, &video)]);
            let end = whole_end(&image[image.len() - common_suffix(&image, &video)..])
                .min(shortest - start);
            let token = |text: &str| Some(text[start..text.len() - end].to_owned());
            MediaForm {
                start: image[..start].to_owned(),
                end: image[image.len() - end..].to_owned(),
                image: token(&image),
                video: token(&video),
                parts,
            }
        }
        (image, video) => MediaForm { image, video, parts, ..MediaForm::default() },
    }
}

/// How a template treats a list of parts that it neither prints nor rejects.
fn content_parts(foreign: &ProbeRenderer<'_>) -> Option<&'static str> {
    let said = |parts: Value| {
        foreign.prompt(&Probe::default().message(json!({ "role": "user", "content": parts })))
    };
    let text = json!({ "type": "text", "text": USER });
    let one = said(json!([text]))?;
    if Some(&one) == said(json!("")).as_ref() {
        return Some("drop");
    }
    let other = said(json!([text, { "type": "audio", "audio": "https://example.com/a.wav" }]))?;
    (one.contains(USER) && other == one).then_some("drop_unknown")
}

/// How much of the common start of two placeholders precedes the tag in which they differ.
fn whole_start(shared: &str) -> usize {
    match (shared.rfind('<'), shared.rfind('>')) {
        (Some(open), close) if close.is_none_or(|close| close < open) => open,
        _ => shared.len(),
    }
}

/// How much of the common end of two placeholders follows that tag.
fn whole_end(shared: &str) -> usize {
    match (shared.find('>'), shared.find('<')) {
        (Some(close), open) if open.is_none_or(|open| close < open) => shared.len() - close - 1,
        _ => shared.len(),
    }
}
