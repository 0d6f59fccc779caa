//! The tools of a request, by name.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::Value;

/// The request's tools, with the index of each name.
#[derive(Debug, Default)]
pub(super) struct RequestTools {
    tools: Arc<Vec<Value>>,
    indices: HashMap<String, usize>,
}

impl RequestTools {
    pub(super) fn new(tools: Arc<Vec<Value>>) -> RequestTools {
        let named = tools.iter().enumerate().filter_map(|(index, tool)| {
            let name = function(tool).get("name")?.as_str()?;
            Some((name.to_owned(), index))
        });
        RequestTools { indices: named.collect(), tools }
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &String> {
        self.indices.keys()
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.indices.contains_key(name)
    }

    /// The schema of a tool's arguments. None if there is no such tool or it has no schema.
    pub(super) fn schema(&self, name: &str) -> Option<&Value> {
        function(self.tools.get(*self.indices.get(name)?)?).get("parameters")
    }
}

/// The function of a tool object. A bare function object is accepted too.
fn function(tool: &Value) -> &Value {
    tool.get("function").unwrap_or(tool)
}
