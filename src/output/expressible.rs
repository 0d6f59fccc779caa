//! What a format can carry: the calls that are read as they were written.
//!
//! In: a format, and the names and keys of a request. Out: whether the text that the call writer
//! writes for them is read as the same call and nothing else. This is the only rule. A request is
//! checked with it before anything is generated, and the grammar contains only what passes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};

use super::call_writer::{ValueStyle, WrittenCall, section};
use super::format::{CallSyntax, Format};
use super::parser::{PreparedFormat, ReplyParser, ReplyParserInput};
pub(crate) use super::read::ValueEnds;
use crate::json;

/// The tool of a call that has the key to be tried.
const TOOL: &str = "f";

/// Tries what a format can carry.
pub(crate) struct ExpressibleCalls<'a> {
    format: &'a Format,
    calls: &'a CallSyntax,
    pub(crate) prepared: PreparedFormat,
    /// The keys that were tried: by key, and whether it is nested.
    keys: Mutex<HashMap<(String, bool), bool>>,
}

impl<'a> ExpressibleCalls<'a> {
    /// None if the format has no calls.
    pub(crate) fn new(format: &'a Format) -> Option<ExpressibleCalls<'a>> {
        let calls = format.calls.as_ref()?;
        let prepared = PreparedFormat::new(format);
        Some(ExpressibleCalls { format, calls, prepared, keys: Mutex::default() })
    }

    /// Whether a call can have this name, among these tools.
    pub(crate) fn name(&self, name: &str, tools: &Arc<Vec<Value>>) -> bool {
        self.call(name, &json!({}), tools)
    }

    /// Whether arguments can have this key; with `nested`, in an object inside of them.
    pub(crate) fn key(&self, key: &str, nested: bool) -> bool {
        let entry = (key.to_owned(), nested);
        let mut keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        *keys.entry(entry).or_insert_with(|| {
            let (mut arguments, mut schema) = (json!({ key: 1 }), json!({"properties": {key: {}}}));
            if nested {
                schema["type"] = "object".into();
                (arguments, schema) =
                    (json!({ "a": arguments }), json!({"properties": {"a": schema}}));
            }
            let tool = json!({"function": {"name": TOOL, "parameters": schema}});
            self.call(TOOL, &arguments, &Arc::new(vec![tool]))
        })
    }

    /// Whether this call is read as it is written.
    pub(crate) fn call(&self, name: &str, arguments: &Value, tools: &Arc<Vec<Value>>) -> bool {
        let id = "aB3dE6gH9".chars().cycle().take(self.format.id_length().unwrap_or(9)).collect();
        let call = WrittenCall { name: name.to_owned(), arguments: arguments.clone(), id };
        let style = if self.calls.is_python() { ValueStyle::repr() } else { ValueStyle::default() };
        let text = section(self.calls, &[call], style);
        // The prompt ends with the start of the first message.
        let turn = self.format.channels.as_ref().map_or("", |channels| &*channels.turn);
        let input = ReplyParserInput {
            format: Some(self.format),
            tools: Arc::clone(tools),
            calls_allowed: true,
            reasoning: true,
            json: false,
            parallel: true,
            new_id: Box::new(String::new),
        };
        let mut parser = ReplyParser::with_prepared(&self.prepared, input);
        if !turn.is_empty() {
            parser.prime(turn, false);
        }
        parser.push(text.strip_prefix(turn).unwrap_or(&text));
        let (_, parsed) = parser.finish();
        let [read] = parsed.tool_calls.as_slice() else { return false };
        read.name == name
            && parsed.content.trim().is_empty()
            && json::value(&read.arguments).is_ok_and(|read| read == *arguments)
    }
}
