//! llama.cpp's own samplers, in the order of `common_sampler_init` (b11429).
#![allow(dead_code, reason = "the test and the bench use parts of it")]

use std::ffi::CString;
use std::ptr::null;

use llama_cpp_sys_2 as sys;
use llb::api::{SamplerName, Sampling};
use llb::engine::{TokenCandidate, TokenId};

/// A chain of samplers.
pub struct LlamaChain {
    raw: *mut sys::llama_sampler,
    candidates: Vec<sys::llama_token_data>,
}

impl LlamaChain {
    /// `vocab` may be null without sequence breakers. XTC's chance is not that of the request.
    pub fn new(sampling: &Sampling, n_vocab: usize, vocab: *const sys::llama_vocab) -> LlamaChain {
        // SAFETY: takes and returns plain data.
        let params = unsafe { sys::llama_sampler_chain_default_params() };
        // SAFETY: the parameters are llama.cpp's own.
        let raw = unsafe { sys::llama_sampler_chain_init(params) };
        let chain = LlamaChain { raw, candidates: Vec::new() };
        if !sampling.logit_bias.is_empty() {
            let biases = sampling.logit_bias.iter();
            let biases: Vec<_> =
                biases.map(|&(token, bias)| sys::llama_logit_bias { token, bias }).collect();
            let (count, data) = (biases.len() as i32, biases.as_ptr());
            // SAFETY: the biases are valid for their length and are copied.
            chain.add(unsafe { sys::llama_sampler_init_logit_bias(n_vocab as i32, count, data) });
        }
        if sampling.mirostat {
            // SAFETY: a plain number.
            chain.add(unsafe { sys::llama_sampler_init_temp(sampling.temperature) });
            let (tau, eta) = (sampling.mirostat_tau, sampling.mirostat_eta);
            // SAFETY: plain numbers.
            chain.add(unsafe { sys::llama_sampler_init_mirostat_v2(1, tau, eta) });
            return chain;
        }
        // At temperature 0, llb takes the likeliest token whatever the truncation.
        let adjusts = |name: &SamplerName| {
            sampling.temperature > 0.0 || [SamplerName::Penalties, SamplerName::Dry].contains(name)
        };
        for name in sampling.samplers.iter().filter(|name| adjusts(name)) {
            chain.add_named(*name, sampling, n_vocab, vocab);
        }
        if sampling.temperature <= 0.0 {
            // SAFETY: takes nothing.
            chain.add(unsafe { sys::llama_sampler_init_greedy() });
        } else if sampling.samplers.contains(&SamplerName::AdaptiveP) {
            let (target, decay) = (sampling.adaptive_target, sampling.adaptive_decay);
            // SAFETY: plain numbers.
            chain.add(unsafe { sys::llama_sampler_init_adaptive_p(target, decay, 1) });
        } else {
            // SAFETY: a plain number.
            chain.add(unsafe { sys::llama_sampler_init_dist(1) });
        }
        chain
    }

    fn add_named(
        &self,
        name: SamplerName,
        s: &Sampling,
        n_vocab: usize,
        vocab: *const sys::llama_vocab,
    ) {
        let part = match name {
            SamplerName::Penalties => {
                let (repeat, frequency) = (s.repeat_penalty, s.frequency_penalty);
                let (last_n, presence) = (s.repeat_last_n, s.presence_penalty);
                let n = n_vocab as i32;
                // SAFETY: plain numbers.
                unsafe { sys::llama_sampler_init_penalties(n, last_n, repeat, frequency, presence) }
            }
            SamplerName::Dry => {
                let texts = s.dry_sequence_breakers.iter();
                let texts: Vec<CString> =
                    texts.map(|text| CString::new(text.as_str()).unwrap()).collect();
                let mut texts: Vec<_> = texts.iter().map(|text| text.as_ptr()).collect();
                let (texts, n) = match texts.len() {
                    0 => (std::ptr::null_mut(), 0),
                    n => (texts.as_mut_ptr(), n),
                };
                let (multiplier, base) = (s.dry_multiplier, s.dry_base);
                let (allowed, last_n) = (s.dry_allowed_length, s.dry_penalty_last_n);
                // SAFETY: the texts are NUL-terminated and are read during the call only, together
                // with the vocabulary.
                unsafe {
                    sys::llama_sampler_init_dry(vocab, multiplier, base, allowed, last_n, texts, n)
                }
            }
            // SAFETY: a plain number.
            SamplerName::TopNSigma => unsafe { sys::llama_sampler_init_top_n_sigma(s.top_n_sigma) },
            // SAFETY: a plain number.
            SamplerName::TopK => unsafe { sys::llama_sampler_init_top_k(s.top_k) },
            // SAFETY: plain numbers.
            SamplerName::TypicalP => unsafe { sys::llama_sampler_init_typical(s.typical_p, 1) },
            // SAFETY: plain numbers.
            SamplerName::TopP => unsafe { sys::llama_sampler_init_top_p(s.top_p, 1) },
            // SAFETY: plain numbers.
            SamplerName::MinP => unsafe { sys::llama_sampler_init_min_p(s.min_p, 1) },
            // SAFETY: plain numbers.
            SamplerName::Xtc => unsafe {
                sys::llama_sampler_init_xtc(s.xtc_probability, s.xtc_threshold, 1, 1)
            },
            // SAFETY: plain numbers.
            SamplerName::Temperature => unsafe {
                sys::llama_sampler_init_temp_ext(
                    s.temperature,
                    s.dynatemp_range,
                    s.dynatemp_exponent,
                )
            },
            SamplerName::AdaptiveP => return,
        };
        self.add(part);
    }

