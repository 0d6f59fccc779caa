//! Calls in a fenced block, as models write them that were trained on little of their own format.
//!
//! The reply parser takes such a block if the whole of it obeys the tool's schema
//! (`output/parser/fence.rs`); here the sampler is held to that, from where the tool's name
//! and `arguments` stand.

use super::calls::{self, Tool};
use super::lark::{Lark, Symbol, escaped};
use super::schema::{Policy, SchemaReport};
use crate::api::{function_name, function_parameters};
use crate::error::Result;

/// Text up to a fenced call, and the call: one way for each tool.
pub(super) fn ways(lark: &mut Lark, tools: &[Tool]) -> Result<Vec<Vec<Symbol>>> {
    tools.iter().map(|tool| way(lark, tool)).collect()
}

fn way(lark: &mut Lark, tool: &Tool) -> Result<Vec<Symbol>> {
    // What is not enforced is said by the calls with tags.
    let mut said = Vec::new();
    let mut report = SchemaReport::new(String::new(), None, Policy::Relax, &mut said);
    let (checked, _) = calls::object(function_parameters(tool.definition), &mut report)?;
    // The head ends with its first match, so that the blank that may follow it stands here.
    let spaced = vec![Symbol::Text(" ".into()), lark.json(&checked.json())];
    let arguments = lark.choice_rule(vec![spaced[1..].to_vec(), spaced]);
    let name = escaped(&serde_json::Value::from(function_name(tool.definition)).to_string());
    let head = lark.lazy(&format!(
        r#"/(?s:(.*\n)?[ ]*```(json|tool_call|tool_code)?[ \n]*\{{[ \n]*"name":[ ]?{name},[ \n]*"arguments":)/"#
    ));
    let close = lark.terminal(r"/[ \n]*\}[ \n]*```/");
    Ok(vec![head, arguments, close])
}
