//! The policy for what a reply must match: a grammar, or an error or a diagnostic if it cannot be
//! enforced. Both sources follow it.

use super::source::GenerationRequest;
use crate::api::is_strict;
#[cfg(feature = "remote")]
use crate::api::{ToolChoice, function_name};
use crate::constraint::{CompiledGrammar, Constraint};
use crate::diagnostic::Diagnostic;
#[cfg(feature = "remote")]
use crate::error::Error;
use crate::error::{Code, Result};

/// The constraint on the tokens of a reply.
#[derive(Default)]
pub(super) struct ReplyConstraint {
    /// The grammar in Lark; None if nothing is constrained.
    pub(super) grammar: Option<String>,
    /// The compiled grammar; None where a server compiles it.
    pub(super) constraint: Option<Constraint>,
    pub(super) diagnostics: Vec<Diagnostic>,
}

impl ReplyConstraint {
    /// The constraint from a grammar. If no grammar can be built and the request does not force
    /// one, the reply is unconstrained and gets a diagnostic.
    pub(super) fn from_grammar(
        request: &GenerationRequest,
        compiled: Result<CompiledGrammar>,
    ) -> Result<ReplyConstraint> {
        match compiled {
            Ok(CompiledGrammar { lark, constraint, relaxed, .. }) => {
                let diagnostics = relaxed.iter().map(Diagnostic::from).collect();
                Ok(ReplyConstraint { grammar: lark, constraint, diagnostics })
            }
            Err(error) if error.code() == Code::SchemaUnsupported && !is_forced(request) => {
                let message =
                    format!("the calls of this reply are not constrained: {}", error.message());
                Ok(ReplyConstraint::without(Diagnostic::new("constraint_dropped", message)))
            }
            Err(error) => Err(error),
        }
    }

    fn without(diagnostic: Diagnostic) -> ReplyConstraint {
        ReplyConstraint { diagnostics: vec![diagnostic], ..ReplyConstraint::default() }
    }

    /// The result for a server that cannot enforce a grammar, for the reason `why`. Requirements
    /// that can be checked afterwards get a diagnostic. If a requirement must be enforced, the
    /// error is `SCHEMA_UNSUPPORTED`.
    #[cfg(feature = "remote")]
    pub(super) fn unenforced(request: &GenerationRequest, why: &str) -> Result<ReplyConstraint> {
        let request = request.request;
        if request.output.grammar.is_some() {
            return Err(Error::new(Code::SchemaUnsupported, format!("grammar: {why}")));
        }
        let callable = request.tool_choice != ToolChoice::None;
        let mut tools = request.tools.iter().enumerate();
        if let Some((index, tool)) = tools.find(|(_, tool)| callable && is_strict(tool)) {
            let name = function_name(tool);
            let message = format!("tools[{index}].function.strict ({name}): {why}");
            return Err(Error::new(Code::SchemaUnsupported, message).with("tool", name));
        }
        let forced = [
            (request.tool_choice.forces_call(), "tool_choice"),
            (request.output.response_format.is_some(), "response_format"),
        ];
        let diagnostics =
            forced.into_iter().filter(|(is_forced, _)| *is_forced).map(|(_, what)| {
                let message = format!("{what}: {why}; the reply is only checked afterwards");
                Diagnostic::new("constraint_not_enforced", message)
            });
        Ok(ReplyConstraint { diagnostics: diagnostics.collect(), ..ReplyConstraint::default() })
    }
}

/// Whether the request must not be answered without a grammar.
fn is_forced(request: &GenerationRequest) -> bool {
    let request = request.request;
    request.tool_choice.forces_call()
        || request.output.grammar.is_some()
        || request.output.response_format.is_some()
        || request.tools.iter().any(is_strict)
}
