//! How many processors the process may use.

use crate::process::Use;

/// The number of processors that the process may use, within its own limits and those of its
/// container.
pub(crate) fn usable() -> u32 {
    // num_cpus reads the limits once, while holding its own lock.
    let _during = Use::begin();
    num_cpus::get().max(1) as u32
}
