//! The tools of a request, by name.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::Value;

/// The request's tools, with the index of each name.
#[derive(Debug, Default)]
pub(crate) struct RequestTools {
    tools: Arc<Vec<Value>>,
    indices: HashMap<String, usize>,
}

impl RequestTools {
    pub(crate) fn new(tools: Arc<Vec<Value>>) -> RequestTools {
        let named = tools.iter().enumerate().filter_map(|(index, tool)| {
            let name = function(tool).get("name")?.as_str()?;
            Some((name.to_owned(), index))
        });
        RequestTools { indices: named.collect(), tools }
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &String> {
        self.indices.keys()
    }

    /// Whether a name is the name of a tool, or ends with one.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.tool_name(name).is_some()
    }

    /// Whether this is exactly the name of a tool.
    pub(crate) fn is_name(&self, name: &str) -> bool {
        self.indices.contains_key(name)
    }

    /// Whether the name of a tool begins with this text and this character.
    pub(crate) fn begins_name(&self, text: &str, c: char) -> bool {
        self.names().any(|name| name.strip_prefix(text).is_some_and(|rest| rest.starts_with(c)))
    }

    /// The name of the tool that is meant by this name. Models that were trained on tools in a
    /// namespace write it before the name: `functions.f`, `default_api.f`.
    pub(crate) fn tool_name<'a>(&self, name: &'a str) -> Option<&'a str> {
        let own = || name.rsplit_once(['.', ':', '/']).map(|(_, own)| own);
        let known = |name: &&str| self.indices.contains_key(*name);
        Some(name).filter(known).or_else(|| own().filter(known))
    }

    /// The schema of a tool's arguments; `None` if the tool is unknown or has no schema.
    pub(crate) fn schema(&self, name: &str) -> Option<&Value> {
        let index = self.indices.get(self.tool_name(name)?)?;
        function(self.tools.get(*index)?).get("parameters")
    }

    /// Whether a tool's schema names this parameter.
    pub(crate) fn has_parameter(&self, name: &str, parameter: &str) -> bool {
        let schema = self.schema(name);
        schema.is_some_and(|schema| schema["properties"].get(parameter).is_some())
    }

    /// Whether a tool can be called without arguments.
    pub(crate) fn needs_no_arguments(&self, name: &str) -> bool {
        let required = self.schema(name).and_then(|schema| schema.get("required")?.as_array());
        self.has(name) && required.is_none_or(Vec::is_empty)
    }
}

/// The function of a tool object. A bare function object is accepted too.
fn function(tool: &Value) -> &Value {
    tool.get("function").unwrap_or(tool)
}
