//! Finds the forms of constraints that vLLM or SGLang accepts, with a request of one token for each.

use serde_json::json;

use super::completion::CompletionStream;
use super::fault::CallError;
use super::http::CallLimits;
use super::server_constraint::{ConstraintForms, ServerConstraint, is_refusal};
use super::{Remote, endpoint, sglang};
use crate::api::TokenProtocol;

/// Probes, which use what llb's grammars consist of. Every vocabulary has the token 0.
const LARK: &str = "start: \"a\" r1 | T2\nr1[lazy]: /(?s:.*)/ \"<\"\nT2: /(?s:.*)/\n";
const LARK_WITH_TOKENS: &str = "start: \"a\" <[0]> | T1\nT1: /(?s:.*)/\n";
const EBNF: &str = "root ::= \"a\" r1{1,2}\nr1 ::= [^\\x3c]* \"<\" | \"\"\n";
const XGRAMMAR: &str = "start: \"a\" <[0]> | %json {\"type\": \"object\"}\n";

impl Remote {
    /// The forms that the servers accept. The first call sends a request of one token for each form.
    pub fn constraint_forms(&self, limits: &CallLimits) -> Result<ConstraintForms, CallError> {
        if let Some(forms) = *self.forms() {
            return Ok(forms);
        }
        let lark = |text: &str| ServerConstraint::Lark(text.to_owned());
        let grammar = json!({ "type": "grammar", "syntax": "lark", "grammar": XGRAMMAR });
        let text = json!({ "type": "any_text" });
        let block = json!({ "type": "tag", "begin": "a", "content": text, "end": "b" });
        let reasoned = json!({ "type": "sequence", "elements": [block, grammar] });
        let tag = json!({ "type": "or", "elements": [grammar, reasoned] });
        let forms = ConstraintForms {
            lark: self.accepts(&lark(LARK), limits)?,
            lark_with_tokens: self.accepts(&lark(LARK_WITH_TOKENS), limits)?,
            tag: self.accepts(&ServerConstraint::Tag(tag), limits)?,
            json: self.accepts(&ServerConstraint::Json(json!({ "type": "object" })), limits)?,
            ebnf: self.accepts(&ServerConstraint::Ebnf(EBNF.to_owned()), limits)?,
        };
        *self.forms() = Some(forms);
        Ok(forms)
    }

    fn accepts(
        &self,
        constraint: &ServerConstraint,
        limits: &CallLimits,
    ) -> Result<bool, CallError> {
        let body = match self.protocol {
            TokenProtocol::Vllm => json!({
                "model": self.known(limits)?.model, "prompt": "a", "max_tokens": 1, "stream": true,
                "structured_outputs": constraint.structured_outputs(),
            }),
            TokenProtocol::Sglang => sglang::probe(constraint),
        };
        let text = body.to_string();
        let begun = self.attempt(None, limits, |lease| {
            let url = match self.protocol {
                TokenProtocol::Vllm => endpoint(&lease.server, "/completions"),
                TokenProtocol::Sglang => format!("{}{}", lease.server.root, sglang::PATH),
            };
            let exchange = self.http.start(&lease.server, url, Some(text.clone()))?;
            let requested = self.requested(1, None);
            CompletionStream::begin(exchange, lease, self.redactor.clone(), requested, limits)
        });
        match begun {
            Ok(_) => Ok(true),
            Err(error) if is_refusal(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }
}
