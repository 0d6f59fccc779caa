//! A llama.cpp context as a [`Backend`]: the KV cache, the threads, and decode.

use std::cell::RefCell;
use std::ffi::c_void;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;

use llama_cpp_sys_2 as sys;

use super::batch::Batch;
use super::lora::Adapter;
use super::model::Model;
use super::threads::Threads;
use super::trial::{self, Repeats};
use super::{cpu, device, exit, shim};
use crate::api::{CacheType, FlashAttention};
use crate::engine::{self, Backend, BatchEntry, Decoded, ThreadLimits, ThreadPolicy};
use crate::error::{Code, Error, Result};
use crate::process::Lazy;

/// The options of a context.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct ContextOptions {
    pub(crate) n_ctx: u32,
    pub(crate) n_batch: u32,
    pub(crate) n_parallel: u32,
    pub(crate) n_threads: u32,
    /// Whether the number of threads may be lowered while other programs are busy.
    pub(crate) adapts_threads: bool,
    pub(crate) flash_attn: FlashAttention,
    pub(crate) cache_type_k: CacheType,
    pub(crate) cache_type_v: CacheType,
}

/// Returns whether a decode should stop. llama.cpp calls it during a decode.
type AbortCheck<'a> = &'a (dyn Fn() -> bool + Sync);

/// Owns a context, its thread pool and its batch. Used on the engine thread only.
pub(crate) struct LlamaContext {
    context: NonNull<sys::llama_context>,
    batch: Batch,
    /// llama.cpp holds a pointer to this box.
    decoding: Box<Decoding>,
    limits: ThreadLimits,
    adapts_threads: bool,
    /// Those of the next decode.
    n_threads: usize,
    n_ctx: usize,
    n_batch: usize,
    n_parallel: usize,
    n_vocab: i32,
    /// An assertion failed in a call on the context: it is not used again, not even freed.
    broken: bool,
    // Dropped after the context is freed, in this order.
    adapters: Vec<Adapter>,
    model: Arc<Model>,
}

/// What computes a decode, and what may stop it.
struct Decoding {
    threads: Threads,
    /// Whether its file can still be read.
    model: Arc<Model>,
    /// The check of the running decode.
    check: Option<AbortCheck<'static>>,
    /// During the trial: what is left out.
    repeats: RefCell<Option<Repeats>>,
}

