//! The sampling parameters that a model file recommends (`general.sampling.*`), by the names that
//! requests have for them.
//!
//! Headers are untrusted, so a value that a request could not have is ignored, with a finding.

use serde_json::{Map, Value};

use crate::api::{Sampling, shortest};
use crate::diagnostic::Diagnostic;
use crate::gguf::{GgufValue, ModelHeader};

const PREFIX: &str = "general.sampling.";
/// llama.cpp's keys (b11429, `LLM_KV_GENERAL_SAMPLING_*`) and the corresponding names in its
/// server, which requests use too.
const NAMES: [(&str, &str); 12] = [
    ("temp", "temperature"),
    ("top_k", "top_k"),
    ("top_p", "top_p"),
    ("min_p", "min_p"),
    ("xtc_probability", "xtc_probability"),
    ("xtc_threshold", "xtc_threshold"),
    ("penalty_last_n", "repeat_last_n"),
    ("penalty_repeat", "repeat_penalty"),
    ("mirostat", "mirostat"),
    ("mirostat_tau", "mirostat_tau"),
    ("mirostat_eta", "mirostat_eta"),
    ("sequence", "samplers"),
];
/// The maximum number of findings about keys that llama.cpp does not know.
const MAX_UNKNOWN: usize = 8;
const MAX_SEQUENCE_BYTES: usize = 512;

/// What a model file recommends.
#[derive(Debug, Default, PartialEq)]
pub struct RecommendedSampling {
    /// The values to use for members that a request omits.
    pub applied: Map<String, Value>,
    /// Findings about ignored values.
    pub findings: Vec<Diagnostic>,
}

impl RecommendedSampling {
    /// Reads and checks the keys of a header.
    pub fn of(header: &ModelHeader) -> RecommendedSampling {
        let mut read = RecommendedSampling::default();
        let mut unknown = 0;
        for key in header.keys(PREFIX) {
            let suffix = &key[PREFIX.len()..];
            let Some((_, name)) = NAMES.iter().find(|(known, _)| *known == suffix) else {
                unknown += 1;
                if unknown <= MAX_UNKNOWN {
                    let key: String = key.chars().take(100).collect();
                    read.report("sampling_unknown", format!("{key}: unknown key; it is ignored"));
                }
                continue;
            };
            match checked(name, header.get(key)) {
                Ok(value) => {
                    read.applied.insert((*name).to_owned(), value);
                }
                Err(problem) => {
                    read.report("sampling_value", format!("{key}: {problem}; it is ignored"));
                }
            }
        }
        read
    }

    /// The member `sampling` of `llb_model_info`: the values by their names in requests; null if
    /// there are no values.
    pub(super) fn to_json(&self) -> Value {
        if self.applied.is_empty() { Value::Null } else { self.applied.clone().into() }
    }

    fn report(&mut self, code: &'static str, message: String) {
        self.findings.push(Diagnostic::new(code, message));
    }
}

