//! One sampler step, on a row of logits or on the candidates that remain.

use std::sync::Arc;

use super::candidates::{Candidates, SHORT, round_up};
use super::dry::{Dry, DryBreakers, DryOptions};
use super::history::TokenHistory;
use super::row::{CandidateRow, TokenCandidate};
use crate::api::{SamplerName, Sampling};
use crate::engine::backend::TokenId;

/// A sampler with its options and its state.
#[derive(Debug)]
pub(super) enum SamplerStep {
    Penalties(Penalties),
    Dry(Box<Dry>),
    TopNSigma(f32),
    TopK(usize),
    TypicalP(f32),
    TopP(f32),
    MinP(f32),
    Xtc { probability: f32, threshold: f32 },
    Temperature(f32),
    DynamicTemperature { temperature: f32, range: f32, exponent: f32 },
}

/// Repetition, frequency and presence penalties.
#[derive(Debug)]
pub(super) struct Penalties {
    repeat: f32,
    frequency: f32,
    presence: f32,
    history: TokenHistory,
}

impl Penalties {
    fn apply(&self, logit: f32, count: u32) -> f32 {
        let repeated = if logit <= 0.0 { logit * self.repeat } else { logit / self.repeat };
        repeated - (count as f32 * self.frequency + self.presence)
    }
}

impl SamplerStep {
    /// The samplers of a request in order, without those that are off. At temperature 0 and with
    /// mirostat, most have no effect and are left out.
    pub(super) fn all(sampling: &Sampling, breakers: &Arc<DryBreakers>) -> Vec<SamplerStep> {
        let temperature = sampling.temperature;
        if sampling.mirostat {
            let steps = (temperature > 0.0).then_some(SamplerStep::Temperature(temperature));
            return steps.into_iter().collect();
        }
        let names = sampling.samplers.iter();
        let steps = names.filter_map(|name| SamplerStep::of(*name, sampling, breakers));
        steps.filter(|step| temperature > 0.0 || step.is_adjustment()).collect()
    }

    /// Returns `None` if the sampler is off.
    fn of(
        name: SamplerName,
        sampling: &Sampling,
        breakers: &Arc<DryBreakers>,
    ) -> Option<SamplerStep> {
        let step = match name {
            SamplerName::Penalties if sampling.has_penalties() => {
                SamplerStep::Penalties(Penalties {
                    repeat: sampling.repeat_penalty,
                    frequency: sampling.frequency_penalty,
                    presence: sampling.presence_penalty,
                    history: TokenHistory::new(window(sampling.repeat_last_n)),
                })
            }
            SamplerName::Dry if sampling.has_dry() => {
                let options = DryOptions {
                    multiplier: sampling.dry_multiplier,
                    base: sampling.dry_base,
                    allowed_length: usize::try_from(sampling.dry_allowed_length).unwrap_or(0),
                };
                let most = window(sampling.dry_penalty_last_n);
                SamplerStep::Dry(Box::new(Dry::new(options, most, Arc::clone(breakers))))
            }
            SamplerName::TopNSigma if sampling.top_n_sigma > 0.0 => {
                SamplerStep::TopNSigma(sampling.top_n_sigma)
            }
            SamplerName::TopK if sampling.top_k > 0 => SamplerStep::TopK(sampling.top_k as usize),
            SamplerName::TypicalP if sampling.typical_p < 1.0 => {
                SamplerStep::TypicalP(sampling.typical_p)
            }
            SamplerName::TopP if sampling.top_p < 1.0 => SamplerStep::TopP(sampling.top_p),
            SamplerName::MinP if sampling.min_p > 0.0 => SamplerStep::MinP(sampling.min_p),
            SamplerName::Xtc if sampling.xtc_probability > 0.0 && sampling.xtc_threshold <= 0.5 => {
                SamplerStep::Xtc {
                    probability: sampling.xtc_probability,
                    threshold: sampling.xtc_threshold,
                }
            }
            SamplerName::Temperature if sampling.dynatemp_range > 0.0 => {
                SamplerStep::DynamicTemperature {
                    temperature: sampling.temperature,
                    range: sampling.dynatemp_range,
                    exponent: sampling.dynatemp_exponent,
                }
            }
            SamplerName::Temperature if sampling.temperature != 1.0 => {
                SamplerStep::Temperature(sampling.temperature)
            }
            _ => return None,
        };
        Some(step)
    }

    /// Whether the step changes the logits of a few tokens and removes no token.
    pub(super) fn is_adjustment(&self) -> bool {
        matches!(self, SamplerStep::Penalties(_) | SamplerStep::Dry(_))
    }

    /// Records a token of the sequence.
    pub(super) fn accept(&mut self, token: TokenId) {
        match self {
            SamplerStep::Penalties(penalties) => penalties.history.push(token),
            SamplerStep::Dry(dry) => dry.push(token),
            _ => {}
        }
    }

    /// Changes logits of the row if the step is an adjustment.
    pub(super) fn adjust(&mut self, row: &[f32], changes: &mut Changes) {
        match self {
            SamplerStep::Penalties(penalties) => {
                let counts = penalties.history.counts().iter().copied();
                changes.merge(row, counts, |logit, count| penalties.apply(logit, count));
            }
            SamplerStep::Dry(dry) => {
                let penalties = dry.penalties().iter().copied();
                changes.merge(row, penalties, |logit, less| logit - less);
            }
            _ => {}
        }
    }

