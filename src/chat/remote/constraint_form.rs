//! Chooses the form in which a server takes the constraint of a reply.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::api::{Constraints, ResponseFormat, ServerKind, ToolChoice};
use crate::chat::reply_constraint::ReplyConstraint;
use crate::chat::source::GenerationRequest;
use crate::constraint::{self, CompiledGrammar, ReplyGrammar, ReplyRequirements};
use crate::error::Result;
use crate::remote::{CallError, ConstraintForms, ServerConstraint};

/// How the grammars of a reply are built, and in which forms a server takes them.
pub(super) struct ReplyForms<'a> {
    pub(super) accepted: ConstraintForms,
    /// Builds the grammar of a reply that must meet requirements.
    pub(super) grammar: &'a dyn Fn(&ReplyRequirements) -> Result<ReplyGrammar>,
    /// The opening and the closing tag of reasoning, if there are any and both are ordinary text.
    pub(super) reasoning: Option<(String, String)>,
}

/// The reply constraint, and its form for a server. If no form expresses it, it is only checked
/// afterwards.
pub(super) fn constrain(
    generation: &GenerationRequest,
    forms: &ReplyForms,
) -> Result<(ReplyConstraint, Option<ServerConstraint>)> {
    let requirements = generation.requirements();
    let compiled = (forms.grammar)(&requirements).map(|grammar| CompiledGrammar {
        lark: grammar.lark,
        constraint: None,
        call_texts: Arc::default(),
        relaxed: grammar.relaxed,
    });
    let constraint = ReplyConstraint::from_grammar(generation, compiled)?;
    let Some(lark) = &constraint.grammar else { return Ok((constraint, None)) };
    match forms.form_of(lark, &requirements)? {
        Some(form) => Ok((constraint, Some(form))),
        None => {
            let why = "no grammar of the server can express it";
            Ok((ReplyConstraint::unenforced(generation, why)?, None))
        }
    }
}

impl ReplyForms<'_> {
    /// The form of what must follow the reasoning. `None` if nothing must, or no form expresses it.
    pub(super) fn after_reasoning(
        &self,
        requirements: &ReplyRequirements,
    ) -> Result<Option<ServerConstraint>> {
        let after = without_reasoning(requirements);
        let lark = (self.grammar)(&after)?.lark;
        lark.map_or(Ok(None), |lark| self.form_of(&lark, &after))
    }

    /// The form of a grammar in Lark. `None` if the server accepts none that expresses it.
    fn form_of(
        &self,
        lark: &str,
        requirements: &ReplyRequirements,
    ) -> Result<Option<ServerConstraint>> {
        let accepted = self.accepted;
        if accepted.lark_with_tokens || accepted.lark && !lark.contains("<[") {
            return Ok(Some(ServerConstraint::Lark(lark.to_owned())));
        }
        if accepted.tag
            && let Some(format) = self.tag(requirements)?
        {
            return Ok(Some(ServerConstraint::Tag(format)));
        }
        if accepted.json
            && let Some(schema) = whole_json(requirements)
        {
            return Ok(Some(ServerConstraint::Json(schema)));
        }
        // As with a tag, free text would also allow what a call must not be.
        let ebnf = accepted.ebnf && !requirements.allows_free_text();
        Ok(ebnf.then(|| constraint::for_ebnf(lark)).flatten().map(ServerConstraint::Ebnf))
    }

    /// The format of a structural tag. xgrammar follows all alternatives at once, so free text would
    /// also allow what a call must not be: it is only for replies without free text. Reasoning is
    /// text up to its closing tag.
    fn tag(&self, requirements: &ReplyRequirements) -> Result<Option<Value>> {
        if requirements.allows_free_text() {
            return Ok(None);
        }
        let lark = (self.grammar)(&without_reasoning(requirements))?.lark;
        let Some(text) = lark.as_deref().and_then(constraint::for_xgrammar) else {
            return Ok(None);
        };
        let grammar = json!({ "type": "grammar", "syntax": "lark", "grammar": text });
        let reasoned = self.reasoning.as_ref().map(|(open, close)| {
            let begin = if requirements.reasoning_open { "" } else { open.as_str() };
            let text = json!({ "type": "any_text" });
            let block = json!({ "type": "tag", "begin": begin, "content": text, "end": close });
            json!({ "type": "sequence", "elements": [block, grammar] })
        });
        Ok(match (requirements.reasoning_open, requirements.reasons) {
            (true, _) => reasoned,
            (false, true) => {
                reasoned.map(|reasoned| json!({ "type": "or", "elements": [grammar, reasoned] }))
            }
            (false, false) => Some(grammar),
        })
    }
}

/// The same requirements for a reply without reasoning.
fn without_reasoning<'a>(requirements: &ReplyRequirements<'a>) -> ReplyRequirements<'a> {
    ReplyRequirements { reasoning_open: false, reasons: false, ..*requirements }
}

/// The reply constraint after a server has refused its form.
pub(super) fn refused(
    generation: &GenerationRequest,
    error: &CallError,
) -> Result<ReplyConstraint> {
    let reason = match error {
        CallError::Failed(error) => error.message(),
        CallError::Over => "no answer",
    };
    ReplyConstraint::unenforced(generation, &format!("the server refused the grammar ({reason})"))
}

/// The schema of a reply that is JSON from its first token on.
fn whole_json(requirements: &ReplyRequirements) -> Option<Value> {
    let may_call = !requirements.tools.is_empty() && *requirements.choice != ToolChoice::None;
    if may_call || requirements.reasons || requirements.reasoning_open || requirements.content_open
    {
        return None;
    }
    match requirements.response_format? {
        ResponseFormat::JsonObject => Some(json!({ "type": "object" })),
        ResponseFormat::JsonSchema { schema, .. } => Some(schema.clone()),
    }
}

/// Why servers cannot enforce these requirements with a grammar; None if they can, or if there is
/// nothing to enforce.
pub(super) fn unenforceable(
    constraints: Constraints,
    kind: ServerKind,
    requirements: &ReplyRequirements,
) -> Option<&'static str> {
    if !requires_anything(requirements) {
        return None;
    }
    match (constraints, kind) {
        (Constraints::None, _) => {
            Some("the server enforces nothing (engine.constraints is \"none\")")
        }
        (_, ServerKind::OpenAi) => Some("the server takes no grammar"),
        (Constraints::Auto, ServerKind::Llama) => {
            Some("a llama.cpp server is sent grammars only if engine.constraints is \"llguidance\"")
        }
        _ if requirements.continues_answer() => {
            Some("the server's grammar cannot begin inside a message that is continued")
        }
        _ => None,
    }
}

/// Whether a reply must match anything.
pub(super) fn requires_anything(requirements: &ReplyRequirements) -> bool {
    !requirements.tools.is_empty()
        || requirements.response_format.is_some()
        || requirements.grammar.is_some()
}
