//! `llb_template_*` requests: a chat template without a model.

use std::path::Path;

use serde_json::{Value, json};

use super::additions::Additions;
use crate::api::{self, Fields, Polyfills, TemplateLimits, ToolChoice};
use crate::compose;
use crate::compose::Composed;
use crate::diagnostic::Diagnostic;
use crate::error::{Error, Result};
use crate::gguf::ModelHeader;
use crate::output::{Format, ParsedReply, ReplyParser, ReplyParserInput};
use crate::profile::ModelProfile;
use crate::template::{
    Limits, LocalTime, Polyfilled, RenderInput, Sources, Variables, polyfill, thinking,
};
use crate::validate;
use crate::vision::VisionDefaults;

/// `llb_template_info`.
pub fn info(request: &str) -> Result<Value> {
    let request = api::parse(request, "request_json")?;
    let mut fields = Fields::new("", &request)?;
    let profile = ModelProfile::of(&Asked::read(&mut fields)?.sources)?;
    let mut reply = json!({ "type": "template_info" });
    if let Value::Object(reply) = &mut reply {
        reply.extend(profile.to_json());
        if fields.boolean("compat")? == Some(true) {
            profile.add_compat(reply);
        }
    }
    Ok(with_ignored_keys(reply, &fields))
}

/// `llb_template_render`.
pub fn render(request: &str) -> Result<Value> {
    let request = api::parse(request, "request_json")?;
    let mut fields = Fields::new("", &request)?;
    let polyfills = Polyfills::read(&mut fields)?.unwrap_or_default();
    let limits = Limits::with(&TemplateLimits::read(&mut fields)?);
    let Asked { sources, composed } = Asked::read(&mut fields)?;
    let raw = fields.boolean("raw")?.unwrap_or(false);
    let polyfills = Polyfills { apply_polyfills: polyfills.apply_polyfills && !raw, ..polyfills };
    let messages = if polyfills.apply_polyfills {
        api::check_messages(&mut fields)?
    } else {
        // What transformers takes, this takes: its templates may want any role and any content.
        fields.objects("messages")?.ok_or_else(|| fields.invalid("messages", "missing"))?
    };
    let tools = fields.objects("tools")?.map(Vec::as_slice);
    if polyfills.apply_polyfills {
        api::check_tools(&mut fields)?;
    }
    // Some templates print an empty list. transformers lets them; nobody means it.
    let tools = tools.filter(|tools| !polyfills.apply_polyfills || !tools.is_empty());
    let now = match fields.string("now")? {
        Some(text) => {
            LocalTime::parse(text).map_err(|error| Error::invalid("now", error.message()))?
        }
        None => LocalTime::now(),
    };
    let additions = Additions::read(
        &mut fields,
        &composed.as_ref().map_or_else(VisionDefaults::default, Composed::vision),
    )?;
    let profile = ModelProfile::of(&sources)?;
    let templates = &profile.templates;
    let polyfilled = if polyfills.apply_polyfills {
        polyfill::apply(messages, tools, &templates.traits().0, &polyfills)?
    } else {
        Polyfilled::untouched(messages, Vec::new())
    };
    let (add_generation_prompt, continue_final_message) = api::read_ending(&mut fields)?;
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
    let added = additions.add(
        &mut prompt,
        composed.as_ref(),
        templates,
        &input,
        (messages, &polyfills),
        &sources.bos_token,
    )?;
    let mut reply = json!({ "type": "rendered", "prompt": prompt.text, "polyfills_applied": polyfilled.applied });
    if spans {
        reply["spans"] = prompt.spans_json();
    }
    if !prompt.generation.is_empty() {
        let ranges =
            prompt.generation.iter().map(|range| json!({ "start": range.start, "end": range.end }));
        reply["generation_spans"] = ranges.collect();
    }
    let mut diagnostics = polyfilled.diagnostics.clone();
    if let Some(composed) = &composed {
        diagnostics.extend(composed.notes(input.messages));
    }
    added.report(&mut reply, &mut diagnostics);
    if !diagnostics.is_empty() {
        reply["diagnostics"] = json!(diagnostics);
    }
    Ok(with_ignored_keys(reply, &fields))
}

/// `llb_template_parse`.
pub fn parse(request: &str) -> Result<Value> {
    parse_by(request, |mut parser, output| {
        parser.push(output);
        parser.finish().1
    })
}

