//! Draws tokens. In: a row of logits in the backend's memory, and a token mask. Out: a token.
//!
//! The samplers, their order and their meaning are llama.cpp's (b11429, `common_sampler_init`
//! in `common/sampling.cpp`): bias, penalties, DRY, top-n-sigma, top-k, typical, top-p, min-p, XTC,
//! temperature, choice. `tests/samplers` compares them with llama.cpp's own.
//!
//! A row is read once. Later passes look only at chunks that can matter and, after the first
//! truncation, at the few tokens that remain. After the first draws nothing is allocated.

mod candidates;
mod choice;
mod dry;
mod history;
mod lanes;
mod row;
mod step;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64;

use super::backend::{TokenId, TokenMask};
use super::media::is_media;
use crate::api::Sampling;
use crate::error::{Code, Error, Result};
use candidates::Candidates;
use choice::Choice;
pub use dry::DryBreakers;
use row::CandidateRow;
pub use row::{LogitRow, TokenCandidate};
pub(crate) use row::{likeliest_n, log_weight};
use step::{Changes, SamplerStep};

/// The samplers of one sequence, with their state and their buffers.
#[derive(Debug)]
pub struct Sampler {
    /// Numbers to add to logits, sorted by token; minus infinity for suppressed tokens.
    biases: Vec<(TokenId, f32)>,
    steps: Vec<SamplerStep>,
    choice: Choice,
    random: Pcg64,
    changes: Changes,
    maxima: Vec<f32>,
    scratch: Vec<f32>,
    remaining: Candidates,
}

impl Sampler {
    /// The samplers of a request. `suppressed` are tokens that are never drawn.
    ///
    /// The same seed gives the same draws with every build of one version of llb. The generator is
    /// PCG XSL RR 128/64 (LCG) of `rand_pcg`, seeded by `seed_from_u64`.
    ///
    /// # Errors
    /// `INFERENCE_FAILED` if the request has no seed and the system provides no random numbers.
    pub fn new(
        sampling: &Sampling,
        suppressed: &[TokenId],
        breakers: &Arc<DryBreakers>,
    ) -> Result<Sampler> {
        let seed = match sampling.seed {
            Some(seed) => u64::from(seed),
            None => getrandom::u64().map_err(|error| {
                let problem = format!("the system has no random numbers ({error}); set `seed`");
                Error::new(Code::InferenceFailed, problem)
            })?,
        };
        let mut biases = sampling.logit_bias.clone();
        biases.extend(suppressed.iter().map(|token| (*token, f32::NEG_INFINITY)));
        biases.sort_by_key(|(token, _)| *token);
        biases.dedup_by(|later, first| {
            let same = later.0 == first.0;
            if same {
                first.1 += later.1;
            }
            same
        });
        Ok(Sampler {
            biases,
            steps: SamplerStep::all(sampling, breakers),
            choice: Choice::new(sampling),
            random: Pcg64::seed_from_u64(seed),
            changes: Changes::default(),
            maxima: Vec::new(),
            scratch: Vec::new(),
            remaining: Candidates::default(),
        })
    }

    /// Draws a token that `mask` allows. `None` if no such token has a probability. Only the random
    /// generator changes; a draw that is discarded has no other effect.
    pub fn draw(&mut self, row: &LogitRow, mask: Option<&TokenMask>) -> Option<TokenId> {
        self.changes.logits.clear();
        self.changes.merge(row.logits(), self.biases.iter().copied(), |logit, bias| logit + bias);
        let first = self.steps.iter().position(|step| !step.is_adjustment());
        let first = first.unwrap_or(self.steps.len());
        let (adjustments, steps) = self.steps.split_at_mut(first);
        for step in adjustments {
            step.adjust(row.logits(), &mut self.changes);
        }
        let row = CandidateRow::new(row, mask, &self.changes.logits, &mut self.maxima);
        if let Choice::Likeliest = self.choice {
            return row.likeliest();
        }
        let remaining = &mut self.remaining;
        remaining.clear();
        let mut steps = steps.iter_mut();
        if !steps
            .as_slice()
            .first()
            .is_some_and(|step| step.take(&row, remaining, &mut self.scratch))
        {
            take_all(&row, remaining);
        } else {
            steps.next();
        }
        let mut chance = || chance(&mut self.random);
        for step in steps {
            step.apply(remaining, &mut chance);
        }
        self.choice.choose(remaining, chance())
    }

    /// Records a token of the prompt or of the reply.
    pub fn accept(&mut self, token: TokenId) {
        if is_media(token) {
            return;
        }
        for step in &mut self.steps {
            step.accept(token);
        }
        self.choice.accept(token);
    }

    /// The candidates of the last draw with their probabilities, in no particular order. Empty at
    /// temperature 0.
    pub fn candidates(&self) -> &[TokenCandidate] {
        &self.remaining.list
    }
}

/// Takes all candidates of a row. Softmax is undefined for infinite logits: if there are any, only
/// their tokens are taken, with equal logits.
fn take_all(row: &CandidateRow, remaining: &mut Candidates) {
    if row.greatest() == f32::INFINITY {
        row.at_least(f32::INFINITY, &mut remaining.list);
        remaining.list.iter_mut().for_each(|candidate| candidate.logit = 0.0);
    } else {
        row.at_least(f32::NEG_INFINITY, &mut remaining.list);
    }
}

/// A random number in [0, 1), with 53 bits.
fn chance(random: &mut Pcg64) -> f64 {
    (random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
}
