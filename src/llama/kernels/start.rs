//! Starts llama.cpp in this process, and tells ggml's registry whether it may run this library's own
//! kernels.

use super::variant::{self, BUILT_IN};
use crate::error::{Code, Error, Result};
use crate::llama::raw::{exit, log, shim};
use crate::process::Lazy;

unsafe extern "C" {
    fn llb_kernels_set_built_in(can_run: bool);
    fn llb_kernels_redirected() -> bool;
}

/// Starts llama.cpp, once per process, before any other call. Fails if it cannot start on this
/// processor.
pub(crate) fn start_backend() -> Result<()> {
    static STARTED: Lazy<()> = Lazy::new(|| {
        log::install();
        exit::install();
        announce_built_in();
        // SAFETY: once per process, before any other call. A failure shows in the calls that
        // follow.
        let _ = shim::guard(|| unsafe { shim::calls::llama_backend_init() });
    });
    check_registry()?;
    *STARTED;
    Ok(())
}

/// Called before ggml's registry starts. Tells it whether it may run this library's own kernels.
fn announce_built_in() {
    // SAFETY: takes a plain value; the registry has not started.
    unsafe { llb_kernels_set_built_in(can_run_built_in()) };
}

/// Fails if ggml's registry would run this library's own kernels on a processor that cannot.
fn check_registry() -> Result<()> {
    // SAFETY: takes nothing.
    if can_run_built_in() || unsafe { llb_kernels_redirected() } {
        return Ok(());
    }
    let missing = variant::missing(BUILT_IN).unwrap_or_default();
    let message = format!(
        "this processor lacks {}, which the kernels in this program need; to use files of kernels, \
         link libllb.a as `pkg-config --static --libs llb` says, or use libllb.so",
        missing.join(", ")
    );
    Err(Error::new(Code::InferenceFailed, message).with("missing_cpu_features", missing))
}

/// Whether this processor can run the kernels in this library.
pub(crate) fn can_run_built_in() -> bool {
    variant::missing(BUILT_IN).is_some_and(|missing| missing.is_empty())
}
