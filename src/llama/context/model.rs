//! A loaded model file.

use std::ffi::{CStr, CString, c_char, c_void};
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};

use llama_cpp_sys_2 as sys;

use crate::error::{Code, Error, Result};
use crate::llama::devices::{self, DeviceSelection, DeviceSplit};
use crate::llama::kernels::start_llama_cpp;
use crate::llama::raw::faults::{FaultHandlers, Mappings};
use crate::llama::raw::{exit, shim, stack};
use crate::process::Use;

/// The longest text that a special token may have. A position of a text may have to be compared with
/// all of it.
pub(crate) const MAX_BYTES_OF_SPECIAL: usize = 1024;

/// The load options of a model file.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct ModelOptions {
    pub(crate) path: String,
    pub(crate) n_gpu_layers: Option<u32>,
    /// The devices that may be used. Even without layers on them, they compute parts of a prefill
    /// and need memory for that.
    pub(crate) devices: DeviceSelection,
    /// How several devices divide the model.
    pub(crate) split: DeviceSplit,
    /// The number of blocks, from the first one, whose experts stay in main memory. `None` until
    /// it was decided.
    pub(crate) n_cpu_moe: Option<u32>,
    /// The tensors that do not live with their layers. The first rule that matches decides.
    pub(crate) rules: Vec<TensorRule>,
    pub(crate) use_mmap: bool,
    pub(crate) use_mlock: bool,
    /// Whether matrices may be stored in another order, for which there are faster kernels. Those
    /// for experts write out of bounds if a token uses an expert twice
    /// ([`repeats_experts`](crate::gguf::ModelHeader::repeats_experts)).
    pub(crate) repacks: bool,
    /// Whether the layers that predict further tokens are loaded.
    pub(crate) predicts: bool,
}

/// Tensors that live elsewhere than their layer.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct TensorRule {
    /// An expression for llama.cpp, which searches for it in the names of tensors.
    pub(crate) pattern: String,
    /// The device. `None` is main memory.
    pub(crate) device: Option<String>,
}

/// What llama.cpp's parameters refer to.
struct ParamLists {
    /// `None` if llama.cpp chooses the devices.
    devices: Option<Vec<sys::ggml_backend_dev_t>>,
    shares: Vec<f32>,
    overrides: Vec<sys::llama_model_tensor_buft_override>,
    /// The texts of the overrides.
    _patterns: Vec<CString>,
}

impl ParamLists {
    fn of(options: &ModelOptions) -> Result<ParamLists> {
        let what = "llama.cpp could not load the model";
        // SAFETY: takes nothing.
        let most = shim::guard(|| unsafe { shim::calls::llama_max_devices() });
        let most = most.map_err(|failed| failed.error(Code::ModelInvalid, what))?;
        let rules = if options.devices.has_any() { options.rules.as_slice() } else { &[] };
        let patterns = rules.iter().map(|rule| CString::new(rule.pattern.as_str()));
        let patterns = patterns
            .collect::<std::result::Result<Vec<CString>, _>>()
            .map_err(|error| Error::new(Code::ModelInvalid, what).caused_by(error))?;
        let mut overrides = Vec::with_capacity(patterns.len() + 1);
        for (rule, pattern) in rules.iter().zip(&patterns) {
            let Some(buft) = devices::buffer_type(rule.device.as_deref()) else { continue };
            overrides
                .push(sys::llama_model_tensor_buft_override { pattern: pattern.as_ptr(), buft });
        }
        let (pattern, buft) = (std::ptr::null(), std::ptr::null_mut());
        overrides.push(sys::llama_model_tensor_buft_override { pattern, buft });
        let shares = options.split.shares(most);
        Ok(ParamLists { devices: options.devices.list(), shares, overrides, _patterns: patterns })
    }
}

impl ModelOptions {
    /// The options for another model, which was loaded with the same ones. Rules are about the
    /// tensors of one model.
    pub(crate) fn for_other(&self, path: String) -> ModelOptions {
        ModelOptions { path, rules: Vec::new(), n_cpu_moe: None, predicts: false, ..self.clone() }
    }