impl LlamaContext {
    /// A context that computes on the calling thread alone, until [`LlamaContext::with_threads`].
    pub(crate) fn new(model: Arc<Model>, options: &ContextOptions) -> Result<Self> {
        let mut decoding = Box::new(Decoding {
            threads: Threads::none(),
            model: Arc::clone(&model),
            check: None,
            repeats: RefCell::new(None),
        });
        // SAFETY: takes nothing, returns a plain struct.
        let mut params = unsafe { sys::llama_context_default_params() };
        params.n_ctx = options.n_ctx;
        params.n_batch = options.n_batch;
        params.n_ubatch = options.n_batch;
        params.n_seq_max = options.n_parallel;
        params.n_threads = 1;
        params.n_threads_batch = 1;
        params.flash_attn_type = match options.flash_attn {
            FlashAttention::Auto => sys::LLAMA_FLASH_ATTN_TYPE_AUTO,
            FlashAttention::On => sys::LLAMA_FLASH_ATTN_TYPE_ENABLED,
            FlashAttention::Off => sys::LLAMA_FLASH_ATTN_TYPE_DISABLED,
        };
        params.type_k = ggml_type(options.cache_type_k);
        params.type_v = ggml_type(options.cache_type_v);
        params.kv_unified = true;
        params.no_perf = true;
        params.abort_callback = Some(should_abort);
        params.abort_callback_data = (&raw mut *decoding).cast::<c_void>();
        // Devices compute several operations at once only without this.
        if !device::exists() {
            params.cb_eval = Some(on_operation);
            params.cb_eval_user_data = (&raw mut *decoding).cast::<c_void>();
        }
        // SAFETY: the model is alive and kept alive by this struct; the box is on the heap and
        // lives as long as the context.
        let context =
            shim::guard(|| unsafe { shim::calls::llama_init_from_model(model.as_ptr(), params) });
        let refused = "llama.cpp could not create a context with these options";
        let context = match context {
            Ok(context) => context,
            Err(failed) => {
                // The partly created context may refer to both.
                std::mem::forget((model, decoding));
                return Err(failed.error(Code::InferenceFailed, refused));
            }
        };
        let context =
            NonNull::new(context).ok_or_else(|| Error::new(Code::InferenceFailed, refused))?;
        // SAFETY: the model is alive.
        let n_vocab = unsafe { sys::llama_vocab_n_tokens(model.vocab()) };
        // SAFETY: the context is alive.
        let padded = unsafe { sys::llama_n_ctx(context.as_ptr()) };
        // llama.cpp rounds up, but the requested size is the limit.
        let n_ctx = padded.min(options.n_ctx) as usize;
        // SAFETY: the context is alive.
        let n_batch = unsafe { sys::llama_n_batch(context.as_ptr()) } as usize;
        Ok(LlamaContext {
            limits: ThreadLimits { most: 1, processors: 1, policy: ThreadPolicy::Pinned },
            adapts_threads: options.adapts_threads,
            n_threads: 1,
            context,
            batch: Batch::new(n_batch),
            decoding,
            n_ctx,
            n_batch,
            n_parallel: options.n_parallel as usize,
            n_vocab,
            broken: false,
            adapters: Vec::new(),
            model,
        })
    }

    /// Computes the first tokens, before other threads join. `MODEL_INVALID` if that fails.
    pub(crate) fn tried(mut self) -> Result<Self> {
        *self.decoding.repeats.get_mut() = Some(Repeats::default());
        let n_vocab = self.n_vocab;
        let tried = trial::run(&mut self, n_vocab);
        *self.decoding.repeats.get_mut() = None;
        tried.map(|()| self)
    }

    /// Starts the other threads.
    pub(crate) fn with_threads(mut self, n_threads: u32) -> Result<Self> {
        self.decoding.threads = Threads::start(n_threads)?;
        self.decoding.threads.attach(self.context)?;
        let policy = match (self.model.uses_device(), self.adapts_threads) {
            (true, _) => ThreadPolicy::Device,
            (false, true) => ThreadPolicy::Adaptive,
            (false, false) => ThreadPolicy::Pinned,
        };
        let (most, processors) = (n_threads as usize, cpu::usable() as usize);
        self.limits = ThreadLimits { most, processors, policy };
        self.set_threads(n_threads as usize);
        Ok(self)
    }

    /// Applies adapters, each with its scale. The model should then be tried.
    pub(crate) fn with_adapters(mut self, adapters: Vec<(Adapter, f32)>) -> Result<Self> {
        let (adapters, mut scales): (Vec<Adapter>, Vec<f32>) = adapters.into_iter().unzip();
        self.adapters = adapters;
        let mut raw: Vec<_> = self.adapters.iter().map(Adapter::as_ptr).collect();
        let (n, raw, scales) = (raw.len(), raw.as_mut_ptr(), scales.as_mut_ptr());
        // SAFETY: context and adapters are alive, and both arrays have `n` elements.
        let set = shim::guard(|| unsafe {
            shim::calls::llama_set_adapters_lora(self.context.as_ptr(), raw, n, scales)
        });
        if !matches!(set, Ok(0)) {
            self.abandon();
            return Err(Error::new(Code::InvalidRequest, "llama.cpp cannot apply the adapters"));
        }
        Ok(self)
    }

    /// After a failed call: the context is not used again, and its threads end.
    fn abandon(&mut self) {
        self.broken = true;
        self.decoding.threads.end();
    }

