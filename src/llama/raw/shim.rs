//! Calls into llama.cpp that may fail by a C++ exception or a failed assertion, as `Result`s.
//!
//! A call goes through [`guard`], which runs it inside a `try` block of `shim.cpp`. Exceptions and
//! failed assertions unwind llama.cpp's C and C++ frames, whose destructors run. The object of the
//! call is then in an unknown state and must not be used again, not even freed. The same holds
//! after a fault that `faults.cpp` handles, except that the destructors do not run.
//!
//! [`calls`] lists the functions that need a guard. Functions that only return a stored value need
//! none.
//!
//! Faults are caught only on threads inside a guard and on the threads of a pool
//! (context/threads.rs).

use std::ffi::{CStr, c_char, c_int, c_void};
use std::fmt::Display;
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;

use super::exit::CallGuard;
use crate::error::{Code, Error};
use crate::process::{Lazy, Shared};

/// The functions that may throw. The compiler checks their types against the declarations of
/// llama-cpp-sys-2, which also name the arguments. Their ABI lets exceptions pass.
pub(crate) mod calls {
    use std::ffi::{c_char, c_int, c_void};

    use llama_cpp_sys_2::*;

    use super::MemoryRow;

    macro_rules! declare {
        ($(fn $name:ident($($type:ty),*) $(-> $result:ty)?;)*) => {
            unsafe extern "C-unwind" {
                $(pub(crate) fn $name($(_: $type),*) $(-> $result)?;)*
            }
            $(const _: unsafe extern "C" fn($($type),*) $(-> $result)? = llama_cpp_sys_2::$name;)*
        };
    }

    declare! {
        fn llama_backend_init();
        fn ggml_backend_reg_by_name(*const c_char) -> ggml_backend_reg_t;
        fn ggml_backend_register(ggml_backend_reg_t);
        fn ggml_backend_unload(ggml_backend_reg_t);
        fn ggml_backend_reg_dev_count(ggml_backend_reg_t) -> usize;
        fn ggml_backend_reg_dev_get(ggml_backend_reg_t, usize) -> ggml_backend_dev_t;
        fn ggml_backend_reg_get_proc_address(ggml_backend_reg_t, *const c_char) -> *mut c_void;
        fn ggml_backend_cpu_buffer_type() -> ggml_backend_buffer_type_t;
        fn ggml_backend_dev_buffer_type(ggml_backend_dev_t) -> ggml_backend_buffer_type_t;
        fn ggml_backend_dev_count() -> usize;
        fn ggml_backend_dev_get(usize) -> ggml_backend_dev_t;
        fn ggml_backend_dev_get_props(ggml_backend_dev_t, *mut ggml_backend_dev_props);
        fn ggml_backend_dev_memory(ggml_backend_dev_t, *mut usize, *mut usize);
        fn llama_max_devices() -> usize;
        fn llama_model_load_from_file(*const c_char, llama_model_params) -> *mut llama_model;
        fn llama_model_free(*mut llama_model);
        fn llama_model_meta_val_str(*const llama_model, *const c_char, *mut c_char, usize) -> i32;
        fn llama_tokenize(
            *const llama_vocab, *const c_char, i32, *mut llama_token, i32, bool, bool
        ) -> i32;
        fn llama_detokenize(
            *const llama_vocab, *const llama_token, i32, *mut c_char, i32, bool, bool
        ) -> i32;
        fn llama_token_to_piece(
            *const llama_vocab, llama_token, *mut c_char, i32, i32, bool
        ) -> i32;
        fn llama_model_rope_type(*const llama_model) -> llama_rope_type;
        fn llama_init_from_model(*mut llama_model, llama_context_params) -> *mut llama_context;
        fn llama_free(*mut llama_context);
        fn llama_synchronize(*mut llama_context);
        fn llama_decode(*mut llama_context, llama_batch) -> i32;
        fn llama_get_logits_ith(*mut llama_context, i32) -> *mut f32;
        fn llama_set_causal_attn(*mut llama_context, bool);
        fn llama_get_embeddings_seq(*mut llama_context, llama_seq_id) -> *mut f32;
        fn llama_get_embeddings_ith(*mut llama_context, i32) -> *mut f32;
        fn ggml_nbytes(*const ggml_tensor) -> usize;
        fn ggml_backend_tensor_set(*mut ggml_tensor, *const c_void, usize, usize);
        fn ggml_backend_buffer_is_host(ggml_backend_buffer_t) -> bool;
        fn ggml_backend_buffer_get_type(ggml_backend_buffer_t) -> ggml_backend_buffer_type_t;
        fn ggml_init(ggml_init_params) -> *mut ggml_context;
        fn ggml_free(*mut ggml_context);
        fn ggml_new_tensor_1d(*mut ggml_context, ggml_type, i64) -> *mut ggml_tensor;
        fn ggml_map_custom1(
            *mut ggml_context, *mut ggml_tensor, ggml_custom1_op_t, c_int, *mut c_void
        ) -> *mut ggml_tensor;
        fn ggml_new_graph(*mut ggml_context) -> *mut ggml_cgraph;
        fn ggml_build_forward_expand(*mut ggml_cgraph, *mut ggml_tensor);
        fn llama_attach_threadpool(*mut llama_context, ggml_threadpool_t, ggml_threadpool_t);
        fn llama_memory_clear(llama_memory_t, bool);
        fn llama_memory_seq_cp(llama_memory_t, llama_seq_id, llama_seq_id, llama_pos, llama_pos);
        fn llama_memory_seq_rm(llama_memory_t, llama_seq_id, llama_pos, llama_pos) -> bool;
        fn llama_memory_seq_add(llama_memory_t, llama_seq_id, llama_pos, llama_pos, llama_pos);
        fn llama_memory_can_shift(llama_memory_t) -> bool;
        fn llama_memory_seq_pos_min(llama_memory_t, llama_seq_id) -> llama_pos;
        fn llama_memory_seq_pos_max(llama_memory_t, llama_seq_id) -> llama_pos;
        fn llama_adapter_lora_init(*mut llama_model, *const c_char) -> *mut llama_adapter_lora;
        fn llama_adapter_lora_free(*mut llama_adapter_lora);
        fn llama_set_adapters_lora(
            *mut llama_context, *mut *mut llama_adapter_lora, usize, *mut f32
        ) -> i32;
        fn llama_state_seq_get_size_ext(
            *mut llama_context, llama_seq_id, llama_state_seq_flags
        ) -> usize;
        fn llama_state_seq_get_data_ext(
            *mut llama_context, *mut u8, usize, llama_seq_id, llama_state_seq_flags
        ) -> usize;
        fn llama_state_seq_set_data_ext(
            *mut llama_context, *const u8, usize, llama_seq_id, llama_state_seq_flags
        ) -> usize;
    }

