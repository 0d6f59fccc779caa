//! A llama.cpp context as a [`Backend`]: the KV cache, the threads, and decode.

mod copies;
mod decoding;
pub(super) mod lora;
mod model;
mod options;
mod positions;
mod predicting;
mod rollbacks;
mod sequence_state;
mod sequences;
mod shift;
mod threads;
mod trial;

use std::cell::RefCell;
use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;

use llama_cpp_sys_2 as sys;

pub(super) use self::decoding::AbortCheck;
use self::decoding::{Batch, Decoding, on_operation, should_abort};
pub(crate) use self::lora::Adapter;
use self::lora::AppliedAdapters;
pub(crate) use self::model::{MAX_BYTES_OF_SPECIAL, Model, ModelOptions, TensorRule};
pub(crate) use self::options::ContextOptions;
pub(crate) use self::predicting::PredictingContext;
use self::sequences::{Changed, Sequences};
use self::threads::Threads;
use self::trial::Repeats;
pub(crate) use self::trial::Verdicts;
use crate::api::AdapterScales;
use crate::engine::{
    self, Backend, BatchEntry, Decoded, EmbeddingBatch, ThreadLimits, ThreadPolicy,
};
use crate::error::{Code, Error, Result};
use crate::llama::raw::shim;
use crate::llama::raw::{log, system};

/// Owns a context, its thread pool and its batch. Used on the engine thread only.
pub(crate) struct LlamaContext {
    context: NonNull<sys::llama_context>,
    batch: Batch,
    sequences: Sequences,
    /// llama.cpp holds a pointer to this box.
    decoding: Box<Decoding>,
    limits: ThreadLimits,
    adapts_threads: bool,
    /// The threads that the next decode uses.
    n_threads: usize,
    n_ctx: usize,
    n_cells: usize,
    n_batch: usize,
    n_parallel: usize,
    /// A call on the context failed an assertion. The context is never used again, not even freed.
    broken: bool,
    /// Whether only the calling thread has computed with the context so far.
    is_alone: bool,
    shift_refusal: Option<&'static str>,
    /// Whether its input has hidden states beside the tokens.
    takes_hidden: bool,
    /// Whether a decode keeps hidden states, and the number of entries of the last one.
    keeps_hidden: bool,
    n_decoded: usize,
    // Fields are dropped in this order, after the context is freed.
    adapters: AppliedAdapters,
    model: Arc<Model>,
}

impl LlamaContext {
    /// A context that computes on the calling thread alone, until [`LlamaContext::with_threads`].
    pub(crate) fn new(model: Arc<Model>, options: &ContextOptions) -> Result<Self> {
        LlamaContext::create(model, options, sys::LLAMA_CONTEXT_TYPE_DEFAULT)
    }

