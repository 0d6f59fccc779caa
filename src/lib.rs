//! `llb` runs local GGUF chat models inside the host process, behind the small C ABI of `include/llb.h`.
//!
//! Data flows one way, through the folders in this order (docs/architecture.md):
//! `ffi` -> `api` -> `template` -> `engine` -> `output` -> `api` -> `ffi`.

pub mod error;

pub mod gguf;
pub mod output;
pub mod template;
