//! The tool-capability check: refuses a model whose chat template cannot carry tool calls.

use super::ModelProfile;
use crate::api::{Polyfills, ToolPolicy};
use crate::error::{Code, Error, Result};
use crate::template::ToolSupport;

impl ModelProfile {
    /// Whether the chat template itself carries tools and tool calls.
    pub fn is_tool_capable(&self) -> bool {
        self.templates.llama_cpp_caps().caps.tool_capable()
    }

    /// Returns `MODEL_NOT_TOOL_CAPABLE` if the policy does not accept the model. `has_template`
    /// says whether the model file or the caller supplies a chat template.
    pub fn check_tools(
        &self,
        policy: ToolPolicy,
        polyfills: &Polyfills,
        has_template: bool,
    ) -> Result<()> {
        let accepted = match policy {
            ToolPolicy::Native => self.is_tool_capable(),
            ToolPolicy::Polyfill => {
                let (support, _) = self.templates.traits().tool_support();
                self.is_tool_capable() || polyfills.apply_polyfills && support != ToolSupport::None
            }
            ToolPolicy::Any => true,
        };
        if accepted { Ok(()) } else { Err(self.refusal(has_template)) }
    }

    /// The error of a model that is not tool-capable: what is missing, the evidence, and what to do
    /// next.
    pub fn refusal(&self, has_template: bool) -> Error {
        let variant = self.templates.variant(true);
        let missing = match (has_template, self.templates.llama_cpp_caps().caps.supports_tools) {
            (false, _) => "the model file has no chat template, and the ChatML template used instead carries no tools".to_owned(),
            (true, false) => format!("the {variant} chat template does not show tools to the model"),
            (true, true) => format!("the {variant} chat template does not show tool calls of earlier turns"),
        };
        let report = self.to_json();
        Error::new(Code::ModelNotToolCapable, format!("{missing}; the model was refused before its weights were read"))
            .with("caps", report["caps"].clone())
            .with("evidence", report["evidence"].clone())
            .with("template_variant", variant)
            .with("next", "use a model whose chat template supports tools, pass one as `chat_template`, or open it without tools by `tool_policy`: \"any\"")
    }
}
