//! The sampling parameters. Each comes from the request, the option `defaults`, the model file or
//! llb's own defaults, in this order of precedence.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use serde_json::{Map, Value, json};

use super::fields::{Fields, expected};
use super::reply_shape::ReplyShape;
use super::sampler_names::{SamplerName, read_samplers};
use super::sampling_values::{
    Custom, Number, ParameterCodec, Temperature, Whole, logit_bias_json, read_breakers,
    read_logit_bias, read_mirostat, read_seed, read_top_k,
};
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

/// Declares the parameters. Each line has the name in requests, the default, and the codec that
/// reads and writes the value.
macro_rules! parameters {
    ($($(#[$meta:meta])* $name:ident: $type:ty = $default:expr => $codec:expr,)*) => {
        /// Sampling parameters with their defaults filled in. Their meaning and order are
        /// llama.cpp's.
        #[derive(Debug, Clone, PartialEq)]
        pub struct Sampling {
            $($(#[$meta])* pub $name: $type,)*
            /// Who set each parameter, by its name in requests. Parameters that are not listed
            /// have llb's defaults.
            pub set_by: BTreeMap<&'static str, SamplingSource>,
        }

        impl Default for Sampling {
            /// llb's own defaults. Samplers that are off by default have llama.cpp's values.
            fn default() -> Sampling {
                Sampling { $($name: $default,)* set_by: BTreeMap::new() }
            }
        }

        impl Sampling {
            /// The names of all parameters in requests.
            pub(super) const NAMES: &[&str] = &[$(stringify!($name)),*];

            /// Reads the parameters that `source` sets. All others come from `below`.
            pub(crate) fn read(
                fields: &mut Fields,
                reply_shape: ReplyShape,
                source: SamplingSource,
                below: &Sampling,
            ) -> Result<Sampling> {
                let mut read = below.clone();
                $(if let Some(value) = $codec.read(fields, stringify!($name), reply_shape)? {
                    read.$name = value;
                    read.set_by.insert(stringify!($name), source);
                })*
                Ok(read)
            }

            /// All parameters by their names in requests.
            pub fn to_json(&self) -> Map<String, Value> {
                let values = [$($codec.to_json(&self.$name)),*];
                Sampling::NAMES.iter().map(|name| (*name).to_owned()).zip(values).collect()
            }
        }
    };
}

parameters! {
    /// The temperature. 0 takes the most likely token.
    temperature: f32 = 0.7 => Temperature,
    /// How many of the likeliest tokens to keep. 0 keeps all.
    top_k: i32 = 40 => Custom(read_top_k, |top_k| json!(top_k)),
    /// The probability mass to keep. 1 keeps all tokens.
    top_p: f32 = 0.95 => Number(0.0..=1.0),
    /// The least probability relative to the likeliest token. 0 keeps all tokens.
    min_p: f32 = 0.05 => Number(0.0..=1.0),
    /// The probability mass to keep of typical tokens. 1 keeps all tokens.
    typical_p: f32 = 1.0 => Number(0.0..=1.0),
    /// Divides the logits of repeated tokens, or multiplies negative ones. 1 changes nothing.
    repeat_penalty: f32 = 1.0 => Number(0.01..=100.0),
    /// Is subtracted from the logits of repeated tokens. 0 changes nothing.
    presence_penalty: f32 = 0.0 => Number(-100.0..=100.0),
    /// Is subtracted once for each occurrence of a token. 0 changes nothing.
    frequency_penalty: f32 = 0.0 => Number(-100.0..=100.0),
    /// How many recent tokens the three penalties look at, including the prompt. 0 is none, -1 all.
    repeat_last_n: i32 = 64 => Whole(LAST_N),
    /// The factor of DRY, which penalizes tokens that continue a repetition. 0 is off.
    dry_multiplier: f32 = 0.0 => Number(0.0..=100.0),
    /// How fast the DRY penalty grows with the length of the repetition. Below 1 DRY is off.
    dry_base: f32 = 1.75 => Number(0.0..=100.0),
    /// The length from which DRY penalizes a repetition.
    dry_allowed_length: i32 = 2 => Whole(0..=i32::MAX as i64),
    /// How many recent tokens DRY looks at, including the prompt. 0 is none, -1 all.
    dry_penalty_last_n: i32 = 64 => Whole(LAST_N),
    /// Strings that end a repetition for DRY.
    dry_sequence_breakers: Vec<String> = ["\n", ":", "\"", "*"].map(str::to_owned).to_vec()
        => Custom(read_breakers, |breakers| json!(breakers)),
    /// How many standard deviations below the greatest logit a token may be. 0 or less keeps all
    /// tokens.
    top_n_sigma: f32 = -1.0 => Number(-1.0..=100.0),
    /// The probability with which XTC is applied. It removes all tokens that reach its threshold,
    /// except the least likely of them. 0 is off.
    xtc_probability: f32 = 0.0 => Number(0.0..=1.0),
    /// The threshold of XTC, a probability. Above 0.5 XTC is off.
    xtc_threshold: f32 = 0.1 => Number(0.0..=1.0),
    /// The amount by which the temperature varies with the entropy. 0 is off.
    dynatemp_range: f32 = 0.0 => Number(0.0..=100.0),
    /// The exponent of the entropy in that variation.
    dynatemp_exponent: f32 = 1.0 => Number(0.0..=100.0),
    /// Whether Mirostat 2.0 draws the token. It replaces all samplers except bias and temperature.
    mirostat: bool = false => Custom(read_mirostat, |on| json!(if *on { 2 } else { 0 })),
    /// Mirostat's target surprise, in bits.
    mirostat_tau: f32 = 5.0 => Number(0.0..=100.0),
    /// Mirostat's learning rate.
    mirostat_eta: f32 = 0.1 => Number(0.0..=1.0),
    /// The probability that adaptive-p prefers; a negative value is off. Adaptive-p draws the token
    /// only if `samplers` lists it.
    adaptive_target: f32 = -1.0 => Number(-1.0..=1.0),
    /// How slowly adaptive-p forgets earlier tokens.
    adaptive_decay: f32 = 0.9 => Number(0.0..=0.99),
    /// The samplers in order. Samplers that are not listed are off.
    samplers: Vec<SamplerName> = SamplerName::USUAL.to_vec()
        => Custom(read_samplers, |samplers| json!(samplers)),
    /// The seed. None draws a new seed for every request.
    seed: Option<u32> = None => Custom(read_seed, |seed| json!(seed)),
    /// Numbers to add to the logits of tokens. As in OpenAI's API, `-100` bans a token and `100`
    /// almost forces it.
    logit_bias: Vec<(i32, f32)> = Vec::new()
        => Custom(read_logit_bias, |biases| logit_bias_json(biases)),
}

impl Sampling {
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

    /// Whether a parameter of this name exists.
    pub fn has_parameter(name: &str) -> bool {
        Sampling::NAMES.contains(&name)
    }

    /// Checks a value that a model file recommends.
    ///
    /// # Errors
    /// Returns a message that says what is wrong with the value.
    pub fn check_recommended(name: &str, value: &Value) -> Result<()> {
        let one = json!({ name: value });
        let fields = &mut Fields::new("", &one)?;
        let source = SamplingSource::Model;
        Sampling::read(fields, ReplyShape::Current, source, &Sampling::default()).map(drop)
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
        Sampling::read(fields, ReplyShape::Current, SamplingSource::Model, self)
    }
}

/// A number with the fewest digits that identify it: 0.7, not 0.699999988079071.
pub fn shortest(value: f32) -> Value {
    value.to_string().parse::<f64>().map_or(Value::Null, Value::from)
}

/// Reads `stop`: a string or an array of strings. An empty string stops nothing, so it is left out.
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
    use crate::api::{ChatRequest, ParsedLists, ReplyShape};
    use crate::error::Result;
    use serde_json::json;

    fn parse(members: &str) -> Result<ChatRequest> {
        let text = format!(r#"{{"messages":[{{"role":"user","content":"hi"}}],{members}}}"#);
        ChatRequest::parse(&text, ParsedLists::default(), ReplyShape::Current, &Default::default())
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