    #[cfg(feature = "media")]
    declare! {
        fn mtmd_init_from_file(
            *const c_char, *const llama_model, mtmd_context_params
        ) -> *mut mtmd_context;
        fn mtmd_free(*mut mtmd_context);
        fn mtmd_decode_use_mrope(*const mtmd_context) -> bool;
        fn mtmd_decode_use_non_causal(*const mtmd_context, *const mtmd_input_chunk) -> bool;
        fn mtmd_bitmap_init(u32, u32, *const u8) -> *mut mtmd_bitmap;
        fn mtmd_bitmap_init_from_audio(usize, *const f32) -> *mut mtmd_bitmap;
        fn mtmd_bitmap_free(*mut mtmd_bitmap);
        fn mtmd_input_chunks_init() -> *mut mtmd_input_chunks;
        fn mtmd_input_chunks_size(*const mtmd_input_chunks) -> usize;
        fn mtmd_input_chunks_get(*const mtmd_input_chunks, usize) -> *const mtmd_input_chunk;
        fn mtmd_input_chunks_free(*mut mtmd_input_chunks);
        fn mtmd_input_chunk_get_type(*const mtmd_input_chunk) -> mtmd_input_chunk_type;
        fn mtmd_input_chunk_get_tokens_text(
            *const mtmd_input_chunk, *mut usize
        ) -> *const llama_token;
        fn mtmd_input_chunk_get_n_tokens(*const mtmd_input_chunk) -> usize;
        fn mtmd_input_chunk_get_n_pos(*const mtmd_input_chunk) -> llama_pos;
        fn mtmd_input_chunk_get_tokens_image(*const mtmd_input_chunk) -> *const mtmd_image_tokens;
        fn mtmd_image_tokens_get_decoder_pos(
            *const mtmd_image_tokens, llama_pos, usize
        ) -> mtmd_decoder_pos;
        fn mtmd_input_chunk_copy(*const mtmd_input_chunk) -> *mut mtmd_input_chunk;
        fn mtmd_input_chunk_free(*mut mtmd_input_chunk);
        fn mtmd_tokenize_from_parts(
            *const mtmd_context, *mut mtmd_input_chunks, *const *const mtmd_input_part, usize, bool
        ) -> i32;
        fn mtmd_encode_chunk(*mut mtmd_context, *const mtmd_input_chunk) -> i32;
        fn mtmd_get_output_embd(*mut mtmd_context) -> *mut f32;
    }

