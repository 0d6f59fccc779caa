//! A loaded model file.

use std::ffi::{CStr, CString, c_char, c_void};
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};

use llama_cpp_sys_2 as sys;

use super::faults::FaultHandlers;
use super::mappings::Mappings;
use super::{device, exit, kernels, log, shim};
use crate::error::{Code, Error, Result};
use crate::process::{Lazy, Use};

/// The load options of a model file.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct ModelOptions {
    pub(crate) path: String,
    pub(crate) n_gpu_layers: Option<u32>,
    /// Whether devices are used at all. With no layers on them, they still compute parts of a
    /// prefill, and need memory for that.
    pub(crate) use_devices: bool,
    pub(crate) use_mmap: bool,
    pub(crate) use_mlock: bool,
}

/// Owns a `llama_model`.
pub(crate) struct Model {
    raw: NonNull<sys::llama_model>,
    path: String,
    uses_device: bool,
    /// The parts of the file that it reads while it computes. `None` only while it is freed.
    mappings: Option<Mappings>,
    // Dropped after the model is freed.
    _handlers: FaultHandlers,
}

// SAFETY: llama.cpp does not change a loaded model; contexts and vocabulary functions only read it.
unsafe impl Send for Model {}
// SAFETY: as above.
unsafe impl Sync for Model {}

impl Model {
    /// Loads the weights. `on_progress` gets shares from 0 to 1 on this thread.
    pub(crate) fn load(options: &ModelOptions, on_progress: &mut dyn FnMut(f32)) -> Result<Model> {
        start_backend();
        let path = CString::new(options.path.as_str()).map_err(|error| {
            Error::new(Code::ModelNotFound, "the model path holds a NUL character").caused_by(error)
        })?;
        let handlers = FaultHandlers::install();
        let mut mappings = Mappings::of(Path::new(&options.path));
        let mut is_mapped = false;
        // llama.cpp reports for the first time when it has mapped the file, and has read none of
        // it.
        let mut on_progress = |done: f32| {
            if options.use_mmap && !is_mapped {
                mappings.refresh();
                is_mapped = true;
            }
            on_progress(done);
        };
        let mut on_progress: &mut dyn FnMut(f32) = &mut on_progress;
        // SAFETY: takes nothing, returns a plain struct.
        let mut params = unsafe { sys::llama_model_default_params() };
        params.n_gpu_layers =
            options.n_gpu_layers.map_or(-1, |n| i32::try_from(n).unwrap_or(i32::MAX));
        let mut no_devices = [std::ptr::null_mut()];
        if !options.use_devices {
            params.devices = no_devices.as_mut_ptr();
        }
        params.load_mode = match (options.use_mmap, options.use_mlock) {
            (true, true) => sys::LLAMA_LOAD_MODE_MMAP_MLOCK,
            (true, false) => sys::LLAMA_LOAD_MODE_MMAP,
            (false, true) => sys::LLAMA_LOAD_MODE_MLOCK,
            (false, false) => sys::LLAMA_LOAD_MODE_NONE,
        };
        params.progress_callback = Some(report_progress);
        params.progress_callback_user_data = (&raw mut on_progress).cast::<c_void>();
        // The first load makes llama.cpp's static tables. A child that is forked meanwhile would
        // wait for them for ever.
        static TABLES_ARE_MADE: AtomicBool = AtomicBool::new(false);
        let first = !TABLES_ARE_MADE.load(Ordering::Relaxed);
        let during = first.then(Use::begin);
        // SAFETY: the path is NUL-terminated; the closure and the list of devices outlive the call,
        // and only the call uses them.
        let raw = shim::guard(|| unsafe {
            shim::calls::llama_model_load_from_file(path.as_ptr(), params)
        });
        drop(during);
        TABLES_ARE_MADE.store(true, Ordering::Relaxed);
        let raw = raw.map_err(|failed| {
            failed.error(Code::ModelInvalid, "llama.cpp could not load the model")
        })?;
        let raw = NonNull::new(raw)
            .ok_or_else(|| Error::new(Code::ModelInvalid, "llama.cpp could not load the model"))?;
        let is_lost = mappings.are_lost();
        if is_mapped {
            // The load unmaps what is not read again.
            mappings.refresh();
        }
        let mappings = Some(mappings);
        let uses_device =
            options.use_devices && options.n_gpu_layers != Some(0) && device::exists();
        let path = options.path.clone();
        let model = Model { raw, path, uses_device, mappings, _handlers: handlers };
        if is_lost { Err(Error::new(Code::ModelInvalid, model.lost())) } else { Ok(model) }
    }

    /// Whether a part of the mapped file could not be read since it was loaded.
    pub(crate) fn is_lost(&self) -> bool {
        self.mappings.as_ref().is_some_and(Mappings::are_lost)
    }