    /// llama.cpp's parameters, which refer to the lists.
    fn params(&self, lists: &mut ParamLists) -> sys::llama_model_params {
        // SAFETY: takes nothing, returns a plain struct.
        let mut params = unsafe { sys::llama_model_default_params() };
        params.n_gpu_layers =
            self.n_gpu_layers.map_or(-1, |n| i32::try_from(n).unwrap_or(i32::MAX));
        if let Some(devices) = &mut lists.devices {
            params.devices = devices.as_mut_ptr();
        }
        params.split_mode = self.split.mode();
        if !lists.shares.is_empty() {
            params.tensor_split = lists.shares.as_ptr();
        }
        // Without rules no list, not even an empty one.
        if lists.overrides.len() > 1 {
            params.tensor_buft_overrides = lists.overrides.as_ptr();
        }
        params.load_mode = match (self.use_mmap, self.use_mlock) {
            (true, true) => sys::LLAMA_LOAD_MODE_MMAP_MLOCK,
            (true, false) => sys::LLAMA_LOAD_MODE_MMAP,
            (false, true) => sys::LLAMA_LOAD_MODE_MLOCK,
            (false, false) => sys::LLAMA_LOAD_MODE_NONE,
        };
        params.use_extra_bufts = self.repacks;
        params.load_mtp = self.predicts;
        params
    }

    /// Whether layers may be on a device.
    pub(crate) fn may_use_devices(&self) -> bool {
        self.n_gpu_layers != Some(0) && self.devices.has_any()
    }
}

/// Owns a `llama_model`.
pub(crate) struct Model {
    raw: NonNull<sys::llama_model>,
    path: String,
    has_devices: bool,
    uses_device: bool,
    /// The parts of the file that the model reads while it computes. `None` for a model without
    /// weights, and while the model is being freed.
    mappings: Option<Mappings>,
    // Dropped after the model is freed.
    _handlers: FaultHandlers,
}

// SAFETY: llama.cpp does not change a loaded model; contexts and vocabulary functions only read it.
unsafe impl Send for Model {}
// SAFETY: as above.
unsafe impl Sync for Model {}

impl Model {
    /// Loads the weights. `on_progress` receives the share that is loaded, from 0 to 1, on this
    /// thread. It returns whether to continue.
    pub(crate) fn load(
        options: &ModelOptions,
        on_progress: &mut dyn FnMut(f32) -> bool,
    ) -> Result<Model> {
        start_llama_cpp()?;
        let path = c_path(&options.path)?;
        let handlers = FaultHandlers::install();
        let mut mappings = Mappings::of(Path::new(&options.path));
        let mut is_mapped = false;
        // llama.cpp's first report comes after it has mapped the file, and before it reads any of
        // it.
        let mut on_progress = |done: f32| {
            if options.use_mmap && !is_mapped {
                mappings.refresh();
                is_mapped = true;
            }
            on_progress(done)
        };
        let mut on_progress: &mut dyn FnMut(f32) -> bool = &mut on_progress;
        let mut lists = ParamLists::of(options)?;
        let mut params = options.params(&mut lists);
        params.progress_callback = Some(report_progress);
        params.progress_callback_user_data = (&raw mut on_progress).cast::<c_void>();
        // SAFETY: the closure and the lists outlive the call, and only the call uses them.
        let raw = unsafe { load_from_file(&path, params) }?;
        let is_lost = mappings.are_lost();
        if is_mapped {
            // At the end of a load, llama.cpp unmaps the parts that it does not read again.
            mappings.refresh();
        }
        let mappings = Some(mappings);
        let (has_devices, uses_device) = (options.devices.has_any(), options.may_use_devices());
        let path = options.path.clone();
        let model = Model { raw, path, has_devices, uses_device, mappings, _handlers: handlers };
        if is_lost {
            return Err(Error::new(Code::ModelInvalid, model.lost()));
        }
        model.check_special_tokens()?;
        model.tokenize_once();
        Ok(model)
    }

    /// Loads only the vocabulary. The result cannot compute.
    pub(crate) fn load_vocabulary(path: &str) -> Result<Model> {
        start_llama_cpp()?;
        let handlers = FaultHandlers::install();
        // SAFETY: takes nothing, returns a plain struct.
        let mut params = unsafe { sys::llama_model_default_params() };
        params.vocab_only = true;
        let mut no_devices = [std::ptr::null_mut()];
        params.devices = no_devices.as_mut_ptr();
        // SAFETY: the list of devices outlives the call, and only the call uses it.
        let raw = unsafe { load_from_file(&c_path(path)?, params) }?;
        let model = Model::without_weights(raw, path.to_owned(), handlers);
        model.check_special_tokens()?;
        model.tokenize_once();
        Ok(model)
    }

    /// Tokenizes a short text, because llama.cpp creates static objects at the first one
    /// ([`exit::register`]).
    fn tokenize_once(&self) {
        const TEXT: &CStr = c"a 1";
        if !self.has_vocabulary() {
            return;
        }
        let (vocab, mut tokens) = (self.vocab(), [0; 16]);
        // SAFETY: the vocabulary is alive, and text and tokens are valid for the given lengths.
        let _ = shim::guard(|| unsafe {
            shim::calls::llama_tokenize(
                vocab,
                TEXT.as_ptr(),
                TEXT.count_bytes() as i32,
                tokens.as_mut_ptr(),
                tokens.len() as i32,
                false,
                false,
            )
        });
    }

