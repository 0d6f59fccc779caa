//! Tools, tool choice and response format -> a grammar the sampler obeys.
//!
//! `reply_grammar` puts a grammar together from the format: `schema` checks what can be enforced, `calls`
//! and one file per encoding write calls, `lark` is the text they are written in. `matcher` runs it
//! over the model's tokens (llguidance). Strictness lives here, and only here: the reply parser in
//! `output` accepts anything.

mod calls;
mod channels;
#[cfg(feature = "engine")]
mod compile;
mod elements;
mod fenced;
mod json_like;
mod json_text;
mod lark;
#[cfg(feature = "engine")]
mod matcher;
mod members;
mod pairs;
mod pattern;
mod python;
mod raw_text;
mod reply;
mod schema;
mod shape;
mod tagged;
#[cfg(all(test, feature = "engine"))]
mod tests;

#[cfg(feature = "engine")]
pub use compile::{CompiledGrammar, compile};
pub use lark::SpecialTokenFinder;
#[cfg(feature = "engine")]
pub use matcher::{Constraint, Grammars, Tokenize, Vocabulary};
pub use reply::{ReplyGrammar, ReplyRequirements, reply_grammar};
pub use schema::Relaxed;
