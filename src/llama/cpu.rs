//! The processors: how many the process may use, and whether they can run this build.
//!
//! ggml's kernels are compiled for one instruction set: by default AVX2 with FMA and F16C, with
//! `LLB_CPU=baseline` at build time (see `make baseline`) any x86-64. On a processor without that
//! set the first kernel would end with SIGILL.

use crate::error::{Code, Error, Result};
use crate::process::Use;

/// The processors that the process may use, by its limits and those of its container.
pub(crate) fn usable() -> u32 {
    // num_cpus reads the limits once, behind a lock of its own.
    let _during = Use::begin();
    num_cpus::get().max(1) as u32
}

/// Fails if the processor lacks an instruction set of this build.
pub(crate) fn check() -> Result<()> {
    let missing = missing_features();
    if missing.is_empty() {
        return Ok(());
    }
    let list = missing.join(", ");
    Err(Error::new(
        Code::InferenceFailed,
        format!("this processor lacks {list}, which this build of llb needs; use the baseline build (`make baseline`)"),
    )
    .with("missing_cpu_features", missing))
}

#[cfg(all(target_arch = "x86_64", not(llb_cpu_baseline)))]
fn missing_features() -> Vec<&'static str> {
    let needed = [
        ("sse4.2", std::arch::is_x86_feature_detected!("sse4.2")),
        ("avx", std::arch::is_x86_feature_detected!("avx")),
        ("avx2", std::arch::is_x86_feature_detected!("avx2")),
        ("bmi2", std::arch::is_x86_feature_detected!("bmi2")),
        ("fma", std::arch::is_x86_feature_detected!("fma")),
        ("f16c", std::arch::is_x86_feature_detected!("f16c")),
    ];
    needed.into_iter().filter(|(_, there)| !there).map(|(name, _)| name).collect()
}

#[cfg(not(all(target_arch = "x86_64", not(llb_cpu_baseline))))]
fn missing_features() -> Vec<&'static str> {
    Vec::new()
}
