//! Vision tokens: expands the placeholders in a prompt to the tokens that each image and video
//! takes, from their sizes alone.
//!
//! In: a prompt, the member `vision` of a request, the defaults of a template. Out: the prompt with
//! the i-th placeholder replaced by the i-th expansion, token counts, and the edits that map
//! offsets. No media is decoded, and no more than the limit of a prompt is written. The rules are
//! in docs/vision.md and come from transformers 5.23.0.

mod expansion;
mod placeholders;
mod preset;
mod rule;
mod size;
mod token_counts;

#[cfg(test)]
mod tests;

use std::ops::Range;

use serde_json::{Value, json};

pub(crate) use crate::template::edits::Edits;
pub use rule::VisionRule;

use crate::api::Fields;
use crate::error::Result;
use crate::template::Prompt;
use expansion::{Expansion, ExpansionTexts, LimitedText};
use placeholders::MediaKind;
use size::{Clip, Size, missing, refused};

/// The texts before and after a time step, unless the rule or the template defines others.
const STEP: (&str, &str) = ("<|vision_start|>", "<|vision_end|>");

/// The defaults that a composed template declares; a request overrides them. Other templates
/// declare none.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct VisionDefaults {
    /// The rule that counts tokens.
    pub rule: Option<VisionRule>,
    /// The placeholder of an image.
    pub image_token: Option<String>,
    /// The placeholder of a video.
    pub video_token: Option<String>,
    /// The text that the template writes before a placeholder.
    pub vision_start: Option<String>,
    /// The text that the template writes after a placeholder.
    pub vision_end: Option<String>,
}

/// The images and videos of a request, with their token counts.
#[derive(Debug, Clone, PartialEq)]
pub struct Vision {
    rule: VisionRule,
    image_token: Option<String>,
    video_token: Option<String>,
    /// The texts before and after a placeholder, and before and after each time step of a video.
    wrapper: (String, String),
    images: Vec<Expansion>,
    videos: Vec<Expansion>,
}

