//! The peer: llama.cpp called directly, with as little code as possible.
#![allow(dead_code, reason = "each benchmark uses a part")]

use std::ffi::{CString, c_char};
use std::time::Instant;

use llama_cpp_sys_2 as sys;

use crate::chat::cpu_seconds;

/// The figures of one run.
pub(crate) struct Run {
    /// The wall time in seconds.
    pub(crate) wall: f64,
    /// The processor time of all threads in seconds.
    pub(crate) cpu: f64,
    /// The time to the first token, in seconds.
    pub(crate) prompt: f64,
    /// The time from the first token to the last, in seconds.
    pub(crate) predicted: f64,
    pub(crate) generated: usize,
    pub(crate) text: String,
}

/// How tokens are sampled.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Sampling {
    Greedy,
    /// llb's defaults.
    Default {
        seed: u32,
    },
}

/// A model, a context for one sequence, and threads.
pub(crate) struct Peer {
    model: *mut sys::llama_model,
    context: *mut sys::llama_context,
    /// NULL means that llama.cpp creates threads for every graph.
    pool: *mut sys::ggml_threadpool,
    vocab: *const sys::llama_vocab,
}

impl Peer {
    pub(crate) fn open(
        path: &str,
        threads: u32,
        n_ctx: u32,
        n_batch: u32,
        with_pool: bool,
    ) -> Peer {
        let path = CString::new(path).expect("a path has no NUL");
        // SAFETY: takes nothing, returns a plain struct.
        let mut params = unsafe { sys::llama_model_default_params() };
        params.load_mode = sys::LLAMA_LOAD_MODE_MMAP;
        // SAFETY: the path is NUL-terminated and read only during the call.
        let model = unsafe { sys::llama_model_load_from_file(path.as_ptr(), params) };
        assert!(!model.is_null(), "llama.cpp loads the model");
        // SAFETY: takes nothing, returns a plain struct.
        let mut params = unsafe { sys::llama_context_default_params() };
        params.n_ctx = n_ctx;
        params.n_batch = n_batch;
        params.n_ubatch = n_batch;
        params.n_threads = threads as i32;
        params.n_threads_batch = threads as i32;
        params.flash_attn_type = sys::LLAMA_FLASH_ATTN_TYPE_AUTO;
        params.type_k = sys::GGML_TYPE_F16;
        params.type_v = sys::GGML_TYPE_F16;
        // SAFETY: the model is alive and freed after the context.
        let context = unsafe { sys::llama_init_from_model(model, params) };
        assert!(!context.is_null(), "llama.cpp makes a context");
        // SAFETY: the model is alive.
        let vocab = unsafe { sys::llama_model_get_vocab(model) };
        let mut pool = std::ptr::null_mut();
        if with_pool {
            // SAFETY: takes and returns plain data.
            let mut params = unsafe { sys::ggml_threadpool_params_default(threads as i32) };
            // SAFETY: the parameters are read only during the call.
            pool = unsafe { sys::ggml_threadpool_new(&raw mut params) };
            // SAFETY: context and pool are alive, and the pool is freed after the context.
            unsafe { sys::llama_attach_threadpool(context, pool, pool) };
        }
        Peer { model, context, pool, vocab }
    }

    pub(crate) fn tokenize(&self, text: &str) -> Vec<sys::llama_token> {
        let mut tokens = vec![0; text.len() + 16];
        let (start, length) = (text.as_ptr().cast::<c_char>(), text.len() as i32);
        let room = tokens.len() as i32;
        // SAFETY: text and tokens are valid for the lengths passed with them, and the model is
        // alive.
        let count = unsafe {
            sys::llama_tokenize(self.vocab, start, length, tokens.as_mut_ptr(), room, false, true)
        };
        tokens.truncate(usize::try_from(count).expect("there is room for a token per byte"));
        tokens
    }

    /// Generates one reply. With `kept`, all but the last token of the prompt are in the KV cache
    /// from the previous run.
    pub(crate) fn run(
        &mut self,
        prompt: &[sys::llama_token],
        sampling: Sampling,
        max_tokens: usize,
        kept: bool,
    ) -> Run {
        self.stream(prompt, sampling, max_tokens, kept, |_| {})
    }

