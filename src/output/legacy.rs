//! What the calls and the reasoning of one template look like, as data.

use std::borrow::Cow;

use serde_json::Value;

use super::{Report, legacy_families, verify};
use crate::error::Result;

/// `render(messages, tools, add_generation_prompt)`: a conversation through the model's own template.
pub type Render<'a> = &'a dyn Fn(&[Value], &[Value], bool) -> Result<String>;

/// The tags around a model's reasoning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReasoningMarkers {
    /// Opens a block, for example `<think>`.
    pub open: Cow<'static, str>,
    /// Closes it.
    pub close: Cow<'static, str>,
}

/// How a model writes tool calls and reasoning.
///
/// No marker may be the beginning of another one of the same format. A family is one constructor under `families/`; the
/// recogniser knows markers and keys, never families.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Format {
    /// The family's stable name, as `output_format.family` shows it.
    pub family: &'static str,
    /// Stands before a call.
    pub call_open: Cow<'static, str>,
    /// Stands after a call.
    pub call_close: Cow<'static, str>,
    /// What the template writes between a marker and the call's JSON.
    pub call_padding: Cow<'static, str>,
    /// What the template writes between two calls.
    pub call_separator: Cow<'static, str>,
    /// The key that holds the function's name.
    pub name_key: Cow<'static, str>,
    /// The key that holds the arguments, as the template writes it.
    pub arguments_key: Cow<'static, str>,
    /// Other keys models use for the arguments.
    pub arguments_aliases: &'static [&'static str],
    /// A key whose object may hold name and arguments one level down, as in OpenAI's `{"type","function":{…}}`.
    pub wrapper_key: Option<Cow<'static, str>>,
    /// The tags around reasoning, if the family has them.
    pub reasoning: Option<ReasoningMarkers>,
    /// Whether a fenced block that holds nothing but a call of a given tool counts as that call. Small models fall back to
    /// it even when their template teaches tags.
    pub fenced_calls: bool,
    /// Whether a reply that is one object `{"tool_calls": […], "content"}` is those calls and that content.
    pub envelope: bool,
    /// Whether a round trip through the model's own template returned what went in.
    pub verified: bool,
}

impl Format {
    /// Calls as JSON between `<tool_call>` tags, reasoning between `<think>` tags.
    pub fn hermes() -> Format {
        legacy_families::hermes::format()
    }

    /// Calls as the polyfill for templates without tool calls writes them.
    pub fn polyfilled() -> Format {
        legacy_families::polyfilled::format()
    }

    /// Markers the detokeniser must show even when they are control tokens.
    pub fn markers(&self) -> Vec<&str> {
        let mut markers = vec![&*self.call_open, &*self.call_close];
        if let Some(reasoning) = &self.reasoning {
            markers.extend([&*reasoning.open, &*reasoning.close]);
        }
        markers
    }

    /// Whether a prompt ends inside a reasoning block that its generation prompt opened.
    pub fn opens_reasoning(&self, prompt: &str) -> bool {
        self.reasoning.as_ref().is_some_and(|markers| prompt.trim_end().ends_with(&*markers.open))
    }

    /// Finds the format a template writes by rendering.
    ///
    /// `render(messages, tools, add_generation_prompt)` renders a conversation with the model's own template. A family is
    /// taken only when every required row of [`Format::round_trip`] comes back exactly.
    pub fn detect(render: Render<'_>) -> Option<Format> {
        legacy_families::all()
            .into_iter()
            .find_map(|format| format.round_trip(render).accepted().then_some(Format { verified: true, ..format }))
    }

    /// Renders histories with calls, parses the assistant's part back, and says row by row whether it came back.
    ///
    /// Names, ids and values are rare strings of our own, so that nothing a template prints by itself can pass for them.
    pub fn round_trip(&self, render: Render<'_>) -> Report {
        verify::round_trip(self, render)
    }

    pub(super) fn is_arguments_key(&self, key: &str) -> bool {
        key == self.arguments_key || self.arguments_aliases.contains(&key)
    }
}
