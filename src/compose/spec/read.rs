//! `components` of a request -> a checked spec.

use serde_json::Value;

use super::formatter::Formatter;
use super::policy::Policies;
use super::reader::SpecReader;
use super::slots::{Occurs, SlotPattern, Slots, literal};
use super::turns::TurnPolicy;
use super::{BARE_SYSTEM, ComponentSpec, ReadSpec, SKILL_ROW, UNKNOWN_ROLES, UnknownRoles};
use crate::compose::fault::Reason;
use crate::diagnostic::Diagnostic;
use crate::error::Result;
use crate::vision::VisionRule;

const SYSTEM: Slots = Slots::Of(&[
    ("system_message", Occurs::Freely),
    ("tools", Occurs::Freely),
    ("skills", Occurs::Freely),
    ("date", Occurs::Freely),
]);
const USER: Slots = Slots::Of(&[("content", Occurs::Somewhere)]);
const USER_WITH_TOOLS: Slots =
    Slots::Of(&[("content", Occurs::Somewhere), ("tools", Occurs::Freely)]);
const ASSISTANT: Slots =
    Slots::Of(&[("content", Occurs::Once), ("tool_calls", Occurs::AtMostOnce)]);
const OBSERVATIONS: Slots =
    Slots::Of(&[("observations", Occurs::AtMostOnce), ("observation", Occurs::AtMostOnce)]);
const SINGLE_OBSERVATION: Slots = Slots::Of(&[
    ("observation", Occurs::Somewhere),
    ("name", Occurs::Freely),
    ("tool_call_id", Occurs::Freely),
]);
const TOOL_CALLS: Slots = Slots::Of(&[("tool_calls", Occurs::Somewhere)]);
const TOOL_CALL: Slots = Slots::Of(&[
    ("tool_call", Occurs::Freely),
    ("name", Occurs::Freely),
    ("arguments", Occurs::Freely),
    ("id", Occurs::Freely),
]);
const CALLS_TURN: Slots =
    Slots::Of(&[("content", Occurs::AtMostOnce), ("tool_calls", Occurs::Once)]);
const EMPTY_CALLS_TURN: Slots = Slots::Of(&[("content", Occurs::AtMostOnce)]);
const ARGUMENT: Slots = Slots::Of(&[("key", Occurs::Freely), ("value", Occurs::Somewhere)]);
const TOOLS: Slots = Slots::Of(&[("tools", Occurs::Freely)]);
const TOOL: Slots = Slots::Of(&[
    ("tool", Occurs::Freely),
    ("name", Occurs::Freely),
    ("description", Occurs::Freely),
    ("parameters", Occurs::Freely),
]);
const SKILLS: Slots = Slots::Of(&[("skills", Occurs::Somewhere)]);
const REASONING: Slots = Slots::Of(&[("reasoning", Occurs::Once)]);

impl ComponentSpec {
    /// Reads the spec at `path` of the request.
    ///
    /// `INVALID_REQUEST` with `details` `{reason, path}`.
    pub(crate) fn read(value: &Value, path: &str) -> Result<ReadSpec> {
        let (mut ignored, mut warnings) = (Vec::new(), Vec::new());
        let mut reader = SpecReader::new(path, value)?;
        let r = &mut reader;
        r.integer("version", 1..=1)?;
        let name = r.text("name")?;
        let system_template = r.pattern_or("system_template", SYSTEM, BARE_SYSTEM)?;
        let user = r.pattern("user_template", USER)?;
        let assistant = r.pattern("assistant_template", ASSISTANT)?;
        let user_template = required(r, "user_template", user)?;
        let assistant_template = required(r, "assistant_template", assistant)?;
        let observations_template = observations_template(r)?;
        let single_tool_call_template = single_tool_call_template(r)?;
        let (argument_template, text_argument_template) = argument_templates(r)?;
        let single_observation_template =
            r.pattern_or("single_observation_template", SINGLE_OBSERVATION, "{observation}")?;
        let tool_calls_template =
            r.pattern_or("tool_calls_template", TOOL_CALLS, "{tool_calls}")?;
        let assistant_end = assistant_end(r, &assistant_template)?;
        let generation_prompt = r.string("generation_prompt")?.map(str::to_owned);
        if let Some(prompt) = &generation_prompt {
            literal(prompt, &r.path("generation_prompt"))?;
        }
        let stop_words = stop_words(r, &mut warnings)?;
        let skill_row = r.pattern("single_skill_template", Slots::Any)?;
        let vision_rule = r.get("vision_rule");
        if let Some(rule) = vision_rule {
            let (_, unknown) = VisionRule::read(&r.path("vision_rule"), rule)?;
            ignored.extend(unknown);
        }
        let policies = Policies::read(r, &mut ignored)?;
        let single_tool_template = single_tool_template(r, &policies.formatter)?;
        let spec = ComponentSpec {
            name,
            system_template,
            default_system_template: r.pattern("default_system_template", SYSTEM)?,
            system_message: r.text("system_message")?,
            user_template,
            user_template_with_tools: r.pattern("user_template_with_tools", USER_WITH_TOOLS)?,
            assistant_template,
            calls_turn: r.pattern("assistant_template_with_calls", CALLS_TURN)?,
            empty_calls_turn: r.pattern("assistant_template_with_empty_calls", EMPTY_CALLS_TURN)?,
            assistant_end,
            generation_prompt,
            reasoning_template: r.pattern("reasoning_template", REASONING)?,
            observations_template,
            single_observation_template,
            tool_calls_template,
            single_tool_call_template,
            argument_template,
            text_argument_template,
            tools_template: r.pattern("tools_template", TOOLS)?,
            single_tool_template,
            skills_template: r.pattern("skills_template", SKILLS)?,
            single_skill_template: match skill_row.or(policies.skill_row.clone()) {
                Some(row) => row,
                None => SlotPattern::parse(SKILL_ROW, "", Slots::Any)?,
            },
            stop_words,
            policies,
            vision_start: r.text("vision_start")?,
            vision_end: r.text("vision_end")?,
            image_token: r.string("image_token")?.map(str::to_owned),
            video_token: r.string("video_token")?.map(str::to_owned),
            vision_rule: vision_rule.cloned(),
            unknown_roles: r
                .one_of("unknown_roles", &UNKNOWN_ROLES)?
                .unwrap_or(UnknownRoles::Error),
            chat_template: r.string("chat_template")?.map(str::to_owned),
            turns: TurnPolicy::read(r)?,
        };
        reader.finish(&mut ignored);
        spec.review(path, &mut warnings);
        Ok(ReadSpec { spec, warnings, ignored })
    }
}

