//! Turns failed assertions of llama.cpp into errors.
//!
//! A failed `GGML_ASSERT` ends the process unless the callback that ggml calls first does not
//! return. The callback here unwinds through llama.cpp's C and C++ frames, whose destructors run,
//! to the [`guard`] around the call. The object of the call is then in an unknown state: it must
//! not be used again, not even freed.
//!
//! Only a thread inside a guard can be saved. An assertion on one of ggml's own threads still ends
//! the process. All assertions that files and requests can cause are on the calling thread.

use std::cell::Cell;
use std::ffi::{CStr, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Once;

use llama_cpp_sys_2 as sys;

use super::exit::CallGuard;

/// The functions that may unwind, declared as such.
pub(super) mod calls {
    use super::*;

    unsafe extern "C-unwind" {
        pub(in crate::llama) fn llama_model_load_from_file(
            path: *const c_char,
            params: sys::llama_model_params,
        ) -> *mut sys::llama_model;
        pub(in crate::llama) fn llama_init_from_model(
            model: *mut sys::llama_model,
            params: sys::llama_context_params,
        ) -> *mut sys::llama_context;
        pub(in crate::llama) fn llama_decode(
            context: *mut sys::llama_context,
            batch: sys::llama_batch,
        ) -> i32;
        pub(in crate::llama) fn llama_tokenize(
            vocab: *const sys::llama_vocab,
            text: *const c_char,
            text_len: i32,
            tokens: *mut sys::llama_token,
            n_tokens_max: i32,
            add_special: bool,
            parse_special: bool,
        ) -> i32;
        pub(in crate::llama) fn llama_token_to_piece(
            vocab: *const sys::llama_vocab,
            token: sys::llama_token,
            buffer: *mut c_char,
            length: i32,
            lstrip: i32,
            special: bool,
        ) -> i32;
        pub(in crate::llama) fn llama_memory_seq_cp(
            memory: sys::llama_memory_t,
            from: sys::llama_seq_id,
            to: sys::llama_seq_id,
            p0: sys::llama_pos,
            p1: sys::llama_pos,
        );
        pub(in crate::llama) fn llama_memory_seq_rm(
            memory: sys::llama_memory_t,
            sequence: sys::llama_seq_id,
            p0: sys::llama_pos,
            p1: sys::llama_pos,
        ) -> bool;
        pub(in crate::llama) fn llama_adapter_lora_init(
            model: *mut sys::llama_model,
            path: *const c_char,
        ) -> *mut sys::llama_adapter_lora;
        pub(in crate::llama) fn llama_set_adapters_lora(
            context: *mut sys::llama_context,
            adapters: *mut *mut sys::llama_adapter_lora,
            n_adapters: usize,
            scales: *mut f32,
        ) -> i32;
        pub(in crate::llama) fn llama_state_seq_get_size(
            context: *mut sys::llama_context,
            sequence: sys::llama_seq_id,
        ) -> usize;
        pub(in crate::llama) fn llama_state_seq_get_data(
            context: *mut sys::llama_context,
            data: *mut u8,
            size: usize,
            sequence: sys::llama_seq_id,
        ) -> usize;
        pub(in crate::llama) fn llama_state_seq_set_data(
            context: *mut sys::llama_context,
            data: *const u8,
            size: usize,
            sequence: sys::llama_seq_id,
        ) -> usize;
    }
}

thread_local! {
    static GUARDED: Cell<bool> = const { Cell::new(false) };
}

/// What [`guard`] caught: file, line and text of the assertion.
#[derive(Debug)]
pub(super) struct AssertionFailed(pub(super) String);

/// Runs calls into llama.cpp and returns a failed assertion as an error.
pub(super) fn guard<T>(call: impl FnOnce() -> T) -> Result<T, AssertionFailed> {
    install();
    let outer = GUARDED.replace(true);
    let _inside = (!outer).then(CallGuard::enter);
    let result = catch_unwind(AssertUnwindSafe(call));
    GUARDED.set(outer);
    result.or_else(|payload| match payload.downcast::<AssertionFailed>() {
        Ok(aborted) => Err(*aborted),
        Err(other) => resume_unwind(other),
    })
}

fn install() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        let callback: unsafe extern "C-unwind" fn(*const c_char) = on_abort;
        // SAFETY: only the declared unwinding differs. The callback is called by `ggml_abort`, C
        // code with unwind tables (the default of every supported ABI), which has nothing to clean
        // up.
        let callback = unsafe {
            std::mem::transmute::<
                unsafe extern "C-unwind" fn(*const c_char),
                unsafe extern "C" fn(*const c_char),
            >(callback)
        };
        // SAFETY: the callback lives forever.
        unsafe { sys::ggml_set_abort_callback(Some(callback)) };
    });
}

unsafe extern "C-unwind" fn on_abort(message: *const c_char) {
    if !GUARDED.get() {
        return;
    }
    // SAFETY: ggml passes a NUL-terminated string that lives during the call.
    let message = unsafe { CStr::from_ptr(message) }.to_string_lossy();
    // "/build/path/src/llama-vocab.cpp:2578: GGML_ASSERT(...) failed" -> without the folder.
    let (path, rest) = message.split_once(':').unwrap_or(("", &message));
    let file = path.rsplit('/').next().unwrap_or_default();
    let message = format!("{file}:{rest}");
    // `resume_unwind` skips the panic hook, so nothing is printed.
    resume_unwind(Box::new(AssertionFailed(message)));
}
