//! The tokens that are left once a sampler has cut the vocabulary, and the samplers that work on
//! them.
//!
//! Each sampler does what llama.cpp's does (b11429, `src/llama-sampler.cpp`). For a short list,
//! precision and order of summation are the same too. For a long list single precision loses too
//! much, so sums are in double precision. Where llama.cpp's order of equal logits depends on its
//! sort, the smaller id comes first here.

use std::cmp::Ordering;

use fearless_simd::{Level, dispatch};

use super::lanes::{LANES, exponentials};
use super::row::TokenCandidate;

/// Candidates, each with a logit above minus infinity.
#[derive(Debug, Default)]
pub(super) struct Candidates {
    pub(super) list: Vec<TokenCandidate>,
    /// Whether the list is sorted by [`TokenCandidate::order`].
    pub(super) sorted: bool,
    /// The number of candidates whose probability a step has set to 0. llama.cpp counts them.
    pub(super) weightless: usize,
    scores: Vec<(f64, u32)>,
    scratch: Vec<TokenCandidate>,
}

/// A list of at most this many candidates is sorted as a whole, and summed as in llama.cpp.
pub(super) const SHORT: usize = 1024;

/// The values from which probabilities are computed in double precision.
pub(super) struct Weights {
    greatest: f32,
    /// The logarithm of the sum of e to the power of (logit - greatest logit).
    log_sum: f64,
    entropy: f64,
}

impl Weights {
    fn of(list: &[TokenCandidate], greatest: f32) -> Weights {
        let mut weights = Weights { greatest, log_sum: 0.0, entropy: 0.0 };
        let (mut sum, mut offsets) = (0.0, 0.0);
        for candidate in list {
            let offset = weights.offset(candidate);
            let weight = offset.exp();
            sum += weight;
            offsets += if weight > 0.0 { weight * offset } else { 0.0 };
        }
        weights.log_sum = sum.ln();
        weights.entropy = weights.log_sum - offsets / sum;
        weights
    }

    /// The logit relative to the greatest. The greatest itself is 0, because infinity minus
    /// infinity is NaN.
    fn offset(&self, candidate: &TokenCandidate) -> f64 {
        if candidate.logit == self.greatest {
            return 0.0;
        }
        f64::from(candidate.logit) - f64::from(self.greatest)
    }

    /// The natural logarithm of a probability, negated.
    fn surprisal(&self, candidate: &TokenCandidate) -> f64 {
        self.log_sum - self.offset(candidate)
    }

    pub(super) fn probability(&self, candidate: &TokenCandidate) -> f64 {
        (-self.surprisal(candidate)).exp()
    }
}

impl Candidates {
    pub(super) fn clear(&mut self) {
        self.list.clear();
        self.sorted = false;
        self.weightless = 0;
    }

    fn sort(&mut self) {
        if !self.sorted {
            self.list.sort_unstable_by(TokenCandidate::order);
            self.sorted = true;
        }
    }

    fn greatest(&self) -> f32 {
        match self.list.first() {
            Some(first) if self.sorted => first.logit,
            _ => self.list.iter().fold(f32::NEG_INFINITY, |most, each| most.max(each.logit)),
        }
    }

    fn is_long(&self) -> bool {
        self.list.len() > SHORT
    }

    pub(super) fn weights(&self) -> Weights {
        Weights::of(&self.list, self.greatest())
    }

    /// Sets the probabilities. Infinite logits share the whole probability equally.
    pub(super) fn softmax(&mut self) {
        if self.is_long() {
            return self.softmax_precisely();
        }
        let sum: f32 = self.weigh();
        for candidate in &mut self.list {
            candidate.p /= sum;
        }
    }

    /// Like [`Candidates::softmax`], but sums in double precision.
    pub(super) fn softmax_precisely(&mut self) {
        let greatest = self.greatest();
        if self.is_long() && greatest.is_finite() {
            dispatch!(Level::new(), simd => {
                for part in self.list.chunks_mut(LANES) {
                    let logits = std::array::from_fn(|lane| match part.get(lane) {
                        Some(candidate) => candidate.logit - greatest,
                        None => 0.0,
                    });
                    for (candidate, p) in part.iter_mut().zip(exponentials(simd, logits)) {
                        candidate.p = p;
                    }
                }
            });
        } else {
            self.weigh();
        }
        let sum = sum_of(&self.list);
        for candidate in &mut self.list {
            candidate.p = (f64::from(candidate.p) / sum) as f32;
        }
    }

    /// Sets `p` to e to the power of (logit - greatest logit), and returns the sum.
    fn weigh(&mut self) -> f32 {
        let greatest = self.greatest();
        let mut sum = 0.0_f32;
        for candidate in &mut self.list {
            // Infinity minus infinity is NaN.
            let is_greatest = candidate.logit == greatest;
            candidate.p = if is_greatest { 1.0 } else { (candidate.logit - greatest).exp() };
            sum += candidate.p;
        }
        sum
    }

