//! llama.cpp's sampler chain, in the order its own tools use: bias, penalties, top-k, typical, top-p, min-p, temperature,
//! choice.

use std::ptr::NonNull;

use llama_cpp_sys_2 as sys;

use crate::api::Sampling;
use crate::engine::{Mask, Sampler, Token};
use crate::error::{Code, Error, Result};

const PENALTY_WINDOW: i32 = 64;

/// Owns a chain and the array it works on.
pub(crate) struct LlamaSampler {
    chain: NonNull<sys::llama_sampler>,
    candidates: Vec<sys::llama_token_data>,
    /// Nothing in the chain but the likeliest token: no array is needed.
    greedy: bool,
}

impl LlamaSampler {
    pub(crate) fn new(sampling: &Sampling, n_vocab: i32, recent: &[Token]) -> Result<Self> {
        // SAFETY: takes and returns plain data.
        let params = unsafe { sys::llama_sampler_chain_default_params() };
        // SAFETY: the parameters are llama.cpp's own.
        let chain = NonNull::new(unsafe { sys::llama_sampler_chain_init(params) }).ok_or_else(no_memory)?;
        let greedy = sampling.temperature <= 0.0 && sampling.logit_bias.is_empty() && !sampling.has_penalties();
        let mut sampler = LlamaSampler { chain, candidates: Vec::new(), greedy };
        for part in parts(sampling, n_vocab) {
            let part = NonNull::new(part).ok_or_else(no_memory)?;
            // SAFETY: chain and part are alive; the chain owns the part from here on.
            unsafe { sys::llama_sampler_chain_add(sampler.chain.as_ptr(), part.as_ptr()) };
        }
        for &token in recent {
            sampler.remember(token);
        }
        Ok(sampler)
    }

    fn remember(&mut self, token: Token) {
        // SAFETY: the chain is alive.
        unsafe { sys::llama_sampler_accept(self.chain.as_ptr(), token) };
    }

    fn apply(&mut self) -> Option<Token> {
        let mut array = sys::llama_token_data_array {
            data: self.candidates.as_mut_ptr(),
            size: self.candidates.len(),
            selected: -1,
            sorted: false,
        };
        // SAFETY: chain and array are alive; samplers reorder and shrink the array, never grow it.
        unsafe { sys::llama_sampler_apply(self.chain.as_ptr(), &raw mut array) };
        let selected = usize::try_from(array.selected).ok().filter(|index| *index < array.size)?;
        // SAFETY: a sampler may have moved `data` to memory of the chain's; either way it holds `size` elements and is alive.
        let candidates = unsafe { std::slice::from_raw_parts(array.data, array.size) };
        Some(candidates[selected].id)
    }
}

fn parts(sampling: &Sampling, n_vocab: i32) -> Vec<*mut sys::llama_sampler> {
    let mut parts = Vec::new();
    if !sampling.logit_bias.is_empty() {
        let known = sampling.logit_bias.iter().filter(|(token, _)| *token < n_vocab);
        let biases: Vec<_> = known.map(|&(token, bias)| sys::llama_logit_bias { token, bias }).collect();
        // SAFETY: the biases are valid for their length and copied.
        parts.push(unsafe { sys::llama_sampler_init_logit_bias(n_vocab, biases.len() as i32, biases.as_ptr()) });
    }
    if sampling.has_penalties() {
        let (repeat, frequency, presence) = (sampling.repeat_penalty, sampling.frequency_penalty, sampling.presence_penalty);
        // SAFETY: plain numbers, in range since the request was checked.
        parts.push(unsafe { sys::llama_sampler_init_penalties(n_vocab, PENALTY_WINDOW, repeat, frequency, presence) });
    }
    if sampling.temperature <= 0.0 {
        // SAFETY: takes nothing.
        parts.push(unsafe { sys::llama_sampler_init_greedy() });
        return parts;
    }
    if sampling.top_k > 0 {
        // SAFETY: a plain number.
        parts.push(unsafe { sys::llama_sampler_init_top_k(sampling.top_k) });
    }
    if sampling.typical_p < 1.0 {
        // SAFETY: plain numbers.
        parts.push(unsafe { sys::llama_sampler_init_typical(sampling.typical_p, 1) });
    }
    if sampling.top_p < 1.0 {
        // SAFETY: plain numbers.
        parts.push(unsafe { sys::llama_sampler_init_top_p(sampling.top_p, 1) });
    }
    if sampling.min_p > 0.0 {
        // SAFETY: plain numbers.
        parts.push(unsafe { sys::llama_sampler_init_min_p(sampling.min_p, 1) });
    }
    // SAFETY: a plain number.
    parts.push(unsafe { sys::llama_sampler_init_temp(sampling.temperature) });
    // llama.cpp's own "random" is this value.
    let seed = sampling.seed.unwrap_or(u32::MAX);
    // SAFETY: a plain number.
    parts.push(unsafe { sys::llama_sampler_init_dist(seed) });
    parts
}

fn no_memory() -> Error {
    Error::new(Code::OutOfMemory, "llama.cpp could not make a sampler")
}

impl Sampler for LlamaSampler {
    fn draw(&mut self, logits: &[f32], mask: Option<&Mask>) -> Option<Token> {
        if self.greedy {
            return likeliest(logits, mask);
        }
        let allowed = |token: usize| mask.is_none_or(|mask| mask.get(token));
        // What has no probability is no candidate, nor is what is not a number.
        let candidates = logits.iter().enumerate().filter(|(token, logit)| **logit > f32::NEG_INFINITY && allowed(*token));
        self.candidates.clear();
        self.candidates.extend(candidates.map(|(token, &logit)| sys::llama_token_data { id: token as Token, logit, p: 0.0 }));
        if self.candidates.is_empty() {
            return None;
        }
        self.apply().or_else(|| likeliest(logits, mask))
    }

    fn accept(&mut self, token: Token) {
        if !self.greedy {
            self.remember(token);
        }
    }
}

/// Of equals, the one with the smaller id.
fn likeliest(logits: &[f32], mask: Option<&Mask>) -> Option<Token> {
    let mut best = (f32::NEG_INFINITY, None);
    let mut consider = |token: usize| {
        if logits[token] > best.0 {
            best = (logits[token], Some(token as Token));
        }
    };
    match mask {
        None => (0..logits.len()).for_each(consider),
        Some(mask) => mask.iter_set_entries(|token| {
            if token < logits.len() {
                consider(token);
            }
        }),
    }
    best.1
}

impl Drop for LlamaSampler {
    fn drop(&mut self) {
        // SAFETY: made by llama_sampler_chain_init, freed once; the chain frees its parts.
        unsafe { sys::llama_sampler_free(self.chain.as_ptr()) };
    }
}
