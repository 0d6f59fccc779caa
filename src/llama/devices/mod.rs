//! Devices such as GPUs: which there are, and which of them a model may use.

pub(super) mod device;
pub(super) mod device_file;
pub(super) mod device_selection;
