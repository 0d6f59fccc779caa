//! Compiles the grammar of a reply. If that fails, finds the part that causes the failure.
//!
//! llguidance's errors contain no path. Some schemas pass the check and still fail to compile,
//! because of an invalid regular expression or of types that exclude each other. The parts are then
//! compiled one by one.

use serde_json::{Value, json};

use super::compilation::CompileTime;
use super::lark::SpecialTokenFinder;
use super::matcher::{Constraint, Grammars};
use super::reply::{ReplyRequirements, reply_grammar};
use super::schema::Relaxed;
use crate::api::{ToolChoice, function_name};
use crate::error::{Code, Error, Result};
use crate::output::format::Format;

/// A reply grammar, compiled.
pub struct CompiledGrammar {
    /// The text of the grammar in Lark; None if nothing is constrained.
    pub lark: Option<String>,
    /// The compiled grammar, in its start state.
    pub constraint: Option<Constraint>,
    /// The keywords that were dropped.
    pub relaxed: Vec<Relaxed>,
}

/// Builds the grammar of a reply and compiles it. If a tool's schema cannot be enforced, that is an
/// error if a call is forced or the tool is strict. Otherwise the tool's arguments may be any
/// object, and the report says so.
pub fn compile(
    grammars: &Grammars,
    format: Option<&Format>,
    requirements: &ReplyRequirements,
    specials: SpecialTokenFinder,
    time: &CompileTime,
) -> Result<CompiledGrammar> {
    let grammar = reply_grammar(format, requirements, specials)?;
    let Some(lark) = grammar.lark else {
        return Ok(CompiledGrammar { lark: None, constraint: None, relaxed: grammar.relaxed });
    };
    let error = match grammars.compile(&lark, time) {
        Ok(constraint) => {
            return Ok(CompiledGrammar {
                lark: Some(lark),
                constraint: Some(constraint),
                relaxed: grammar.relaxed,
            });
        }
        Err(error) if error.code() != Code::SchemaUnsupported => return Err(error),
        Err(error) => error,
    };
    let fails = |requirements: ReplyRequirements| {
        let lark = reply_grammar(format, &requirements, specials).ok()?.lark?;
        grammars.compile(&lark, time).err()
    };
    let alone = ReplyRequirements { tools: &[], choice: &ToolChoice::None, ..*requirements };
    if let Some(error) = fails(alone) {
        let place = if requirements.response_format.is_none() {
            "grammar"
        } else {
            "response_format.json_schema.schema"
        };
        return Err(error.about(place));
    }
    let mut tools = requirements.tools.to_vec();
    let mut relaxed = Vec::new();
    for (index, tool) in requirements.tools.iter().enumerate() {
        let single = std::slice::from_ref(tool);
        let alone = ReplyRequirements {
            tools: single,
            choice: &ToolChoice::Auto,
            response_format: None,
            grammar: None,
            ..*requirements
        };
        let Some(error) = fails(alone) else { continue };
        let name = function_name(tool);
        let place = format!("tools[{index}].function.parameters");
        if requirements.choice.forces_call() || tool["function"]["strict"] == true {
            return Err(tool_error(&error, &place, name));
        }
        tools[index]["function"]["parameters"] = json!({"type": "object"});
        relaxed.push(Relaxed {
            tool: Some(name.to_owned()),
            path: format!("{place}: /"),
            keyword: String::new(),
            reason: error.message().to_owned(),
        });
    }
    if relaxed.is_empty() {
        return Err(error);
    }
    let grammar =
        reply_grammar(format, &ReplyRequirements { tools: &tools, ..*requirements }, specials)?;
    let Some(lark) = grammar.lark else { return Err(error) };
    let constraint = grammars.compile(&lark, time)?;
    relaxed.extend(grammar.relaxed);
    Ok(CompiledGrammar { lark: Some(lark), constraint: Some(constraint), relaxed })
}

fn tool_error(error: &Error, place: &str, tool: &str) -> Error {
    Error::new(error.code(), format!("{place} ({tool}): {}", error.message()))
        .with("tool", Value::from(tool))
        .with("path", "")
        .with("reason", error.message())
}