    /// A message that says so.
    pub(crate) fn lost(&self) -> String {
        format!(
            "{}: the file was cut short or could not be read while it was in use; restore it and \
             create the chat again, or load it with use_mmap false",
            self.path
        )
    }

    pub(crate) fn as_ptr(&self) -> *mut sys::llama_model {
        self.raw.as_ptr()
    }

    pub(crate) fn vocab(&self) -> *const sys::llama_vocab {
        // SAFETY: the model is alive; its vocabulary lives as long as it.
        unsafe { sys::llama_model_get_vocab(self.raw.as_ptr()) }
    }

    /// A text, number or truth value of the file's metadata, as text.
    pub(crate) fn metadata(&self, key: &str) -> Option<String> {
        let key = CString::new(key).ok()?;
        let mut value = [0 as c_char; 128];
        // SAFETY: the model is alive, the key NUL-terminated, the buffer valid for its length.
        let length = shim::guard(|| unsafe {
            shim::calls::llama_model_meta_val_str(
                self.raw.as_ptr(),
                key.as_ptr(),
                value.as_mut_ptr(),
                value.len(),
            )
        });
        let length = length.ok()?;
        if length < 0 {
            return None;
        }
        // SAFETY: llama.cpp has written NUL-terminated text, cut to the buffer.
        let value = unsafe { CStr::from_ptr(value.as_ptr()) };
        Some(value.to_string_lossy().into_owned())
    }

    /// Whether layers may be on a device such as a GPU.
    pub(crate) fn uses_device(&self) -> bool {
        self.uses_device
    }

    /// The sliding window of layers that have one; 0 if all layers attend to the whole context.
    pub(crate) fn window(&self) -> i32 {
        // SAFETY: the model is alive.
        unsafe { sys::llama_model_n_swa(self.raw.as_ptr()) }
    }

    /// Tokens that must never be sampled, by the file (`tokenizer.ggml.suppress_tokens`).
    pub(crate) fn suppressed(&self) -> &[sys::llama_token] {
        let mut count = 0;
        // SAFETY: the model is alive; the count is written during the call.
        let tokens = unsafe { sys::llama_vocab_get_suppress_tokens(self.vocab(), &raw mut count) };
        let count = usize::try_from(count).unwrap_or(0);
        if tokens.is_null() || count == 0 {
            return &[];
        }
        // SAFETY: llama.cpp's array has `count` elements, lives as long as the model and does not
        // change.
        unsafe { std::slice::from_raw_parts(tokens, count) }
    }

    /// Whether there is a vocabulary. Without one llama.cpp asserts in most functions that take it.
    pub(crate) fn has_vocabulary(&self) -> bool {
        // SAFETY: the model is alive.
        let kind = unsafe { sys::llama_vocab_type(self.vocab()) };
        // SAFETY: the model is alive.
        kind != sys::LLAMA_VOCAB_TYPE_NONE && unsafe { sys::llama_vocab_n_tokens(self.vocab()) } > 0
    }

    /// Whether some layers keep one state for the whole sequence, which cannot be copied or cut in
    /// part.
    pub(crate) fn has_state(&self) -> bool {
        // SAFETY: the model is alive.
        let recurrent = unsafe { sys::llama_model_is_recurrent(self.raw.as_ptr()) };
        // SAFETY: the model is alive.
        recurrent || unsafe { sys::llama_model_is_hybrid(self.raw.as_ptr()) }
    }

    /// Whether the model generates text; an encoder does not.
    pub(crate) fn has_decoder(&self) -> bool {
        // SAFETY: the model is alive.
        unsafe { sys::llama_model_has_decoder(self.raw.as_ptr()) }
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        self.mappings = None;
        // SAFETY: the pointer came from llama_model_load_from_file and is freed once; contexts hold
        // an Arc of this model.
        shim::free(|| unsafe { shim::calls::llama_model_free(self.raw.as_ptr()) });
    }
}

/// Starts llama.cpp, once per process, before any other call.
pub(crate) fn start_backend() {
    static STARTED: Lazy<()> = Lazy::new(|| {
        log::install();
        kernels::announce_built_in();
        // SAFETY: once per process, before any other call. A failure shows in the calls that follow.
        let _ = shim::guard(|| unsafe { shim::calls::llama_backend_init() });
    });
    *STARTED;
}

unsafe extern "C" fn report_progress(done: f32, user_data: *mut c_void) -> bool {
    // SAFETY: `load` passes a pointer to its closure, which lives until the load returns.
    let on_progress = unsafe { &mut *user_data.cast::<&mut dyn FnMut(f32)>() };
    shim::callback(false, || {
        on_progress(done);
        !exit::is_stopping()
    })
}