    /// Checks that special tokens are UTF-8 and short. Texts are split at them before llama.cpp
    /// tokenizes the parts, because its own splitting takes quadratic time.
    fn check_special_tokens(&self) -> Result<()> {
        const SPECIAL: sys::llama_token_attr = sys::LLAMA_TOKEN_ATTR_CONTROL
            | sys::LLAMA_TOKEN_ATTR_UNKNOWN
            | sys::LLAMA_TOKEN_ATTR_USER_DEFINED;
        if !self.has_vocabulary() {
            return Ok(());
        }
        let vocab = self.vocab();
        for token in 0..self.n_tokens() as sys::llama_token {
            // SAFETY: the id is inside the vocabulary.
            if unsafe { sys::llama_vocab_get_attr(vocab, token) } & SPECIAL == 0 {
                continue;
            }
            // SAFETY: as above.
            let text = unsafe { sys::llama_vocab_get_text(vocab, token) };
            // SAFETY: it is NUL-terminated and lives as long as the model.
            let text = unsafe { CStr::from_ptr(text) };
            let rule = match text.to_str() {
                Err(_) => "not valid UTF-8".to_owned(),
                Ok(text) if text.len() > MAX_BYTES_OF_SPECIAL => {
                    format!("longer than {MAX_BYTES_OF_SPECIAL} bytes")
                }
                Ok(_) => continue,
            };
            let problem = format!("the text of the special token {token} is {rule}");
            return Err(Error::new(Code::ModelInvalid, problem));
        }
        Ok(())
    }

    /// Loads only the metadata that determines the sizes of the model and its contexts, without
    /// weights. The result cannot compute.
    pub(crate) fn load_sizes(options: &ModelOptions) -> Result<Model> {
        start_llama_cpp()?;
        let handlers = FaultHandlers::install();
        let mut lists = ParamLists::of(options)?;
        let mut params = options.params(&mut lists);
        params.no_alloc = true;
        params.load_mode = sys::LLAMA_LOAD_MODE_NONE;
        // SAFETY: the lists outlive the call, and only the call uses them.
        let raw = unsafe { load_from_file(&c_path(&options.path)?, params) }?;
        Ok(Model::without_weights(raw, options.path.clone(), handlers))
    }

    fn without_weights(
        raw: NonNull<sys::llama_model>,
        path: String,
        handlers: FaultHandlers,
    ) -> Model {
        let (has_devices, uses_device) = (false, false);
        Model { raw, path, has_devices, uses_device, mappings: None, _handlers: handlers }
    }

    /// Whether a part of the mapped file could not be read since it was loaded.
    pub(crate) fn is_lost(&self) -> bool {
        self.mappings.as_ref().is_some_and(Mappings::are_lost)
    }

