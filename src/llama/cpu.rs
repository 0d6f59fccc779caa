//! How many processors the process may use.

use crate::process::Use;

/// The processors that the process may use, by its limits and those of its container.
pub(crate) fn usable() -> u32 {
    // num_cpus reads the limits once, behind a lock of its own.
    let _during = Use::begin();
    num_cpus::get().max(1) as u32
}
