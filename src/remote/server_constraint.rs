//! The forms in which servers take what a reply must match.

use serde_json::{Value, json};

use super::fault::CallError;

/// The status codes with which servers refuse a constraint. vLLM's guidance backend fails at a
/// structural tag that it does not know, and a server without a tokenizer has no `/completions`.
const REFUSALS: [u64; 6] = [400, 404, 405, 422, 500, 501];

/// What a reply must match, in a form that a server accepts.
#[derive(Debug, Clone, PartialEq)]
pub enum ServerConstraint {
    /// A grammar in llguidance's Lark.
    Lark(String),
    /// The format of a structural tag of xgrammar.
    Tag(Value),
    /// JSON of this schema, from the first token on.
    Json(Value),
    /// A grammar in xgrammar's EBNF.
    Ebnf(String),
}

impl ServerConstraint {
    /// vLLM's `structured_outputs`.
    pub(super) fn structured_outputs(&self) -> Value {
        match self {
            ServerConstraint::Lark(grammar) | ServerConstraint::Ebnf(grammar) => {
                json!({ "grammar": grammar })
            }
            ServerConstraint::Tag(format) => {
                let tag = json!({ "type": "structural_tag", "format": format });
                json!({ "structural_tag": tag.to_string() })
            }
            ServerConstraint::Json(schema) => json!({ "json": schema }),
        }
    }
}

/// The forms that servers accept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ConstraintForms {
    /// llguidance's Lark.
    pub lark: bool,
    /// llguidance's Lark with special tokens.
    pub lark_with_tokens: bool,
    /// Structural tags with grammars in xgrammar's Lark.
    pub tag: bool,
    /// JSON schemas.
    pub json: bool,
    /// xgrammar's EBNF.
    pub ebnf: bool,
}

impl ConstraintForms {
    /// Those of a server with llguidance.
    pub const LLGUIDANCE: ConstraintForms = ConstraintForms {
        lark: true,
        lark_with_tokens: true,
        tag: false,
        json: false,
        ebnf: false,
    };
}

/// Whether a server refused a request that it has read.
pub fn is_refusal(error: &CallError) -> bool {
    let CallError::Failed(error) = error else { return false };
    let status = error.details().and_then(|details| details.get("status")?.as_u64());
    status.is_some_and(|status| REFUSALS.contains(&status))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_have_the_names_of_vllm() {
        let lark = ServerConstraint::Lark("g".into());
        assert_eq!(lark.structured_outputs(), json!({ "grammar": "g" }));
        let ebnf = ServerConstraint::Ebnf("g".into());
        assert_eq!(ebnf.structured_outputs(), json!({ "grammar": "g" }));
        let schema = ServerConstraint::Json(json!({ "type": "string" }));
        assert_eq!(schema.structured_outputs(), json!({ "json": { "type": "string" } }));
        let format = json!({ "type": "any_text" });
        let tag = ServerConstraint::Tag(format.clone()).structured_outputs();
        let text = tag["structural_tag"].as_str().expect("vLLM takes the tag as text");
        let tag = crate::json::value(text).expect("JSON");
        assert_eq!(tag, json!({ "type": "structural_tag", "format": format }));
    }
}
