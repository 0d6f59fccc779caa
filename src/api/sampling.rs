//! The sampler's parameters.

use serde_json::Value;

use super::fields::{Fields, expected};
use crate::error::Result;

/// Tokens that penalties look back, as llama.cpp's default.
pub const PENALTY_WINDOW: usize = 64;

/// Sampling parameters with their defaults filled in. Their meaning and order are llama.cpp's.
#[derive(Debug, Clone, PartialEq)]
pub struct Sampling {
    /// 0 takes the most likely token.
    pub temperature: f32,
    /// 0 keeps all.
    pub top_k: i32,
    /// 1 keeps all.
    pub top_p: f32,
    /// 0 keeps all.
    pub min_p: f32,
    /// 1 keeps all.
    pub typical_p: f32,
    /// 1 changes nothing. Looks back over [`PENALTY_WINDOW`] tokens, prompt included.
    pub repeat_penalty: f32,
    /// 0 changes nothing.
    pub presence_penalty: f32,
    /// 0 changes nothing.
    pub frequency_penalty: f32,
    /// None draws a new seed for every request.
    pub seed: Option<u32>,
    /// Added to a token's logit. As at OpenAI, `-100` bans a token and `100` almost forces it.
    pub logit_bias: Vec<(i32, f32)>,
}

impl Sampling {
    /// Whether any penalty looks at earlier tokens.
    pub fn has_penalties(&self) -> bool {
        self.repeat_penalty != 1.0 || self.presence_penalty != 0.0 || self.frequency_penalty != 0.0
    }

    pub(crate) fn read(fields: &mut Fields) -> Result<Sampling> {
        Ok(Sampling {
            temperature: fields.number("temperature", 0.0..=100.0)?.unwrap_or(0.7) as f32,
            top_k: fields.integer("top_k", 0..=i64::from(i32::MAX))?.unwrap_or(40) as i32,
            top_p: fields.number("top_p", 0.0..=1.0)?.unwrap_or(0.95) as f32,
            min_p: fields.number("min_p", 0.0..=1.0)?.unwrap_or(0.05) as f32,
            typical_p: fields.number("typical_p", 0.0..=1.0)?.unwrap_or(1.0) as f32,
            repeat_penalty: fields.number("repeat_penalty", 0.01..=100.0)?.unwrap_or(1.0) as f32,
            presence_penalty: fields.number("presence_penalty", -100.0..=100.0)?.unwrap_or(0.0)
                as f32,
            frequency_penalty: fields.number("frequency_penalty", -100.0..=100.0)?.unwrap_or(0.0)
                as f32,
            // llama.cpp's seeds have 32 bits. A negative or absent seed is random.
            seed: fields
                .integer("seed", i64::MIN..=i64::from(u32::MAX))?
                .and_then(|seed| u32::try_from(seed).ok()),
            logit_bias: read_logit_bias(fields)?,
        })
    }
}

fn read_logit_bias(fields: &mut Fields) -> Result<Vec<(i32, f32)>> {
    let Some(biases) = fields.object("logit_bias")? else { return Ok(Vec::new()) };
    let path = |token: &str| format!("logit_bias.{token}");
    biases
        .iter()
        .map(|(token, bias)| {
            let id = token.parse::<i32>().ok().filter(|id| *id >= 0);
            let id =
                id.ok_or_else(|| fields.invalid(&path(token), "expected a token id as key"))?;
            match bias.as_f64() {
                Some(bias) if (-100.0..=100.0).contains(&bias) => Ok((id, bias as f32)),
                _ => Err(fields.invalid(&path(token), expected("a number from -100 to 100", bias))),
            }
        })
        .collect()
}

/// Reads `stop`: a string or an array of strings.
pub(crate) fn read_stop(fields: &mut Fields) -> Result<Vec<String>> {
    const MAX_STOP_STRINGS: usize = 64;
    let stops = match fields.get("stop") {
        None => return Ok(Vec::new()),
        Some(Value::String(stop)) => vec![stop.clone()],
        Some(Value::Array(stops)) => stops
            .iter()
            .enumerate()
            .map(|(index, stop)| match stop {
                Value::String(stop) => Ok(stop.clone()),
                other => {
                    Err(fields.invalid(&format!("stop[{index}]"), expected("a string", other)))
                }
            })
            .collect::<Result<_>>()?,
        Some(other) => {
            return Err(fields.invalid("stop", expected("a string or an array of strings", other)));
        }
    };
    if stops.iter().any(String::is_empty) {
        return Err(fields.invalid("stop", "a stop string is empty"));
    }
    if stops.len() > MAX_STOP_STRINGS {
        return Err(fields.invalid(
            "stop",
            format!("at most {MAX_STOP_STRINGS} stop strings, got {}", stops.len()),
        ));
    }
    Ok(stops)
}