    unsafe extern "C-unwind" {
        /// Defined in `shim.cpp`.
        pub(crate) fn llb_memory_rows(
            context: *const llama_context,
            rows: *mut MemoryRow,
            most: usize,
        ) -> usize;
        /// As above.
        pub(crate) fn llb_keep_hidden(context: *mut llama_context, with_logits: bool);
        /// As above.
        pub(crate) fn llb_hidden(context: *mut llama_context) -> *const f32;
        /// As above.
        pub(crate) fn llb_hidden_of(context: *mut llama_context, entry: i32) -> *const f32;

        /// Defined in `shim.cpp`.
        #[cfg(feature = "media")]
        pub(crate) fn llb_projector_memory_rows(
            path: *const c_char,
            params: *const mtmd_context_params,
            size: usize,
            rows: *mut MemoryRow,
            most: usize,
        ) -> usize;
    }

    /// A Rust function that makes one of these calls.
    pub(crate) type GuardedCall = unsafe extern "C-unwind" fn(data: *mut c_void);
}

/// A row as `shim.cpp` writes it.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct MemoryRow {
    /// NULL is main memory.
    pub(crate) device: llama_cpp_sys_2::ggml_backend_dev_t,
    pub(crate) weights: usize,
    pub(crate) cache: usize,
    pub(crate) compute: usize,
}

unsafe extern "C" {
    fn llb_shim_install();
    fn llb_shim_is_inside() -> bool;
    fn llb_shim_call(
        call: calls::GuardedCall,
        data: *mut c_void,
        message: *mut c_char,
        size: usize,
    ) -> c_int;
}

#[cfg(feature = "media")]
unsafe extern "C" {
    /// Defined in `refused_threads.cpp`.
    fn llb_refused_threads_run(value: bool);
}

/// As [`guard`]. The calling thread does the work of each thread of C++ that the system refuses to
/// start, so that work must not wait for what `call` does later.
#[cfg(feature = "media")]
pub(crate) fn guard_with_threads<T>(call: impl FnOnce() -> T) -> Result<T, CallFailed> {
    // SAFETY: sets a variable of this thread.
    unsafe { llb_refused_threads_run(true) };
    let result = guard(call);
    // SAFETY: as above.
    unsafe { llb_refused_threads_run(false) };
    result
}

/// The status values of `llb_shim_call`.
const RETURNED: c_int = 0;
const ASSERTION_FAILED: c_int = 1;
const OUT_OF_MEMORY: c_int = 3;

/// Why a call into llama.cpp did not return.
#[derive(Debug)]
pub(crate) struct CallFailed {
    /// An assertion's file, line and text, an exception's text, or the kind of a fault.
    message: String,
    out_of_memory: bool,
}

impl CallFailed {
    /// What the exception, the assertion or the fault said.
    pub(crate) fn text(&self) -> &str {
        &self.message
    }

    /// Converts to an error whose message starts with `what`. `OUT_OF_MEMORY` if memory ran out,
    /// else `code`.
    pub(crate) fn error(&self, code: Code, what: impl Display) -> Error {
        let code = if self.out_of_memory { Code::OutOfMemory } else { code };
        Error::new(code, format!("{what}: {}", self.message))
    }
}

/// Runs calls into llama.cpp. `call` must not panic. Once the process is exiting, `call` is not run
/// and the result is an error.
pub(crate) fn guard<T>(call: impl FnOnce() -> T) -> Result<T, CallFailed> {
    // SAFETY: takes nothing; the callback that it installs lives forever.
    static INSTALLED: Lazy<()> = Lazy::new(|| unsafe { llb_shim_install() });
    *INSTALLED;
    // SAFETY: takes nothing.
    let outermost = !unsafe { llb_shim_is_inside() };
    let inside = outermost.then(CallGuard::enter);
    if let Some(None) = inside {
        let message = "the process is exiting".to_owned();
        return Err(CallFailed { message, out_of_memory: false });
    }
    run(call)
}

