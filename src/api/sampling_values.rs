//! The values of sampling parameters: codecs that read them from requests and write them as JSON.

use std::ops::RangeInclusive;

use serde_json::{Map, Value};

use super::fields::{Fields, expected};
use super::reply_shape::ReplyShape;
use super::sampling::shortest;
use crate::error::Result;

/// Reads and writes the value of a parameter.
pub(super) trait ParameterCodec<T> {
    /// Reads the value; None if it is absent.
    fn read(
        &self,
        fields: &mut Fields,
        name: &'static str,
        reply_shape: ReplyShape,
    ) -> Result<Option<T>>;

    fn to_json(&self, value: &T) -> Value;
}

/// A number in this range.
pub(super) struct Number(pub(super) RangeInclusive<f64>);

impl ParameterCodec<f32> for Number {
    fn read(&self, fields: &mut Fields, name: &'static str, _: ReplyShape) -> Result<Option<f32>> {
        Ok(fields.number(name, self.0.clone())?.map(|number| number as f32))
    }

    fn to_json(&self, value: &f32) -> Value {
        shortest(*value)
    }
}

/// The temperature. In chats of `llb_chat_create`, a negative one means 0.
pub(super) struct Temperature;

impl ParameterCodec<f32> for Temperature {
    fn read(
        &self,
        fields: &mut Fields,
        name: &'static str,
        reply_shape: ReplyShape,
    ) -> Result<Option<f32>> {
        let coldest = if reply_shape == ReplyShape::Classic { f64::MIN } else { 0.0 };
        let temperature = Number(coldest..=100.0).read(fields, name, reply_shape)?;
        Ok(temperature.map(|temperature| temperature.max(0.0)))
    }

    fn to_json(&self, value: &f32) -> Value {
        shortest(*value)
    }
}

/// A whole number in this range.
pub(super) struct Whole(pub(super) RangeInclusive<i64>);

impl ParameterCodec<i32> for Whole {
    fn read(&self, fields: &mut Fields, name: &'static str, _: ReplyShape) -> Result<Option<i32>> {
        Ok(fields.integer(name, self.0.clone())?.map(|number| number as i32))
    }

    fn to_json(&self, value: &i32) -> Value {
        (*value).into()
    }
}

/// A value that these functions read and write.
pub(super) struct Custom<T>(
    pub(super) fn(&mut Fields) -> Result<Option<T>>,
    pub(super) fn(&T) -> Value,
);

impl<T> ParameterCodec<T> for Custom<T> {
    fn read(&self, fields: &mut Fields, _: &'static str, _: ReplyShape) -> Result<Option<T>> {
        self.0(fields)
    }

    fn to_json(&self, value: &T) -> Value {
        self.1(value)
    }
}

/// Reads `top_k`. Like 0, -1 keeps all tokens.
pub(super) fn read_top_k(fields: &mut Fields) -> Result<Option<i32>> {
    let top_k = fields.integer("top_k", -1..=i64::from(i32::MAX))?;
    Ok(top_k.map(|top_k| top_k.max(0) as i32))
}

/// Reads `dry_sequence_breakers`: an array of strings. An empty string has no effect.
pub(super) fn read_breakers(fields: &mut Fields) -> Result<Option<Vec<String>>> {
    const MAX_BREAKERS: usize = 64;
    // The maximum length of a breaker in bytes. llama.cpp cuts longer breakers.
    const MAX_BYTES: usize = 40;
    let Some(items) = fields.array("dry_sequence_breakers")? else { return Ok(None) };
    let path = |index: usize| format!("dry_sequence_breakers[{index}]");
    if items.len() > MAX_BREAKERS {
        let problem = format!("at most {MAX_BREAKERS} strings, got {}", items.len());
        return Err(fields.invalid("dry_sequence_breakers", problem));
    }
    let mut breakers = Vec::new();
    for (index, item) in items.iter().enumerate() {
        match item.as_str() {
            Some(text) if text.len() <= MAX_BYTES => breakers.push(text.to_owned()),
            Some(text) => {
                let problem = format!("at most {MAX_BYTES} bytes, got {}", text.len());
                return Err(fields.invalid(&path(index), problem));
            }
            None => return Err(fields.invalid(&path(index), expected("a string", item))),
        }
    }
    breakers.retain(|breaker| !breaker.is_empty());
    Ok(Some(breakers))
}

/// Reads `mirostat`: 0 is off, 2 is version 2.0.
pub(super) fn read_mirostat(fields: &mut Fields) -> Result<Option<bool>> {
    match fields.integer("mirostat", 0..=2)? {
        Some(1) => {
            Err(fields.invalid("mirostat", "version 1 is not supported; use 2, or 0 for off"))
        }
        version => Ok(version.map(|version| version == 2)),
    }
}

/// Reads `seed`: an integer of any size. llama.cpp's seeds have 32 bits, so only the low 32 bits
/// count. A negative seed is random.
pub(super) fn read_seed(fields: &mut Fields) -> Result<Option<Option<u32>>> {
    let Some(value) = fields.get("seed") else { return Ok(None) };
    let seed = value.as_number().and_then(|number| {
        let text = number.to_string();
        let digits = text.trim_start_matches('-');
        if digits.bytes().all(|digit| digit.is_ascii_digit()) {
            let is_negative = text.starts_with('-') && digits.bytes().any(|digit| digit != b'0');
            return Some((!is_negative).then(|| low_bits(digits)));
        }
        // The number has a fraction or an exponent: 7.0 and 1e3 are whole.
        let seed = number.as_f64().filter(|seed| seed.is_finite() && seed.fract() == 0.0)?;
        Some((seed >= 0.0).then_some((seed % (f64::from(u32::MAX) + 1.0)) as u32))
    });
    seed.map(Some).ok_or_else(|| fields.invalid("seed", expected("a whole number", value)))
}

/// The low 32 bits of an integer written in decimal digits.
fn low_bits(digits: &str) -> u32 {
    let digits = digits.bytes().map(|digit| u32::from(digit - b'0'));
    digits.fold(0, |low: u32, digit| low.wrapping_mul(10).wrapping_add(digit))
}

pub(super) fn read_logit_bias(fields: &mut Fields) -> Result<Option<Vec<(i32, f32)>>> {
    let Some(biases) = fields.object("logit_bias")? else { return Ok(None) };
    let path = |token: &str| format!("logit_bias.{token}");
    let read = biases
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
        .collect::<Result<_>>();
    read.map(Some)
}

pub(super) fn logit_bias_json(biases: &[(i32, f32)]) -> Value {
    let members = biases.iter().map(|(token, bias)| (token.to_string(), shortest(*bias)));
    members.collect::<Map<_, _>>().into()
}