    /// Removes candidates whose probability a step has set to 0.
    pub(super) fn drop_weightless(&mut self) {
        let before = self.list.len();
        self.list.retain(|candidate| candidate.logit > f32::NEG_INFINITY);
        self.weightless += before - self.list.len();
    }

    pub(super) fn top_k(&mut self, k: usize) {
        let kept = k.min(self.list.len());
        if !self.sorted && kept > 0 && kept < self.list.len() {
            self.list.select_nth_unstable_by(kept - 1, TokenCandidate::order);
        }
        self.list.truncate(kept);
        self.sort();
        self.weightless = self.weightless.min(k - kept);
    }

    /// Keeps the smallest set of likeliest candidates whose probabilities add up to at least `p`.
    pub(super) fn top_p(&mut self, p: f32) {
        if self.is_long() {
            let weights = self.weights();
            let mut sum = 0.0;
            self.keep_until(|candidate| {
                sum += weights.probability(candidate);
                sum >= f64::from(p)
            });
        } else {
            self.softmax();
            let mut sum = 0.0_f32;
            self.keep_until(|candidate| {
                sum += candidate.p;
                sum >= p
            });
        }
        self.weightless = 0;
    }

    /// Sorts as much of the list as needed, and cuts it after the first candidate for which
    /// `is_last` returns true.
    pub(super) fn keep_until(&mut self, mut is_last: impl FnMut(&TokenCandidate) -> bool) {
        let mut seen = 0;
        let mut part = if self.sorted { self.list.len() } else { SHORT };
        while seen < self.list.len() {
            let rest = &mut self.list[seen..];
            if !self.sorted && part < rest.len() {
                rest.select_nth_unstable_by(part - 1, TokenCandidate::order);
            }
            let here = part.min(rest.len());
            let here = &mut rest[..here];
            if !self.sorted {
                here.sort_unstable_by(TokenCandidate::order);
            }
            let last = here.iter().position(&mut is_last);
            let end = seen + here.len();
            if let Some(place) = last {
                self.list.truncate(seen + place + 1);
                break;
            }
            seen = end;
            part = part.saturating_mul(8);
        }
        self.sorted = true;
    }

    /// Keeps candidates whose probability is at least `p` times that of the likeliest.
    pub(super) fn min_p(&mut self, p: f32) {
        let least = self.greatest() + p.ln();
        let greatest = self.greatest();
        // The likeliest candidate stays even if the sum is NaN.
        self.list.retain(|candidate| candidate.logit >= least || candidate.logit == greatest);
        self.weightless = 0;
    }

    /// Keeps the candidates whose surprisal is nearest to the entropy, until their probabilities
    /// exceed `p`.
    pub(super) fn typical_p(&mut self, p: f32) {
        self.scores.clear();
        if self.is_long() {
            let weights = self.weights();
            let distance = |each| (weights.surprisal(each) - weights.entropy).abs();
            self.scores.extend(self.list.iter().map(distance).zip(0..));
            let mut sum = 0.0;
            self.keep_nearest(|candidate| {
                sum += weights.probability(candidate);
                sum > f64::from(p)
            });
        } else {
            self.sort();
            self.softmax();
            let entropy = self.list.iter().fold(0.0_f32, |sum, each| sum - each.p * ln(each.p));
            let distance = |each: &TokenCandidate| f64::from((-ln(each.p) - entropy).abs());
            self.scores.extend(self.list.iter().map(distance).zip(0..));
            let mut sum = 0.0_f32;
            self.keep_nearest(|candidate| {
                sum += candidate.p;
                sum > p
            });
        }
        self.sorted = false;
        self.weightless = 0;
    }