    /// The memory of all sequences; `None` if there is none, or if the context is broken.
    fn memory(&self) -> Option<sys::llama_memory_t> {
        // SAFETY: the context is alive.
        let memory = unsafe { sys::llama_get_memory(self.context.as_ptr()) };
        (!memory.is_null() && !self.broken).then_some(memory)
    }

    /// The last position of a sequence; `None` if it is empty.
    fn last_position(&self, sequence: usize) -> Option<usize> {
        let memory = self.memory()?;
        // SAFETY: the memory belongs to the context; the result is -1 for an empty sequence.
        let last = shim::guard(|| unsafe {
            shim::calls::llama_memory_seq_pos_max(memory, sequence as i32)
        });
        usize::try_from(last.ok()?).ok()
    }

    /// The fewest tokens that a sequence can be cut to without losing what the next token attends
    /// to in layers with a sliding window. llama.cpp gives cells outside the window to other
    /// sequences, and saves only the last window. From its first position on, a sequence has no
    /// holes.
    fn shortest_window(&self, memory: sys::llama_memory_t, sequence: usize) -> usize {
        let window = self.model.window().max(0) as usize;
        if window == 0 {
            return 1;
        }
        // SAFETY: the memory belongs to the context; the result is -1 for an empty sequence.
        let first = shim::guard(|| unsafe {
            shim::calls::llama_memory_seq_pos_min(memory, sequence as i32)
        });
        let first = first.unwrap_or(-1).max(0) as usize;
        // The token at position p attends to positions from p - window + 1.
        if first == 0 { 1 } else { first + window - 1 }
    }

    fn row(&self, row: usize) -> Option<&[f32]> {
        // SAFETY: the context is alive; the scheduler requests only rows of the last batch that
        // have logits.
        let logits = shim::guard(|| unsafe {
            shim::calls::llama_get_logits_ith(self.context.as_ptr(), row as i32)
        });
        let logits = logits.ok()?;
        if logits.is_null() {
            return None;
        }
        // SAFETY: a row holds one logit per token and lives until the next decode, which needs
        // `&mut self`.
        Some(unsafe { std::slice::from_raw_parts(logits, self.n_vocab as usize) })
    }
}

impl Backend for LlamaContext {
    fn n_ctx(&self) -> usize {
        self.n_ctx
    }

    fn n_batch(&self) -> usize {
        self.n_batch
    }

    fn n_sequences(&self) -> usize {
        self.n_parallel
    }

    fn is_broken(&self) -> bool {
        self.broken || self.model.is_lost()
    }

    fn threads(&self) -> ThreadLimits {
        self.limits
    }

    fn set_threads(&mut self, threads: usize) {
        let threads = threads.clamp(1, self.limits.most);
        if threads == self.n_threads || self.broken {
            return;
        }
        self.n_threads = threads;
        let n = threads as i32;
        // SAFETY: the context is alive; its pool has at least this many threads.
        unsafe { sys::llama_set_n_threads(self.context.as_ptr(), n, n) };
    }

    fn waited(&self, threads: usize) -> Option<Duration> {
        self.decoding.threads.waited(threads)
    }

