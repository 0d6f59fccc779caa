//! llama.cpp's sampler chain, in the order of its own tools (`common_params_sampling::samplers` and
//! `common_sampler_init`): bias, penalties, top-k, typical, top-p, min-p, temperature, choice. Not
//! supported, and off by default in llama.cpp: DRY and top-n-sigma (between penalties and top-k),
//! XTC (before temperature), mirostat.

use std::ptr::NonNull;

use llama_cpp_sys_2 as sys;

use super::shim::{self, CallFailed, calls};
use crate::api::{PENALTY_WINDOW, Sampling};
use crate::engine::{Sampler, TokenId, TokenMask};
use crate::error::{Code, Error, Result};

/// Owns a chain and its array of candidates.
pub(crate) struct LlamaSampler {
    chain: NonNull<sys::llama_sampler>,
    candidates: Vec<sys::llama_token_data>,
    /// The chain only picks the likeliest token, so it needs no array.
    greedy: bool,
    /// Tokens that must never be sampled by the model file, sorted by id.
    suppressed: Vec<TokenId>,
}

impl LlamaSampler {
    pub(crate) fn new(
        sampling: &Sampling,
        n_vocab: i32,
        recent: &[TokenId],
        suppressed: &[TokenId],
    ) -> Result<Self> {
        // SAFETY: takes and returns plain data.
        let params = unsafe { sys::llama_sampler_chain_default_params() };
        // SAFETY: the parameters are llama.cpp's own.
        let chain = made(|| unsafe { calls::llama_sampler_chain_init(params) })?;
        let greedy = sampling.temperature <= 0.0
            && sampling.logit_bias.is_empty()
            && !sampling.has_penalties();
        let mut suppressed = suppressed.to_vec();
        suppressed.sort_unstable();
        let greedy = greedy && suppressed.is_empty();
        let mut sampler = LlamaSampler { chain, candidates: Vec::new(), greedy, suppressed };
        sampler.add_parts(sampling, n_vocab)?;
        for &token in recent {
            sampler.remember(token)?;
        }
        Ok(sampler)
    }

    fn add_parts(&mut self, sampling: &Sampling, n_vocab: i32) -> Result<()> {
        if !sampling.logit_bias.is_empty() {
            let known = sampling.logit_bias.iter().filter(|(token, _)| *token < n_vocab);
            let biases: Vec<_> =
                known.map(|&(token, bias)| sys::llama_logit_bias { token, bias }).collect();
            let (count, biases) = (biases.len() as i32, biases.as_ptr());
            // SAFETY: the biases are valid for their length and are copied.
            self.add(|| unsafe { calls::llama_sampler_init_logit_bias(n_vocab, count, biases) })?;
        }
        if sampling.has_penalties() {
            let (window, repeat) = (PENALTY_WINDOW as i32, sampling.repeat_penalty);
            let (frequency, presence) = (sampling.frequency_penalty, sampling.presence_penalty);
            // SAFETY: plain numbers, whose ranges were checked with the request.
            self.add(|| unsafe {
                calls::llama_sampler_init_penalties(n_vocab, window, repeat, frequency, presence)
            })?;
        }
        if sampling.temperature <= 0.0 {
            // SAFETY: takes nothing.
            return self.add(|| unsafe { calls::llama_sampler_init_greedy() });
        }
        if sampling.top_k > 0 {
            // SAFETY: a plain number.
            self.add(|| unsafe { calls::llama_sampler_init_top_k(sampling.top_k) })?;
        }
        if sampling.typical_p < 1.0 {
            // SAFETY: plain numbers.
            self.add(|| unsafe { calls::llama_sampler_init_typical(sampling.typical_p, 1) })?;
        }
        if sampling.top_p < 1.0 {
            // SAFETY: plain numbers.
            self.add(|| unsafe { calls::llama_sampler_init_top_p(sampling.top_p, 1) })?;
        }
        if sampling.min_p > 0.0 {
            // SAFETY: plain numbers.
            self.add(|| unsafe { calls::llama_sampler_init_min_p(sampling.min_p, 1) })?;
        }
        // SAFETY: a plain number.
        self.add(|| unsafe { calls::llama_sampler_init_temp(sampling.temperature) })?;
        // llama.cpp reads the highest number as "random". A request with that seed wants repeatable
        // draws.
        let seed = sampling.seed.map_or(u32::MAX, |seed| seed.min(u32::MAX - 1));
        // SAFETY: a plain number.
        self.add(|| unsafe { calls::llama_sampler_init_dist(seed) })
    }