    fn add(&self, part: *mut sys::llama_sampler) {
        // SAFETY: chain and part are alive; the chain owns the part from here on.
        unsafe { sys::llama_sampler_chain_add(self.raw, part) };
    }

    pub fn accept(&mut self, token: TokenId) {
        // SAFETY: the chain is alive.
        unsafe { sys::llama_sampler_accept(self.raw, token) };
    }

    /// The chosen token, and the candidates that remain, among these tokens.
    pub fn draw(
        &mut self,
        tokens: impl Iterator<Item = (TokenId, f32)>,
    ) -> (TokenId, Vec<TokenCandidate>) {
        let mut remaining = Vec::new();
        let chosen = self.apply(tokens, |candidates| {
            let candidates = candidates.iter();
            remaining.extend(candidates.map(|it| TokenCandidate {
                id: it.id,
                logit: it.logit,
                p: it.p,
            }));
        });
        (chosen, remaining)
    }

    /// The chosen token among these.
    pub fn choose(&mut self, tokens: impl Iterator<Item = (TokenId, f32)>) -> TokenId {
        self.apply(tokens, |_| {})
    }

    fn apply(
        &mut self,
        tokens: impl Iterator<Item = (TokenId, f32)>,
        see: impl FnOnce(&[sys::llama_token_data]),
    ) -> TokenId {
        self.candidates.clear();
        let tokens = tokens.map(|(id, logit)| sys::llama_token_data { id, logit, p: 0.0 });
        self.candidates.extend(tokens);
        let mut array = sys::llama_token_data_array {
            data: self.candidates.as_mut_ptr(),
            size: self.candidates.len(),
            selected: -1,
            sorted: false,
        };
        // SAFETY: chain and array are alive; samplers never grow the array.
        unsafe { sys::llama_sampler_apply(self.raw, &raw mut array) };
        // SAFETY: `data` is the array's or the chain's memory, of `size` elements.
        let remaining = unsafe { std::slice::from_raw_parts(array.data, array.size) };
        see(remaining);
        remaining[array.selected as usize].id
    }
}

impl Drop for LlamaChain {
    fn drop(&mut self) {
        // SAFETY: freed once; the chain frees its parts.
        unsafe { sys::llama_sampler_free(self.raw) };
    }
}

/// A model file opened by llama.cpp: its vocabulary, and rows of logits.
pub struct LlamaModel(*mut sys::llama_model);

impl LlamaModel {
    pub fn open(path: &str, vocab_only: bool) -> LlamaModel {
        // SAFETY: takes and returns plain data.
        let mut params = unsafe { sys::llama_model_default_params() };
        params.vocab_only = vocab_only;
        params.n_gpu_layers = 0;
        let path = CString::new(path).unwrap();
        // SAFETY: the path is NUL-terminated.
        let model = unsafe { sys::llama_model_load_from_file(path.as_ptr(), params) };
        assert!(!model.is_null());
        LlamaModel(model)
    }

    pub fn vocab(&self) -> *const sys::llama_vocab {
        // SAFETY: the model is alive.
        unsafe { sys::llama_model_get_vocab(self.0) }
    }

    /// The logits after each token of a text.
    pub fn rows(&self, text: &str) -> Vec<Vec<f32>> {
        let (vocab, length) = (self.vocab(), text.len() as i32);
        let mut tokens = vec![0; text.len() + 8];
        let (room, out) = (tokens.len() as i32, tokens.as_mut_ptr());
        // SAFETY: text and tokens are valid for their lengths.
        let count = unsafe {
            sys::llama_tokenize(vocab, text.as_ptr().cast(), length, out, room, true, false)
        };
        tokens.truncate(usize::try_from(count).unwrap());
        // SAFETY: takes and returns plain data.
        let mut params = unsafe { sys::llama_context_default_params() };
        params.n_ctx = tokens.len() as u32;
        // More would wait for each other on a busy machine.
        params.n_threads = 1;
        params.n_threads_batch = 1;
        // SAFETY: the model is alive.
        let context = unsafe { sys::llama_init_from_model(self.0, params) };
        assert!(!context.is_null());
        // SAFETY: the vocabulary is alive.
        let n_vocab = unsafe { sys::llama_vocab_n_tokens(vocab) } as usize;
        let rows = tokens.iter_mut().map(|token| {
            // SAFETY: the token is alive during the decode.
            let batch = unsafe { sys::llama_batch_get_one(token, 1) };
            // SAFETY: context and batch are alive.
            assert_eq!(unsafe { sys::llama_decode(context, batch) }, 0);
            // SAFETY: the last token of a batch has logits.
            let logits = unsafe { sys::llama_get_logits_ith(context, -1) };
            // SAFETY: one for each token of the vocabulary, until the next decode.
            unsafe { std::slice::from_raw_parts(logits, n_vocab) }.to_vec()
        });
        let rows = rows.collect();
        // SAFETY: freed once.
        unsafe { sys::llama_free(context) };
        rows
    }
}

impl Drop for LlamaModel {
    fn drop(&mut self) {
        // SAFETY: freed once.
        unsafe { sys::llama_model_free(self.0) };
    }
}

/// For chains without sequence breakers.
pub const NO_VOCAB: *const sys::llama_vocab = null();
