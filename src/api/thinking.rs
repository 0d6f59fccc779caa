//! The settings of a model's reasoning.

use super::fields::Fields;
use crate::error::Result;

/// The settings of a model's reasoning. None leaves the choice to the template.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Thinking {
    /// Whether the model should reason.
    pub enabled: Option<bool>,
    /// How much the model should reason.
    pub effort: Option<String>,
    /// Whether the prompt keeps the reasoning of earlier turns.
    pub preserve: Option<bool>,
}

/// Reads the settings of reasoning. Each template has its own names for these variables.
pub(crate) fn read_thinking(fields: &mut Fields) -> Result<Thinking> {
    Ok(Thinking {
        enabled: fields.boolean("enable_thinking")?,
        effort: fields.string("reasoning_effort")?.map(str::to_owned),
        preserve: fields.boolean("preserve_reasoning")?,
    })
}

/// Reads `reasoning_budget` or one of its two aliases; -1 means no limit.
pub(crate) fn read_reasoning_budget(fields: &mut Fields) -> Result<Option<usize>> {
    let mut budget = None;
    for name in ["reasoning_budget", "reasoning_budget_tokens", "thinking_budget_tokens"] {
        let Some(tokens) = fields.integer(name, -1..=i64::from(i32::MAX))? else { continue };
        match budget {
            Some((first, other)) if other != tokens => {
                return Err(fields.invalid(
                    name,
                    format!(
                        "is {tokens}, but its alias `{first}` is {other}; leave one of them out"
                    ),
                ));
            }
            _ => budget = Some((name, tokens)),
        }
    }
    Ok(budget.and_then(|(_, tokens)| usize::try_from(tokens).ok()))
}

/// Reads `reasoning_budget_message`; empty if absent.
pub(crate) fn read_budget_message(fields: &mut Fields) -> Result<String> {
    Ok(fields.string("reasoning_budget_message")?.unwrap_or_default().to_owned())
}
