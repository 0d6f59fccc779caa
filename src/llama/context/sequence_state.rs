//! Copies of what a context remembers of one sequence.

use std::ptr::NonNull;

use llama_cpp_sys_2 as sys;

use crate::error::{Code, Error, Result};
use crate::llama::raw::shim;

/// The part of a sequence to copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SequencePart {
    /// All of it.
    Whole,
    /// The part that cannot be cut, such as the states of recurrent layers.
    State,
}

impl SequencePart {
    fn flags(self) -> sys::llama_state_seq_flags {
        match self {
            SequencePart::Whole => 0,
            // `LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY` (llama.h).
            SequencePart::State => 1,
        }
    }
}

/// Copies a part of a sequence. The context must be alive.
pub(crate) fn read(
    context: NonNull<sys::llama_context>,
    sequence: usize,
    part: SequencePart,
) -> Result<Vec<u8>> {
    let what = "llama.cpp could not save the sequence";
    let (context, sequence, flags) = (context.as_ptr(), sequence as i32, part.flags());
    // SAFETY: the context is alive and only read.
    let size = shim::guard(|| unsafe {
        shim::calls::llama_state_seq_get_size_ext(context, sequence, flags)
    });
    let size = size.map_err(|failed| failed.error(Code::InferenceFailed, what))?;
    let mut data = Vec::new();
    data.try_reserve_exact(size)
        .map_err(|error| Error::new(Code::OutOfMemory, error.to_string()).caused_by(error))?;
    data.resize(size, 0);
    let buffer = data.as_mut_ptr();
    // SAFETY: the context is alive, and the buffer is valid for its length.
    let written = shim::guard(|| unsafe {
        shim::calls::llama_state_seq_get_data_ext(context, buffer, size, sequence, flags)
    });
    match written {
        Ok(written) if written == size && size > 0 => Ok(data),
        Ok(written) => {
            Err(Error::new(Code::InferenceFailed, format!("{what}: {written} of {size} bytes")))
        }
        Err(failed) => Err(failed.error(Code::InferenceFailed, what)),
    }
}

/// Replaces a part of a sequence by a copy. Returns whether llama.cpp read all of it. After an
/// error the context must not be used again.
pub(crate) fn write(
    context: NonNull<sys::llama_context>,
    sequence: usize,
    part: SequencePart,
    data: &[u8],
) -> std::result::Result<bool, shim::CallFailed> {
    let (context, sequence, flags) = (context.as_ptr(), sequence as i32, part.flags());
    // SAFETY: the context is alive, and the data is valid for its length, which llama.cpp checks.
    let read = shim::guard(|| unsafe {
        let (bytes, size) = (data.as_ptr(), data.len());
        shim::calls::llama_state_seq_set_data_ext(context, bytes, size, sequence, flags)
    });
    read.map(|read| read == data.len())
}
