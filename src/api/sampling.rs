//! The sampling parameters. Each comes from the request, the option `defaults`, the model file or
//! llb's own defaults, in this order of precedence.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use serde_json::{Map, Value, json};

use super::door::Door;
use super::fields::{Fields, expected};
use super::sampler_names::{SamplerName, read_samplers};
use super::sampling_values::{read_breakers, read_logit_bias, read_mirostat, read_seed};
use crate::error::Result;

/// A number of recent tokens; -1 means all.
const LAST_N: RangeInclusive<i64> = -1..=i32::MAX as i64;

/// Who set a sampling parameter, in order of precedence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SamplingSource {
    /// The request.
    Request,
    /// The chat's option `defaults`.
    Defaults,
    /// The model file.
    Model,
}

impl SamplingSource {
    /// The spelling in `llb_chat_explain`.
    pub fn as_str(self) -> &'static str {
        match self {
            SamplingSource::Request => "request",
            SamplingSource::Defaults => "defaults",
            SamplingSource::Model => "model",
        }
    }
}

/// Sampling parameters with their defaults filled in. Their meaning and order are llama.cpp's.
///
/// To add a parameter, add a field here, its default, and one line each in `read` and `to_json`.
/// Requests, the option `defaults` and model files can then set it.
#[derive(Debug, Clone, PartialEq)]
pub struct Sampling {
    /// The temperature. 0 takes the most likely token.
    pub temperature: f32,
    /// How many of the likeliest tokens to keep. 0 keeps all.
    pub top_k: i32,
    /// The probability mass to keep. 1 keeps all tokens.
    pub top_p: f32,
    /// The least probability relative to the likeliest token. 0 keeps all tokens.
    pub min_p: f32,
    /// The probability mass to keep of typical tokens. 1 keeps all tokens.
    pub typical_p: f32,
    /// Divides the logits of repeated tokens, or multiplies negative ones. 1 changes nothing.
    pub repeat_penalty: f32,
    /// Is subtracted from the logits of repeated tokens. 0 changes nothing.
    pub presence_penalty: f32,
    /// Is subtracted once for each occurrence of a token. 0 changes nothing.
    pub frequency_penalty: f32,
    /// How many recent tokens the three penalties look at, including the prompt. 0 is none, -1 all.
    pub repeat_last_n: i32,
    /// The factor of DRY, which penalizes tokens that continue a repetition. 0 is off.
    pub dry_multiplier: f32,
    /// How fast the DRY penalty grows with the length of the repetition. Below 1 DRY is off.
    pub dry_base: f32,
    /// The length from which DRY penalizes a repetition.
    pub dry_allowed_length: i32,
    /// How many recent tokens DRY looks at, including the prompt. 0 is none, -1 all.
    pub dry_penalty_last_n: i32,
    /// Strings that end a repetition for DRY.
    pub dry_sequence_breakers: Vec<String>,
    /// How many standard deviations below the greatest logit a token may be. 0 or less keeps all
    /// tokens.
    pub top_n_sigma: f32,
    /// The probability with which XTC is applied. It removes all tokens that reach its threshold,
    /// except the least likely of them. 0 is off.
    pub xtc_probability: f32,
    /// The threshold of XTC, a probability. Above 0.5 XTC is off.
    pub xtc_threshold: f32,
    /// The amount by which the temperature varies with the entropy. 0 is off.
    pub dynatemp_range: f32,
    /// The exponent of the entropy in that variation.
    pub dynatemp_exponent: f32,
    /// Whether Mirostat 2.0 draws the token. It replaces all samplers except bias and temperature.
    pub mirostat: bool,
    /// Mirostat's target surprise, in bits.
    pub mirostat_tau: f32,
    /// Mirostat's learning rate.
    pub mirostat_eta: f32,
    /// The probability that adaptive-p prefers; a negative value is off. Adaptive-p draws the token
    /// only if `samplers` lists it.
    pub adaptive_target: f32,
    /// How slowly adaptive-p forgets earlier tokens.
    pub adaptive_decay: f32,
    /// The samplers in order. Samplers that are not listed are off.
    pub samplers: Vec<SamplerName>,
    /// The seed. None draws a new seed for every request.
    pub seed: Option<u32>,
    /// Numbers to add to the logits of tokens. As in OpenAI's API, `-100` bans a token and `100`
    /// almost forces it.
    pub logit_bias: Vec<(i32, f32)>,
    /// Who set each parameter, by its name in requests. Parameters that are not listed have llb's
    /// defaults.
    pub set_by: BTreeMap<&'static str, SamplingSource>,
}