    fn create(
        model: Arc<Model>,
        options: &ContextOptions,
        context_type: sys::llama_context_type,
    ) -> Result<Self> {
        let mut decoding = Box::new(Decoding {
            threads: Threads::none(),
            model: Arc::clone(&model),
            check: None,
            makes_logits: options.pooling.is_none(),
            repeats: RefCell::new(None),
        });
        let mut params = options.params(context_type);
        params.abort_callback = Some(should_abort);
        params.abort_callback_data = (&raw mut *decoding).cast::<c_void>();
        // The callback would keep a device from computing several operations at once.
        if !model.has_devices() {
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
                // The partly created context may refer to both, but only a device could still use
                // them.
                if model.has_devices() {
                    std::mem::forget((model, decoding));
                }
                return Err(failed.error(Code::InferenceFailed, refused));
            }
        };
        let context =
            NonNull::new(context).ok_or_else(|| Error::new(Code::InferenceFailed, refused))?;
        // SAFETY: the context is alive.
        let padded = unsafe { sys::llama_n_ctx_seq(context.as_ptr()) };
        // llama.cpp rounds up, but the requested size is the limit.
        let n_ctx = padded.min(options.n_ctx) as usize;
        // SAFETY: the context is alive.
        let n_batch = unsafe { sys::llama_n_batch(context.as_ptr()) } as usize;
        let mut made = LlamaContext {
            limits: ThreadLimits { most: 1, processors: 1, policy: ThreadPolicy::Pinned },
            adapts_threads: options.adapts_threads,
            n_threads: 1,
            context,
            batch: Batch::new(
                n_batch,
                model.metadata("general.architecture").as_deref(),
                model.position_dimensions(),
            ),
            sequences: Sequences::new(context, &model, options),
            decoding,
            n_ctx,
            n_cells: if options.kv_unified { n_ctx } else { n_ctx * options.n_parallel as usize },
            n_batch,
            n_parallel: options.n_parallel as usize,
            broken: false,
            is_alone: true,
            shift_refusal: None,
            takes_hidden: context_type == sys::LLAMA_CONTEXT_TYPE_MTP,
            keeps_hidden: false,
            n_decoded: 0,
            adapters: AppliedAdapters::default(),
            model,
        };
        let can_shift = made.has_memory() && made.sequences.can_shift();
        made.shift_refusal = shift::refusal(&made.model, options, can_shift);
        Ok(made)
    }

    /// Runs the trial on the calling thread, before other threads join. `MODEL_INVALID` if it
    /// fails.
    pub(crate) fn tried(mut self) -> Result<Self> {
        *self.decoding.repeats.get_mut() = Some(Repeats::default());
        let n_vocab = self.model.n_tokens() as i32;
        // SAFETY: the model is alive.
        let weights = unsafe { sys::llama_model_size(self.model.as_ptr()) };
        let tried = trial::run(&mut self, n_vocab, trial::time_limit(weights));
        *self.decoding.repeats.get_mut() = None;
        tried.map(|()| self)
    }

    /// Starts the other threads.
    pub(crate) fn with_threads(mut self, n_threads: u32) -> Result<Self> {
        self.is_alone = false;
        self.decoding.threads = Threads::start(n_threads)?;
        self.decoding.threads.attach(self.context)?;
        let policy = match (self.model.uses_device(), self.adapts_threads) {
            (true, _) => ThreadPolicy::Device,
            (false, true) => ThreadPolicy::Adaptive,
            (false, false) => ThreadPolicy::Pinned,
        };
        let (most, processors) = (n_threads as usize, system::usable_processors() as usize);
        self.limits = ThreadLimits { most, processors, policy };
        self.set_threads(n_threads as usize);
        Ok(self)
    }

    /// Applies adapters, each with its scale. Run the trial afterwards.
    pub(crate) fn with_adapters(mut self, adapters: Vec<(Adapter, f32)>) -> Result<Self> {
        let (adapters, scales): (Vec<Adapter>, Vec<f32>) = adapters.into_iter().unzip();
        self.adapters = AppliedAdapters::new(adapters);
        self.set_adapters(&AdapterScales(scales.into()))?;
        Ok(self)
    }

    /// Computes a batch that llama.cpp accepts.
    fn compute(
        &mut self,
        raw: sys::llama_batch,
        reads_logits: bool,
        abort: AbortCheck,
    ) -> Result<Decoded> {
        self.sequences.decode_begins();
        // SAFETY: only the lifetime changes; the box is emptied below, before `abort` goes out of
        // scope.
        let check = unsafe { std::mem::transmute::<AbortCheck<'_>, AbortCheck<'static>>(abort) };
        self.decoding.check = (!self.sequences.moves_keys()).then_some(check);
        let context = self.context.as_ptr();
        // A device computes after the call. Whoever reads logits would wait for it anyway, and here
        // a failure is one of the decode.
        let waits = reads_logits && self.model.has_devices();
        let decode = || {
            // SAFETY: the context is alive and the batch holds valid pointers for its number of
            // tokens.
            let status = unsafe { shim::calls::llama_decode(context, raw) };
            if waits {
                // SAFETY: as above.
                unsafe { shim::calls::llama_synchronize(context) };
            }
            status
        };
        let decode = || self.decoding.threads.help(|| shim::guard(decode));
        let is_given_up =
            |status: &_| matches!(status, Ok(2)) && !self.decoding.threads.has_failure();
        let status = log::hold(decode, is_given_up);
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
        if matches!(status, 0..=2) {
            self.sequences.decode_ended();
        }
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

    /// Sets whether tokens attend only to those before them.
    fn set_causal(&mut self, is_causal: bool) -> Result<()> {
        let context = self.context.as_ptr();
        // SAFETY: the context is alive.
        let set = || unsafe { shim::calls::llama_set_causal_attn(context, is_causal) };
        shim::guard(set).map_err(|failed| {
            self.abandon();
            failed.error(Code::InferenceFailed, "llama.cpp could not change the attention")
        })
    }

    /// Called after a failed call. The context is not used again, and its threads end.
    fn abandon(&mut self) {
        self.broken = true;
        self.decoding.threads.end();
    }

    /// The reason why its sequences cannot be shifted ([`Backend::shift`]); `None` if they can be.
    pub(crate) fn shift_refusal(&self) -> Option<&'static str> {
        self.shift_refusal
    }

    pub(crate) fn as_ptr(&self) -> *mut sys::llama_context {
        self.context.as_ptr()
    }

    pub(crate) fn model(&self) -> &Model {
        &self.model
    }

    /// Whether the context remembers earlier tokens. An encoder does not.
    pub(crate) fn has_memory(&self) -> bool {
        self.sequences.are_remembered()
    }

    /// Changes sequences. Returns `None` if the context remembers nothing or cannot be used.
    fn change<T>(&mut self, change: impl FnOnce(&mut Sequences) -> Changed<T>) -> Option<T> {
        if self.broken || !self.has_memory() {
            return None;
        }
        let changed = change(&mut self.sequences);
        if changed.is_err() {
            self.abandon();
        }
        changed.ok()
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
        Some(unsafe { std::slice::from_raw_parts(logits, self.model.n_tokens() as usize) })
    }
}

