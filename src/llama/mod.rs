//! Implements [`crate::engine::Backend`] with llama.cpp; the only caller of llama-cpp-sys-2.
//!
//! Every raw call is wrapped once, in a safe signature. docs/engine.md lists what aborts the
//! process and must be checked before the call.
#![allow(unsafe_code, reason = "the one module that calls C")]

mod batch;
mod context;
mod cpu;
mod device;
mod draft;
mod exit;
mod faults;
mod fingerprint;
mod fit;
mod kernels;
mod log;
mod lora;
mod mappings;
mod memory;
mod model;
mod model_cache;
mod shim;
mod stack;
mod state_file;
#[cfg(all(test, target_os = "linux"))]
mod tests;
mod threads;
mod trial;
mod version;
mod vocab;

pub use exit::{BeforeExit, call_before_exit};
pub(crate) use exit::{after_fork_in_child, after_fork_in_parent, before_fork};
pub(crate) use kernels::{choose as choose_kernels, file_variant, report as kernels_report};
pub use log::LogQueue;
pub use model_cache::{LoadedModel, open};
pub use state_file::{StatePath, StateStore};
pub use version::BUILD;