    /// Adds the sampler that `init` creates to the end of the chain.
    fn add(&mut self, init: impl FnOnce() -> *mut sys::llama_sampler) -> Result<()> {
        let (chain, part) = (self.chain.as_ptr(), made(init)?.as_ptr());
        // SAFETY: chain and part are alive; the chain owns the part from here on.
        let added = shim::guard(|| unsafe { calls::llama_sampler_chain_add(chain, part) });
        added.map_err(not_made)
    }

    fn remember(&mut self, token: TokenId) -> Result<()> {
        // SAFETY: the chain is alive.
        let accepted =
            shim::guard(|| unsafe { calls::llama_sampler_accept(self.chain.as_ptr(), token) });
        accepted.map_err(not_sampled)
    }

    fn apply(&mut self) -> Result<Option<TokenId>> {
        let mut array = sys::llama_token_data_array {
            data: self.candidates.as_mut_ptr(),
            size: self.candidates.len(),
            selected: -1,
            sorted: false,
        };
        // SAFETY: chain and array are alive; samplers reorder and shrink the array, but never grow
        // it.
        let applied = shim::guard(|| unsafe {
            calls::llama_sampler_apply(self.chain.as_ptr(), &raw mut array)
        });
        applied.map_err(not_sampled)?;
        let selected = usize::try_from(array.selected).ok().filter(|index| *index < array.size);
        let Some(selected) = selected else { return Ok(None) };
        // SAFETY: a sampler may point `data` to memory of the chain; it holds `size` elements and
        // is alive either way.
        let candidates = unsafe { std::slice::from_raw_parts(array.data, array.size) };
        Ok(Some(candidates[selected].id))
    }
}

/// The sampler that `init` creates.
fn made(init: impl FnOnce() -> *mut sys::llama_sampler) -> Result<NonNull<sys::llama_sampler>> {
    let raw = shim::guard(init).map_err(not_made)?;
    NonNull::new(raw)
        .ok_or_else(|| Error::new(Code::OutOfMemory, "llama.cpp could not create a sampler"))
}

fn not_made(failed: CallFailed) -> Error {
    failed.error(Code::InferenceFailed, "llama.cpp could not create a sampler")
}

fn not_sampled(failed: CallFailed) -> Error {
    failed.error(Code::InferenceFailed, "llama.cpp could not sample a token")
}

impl Sampler for LlamaSampler {
    fn draw(&mut self, logits: &[f32], mask: Option<&TokenMask>) -> Result<Option<TokenId>> {
        if self.greedy {
            return Ok(likeliest(logits, mask));
        }
        let allowed = |token: usize| mask.is_none_or(|mask| mask.get(token));
        // Tokens without a probability and NaN are not candidates.
        let candidates = logits
            .iter()
            .enumerate()
            .filter(|(token, logit)| **logit > f32::NEG_INFINITY && allowed(*token));
        self.candidates.clear();
        self.candidates.extend(candidates.map(|(token, &logit)| sys::llama_token_data {
            id: token as TokenId,
            logit,
            p: 0.0,
        }));
        if !self.suppressed.is_empty() {
            self.candidates
                .retain(|candidate| self.suppressed.binary_search(&candidate.id).is_err());
        }
        if self.candidates.is_empty() {
            return Ok(None);
        }
        Ok(self.apply()?.or_else(|| likeliest(logits, mask)))
    }

    fn accept(&mut self, token: TokenId) -> Result<()> {
        if self.greedy { Ok(()) } else { self.remember(token) }
    }
}