    /// Like `run`, but calls `on_token` with the text of each token.
    pub(crate) fn stream(
        &mut self,
        prompt: &[sys::llama_token],
        sampling: Sampling,
        max_tokens: usize,
        kept: bool,
        mut on_token: impl FnMut(&[u8]),
    ) -> Run {
        let (start, cpu) = (Instant::now(), cpu_seconds());
        let sampler = chain(sampling);
        let from = if kept { prompt.len() - 1 } else { 0 };
        // SAFETY: the context is alive.
        let memory = unsafe { sys::llama_get_memory(self.context) };
        // SAFETY: the memory belongs to the context.
        let removed = unsafe { sys::llama_memory_seq_rm(memory, 0, from as i32, -1) };
        assert!(removed, "a part of the cache can be removed");
        let mut batch = prompt[from..].to_vec();
        let n_batch = self.n_batch();
        let (mut text, mut generated) = (Vec::new(), 0);
        let mut first = start;
        loop {
            for tokens in batch.chunks_mut(n_batch) {
                self.decode(tokens);
            }
            // SAFETY: sampler and context are alive, and the last token of a batch has logits.
            let token = unsafe { sys::llama_sampler_sample(sampler, self.context, -1) };
            if generated == 0 {
                first = Instant::now();
            }
            // SAFETY: the model is alive, and the token is one of its vocabulary.
            if unsafe { sys::llama_vocab_is_eog(self.vocab, token) } {
                break;
            }
            generated += 1;
            let before = text.len();
            self.piece(token, &mut text);
            on_token(&text[before..]);
            if generated == max_tokens {
                break;
            }
            batch.clear();
            batch.push(token);
        }
        // SAFETY: made by chain, freed once.
        unsafe { sys::llama_sampler_free(sampler) };
        let run = Run {
            wall: start.elapsed().as_secs_f64(),
            cpu: cpu_seconds() - cpu,
            prompt: (first - start).as_secs_f64(),
            predicted: first.elapsed().as_secs_f64(),
            generated,
            text: String::from_utf8_lossy(&text).into_owned(),
        };
        self.rest();
        run
    }

    /// Lets the threads of the pool sleep. By llama.cpp's default they poll for work for about
    /// 0.1 s after a decode, which would take a processor from what is measured next.
    fn rest(&self) {
        if !self.pool.is_null() {
            // SAFETY: the pool is alive; the next decode wakes its threads.
            unsafe { sys::ggml_threadpool_pause(self.pool) };
        }
    }

    fn n_batch(&self) -> usize {
        // SAFETY: the context is alive.
        unsafe { sys::llama_n_batch(self.context) as usize }
    }

    fn decode(&mut self, tokens: &mut [sys::llama_token]) {
        // SAFETY: the batch points to the tokens, which outlive it.
        let batch = unsafe { sys::llama_batch_get_one(tokens.as_mut_ptr(), tokens.len() as i32) };
        // SAFETY: the context is alive, and the batch is no larger than n_batch.
        let status = unsafe { sys::llama_decode(self.context, batch) };
        assert_eq!(status, 0, "llama.cpp decodes");
    }

    fn piece(&self, token: sys::llama_token, text: &mut Vec<u8>) {
        let mut bytes = [0u8; 128];
        let (buffer, room) = (bytes.as_mut_ptr().cast::<c_char>(), bytes.len() as i32);
        // SAFETY: the buffer is valid for its length, and the token is one of the vocabulary.
        let count = unsafe { sys::llama_token_to_piece(self.vocab, token, buffer, room, 0, false) };
        text.extend_from_slice(
            &bytes[..usize::try_from(count).expect("the text of a token is short")],
        );
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // SAFETY: made by llama_init_from_model, freed once.
        unsafe { sys::llama_free(self.context) };
        if !self.pool.is_null() {
            // SAFETY: made by ggml_threadpool_new, freed once, after the context that used it.
            unsafe { sys::ggml_threadpool_free(self.pool) };
        }
        // SAFETY: made by llama_model_load_from_file, freed once, after its context.
        unsafe { sys::llama_model_free(self.model) };
    }
}

/// llama.cpp's samplers. Freed by the caller.
pub(crate) fn chain(sampling: Sampling) -> *mut sys::llama_sampler {
    // SAFETY: takes and returns plain data.
    let params = unsafe { sys::llama_sampler_chain_default_params() };
    // SAFETY: the parameters are llama.cpp's own.
    let chain = unsafe { sys::llama_sampler_chain_init(params) };
    let add = |part: *mut sys::llama_sampler| {
        // SAFETY: chain and part are alive; the chain owns the part from here on.
        unsafe { sys::llama_sampler_chain_add(chain, part) };
    };
    match sampling {
        Sampling::Greedy => {
            // SAFETY: takes nothing.
            add(unsafe { sys::llama_sampler_init_greedy() });
        }
        Sampling::Default { seed } => {
            // SAFETY: a plain number.
            add(unsafe { sys::llama_sampler_init_top_k(40) });
            // SAFETY: plain numbers.
            add(unsafe { sys::llama_sampler_init_top_p(0.95, 1) });
            // SAFETY: plain numbers.
            add(unsafe { sys::llama_sampler_init_min_p(0.05, 1) });
            // SAFETY: a plain number.
            add(unsafe { sys::llama_sampler_init_temp(0.7) });
            // SAFETY: a plain number.
            add(unsafe { sys::llama_sampler_init_dist(seed) });
        }
    }
    chain
}
