//! The sampling parameters. Each comes from the request, the option `defaults`, the model file or
//! llb's own defaults, in this order of precedence.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use serde_json::{Map, Value, json};

use super::fields::{Fields, expected, shortest};
use super::member::members;
use super::reply_shape::ReplyShape;
use super::sampler_names::{SamplerName, read_samplers};
use crate::error::Result;

/// A number of recent tokens; -1 means all.
const LAST_N: RangeInclusive<i64> = -1..=i32::MAX as i64;

named_enum! {
    /// Who set a sampling parameter, in order of precedence.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum SamplingSource {
        /// The request.
        Request = "request",
        /// The chat's option `defaults`.
        Defaults = "defaults",
        /// The model file.
        Model = "model",
    }
}

members! {
    /// Sampling parameters with their defaults filled in. Their meaning and order are llama.cpp's.
    /// Samplers that are off by default have llama.cpp's values.
    #[derive(Debug, Clone, PartialEq)]
    pub struct Sampling {
        /// The temperature. 0 takes the most likely token.
        temperature: f32 = 0.7 => custom(read_temperature),
        /// How many of the likeliest tokens to keep. 0 keeps all.
        top_k: i32 = 40 => custom(read_top_k),
        /// The probability mass to keep. 1 keeps all tokens.
        top_p: f32 = 0.95 => float(0.0..=1.0),
        /// The least probability relative to the likeliest token. 0 keeps all tokens.
        min_p: f32 = 0.05 => float(0.0..=1.0),
        /// The probability mass to keep of typical tokens. 1 keeps all tokens.
        typical_p: f32 = 1.0 => float(0.0..=1.0),
        /// Divides the logits of repeated tokens, or multiplies negative ones. 1 changes nothing.
        repeat_penalty: f32 = 1.0 => float(0.01..=100.0),
        /// Is subtracted from the logits of repeated tokens. 0 changes nothing.
        presence_penalty: f32 = 0.0 => float(-100.0..=100.0),
        /// Is subtracted once for each occurrence of a token. 0 changes nothing.
        frequency_penalty: f32 = 0.0 => float(-100.0..=100.0),
        /// How many recent tokens the three penalties look at, including the prompt. 0 is none, -1
        /// all.
        repeat_last_n: i32 = 64 => whole(LAST_N),
        /// The factor of DRY, which penalizes tokens that continue a repetition. 0 is off.
        dry_multiplier: f32 = 0.0 => float(0.0..=100.0),
        /// How fast the DRY penalty grows with the length of the repetition. Below 1 DRY is off.
        dry_base: f32 = 1.75 => float(0.0..=100.0),
        /// The length from which DRY penalizes a repetition.
        dry_allowed_length: i32 = 2 => whole(0..=i32::MAX as i64),
        /// How many recent tokens DRY looks at, including the prompt. 0 is none, -1 all.
        dry_penalty_last_n: i32 = 64 => whole(LAST_N),
        /// Strings that end a repetition for DRY.
        dry_sequence_breakers: Vec<String> = ["\n", ":", "\"", "*"].map(str::to_owned).to_vec()
            => custom(read_breakers),
        /// How many standard deviations below the greatest logit a token may be. 0 or less keeps
        /// all tokens.
        top_n_sigma: f32 = -1.0 => float(-1.0..=100.0),
        /// The probability with which XTC is applied. It removes all tokens that reach its
        /// threshold, except the least likely of them. 0 is off.
        xtc_probability: f32 = 0.0 => float(0.0..=1.0),
        /// The threshold of XTC, a probability. Above 0.5 XTC is off.
        xtc_threshold: f32 = 0.1 => float(0.0..=1.0),
        /// The amount by which the temperature varies with the entropy. 0 is off.
        dynatemp_range: f32 = 0.0 => float(0.0..=100.0),
        /// The exponent of the entropy in that variation.
        dynatemp_exponent: f32 = 1.0 => float(0.0..=100.0),
        /// Whether Mirostat 2.0 draws the token. It replaces all samplers except bias and
        /// temperature.
        mirostat: bool = false => custom(read_mirostat) writes |on| json!(if *on { 2 } else { 0 }),
        /// Mirostat's target surprise, in bits.
        mirostat_tau: f32 = 5.0 => float(0.0..=100.0),
        /// Mirostat's learning rate.
        mirostat_eta: f32 = 0.1 => float(0.0..=1.0),
        /// The probability that adaptive-p prefers; a negative value is off. Adaptive-p draws the
        /// token only if `samplers` lists it.
        adaptive_target: f32 = -1.0 => float(-1.0..=1.0),
        /// How slowly adaptive-p forgets earlier tokens.
        adaptive_decay: f32 = 0.9 => float(0.0..=0.99),
        /// The samplers in order. Samplers that are not listed are off.
        samplers: Vec<SamplerName> = SamplerName::USUAL.to_vec() => custom(read_samplers),
        /// The seed. None draws a new seed for every request.
        seed: Option<u32> = None => custom(read_seed),
        /// Numbers to add to the logits of tokens. As in OpenAI's API, `-100` bans a token and
        /// `100` almost forces it.
        logit_bias: Vec<(i32, f32)> = Vec::new()
            => custom(read_logit_bias) writes |biases| logit_bias_json(biases),
    }
    extra {
        /// Who set each parameter, by its name in requests. Parameters that are not listed have
        /// llb's defaults.
        set_by: BTreeMap<&'static str, SamplingSource>,
    }
}

