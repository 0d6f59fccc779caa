//! `samplers`: the order of the samplers, by llama.cpp's names.

use super::fields::{Fields, expected};
use crate::error::Result;

/// A sampler that `samplers` can name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SamplerName {
    /// Repetition, frequency and presence penalties.
    Penalties,
    /// The penalty for repetitions of sequences.
    Dry,
    /// Truncation by standard deviations of the logits.
    TopNSigma,
    /// Truncation to a number of tokens.
    TopK,
    /// Locally typical sampling.
    TypicalP,
    /// Nucleus sampling.
    TopP,
    /// Truncation relative to the likeliest token.
    MinP,
    /// Exclusion of top choices.
    Xtc,
    /// Temperature, which may depend on the entropy.
    Temperature,
    /// Adaptive-p: prefers tokens near a target probability.
    AdaptiveP,
}

impl SamplerName {
    /// llama.cpp's default order (b11429, `common_params_sampling::samplers`).
    pub const USUAL: [SamplerName; 9] = [
        SamplerName::Penalties,
        SamplerName::Dry,
        SamplerName::TopNSigma,
        SamplerName::TopK,
        SamplerName::TypicalP,
        SamplerName::TopP,
        SamplerName::MinP,
        SamplerName::Xtc,
        SamplerName::Temperature,
    ];

    /// The name of each sampler, and the aliases that llama-server accepts. Variants with hyphens,
    /// or without underscores, are accepted but not listed.
    const NAMES: [(SamplerName, &str, &[&str]); 10] = [
        (SamplerName::Penalties, "penalties", &[]),
        (SamplerName::Dry, "dry", &[]),
        (SamplerName::TopNSigma, "top_n_sigma", &[]),
        (SamplerName::TopK, "top_k", &[]),
        (SamplerName::TypicalP, "typ_p", &["typical_p", "typ"]),
        (SamplerName::TopP, "top_p", &["nucleus"]),
        (SamplerName::MinP, "min_p", &[]),
        (SamplerName::Xtc, "xtc", &[]),
        (SamplerName::Temperature, "temperature", &["temp"]),
        (SamplerName::AdaptiveP, "adaptive_p", &[]),
    ];

    /// The name of the sampler.
    pub fn as_str(self) -> &'static str {
        let entry = SamplerName::NAMES.iter().find(|(name, ..)| *name == self);
        entry.map_or("", |(_, name, _)| name)
    }

    fn of(text: &str) -> Option<SamplerName> {
        let spelled = |name: &str| {
            text == name || text == name.replace('_', "-") || text == name.replace('_', "")
        };
        let mut names = SamplerName::NAMES.iter();
        names
            .find(|(_, name, others)| spelled(name) || others.iter().any(|other| spelled(other)))
            .map(|(name, ..)| *name)
    }
}

/// Reads `samplers`: an array of names. Samplers that are not listed are off.
pub(super) fn read_samplers(fields: &mut Fields) -> Result<Option<Vec<SamplerName>>> {
    const MAX_SAMPLERS: usize = 64;
    let Some(items) = fields.array("samplers")? else { return Ok(None) };
    if items.len() > MAX_SAMPLERS {
        let problem = format!("at most {MAX_SAMPLERS} names, got {}", items.len());
        return Err(fields.invalid("samplers", problem));
    }
    let read = items.iter().enumerate().map(|(index, item)| {
        let path = format!("samplers[{index}]");
        let text =
            item.as_str().ok_or_else(|| fields.invalid(&path, expected("a string", item)))?;
        SamplerName::of(text).ok_or_else(|| {
            let names: Vec<_> = SamplerName::NAMES.iter().map(|(_, name, _)| *name).collect();
            fields.invalid(&path, expected(&format!("one of {}", names.join(", ")), item))
        })
    });
    read.collect::<Result<_>>().map(Some)
}