impl Default for Sampling {
    /// llb's own defaults. Samplers that are off by default have llama.cpp's values.
    fn default() -> Sampling {
        Sampling {
            temperature: 0.7,
            top_k: 40,
            top_p: 0.95,
            min_p: 0.05,
            typical_p: 1.0,
            repeat_penalty: 1.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            repeat_last_n: 64,
            dry_multiplier: 0.0,
            dry_base: 1.75,
            dry_allowed_length: 2,
            dry_penalty_last_n: 64,
            dry_sequence_breakers: ["\n", ":", "\"", "*"].map(str::to_owned).to_vec(),
            top_n_sigma: -1.0,
            xtc_probability: 0.0,
            xtc_threshold: 0.1,
            dynatemp_range: 0.0,
            dynatemp_exponent: 1.0,
            mirostat: false,
            mirostat_tau: 5.0,
            mirostat_eta: 0.1,
            adaptive_target: -1.0,
            adaptive_decay: 0.9,
            samplers: SamplerName::USUAL.to_vec(),
            seed: None,
            logit_bias: Vec::new(),
            set_by: BTreeMap::new(),
        }
    }
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
        Sampling::default().to_json().contains_key(name)
    }

    /// Reads the parameters that `source` sets. All others come from `below`. In chats of the
    /// classic door, a negative temperature means 0.
    pub(crate) fn read(
        fields: &mut Fields,
        door: Door,
        source: SamplingSource,
        below: &Sampling,
    ) -> Result<Sampling> {
        let coldest = match door {
            Door::Classic => f64::MIN,
            Door::Options => 0.0,
        };
        let mut own = OwnParameters { fields, source, set_by: below.set_by.clone() };
        Ok(Sampling {
            temperature: own.number("temperature", coldest..=100.0, below.temperature)?.max(0.0),
            // Like 0, -1 keeps all tokens.
            top_k: own.integer("top_k", -1..=i64::from(i32::MAX), below.top_k)?.max(0),
            top_p: own.number("top_p", 0.0..=1.0, below.top_p)?,
            min_p: own.number("min_p", 0.0..=1.0, below.min_p)?,
            typical_p: own.number("typical_p", 0.0..=1.0, below.typical_p)?,
            repeat_penalty: own.number("repeat_penalty", 0.01..=100.0, below.repeat_penalty)?,
            presence_penalty: own.number(
                "presence_penalty",
                -100.0..=100.0,
                below.presence_penalty,
            )?,
            frequency_penalty: own.number(
                "frequency_penalty",
                -100.0..=100.0,
                below.frequency_penalty,
            )?,
            repeat_last_n: own.integer("repeat_last_n", LAST_N, below.repeat_last_n)?,
            dry_multiplier: own.number("dry_multiplier", 0.0..=100.0, below.dry_multiplier)?,
            dry_base: own.number("dry_base", 0.0..=100.0, below.dry_base)?,
            dry_allowed_length: own.integer(
                "dry_allowed_length",
                0..=i64::from(i32::MAX),
                below.dry_allowed_length,
            )?,
            dry_penalty_last_n: own.integer(
                "dry_penalty_last_n",
                LAST_N,
                below.dry_penalty_last_n,
            )?,
            dry_sequence_breakers: own
                .other("dry_sequence_breakers", read_breakers)?
                .unwrap_or_else(|| below.dry_sequence_breakers.clone()),
            top_n_sigma: own.number("top_n_sigma", -1.0..=100.0, below.top_n_sigma)?,
            xtc_probability: own.number("xtc_probability", 0.0..=1.0, below.xtc_probability)?,
            xtc_threshold: own.number("xtc_threshold", 0.0..=1.0, below.xtc_threshold)?,
            dynatemp_range: own.number("dynatemp_range", 0.0..=100.0, below.dynatemp_range)?,
            dynatemp_exponent: own.number(
                "dynatemp_exponent",
                0.0..=100.0,
                below.dynatemp_exponent,
            )?,
            mirostat: own.other("mirostat", read_mirostat)?.unwrap_or(below.mirostat),
            mirostat_tau: own.number("mirostat_tau", 0.0..=100.0, below.mirostat_tau)?,
            mirostat_eta: own.number("mirostat_eta", 0.0..=1.0, below.mirostat_eta)?,
            adaptive_target: own.number("adaptive_target", -1.0..=1.0, below.adaptive_target)?,
            adaptive_decay: own.number("adaptive_decay", 0.0..=0.99, below.adaptive_decay)?,
            samplers: own
                .other("samplers", read_samplers)?
                .unwrap_or_else(|| below.samplers.clone()),
            seed: own.other("seed", read_seed)?.unwrap_or(below.seed),
            logit_bias: own
                .other("logit_bias", read_logit_bias)?
                .unwrap_or_else(|| below.logit_bias.clone()),
            set_by: own.set_by,
        })
    }

    /// Checks a value that a model file recommends.
    ///
    /// # Errors
    /// Returns a message that says what is wrong with the value.
    pub fn check_recommended(name: &str, value: &Value) -> Result<()> {
        let one = json!({ name: value });
        let fields = &mut Fields::new("", &one)?;
        let source = SamplingSource::Model;
        Sampling::read(fields, Door::Options, source, &Sampling::default()).map(drop)
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
        Sampling::read(fields, Door::Options, SamplingSource::Model, self)
    }

    /// All parameters by their names in requests.
    pub fn to_json(&self) -> Map<String, Value> {
        let biases = self.logit_bias.iter();
        let biases: Map<_, _> =
            biases.map(|(token, bias)| (token.to_string(), shortest(*bias))).collect();
        let members = [
            ("temperature", shortest(self.temperature)),
            ("top_k", self.top_k.into()),
            ("top_p", shortest(self.top_p)),
            ("min_p", shortest(self.min_p)),
            ("typical_p", shortest(self.typical_p)),
            ("repeat_penalty", shortest(self.repeat_penalty)),
            ("presence_penalty", shortest(self.presence_penalty)),
            ("frequency_penalty", shortest(self.frequency_penalty)),
            ("repeat_last_n", self.repeat_last_n.into()),
            ("dry_multiplier", shortest(self.dry_multiplier)),
            ("dry_base", shortest(self.dry_base)),
            ("dry_allowed_length", self.dry_allowed_length.into()),
            ("dry_penalty_last_n", self.dry_penalty_last_n.into()),
            ("dry_sequence_breakers", json!(self.dry_sequence_breakers)),
            ("top_n_sigma", shortest(self.top_n_sigma)),
            ("xtc_probability", shortest(self.xtc_probability)),
            ("xtc_threshold", shortest(self.xtc_threshold)),
            ("dynatemp_range", shortest(self.dynatemp_range)),
            ("dynatemp_exponent", shortest(self.dynatemp_exponent)),
            ("mirostat", if self.mirostat { 2.into() } else { 0.into() }),
            ("mirostat_tau", shortest(self.mirostat_tau)),
            ("mirostat_eta", shortest(self.mirostat_eta)),
            ("adaptive_target", shortest(self.adaptive_target)),
            ("adaptive_decay", shortest(self.adaptive_decay)),
            ("samplers", json!(self.samplers.iter().map(|name| name.as_str()).collect::<Vec<_>>())),
            ("seed", self.seed.into()),
            ("logit_bias", biases.into()),
        ];
        members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }
}

