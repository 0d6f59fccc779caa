//! The options `speculative` and `draft_model`: speculative decoding.

use serde_json::{Map, Value};

use super::fields::{Fields, expected};
use crate::error::Result;

/// The default of `n_max` with a draft model. Each drafted token costs a decode of the draft model.
const DRAFT_N_MAX: u32 = 4;
/// The default of `n_max` with prompt lookup. A draft costs nothing until it is verified.
const NGRAM_N_MAX: u32 = 6;
/// The default of `n_max` with layers that predict further tokens. Each drafted token costs a decode
/// of one of them.
const MTP_N_MAX: u32 = 3;
/// The default of `ngram`.
const NGRAM: u32 = 3;

/// Where drafted tokens come from.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Speculative {
    /// No speculative decoding.
    Off,
    /// The text of calls and JSON, which the other kinds draft too, and repetitions.
    Auto,
    /// Prompt lookup.
    Ngram {
        /// The maximum number of tokens in a draft, 1 to 32.
        n_max: u32,
        /// How many of the last tokens to look up, 1 to 16.
        ngram: u32,
    },
    /// Layers of the model that predict further tokens.
    Mtp {
        /// The maximum number of tokens in a draft, 1 to 32.
        n_max: u32,
    },
    /// A draft model.
    Draft {
        /// The path of its GGUF file.
        model: String,
        /// The maximum number of tokens in a draft, 1 to 32.
        n_max: u32,
    },
}

impl Speculative {
    /// Reads both options. A `draft_model` alone turns drafting on.
    pub(crate) fn read(fields: &mut Fields) -> Result<Speculative> {
        let draft_model = fields.string("draft_model")?.map(str::to_owned);
        let nothing = Value::Object(Map::new());
        let (named, members) = match fields.get("speculative") {
            None => (None, &nothing),
            Some(Value::String(kind)) => (Some(kind.as_str()), &nothing),
            Some(object @ Value::Object(_)) => (None, object),
            Some(other) => {
                return Err(fields.invalid("speculative", expected("a string or an object", other)));
            }
        };
        let inner = &mut Fields::new("speculative", members)?;
        let kind = inner.string("type")?.or(named).unwrap_or("auto");
        let path = if named.is_some() { "speculative" } else { "speculative.type" };
        let read = match (kind, draft_model) {
            ("off", _) => Speculative::Off,
            ("auto", None) => Speculative::Auto,
            ("ngram", None) => Speculative::Ngram {
                n_max: inner.integer("n_max", 1..=32)?.map_or(NGRAM_N_MAX, |n| n as u32),
                ngram: inner.integer("ngram", 1..=16)?.map_or(NGRAM, |n| n as u32),
            },
            ("mtp", None) => Speculative::Mtp {
                n_max: inner.integer("n_max", 1..=32)?.map_or(MTP_N_MAX, |n| n as u32),
            },
            ("ngram", Some(_)) => {
                let problem = "cannot be used together with prompt lookup";
                return Err(fields.invalid("draft_model", problem));
            }
            ("mtp", Some(_)) => {
                let problem = "cannot be used together with layers of the model (\"mtp\")";
                return Err(fields.invalid("draft_model", problem));
            }
            ("auto" | "draft", Some(model)) => Speculative::Draft {
                model,
                n_max: inner.integer("n_max", 1..=32)?.map_or(DRAFT_N_MAX, |n| n as u32),
            },
            ("draft", None) => {
                return Err(
                    fields.invalid(path, "\"draft\" requires `draft_model`, the path of a model")
                );
            }
            (other, _) => {
                let message = format!(
                    "unknown value {other:?}; expected one of \"off\", \"auto\", \"ngram\", \
                     \"mtp\", \"draft\""
                );
                return Err(fields.invalid(path, message));
            }
        };
        inner.refuse_ignored("unknown option")?;
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn options_are_read() {
        let read = |options: Value| {
            let read = Speculative::read(&mut Fields::new("", &options).expect("an object"));
            read.map_err(|error| error.message().to_owned())
        };
        let draft = |n_max| Ok(Speculative::Draft { model: "d.gguf".into(), n_max });
        let ngram = |n_max, ngram| Ok(Speculative::Ngram { n_max, ngram });
        assert_eq!(read(json!({})), Ok(Speculative::Auto));
        assert_eq!(read(json!({ "speculative": "auto" })), Ok(Speculative::Auto));
        assert_eq!(read(json!({ "speculative": "off" })), Ok(Speculative::Off));
        assert_eq!(read(json!({ "speculative": "ngram" })), ngram(NGRAM_N_MAX, NGRAM));
        assert_eq!(
            read(json!({ "speculative": { "type": "ngram", "n_max": 9, "ngram": 2 } })),
            ngram(9, 2)
        );
        assert_eq!(read(json!({ "draft_model": "d.gguf" })), draft(DRAFT_N_MAX));
        assert_eq!(
            read(json!({ "draft_model": "d.gguf", "speculative": "auto" })),
            draft(DRAFT_N_MAX)
        );
        assert_eq!(
            read(json!({ "draft_model": "d.gguf", "speculative": { "n_max": 7 } })),
            draft(7)
        );
        assert_eq!(
            read(json!({ "draft_model": "d.gguf", "speculative": "off" })),
            Ok(Speculative::Off)
        );
        let refused =
            |options: Value, message: &str| assert_eq!(read(options), Err(message.to_owned()));
        refused(
            json!({ "draft_model": "d.gguf", "speculative": "ngram" }),
            "draft_model: cannot be used together with prompt lookup",
        );
        refused(
            json!({ "draft_model": "d.gguf", "speculative": "mtp" }),
            "draft_model: cannot be used together with layers of the model (\"mtp\")",
        );
        assert_eq!(
            read(json!({ "speculative": "mtp" })),
            Ok(Speculative::Mtp { n_max: MTP_N_MAX })
        );
        assert_eq!(
            read(json!({ "speculative": { "type": "mtp", "n_max": 2 } })),
            Ok(Speculative::Mtp { n_max: 2 })
        );
        refused(
            json!({ "speculative": "draft" }),
            "speculative: \"draft\" requires `draft_model`, the path of a model",
        );
        refused(
            json!({ "speculative": { "type": "magic" } }),
            "speculative.type: unknown value \"magic\"; expected one of \"off\", \"auto\", \"ngram\", \"mtp\", \"draft\"",
        );
        refused(
            json!({ "speculative": { "type": "ngram", "n_min": 1 } }),
            "speculative.n_min: unknown option",
        );
        refused(
            json!({ "speculative": { "type": "ngram", "n_max": 0 } }),
            "speculative.n_max: must be from 1 to 32, got 0",
        );
        refused(
            json!({ "speculative": true }),
            "speculative: expected a string or an object, got true",
        );
    }
}
