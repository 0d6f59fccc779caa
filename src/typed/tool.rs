//! A tool that the model may call.

use serde_json::{Map, Value, json};

/// A tool: a function with a name, a description, and the JSON Schema of its arguments.
///
/// ```
/// use llb::Tool;
/// use serde_json::json;
///
/// let weather = Tool::new("get_weather", json!({
///     "type": "object",
///     "properties": { "city": { "type": "string" } },
///     "required": ["city"],
/// }))
/// .description("The current weather in a city");
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Tool {
    name: String,
    description: Option<String>,
    parameters: Value,
    strict: Option<bool>,
}

impl Tool {
    /// A tool with this name. `parameters` is the JSON Schema of its arguments.
    pub fn new(name: impl Into<String>, parameters: impl Into<Value>) -> Tool {
        let (name, parameters) = (name.into(), parameters.into());
        Tool { name, description: None, parameters, strict: None }
    }

    /// What the tool does, for the model.
    #[must_use]
    pub fn description(self, text: impl Into<String>) -> Tool {
        Tool { description: Some(text.into()), ..self }
    }

    /// Whether every part of the schema must be enforced: a part that cannot be is an error then,
    /// and a diagnostic otherwise.
    #[must_use]
    pub fn strict(self, strict: bool) -> Tool {
        Tool { strict: Some(strict), ..self }
    }
}

/// The tool in OpenAI's format. The order is that of OpenAI's documentation, because many templates
/// print it.
impl From<Tool> for Value {
    fn from(tool: Tool) -> Value {
        let mut function = Map::new();
        function.insert("name".to_owned(), tool.name.into());
        function.extend(tool.description.map(|text| ("description".to_owned(), text.into())));
        function.insert("parameters".to_owned(), tool.parameters);
        function.extend(tool.strict.map(|strict| ("strict".to_owned(), strict.into())));
        json!({ "type": "function", "function": function })
    }
}
