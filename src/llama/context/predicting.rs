//! A context of the layers that predict further tokens. It computes with the weights of a model that
//! is loaded with them, and has a KV cache of its own for these layers.

use std::sync::Arc;

use llama_cpp_sys_2 as sys;

use super::decoding::AbortCheck;
use super::{ContextOptions, LlamaContext, Model};
use crate::engine::{self, Backend, BatchEntry, Decoded, PredictingLayers};
use crate::error::{Code, Error, Result};
use crate::llama::raw::shim;

/// A context of [`LlamaContext::predicting`], which was tried.
pub(crate) struct PredictingContext(pub(crate) LlamaContext);

impl LlamaContext {
    /// A context of the layers that predict further tokens, for drafts of a context with the same
    /// options.
    pub(crate) fn predicting(model: Arc<Model>, options: &ContextOptions) -> Result<Self> {
        if !model.returns_its_input_length() {
            let problem = "the hidden states have another length than the embeddings of tokens";
            return Err(Error::new(Code::ModelInvalid, problem));
        }
        let mut context = LlamaContext::create(model, options, sys::LLAMA_CONTEXT_TYPE_MTP)?;
        context.keep_hidden(true)?;
        Ok(context)
    }

    /// Keeps the hidden states of each following decode, of the entries with logits or of all.
    pub(crate) fn keep_hidden(&mut self, with_logits: bool) -> Result<()> {
        let context = self.context.as_ptr();
        // SAFETY: the context is alive.
        let keep = shim::guard(|| unsafe { shim::calls::llb_keep_hidden(context, with_logits) });
        self.keeps_hidden = true;
        keep.map_err(|failed| {
            self.abandon();
            failed.error(Code::InferenceFailed, "llama.cpp could not keep hidden states")
        })
    }

    /// Computes a batch of tokens with the hidden states of the tokens before them, all of which
    /// must have the right length.
    pub(super) fn decode_with_hidden(
        &mut self,
        batch: &[BatchEntry],
        hidden: &[f32],
        abort: AbortCheck,
    ) -> Result<Decoded> {
        if self.is_broken() {
            return Err(engine::stopped());
        }
        let length = self.model.vector_length();
        let is_valid =
            (1..=self.n_batch).contains(&batch.len()) && hidden.len() == batch.len() * length;
        if !is_valid {
            let problem =
                format!("a batch of {} tokens with {} numbers", batch.len(), hidden.len());
            return Err(Error::new(Code::InternalBridgeError, problem));
        }
        let mut raw = self.batch.fill(batch, self.sequences.positions());
        // llama.cpp only reads them, while the batch is decoded.
        raw.embd = hidden.as_ptr().cast_mut();
        let reads_logits = batch.iter().any(|entry| entry.logits);
        self.compute(raw, reads_logits, abort)
    }
}

impl PredictingLayers for PredictingContext {
    fn hidden_length(&self) -> usize {
        self.0.model.vector_length()
    }

    fn n_batch(&self) -> usize {
        self.0.n_batch
    }

    fn n_cells(&self) -> usize {
        self.0.n_cells
    }

    fn n_sequences(&self) -> usize {
        self.0.n_parallel
    }

    fn set_threads(&mut self, threads: usize) {
        self.0.set_threads(threads);
    }

    fn decode(
        &mut self,
        batch: &[BatchEntry],
        hidden: &[f32],
        abort: &(dyn Fn() -> bool + Sync),
    ) -> Result<Decoded> {
        self.0.decode_with_hidden(batch, hidden, abort)
    }

    /// Cells that a window has dropped make a draft worse, but not a reply.
    fn truncate(&mut self, sequence: usize, length: usize) -> bool {
        let from = length as sys::llama_pos;
        self.0.change(|sequences| sequences.remove(sequence, from, -1)).unwrap_or(false)
    }

    fn logits(&self, entry: usize) -> Result<&[f32]> {
        self.0.logits(entry)
    }

    fn hidden(&self, entry: usize) -> Result<&[f32]> {
        let context = self.0.context.as_ptr();
        // SAFETY: the context is alive; another entry than one with logits is reported as NULL.
        let hidden = shim::guard(|| unsafe { shim::calls::llb_hidden_of(context, entry as i32) });
        match hidden {
            Ok(hidden) if !hidden.is_null() => {
                // SAFETY: a state has this length, and lives until the next decode, which needs
                // `&mut self`.
                Ok(unsafe { std::slice::from_raw_parts(hidden, self.hidden_length()) })
            }
            _ => Err(Error::new(Code::InferenceFailed, "llama.cpp kept no hidden state")),
        }
    }
}