    /// Puts the candidates with the lowest `scores` first, and cuts the list after the first one
    /// for which `is_last` returns true.
    fn keep_nearest(&mut self, mut is_last: impl FnMut(&TokenCandidate) -> bool) {
        let list = &self.list;
        let order = |a: &(f64, u32), b: &(f64, u32)| {
            let ids = || list[a.1 as usize].order(&list[b.1 as usize]);
            a.0.partial_cmp(&b.0).unwrap_or(Ordering::Equal).then_with(ids)
        };
        self.scratch.clear();
        let mut part = SHORT;
        'parts: while self.scratch.len() < self.scores.len() {
            let rest = &mut self.scores[self.scratch.len()..];
            if part < rest.len() {
                rest.select_nth_unstable_by(part - 1, order);
            }
            let here = part.min(rest.len());
            rest[..here].sort_unstable_by(order);
            for (_, place) in &rest[..here] {
                let candidate = list[*place as usize];
                self.scratch.push(candidate);
                if is_last(&candidate) {
                    break 'parts;
                }
            }
            part = part.saturating_mul(8);
        }
        std::mem::swap(&mut self.list, &mut self.scratch);
    }

    /// Removes candidates more than `n` standard deviations below the greatest logit.
    pub(super) fn top_n_sigma(&mut self, n: f32) {
        if self.list.len() <= 1 {
            return;
        }
        let greatest = self.greatest();
        let least = if self.is_long() {
            let logits = self.list.iter().map(|each| f64::from(each.logit));
            let count = self.list.len() as f64;
            let mean = logits.clone().sum::<f64>() / count;
            let variance = logits.map(|logit| (logit - mean).powi(2)).sum::<f64>() / count;
            round_up(f64::from(greatest) - f64::from(n) * variance.sqrt())
        } else {
            let count = self.list.len() as f32;
            let mean = self.list.iter().fold(0.0_f32, |sum, each| sum + each.logit) / count;
            let square = |each: &TokenCandidate| f64::from(each.logit - mean).powi(2);
            let add = |sum: f32, each| (f64::from(sum) + square(each)) as f32;
            greatest - n * (self.list.iter().fold(0.0, add) / count).sqrt()
        };
        let before = self.list.len();
        self.list.retain(|each| each.logit >= least || each.logit == greatest);
        self.weightless += before - self.list.len();
    }

    /// Removes all candidates whose probability reaches `threshold`, except the least likely of
    /// them.
    pub(super) fn xtc(&mut self, threshold: f32) {
        self.sort();
        self.softmax();
        let reach = self.list.iter().take_while(|each| each.p >= threshold).count();
        if reach > 1 {
            self.list.drain(..reach - 1);
        }
    }

    pub(super) fn temperature(&mut self, temperature: f32) {
        if temperature <= 0.0 {
            return self.likeliest_only();
        }
        if temperature != 1.0 {
            self.list.iter_mut().for_each(|candidate| candidate.logit /= temperature);
        }
    }

    /// Sets the temperature by entropy, from `temperature - range` if one candidate has all the
    /// probability, to `temperature + range` if all candidates are equally likely.
    pub(super) fn dynamic_temperature(&mut self, temperature: f32, range: f32, exponent: f32) {
        let count = self.list.len() + self.weightless;
        if count <= 1 {
            return;
        }
        let (coldest, hottest) = ((temperature - range).max(0.0), temperature + range);
        self.sort();
        // Later samplers amplify errors, so this is in double precision.
        let share = (self.weights().entropy / (count as f64).ln()).powf(f64::from(exponent));
        let (coldest, hottest) = (f64::from(coldest), f64::from(hottest));
        let temperature = (coldest + (hottest - coldest) * share) as f32;
        self.temperature(temperature);
    }

    fn likeliest_only(&mut self) {
        if let Some(likeliest) = self.list.iter().copied().min_by(TokenCandidate::order) {
            self.list.clear();
            self.list.push(likeliest);
            self.sorted = true;
        }
    }

    /// Removes candidates with a surprisal above `bits`, but always keeps the likeliest.
    pub(super) fn at_most_surprising(&mut self, bits: f32) {
        let greatest = self.greatest();
        if self.is_long() {
            let weights = self.weights();
            let most = f64::from(bits) * std::f64::consts::LN_2;
            self.list.retain(|each| weights.surprisal(each) <= most || each.logit == greatest);
            self.sort();
            if self.list.first().is_some_and(|first| weights.surprisal(first) > most) {
                self.list.truncate(1);
            }
            return;
        }
        self.softmax();
        self.list.retain(|each| -each.p.log2() <= bits || each.logit == greatest);
        self.sort();
        if self.list.first().is_some_and(|first| -first.p.log2() > bits) {
            self.list.truncate(1);
        }
    }

    /// The candidate at which the cumulative probability exceeds `share`, from 0 to 1, of its
    /// total.
    pub(super) fn at(&self, share: f64) -> Option<TokenCandidate> {
        let target = sum_of(&self.list) * share;
        let mut passed = 0.0;
        let found = self.list.chunks(SHORT).find_map(|part| {
            let sum = sum_of(part);
            let mut so_far = passed;
            passed += sum;
            let reaches = |candidate: &&TokenCandidate| {
                so_far += f64::from(candidate.p);
                so_far > target
            };
            if passed > target { part.iter().find(reaches) } else { None }
        });
        // Reached only if rounding has lost a part of the sum.
        found.or_else(|| self.list.iter().rfind(|candidate| candidate.p > 0.0)).copied()
    }
}

/// The sum of the probabilities.
fn sum_of(list: &[TokenCandidate]) -> f64 {
    let mut lanes = [0.0_f64; LANES];
    for part in list.chunks(LANES) {
        lanes.iter_mut().zip(part).for_each(|(lane, each)| *lane += f64::from(each.p));
    }
    lanes.iter().sum()
}

/// The smallest `f32` that is not below `limit`.
pub(super) fn round_up(limit: f64) -> f32 {
    let rounded = limit as f32;
    if f64::from(rounded) < limit { rounded.next_up() } else { rounded }
}

/// The natural logarithm, but 0 for 0: a probability of 0 adds nothing to an entropy.
fn ln(p: f32) -> f32 {
    if p > 0.0 { p.ln() } else { 0.0 }
}