/// A value in the form that a request has, or a message about what is wrong with it.
fn checked(name: &str, value: Option<&GgufValue>) -> Result<Value, String> {
    let value = match value {
        Some(GgufValue::String(names)) if name == "samplers" => {
            if names.len() > MAX_SEQUENCE_BYTES {
                return Err(format!("it is longer than {MAX_SEQUENCE_BYTES} bytes"));
            }
            names.split(';').map(str::trim).filter(|name| !name.is_empty()).collect()
        }
        _ if name == "samplers" => return Err("it is not a string".to_owned()),
        Some(GgufValue::F32(value)) if value.is_finite() => shortest(*value),
        Some(GgufValue::F64(value)) if value.is_finite() => Value::from(*value),
        Some(GgufValue::F32(_) | GgufValue::F64(_)) => {
            return Err("it is not a finite number".to_owned());
        }
        Some(GgufValue::Bool(_) | GgufValue::String(_) | GgufValue::Array(..)) | None => {
            return Err("it is not a number".to_owned());
        }
        Some(integer) => match (integer.as_u64(), integer) {
            (Some(value), _) => value.into(),
            (None, GgufValue::I64(value)) => (*value).into(),
            (None, other) => other.as_f64().map_or(Value::Null, |value| (value as i64).into()),
        },
    };
    Sampling::check_recommended(name, &value).map_err(|error| {
        let problem = error.message();
        problem.strip_prefix(name).map_or(problem, |rest| rest.trim_start_matches(": ")).to_owned()
    })?;
    Ok(value)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::io::Cursor;

    use serde_json::json;

    use super::*;
    use crate::gguf::gguf_writer::GgufWriter;

    fn recommended(values: Vec<(&str, GgufValue)>) -> RecommendedSampling {
        let file = GgufWriter::new().metadata("general.architecture", "llama");
        let file = values
            .into_iter()
            .fold(file, |file, (key, value)| file.metadata(format!("{PREFIX}{key}"), value));
        let bytes = file.to_bytes();
        let header = ModelHeader::read(Cursor::new(&bytes), bytes.len() as u64).unwrap();
        RecommendedSampling::of(&header)
    }

    #[test]
    fn keys_have_the_names_of_requests() {
        let read = recommended(vec![
            ("temp", 0.6_f32.into()),
            ("top_k", 20_i32.into()),
            ("top_p", 0.95_f64.into()),
            ("min_p", 0_u8.into()),
            ("penalty_repeat", 1.05_f32.into()),
        ]);
        let expected = json!({
            "temperature": 0.6, "top_k": 20, "top_p": 0.95, "min_p": 0, "repeat_penalty": 1.05,
        });
        assert_eq!(read.to_json(), expected);
        assert_eq!(read.findings, []);
        let sampling = Sampling::default().over_recommended(&read.applied).unwrap();
        assert_eq!((sampling.temperature, sampling.top_k, sampling.min_p), (0.6, 20, 0.0));
        assert_eq!(recommended(vec![]).to_json(), Value::Null);
    }

    #[test]
    fn all_keys_of_llama_cpp_apply() {
        let read = recommended(vec![
            ("xtc_probability", 0.5_f32.into()),
            ("xtc_threshold", 0.2_f32.into()),
            ("penalty_last_n", 128_i32.into()),
            ("mirostat", 2_i32.into()),
            ("mirostat_tau", 4_f32.into()),
            ("mirostat_eta", 0.2_f32.into()),
            ("sequence", "top_k;temperature;".into()),
            ("beam_width", 4_u32.into()),
        ]);
        let sampling = Sampling::default().over_recommended(&read.applied).unwrap();
        let values = sampling.to_json();
        for (name, value) in [
            ("xtc_probability", json!(0.5)),
            ("xtc_threshold", json!(0.2)),
            ("repeat_last_n", json!(128)),
            ("mirostat", json!(2)),
            ("mirostat_tau", json!(4.0)),
            ("mirostat_eta", json!(0.2)),
            ("samplers", json!(["top_k", "temperature"])),
        ] {
            assert_eq!(values[name], value, "{name}");
        }
        let unknown: Vec<_> = read.findings.iter().map(|finding| &*finding.message).collect();
        assert_eq!(unknown, ["general.sampling.beam_width: unknown key; it is ignored"]);
    }

    #[test]
    fn wrong_values_are_ignored_and_named() {
        for (key, value, problem) in [
            ("temp", GgufValue::from(-1.0_f32), "must be from 0 to 100, got -1"),
            ("temp", f32::NAN.into(), "it is not a finite number"),
            ("temp", f64::INFINITY.into(), "it is not a finite number"),
            ("temp", "0.6".into(), "it is not a number"),
            ("top_p", true.into(), "it is not a number"),
            ("top_p", 2_u8.into(), "must be from 0 to 1, got 2"),
            ("top_k", 2.5_f32.into(), "expected a whole number, got 2.5"),
            ("top_k", u64::MAX.into(), "expected a whole number, got 18446744073709551615"),
            ("top_k", i64::MIN.into(), "must be from -1 to 2147483647, got -9223372036854775808"),
            ("top_k", vec![1_u32].into(), "it is not a number"),
            ("top_k", vec!["x".to_owned()].into(), "it is not a number"),
            ("penalty_repeat", 0_u32.into(), "must be from 0.01 to 100, got 0"),
            ("mirostat", 1_u32.into(), "version 1 is not supported; use 2, or 0 for off"),
            ("sequence", 1_u32.into(), "it is not a string"),
            ("sequence", "x".repeat(600).into(), "it is longer than 512 bytes"),
        ] {
            let read = recommended(vec![(key, value)]);
            let message = format!("{PREFIX}{key}: {problem}; it is ignored");
            assert_eq!(read.findings, [Diagnostic::new("sampling_value", message)]);
            assert_eq!(read.to_json(), Value::Null, "{key}");
        }
    }

    #[test]
    fn many_unknown_keys_are_few_findings() {
        let names: Vec<String> = (0..1_000).map(|i| format!("x{i}")).collect();
        let read = recommended(names.iter().map(|name| (name.as_str(), 1_u8.into())).collect());
        assert_eq!(read.findings.len(), MAX_UNKNOWN);
    }
}