/// A number with the fewest digits that identify it: 0.7, not 0.699999988079071.
pub fn shortest(value: f32) -> Value {
    value.to_string().parse::<f64>().map_or(Value::Null, Value::from)
}

/// The parameters that one source sets.
struct OwnParameters<'a, 'f> {
    fields: &'a mut Fields<'f>,
    source: SamplingSource,
    set_by: BTreeMap<&'static str, SamplingSource>,
}

impl OwnParameters<'_, '_> {
    fn number(
        &mut self,
        name: &'static str,
        range: RangeInclusive<f64>,
        below: f32,
    ) -> Result<f32> {
        let own = self.fields.number(name, range)?;
        Ok(self.noted(name, own).map_or(below, |own| own as f32))
    }

    fn integer(
        &mut self,
        name: &'static str,
        range: RangeInclusive<i64>,
        below: i32,
    ) -> Result<i32> {
        let own = self.fields.integer(name, range)?;
        Ok(self.noted(name, own).map_or(below, |own| own as i32))
    }

    fn other<T>(
        &mut self,
        name: &'static str,
        read: impl FnOnce(&mut Fields) -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        let own = read(self.fields)?;
        Ok(self.noted(name, own))
    }

    fn noted<T>(&mut self, name: &'static str, own: Option<T>) -> Option<T> {
        own.inspect(|_| {
            self.set_by.insert(name, self.source);
        })
    }
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
    use crate::api::{ChatRequest, Door, ParsedLists};
    use crate::error::Result;
    use serde_json::json;

    fn parse(members: &str) -> Result<ChatRequest> {
        let text = format!(r#"{{"messages":[{{"role":"user","content":"hi"}}],{members}}}"#);
        ChatRequest::parse(&text, ParsedLists::default(), Door::Options, &Default::default())
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
