//! Hermes: one JSON object per pair of tags.
//!
//! ```text
//! <tool_call>
//! {"name": "f", "arguments": {"a": 1}}
//! </tool_call>
//! ```
//!
//! Hermes 2 Pro and 3, Qwen 2.5, QwQ, Qwen 3, Bielik 3, MiMo-VL, Granite 4, Reka Edge, SmolLM3.

use std::borrow::Cow;

use crate::output::{Format, ReasoningMarkers};

pub(in crate::output) fn format() -> Format {
    Format {
        family: "hermes",
        call_open: Cow::Borrowed("<tool_call>"),
        call_close: Cow::Borrowed("</tool_call>"),
        call_padding: Cow::Borrowed("\n"),
        call_separator: Cow::Borrowed("\n"),
        name_key: Cow::Borrowed("name"),
        arguments_key: Cow::Borrowed("arguments"),
        arguments_aliases: &["parameters"],
        wrapper_key: Some(Cow::Borrowed("function")),
        reasoning: Some(ReasoningMarkers { open: Cow::Borrowed("<think>"), close: Cow::Borrowed("</think>") }),
        fenced_calls: true,
        envelope: false,
        verified: false,
    }
}
