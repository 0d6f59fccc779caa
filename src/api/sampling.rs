//! The sampler's parameters.

use serde_json::Value;

use super::door::Door;
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

    /// Through the classic door, a negative temperature is 0.
    pub(crate) fn read(fields: &mut Fields, door: Door) -> Result<Sampling> {
        let coldest = match door {
            Door::Classic => f64::MIN,
            Door::Options => 0.0,
        };
        let temperature = fields.number("temperature", coldest..=100.0)?.unwrap_or(0.7);
        Ok(Sampling {
            temperature: temperature.max(0.0) as f32,
            // -1 keeps all, as 0 does.
            top_k: fields.integer("top_k", -1..=i64::from(i32::MAX))?.unwrap_or(40).max(0) as i32,
            top_p: fields.number("top_p", 0.0..=1.0)?.unwrap_or(0.95) as f32,
            min_p: fields.number("min_p", 0.0..=1.0)?.unwrap_or(0.05) as f32,
            typical_p: fields.number("typical_p", 0.0..=1.0)?.unwrap_or(1.0) as f32,
            repeat_penalty: fields.number("repeat_penalty", 0.01..=100.0)?.unwrap_or(1.0) as f32,
            presence_penalty: fields.number("presence_penalty", -100.0..=100.0)?.unwrap_or(0.0)
                as f32,
            frequency_penalty: fields.number("frequency_penalty", -100.0..=100.0)?.unwrap_or(0.0)
                as f32,
            seed: read_seed(fields)?,
            logit_bias: read_logit_bias(fields)?,
        })
    }
}

/// Reads `seed`: an integer of any size. llama.cpp's seeds have 32 bits, so the low 32 bits count.
/// A negative or absent seed is random.
fn read_seed(fields: &mut Fields) -> Result<Option<u32>> {
    let Some(value) = fields.get("seed") else { return Ok(None) };
    let seed = value.as_number().and_then(|number| {
        let text = number.to_string();
        let digits = text.trim_start_matches('-');
        if digits.bytes().all(|digit| digit.is_ascii_digit()) {
            let is_negative = text.starts_with('-') && digits.bytes().any(|digit| digit != b'0');
            return Some((!is_negative).then(|| low_bits(digits)));
        }
        // With a fraction or an exponent: 7.0 and 1e3 are whole.
        let seed = number.as_f64().filter(|seed| seed.is_finite() && seed.fract() == 0.0)?;
        Some((seed >= 0.0).then_some((seed % (f64::from(u32::MAX) + 1.0)) as u32))
    });
    seed.ok_or_else(|| fields.invalid("seed", expected("a whole number", value)))
}

/// The low 32 bits of an integer in decimal digits.
fn low_bits(digits: &str) -> u32 {
    let digits = digits.bytes().map(|digit| u32::from(digit - b'0'));
    digits.fold(0, |low: u32, digit| low.wrapping_mul(10).wrapping_add(digit))
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

/// Reads `stop`: a string or an array of strings. An empty string stops nothing and is left out.
pub(crate) fn read_stop(fields: &mut Fields) -> Result<Vec<String>> {
    const MAX_STOP_STRINGS: usize = 64;
    let mut stops = match fields.get("stop") {
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
    stops.retain(|stop| !stop.is_empty());
    if stops.len() > MAX_STOP_STRINGS {
        return Err(fields.invalid(
            "stop",
            format!("at most {MAX_STOP_STRINGS} stop strings, got {}", stops.len()),
        ));
    }
    Ok(stops)
}

#[cfg(test)]
mod tests {
    use crate::api::{ChatRequest, Door, ParsedLists};
    use crate::error::Result;
    use serde_json::json;

    fn parse(members: &str) -> Result<ChatRequest> {
        let text = format!(r#"{{"messages":[{{"role":"user","content":"hi"}}],{members}}}"#);
        ChatRequest::parse(&text, ParsedLists::default(), Door::Options)
    }

    #[track_caller]
    fn request(members: &str) -> ChatRequest {
        parse(members).expect(members)
    }

    #[track_caller]
    fn refused(members: &str, message: &str) {
        assert_eq!(parse(members).expect_err(members).message(), message);
    }

    #[test]
    fn a_seed_is_any_integer() {
        for (text, seed) in [
            ("7", Some(7)),
            ("7.0", Some(7)),
            ("1e3", Some(1000)),
            ("4294967295", Some(u32::MAX)),
            ("4294967296", Some(0)),
            ("4294967303", Some(7)),
            ("9223372036854775807", Some(u32::MAX)),
            ("18446744073709551616", Some(0)),
            ("340282366920938463463374607431768211463", Some(7)),
            ("4294967303.0", Some(7)),
            ("1e300", Some(0)),
            ("-0", Some(0)),
            ("-1", None),
            ("-1.0", None),
            ("-9223372036854775808", None),
            ("-340282366920938463463374607431768211463", None),
            ("null", None),
        ] {
            let request = request(&format!(r#""seed":{text}"#));
            assert_eq!(request.sampling.seed, seed, "{text}");
        }
        refused(r#""seed":1.5"#, "seed: expected a whole number, got 1.5");
        refused(r#""seed":"7""#, r#"seed: expected a whole number, got "7""#);
    }

    #[test]
    fn empty_stop_strings_and_top_k_below_0_are_off() {
        for (stop, expected) in [
            (r#""""#, &[][..]),
            (r#"["",""]"#, &[]),
            ("[]", &[]),
            (r#"["","a","","b"]"#, &["a", "b"]),
        ] {
            let request = request(&format!(r#""stop":{stop}"#));
            assert_eq!(request.stop, expected, "{stop}");
        }
        let many = json!(vec![""; 65]);
        assert_eq!(request(&format!(r#""stop":{many}"#)).stop, [""; 0]);
        for top_k in [-1, 0] {
            let request = request(&format!(r#""top_k":{top_k}"#));
            assert_eq!(request.sampling.top_k, 0);
        }
        refused(r#""top_k":-2"#, "top_k: must be from -1 to 2147483647, got -2");
    }
}
