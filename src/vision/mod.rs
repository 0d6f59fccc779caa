//! Vision tokens: placeholders in a prompt -> what the model gets for each image and video, from
//! sizes alone.
//!
//! In: a prompt, the member `vision` of a request, what a template says of its own placeholders.
//! Out: the prompt with the i-th placeholder replaced by the i-th expansion, counts, and where the
//! bytes of the prompt stand since. Nothing is decoded, and no more is written than the limits of a
//! prompt allow. The rules are spec/compose.md §7, read in transformers 5.23.0.

mod anyres;
mod expansion;
mod limited_text;
mod placeholders;
mod preset;
mod refusal;
mod resize;
mod rows;
mod rule;
mod size;
mod tiles;

#[cfg(test)]
mod tests;

use std::ops::Range;

use serde_json::{Value, json};

pub(crate) use crate::template::edits::Edits;
pub use rule::VisionRule;

use crate::api::Fields;
use crate::error::Result;
use crate::template::Prompt;
use expansion::{Expansion, ExpansionTexts};
use limited_text::LimitedText;
use placeholders::MediaKind;
use refusal::{missing, refused, wrong};
use size::{Clip, Size};

/// Round the tokens of a step in time, where neither the rule nor the template says another text.
const STEP: (&str, &str) = ("<|vision_start|>", "<|vision_end|>");

/// What a template says of itself; a request goes before it. A template that nobody composed says
/// nothing.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct VisionDefaults {
    /// How tokens are counted.
    pub rule: Option<VisionRule>,
    /// The placeholder of an image.
    pub image_token: Option<String>,
    /// The placeholder of a video.
    pub video_token: Option<String>,
    /// The text that the template writes in front of a placeholder.
    pub vision_start: Option<String>,
    /// The text that it writes behind one.
    pub vision_end: Option<String>,
}

/// The images and videos of a request, counted.
#[derive(Debug, Clone, PartialEq)]
pub struct Vision {
    rule: VisionRule,
    image_token: Option<String>,
    video_token: Option<String>,
    /// Round a placeholder, and round each step in time of a video.
    around: (String, String),
    images: Vec<Expansion>,
    videos: Vec<Expansion>,
}

impl Vision {
    /// The member `vision`: `{"rule"?, "images": [{"h","w"}], "videos":
    /// [{"frames","h","w","fps"?}], "image_token"?, "video_token"?}`; None where there is none.
    /// Sizes in pixels, frames as they were sampled.
    ///
    /// `INVALID_REQUEST` with details `{"reason","path"}`: `missing_field`, `bad_value`,
    /// `bad_aspect`.
    pub(crate) fn read(fields: &mut Fields, defaults: &VisionDefaults) -> Result<Option<Vision>> {
        let path = fields.path("vision");
        let Some(value) = fields.get("vision") else { return Ok(None) };
        let mut own = Fields::new(&*path, value).map_err(|error| wrong(error, &path))?;
        let rule = match own.get("rule") {
            Some(rule) => {
                let (rule, unknown) = VisionRule::read(&own.path("rule"), rule)?;
                fields.ignore(unknown);
                rule
            }
            None => defaults.rule.clone().ok_or_else(|| missing(&own, "rule"))?,
        };
        let mut token = |key, default: &Option<String>| -> Result<Option<String>> {
            match own.string(key).map_err(|error| wrong(error, &own.path(key)))? {
                Some("") => {
                    Err(refused("bad_value", &own.path(key), "expected a text that is not empty"))
                }
                Some(token) => Ok(Some(token.to_owned())),
                None => Ok(default.clone().filter(|token| !token.is_empty())),
            }
        };
        let (image_token, video_token) = (
            token("image_token", &defaults.image_token)?,
            token("video_token", &defaults.video_token)?,
        );
        if image_token.is_some() && image_token == video_token {
            return Err(refused(
                "bad_value",
                &own.path("video_token"),
                "the same text as `image_token`",
            ));
        }
        let mut entries = |key| own.array(key).map_err(|error| wrong(error, &own.path(key)));
        let (images, videos) = (entries("images")?, entries("videos")?);
        for (key, entries, token) in
            [("image_token", images, &image_token), ("video_token", videos, &video_token)]
        {
            if entries.is_some_and(|entries| !entries.is_empty()) && token.is_none() {
                return Err(missing(&own, key));
            }
        }
        let mut counted =
            |key: &str,
             entries: Option<&Vec<Value>>,
             count: &dyn Fn(&mut Fields, &str) -> Result<Expansion>| {
                let read = |(index, entry)| {
                    let path = own.path(&format!("{key}[{index}]"));
                    let mut entry =
                        Fields::new(&*path, entry).map_err(|error| wrong(error, &path))?;
                    let run = count(&mut entry, &path)?;
                    fields.ignore(entry.ignored());
                    Ok(run)
                };
                entries
                    .into_iter()
                    .flatten()
                    .enumerate()
                    .map(read)
                    .collect::<Result<Vec<Expansion>>>()
            };
        let images = counted("images", images, &|entry, path| {
            rule.image(Size::read(entry, rule.reads_images())?, path)
        })?;
        let videos = counted("videos", videos, &|entry, path| {
            let none =
                || refused("bad_value", path, "this rule has no videos; send frames as images");
            let clip =
                Clip::read(entry, rule.reads_videos().ok_or_else(none)?, rule.writes_times())?;
            rule.video(clip, path)?.ok_or_else(none)
        })?;
        fields.ignore(own.ignored());
        let text = |of_rule: &Option<String>, of_template: &Option<String>, default: &str| {
            of_rule
                .as_ref()
                .or(of_template.as_ref())
                .map_or_else(|| default.to_owned(), Clone::clone)
        };
        let around = (
            text(&rule.markup.step_start, &defaults.vision_start, STEP.0),
            text(&rule.markup.step_end, &defaults.vision_end, STEP.1),
        );
        Ok(Some(Vision { image_token, video_token, around, images, videos, rule }))
    }

