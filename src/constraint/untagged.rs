//! Calls without the model's own tags: in a fenced block, or bare at the start of a reply.
//!
//! Models do so that were trained on little of their own format. The recogniser takes such a call if the rest of it obeys the
//! schema (`output/recogniser/fenced.rs`); here the sampler is held to that, from where a tool's name and `arguments` stand.

use super::calls::{self, Tool};
use super::lark::{Lark, Piece, escaped};
use super::schema::{Policy, Report};
use crate::api::function_name;
use crate::error::Result;

/// The call of one tool.
#[derive(Debug, Clone)]
pub(super) struct Untagged {
    /// Text up to a fenced block, and the block.
    pub(super) fenced: Vec<Piece>,
    /// One JSON object.
    pub(super) bare: Vec<Piece>,
}

/// One for each tool.
pub(super) fn heads(lark: &mut Lark, tools: &[Tool]) -> Result<Vec<Untagged>> {
    tools.iter().map(|tool| head(lark, tool)).collect()
}

fn head(lark: &mut Lark, tool: &Tool) -> Result<Untagged> {
    // What is not enforced is said by the calls with tags.
    let mut said = Vec::new();
    let mut report = Report::new(String::new(), None, Policy::Relax, &mut said);
    let (checked, _) = calls::object(crate::api::function_parameters(tool.definition), &mut report)?;
    // The head ends with its first match, so that what may follow it stands here.
    let blank = vec![Piece::Text(" ".into()), lark.json(&checked.json())];
    let arguments = lark.choice_rule(vec![blank[1..].to_vec(), blank]);
    let name = serde_json::Value::from(function_name(tool.definition)).to_string();
    let object = format!(r#"\{{[ \n]*"name":[ ]?{},[ \n]*"arguments":"#, escaped(&name));
    let fence = lark.lazy(&format!(r"/(?s:(.*\n)?[ ]*```(json|tool_call|tool_code)?[ \n]*{object})/"));
    let bare = lark.lazy(&format!(r"/[ \n]*{object}/"));
    let close = lark.terminal(r"/[ \n]*\}[ \n]*```/");
    let brace = lark.terminal(r"/[ \n]*\}/");
    Ok(Untagged { fenced: vec![fence, arguments.clone(), close], bare: vec![bare, arguments, brace] })
}
