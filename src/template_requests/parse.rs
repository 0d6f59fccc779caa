//! `llb_template_parse`: parses the output of a model into a message.

use std::sync::Arc;

use serde_json::{Value, json};

use super::template::RequestedTemplate;
use crate::api::{self, Fields, ToolChoice};
use crate::diagnostic::Diagnostic;
use crate::error::{Code, Result};
use crate::output::{Format, ParsedReply, ReplyParser, ReplyParserInput};
use crate::profile::ModelProfile;
use crate::template::{RenderInput, probe_time, thinking};
use crate::validate::{self, Acceptance};

/// The reply of `llb_template_parse`.
pub(super) fn into_json(parsed: ParsedReply) -> Value {
    json!({
        "type": "message",
        "message": message_json(&parsed),
        "complete": parsed.complete,
        "diagnostics": parsed.diagnostics,
    })
}

/// The message in the output of a request, with all diagnostics. `read` passes the output to the
/// reply parser.
pub(super) fn parse(
    fields: &mut Fields<'_>,
    read: impl FnOnce(ReplyParser, &str) -> ParsedReply,
) -> Result<ParsedReply> {
    let sources = RequestedTemplate::read(fields)?.sources;
    let profile = ModelProfile::of(&sources)?;
    let output = fields.required_string("output")?;
    let tools = api::check_tools(fields)?;
    let tool_choice = api::read_tool_choice(fields, tools)?;
    let split_reasoning = fields
        .one_of("reasoning_format", &[("auto", true), ("deepseek", true), ("none", false)])?
        .unwrap_or(true);
    let prompt = match fields.string("prompt")? {
        Some(prompt) => prompt.to_owned(),
        None => generation_prompt(&profile, fields.boolean("enable_thinking")?)?,
    };
    let partial = fields.boolean("partial")?.unwrap_or(false);
    let response_format = api::read_response_format(fields)?;
    let format = profile.format();
    let shared_tools = Arc::new(tools.to_vec());
    let mut parser = ReplyParser::new(ReplyParserInput {
        format,
        tools: Arc::clone(&shared_tools),
        calls_allowed: !tools.is_empty() && tool_choice != ToolChoice::None,
        reasoning: split_reasoning,
        json: response_format.is_some(),
        parallel: fields.boolean("parallel_tool_calls")?.unwrap_or(true),
        new_id: api::call_ids(format.and_then(Format::id_length)),
    });
    let calls = Acceptance::of_arguments(shared_tools);
    parser.set_call_validator(Box::new(move |name, arguments| {
        calls.check_arguments(name, arguments)
    }));
    if !tool_choice.forces_call() {
        parser.validate_unconstrained_calls();
    }
    parser.set_untagged_calls(fields.boolean("untagged_calls")?.unwrap_or(true));
    if let Some(path) = sources.model_file.as_deref().filter(|_| !tools.is_empty()) {
        parser.set_special_openings(ModelProfile::special_markers(path)?.into());
    }
    if let Some(response) = response_format.clone() {
        let values = Acceptance::of_response(response);
        parser.set_json_validator(Box::new(move |text| values.accepts_value(text)));
    }
    if let Some(spellings) = ModelProfile::control_spellings(&sources)? {
        parser.expect_control_spellings(&spellings);
    }
    parser.expect_turn_markup(profile.turn_markup());
    parser.prime(profile.turn(&prompt), true);
    if partial {
        parser.expect_more();
    }
    let mut parsed = read(parser, output);
    // A partial output may still become what the request requires.
    let violations =
        validate::check_message(&parsed, "", tools, response_format.as_ref().filter(|_| !partial));
    let unmet = validate::check_tool_choice(&parsed, &tool_choice).filter(|_| !partial);
    let members = validate::check_members(&parsed, tools);
    parsed.diagnostics.extend(members);
    parsed.diagnostics.extend(violations.iter().map(Diagnostic::from));
    parsed.diagnostics.extend(unmet);
    Ok(parsed)
}

fn message_json(parsed: &ParsedReply) -> Value {
    let calls = parsed.tool_calls.iter().map(|call| {
        let function = json!({ "name": call.name, "arguments": call.arguments });
        json!({ "id": call.id, "type": "function", "function": function })
    });
    let calls: Vec<Value> = calls.collect();
    let mut message = json!({ "role": "assistant", "content": parsed.content });
    if let Some(reasoning) = &parsed.reasoning {
        message["reasoning_content"] = json!(reasoning);
    }
    if !calls.is_empty() {
        message["tool_calls"] = calls.into();
    }
    message
}

/// The template's generation prompt, with reasoning on or off. If it needs more than a message to be
/// rendered, the prompt is that without the switch, which is empty if it is unknown.
fn generation_prompt(profile: &ModelProfile, enable_thinking: Option<bool>) -> Result<String> {
    let Some(enabled) = enable_thinking else { return Ok(profile.generation_prompt().to_owned()) };
    let traits = profile.templates.traits();
    let requested = api::Thinking { enabled: Some(enabled), ..api::Thinking::default() };
    let kwargs = thinking::variables(&requested, traits, &serde_json::Map::new())?;
    let messages = [json!({ "role": "user", "content": "question" })];
    let now = probe_time(0);
    let input = RenderInput {
        kwargs: Some(&kwargs),
        add_generation_prompt: true,
        ..RenderInput::new(&messages, now)
    };
    match profile.templates.probe(&input) {
        Ok(prompt) => Ok(prompt.text),
        Err(error) if error.code() == Code::TemplateError => {
            Ok(profile.generation_prompt().to_owned())
        }
        Err(error) => Err(error),
    }
}
