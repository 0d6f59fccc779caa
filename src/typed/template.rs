//! A chat template without a model.

use std::path::Path;

use serde_json::{Map, Value};

use super::members::Members;
use super::request::Request;
use crate::diagnostic::Diagnostic;
use crate::error::Result;
use crate::ffi;
use crate::output::{ParsedReply, ToolCall};
use crate::template_requests;
use crate::template_requests::RenderedMessages;

/// A chat template: renders messages to a prompt, and parses the output of a model into a message.
/// It needs no model in memory.
///
/// ```
/// use llb::{Request, Template};
/// use serde_json::json;
///
/// let template = Template::new("{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}");
/// let rendered = template.render(&Request::new().user("Hello"))?;
/// assert_eq!(rendered.prompt, "<user>Hello\n");
///
/// let tools = "{% for t in tools or [] %}{{ t }}{% endfor %}{% for m in messages %}<|im_start|>{{ m.role }}\n\
///     {{ m.content }}{% for c in m.tool_calls or [] %}<tool_call>\n{\"name\": {{ c.function.name|tojson }}, \
///     \"arguments\": {{ c.function.arguments|tojson }}}\n</tool_call>{% endfor %}<|im_end|>\n{% endfor %}";
/// let request = Request::new().tool(llb::Tool::new("add", json!({ "type": "object" })));
/// let output = "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1}}\n</tool_call>";
/// let message = Template::new(tools).parse(output, &request)?;
/// assert_eq!(message.tool_calls[0].name, "add");
/// # Ok::<(), llb::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Template(Members);

impl Template {
    /// A template from its Jinja source.
    pub fn new(jinja: impl Into<String>) -> Template {
        Template(Members::default()).set("chat_template", jinja.into())
    }

    /// The template of a model file, of which only the header is read.
    pub fn of_file(path: impl AsRef<Path>) -> Template {
        Template(Members::default()).set("gguf", path.as_ref().to_string_lossy())
    }

    /// A template from its components (docs/compose.md), or the name of a registered template.
    pub fn composed(components: impl Into<Value>) -> Template {
        Template(Members::default()).set("components", components)
    }

    /// Sets a member of all requests to this template by its name in JSON, such as `bos_token`,
    /// `polyfills` and `template_limits` (docs/abi.md).
    #[must_use]
    pub fn set(mut self, name: &str, value: impl Into<Value>) -> Template {
        self.0.set(name, value);
        self
    }

    /// The prompt of a conversation.
    ///
    /// # Errors
    /// [`TemplateError`](super::Code::TemplateError) if the template refuses the messages or fails,
    /// and [`TemplateLimit`](super::Code::TemplateLimit).
    pub fn render(&self, request: &Request) -> Result<Rendered> {
        let request = self.0.with(request.members()).to_value("request")?;
        let (rendered, ignored_keys) = ffi::catch(|| template_requests::render_value(&request))?;
        let RenderedMessages { prompt, polyfills_applied, diagnostics, details } = rendered;
        Ok(Rendered { prompt, polyfills_applied, diagnostics, ignored_keys, details })
    }

    /// The message in the output of a model. The tools of the request are those that the output may
    /// call; members such as `partial` and `prompt` of `llb_template_parse` may be set in it too.
    ///
    /// # Errors
    /// Those of the template. Output that breaks the rules of its format is not an error: see
    /// [`ParsedMessage::diagnostics`].
    pub fn parse(&self, output: &str, request: &Request) -> Result<ParsedMessage> {
        let mut members = self.0.with(request.members());
        members.set("output", output);
        // The messages are those of the prompt, which the output does not depend on.
        members.remove("messages");
        let request = members.to_value("request")?;
        let (parsed, ignored_keys) = ffi::catch(|| template_requests::parse_value(&request))?;
        let ParsedReply { content, reasoning, tool_calls, complete, diagnostics, .. } = parsed;
        let is_complete = complete;
        Ok(ParsedMessage { content, reasoning, tool_calls, is_complete, diagnostics, ignored_keys })
    }

    /// What the template can do, as JSON: the members of `llb_template_info` (docs/abi.md).
    ///
    /// # Errors
    /// [`TemplateError`](super::Code::TemplateError) for a template that cannot be compiled.
    pub fn info(&self) -> Result<Value> {
        let request = self.0.to_value("request")?;
        ffi::catch(|| template_requests::info_value(&request))
    }
}

/// A rendered prompt.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Rendered {
    /// The prompt.
    pub prompt: String,
    /// The names of the polyfills that changed the messages.
    pub polyfills_applied: Vec<&'static str>,
    /// What was lost, moved, renamed or repaired.
    pub diagnostics: Vec<Diagnostic>,
    /// The unknown members of the request, by path.
    pub ignored_keys: Vec<String>,
    /// Members that the request asked for: `spans`, `generation_spans`, `vision` and `mask`
    /// (docs/abi.md).
    pub details: Map<String, Value>,
}

/// A message that was parsed from the output of a model.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ParsedMessage {
    /// The visible text.
    pub content: String,
    /// The reasoning, if there is some.
    pub reasoning: Option<String>,
    /// The tool calls, in order.
    pub tool_calls: Vec<ToolCall>,
    /// False if the output ends inside a call or inside reasoning.
    pub is_complete: bool,
    /// What was relaxed, repaired or guessed.
    pub diagnostics: Vec<Diagnostic>,
    /// The unknown members of the request, by path.
    pub ignored_keys: Vec<String>,
}
