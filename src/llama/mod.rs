//! Implements [`crate::engine::Backend`] with llama.cpp; the only caller of llama-cpp-sys-2.
//!
//! Every raw call is wrapped once, in a safe signature. docs/engine.md lists what aborts the
//! process and must be checked before the call.
#![allow(unsafe_code, reason = "the one module that calls C")]

mod batch;
mod context;
mod context_checks;
mod context_options;
mod context_shift;
mod cpu;
mod decoding;
mod device;
mod device_file;
mod device_selection;
mod draft;
mod embedder;
mod exit;
mod faults;
mod file_identity;
mod file_vocabulary;
mod fingerprint;
mod fit;
mod keep_alive;
mod kept_model;
mod kernels;
mod load_key;
mod loader_thread;
mod log;
mod logits;
mod lora;
mod lost_device;
mod mappings;
mod memory;
mod memory_use;
mod model;
mod model_cache;
mod prefix_folder;
mod prefix_store;
mod sequence_state;
mod shim;
mod stack;
mod state_file;
mod state_store;
#[cfg(all(test, target_os = "linux"))]
mod tests;
mod threads;
mod trial;
mod version;
mod vocab;
mod wait_clock;

pub use device_selection::default_devices;
pub(crate) use embedder::{Embedder, load as load_embedder};
pub use exit::{BeforeExit, call_before_exit};
#[cfg(unix)]
pub(crate) use exit::{after_fork_in_child, after_fork_in_parent, before_fork};
pub use file_identity::ModelFiles;
pub use file_vocabulary::FileVocabulary;
pub use keep_alive::unload;
pub(crate) use keep_alive::{HeldModel, Kept, Release, watch};
pub(crate) use kept_model::with_absolute_paths;
pub use kept_model::{KeptModel, KeptState, ModelUse, files_of};
#[cfg(llb_isolation)]
pub(crate) use kernels::choose as choose_kernels;
pub(crate) use kernels::{file_variant, report as kernels_report};
pub use log::LogQueue;
#[cfg(llb_isolation)]
pub(crate) use memory::installed as installed_memory;
pub use memory_use::{DeviceMemory, MemoryReport, PartMemory, memory_reports};
pub use model_cache::LoadedModel;
pub use prefix_store::PrefixStore;
pub use state_store::{StatePath, StateStore};
pub use version::BUILD;
pub(crate) use vocab::LlamaVocab;
