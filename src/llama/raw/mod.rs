//! What touches C directly: guarded calls, faults, the exit, the log, stacks and the system.

pub(super) mod exit;
pub(super) mod faults;
pub(super) mod log;
pub(super) mod machine_memory;
pub(super) mod shim;
pub(super) mod stack;
pub(super) mod system;

pub(crate) use self::log::LogQueue;
