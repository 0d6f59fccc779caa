// The front page of the documentation, and that of crates.io. Its examples need the engine.
#![cfg_attr(feature = "engine", doc = include_str!("README.md"))]
#![cfg_attr(not(feature = "engine"), doc = "llb without its engine has no public API.")]

// The path of a request:
//
//     ffi      guard, handle, C string           typed    guard, handle, members
//     api      JSON -> ChatRequest                                 every error names a JSON path
//     chat     queue of requests, then one step after another:
//                template    polyfill, render -> prompt            with the origin of its bytes
//                engine      special tokens, tokens
//                constraint  format, tools, schemas -> grammar
//                engine      scheduler -> llama (or remote) -> text
//                output      reply parser -> deltas -> callback
//                validate    calls and JSON against their schemas
//     api      ChatResponse -> JSON              typed    ChatResponse -> Reply
//
// The table of docs/architecture.md lists the modules and what each imports. A test checks it.

#[macro_use]
mod named;

// A hidden module is public for the program, the tests and the benches of this repository only. It
// changes without notice.
#[doc(hidden)]
pub mod api;
#[cfg(feature = "engine")]
#[doc(hidden)]
pub mod chat;
#[doc(hidden)]
pub mod compose;
#[doc(hidden)]
pub mod constraint;
#[doc(hidden)]
pub mod diagnostic;
#[cfg(feature = "engine")]
#[doc(hidden)]
pub mod embed;
#[cfg(feature = "engine")]
#[doc(hidden)]
pub mod engine;
#[doc(hidden)]
pub mod error;
#[cfg(feature = "engine")]
#[doc(hidden)]
pub mod ffi;
#[doc(hidden)]
pub mod gguf;
#[cfg(feature = "hub")]
#[doc(hidden)]
pub mod hub;
#[cfg(all(feature = "engine", llb_isolation))]
mod isolation;
mod jinja;
#[doc(hidden)]
pub mod json;
mod json_schema;
#[cfg(feature = "engine")]
#[doc(hidden)]
pub mod llama;
#[cfg(feature = "media")]
#[doc(hidden)]
pub mod media;
#[cfg(feature = "engine")]
#[doc(hidden)]
pub mod memory;
#[cfg(any(feature = "hub", feature = "remote"))]
mod net;
#[doc(hidden)]
pub mod output;
#[cfg(any(feature = "engine", feature = "hub", feature = "remote"))]
mod panic;
mod probing;
#[cfg_attr(not(feature = "engine"), allow(dead_code, reason = "the C functions use the rest"))]
mod process;
#[doc(hidden)]
pub mod profile;
mod regular_file;
#[cfg(feature = "remote")]
#[doc(hidden)]
pub mod remote;
#[cfg(any(feature = "engine", feature = "hub", feature = "remote"))]
mod spawn;
#[cfg(feature = "engine")]
mod sync;
#[doc(hidden)]
pub mod template;
#[doc(hidden)]
pub mod template_requests;
#[cfg(feature = "tokenizer-json")]
mod tokenizer_json;
#[cfg(feature = "engine")]
#[doc(hidden)]
pub mod tokens;
#[cfg(feature = "engine")]
mod typed;
#[doc(hidden)]
pub mod validate;
#[doc(hidden)]
pub mod vision;

#[cfg(feature = "engine")]
pub use typed::*;

/// Tests the examples of pages that are not in the package.
#[cfg(all(doctest, feature = "engine"))]
mod pages {
    #[doc = include_str!("../README.md")]
    mod readme {}
    #[doc = include_str!("../docs/rust.md")]
    mod rust {}
    #[doc = include_str!("../docs/start.md")]
    mod start {}
}

// tests/scripted refers to the crate by name, and unit tests use it too.
#[cfg(test)]
extern crate self as llb;

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test reports by panicking")]
mod test_support;
