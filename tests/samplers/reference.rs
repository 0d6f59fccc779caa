//! The samplers by their definitions (llama.cpp, b11429), written without speed in mind. Logits
//! are single precision, as they are everywhere; every sum, probability and entropy is double
//! precision. It decides where llama.cpp and llb differ.

use std::collections::HashMap;

use llb::api::{SamplerName, Sampling};
use llb::engine::{TokenCandidate, TokenId};

/// A token and its logit, which is minus infinity where a sampler took away its probability.
type Item = (TokenId, f32);

/// What remains of these tokens after the samplers, with the probability of each to be drawn.
pub fn remaining(
    sampling: &Sampling,
    recent: &[TokenId],
    tokens: impl Iterator<Item = Item>,
) -> Vec<TokenCandidate> {
    let mut list: Vec<Item> = tokens.collect();
    for (id, logit) in &mut list {
        for (_, bias) in sampling.logit_bias.iter().filter(|(token, _)| token == id) {
            *logit += bias;
        }
    }
    if sampling.mirostat {
        list.iter_mut().for_each(|(_, logit)| *logit /= sampling.temperature);
        mirostat(&mut list, 2.0 * f64::from(sampling.mirostat_tau));
        return with_probabilities(&list);
    }
    for name in &sampling.samplers {
        apply(*name, sampling, recent, &mut list);
    }
    if sampling.samplers.contains(&SamplerName::AdaptiveP) {
        adaptive_p(&mut list, f64::from(sampling.adaptive_target));
    }
    with_probabilities(&list)
}

fn apply(name: SamplerName, s: &Sampling, recent: &[TokenId], list: &mut Vec<Item>) {
    match name {
        SamplerName::Penalties => penalties(list, s, last(recent, s.repeat_last_n)),
        SamplerName::Dry => dry(list, s, last(recent, s.dry_penalty_last_n)),
        SamplerName::TopNSigma => top_n_sigma(list, f64::from(s.top_n_sigma)),
        SamplerName::TopK if s.top_k > 0 => {
            sort(list);
            list.truncate(s.top_k as usize);
        }
        SamplerName::TypicalP => typical_p(list, f64::from(s.typical_p)),
        SamplerName::TopP => top_p(list, f64::from(s.top_p)),
        SamplerName::MinP if s.min_p > 0.0 => {
            let least = f64::from(greatest(list)) + f64::from(s.min_p).ln();
            list.retain(|(_, logit)| f64::from(*logit) >= least);
        }
        SamplerName::Xtc => {
            // The cases have a probability of 0 or 1.
            if s.xtc_probability > 0.0 && s.xtc_threshold <= 0.5 && list.len() > 1 {
                sort(list);
                let threshold = f64::from(s.xtc_threshold);
                let reach = softmax(list).iter().filter(|p| **p >= threshold).count();
                list.drain(..reach.saturating_sub(1));
            }
        }
        SamplerName::Temperature => temperature(list, s),
        SamplerName::TopK | SamplerName::MinP | SamplerName::AdaptiveP => {}
    }
}

/// The last tokens; all of them for -1.
fn last(tokens: &[TokenId], count: i32) -> &[TokenId] {
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    &tokens[tokens.len() - count.min(tokens.len())..]
}

fn greatest(list: &[Item]) -> f32 {
    list.iter().map(|(_, logit)| *logit).fold(f32::NEG_INFINITY, f32::max)
}

/// The likeliest first; of equals, the smaller id.
fn sort(list: &mut [Item]) {
    list.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
}

fn softmax(list: &[Item]) -> Vec<f64> {
    let most = f64::from(greatest(list));
    let weights: Vec<f64> =
        list.iter().map(|(_, logit)| (f64::from(*logit) - most).exp()).collect();
    let sum: f64 = weights.iter().sum();
    weights.iter().map(|weight| weight / sum).collect()
}

fn entropy(odds: &[f64]) -> f64 {
    odds.iter().filter(|p| **p > 0.0).map(|p| -p * p.ln()).sum()
}

fn with_probabilities(list: &[Item]) -> Vec<TokenCandidate> {
    let odds = softmax(list).into_iter();
    let items = list.iter().zip(odds);
    items.map(|((id, logit), p)| TokenCandidate { id: *id, logit: *logit, p: p as f32 }).collect()
}

fn penalties(list: &mut [Item], s: &Sampling, recent: &[TokenId]) {
    for (id, logit) in list {
        let count = recent.iter().filter(|token| *token == id).count();
        if count > 0 {
            *logit =
                if *logit <= 0.0 { *logit * s.repeat_penalty } else { *logit / s.repeat_penalty };
            *logit -= count as f32 * s.frequency_penalty + s.presence_penalty;
        }
    }
}