/// Runs a call that frees an object. If it fails, the object is leaked.
pub(crate) fn free(call: impl FnOnce()) {
    let _leaked = guard(call);
}

fn run<F: FnOnce() -> T, T>(call: F) -> Result<T, CallFailed> {
    let mut slot = (Some(call), None);
    let mut message = [MaybeUninit::<u8>::uninit(); 512];
    message[0].write(0);
    let (data, size) = ((&raw mut slot).cast::<c_void>(), message.len());
    let buffer = message.as_mut_ptr().cast::<c_char>();
    // SAFETY: `enter` gets a pointer to `slot`, whose type it knows; the buffer is valid for its
    // size. No exception leaves the shim.
    let status = unsafe { llb_shim_call(enter::<F, T>, data, buffer, size) };
    if let (RETURNED, (_, Some(result))) = (status, slot) {
        return Ok(result);
    }
    // SAFETY: the buffer has a NUL-terminated message, empty unless the shim wrote one.
    let message = unsafe { CStr::from_ptr(buffer) }.to_string_lossy();
    let message =
        if status == ASSERTION_FAILED { without_folder(&message) } else { message.into_owned() };
    note_lost_device(&message);
    Err(CallFailed { message, out_of_memory: status == OUT_OF_MEMORY })
}

/// Runs a call that creates an object, and returns NULL if it cannot. Both failures are errors with
/// this code and message.
pub(crate) fn create<T>(
    code: Code,
    what: impl Display,
    call: impl FnOnce() -> *mut T,
) -> Result<NonNull<T>, Error> {
    match guard(call) {
        Ok(object) => NonNull::new(object).ok_or_else(|| Error::new(code, what.to_string())),
        Err(failed) => Err(failed.error(code, what)),
    }
}

/// Calls a function that fills a buffer, first with room for `length` items. If that is too little,
/// the function returns the number that it needs, negated, and is called again. `None` if that is
/// too little too.
pub(crate) fn fill<T: Clone + Default, E>(
    length: usize,
    mut call: impl FnMut(&mut [T]) -> Result<i32, E>,
) -> Result<Option<Vec<T>>, E> {
    let mut items = vec![T::default(); length];
    for _ in 0..2 {
        let count = call(&mut items)?;
        items.resize(count.unsigned_abs() as usize, T::default());
        if count >= 0 {
            return Ok(Some(items));
        }
    }
    Ok(None)
}

/// Runs a callback of llama.cpp and stops panics, which must not cross llama.cpp's frames. Returns
/// `otherwise` after a panic.
pub(crate) fn callback<T>(otherwise: T, run: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or(otherwise)
}

/// Runs the call in `data`, which points to the `slot` of [`run`].
unsafe extern "C-unwind" fn enter<F: FnOnce() -> T, T>(data: *mut c_void) {
    // SAFETY: `run` passes a pointer to this type, and uses it again only after the call.
    let (call, result) = unsafe { &mut *data.cast::<(Option<F>, Option<T>)>() };
    if let Some(call) = call.take() {
        *result = Some(call());
    }
}

/// The first error of a driver that has lost a device of a file. From then on no model is loaded onto
/// the devices of files in this process: a driver gives the same device again.
static LOST_DEVICE: Shared<Option<String>> = Shared::new(None);
/// How it is reported: by Vulkan's drivers (vk::DeviceLostError), and by `kernels/device_cuda.cu`.
const DEVICE_LOST: [&str; 2] = ["ErrorDeviceLost", "CUDA device lost"];

/// Takes note of the loss of a device if that is what this error is about.
pub(crate) fn note_lost_device(error: &str) {
    if DEVICE_LOST.iter().any(|text| error.contains(text)) {
        LOST_DEVICE.lock().get_or_insert_with(|| error.to_owned());
    }
}

/// What the driver said, if a device was lost.
pub(crate) fn lost_device() -> Option<String> {
    LOST_DEVICE.lock().clone()
}

/// Removes the folder: "/build/path/src/llama-vocab.cpp:2578: GGML_ASSERT(...) failed" ->
/// "llama-vocab.cpp:2578: ...".
pub(crate) fn without_folder(message: &str) -> String {
    let Some((path, rest)) = message.split_once(':') else { return message.to_owned() };
    let file = path.rsplit(['/', '\\']).next().unwrap_or_default();
    format!("{file}:{rest}")
}
