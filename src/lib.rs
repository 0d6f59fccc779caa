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
//! Each module imports only modules above it in this table. The table in `docs/architecture.md`
//! lists the exact imports, and a test checks them.
//!
//! | module | what it does |
//! |---|---|
//! | [`error`], [`diagnostic`], `panic` | one error type, one type for coded remarks, panics as errors |
//! | `named` | enums whose variants have names in JSON |
//! | `process` | the exit and the forks of the process |
//! | `sync` | locks, channels and threads, which a model checker replaces |
//! | `regular_file` | opens the files that callers name |
//! | [`api`] | the JSON of the ABI as types |
//! | [`gguf`] | the header of a model file |
//! | `net` | what both HTTP clients share |
//! | `jinja` | the Jinja2 interpreter |
//! | `json_schema` | JSON Schema documents |
//! | `probing` | the probe kit: conversations to render and compare |
//! | [`template`] | messages to a prompt; probes, polyfills and lints of a chat template |
//! | [`vision`] | image and video placeholders in a prompt |
//! | [`output`] | model text to a message: output formats, their detection, the reply parser |
//! | [`constraint`] | the grammar of a reply and its token masks |
//! | [`validate`] | a finished message against the caller's schemas |
//! | [`compose`] | components to a chat template, and back |
//! | [`profile`] | what a model can do; the tool-capability check |
//! | [`requests`] | the `llb_template_*` functions |
//! | `engine` | scheduler, prefix cache, stop strings; independent of llama.cpp |
//! | `llama` | the only caller of llama.cpp |
//! | `remote` | the client of completions servers |
//! | `hub` | models of the Hugging Face hub |
//! | `chat` | the pipeline of one request, and the request queue |
//! | `embed` | an open embedding model: texts to vectors and scores |
//! | `tokens` | texts, tokens and whole requests, by a model file's vocabulary |
//! | `memory` | what a chat takes in memory, before it is created |
//! | `isolation` | chats whose model runs in a helper process |
//! | `ffi` | the C functions |
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
pub mod requests;
#[cfg(all(unix, any(feature = "engine", feature = "hub", feature = "remote")))]
mod signals;
#[cfg(feature = "engine")]
mod sync;
pub mod template;
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
