//! `llb_template_render`: renders messages to a prompt.

use serde_json::{Map, Value, json};

use super::additions::{Additions, AppliedAdditions};
use super::template::RequestedTemplate;
use crate::api::{self, Fields, Polyfills, TemplateLimits};
use crate::compose::{self, Composed};
use crate::diagnostic::Diagnostic;
use crate::error::{Error, Result};
use crate::profile::ModelProfile;
use crate::template::{
    Limits, LocalTime, PolyfillTarget, Polyfilled, Prompt, RenderInput, Variables, polyfill,
};
use crate::vision::VisionDefaults;

/// The reply to a request.
pub(crate) struct RenderedMessages {
    pub(crate) prompt: String,
    pub(crate) polyfills_applied: Vec<&'static str>,
    pub(crate) diagnostics: Vec<Diagnostic>,
    /// The members that only some requests and templates have.
    pub(crate) details: Map<String, Value>,
}

impl RenderedMessages {
    /// The reply of `llb_template_render`.
    pub(super) fn into_json(self) -> Value {
        let mut reply = json!({
            "type": "rendered",
            "prompt": self.prompt,
            "polyfills_applied": self.polyfills_applied,
        });
        if let Value::Object(reply) = &mut reply {
            reply.extend(self.details);
        }
        if !self.diagnostics.is_empty() {
            reply["diagnostics"] = json!(self.diagnostics);
        }
        reply
    }
}

/// The reply to a request.
pub(super) fn render(fields: &mut Fields<'_>) -> Result<RenderedMessages> {
    let polyfills = Polyfills::read(fields)?.unwrap_or_default();
    let limits = Limits::with(&TemplateLimits::read(fields)?);
    let RequestedTemplate { sources, composed, .. } = RequestedTemplate::read(fields)?;
    let raw = fields.boolean("raw")?.unwrap_or(false);
    let polyfills = Polyfills { apply_polyfills: polyfills.apply_polyfills && !raw, ..polyfills };
    let (messages, tools) = read_conversation(fields, polyfills.apply_polyfills)?;
    let now = read_now(fields)?;
    let vision = composed.as_ref().map_or_else(VisionDefaults::default, Composed::vision);
    let additions = Additions::read(fields, &vision)?;
    let profile = ModelProfile::of(&sources)?;
    let templates = &profile.templates;
    let (add_generation_prompt, continue_final_message) = api::read_ending(fields)?;
    let target = PolyfillTarget {
        is_answered_next: add_generation_prompt && continue_final_message.is_none(),
        ..profile.polyfill_target()
    };
    let polyfilled = if polyfills.apply_polyfills {
        polyfill::apply(messages, tools, target, &polyfills)?
    } else {
        Polyfilled::untouched(messages, Vec::new())
    };
    let spans = fields.boolean("spans")?.unwrap_or(false);
    let input = RenderInput {
        messages: &polyfilled.messages,
        polyfilled: Some(&polyfilled),
        tools,
        skills: fields.objects("skills")?.map(Vec::as_slice),
        documents: fields.objects("documents")?.map(Vec::as_slice),
        add_generation_prompt,
        continue_final_message,
        kwargs: fields.object("chat_template_kwargs")?,
        now,
        raw,
        spans: spans || additions.need_spans(),
        variables: Variables::of(&polyfills),
        limits,
    };
    let mut prompt = templates
        .render(&input)
        .map_err(|error| if composed.is_some() { compose::with_reason(error) } else { error })?;
    let additions = additions.apply(
        &mut prompt,
        composed.as_ref(),
        templates,
        &input,
        (messages, profile.polyfill_target(), &polyfills),
        &sources.bos_token,
    )?;
    let notes = composed.map(|composed| composed.notes(input.messages)).unwrap_or_default();
    let mut diagnostics = polyfilled.diagnostics.clone();
    diagnostics.extend(notes);
    let polyfills_applied = polyfilled.applied.clone();
    let details = details(&prompt, spans, additions, &mut diagnostics);
    Ok(RenderedMessages { prompt: prompt.text, polyfills_applied, diagnostics, details })
}

/// Reads the messages and tools. Without polyfills every role and content is allowed, as in
/// transformers, because a template may want any.
fn read_conversation<'a>(
    fields: &mut Fields<'a>,
    polyfilled: bool,
) -> Result<(&'a [Value], Option<&'a [Value]>)> {
    let messages = if polyfilled {
        api::check_messages(fields)?
    } else {
        fields.objects("messages")?.ok_or_else(|| fields.invalid("messages", "missing"))?
    };
    let tools = fields.objects("tools")?.map(Vec::as_slice);
    if polyfilled {
        api::check_tools(fields)?;
    }
    // Some templates print an empty list, as in transformers. With polyfills it counts as no tools.
    Ok((messages, tools.filter(|tools| !polyfilled || !tools.is_empty())))
}

fn read_now(fields: &mut Fields) -> Result<LocalTime> {
    match fields.string("now")? {
        Some(text) => {
            LocalTime::parse(text).map_err(|error| Error::invalid("now", error.message()))
        }
        None => Ok(LocalTime::now()),
    }
}

fn details(
    prompt: &Prompt,
    spans: bool,
    additions: AppliedAdditions,
    diagnostics: &mut Vec<Diagnostic>,
) -> Map<String, Value> {
    let mut details = Map::new();
    if spans {
        details.insert("spans".to_owned(), prompt.spans_json());
    }
    if !prompt.generation.is_empty() {
        let ranges =
            prompt.generation.iter().map(|range| json!({ "start": range.start, "end": range.end }));
        details.insert("generation_spans".to_owned(), ranges.collect());
    }
    additions.write(&mut details, diagnostics);
    details
}