    fn decode(&mut self, batch: &[BatchEntry], abort: AbortCheck) -> Result<Decoded> {
        if self.is_broken() {
            return Err(engine::stopped());
        }
        // llama.cpp asserts on more tokens than n_batch, which would end the process.
        if batch.len() > self.n_batch || batch.is_empty() {
            return Err(Error::new(
                Code::InternalBridgeError,
                format!("a batch of {} tokens, but n_batch is {}", batch.len(), self.n_batch),
            ));
        }
        let raw = self.batch.fill(batch);
        // SAFETY: only the lifetime changes; the box is emptied below, before `abort` goes out of
        // scope.
        self.decoding.check =
            Some(unsafe { std::mem::transmute::<AbortCheck<'_>, AbortCheck<'static>>(abort) });
        let context = self.context.as_ptr();
        let status = self.decoding.threads.help(|| {
            // SAFETY: the context is alive and the batch holds valid pointers for its number of
            // tokens.
            shim::guard(|| unsafe { shim::calls::llama_decode(context, raw) })
        });
        self.decoding.check = None;
        if let Some(repeats) = self.decoding.repeats.get_mut() {
            repeats.restore();
        }
        let what = "llama.cpp could not decode";
        if let Some(message) = self.decoding.threads.failure() {
            self.abandon();
            return Err(Error::new(Code::InferenceFailed, format!("{what}: {message}")));
        }
        let status = status.map_err(|failed| {
            self.abandon();
            failed.error(Code::InferenceFailed, what)
        })?;
        if self.model.is_lost() {
            return Err(Error::new(
                Code::InferenceFailed,
                format!("{what}: {}", self.model.lost()),
            ));
        }
        static DECODED: Lazy<()> = Lazy::new(exit::register);
        *DECODED;
        match status {
            0 => Ok(Decoded::Done),
            2 => Ok(Decoded::Aborted),
            1 => Err(Error::new(Code::ContextOverflow, "the KV cache is full")),
            other => Err(Error::new(
                Code::InferenceFailed,
                format!("llama.cpp could not decode (status {other})"),
            )),
        }
    }

    fn truncate(&mut self, sequence: usize, length: usize) -> bool {
        let Some(memory) = self.memory() else { return true };
        if length > 0 && length < self.shortest_window(memory, sequence) {
            return false;
        }
        // SAFETY: the memory belongs to the context; an absent sequence or position is reported,
        // not asserted.
        let removed = shim::guard(|| unsafe {
            shim::calls::llama_memory_seq_rm(memory, sequence as i32, length as i32, -1)
        });
        let Ok(removed) = removed else {
            self.abandon();
            return true;
        };
        removed
    }

    /// Zeroes the states too. llama.cpp assigns states to sequences before it computes a batch and
    /// does not undo that when the batch is aborted (`llama_memory_recurrent::find_slot`): unused
    /// states then hold remains, and a state that was to be moved is lost.
    fn clear(&mut self) {
        let Some(memory) = self.memory() else { return };
        // SAFETY: the memory belongs to the context.
        let cleared = shim::guard(|| unsafe { shim::calls::llama_memory_clear(memory, true) });
        if cleared.is_err() {
            self.abandon();
        }
    }

    fn is_divisible(&self) -> bool {
        !self.model.has_state()
    }

    fn shortest(&self, sequence: usize, length: usize) -> usize {
        if self.model.has_state() {
            return length;
        }
        self.memory().map_or(length, |memory| self.shortest_window(memory, sequence))
    }

    fn copy(&mut self, from: usize, to: usize, range: Range<usize>) -> bool {
        let Some(memory) = self.memory() else { return false };
        // No copied token may attend to a position that is missing.
        if range.end < self.shortest_window(memory, from) {
            self.truncate(to, 0);
            return false;
        }
        let (start, end) = (range.start as sys::llama_pos, range.end as sys::llama_pos);
        let (from, sequence) = (from as sys::llama_seq_id, to as sys::llama_seq_id);
        // SAFETY: the memory belongs to the context, and the sequences are below n_seq_max. With a
        // unified cache this assigns the cells to both sequences.
        let copied = shim::guard(|| unsafe {
            shim::calls::llama_memory_seq_cp(memory, from, sequence, start, end)
        });
        if copied.is_err() {
            self.abandon();
            return false;
        }
        let whole = self.last_position(to) == Some(range.end - 1)
            && range.end >= self.shortest_window(memory, to);
        if !whole {
            self.truncate(to, 0);
        }
        whole
    }

