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
#[cfg(not(feature = "media"))]
mod no_projector;
#[cfg(feature = "media")]
mod projector;
mod raw;
mod state;
#[cfg(all(test, target_os = "linux"))]
mod tests;
mod vocab;

pub(crate) use devices::backends_report as kernels_report;
pub use devices::{RpcService, ShouldStop, default_devices, serve_rpc};
pub(crate) use embedder::{Embedder, load_embedder};
#[cfg(llb_isolation)]
pub(crate) use kernels::choose as choose_kernels;
pub(crate) use kernels::file_variant;
pub use load::device_memory::DeviceMemory;
pub use load::file_identity::ModelFiles;
pub use load::file_vocabulary::FileVocabulary;
pub use load::keep_alive::unload;
pub(crate) use load::keep_alive::{HeldModel, Kept, Release, watch};
pub(crate) use load::kept_model::with_absolute_paths;
pub use load::kept_model::{KeptModel, KeptState, ModelUse, files_of};
pub use load::loaded_model::LoadedModel;
pub use load::memory_use::{MemoryReport, memory_reports};
pub use load::part_memory::PartMemory;
pub use load::projector_file::{fitting_projector, with_projector_beside};
#[cfg(not(feature = "media"))]
pub use no_projector::NoProjector as MediaEncoder;
#[cfg(feature = "media")]
pub use projector::MediaEncoder;
pub use raw::exit::{BeforeExit, call_before_exit};
#[cfg(unix)]
pub(crate) use raw::exit::{after_fork_in_child, after_fork_in_parent, before_fork};
pub use raw::log::LogQueue;
#[cfg(llb_isolation)]
pub(crate) use raw::machine_memory::installed_memory;
pub use raw::machine_memory::{MachineMemory, give_back_memory};
pub use state::prefix_store::PrefixStore;
pub use state::{StatePath, StateStore};
pub(crate) use vocab::LlamaVocab;

/// llama.cpp's build number: the position of its commit in the history of its main branch. It is
/// also the name of the release, `b11429`.
///
/// The crate contains the source without its history, so the number cannot be computed.
/// llama-cpp-sys-2 0.1.161 has the source of release v0.6.0, which is b11429, commit d81235049:
///
/// - Its version is 0.6.0-dev, like b11429's. The version of b11424 is 0.5.0-dev.
/// - It lacks the change of b11430 (flash attention of Hexagon by heads) and those of b11436
///   (OpenVINO's `DUP`) and b11439 (no copies of experts in ggml-backend.cpp).
pub const BUILD: u32 = 11429;

#[cfg(test)]
mod build_tests {
    use std::ffi::CStr;

    /// A failure means that llama-cpp-sys-2 contains another llama.cpp. Find its build number, then
    /// change [`super::BUILD`] with its evidence, docs/engine.md and this test.
    #[test]
    fn the_build_is_that_of_the_pinned_crate() {
        let manifest = include_str!("../../Cargo.toml");
        let pinned = manifest.lines().find_map(|line| line.strip_prefix("llama-cpp-sys-2 = "));
        assert!(pinned.is_some_and(|pinned| pinned.contains("\"=0.1.161\"")), "{pinned:?}");
        // SAFETY: takes nothing.
        let version = unsafe { llama_cpp_sys_2::llama_version() };
        // SAFETY: a static, NUL-terminated string.
        let version = unsafe { CStr::from_ptr(version) };
        assert_eq!((version.to_str(), super::BUILD), (Ok("0.6.0-dev"), 11429));
        let documented = include_str!("../../docs/engine.md");
        assert!(documented.contains(&format!("b{}", super::BUILD)), "docs/engine.md");
    }
}