    /// Expands a prompt in place, and moves what is known of its bytes. `bos_token` is the
    /// template's; `limit` the bytes that the prompt may have then.
    ///
    /// `INVALID_REQUEST` with details `{"reason": "vision_count_mismatch", "path"}` where the
    /// prompt has not one placeholder for each size; `TEMPLATE_LIMIT` where the limit is too low.
    pub(crate) fn expand(
        &self,
        prompt: &mut Prompt,
        bos_token: &str,
        limit: usize,
    ) -> Result<Edits> {
        let (text, edits) = self.expanded(&prompt.text, bos_token, limit)?;
        prompt.text = text;
        for span in &mut prompt.spans {
            let range = edits.shift(&(span.start..span.end));
            (span.start, span.end) = (range.start, range.end);
        }
        prompt.spans.retain(|span| span.start < span.end);
        for range in &mut prompt.generation {
            *range = edits.shift(range);
        }
        Ok(edits)
    }

    /// `{"images": [n…], "videos": [n…]}`: tokens of each, breaks of rows among them, what stands
    /// round them not.
    pub(crate) fn to_json(&self) -> Value {
        let counts = |runs: &[Expansion]| runs.iter().map(|run| run.count()).collect::<Vec<u64>>();
        json!({ "images": counts(&self.images), "videos": counts(&self.videos) })
    }

    fn expanded(&self, prompt: &str, bos_token: &str, limit: usize) -> Result<(String, Edits)> {
        let found =
            placeholders::find(prompt, self.image_token.as_deref(), self.video_token.as_deref());
        for (kind, runs, path) in [
            (MediaKind::Image, &self.images, "vision.images"),
            (MediaKind::Video, &self.videos, "vision.videos"),
        ] {
            let placeholders = found.iter().filter(|(found, _)| *found == kind).count();
            if placeholders != runs.len() {
                let problem = format!(
                    "the prompt has {placeholders} placeholders and the request {} sizes; \
                     send one size for each, and no placeholder as text",
                    runs.len()
                );
                let error = refused("vision_count_mismatch", path, problem);
                return Err(error.with("placeholders", placeholders).with("sizes", runs.len()));
            }
        }
        let mut writing = PromptRewriter {
            prompt,
            copied: 0,
            page: LimitedText::new(limit),
            edits: Edits::default(),
        };
        let front = self.rule.markup.front.as_ref();
        if let Some(begin) = front {
            writing.replace(0..0, |page| {
                self.images
                    .iter()
                    .try_for_each(|image| self.write(*image, MediaKind::Image, page))?;
                // The template may have written it already.
                let begin = begin.as_deref().unwrap_or(bos_token);
                let text = found
                    .iter()
                    .fold(0, |text, (_, at)| if at.start == text { at.end } else { text });
                let written = self.images.is_empty() || prompt[text..].starts_with(begin);
                page.push(if written { "" } else { begin })
            })?;
        }
        let (mut images, mut videos) = (self.images.iter(), self.videos.iter());
        for (index, (kind, at)) in found.iter().enumerate() {
            let run = match kind {
                MediaKind::Image => images.next(),
                MediaKind::Video => videos.next(),
            };
            // As many as were found.
            let Some(&run) = run else { continue };
            let at = match run {
                Expansion::Steps { .. } => {
                    let free = writing.copied
                        ..found.get(index + 1).map_or(prompt.len(), |(_, next)| next.start);
                    placeholders::widened(prompt, at, (&self.around.0, &self.around.1), &free)
                }
                _ => at.clone(),
            };
            writing.replace(at, |page| {
                if front.is_some() { Ok(()) } else { self.write(run, *kind, page) }
            })?;
        }
        writing.page.push(&prompt[writing.copied..])?;
        Ok((writing.page.into_text(), writing.edits))
    }

    fn write(&self, run: Expansion, kind: MediaKind, page: &mut LimitedText) -> Result<()> {
        let markup = &self.rule.markup;
        let placeholder = match kind {
            MediaKind::Image => &self.image_token,
            MediaKind::Video => &self.video_token,
        };
        let token = markup.token.as_ref().or(placeholder.as_ref()).map_or("", String::as_str);
        run.write(
            ExpansionTexts { token, step_start: &self.around.0, step_end: &self.around.1, markup },
            page,
        )
    }
}

/// A prompt while pieces of it are replaced.
struct PromptRewriter<'a> {
    prompt: &'a str,
    /// So much of it is on the page.
    copied: usize,
    page: LimitedText,
    edits: Edits,
}

impl PromptRewriter<'_> {
    /// Replaces the next piece by what is written.
    fn replace(
        &mut self,
        piece: Range<usize>,
        write: impl FnOnce(&mut LimitedText) -> Result<()>,
    ) -> Result<()> {
        self.page.push(&self.prompt[self.copied..piece.start])?;
        let start = self.page.len();
        write(&mut self.page)?;
        self.copied = piece.end;
        self.edits.push(piece, start..self.page.len());
        Ok(())
    }
}
