//! `llb` runs GGUF chat models inside the host process. Its interface is the C ABI of
//! `include/llb.h`, with JSON requests and replies. This Rust crate is the implementation. Its
//! public items are meant for the crate's own tests and benches, and are not a stable API.
//!
//! # The path of a request
//!
//! ```text
//! ffi      guard, handle, C string
//! api      JSON -> ChatRequest                                 every error names a JSON path
//! chat     queue of requests, then one step after another:
//!            template    polyfill, render -> prompt            with the origin of its bytes
//!            engine      special tokens, tokens
//!            constraint  format, tools, schemas -> grammar
//!            engine      scheduler -> llama (or remote) -> text
//!            output      reply parser -> deltas -> callback
//!            validate    calls and JSON against their schemas
//! api      ChatResponse -> JSON
//! ```
//!
//! # Modules
//!
//! The table of `docs/architecture.md` lists the modules and what each imports. A test checks it.
//!
//! # Documents
//!
//! `docs/README.md` is the index of the documentation. `docs/architecture.md` describes threads,
//! faults and the word list, and `docs/abi.md` the JSON. `docs/templates.md`, `docs/outputs.md`,
//! `docs/compose.md`, `docs/engine.md`, `docs/remote.md` and `docs/hub.md` each describe one
//! subject.

#[macro_use]
mod named;

pub mod api;
#[cfg(feature = "engine")]
pub mod chat;
pub mod compose;
pub mod constraint;
pub mod diagnostic;
#[cfg(feature = "engine")]
pub mod embed;
#[cfg(feature = "engine")]
pub mod engine;
pub mod error;
#[cfg(feature = "engine")]
pub mod ffi;
pub mod gguf;
#[cfg(feature = "hub")]
pub mod hub;
#[cfg(all(feature = "engine", llb_isolation))]
mod isolation;
mod jinja;
mod json;
mod json_schema;
#[cfg(feature = "engine")]
pub mod llama;
#[cfg(feature = "media")]
pub mod media;
#[cfg(feature = "engine")]
pub mod memory;
#[cfg(any(feature = "hub", feature = "remote"))]
mod net;
pub mod output;
#[cfg(any(feature = "engine", feature = "hub", feature = "remote"))]
mod panic;
mod probing;
#[cfg_attr(not(feature = "engine"), allow(dead_code, reason = "the C functions use the rest"))]
mod process;
pub mod profile;
mod regular_file;
#[cfg(feature = "remote")]
pub mod remote;
#[cfg(any(feature = "engine", feature = "hub", feature = "remote"))]
mod spawn;
#[cfg(feature = "engine")]
mod sync;
pub mod template;
pub mod template_requests;
#[cfg(feature = "engine")]
pub mod tokens;
pub mod validate;
pub mod vision;

// tests/scripted refers to the crate by name, and unit tests use it too.
#[cfg(test)]
extern crate self as llb;

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test reports by panicking")]
mod test_support;
