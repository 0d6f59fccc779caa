//! `llb` runs local GGUF chat models inside the host process, behind the small C ABI of
//! `include/llb.h`.
//!
//! Data flows one way, through the folders in this order (docs/architecture.md):
//! `ffi` -> `api` -> `template` -> `engine` -> `output` -> `api` -> `ffi`.

pub mod api;
#[cfg(feature = "engine")]
pub mod chat;
pub mod compose;
pub mod constraint;
pub mod diagnostic;
#[cfg(feature = "engine")]
pub mod engine;
pub mod error;
#[cfg(feature = "engine")]
pub mod ffi;
pub mod gguf;
#[cfg(feature = "hub")]
pub mod hub;
mod jinja;
mod json_schema;
#[cfg(feature = "engine")]
pub mod llama;
#[cfg(any(feature = "hub", feature = "remote"))]
mod net;
pub mod output;
#[cfg(any(feature = "engine", feature = "hub", feature = "remote"))]
mod panic;
mod probing;
pub mod profile;
#[cfg(feature = "remote")]
pub mod remote;
pub mod requests;
pub mod template;
pub mod validate;
pub mod vision;

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test reports by panicking")]
mod test_support;
