//! llama.cpp alone with many sequences: prompts are computed one after another, then every step
//! decodes one token of each.

use std::ffi::CString;
use std::time::Instant;

use llama_cpp_sys_2 as sys;

use crate::memory::Device;
use crate::peer::{Sampling, chain};

/// Where the next token of a sequence comes from.
#[derive(Debug, Clone, Copy)]
pub(crate) enum NextToken {
    /// Always the same token, to measure `llama_decode` alone. A step is submitted while the device
    /// computes the last one.
    Fixed,
    /// Always the same token, but a step begins when the logits of the last one are there, as it
    /// must if they decide the token.
    FixedAfterLogits,
    /// llama.cpp's samplers, one chain for each sequence.
    Sampled(Sampling),
}

/// A model and a context for `n_sequences` sequences.
pub(crate) struct Sequences {
    model: *mut sys::llama_model,
    context: *mut sys::llama_context,
    n_sequences: usize,
    n_batch: usize,
}

impl Sequences {
    /// Puts all layers on the device, if there is one.
    pub(crate) fn open(
        path: &str,
        n_sequences: usize,
        n_ctx: usize,
        device: Option<&Device>,
    ) -> Sequences {
        let path = CString::new(path).expect("a path has no NUL");
        // SAFETY: takes nothing, returns a plain struct.
        let mut params = unsafe { sys::llama_model_default_params() };
        params.n_gpu_layers = if device.is_some() { 999 } else { 0 };
        let mut devices: Vec<_> = device.map(Device::handle).into_iter().collect();
        devices.push(std::ptr::null_mut());
        params.devices = devices.as_mut_ptr();
        // SAFETY: the path and the devices end with NUL, and are read only during the call.
        let model = unsafe { sys::llama_model_load_from_file(path.as_ptr(), params) };
        assert!(!model.is_null(), "llama.cpp loads the model");
        let n_batch = if device.is_some() { 2048 } else { 512 };
        // SAFETY: takes nothing, returns a plain struct.
        let mut params = unsafe { sys::llama_context_default_params() };
        params.n_ctx = n_ctx as u32;
        params.n_batch = n_batch as u32;
        params.n_ubatch = n_batch as u32;
        params.n_seq_max = n_sequences as u32;
        params.kv_unified = crate::kv_unified();
        params.n_threads = std::thread::available_parallelism().map_or(1, usize::from) as i32;
        params.n_threads_batch = params.n_threads;
        // SAFETY: the model is alive and freed after the context.
        let context = unsafe { sys::llama_init_from_model(model, params) };
        assert!(!context.is_null(), "llama.cpp makes a context");
        Sequences { model, context, n_sequences, n_batch }
    }

    /// Tokens per second over all sequences, for prompts of `n_prompt` tokens and `decoded` steps.
    pub(crate) fn rate(&mut self, n_prompt: usize, decoded: usize, next: NextToken) -> f64 {
        // SAFETY: the context is alive.
        let memory = unsafe { sys::llama_get_memory(self.context) };
        // SAFETY: the memory belongs to the context.
        unsafe { sys::llama_memory_clear(memory, false) };
        let chains: Vec<_> = (0..self.n_sequences)
            .filter_map(|_| match next {
                NextToken::Fixed | NextToken::FixedAfterLogits => None,
                NextToken::Sampled(sampling) => Some(chain(sampling)),
            })
            .collect();
        for sequence in 0..self.n_sequences {
            let tokens: Vec<_> = (0..n_prompt).map(|at| (fixed(at, sequence), at)).collect();
            for part in tokens.chunks(self.n_batch) {
                let entries: Vec<_> =
                    part.iter().map(|(token, at)| (*token, *at, sequence)).collect();
                self.decode(&entries);
            }
        }
        let mut tokens: Vec<_> = (0..self.n_sequences).map(|each| fixed(n_prompt, each)).collect();
        let start = Instant::now();
        for step in 0..decoded {
            let entries = tokens.iter().enumerate();
            let entries: Vec<_> =
                entries.map(|(sequence, token)| (*token, n_prompt + step, sequence)).collect();
            self.decode(&entries);
            if matches!(next, NextToken::FixedAfterLogits) {
                // SAFETY: the context is alive.
                unsafe { sys::llama_synchronize(self.context) };
            }
            for (row, chain) in chains.iter().enumerate() {
                // SAFETY: sampler and context are alive, and every row has logits.
                tokens[row] =
                    unsafe { sys::llama_sampler_sample(*chain, self.context, row as i32) };
            }
        }
        // SAFETY: the context is alive. Without samplers nothing has waited for the last step.
        unsafe { sys::llama_synchronize(self.context) };
        let seconds = start.elapsed().as_secs_f64();
        for chain in chains {
            // SAFETY: made by `chain`, freed once.
            unsafe { sys::llama_sampler_free(chain) };
        }
        (self.n_sequences * decoded) as f64 / seconds
    }

    /// Decodes tokens at positions of sequences. The last entry of each sequence has logits.
    fn decode(&mut self, entries: &[(sys::llama_token, usize, usize)]) {
        let mut tokens: Vec<_> = entries.iter().map(|entry| entry.0).collect();
        let mut positions: Vec<_> = entries.iter().map(|entry| entry.1 as i32).collect();
        let mut sequences: Vec<_> = entries.iter().map(|entry| entry.2 as i32).collect();
        let mut numbers = vec![1; entries.len()];
        let mut lists: Vec<_> = sequences.iter_mut().map(|each| each as *mut i32).collect();
        let is_last = |at: usize| entries.get(at + 1).is_none_or(|next| next.2 != entries[at].2);
        let mut logits: Vec<_> = (0..entries.len()).map(|at| i8::from(is_last(at))).collect();
        let batch = sys::llama_batch {
            n_tokens: entries.len() as i32,
            token: tokens.as_mut_ptr(),
            embd: std::ptr::null_mut(),
            pos: positions.as_mut_ptr(),
            n_seq_id: numbers.as_mut_ptr(),
            seq_id: lists.as_mut_ptr(),
            logits: logits.as_mut_ptr(),
        };
        // SAFETY: the context is alive, the arrays outlive the call, and the batch is no larger
        // than n_batch.
        let status = unsafe { sys::llama_decode(self.context, batch) };
        assert_eq!(status, 0, "llama.cpp decodes");
    }
}

/// Any token of a vocabulary of 1,000 or more.
fn fixed(position: usize, sequence: usize) -> sys::llama_token {
    (300 + (position * 7 + sequence * 13) % 600) as sys::llama_token
}

impl Drop for Sequences {
    fn drop(&mut self) {
        // SAFETY: made by llama_init_from_model, freed once.
        unsafe { sys::llama_free(self.context) };
        // SAFETY: made by llama_model_load_from_file, freed once, after its context.
        unsafe { sys::llama_model_free(self.model) };
    }
}
