//! The tools of a request, by their names.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::Value;

use super::call_reader::Tools;

/// The request's tools, and where each of a name is.
#[derive(Debug, Default)]
pub(super) struct RequestTools {
    tools: Arc<Vec<Value>>,
    places: HashMap<String, usize>,
}

impl RequestTools {
    pub(super) fn new(tools: Arc<Vec<Value>>) -> RequestTools {
        let named = tools.iter().enumerate().filter_map(|(place, tool)| {
            let name = function(tool).get("name")?.as_str()?;
            Some((name.to_owned(), place))
        });
        RequestTools { places: named.collect(), tools }
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &String> {
        self.places.keys()
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.places.contains_key(name)
    }
}

impl Tools for RequestTools {
    fn schema(&self, name: &str) -> Option<&Value> {
        function(self.tools.get(*self.places.get(name)?)?).get("parameters")
    }
}

/// The function of a tool object, or one that stands alone.
fn function(tool: &Value) -> &Value {
    tool.get("function").unwrap_or(tool)
}
