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
//! ([`crate::llama::context::threads`]).

use std::ffi::{CStr, c_char, c_int, c_void};
use std::fmt::Display;
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::exit::CallGuard;
use super::lost_device;
use crate::error::{Code, Error};
use crate::process::Lazy;

/// The functions that may throw. The compiler checks their types against the declarations of
/// llama-cpp-sys-2. Their ABI lets exceptions pass.
pub(crate) mod calls {
    use std::ffi::{c_char, c_int, c_void};

    use llama_cpp_sys_2::*;

    use super::MemoryRow;

    macro_rules! declare {
        ($(fn $name:ident($($argument:ident: $type:ty),*) $(-> $result:ty)?;)*) => {
            unsafe extern "C-unwind" {
                $(pub(crate) fn $name($($argument: $type),*) $(-> $result)?;)*
            }
            $(const _: unsafe extern "C" fn($($type),*) $(-> $result)? = llama_cpp_sys_2::$name;)*
        };
    }

    declare! {
        fn llama_backend_init();
        fn ggml_backend_reg_by_name(name: *const c_char) -> ggml_backend_reg_t;
        fn ggml_backend_register(registration: ggml_backend_reg_t);
        fn ggml_backend_unload(registration: ggml_backend_reg_t);
        fn ggml_backend_reg_dev_count(registration: ggml_backend_reg_t) -> usize;
        fn ggml_backend_reg_dev_get(
            registration: ggml_backend_reg_t,
            index: usize
        ) -> ggml_backend_dev_t;
        fn ggml_backend_dev_count() -> usize;
        fn ggml_backend_dev_get(index: usize) -> ggml_backend_dev_t;
        fn ggml_backend_dev_get_props(device: ggml_backend_dev_t, props: *mut ggml_backend_dev_props);
        fn ggml_backend_dev_memory(device: ggml_backend_dev_t, free: *mut usize, total: *mut usize);

        fn llama_model_load_from_file(
            path: *const c_char,
            params: llama_model_params
        ) -> *mut llama_model;
        fn llama_model_free(model: *mut llama_model);
        fn llama_model_meta_val_str(
            model: *const llama_model,
            key: *const c_char,
            buffer: *mut c_char,
            size: usize
        ) -> i32;

        fn llama_tokenize(
            vocab: *const llama_vocab,
            text: *const c_char,
            text_len: i32,
            tokens: *mut llama_token,
            n_tokens_max: i32,
            add_special: bool,
            parse_special: bool
        ) -> i32;
        fn llama_detokenize(
            vocab: *const llama_vocab,
            tokens: *const llama_token,
            n_tokens: i32,
            text: *mut c_char,
            text_len_max: i32,
            remove_special: bool,
            unparse_special: bool
        ) -> i32;
        fn llama_token_to_piece(
            vocab: *const llama_vocab,
            token: llama_token,
            buffer: *mut c_char,
            length: i32,
            lstrip: i32,
            special: bool
        ) -> i32;

        fn llama_init_from_model(
            model: *mut llama_model,
            params: llama_context_params
        ) -> *mut llama_context;
        fn llama_free(context: *mut llama_context);
        fn llama_synchronize(context: *mut llama_context);
        fn llama_decode(context: *mut llama_context, batch: llama_batch) -> i32;
        fn llama_get_logits_ith(context: *mut llama_context, row: i32) -> *mut f32;
        fn llama_get_embeddings_seq(
            context: *mut llama_context,
            sequence: llama_seq_id
        ) -> *mut f32;
        fn llama_get_embeddings_ith(context: *mut llama_context, row: i32) -> *mut f32;
        fn ggml_nbytes(tensor: *const ggml_tensor) -> usize;
        fn ggml_backend_buffer_is_host(buffer: ggml_backend_buffer_t) -> bool;
        fn ggml_backend_buffer_get_type(
            buffer: ggml_backend_buffer_t
        ) -> ggml_backend_buffer_type_t;
        fn ggml_init(params: ggml_init_params) -> *mut ggml_context;
        fn ggml_free(memory: *mut ggml_context);
        fn ggml_new_tensor_1d(
            memory: *mut ggml_context,
            number: ggml_type,
            length: i64
        ) -> *mut ggml_tensor;
        fn ggml_map_custom1(
            memory: *mut ggml_context,
            input: *mut ggml_tensor,
            operation: ggml_custom1_op_t,
            n_tasks: c_int,
            data: *mut c_void
        ) -> *mut ggml_tensor;
        fn ggml_new_graph(memory: *mut ggml_context) -> *mut ggml_cgraph;
        fn ggml_build_forward_expand(graph: *mut ggml_cgraph, output: *mut ggml_tensor);
        fn llama_attach_threadpool(
            context: *mut llama_context,
            pool: ggml_threadpool_t,
            pool_batch: ggml_threadpool_t
        );

        fn llama_memory_clear(memory: llama_memory_t, data: bool);
        fn llama_memory_seq_cp(
            memory: llama_memory_t,
            from: llama_seq_id,
            to: llama_seq_id,
            p0: llama_pos,
            p1: llama_pos
        );
        fn llama_memory_seq_rm(
            memory: llama_memory_t,
            sequence: llama_seq_id,
            p0: llama_pos,
            p1: llama_pos
        ) -> bool;
        fn llama_memory_seq_add(
            memory: llama_memory_t,
            sequence: llama_seq_id,
            p0: llama_pos,
            p1: llama_pos,
            delta: llama_pos
        );
        fn llama_memory_can_shift(memory: llama_memory_t) -> bool;
        fn llama_memory_seq_pos_min(memory: llama_memory_t, sequence: llama_seq_id) -> llama_pos;
        fn llama_memory_seq_pos_max(memory: llama_memory_t, sequence: llama_seq_id) -> llama_pos;

        fn llama_adapter_lora_init(
            model: *mut llama_model,
            path: *const c_char
        ) -> *mut llama_adapter_lora;
        fn llama_adapter_lora_free(adapter: *mut llama_adapter_lora);
        fn llama_set_adapters_lora(
            context: *mut llama_context,
            adapters: *mut *mut llama_adapter_lora,
            n_adapters: usize,
            scales: *mut f32
        ) -> i32;

        fn llama_state_seq_get_size_ext(
            context: *mut llama_context,
            sequence: llama_seq_id,
            flags: llama_state_seq_flags
        ) -> usize;
        fn llama_state_seq_get_data_ext(
            context: *mut llama_context,
            data: *mut u8,
            size: usize,
            sequence: llama_seq_id,
            flags: llama_state_seq_flags
        ) -> usize;
        fn llama_state_seq_set_data_ext(
            context: *mut llama_context,
            data: *const u8,
            size: usize,
            sequence: llama_seq_id,
            flags: llama_state_seq_flags
        ) -> usize;
    }

    unsafe extern "C-unwind" {
        /// Defined in `shim.cpp`.
        pub(crate) fn llb_memory_rows(
            context: *const llama_context,
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
    lost_device::note(&message);
    Err(CallFailed { message, out_of_memory: status == OUT_OF_MEMORY })
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

/// Removes the folder: "/build/path/src/llama-vocab.cpp:2578: GGML_ASSERT(...) failed" ->
/// "llama-vocab.cpp:2578: ...".
pub(crate) fn without_folder(message: &str) -> String {
    let Some((path, rest)) = message.split_once(':') else { return message.to_owned() };
    let file = path.rsplit(['/', '\\']).next().unwrap_or_default();
    format!("{file}:{rest}")
}
