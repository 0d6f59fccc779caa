//! Tools, tool choice and response format -> a grammar the sampler obeys.
//!
//! `grammar` writes Lark text, `matcher` runs it over the model's tokens (llguidance). Strictness lives here, and only here:
//! the recogniser in `output` accepts anything.

mod grammar;
#[cfg(feature = "engine")]
mod matcher;

pub use grammar::{forced_calls, json_object, json_schema};
#[cfg(feature = "engine")]
pub use matcher::{Constraint, Grammars, Tokenize, Words};