fn dry(list: &mut [Item], s: &Sampling, recent: &[TokenId]) {
    let allowed = s.dry_allowed_length as usize;
    if s.dry_multiplier == 0.0 || s.dry_base < 1.0 || recent.len() <= allowed {
        return;
    }
    let mut longest: HashMap<TokenId, usize> = HashMap::new();
    for next in 1..recent.len() {
        let (before, all) = (recent[..next].iter().rev(), recent.iter().rev());
        let length = before.zip(all).take_while(|(a, b)| a == b).count();
        let known = longest.entry(recent[next]).or_default();
        *known = length.max(*known);
    }
    for (id, logit) in list {
        if let Some(length) = longest.get(id).filter(|length| **length >= allowed) {
            let power = f64::from(s.dry_base).powf((length - allowed) as f64);
            *logit -= (f64::from(s.dry_multiplier) * power.min(f64::from(f32::MAX))) as f32;
        }
    }
}

fn top_n_sigma(list: &mut [Item], n: f64) {
    let finite = list.iter().map(|(_, logit)| f64::from(*logit)).filter(|logit| logit.is_finite());
    let finite: Vec<f64> = finite.collect();
    if n <= 0.0 || list.len() <= 1 || finite.is_empty() {
        return;
    }
    let count = finite.len() as f64;
    let mean = finite.iter().sum::<f64>() / count;
    let variance = finite.iter().map(|logit| (logit - mean).powi(2)).sum::<f64>() / count;
    let least = f64::from(greatest(list)) - n * variance.sqrt();
    let below = list.iter_mut().filter(|(_, logit)| f64::from(*logit) < least);
    below.for_each(|(_, logit)| *logit = f32::NEG_INFINITY);
}

fn typical_p(list: &mut Vec<Item>, p: f64) {
    if p >= 1.0 {
        return;
    }
    sort(list);
    let odds = softmax(list);
    let entropy = entropy(&odds);
    let mut order: Vec<usize> = (0..list.len()).collect();
    let distance = |place: usize| (-odds[place].ln() - entropy).abs();
    order.sort_by(|a, b| distance(*a).total_cmp(&distance(*b)));
    let mut sum = 0.0;
    let exceeds = order.iter().position(|place| {
        sum += odds[*place];
        sum > p
    });
    order.truncate(exceeds.map_or(order.len(), |place| place + 1));
    *list = order.iter().map(|place| list[*place]).collect();
}

fn top_p(list: &mut Vec<Item>, p: f64) {
    if p >= 1.0 {
        return;
    }
    sort(list);
    let mut sum = 0.0;
    let reaches = softmax(list).iter().position(|odds| {
        sum += odds;
        sum >= p
    });
    list.truncate(reaches.map_or(list.len(), |place| place + 1));
}

fn temperature(list: &mut [Item], s: &Sampling) {
    let mut temperature = s.temperature;
    if s.dynatemp_range > 0.0 {
        if list.len() <= 1 {
            return;
        }
        let share = entropy(&softmax(list)) / (list.len() as f64).ln();
        let coldest = f64::from((temperature - s.dynatemp_range).max(0.0));
        let hottest = f64::from(temperature + s.dynatemp_range);
        let share = share.powf(f64::from(s.dynatemp_exponent));
        temperature = (coldest + (hottest - coldest) * share) as f32;
    }
    if temperature > 0.0 {
        list.iter_mut().for_each(|(_, logit)| *logit /= temperature);
        return;
    }
    let most = greatest(list);
    let first = list.iter().filter(|(_, logit)| *logit == most).map(|(id, _)| *id).min();
    let others = list.iter_mut().filter(|(id, _)| Some(*id) != first);
    others.for_each(|(_, logit)| *logit = f32::NEG_INFINITY);
}

/// The first draw: the target has not adapted to anything.
fn adaptive_p(list: &mut [Item], target: f64) {
    if target < 0.0 {
        return;
    }
    let odds = softmax(list);
    for ((_, logit), p) in list.iter_mut().zip(odds) {
        if *logit > f32::NEG_INFINITY {
            let distance = ((p - target) / 0.3).abs();
            *logit = (5.0 - 10.0 * distance * distance / (1.0 + distance)) as f32;
        }
    }
}

fn mirostat(list: &mut Vec<Item>, most_bits: f64) {
    sort(list);
    let kept = softmax(list).iter().take_while(|p| -p.log2() <= most_bits).count();
    list.truncate(kept.max(1));
}