    /// The error message for a lost part.
    pub(crate) fn lost(&self) -> String {
        format!(
            "{}: the file was cut short or could not be read while it was in use; restore it and \
             open it again, or with use_mmap false",
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

    /// A string, number or boolean of the file's metadata, as text.
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

    /// Whether devices such as GPUs compute parts of a decode, with layers on them or without.
    pub(crate) fn has_devices(&self) -> bool {
        self.has_devices
    }

    /// Whether layers may be on a device.
    pub(crate) fn uses_device(&self) -> bool {
        self.uses_device
    }

    /// The sliding window of layers that have one; 0 if all layers attend to the whole context.
    pub(crate) fn window(&self) -> i32 {
        // SAFETY: the model is alive.
        unsafe { sys::llama_model_n_swa(self.raw.as_ptr()) }
    }

    /// Tokens that must never be sampled, according to the file (`tokenizer.ggml.suppress_tokens`).
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

    /// Whether the model has a vocabulary. Without one, most llama.cpp functions that take it fail
    /// an assertion.
    pub(crate) fn has_vocabulary(&self) -> bool {
        // SAFETY: the model is alive.
        let kind = unsafe { sys::llama_vocab_type(self.vocab()) };
        kind != sys::LLAMA_VOCAB_TYPE_NONE && self.n_tokens() > 0
    }

    /// The number of tokens in the vocabulary.
    pub(crate) fn n_tokens(&self) -> u32 {
        // SAFETY: the model is alive.
        let count = unsafe { sys::llama_vocab_n_tokens(self.vocab()) };
        count.max(0) as u32
    }

    /// Whether some layers keep one state for the whole sequence. Such a state can only be copied
    /// or cut as a whole.
    pub(crate) fn has_state(&self) -> bool {
        // SAFETY: the model is alive.
        let recurrent = unsafe { sys::llama_model_is_recurrent(self.raw.as_ptr()) };
        // SAFETY: the model is alive.
        recurrent || unsafe { sys::llama_model_is_hybrid(self.raw.as_ptr()) }
    }

    /// The dimensions of a position: several in models with M-RoPE.
    pub(crate) fn position_dimensions(&self) -> usize {
        // SAFETY: the model is alive.
        let kind = || unsafe { shim::calls::llama_model_rope_type(self.raw.as_ptr()) };
        match shim::guard(kind) {
            Ok(sys::LLAMA_ROPE_TYPE_MROPE | sys::LLAMA_ROPE_TYPE_IMROPE) => 4,
            _ => 1,
        }
    }

    /// The length of the embedding of a token, as the first layer takes it.
    pub(crate) fn embedding_length(&self) -> usize {
        // SAFETY: the model is alive.
        unsafe { sys::llama_model_n_embd_inp(self.raw.as_ptr()) }.max(0) as usize
    }

    /// The length of the vector of a token or text.
    pub(crate) fn vector_length(&self) -> usize {
        // SAFETY: the model is alive.
        unsafe { sys::llama_model_n_embd_out(self.raw.as_ptr()) }.max(0) as usize
    }

    /// Whether the vectors that it returns can be its input.
    pub(crate) fn returns_its_input_length(&self) -> bool {
        // SAFETY: the model is alive.
        let own = unsafe { sys::llama_model_n_embd(self.raw.as_ptr()) }.max(0) as usize;
        own == self.vector_length() && own == self.embedding_length()
    }

    /// The number of scores for a text.
    pub(crate) fn n_scores(&self) -> usize {
        // SAFETY: the model is alive.
        unsafe { sys::llama_model_n_cls_out(self.raw.as_ptr()) as usize }
    }

    /// Whether the model has an encoder whose output a decoder reads, like T5.
    pub(crate) fn has_encoder(&self) -> bool {
        // SAFETY: the model is alive.
        unsafe { sys::llama_model_has_encoder(self.raw.as_ptr()) }
    }

    /// Whether the model generates text; an encoder does not.
    pub(crate) fn has_decoder(&self) -> bool {
        // SAFETY: the model is alive.
        unsafe { sys::llama_model_has_decoder(self.raw.as_ptr()) }
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        /// Token trees are freed recursively. This is enough for the longest token that `gguf`
        /// accepts.
        const STACK: usize = 1 << 20;
        self.mappings = None;
        let raw = self.raw.as_ptr();
        // If no memory is left for the stack, the model is leaked.
        let _ = stack::with_stack(STACK, || {
            // SAFETY: the pointer came from llama_model_load_from_file and is freed once; contexts
            // hold an Arc of this model.
            shim::free(|| unsafe { shim::calls::llama_model_free(raw) });
            Ok(())
        });
    }
}

fn c_path(path: &str) -> Result<CString> {
    CString::new(path).map_err(|error| {
        Error::new(Code::ModelNotFound, "the model path holds a NUL character").caused_by(error)
    })
}

/// # Safety
/// All that the parameters point to must outlive the call, and only the call may use it.
unsafe fn load_from_file(
    path: &CStr,
    params: sys::llama_model_params,
) -> Result<NonNull<sys::llama_model>> {
    // The first load creates llama.cpp's static tables; loading a vocabulary creates some of them.
    // A child forked meanwhile would wait for them forever.
    static TABLES_ARE_MADE: [AtomicBool; 2] = [AtomicBool::new(false), AtomicBool::new(false)];
    let are_made = &TABLES_ARE_MADE[usize::from(params.vocab_only)];
    let first = !are_made.load(Ordering::Relaxed);
    let during = first.then(Use::begin);
    let raw = shim::create(Code::ModelInvalid, "llama.cpp could not load the model", || {
        // SAFETY: the path is NUL-terminated; the rest is the caller's promise.
        unsafe { shim::calls::llama_model_load_from_file(path.as_ptr(), params) }
    });
    drop(during);
    are_made.store(true, Ordering::Relaxed);
    raw
}

unsafe extern "C" fn report_progress(done: f32, user_data: *mut c_void) -> bool {
    // SAFETY: `load` passes a pointer to its closure, which lives until the load returns.
    let on_progress = unsafe { &mut *user_data.cast::<&mut dyn FnMut(f32) -> bool>() };
    shim::callback(false, || on_progress(done) && !exit::is_stopping())
}
