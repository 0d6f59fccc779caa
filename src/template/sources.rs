//! The template sources of a model.

use std::path::PathBuf;

use super::host::HostWork;

/// The name of the template for requests without tools.
pub(super) const DEFAULT: &str = "default";
/// The name of the template for requests with tools.
pub(super) const TOOL_USE: &str = "tool_use";
/// The name of the built-in template.
pub(super) const CHATML: &str = "chatml";

/// The built-in template, for files without one.
pub(crate) const CHATML_SOURCE: &str = "{%- for message in messages -%}
{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{- '<|im_start|>assistant\\n' -}}
{%- endif -%}";

/// The sources to compile. `default` is None if the file has no chat template.
#[derive(Debug, Clone, Default)]
pub struct Sources {
    /// `tokenizer.chat_template`, or the caller's override.
    pub default: Option<String>,
    /// `tokenizer.chat_template.tool_use`.
    pub tool_use: Option<String>,
    /// Text of the vocabulary's BOS token, empty if it has none.
    pub bos_token: String,
    /// Text of the vocabulary's EOS token, empty if it has none.
    pub eos_token: String,
    /// The model file. If the template does not show the format of calls, the vocabulary in this
    /// file may.
    pub model_file: Option<PathBuf>,
    /// The work that a composed template needs before each render.
    pub host: HostWork,
}

impl Sources {
    /// The default template, unless it is absent, empty, or the name `chatml`.
    pub(crate) fn own_default(&self) -> Option<&str> {
        self.default.as_deref().filter(|text| !text.is_empty() && *text != CHATML)
    }

    /// The tool_use template, unless empty.
    pub(crate) fn own_tool_use(&self) -> Option<&str> {
        self.tool_use.as_deref().filter(|text| !text.is_empty())
    }
}
