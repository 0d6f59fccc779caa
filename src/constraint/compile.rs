//! Compiles the grammar of a reply. If that fails, finds the part that causes the failure.
//!
//! llguidance's errors contain no path. Some schemas pass the check and still fail to compile,
//! because of an invalid regular expression or of types that exclude each other. The parts are then
//! compiled one by one.

use std::sync::Arc;

use serde_json::{Value, json};

use super::call_texts::CallTexts;
use super::compilation::CompileTime;
use super::lark::SpecialTokenFinder;
use super::matcher::{Constraint, Grammars};
use super::reply::{RESPONSE_SCHEMA, ReplyRequirements, allowed_tools, reply_grammar};
use super::schema::Relaxed;
use crate::api::{ResponseFormat, ToolChoice, function_name, is_strict};
use crate::error::{Code, Error, Result};
use crate::json_schema::{child, type_names};
use crate::output::format::Format;

/// The most properties of a request's tools that are compiled one by one.
const MAX_PROPERTIES: usize = 64;

/// A reply grammar, compiled.
pub struct CompiledGrammar {
    /// The text of the grammar in Lark; None if nothing is constrained.
    pub lark: Option<String>,
    /// The compiled grammar, in its start state.
    pub constraint: Option<Constraint>,
    /// The texts of calls that `constraint` knows.
    pub call_texts: Arc<CallTexts>,
    /// The keywords that were dropped.
    pub relaxed: Vec<Relaxed>,
}

/// Builds the grammar of a reply and compiles it. If a schema cannot be enforced, that is an error
/// if it is strict. Otherwise the parameters of a tool that cause it may be any value of their type;
/// if none alone does, the arguments may be any object. The JSON of `response_format` may be any
/// value of its type. The report says so.
pub fn compile(
    grammars: &Grammars,
    format: Option<&Format>,
    requirements: &ReplyRequirements,
    specials: SpecialTokenFinder,
    time: &CompileTime,
) -> Result<CompiledGrammar> {
    let grammar = reply_grammar(format, requirements, specials)?;
    let compiled = |lark: Option<(String, Constraint)>, relaxed| {
        let call_texts = Arc::new(call_texts(format, requirements, specials));
        let (lark, constraint) = lark.unzip();
        let with_texts = |it: Constraint| it.with_call_texts(Arc::clone(&call_texts));
        let constraint = constraint.map(with_texts);
        CompiledGrammar { lark, constraint, call_texts, relaxed }
    };
    let Some(lark) = grammar.lark else { return Ok(compiled(None, grammar.relaxed)) };
    let error = match grammars.compile(&lark, time) {
        Ok(constraint) => return Ok(compiled(Some((lark, constraint)), grammar.relaxed)),
        Err(error) if error.code() != Code::SchemaUnsupported => return Err(error),
        Err(error) => error,
    };
    let fails = |requirements: ReplyRequirements| {
        let lark = reply_grammar(format, &requirements, specials).ok()?.lark?;
        grammars.compile(&lark, time).err()
    };
    let alone = ReplyRequirements { tools: &[], choice: &ToolChoice::None, ..*requirements };
    let mut response = None;
    let mut relaxed = Vec::new();
    if let Some(error) = fails(alone) {
        match requirements.response_format {
            Some(ResponseFormat::JsonSchema { schema, strict: false }) => {
                response = Some(ResponseFormat::JsonSchema {
                    schema: without_keywords(schema),
                    strict: false,
                });
                relaxed.push(Relaxed {
                    tool: None,
                    path: format!("{RESPONSE_SCHEMA}: /"),
                    keyword: String::new(),
                    reason: error.message().to_owned(),
                });
            }
            Some(_) => return Err(error.about(RESPONSE_SCHEMA)),
            None => return Err(error.about("grammar")),
        }
    }
    let mut tools = requirements.tools.to_vec();
    let mut properties_left = MAX_PROPERTIES;
    for (index, tool) in requirements.tools.iter().enumerate() {
        let fails_alone = |tool: &Value| {
            fails(ReplyRequirements {
                tools: std::slice::from_ref(tool),
                choice: &ToolChoice::Auto,
                response_format: None,
                grammar: None,
                ..*requirements
            })
        };
        let Some(error) = fails_alone(tool) else { continue };
        let name = function_name(tool);
        let place = format!("tools[{index}].function.parameters");
        if is_strict(tool) {
            return Err(tool_error(&error, &place, name));
        }
        let (loose, lost) =
            loosened(tool, &mut properties_left, fails_alone).unwrap_or_else(|| {
                let mut loose = tool.clone();
                loose["function"]["parameters"] = json!({"type": "object"});
                (loose, vec![("/".to_owned(), error)])
            });
        tools[index] = loose;
        relaxed.extend(lost.into_iter().map(|(pointer, error)| Relaxed {
            tool: Some(name.to_owned()),
            path: format!("{place}: {pointer}"),
            keyword: String::new(),
            reason: error.message().to_owned(),
        }));
    }
    if relaxed.is_empty() {
        return Err(error);
    }
    let response_format = response.as_ref().or(requirements.response_format);
    let enforceable = ReplyRequirements { tools: &tools, response_format, ..*requirements };
    let grammar = reply_grammar(format, &enforceable, specials)?;
    let Some(lark) = grammar.lark else { return Err(error) };
    let constraint = grammars.compile(&lark, time)?;
    relaxed.extend(grammar.relaxed);
    Ok(compiled(Some((lark, constraint)), relaxed))
}

/// The texts of the calls that a request allows.
fn call_texts(
    format: Option<&Format>,
    requirements: &ReplyRequirements,
    specials: SpecialTokenFinder,
) -> CallTexts {
    let Some(calls) = format.and_then(|format| format.calls.as_ref()) else {
        return CallTexts::default();
    };
    let tools: Vec<&Value> =
        allowed_tools(requirements).into_iter().map(|tool| tool.definition).collect();
    CallTexts::new(calls, &tools, specials)
}

/// The tool with the properties that fail alone reduced to their types, and their pointers. `None` if
/// that does not help.
fn loosened(
    tool: &Value,
    properties_left: &mut usize,
    fails: impl Fn(&Value) -> Option<Error>,
) -> Option<(Value, Vec<(String, Error)>)> {
    let properties = tool["function"]["parameters"]["properties"].as_object()?;
    *properties_left = properties_left.checked_sub(properties.len())?;
    let mut loose = tool.clone();
    let mut lost = Vec::new();
    for (name, schema) in properties {
        let mut single = tool.clone();
        single["function"]["parameters"]["properties"] = json!({ name: schema });
        // An optional property that no value fits would only be left out.
        single["function"]["parameters"]["required"] = json!([name]);
        if let Some(error) = fails(&single) {
            let place = &mut loose["function"]["parameters"]["properties"][name];
            *place = without_keywords(schema);
            lost.push((child("/properties", name), error));
        }
    }
    (!lost.is_empty() && fails(&loose).is_none()).then_some((loose, lost))
}

/// A schema that keeps only the type of this one.
fn without_keywords(schema: &Value) -> Value {
    match type_names(schema.get("type")) {
        Some(names) => json!({ "type": names }),
        None => json!({}),
    }
}

fn tool_error(error: &Error, place: &str, tool: &str) -> Error {
    Error::new(error.code(), format!("{place} ({tool}): {}", error.message()))
        .with("tool", Value::from(tool))
        .with("path", "")
        .with("reason", error.message())
}
