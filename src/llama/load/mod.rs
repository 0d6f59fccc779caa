//! Loads models: checks before any weight is read, sharing of loaded models, and unloading.

pub(super) mod context_checks;
pub(super) mod draft;
pub(super) mod file_identity;
pub(super) mod file_vocabulary;
pub(super) mod fit;
pub(super) mod keep_alive;
pub(super) mod kept_model;
pub(super) mod loaded_model;
pub(super) mod loader;
pub(super) mod memory_use;
pub(super) mod model_cache;
pub(super) mod placement;
