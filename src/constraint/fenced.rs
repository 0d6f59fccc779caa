//! Calls in a fenced block, as written by models with little training on their own format.
//!
//! The reply parser accepts such a block if all of it matches the tool's schema
//! (`output/parser/states/fence.rs`). The grammar enforces the match from the tool's name and `arguments`
//! on.

use super::calls::{self, AllowedTool};
use super::lark::{Lark, Symbol, escaped};
use super::schema::{Policy, SchemaReport};
use crate::api::{function_name, function_parameters};
use crate::error::Result;

/// The alternatives of text followed by a fenced call, one for each tool.
pub(super) fn ways(lark: &mut Lark, tools: &[AllowedTool]) -> Result<Vec<Vec<Symbol>>> {
    tools.iter().map(|tool| way(lark, tool)).collect()
}

fn way(lark: &mut Lark, tool: &AllowedTool) -> Result<Vec<Symbol>> {
    // Dropped keywords are already reported for the calls in tags.
    let mut relaxed = Vec::new();
    let mut report = SchemaReport::new(String::new(), None, Policy::Relax, &mut relaxed);
    let (checked, _) = calls::arguments_schema(function_parameters(tool.definition), &mut report)?;
    // The head ends at its first match, so the optional space after it is part of the arguments.
    let spaced = vec![Symbol::Text(" ".into()), lark.json(&checked.json())];
    let arguments = lark.choice_rule(vec![spaced[1..].to_vec(), spaced]);
    let name = escaped(&serde_json::Value::from(function_name(tool.definition)).to_string());
    let head = lark.lazy(&format!(
        r#"/(?s:(.*\n)?[ ]*```(json|tool_call|tool_code)?[ \n]*\{{[ \n]*"name":[ ]?{name},[ \n]*"arguments":)/"#
    ));
    let close = lark.terminal(r"/[ \n]*\}[ \n]*```/");
    Ok(vec![head, arguments, close])
}
