//! Turns tools, tool choice and response format into a grammar that restricts the sampler.
//!
//! `reply_grammar` builds the grammar from the output format. `schema` checks what can be enforced.
//! `calls` and one file per argument encoding write the calls as rules of a `lark` grammar.
//! `matcher` runs the grammar over the model's tokens (llguidance). Only this module is strict: the
//! reply parser in `output` accepts any text.

#[cfg(feature = "engine")]
mod call_texts;
mod calls;
mod channels;
#[cfg(feature = "engine")]
mod compilation;
#[cfg(feature = "engine")]
mod compile;
#[cfg(feature = "remote")]
mod ebnf;
#[cfg(feature = "remote")]
mod ebnf_json;
#[cfg(feature = "remote")]
mod ebnf_rules;
mod elements;
#[cfg(feature = "engine")]
mod forced;
mod items;
mod json_like;
mod lark;
#[cfg(feature = "engine")]
mod matcher;
mod members;
mod nested;
mod open_elements;
mod pattern;
mod raw_text;
#[cfg(feature = "engine")]
mod regex_work;
mod reply;
mod request_grammar;
mod schema;
#[cfg(feature = "engine")]
mod schema_regexes;
mod shape;
mod syntaxes;
mod tagged;
#[cfg(all(test, feature = "engine"))]
mod tests;
#[cfg(feature = "engine")]
mod trie_limits;
#[cfg(feature = "remote")]
mod xgrammar;

#[cfg(feature = "engine")]
pub use call_texts::CallTexts;
#[cfg(feature = "engine")]
pub use compilation::CompileTime;
#[cfg(feature = "engine")]
pub use compile::{CompiledGrammar, compile};
#[cfg(feature = "remote")]
pub use ebnf::for_ebnf;
pub use lark::SpecialTokenFinder;
#[cfg(feature = "engine")]
pub use matcher::{Constraint, Grammars, Tokenize, Vocabulary};
pub use reply::{ReplyGrammar, ReplyRequirements, reply_grammar};
pub use schema::Relaxed;
#[cfg(feature = "remote")]
pub use xgrammar::for_xgrammar;
