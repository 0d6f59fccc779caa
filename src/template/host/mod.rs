//! Work that a composed template leaves to the host because Jinja cannot do it.

mod yaml;

use std::borrow::Cow;

use serde_json::{Value, json};

use crate::json;

/// The work before each render. Most templates need none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HostWork {
    /// Whether and how to fill the variable `tools_yaml`.
    pub(crate) tools_yaml: Option<ToolsYaml>,
    /// Whether to parse call arguments that are JSON text.
    pub(crate) object_arguments: bool,
}

/// The form of the variable `tools_yaml`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ToolsYaml {
    /// Whether it is a list with one text per tool instead of one text for all tools.
    pub(crate) each: bool,
    /// Whether to use the tools' `function` members.
    pub(crate) pick_function: bool,
    /// Whether to fill the variable for an empty list too.
    pub(crate) empty: bool,
}

impl HostWork {
    /// Bytes that differ exactly if the work differs, for hashes and comparisons.
    pub fn key(&self) -> [u8; 5] {
        let yaml = self.tools_yaml;
        [
            yaml.is_some().into(),
            yaml.is_some_and(|yaml| yaml.each).into(),
            yaml.is_some_and(|yaml| yaml.pick_function).into(),
            yaml.is_some_and(|yaml| yaml.empty).into(),
            self.object_arguments.into(),
        ]
    }

    /// The variables that the host adds.
    pub(crate) fn names(&self) -> Vec<&'static str> {
        self.tools_yaml.iter().map(|_| "tools_yaml").collect()
    }

    /// The value of `tools_yaml`, if the template uses it and tools are declared.
    pub(crate) fn tools_yaml(&self, tools: &[Value]) -> Option<Value> {
        let ToolsYaml { each, pick_function, empty } = self.tools_yaml?;
        if tools.is_empty() && !empty {
            return None;
        }
        let tools = tools.iter().map(|tool| match tool.get("function") {
            Some(function) if pick_function => function.clone(),
            _ => tool.clone(),
        });
        Some(if each {
            tools.map(|tool| Value::String(yaml::document(&json!([tool])))).collect()
        } else {
            Value::String(yaml::document(&tools.collect()))
        })
    }

    /// The messages with arguments parsed, if the template requires that and some arguments are
    /// JSON text.
    pub(crate) fn messages<'a>(&self, messages: &'a [Value]) -> Cow<'a, [Value]> {
        let is_text = |call: &Value| arguments(call).is_some_and(Value::is_string);
        let has_text = |message: &Value| {
            message["tool_calls"].as_array().is_some_and(|calls| calls.iter().any(is_text))
        };
        if !self.object_arguments || !messages.iter().any(has_text) {
            return Cow::Borrowed(messages);
        }
        let mut messages = messages.to_vec();
        for message in &mut messages {
            let calls = message.get_mut("tool_calls").and_then(Value::as_array_mut);
            for call in calls.into_iter().flatten() {
                let Some(arguments) = arguments_mut(call) else { continue };
                if let Some(parsed) = arguments.as_str().and_then(|text| json::value(text).ok()) {
                    *arguments = parsed;
                }
            }
        }
        Cow::Owned(messages)
    }
}

fn holder(call: &Value) -> &'static str {
    if call["type"] == "function" || call.get("arguments").is_none() {
        "/function/arguments"
    } else {
        "/arguments"
    }
}

fn arguments(call: &Value) -> Option<&Value> {
    call.pointer(holder(call))
}

fn arguments_mut(call: &mut Value) -> Option<&mut Value> {
    let place = holder(call);
    call.pointer_mut(place)
}
