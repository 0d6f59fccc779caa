//! `samplers`: the order of the samplers, by llama.cpp's names.

use super::fields::{Fields, expected};
use crate::error::Result;

named_enum! {
    /// A sampler that `samplers` can name.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum SamplerName {
        /// Repetition, frequency and presence penalties.
        Penalties = "penalties",
        /// The penalty for repetitions of sequences.
        Dry = "dry",
        /// Truncation by standard deviations of the logits.
        TopNSigma = "top_n_sigma",
        /// Truncation to a number of tokens.
        TopK = "top_k",
        /// Locally typical sampling.
        TypicalP = "typ_p",
        /// Nucleus sampling.
        TopP = "top_p",
        /// Truncation relative to the likeliest token.
        MinP = "min_p",
        /// Exclusion of top choices.
        Xtc = "xtc",
        /// Temperature, which may depend on the entropy.
        Temperature = "temperature",
        /// Adaptive-p: prefers tokens near a target probability.
        AdaptiveP = "adaptive_p",
    }
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

    /// The aliases that llama-server accepts.
    const ALIASES: [(&str, SamplerName); 4] = [
        ("typical_p", SamplerName::TypicalP),
        ("typ", SamplerName::TypicalP),
        ("nucleus", SamplerName::TopP),
        ("temp", SamplerName::Temperature),
    ];

    /// The sampler with this name or alias. Spellings with hyphens, or without underscores, are
    /// accepted too.
    fn of(text: &str) -> Option<SamplerName> {
        let spelled = |name: &str| {
            text == name || text == name.replace('_', "-") || text == name.replace('_', "")
        };
        let mut names = SamplerName::NAMES.iter().chain(&SamplerName::ALIASES);
        names.find(|(name, _)| spelled(name)).map(|(_, sampler)| *sampler)
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
            let names = SamplerName::ALL.map(SamplerName::as_str);
            fields.invalid(&path, expected(&format!("one of {}", names.join(", ")), item))
        })
    });
    read.collect::<Result<_>>().map(Some)
}