fn required(
    reader: &SpecReader<'_>,
    key: &str,
    pattern: Option<SlotPattern>,
) -> Result<SlotPattern> {
    Ok(pattern.ok_or_else(|| reader.fault(Reason::MissingField, key, "missing"))?)
}

/// `observations_template`, or `tool_template`, the older name in chat-bricks.
fn observations_template(r: &mut SpecReader<'_>) -> Result<Option<SlotPattern>> {
    let template = r.pattern("observations_template", OBSERVATIONS)?;
    let older = r.pattern("tool_template", OBSERVATIONS)?;
    let template = template.or(older);
    if let Some(template) = &template
        && template.has("observations") == template.has("observation")
    {
        let problem = "expected the one slot {observations}; without it tool results would be lost";
        return Err(r.fault(Reason::BadSlot, "observations_template", problem).into());
    }
    Ok(template)
}

/// `single_tool_call_template`, or `tool_call_template`, the older name in chat-bricks.
fn single_tool_call_template(r: &mut SpecReader<'_>) -> Result<SlotPattern> {
    let template = r.pattern("single_tool_call_template", TOOL_CALL)?;
    let older = r.pattern("tool_call_template", TOOL_CALL)?;
    let Some(template) = template.or(older) else {
        return Ok(SlotPattern::parse("{tool_call}", "", TOOL_CALL)?);
    };
    if !template.has("tool_call") && !template.has("arguments") {
        let problem = format!(
            "{:?} has neither {{tool_call}} nor {{arguments}}; without them calls would be lost",
            template.source()
        );
        return Err(r.fault(Reason::BadSlot, "single_tool_call_template", problem).into());
    }
    Ok(template)
}

/// `argument_template` and `text_argument_template`.
fn argument_templates(
    r: &mut SpecReader<'_>,
) -> Result<(Option<SlotPattern>, Option<SlotPattern>)> {
    let template = r.pattern("argument_template", ARGUMENT)?;
    let of_text = r.pattern("text_argument_template", ARGUMENT)?;
    if of_text.is_some() && template.is_none() {
        let problem = "missing; text_argument_template requires it";
        return Err(r.fault(Reason::MissingField, "argument_template", problem).into());
    }
    Ok((template, of_text))
}

fn assistant_end(r: &mut SpecReader<'_>, assistant: &SlotPattern) -> Result<Option<String>> {
    let end = r.string("assistant_end")?;
    if let Some(end) = end.filter(|end| !assistant.text_after().starts_with(end)) {
        let problem =
            format!("{end:?} does not begin the text after the last slot of assistant_template");
        return Err(r.fault(Reason::BadValue, "assistant_end", problem).into());
    }
    Ok(end.map(str::to_owned))
}

fn single_tool_template(
    r: &mut SpecReader<'_>,
    formatter: &Formatter,
) -> Result<Option<SlotPattern>> {
    let template = r.pattern("single_tool_template", TOOL)?;
    let Some(single) = &template else { return Ok(None) };
    let has_members =
        ["name", "description", "parameters"].into_iter().any(|slot| single.has(slot));
    let problem = match formatter {
        Formatter::Yaml | Formatter::Xml(_) if has_members => {
            "with this formatter the only slot is {tool}"
        }
        _ if !single.has("tool") && !single.has("name") => {
            "expected {tool} or {name}; without them tools would be lost"
        }
        _ => return Ok(template),
    };
    Err(r.fault(Reason::BadSlot, "single_tool_template", problem).into())
}

/// `stop_words`: a string, or a list of strings.
fn stop_words(r: &mut SpecReader<'_>, warnings: &mut Vec<Diagnostic>) -> Result<Vec<String>> {
    let path = r.path("stop_words");
    let words: Vec<&str> = match r.get("stop_words") {
        None => Vec::new(),
        Some(Value::String(word)) => vec![word],
        Some(Value::Array(words)) if words.iter().all(Value::is_string) => {
            words.iter().filter_map(Value::as_str).collect()
        }
        Some(_) => {
            let problem = "expected a string or a list of strings";
            return Err(r.fault(Reason::BadValue, "stop_words", problem).into());
        }
    };
    if words.contains(&"") {
        warnings.push(Diagnostic::at("empty_stop_word", &path, "an empty stop word was dropped"));
    }
    Ok(words.into_iter().filter(|word| !word.is_empty()).map(str::to_owned).collect())
}