impl Vision {
    /// Reads the member `vision`: `{"rule"?, "images": [{"h","w"}], "videos":
    /// [{"frames","h","w","fps"?}], "image_token"?, "video_token"?}`; `None` if the member is
    /// absent. Sizes are in pixels, and `frames` counts the sampled frames.
    ///
    /// `INVALID_REQUEST` with details `{"reason","path"}`: `missing_field`, `bad_value`,
    /// `bad_aspect`.
    pub(crate) fn read(fields: &mut Fields, defaults: &VisionDefaults) -> Result<Option<Vision>> {
        let path = fields.path("vision");
        let Some(value) = fields.get("vision") else { return Ok(None) };
        let mut own = Fields::with_details(&path, value)?;
        let rule = match own.get("rule") {
            Some(rule) => {
                let (rule, unknown) = VisionRule::read(&own.path("rule"), rule)?;
                fields.ignore(unknown);
                rule
            }
            None => defaults.rule.clone().ok_or_else(|| missing(&own, "rule"))?,
        };
        // The placeholder from the request, or else from the template.
        let mut token = |key: &'static str, default: &Option<String>| -> Result<Option<String>> {
            let default = default.clone().filter(|token| !token.is_empty());
            Ok(rule::token(&mut own, key)?.or(default))
        };
        let image_token = token("image_token", &defaults.image_token)?;
        let video_token = token("video_token", &defaults.video_token)?;
        if image_token.is_some() && image_token == video_token {
            return Err(refused(
                "bad_value",
                &own.path("video_token"),
                "must differ from `image_token`",
            ));
        }
        let (images, videos) = (own.array("images")?, own.array("videos")?);
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
                    let mut entry = Fields::with_details(&path, entry)?;
                    let expansion = count(&mut entry, &path)?;
                    fields.ignore(entry.ignored());
                    Ok(expansion)
                };
                entries
                    .into_iter()
                    .flatten()
                    .enumerate()
                    .map(read)
                    .collect::<Result<Vec<Expansion>>>()
            };
        let images = counted("images", images, &|entry, path| {
            rule.image(Size::read(entry, rule.needs_image_size())?, path)
        })?;
        let videos = counted("videos", videos, &|entry, path| {
            let none = || {
                refused(
                    "bad_value",
                    path,
                    "this rule does not support videos; send the frames as images",
                )
            };
            let clip =
                Clip::read(entry, rule.needs_video_size().ok_or_else(none)?, rule.writes_times())?;
            rule.video(clip, path)?.ok_or_else(none)
        })?;
        fields.ignore(own.ignored());
        let text = |of_rule: &Option<String>, of_template: &Option<String>, default: &str| {
            of_rule
                .as_ref()
                .or(of_template.as_ref())
                .map_or_else(|| default.to_owned(), Clone::clone)
        };
        let wrapper = (
            text(&rule.markup.step_start, &defaults.vision_start, STEP.0),
            text(&rule.markup.step_end, &defaults.vision_end, STEP.1),
        );
        Ok(Some(Vision { image_token, video_token, wrapper, images, videos, rule }))
    }

    /// Expands a prompt in place and moves its spans. `bos_token` is the template's; `limit` is the
    /// most bytes that the expanded prompt may have.
    ///
    /// `INVALID_REQUEST` with details `{"reason": "vision_count_mismatch", "path"}` if the numbers
    /// of placeholders and sizes differ; `TEMPLATE_LIMIT` if the prompt would exceed the limit.
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

    /// `{"images": [n…], "videos": [n…]}`: the tokens of each image and video, including row
    /// breaks, without the surrounding markup.
    pub(crate) fn to_json(&self) -> Value {
        let counts = |expansions: &[Expansion]| {
            expansions.iter().map(|one| one.count()).collect::<Vec<u64>>()
        };
        json!({ "images": counts(&self.images), "videos": counts(&self.videos) })
    }

    fn expanded(&self, prompt: &str, bos_token: &str, limit: usize) -> Result<(String, Edits)> {
        let found =
            placeholders::find(prompt, self.image_token.as_deref(), self.video_token.as_deref());
        for (kind, expansions, path) in [
            (MediaKind::Image, &self.images, "vision.images"),
            (MediaKind::Video, &self.videos, "vision.videos"),
        ] {
            let placeholders = found.iter().filter(|(found, _)| *found == kind).count();
            if placeholders != expansions.len() {
                let problem = format!(
                    "the prompt has {placeholders} placeholders, but the request has {} sizes; \
                     send one size per placeholder, and no placeholder in the text",
                    expansions.len()
                );
                let error = refused("vision_count_mismatch", path, problem);
                return Err(error
                    .with("placeholders", placeholders)
                    .with("sizes", expansions.len()));
            }
        }
        let mut rewriter = PromptRewriter {
            prompt,
            copied: 0,
            out: LimitedText::new(limit),
            edits: Edits::default(),
        };
        let front = self.rule.markup.front.as_ref();
        if let Some(begin) = front {
            rewriter.replace(0..0, |out| {
                self.images
                    .iter()
                    .try_for_each(|image| self.write(*image, MediaKind::Image, out))?;
                // The template may already have written the begin token.
                let begin = begin.as_deref().unwrap_or(bos_token);
                let text = found
                    .iter()
                    .fold(0, |text, (_, at)| if at.start == text { at.end } else { text });
                let written = self.images.is_empty() || prompt[text..].starts_with(begin);
                out.push(if written { "" } else { begin })
            })?;
        }
        let (mut images, mut videos) = (self.images.iter(), self.videos.iter());
        for (index, (kind, at)) in found.iter().enumerate() {
            let expansion = match kind {
                MediaKind::Image => images.next(),
                MediaKind::Video => videos.next(),
            };
            // The two counts were compared above.
            let Some(&expansion) = expansion else { continue };
            let at = match expansion {
                Expansion::Steps { .. } => {
                    let free = rewriter.copied
                        ..found.get(index + 1).map_or(prompt.len(), |(_, next)| next.start);
                    placeholders::with_wrapper(
                        prompt,
                        at,
                        (&self.wrapper.0, &self.wrapper.1),
                        &free,
                    )
                }
                _ => at.clone(),
            };
            rewriter.replace(at, |out| {
                if front.is_some() { Ok(()) } else { self.write(expansion, *kind, out) }
            })?;
        }
        rewriter.out.push(&prompt[rewriter.copied..])?;
        Ok((rewriter.out.into_text(), rewriter.edits))
    }

    fn write(&self, expansion: Expansion, kind: MediaKind, out: &mut LimitedText) -> Result<()> {
        let markup = &self.rule.markup;
        let placeholder = match kind {
            MediaKind::Image => &self.image_token,
            MediaKind::Video => &self.video_token,
        };
        let token = markup.token.as_ref().or(placeholder.as_ref()).map_or("", String::as_str);
        expansion.write(
            ExpansionTexts {
                token,
                step_start: &self.wrapper.0,
                step_end: &self.wrapper.1,
                markup,
            },
            out,
        )
    }
}

/// A prompt in which pieces are being replaced.
struct PromptRewriter<'a> {
    prompt: &'a str,
    /// The number of bytes of the prompt that were copied so far.
    copied: usize,
    out: LimitedText,
    edits: Edits,
}

impl PromptRewriter<'_> {
    /// Copies the text up to `piece` and writes its replacement.
    fn replace(
        &mut self,
        piece: Range<usize>,
        write: impl FnOnce(&mut LimitedText) -> Result<()>,
    ) -> Result<()> {
        self.out.push(&self.prompt[self.copied..piece.start])?;
        let start = self.out.len();
        write(&mut self.out)?;
        self.copied = piece.end;
        self.edits.push(piece, start..self.out.len());
        Ok(())
    }
}
