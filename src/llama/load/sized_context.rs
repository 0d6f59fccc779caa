//! A context without buffers, which says what memory it would take.

use std::ptr::NonNull;

use llama_cpp_sys_2 as sys;

use crate::error::{Code, Result};
use crate::llama::context::{ContextOptions, Model};
use crate::llama::raw::shim;
use crate::llama::raw::shim::MemoryRow;

/// A context without buffers. It can only report sizes.
pub(super) struct SizedContext(NonNull<sys::llama_context>);

impl SizedContext {
    /// `model` must outlive the context.
    pub(super) fn new(
        model: &Model,
        options: &ContextOptions,
        context_type: sys::llama_context_type,
    ) -> Result<SizedContext> {
        let refused = "llama.cpp could not create a context with these options";
        let params = options.params(context_type);
        let context = shim::create(Code::InferenceFailed, refused, || {
            // SAFETY: the model is alive; the parameters have no pointers.
            unsafe { shim::calls::llama_init_from_model(model.as_ptr(), params) }
        });
        context.map(SizedContext)
    }

    pub(super) fn rows(&self) -> Result<Vec<MemoryRow>> {
        /// The most types of buffers. There are a few for each device.
        const MAX: usize = 64;
        let device = std::ptr::null_mut();
        let mut rows = vec![MemoryRow { device, weights: 0, cache: 0, compute: 0 }; MAX];
        // SAFETY: the context is alive, and the rows are valid for their number.
        let count = shim::guard(|| unsafe {
            shim::calls::llb_memory_rows(self.0.as_ptr(), rows.as_mut_ptr(), MAX)
        });
        let what = "llama.cpp could not report the memory that a context takes";
        rows.truncate(count.map_err(|failed| failed.error(Code::InferenceFailed, what))?);
        Ok(rows)
    }
}

impl Drop for SizedContext {
    fn drop(&mut self) {
        // SAFETY: it came from llama_init_from_model and is freed once, before its model.
        shim::free(|| unsafe { shim::calls::llama_free(self.0.as_ptr()) });
    }
}
