//! The tools of a request, by name.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, OnceLock};

use serde_json::Value;

use crate::json_schema::ArgumentsSchema;

/// The request's tools, with the index of each name, in order of the names.
#[derive(Debug, Default)]
pub(crate) struct RequestTools {
    tools: Arc<Vec<Value>>,
    indices: BTreeMap<String, usize>,
    /// The schema of each tool's arguments, once it was needed.
    arguments: Vec<OnceLock<ArgumentsSchema>>,
}

impl RequestTools {
    pub(crate) fn new(tools: Arc<Vec<Value>>) -> RequestTools {
        let named = tools.iter().enumerate().filter_map(|(index, tool)| {
            let name = function(tool).get("name")?.as_str()?;
            Some((name.to_owned(), index))
        });
        let indices = named.collect();
        let arguments = tools.iter().map(|_| OnceLock::new()).collect();
        RequestTools { tools, indices, arguments }
    }

    /// The names of the tools, sorted.
    pub(crate) fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.indices.keys().map(String::as_str)
    }

    /// Whether a name is the name of a tool, or ends with one.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.tool_name(name).is_some()
    }

    /// Whether this is exactly the name of a tool.
    pub(crate) fn is_name(&self, name: &str) -> bool {
        self.indices.contains_key(name)
    }

    /// Whether the name of a tool begins with this text.
    pub(crate) fn is_begun(&self, text: &str) -> bool {
        let mut names = self.indices.range::<str, _>((Bound::Included(text), Bound::Unbounded));
        names.next().is_some_and(|(name, _)| name.starts_with(text))
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
        self.schema_of(self.index(name)?)
    }

    /// Like [`schema`](Self::schema), for readers of arguments.
    pub(crate) fn arguments(&self, name: &str) -> ArgumentsSchema {
        let known = self.index(name).and_then(|index| {
            let schema = || ArgumentsSchema::new(self.schema_of(index));
            Some(self.arguments.get(index)?.get_or_init(schema).clone())
        });
        known.unwrap_or_default()
    }

    fn index(&self, name: &str) -> Option<usize> {
        self.indices.get(self.tool_name(name)?).copied()
    }

    fn schema_of(&self, index: usize) -> Option<&Value> {
        function(self.tools.get(index)?).get("parameters")
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
