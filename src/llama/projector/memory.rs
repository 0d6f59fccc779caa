//! The memory that a projector takes, before it is loaded.

use std::ffi::CString;

use llama_cpp_sys_2 as sys;

use crate::error::{Code, Error, Result};
use crate::llama::raw::log;
use crate::llama::raw::shim::{self, MemoryRow};
use crate::process::Shared;

/// mtmd replaces its log callback meanwhile.
static TURN: Shared<()> = Shared::new(());

/// The memory of the weights and the buffers on each device, as `compute`, as computed by mtmd. It
/// creates the encoder and its buffers, but reads no weights, so in main memory nothing is touched.
pub(in crate::llama) fn memory_rows(path: &str, use_gpu: bool) -> Result<Vec<MemoryRow>> {
    const WHAT: &str = "llama.cpp could not report the memory that the projector takes";
    const MAX: usize = 64;
    let file =
        CString::new(path).map_err(|_| Error::invalid("projector", "the path contains a NUL"))?;
    log::install();
    let _turn = TURN.lock();
    // SAFETY: takes nothing, returns a plain struct.
    let mut params = unsafe { sys::mtmd_context_params_default() };
    params.use_gpu = use_gpu;
    params.print_timings = false;
    params.n_threads = 1;
    let device = std::ptr::null_mut();
    let mut rows = vec![MemoryRow { device, weights: 0, cache: 0, compute: 0 }; MAX];
    let size = size_of::<sys::mtmd_context_params>();
    // SAFETY: the path is NUL-terminated, and the rows are valid for their number.
    let count = shim::guard(|| unsafe {
        let path = file.as_ptr();
        shim::calls::llb_projector_memory_rows(
            path,
            &raw const params,
            size,
            rows.as_mut_ptr(),
            MAX,
        )
    });
    let failed = |failed: shim::CallFailed| failed.error(Code::InferenceFailed, WHAT);
    rows.truncate(count.map_err(failed)?);
    Ok(rows)
}
