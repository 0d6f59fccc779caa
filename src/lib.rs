//! `llb` runs local GGUF chat models inside the host process, behind the small C ABI of `include/llb.h`.
//!
//! Data flows one way, through the folders in this order (docs/architecture.md):
//! `ffi` -> `api` -> `template` -> `engine` -> `output` -> `api` -> `ffi`.

pub mod error;

pub mod api;
pub mod compose_request;
#[cfg(test)]
mod conformance;
pub mod constraint;
pub mod gguf;
#[cfg(feature = "hub")]
pub mod hub;
mod jinja;
#[cfg(any(feature = "hub", feature = "remote"))]
mod net;
pub mod output;
#[cfg(feature = "remote")]
pub mod remote;
pub mod template;
pub mod template_request;
pub mod validate;
pub mod verdict;

#[cfg(feature = "engine")]
pub mod chat;
#[cfg(feature = "engine")]
pub mod engine;
#[cfg(feature = "engine")]
pub mod ffi;
#[cfg(feature = "engine")]
pub mod llama;
#[cfg(any(feature = "engine", feature = "hub", feature = "remote"))]
mod panic;