    fn save(&self, sequence: usize) -> Result<Vec<u8>> {
        let what = "llama.cpp could not save the sequence";
        let (context, sequence) = (self.context.as_ptr(), sequence as i32);
        // SAFETY: the context is alive and only read.
        let size =
            shim::guard(|| unsafe { shim::calls::llama_state_seq_get_size(context, sequence) });
        let size = size.map_err(|failed| failed.error(Code::InferenceFailed, what))?;
        let mut data = Vec::new();
        data.try_reserve_exact(size)
            .map_err(|error| Error::new(Code::OutOfMemory, error.to_string()).caused_by(error))?;
        data.resize(size, 0);
        // SAFETY: the context is alive, and the buffer is valid for its length.
        let written = shim::guard(|| unsafe {
            shim::calls::llama_state_seq_get_data(context, data.as_mut_ptr(), size, sequence)
        });
        match written {
            Ok(written) if written == size && size > 0 => Ok(data),
            Ok(written) => {
                Err(Error::new(Code::InferenceFailed, format!("{what}: {written} of {size} bytes")))
            }
            Err(failed) => Err(failed.error(Code::InferenceFailed, what)),
        }
    }

    fn restore(&mut self, sequence: usize, data: &[u8], n_tokens: usize) -> Result<()> {
        let context = self.context.as_ptr();
        // SAFETY: the context is alive, and the data is valid for its length, which llama.cpp
        // checks.
        let read = shim::guard(|| unsafe {
            shim::calls::llama_state_seq_set_data(
                context,
                data.as_ptr(),
                data.len(),
                sequence as i32,
            )
        });
        if read.is_err() {
            self.abandon();
        }
        if matches!(read, Ok(read) if read == data.len())
            && self.last_position(sequence) == Some(n_tokens - 1)
        {
            return Ok(());
        }
        self.truncate(sequence, 0);
        Err(Error::new(Code::InferenceFailed, "llama.cpp rejected the saved sequence"))
    }

    fn logits(&self, row: usize) -> Result<&[f32]> {
        self.row(row)
            .ok_or_else(|| Error::new(Code::InferenceFailed, "llama.cpp computed no logits"))
    }
}

impl Drop for LlamaContext {
    fn drop(&mut self) {
        if self.broken {
            // Leaked, with everything that it refers to but its threads.
            let adapters = std::mem::take(&mut self.adapters);
            std::mem::forget((adapters, Arc::clone(&self.model)));
            return;
        }
        // SAFETY: created by llama_init_from_model, freed once; threads, adapters and model are freed
        // after it.
        shim::free(|| unsafe { shim::calls::llama_free(self.context.as_ptr()) });
    }
}

fn ggml_type(cache: CacheType) -> sys::ggml_type {
    match cache {
        CacheType::F32 => sys::GGML_TYPE_F32,
        CacheType::F16 => sys::GGML_TYPE_F16,
        CacheType::Bf16 => sys::GGML_TYPE_BF16,
        CacheType::Q8_0 => sys::GGML_TYPE_Q8_0,
        CacheType::Q5_1 => sys::GGML_TYPE_Q5_1,
        CacheType::Q5_0 => sys::GGML_TYPE_Q5_0,
        CacheType::Q4_1 => sys::GGML_TYPE_Q4_1,
        CacheType::Q4_0 => sys::GGML_TYPE_Q4_0,
    }
}

unsafe extern "C" fn should_abort(data: *mut c_void) -> bool {
    // SAFETY: `data` is the context's box, which outlives the context and does not change during a
    // decode.
    let decoding = unsafe { &*data.cast::<Decoding>() };
    shim::callback(true, || {
        exit::is_stopping()
            || decoding.threads.has_failure()
            || decoding.model.is_lost()
            || decoding.check.is_some_and(|check| check())
    })
}

unsafe extern "C" fn on_operation(
    node: *mut sys::ggml_tensor,
    is_before: bool,
    data: *mut c_void,
) -> bool {
    // SAFETY: as above. llama.cpp calls this on the thread that decodes.
    let decoding = unsafe { &*data.cast::<Decoding>() };
    shim::callback(false, || trial::on_operation(&decoding.repeats, node, is_before))
}