/// As [`parse`]; `read` hands the output to the reply parser, in pieces of any size.
pub(super) fn parse_by(
    request: &str,
    read: impl FnOnce(ReplyParser, &str) -> ParsedReply,
) -> Result<Value> {
    let request = api::parse(request, "request_json")?;
    let mut fields = Fields::new("", &request)?;
    let profile = ModelProfile::of(&Asked::read(&mut fields)?.sources)?;
    let output = fields.string("output")?.ok_or_else(|| fields.invalid("output", "missing"))?;
    let tools = api::check_tools(&mut fields)?;
    let tool_choice = api::read_tool_choice(&mut fields, tools)?;
    let told = fields
        .one_of("reasoning_format", &[("auto", true), ("deepseek", true), ("none", false)])?
        .unwrap_or(true);
    let prompt = match fields.string("prompt")? {
        Some(prompt) => prompt.to_owned(),
        None => generation_prompt(&profile, fields.boolean("enable_thinking")?)?,
    };
    let partial = fields.boolean("partial")?.unwrap_or(false);
    let response_format = api::read_response_format(&mut fields)?;
    let format = profile.format();
    let mut parser = ReplyParser::new(ReplyParserInput {
        format,
        tools: tools.to_vec().into(),
        calls_allowed: !tools.is_empty() && tool_choice != ToolChoice::None,
        reasoning: told,
        json: response_format.is_some(),
        parallel: fields.boolean("parallel_tool_calls")?.unwrap_or(true),
        new_id: api::call_ids(format.and_then(Format::id_length)),
    });
    parser.prime(profile.turn(&prompt), true);
    let parsed = read(parser, output);
    let calls: Vec<Value> = parsed
        .tool_calls
        .iter()
        .map(
            |call| json!({ "id": call.id, "type": "function", "function": { "name": call.name, "arguments": call.arguments } }),
        )
        .collect();
    let mut message = json!({ "role": "assistant", "content": parsed.content });
    if let Some(reasoning) = &parsed.reasoning {
        message["reasoning_content"] = json!(reasoning);
    }
    if !calls.is_empty() {
        message["tool_calls"] = calls.into();
    }
    // A text that goes on may still become what was asked for.
    let violations =
        validate::check_message(&parsed, tools, response_format.as_ref().filter(|_| !partial));
    let unmet = validate::check_tool_choice(&parsed, &tool_choice).filter(|_| !partial);
    let complete = parsed.complete && !partial;
    let mut diagnostics = parsed.diagnostics;
    diagnostics.extend(violations.iter().map(Diagnostic::from));
    diagnostics.extend(unmet);
    let reply = json!({
        "type": "message",
        "message": message,
        "complete": complete,
        "diagnostics": diagnostics,
    });
    Ok(with_ignored_keys(reply, &fields))
}

/// What the template adds for a reply that thinks, or does not.
fn generation_prompt(profile: &ModelProfile, thinks: Option<bool>) -> Result<String> {
    let Some(thinks) = thinks else { return Ok(profile.generation_prompt().to_owned()) };
    let traits = &profile.templates.traits().0;
    let wanted = api::Thinking { enabled: Some(thinks), ..api::Thinking::default() };
    let kwargs = thinking::variables(&wanted, traits, &serde_json::Map::new())?;
    let messages = [json!({ "role": "user", "content": "question" })];
    let now = LocalTime::parse("2024-07-26T00:00:00")?;
    let input = RenderInput {
        kwargs: Some(&kwargs),
        add_generation_prompt: true,
        ..RenderInput::new(&messages, now)
    };
    profile.templates.probe(&input).map(|prompt| prompt.text)
}

/// The template that a request is about.
struct Asked {
    sources: Sources,
    /// Where it was made of `components`.
    composed: Option<Composed>,
}

impl Asked {
    /// By `chat_template`, `gguf` or `components`.
    fn read(fields: &mut Fields) -> Result<Asked> {
        let (components, gguf, given) =
            (fields.get("components"), fields.string("gguf")?, fields.get("chat_template"));
        let composed =
            components.map(|components| Composed::of(components, "components")).transpose()?;
        composed.iter().for_each(|composed| fields.ignore(composed.ignored().to_vec()));
        let mut sources = match (&composed, gguf, given) {
            (None, None, None) => {
                return Err(
                    fields.invalid("chat_template", "missing (or give `components` or `gguf`)")
                );
            }
            (Some(composed), None, None) => composed.sources(),
            (None, Some(path), None) => {
                ModelProfile::sources(&ModelHeader::read_file(Path::new(path))?, None)
            }
            (None, None, Some(Value::String(text))) => {
                Sources { default: Some(text.clone()), ..Sources::default() }
            }
            (None, None, Some(Value::Array(named))) => read_named(fields, named)?,
            (None, None, Some(_)) => {
                return Err(fields.invalid(
                    "chat_template",
                    "expected a string or an array of {name, template}",
                ));
            }
            (None, Some(_), Some(_)) => {
                return Err(fields.invalid("gguf", "give either this or `chat_template`"));
            }
            (Some(_), ..) => {
                return Err(fields
                    .invalid("components", "give this alone, without `chat_template` and `gguf`"));
            }
        };
        if let Some(token) = fields.string("bos_token")? {
            token.clone_into(&mut sources.bos_token);
        }
        if let Some(token) = fields.string("eos_token")? {
            token.clone_into(&mut sources.eos_token);
        }
        Ok(Asked { sources, composed })
    }
}

fn read_named(fields: &Fields, named: &[Value]) -> Result<Sources> {
    let mut sources = Sources::default();
    for (index, entry) in named.iter().enumerate() {
        let mut entry = Fields::new(fields.path(&format!("chat_template[{index}]")), entry)?;
        let name = entry.string("name")?.ok_or_else(|| entry.invalid("name", "missing"))?;
        let template =
            entry.string("template")?.ok_or_else(|| entry.invalid("template", "missing"))?;
        match name {
            "default" => sources.default = Some(template.to_owned()),
            "tool_use" => sources.tool_use = Some(template.to_owned()),
            // Other variants (rag, …) are never chosen by a request.
            _ => {}
        }
    }
    Ok(sources)
}

fn with_ignored_keys(mut reply: Value, fields: &Fields) -> Value {
    let ignored = fields.ignored();
    if !ignored.is_empty() {
        reply["ignored_keys"] = json!(ignored);
    }
    reply
}