    /// Applies the step to the candidates. `chance` returns random numbers from 0 to 1.
    pub(super) fn apply(&mut self, remaining: &mut Candidates, chance: &mut dyn FnMut() -> f64) {
        match self {
            SamplerStep::Penalties(penalties) => {
                adjust_list(remaining, penalties.history.counts(), |logit, count| {
                    penalties.apply(logit, count)
                });
            }
            SamplerStep::Dry(dry) => {
                adjust_list(remaining, dry.penalties(), |logit, less| logit - less);
            }
            SamplerStep::TopNSigma(n) => remaining.top_n_sigma(*n),
            SamplerStep::TopK(k) => remaining.top_k(*k),
            SamplerStep::TypicalP(p) => remaining.typical_p(*p),
            SamplerStep::TopP(p) => remaining.top_p(*p),
            SamplerStep::MinP(p) => remaining.min_p(*p),
            SamplerStep::Xtc { probability, threshold } => {
                if remaining.list.len() > 1 && chance() <= f64::from(*probability) {
                    remaining.xtc(*threshold);
                }
            }
            SamplerStep::Temperature(temperature) => remaining.temperature(*temperature),
            SamplerStep::DynamicTemperature { temperature, range, exponent } => {
                remaining.dynamic_temperature(*temperature, *range, *exponent);
            }
        }
    }

    /// Takes from a row the candidates that the step keeps. Returns false if the step needs all
    /// candidates and has not been applied.
    pub(super) fn take(
        &self,
        row: &CandidateRow,
        remaining: &mut Candidates,
        scratch: &mut Vec<f32>,
    ) -> bool {
        let greatest = row.greatest();
        if greatest == f32::INFINITY {
            return false;
        }
        match *self {
            SamplerStep::TopK(k) => {
                row.likeliest_k(k, &mut remaining.list, scratch);
                remaining.sorted = true;
            }
            SamplerStep::MinP(p) => {
                row.at_least((greatest + p.ln()).min(greatest), &mut remaining.list)
            }
            SamplerStep::TopNSigma(n) => {
                let (count, deviation) = row.spread();
                let least = f64::from(greatest) - f64::from(n) * deviation;
                row.at_least(round_up(least).min(greatest), &mut remaining.list);
                remaining.weightless = count - remaining.list.len();
            }
            // A short row is summed as in llama.cpp, float by float.
            SamplerStep::TopP(p) if row.len() > SHORT => {
                let weight = row.weight(greatest);
                let mut k = 256;
                loop {
                    row.likeliest_k(k, &mut remaining.list, scratch);
                    if reaches(p, &mut remaining.list, greatest, weight) || remaining.list.len() < k
                    {
                        break;
                    }
                    k *= 16;
                }
                remaining.sorted = true;
            }
            _ => return false,
        }
        true
    }
}

/// Cuts the list, which begins with the likeliest, where the probabilities add up to `p`. Returns
/// false if they do not reach it.
fn reaches(p: f32, list: &mut Vec<TokenCandidate>, greatest: f32, weight: f64) -> bool {
    let (mut sum, greatest) = (0.0, f64::from(greatest));
    let last = list.iter().position(|candidate| {
        sum += (f64::from(candidate.logit) - greatest).exp() / weight;
        sum >= f64::from(p)
    });
    if let Some(last) = last {
        list.truncate(last + 1);
    }
    last.is_some()
}

/// Converts a number of recent tokens; -1 means all.
fn window(last_n: i32) -> usize {
    usize::try_from(last_n).unwrap_or(usize::MAX)
}

/// `changes` is sorted by token.
fn adjust_list<T: Copy>(
    remaining: &mut Candidates,
    changes: &[(TokenId, T)],
    apply: impl Fn(f32, T) -> f32,
) {
    for candidate in &mut remaining.list {
        if let Ok(place) = changes.binary_search_by_key(&candidate.id, |(id, _)| *id) {
            candidate.logit = apply(candidate.logit, changes[place].1);
        }
    }
    remaining.sorted = false;
    remaining.drop_weightless();
}

/// The logits that differ from the row's, sorted by token.
#[derive(Debug, Default)]
pub(super) struct Changes {
    pub(super) logits: Vec<(TokenId, f32)>,
    spare: Vec<(TokenId, f32)>,
}

impl Changes {
    /// Changes the logits of some tokens, which are sorted by id. Tokens beyond the end of the row
    /// are ignored.
    pub(super) fn merge<T>(
        &mut self,
        row: &[f32],
        changes: impl Iterator<Item = (TokenId, T)>,
        apply: impl Fn(f32, T) -> f32,
    ) {
        self.spare.clear();
        let mut before = self.logits.iter().copied().peekable();
        for (token, change) in changes {
            while let Some(smaller) = before.next_if(|(other, _)| *other < token) {
                self.spare.push(smaller);
            }
            let changed = before.next_if(|(other, _)| *other == token).map(|(_, logit)| logit);
            let index = usize::try_from(token).unwrap_or(usize::MAX);
            if let Some(logit) = changed.or_else(|| row.get(index).copied()) {
                self.spare.push((token, apply(logit, change)));
            }
        }
        self.spare.extend(before);
        std::mem::swap(&mut self.logits, &mut self.spare);
    }
}
