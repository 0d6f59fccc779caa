//! The request to a chat or to a template.

use std::time::Duration;

use serde_json::{Value, json};

use super::members::Members;
use super::reply::Reply;
use super::tool::Tool;
use crate::error::Result;
use crate::output::ToolCall;

/// A conversation, its tools, and how the reply is generated.
///
/// The methods append messages and set members. [`Request::set`] sets any member by the name that
/// it has in JSON (docs/abi.md of the repository). Values are checked when the request is used, so
/// that a request can be built without handling errors; the error names the member.
///
/// ```
/// use llb::{Request, Tool};
/// use serde_json::json;
///
/// let weather = Tool::new("get_weather", json!({
///     "type": "object",
///     "properties": { "city": { "type": "string" } },
///     "required": ["city"],
/// }));
/// let request = Request::new()
///     .system("Answer in one sentence.")
///     .user("What is the weather in Paris?")
///     .tool(weather)
///     .temperature(0.0)
///     .max_tokens(128)
///     .set("reasoning_budget", 64);
/// ```
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Request(Members);

impl Request {
    /// A request without messages.
    pub fn new() -> Request {
        Request::default()
    }

    /// Appends a message of the system.
    #[must_use]
    pub fn system(self, text: impl Into<String>) -> Request {
        self.message(json!({ "role": "system", "content": text.into() }))
    }

    /// Appends a message of the user.
    #[must_use]
    pub fn user(self, text: impl Into<String>) -> Request {
        self.message(json!({ "role": "user", "content": text.into() }))
    }

    /// Appends a message of the assistant. [`Request::reply`] appends one that a chat has written.
    #[must_use]
    pub fn assistant(self, text: impl Into<String>) -> Request {
        self.message(json!({ "role": "assistant", "content": text.into() }))
    }

    /// Appends a reply, with its tool calls. After `continue_final_message`, which is then no longer
    /// set, the reply replaces the message that it continues.
    #[must_use]
    pub fn reply(mut self, reply: &Reply) -> Request {
        let continued = self.0.remove("continue_final_message");
        if continued.is_some_and(|member| member != false && !member.is_null()) {
            self.0.pop("messages");
        }
        self.message(reply.message().clone())
    }

    /// Appends the result of a tool call.
    #[must_use]
    pub fn tool_result(self, call: &ToolCall, content: impl Into<String>) -> Request {
        self.message(json!({
            "role": "tool",
            "tool_call_id": call.id,
            "name": call.name,
            "content": content.into(),
        }))
    }

    /// Appends a message in OpenAI's format, for example one with pictures.
    #[must_use]
    pub fn message(mut self, message: Value) -> Request {
        self.0.push("messages", message);
        self
    }

    /// Adds a tool that the model may call.
    #[must_use]
    pub fn tool(mut self, tool: Tool) -> Request {
        self.0.push("tools", tool.into());
        self
    }

    /// The reply is JSON that matches this schema.
    #[must_use]
    pub fn json_schema(self, schema: Value) -> Request {
        let schema = json!({ "schema": schema });
        self.set("response_format", json!({ "type": "json_schema", "json_schema": schema }))
    }

    /// The maximum number of generated tokens. Without it, what fits the context.
    #[must_use]
    pub fn max_tokens(self, tokens: u32) -> Request {
        self.set("max_tokens", tokens)
    }

    /// How random the reply is; 0 always takes the most likely token.
    #[must_use]
    pub fn temperature(self, temperature: f64) -> Request {
        self.set("temperature", temperature)
    }

    /// The seed of the random numbers, which makes a reply repeatable.
    #[must_use]
    pub fn seed(self, seed: u32) -> Request {
        self.set("seed", seed)
    }

    /// A text that ends the reply and is not part of it. Further calls add further texts.
    #[must_use]
    pub fn stop(mut self, text: impl Into<String>) -> Request {
        self.0.push("stop", text.into().into());
        self
    }

    /// After this time the reply ends with what it has.
    #[must_use]
    pub fn timeout(self, timeout: Duration) -> Request {
        self.set("timeout_ms", u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX))
    }

    /// Sets a member by its name in JSON, or replaces it. Unknown members are in
    /// [`Reply::ignored_keys`].
    #[must_use]
    pub fn set(mut self, name: &str, value: impl Into<Value>) -> Request {
        self.0.set(name, value);
        self
    }

    /// The members as an object.
    pub(super) fn to_value(&self) -> Result<Value> {
        self.0.to_value("request")
    }

    pub(super) fn members(&self) -> &Members {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::ChatRequest;

    #[test]
    fn every_method_sets_a_known_member() {
        let call = ToolCall { id: "1".into(), name: "f".into(), arguments: "{}".into() };
        let request = Request::new()
            .system("a")
            .user("b")
            .message(json!({
                "role": "assistant",
                "content": null,
                "tool_calls": [{
                    "id": "1", "type": "function", "function": { "name": "f", "arguments": "{}" },
                }],
            }))
            .tool_result(&call, "c")
            .assistant("d")
            .user("e")
            .tool(Tool::new("f", json!({ "type": "object" })).description("g").strict(true))
            .max_tokens(7)
            .temperature(0.5)
            .seed(3)
            .stop("x")
            .stop("y")
            .timeout(Duration::from_millis(1500));
        let read = |request: &Request| ChatRequest::read(request.to_value().expect("small"));
        let read = read(&request).expect("valid");
        assert_eq!((read.messages.len(), read.tools.len()), (6, 1));
        assert_eq!((read.output.max_tokens, read.sampling.seed), (Some(7), Some(3)));
        assert_eq!(read.sampling.temperature, 0.5);
        assert_eq!(read.output.stop, ["x", "y"]);
        assert_eq!(read.output.timeout, Some(Duration::from_millis(1500)));
        assert!(read.ignored_keys.is_empty(), "{:?}", read.ignored_keys);
        let schema = Request::new().user("a").json_schema(json!({ "type": "object" }));
        let read = ChatRequest::read(schema.to_value().expect("small")).expect("valid");
        assert!(read.output.response_format.is_some() && read.ignored_keys.is_empty());
    }
}
