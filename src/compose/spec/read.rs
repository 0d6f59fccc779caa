//! Reads the `components` of a request into a checked spec.

use serde_json::{Value, json};

use super::formatter::Formatter;
use super::members::{Codec, Members, Pattern};
use super::reader::SpecReader;
use super::slots::SlotPattern;
use super::{ComponentSpec, OBSERVATIONS, ReadSpec, TOOL_CALL};
use crate::compose::fault::Reason;
use crate::diagnostic::Diagnostic;
use crate::error::Result;
use crate::vision::VisionRule;

const TOOL_CALL_AS_JSON: &str = "{tool_call}";

impl ComponentSpec {
    /// Reads the spec at the JSON path `path` of the request.
    ///
    /// `INVALID_REQUEST` with `details` `{reason, path}`.
    pub(crate) fn read(value: &Value, path: &str) -> Result<ReadSpec> {
        let mut warnings = Vec::new();
        let mut reader = SpecReader::new(path, value)?;
        reader.integer("version", 1..=1)?;
        let mut spec = <ComponentSpec as Members>::read(&mut reader)?;
        spec.check(&reader)?;
        let usual_prompt = spec.assistant_template.text_before("content");
        spec.generation_prompt = spec.generation_prompt.filter(|prompt| *prompt != usual_prompt);
        if let Some(row) = spec.skill_policy.row.take()
            && reader.get("single_skill_template").is_none()
        {
            spec.single_skill_template = row;
        }
        let words = reader.get("stop_words");
        if words.is_some_and(|words| {
            *words == "" || words.as_array().is_some_and(|words| words.contains(&json!("")))
        }) {
            let path = reader.path("stop_words");
            warnings.push(Diagnostic::at(
                "empty_stop_word",
                path,
                "an empty stop word was dropped",
            ));
        }
        spec.review(path, &mut warnings);
        Ok(ReadSpec { spec, warnings, ignored: reader.finish() })
    }

    /// Checks members that depend on each other.
    fn check(&self, reader: &SpecReader<'_>) -> Result<()> {
        let fault =
            |reason, key: &str, problem: String| Err(reader.fault(reason, key, problem).into());
        if self.text_argument_template.is_some() && self.argument_template.is_none() {
            let problem = "missing; text_argument_template requires it".to_owned();
            return fault(Reason::MissingField, "argument_template", problem);
        }
        let after = self.assistant_template.text_after();
        if let Some(end) = self.assistant_end.as_deref().filter(|end| !after.starts_with(end)) {
            let problem = format!(
                "{end:?} does not begin the text after the last slot of assistant_template"
            );
            return fault(Reason::BadValue, "assistant_end", problem);
        }
        let Some(single) = &self.single_tool_template else { return Ok(()) };
        let has_members =
            ["name", "description", "parameters"].into_iter().any(|slot| single.has(slot));
        let problem = match self.tool_policy.formatter {
            Formatter::Yaml | Formatter::Xml(_) if has_members => {
                "with this formatter the only slot is {tool}"
            }
            _ if !single.has("tool") && !single.has("name") => {
                "expected {tool} or {name}; without them tools would be lost"
            }
            _ => return Ok(()),
        };
        fault(Reason::BadSlot, "single_tool_template", problem.to_owned())
    }
}

/// The codec of `observations_template`. chat-bricks also has the older name `tool_template`.
pub(super) struct Observations;

impl Codec<Option<SlotPattern>> for Observations {
    fn read(&self, reader: &mut SpecReader<'_>, key: &'static str) -> Result<Option<SlotPattern>> {
        let template = reader.pattern(key, OBSERVATIONS)?;
        let older = reader.pattern("tool_template", OBSERVATIONS)?;
        let template = template.or(older);
        if let Some(template) = &template
            && template.has("observations") == template.has("observation")
        {
            let problem =
                "expected the one slot {observations}; without it tool results would be lost";
            return Err(reader.fault(Reason::BadSlot, key, problem).into());
        }
        Ok(template)
    }

    fn to_json(&self, value: &Option<SlotPattern>) -> Value {
        OBSERVATIONS.to_json(value)
    }
}

/// The codec of `single_tool_call_template`. chat-bricks also has the older name
/// `tool_call_template`.
pub(super) struct SingleToolCall;

impl Codec<SlotPattern> for SingleToolCall {
    fn read(&self, reader: &mut SpecReader<'_>, key: &'static str) -> Result<SlotPattern> {
        let template = reader.pattern(key, TOOL_CALL)?;
        let older = reader.pattern("tool_call_template", TOOL_CALL)?;
        let Some(template) = template.or(older) else {
            return Ok(SlotPattern::parse(TOOL_CALL_AS_JSON, "", TOOL_CALL)?);
        };
        if !template.has("tool_call") && !template.has("arguments") {
            let problem = format!(
                "{:?} has neither {{tool_call}} nor {{arguments}}; without them calls would be lost",
                template.source()
            );
            return Err(reader.fault(Reason::BadSlot, key, problem).into());
        }
        Ok(template)
    }

    fn to_json(&self, value: &SlotPattern) -> Value {
        Pattern(TOOL_CALL, TOOL_CALL_AS_JSON).to_json(value)
    }
}

/// A string or a list of strings. Empty strings are dropped.
pub(super) struct StopWords;

impl Codec<Vec<String>> for StopWords {
    fn read(&self, reader: &mut SpecReader<'_>, key: &'static str) -> Result<Vec<String>> {
        let words: Vec<&str> = match reader.get(key) {
            None => Vec::new(),
            Some(Value::String(word)) => vec![word],
            Some(Value::Array(words)) if words.iter().all(Value::is_string) => {
                words.iter().filter_map(Value::as_str).collect()
            }
            Some(_) => {
                let problem = "expected a string or a list of strings";
                return Err(reader.fault(Reason::BadValue, key, problem).into());
            }
        };
        Ok(words.into_iter().filter(|word| !word.is_empty()).map(str::to_owned).collect())
    }

    fn to_json(&self, value: &Vec<String>) -> Value {
        json!(Some(value).filter(|words| !words.is_empty()))
    }
}

/// The codec of `vision_rule`, which is kept as written.
pub(super) struct CheckedVisionRule;

impl Codec<Option<Value>> for CheckedVisionRule {
    fn read(&self, reader: &mut SpecReader<'_>, key: &'static str) -> Result<Option<Value>> {
        let rule = reader.get(key);
        if let Some(rule) = rule {
            let (_, unknown) = VisionRule::read(&reader.path(key), rule)?;
            reader.ignore(unknown);
        }
        Ok(rule.cloned())
    }

    fn to_json(&self, value: &Option<Value>) -> Value {
        json!(value)
    }
}