impl Backend for LlamaContext {
    fn n_ctx(&self) -> usize {
        self.n_ctx
    }

    fn n_cells(&self) -> usize {
        self.n_cells
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

    fn hidden(&self) -> Option<&[f32]> {
        if !self.keeps_hidden || self.is_broken() {
            return None;
        }
        let context = self.context.as_ptr();
        // SAFETY: the context is alive.
        let hidden = shim::guard(|| unsafe { shim::calls::llb_hidden(context) }).ok()?;
        if hidden.is_null() {
            return None;
        }
        let length = self.n_decoded * self.model.vector_length();
        // SAFETY: each entry of the last batch has a state of this length. They live until the next
        // decode, which needs `&mut self`.
        Some(unsafe { std::slice::from_raw_parts(hidden, length) })
    }

    fn set_adapters(&mut self, scales: &AdapterScales) -> Result<()> {
        if self.is_broken() {
            return Err(engine::stopped());
        }
        self.adapters.apply(self.context, scales).inspect_err(|_| self.abandon())
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
        if self.takes_hidden {
            // In a trial, any numbers do.
            let hidden = vec![0.0; batch.len() * self.model.vector_length()];
            return self.decode_with_hidden(batch, &hidden, abort);
        }
        let raw = self.batch.fill(batch, self.sequences.positions());
        let waits = batch.iter().any(|entry| entry.logits) || self.keeps_hidden;
        self.n_decoded = batch.len();
        let decoded = self.compute(raw, waits, abort);
        if matches!(decoded, Ok(Decoded::Done)) {
            self.sequences.decoded(batch);
        }
        decoded
    }

    fn decode_embeddings(&mut self, batch: &EmbeddingBatch, abort: AbortCheck) -> Result<Decoded> {
        if self.is_broken() {
            return Err(engine::stopped());
        }
        let end = batch.start + batch.count;
        let is_valid = (1..=self.n_batch).contains(&batch.count)
            && batch.rows.len() == batch.count * self.model.embedding_length()
            && batch.rotations.is_none_or(|rotations| end <= rotations.offsets.len());
        if !is_valid {
            return Err(Error::new(
                Code::InternalBridgeError,
                format!("a batch of {} embeddings, but n_batch is {}", batch.count, self.n_batch),
            ));
        }
        let raw = self.batch.fill_embeddings(batch, &self.sequences.positions()[batch.sequence]);
        if !batch.is_causal {
            self.set_causal(false)?;
        }
        let decoded = self.compute(raw, false, abort);
        // After a failure, the context is not used again.
        if !batch.is_causal && !self.is_broken() {
            self.set_causal(true)?;
        }
        if matches!(decoded, Ok(Decoded::Done)) {
            self.sequences.decoded_embeddings(batch);
        }
        decoded
    }

    fn truncate(&mut self, sequence: usize, length: usize) -> bool {
        self.change(|sequences| sequences.truncate(sequence, length)).unwrap_or(true)
    }

    fn max_rollback(&self) -> usize {
        self.sequences.max_rollback()
    }

    fn can_roll_back_together(&self, sequences: &[usize]) -> bool {
        self.sequences.can_roll_back_together(sequences)
    }

    fn clear(&mut self) {
        self.change(Sequences::clear);
    }

    fn is_divisible(&self) -> bool {
        !self.model.has_state()
    }

    fn shortest(&self, sequence: usize, length: usize) -> usize {
        if self.broken || !self.has_memory() {
            return length;
        }
        self.sequences.shortest(sequence, length)
    }

    fn copy(&mut self, from: usize, to: usize, length: usize) -> bool {
        self.change(|sequences| sequences.copy(from, to, length)).unwrap_or(false)
    }

    fn checkpoint(&self, sequence: usize) -> Option<Vec<u8>> {
        if self.broken || !self.has_memory() {
            return None;
        }
        self.sequences.checkpoint(sequence).ok()
    }

    fn rewind(&mut self, sequence: usize, length: usize, state: &[u8]) -> bool {
        self.change(|sequences| sequences.rewind(sequence, length, state)).unwrap_or(false)
    }

    fn shift(&mut self, sequence: usize, kept: usize, count: usize) -> Option<usize> {
        if self.shift_refusal().is_some() {
            return None;
        }
        self.change(|sequences| sequences.shift(sequence, kept, count))?
    }

    fn save(&self, sequence: usize) -> Result<Vec<u8>> {
        if self.broken {
            return Err(engine::stopped());
        }
        self.sequences.save(sequence)
    }

    fn restore(&mut self, sequence: usize, data: &[u8], n_tokens: usize) -> Result<()> {
        self.sequences.check_restore(sequence)?;
        match self.change(|sequences| sequences.restore(sequence, data, n_tokens)) {
            Some(true) => Ok(()),
            _ => Err(Error::new(Code::InferenceFailed, "llama.cpp rejected the saved sequence")),
        }
    }

    fn logits(&self, row: usize) -> Result<&[f32]> {
        self.row(row)
            .ok_or_else(|| Error::new(Code::InferenceFailed, "llama.cpp computed no logits"))
    }
}

impl Drop for LlamaContext {
    fn drop(&mut self) {
        // llama.cpp waits for its devices when it frees a context, where an error would end the
        // process. One that was lost reports an error.
        // SAFETY: created by llama_init_from_model, not freed yet.
        let wait = || unsafe { shim::calls::llama_synchronize(self.context.as_ptr()) };
        if self.broken || self.model.has_devices() && shim::guard(wait).is_err() {
            // The context is leaked, with everything that it refers to except its threads. If no
            // other thread and no device has computed with it, nothing uses the model any more, so
            // the model is freed. Adapters belong to the model.
            let adapters = std::mem::take(&mut self.adapters);
            if !self.is_alone || !adapters.is_empty() || self.model.has_devices() {
                std::mem::forget((adapters, Arc::clone(&self.model)));
            }
            return;
        }
        // SAFETY: created by llama_init_from_model, freed once; threads, adapters and model are
        // freed after it.
        shim::free(|| unsafe { shim::calls::llama_free(self.context.as_ptr()) });
    }
}