impl Sampling {
    /// Reads the parameters that `source` sets. All others come from `below`.
    pub(crate) fn read(
        fields: &mut Fields,
        source: SamplingSource,
        below: &Sampling,
    ) -> Result<Sampling> {
        let mut read = below.clone();
        let set = read.set(fields)?;
        read.set_by.extend(set.into_iter().map(|name| (name, source)));
        Ok(read)
    }

    /// All parameters by their names in requests.
    pub fn to_json(&self) -> Map<String, Value> {
        let names = Sampling::NAMES.iter().map(|names| names[0].to_owned());
        names.zip(self.values()).collect()
    }

    /// Whether any penalty looks at earlier tokens.
    pub fn has_penalties(&self) -> bool {
        let neutral = self.repeat_penalty == 1.0
            && self.presence_penalty == 0.0
            && self.frequency_penalty == 0.0;
        self.samplers.contains(&SamplerName::Penalties) && self.repeat_last_n != 0 && !neutral
    }

    /// Whether DRY is on.
    pub fn has_dry(&self) -> bool {
        self.samplers.contains(&SamplerName::Dry)
            && self.dry_multiplier != 0.0
            && self.dry_base >= 1.0
            && self.dry_penalty_last_n != 0
    }

    /// Whether adaptive-p draws.
    pub fn has_adaptive_p(&self) -> bool {
        self.adaptive_target >= 0.0 && self.samplers.contains(&SamplerName::AdaptiveP)
    }

    /// The maximum number of recent tokens that any sampler looks at.
    pub fn history(&self) -> usize {
        let penalties = if self.has_penalties() { self.repeat_last_n } else { 0 };
        let dry = if self.has_dry() { self.dry_penalty_last_n } else { 0 };
        let tokens = [penalties, dry].map(|last_n| usize::try_from(last_n).unwrap_or(usize::MAX));
        tokens.into_iter().max().unwrap_or(0)
    }

    /// Whether a request, `defaults` or a model file set the parameter.
    pub fn is_set(&self, name: &str) -> bool {
        self.set_by.contains_key(name)
    }

    /// Checks a value that a model file recommends.
    ///
    /// # Errors
    /// Returns a message that says what is wrong with the value.
    pub fn check_recommended(name: &str, value: &Value) -> Result<()> {
        let one = json!({ name: value });
        let fields = &mut Fields::new("", &one)?;
        Sampling::read(fields, SamplingSource::Model, &Sampling::default()).map(drop)
    }

    /// These parameters. Those that neither the request nor the chat has set come from the model
    /// file.
    ///
    /// # Errors
    /// `INVALID_REQUEST` for a value that [`Sampling::check_recommended`] refuses.
    pub fn over_recommended(&self, recommended: &Map<String, Value>) -> Result<Sampling> {
        let silent = recommended.iter().filter(|(name, _)| !self.is_set(name));
        let silent = silent.map(|(name, value)| (name.clone(), value.clone())).collect();
        let silent = Value::Object(silent);
        let fields = &mut Fields::new("general.sampling", &silent)?;
        Sampling::read(fields, SamplingSource::Model, self)
    }
}

/// Reads `temperature`. In chats of `llb_chat_create`, a negative one means 0.
fn read_temperature(fields: &mut Fields) -> Result<Option<f32>> {
    let coldest = if fields.reply_shape == ReplyShape::Classic { f64::MIN } else { 0.0 };
    let temperature = fields.number("temperature", coldest..=100.0)?;
    Ok(temperature.map(|temperature| temperature.max(0.0) as f32))
}

/// Reads `top_k`. Like 0, -1 keeps all tokens.
fn read_top_k(fields: &mut Fields) -> Result<Option<i32>> {
    let top_k = fields.integer("top_k", -1..=i64::from(i32::MAX))?;
    Ok(top_k.map(|top_k| top_k.max(0) as i32))
}

/// Reads `dry_sequence_breakers`: an array of strings. An empty string has no effect.
fn read_breakers(fields: &mut Fields) -> Result<Option<Vec<String>>> {
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
fn read_mirostat(fields: &mut Fields) -> Result<Option<bool>> {
    match fields.integer("mirostat", 0..=2)? {
        Some(1) => {
            Err(fields.invalid("mirostat", "version 1 is not supported; use 2, or 0 for off"))
        }
        version => Ok(version.map(|version| version == 2)),
    }
}

/// Reads `seed`: an integer of any size. llama.cpp's seeds have 32 bits, so only the low 32 bits
/// count. A negative seed is random.
fn read_seed(fields: &mut Fields) -> Result<Option<Option<u32>>> {
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

fn read_logit_bias(fields: &mut Fields) -> Result<Option<Vec<(i32, f32)>>> {
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

fn logit_bias_json(biases: &[(i32, f32)]) -> Value {
    let members = biases.iter().map(|(token, bias)| (token.to_string(), shortest(*bias)));
    members.collect::<Map<_, _>>().into()
}

#[cfg(test)]
mod tests {
    use crate::api::{ChatRequest, ReplyShape};
    use crate::error::Result;
    use serde_json::json;

    fn parse(members: &str) -> Result<ChatRequest> {
        let text = format!(r#"{{"messages":[{{"role":"user","content":"hi"}}],{members}}}"#);
        ChatRequest::parse(&text, ReplyShape::Current, &Default::default())
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
            assert_eq!(request.output.stop, expected, "{stop}");
        }
        let many = json!(vec![""; 65]);
        assert_eq!(request(&format!(r#""stop":{many}"#)).output.stop, [""; 0]);
        for top_k in [-1, 0] {
            let request = request(&format!(r#""top_k":{top_k}"#));
            assert_eq!(request.sampling.top_k, 0);
        }
        refused(r#""top_k":-2"#, "top_k: must be from -1 to 2147483647, got -2");
    }
}