/// Among equals, the token with the smaller id.
fn likeliest(logits: &[f32], mask: Option<&TokenMask>) -> Option<TokenId> {
    let mut best = (f32::NEG_INFINITY, None);
    let mut consider = |token: usize| {
        if logits[token] > best.0 {
            best = (logits[token], Some(token as TokenId));
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
        // SAFETY: created by llama_sampler_chain_init, freed once; the chain frees its parts.
        shim::free(|| unsafe { calls::llama_sampler_free(self.chain.as_ptr()) });
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::{Value, json};

    use super::*;
    use crate::api::ChatRequest;

    /// Probabilities 0.4, 0.3, 0.15, 0.1 and 0.05, not sorted.
    const ODDS: [f32; 5] = [0.1, 0.4, 0.05, 0.3, 0.15];

    fn sampling(members: Value) -> Sampling {
        // Turns off all samplers except the draw by probability; a case may turn some on.
        let mut request = json!({ "messages": [{ "role": "user", "content": "x" }], "temperature": 1.0, "top_k": 0, "top_p": 1.0,
            "min_p": 0.0, "typical_p": 1.0 });
        let members = members.as_object().expect("an object").clone();
        request.as_object_mut().expect("an object").extend(members);
        ChatRequest::read(request).expect("a request").sampling
    }

    fn sampler(members: Value, recent: &[TokenId]) -> LlamaSampler {
        LlamaSampler::new(&sampling(members), ODDS.len() as i32, recent, &[]).expect("a sampler")
    }

    fn logits(odds: &[f32]) -> Vec<f32> {
        odds.iter().map(|odds| odds.ln()).collect()
    }

    fn draws(mut sampler: LlamaSampler, logits: &[f32], count: usize) -> Vec<TokenId> {
        (0..count)
            .map(|_| sampler.draw(logits, None).expect("no fault").expect("a token"))
            .collect()
    }

    /// Checks which tokens are left. 2000 draws from five tokens miss one only with negligible
    /// probability.
    #[track_caller]
    fn left(members: Value, recent: &[TokenId], expected: &[TokenId]) {
        let drawn: BTreeSet<TokenId> =
            draws(sampler(members.clone(), recent), &logits(&ODDS), 2000).into_iter().collect();
        assert_eq!(drawn, expected.iter().copied().collect(), "{members}");
    }

    #[test]
    fn truncation_cuts_where_the_sums_say() {
        left(json!({ "seed": 1 }), &[], &[0, 1, 2, 3, 4]);
        left(json!({ "seed": 1, "top_k": 1 }), &[], &[1]);
        left(json!({ "seed": 1, "top_k": 3 }), &[], &[1, 3, 4]);
        // 0.4 + 0.3 is 0.7: the token that reaches p is kept.
        left(json!({ "seed": 1, "top_p": 0.69 }), &[], &[1, 3]);
        left(json!({ "seed": 1, "top_p": 0.71 }), &[], &[1, 3, 4]);
        left(json!({ "seed": 1, "top_p": 0.0 }), &[], &[1]);
        // At least p times the likeliest: 0.3 * 0.4 is 0.12.
        left(json!({ "seed": 1, "min_p": 0.3 }), &[], &[1, 3, 4]);
        left(json!({ "seed": 1, "min_p": 0.24 }), &[], &[0, 1, 3, 4]);
        left(json!({ "seed": 1, "min_p": 1.0 }), &[], &[1]);
        // The entropy is 1.392. The surprisals are 0.92, 1.20, 1.90, 2.30 and 3.00, so the
        // distances are 0.48, 0.19, 0.50, 0.91 and 1.60.
        left(json!({ "seed": 1, "typical_p": 0.2 }), &[], &[3]);
        left(json!({ "seed": 1, "typical_p": 0.5 }), &[], &[1, 3]);
        left(json!({ "seed": 1, "typical_p": 0.8 }), &[], &[1, 3, 4]);
    }

    #[test]
    fn the_order_is_that_of_llama_cpp() {
        // top_k first: of three tokens that sum up to 0.85, 0.47 and 0.35 reach 0.8. Of all five it
        // would take three.
        left(json!({ "seed": 1, "top_k": 3, "top_p": 0.8 }), &[], &[1, 3]);
        // typical_p before top_p: 0.3, 0.4 and 0.15 are left, and 0.47 alone reaches 0.4.
        left(json!({ "seed": 1, "typical_p": 0.8, "top_p": 0.4 }), &[], &[1]);
        left(json!({ "seed": 1, "typical_p": 0.2, "top_k": 2 }), &[], &[1]);
        // Temperature last: it neither restores what was cut nor cuts anything.
        left(json!({ "seed": 1, "top_p": 0.69, "temperature": 50.0 }), &[], &[1, 3]);
        left(json!({ "seed": 1, "min_p": 0.3, "temperature": 50.0 }), &[], &[1, 3, 4]);
        // Penalties and bias come first.
        left(json!({ "seed": 1, "top_k": 1, "presence_penalty": 1.0 }), &[1], &[3]);
        left(json!({ "seed": 1, "top_k": 1, "logit_bias": { "1": -100 } }), &[], &[3]);
        // Bias before penalties: ln 0.05 and 4 make 1.0, a tenth of which is above all others. In
        // the other order, -30 and 4 would be below.
        left(
            json!({ "seed": 1, "top_k": 1, "logit_bias": { "2": 4 }, "repeat_penalty": 10.0 }),
            &[2],
            &[2],
        );
    }

    #[test]
    fn suppressed_tokens_are_never_drawn() {
        for members in [
            json!({ "temperature": 0 }),
            json!({ "top_k": 1 }),
            json!({ "logit_bias": { "3": 100 } }),
        ] {
            let sampler = LlamaSampler::new(&sampling(members), ODDS.len() as i32, &[], &[3, 1])
                .expect("a sampler");
            let drawn = draws(sampler, &logits(&ODDS), 100);
            assert!(!drawn.contains(&1) && !drawn.contains(&3) && drawn.contains(&4), "{drawn:?}");
        }
    }

    #[test]
    fn bias_forbids_and_forces() {
        left(json!({ "seed": 1, "logit_bias": { "1": -100, "3": -100 } }), &[], &[0, 2, 4]);
        left(json!({ "seed": 1, "logit_bias": { "2": 100 } }), &[], &[2]);
        left(json!({ "temperature": 0, "logit_bias": { "2": 100 } }), &[], &[2]);
        left(json!({ "temperature": 0, "logit_bias": { "1": -100 } }), &[], &[3]);
        // A token that the vocabulary does not have.
        left(json!({ "temperature": 0, "logit_bias": { "77": 100 } }), &[], &[1]);
    }

    #[test]
    fn penalties_see_recent_tokens() {
        // The penalty multiplies negative logits: ln 0.4 * 2 is -1.83, ln 0.3 is -1.20.
        let logits = logits(&ODDS);
        for (members, recent, expected) in [
            (json!({ "repeat_penalty": 2.0 }), vec![1], 3),
            (json!({ "repeat_penalty": 1.2 }), vec![1], 1),
            (json!({ "repeat_penalty": 2.0 }), vec![1, 3], 1),
            // 0.4 / 0.3 is e to the 0.288.
            (json!({ "presence_penalty": 0.2 }), vec![1, 1], 1),
            (json!({ "presence_penalty": 0.4 }), vec![1, 1], 3),
            (json!({ "frequency_penalty": 0.2 }), vec![1], 1),
            (json!({ "frequency_penalty": 0.2 }), vec![1, 1], 3),
            (json!({ "presence_penalty": -2.0 }), vec![0], 0),
            // Only the last 64 tokens count.
            (json!({ "presence_penalty": 0.4 }), [vec![1], vec![0; 64]].concat(), 1),
            (json!({ "presence_penalty": 0.4 }), [vec![1], vec![0; 63]].concat(), 3),
        ] {
            let mut members = members;
            members["temperature"] = 0.into();
            assert_eq!(
                draws(sampler(members.clone(), &recent), &logits, 1),
                [expected],
                "{members} after {recent:?}"
            );
            // The same if the tokens arrive during generation.
            let mut accepted = sampler(members, &[]);
            recent.iter().for_each(|token| accepted.accept(*token).expect("no fault"));
            assert_eq!(draws(accepted, &logits, 1), [expected]);
        }
    }

    #[test]
    fn a_seed_gives_the_same_draws() {
        let logits = logits(&ODDS);
        let of = |seed: Value| draws(sampler(json!({ "seed": seed }), &[]), &logits, 64);
        for seed in [json!(0), json!(7), json!(u32::MAX - 1), json!(u32::MAX)] {
            assert_eq!(of(seed.clone()), of(seed));
        }
        assert_ne!(of(json!(7)), of(json!(8)));
        // An absent seed and a negative one are random.
        assert_ne!(of(json!(null)), of(json!(null)));
        assert_ne!(of(json!(-1)), of(json!(-1)));
    }

    #[test]
    fn draws_follow_the_probabilities() {
        let drawn = draws(sampler(json!({ "seed": 5 }), &[]), &logits(&ODDS), 20_000);
        for (token, odds) in ODDS.iter().enumerate() {
            let share =
                drawn.iter().filter(|drawn| **drawn == token as TokenId).count() as f32 / 20_000.0;
            // Six standard deviations are 0.009 for the rarest token and 0.021 for the likeliest.
            assert!((share - odds).abs() < 0.021, "{token}: {share}");
        }
        // Twice the temperature takes the square root: 4 to 1 becomes 2 to 1.
        let drawn =
            draws(sampler(json!({ "seed": 5, "temperature": 2.0 }), &[]), &logits(&ODDS), 20_000);
        let count = |token| drawn.iter().filter(|drawn| **drawn == token).count() as f32;
        assert!((count(1) / count(0) - 2.0).abs() < 0.2, "{} to {}", count(1), count(0));
    }

    #[test]
    fn a_mask_holds_before_truncation() {
        let mut mask = TokenMask::alloc(ODDS.len());
        [0, 2].into_iter().for_each(|token| mask.allow_token(token));
        for members in [
            json!({ "seed": 1, "top_k": 1 }),
            json!({ "temperature": 0 }),
            json!({ "seed": 1, "min_p": 1.0 }),
        ] {
            let mut sampler = sampler(members, &[]);
            assert_eq!(sampler.draw(&logits(&ODDS), Some(&mask)).expect("no fault"), Some(0));
        }
    }
}
