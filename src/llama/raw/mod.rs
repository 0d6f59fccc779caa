//! What touches C directly: guarded calls, faults, the exit, the log, stacks and the system.

pub(super) mod cpu;
pub(super) mod exit;
pub(super) mod faults;
pub(super) mod loader_thread;
pub(super) mod log;
pub(super) mod lost_device;
pub(super) mod mappings;
pub(super) mod memory;
pub(super) mod shim;
pub(super) mod stack;
pub(super) mod wait_clock;
