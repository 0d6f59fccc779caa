//! Implements [`crate::engine::Backend`] with llama.cpp; the only caller of llama-cpp-sys-2.
//!
//! Every raw call is wrapped once, in a safe signature. docs/engine.md lists what aborts the
//! process and must be checked before the call.
#![allow(unsafe_code, reason = "the one module that calls C")]

mod context;
mod devices;
mod embedder;
mod kernels;
mod load;
mod raw;
mod state;
#[cfg(all(test, target_os = "linux"))]
mod tests;
mod version;
mod vocab;

pub(crate) use devices::backends_report as kernels_report;
pub use devices::default_devices;
pub(crate) use embedder::{Embedder, load_embedder};
#[cfg(llb_isolation)]
pub(crate) use kernels::choose as choose_kernels;
pub(crate) use kernels::file_variant;
pub use load::file_identity::ModelFiles;
pub use load::file_vocabulary::FileVocabulary;
pub use load::keep_alive::unload;
pub(crate) use load::keep_alive::{HeldModel, Kept, Release, watch};
pub(crate) use load::kept_model::with_absolute_paths;
pub use load::kept_model::{KeptModel, KeptState, ModelUse, files_of};
pub use load::loaded_model::LoadedModel;
pub use load::memory_use::{DeviceMemory, MemoryReport, PartMemory, memory_reports};
pub use raw::exit::{BeforeExit, call_before_exit};
#[cfg(unix)]
pub(crate) use raw::exit::{after_fork_in_child, after_fork_in_parent, before_fork};
pub use raw::log::LogQueue;
#[cfg(llb_isolation)]
pub(crate) use raw::system::installed_memory;
pub use state::prefix_store::PrefixStore;
pub use state::{StatePath, StateStore};
pub use version::BUILD;
pub(crate) use vocab::LlamaVocab;
