//! `speculative` and `draft_model`: what guesses tokens ahead of the model.

use serde_json::{Map, Value};

use super::fields::{Fields, expected};
use crate::error::{Error, Result};

/// Most tokens of one guess by a draft model: each costs it a decode.
const DRAFT_N_MAX: u32 = 4;
/// Most tokens of one guess by prompt lookup, which costs nothing until it is checked.
const NGRAM_N_MAX: u32 = 6;
/// Tokens that are looked up.
const NGRAM: u32 = 3;

/// Who guesses.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Speculative {
    /// Nobody: one decode for each token.
    Off,
    /// Prompt lookup.
    Ngram {
        /// Most tokens of one guess, 1 to 32.
        n_max: u32,
        /// How many of the last tokens are looked up, 1 to 16.
        ngram: u32,
    },
    /// A second model.
    Draft {
        /// Path of its GGUF file.
        model: String,
        /// Most tokens of one guess, 1 to 32.
        n_max: u32,
    },
}

impl Speculative {
    /// Reads both members. A draft model alone is used; lookup is for those who ask for it.
    pub(crate) fn read(fields: &mut Fields) -> Result<Speculative> {
        let draft_model = fields.string("draft_model")?.map(str::to_owned);
        let default = if draft_model.is_some() { "draft" } else { "off" };
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
        let kind = inner.string("type")?.or(named).unwrap_or(default);
        let path = if named.is_some() { "speculative" } else { "speculative.type" };
        let no_lookup = "a draft model and prompt lookup exclude each other; leave one of them out";
        let read = match (kind, draft_model) {
            ("off", _) => Speculative::Off,
            ("ngram", None) => Speculative::Ngram {
                n_max: inner.integer("n_max", 1..=32)?.map_or(NGRAM_N_MAX, |n| n as u32),
                ngram: inner.integer("ngram", 1..=16)?.map_or(NGRAM, |n| n as u32),
            },
            ("ngram", Some(_)) => return Err(fields.invalid("draft_model", no_lookup)),
            ("draft", Some(model)) => Speculative::Draft {
                model,
                n_max: inner.integer("n_max", 1..=32)?.map_or(DRAFT_N_MAX, |n| n as u32),
            },
            ("draft", None) => {
                return Err(
                    fields.invalid(path, "\"draft\" needs the path of a model in draft_model")
                );
            }
            (other, _) => {
                let message =
                    format!("unknown value {other:?}; it is one of \"off\", \"ngram\", \"draft\"");
                return Err(fields.invalid(path, message));
            }
        };
        match inner.ignored().first() {
            Some(key) => Err(Error::invalid(key, "unknown option")),
            None => Ok(read),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_guesses_is_read() {
        let read = |options: Value| {
            let read = Speculative::read(&mut Fields::new("", &options).expect("an object"));
            read.map_err(|error| error.message().to_owned())
        };
        let draft = |n_max| Ok(Speculative::Draft { model: "d.gguf".into(), n_max });
        let ngram = |n_max, ngram| Ok(Speculative::Ngram { n_max, ngram });
        assert_eq!(read(json!({})), Ok(Speculative::Off));
        assert_eq!(read(json!({ "speculative": "ngram" })), ngram(NGRAM_N_MAX, NGRAM));
        assert_eq!(
            read(json!({ "speculative": { "type": "ngram", "n_max": 9, "ngram": 2 } })),
            ngram(9, 2)
        );
        assert_eq!(read(json!({ "draft_model": "d.gguf" })), draft(DRAFT_N_MAX));
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
            "draft_model: a draft model and prompt lookup exclude each other; leave one of them out",
        );
        refused(
            json!({ "speculative": "draft" }),
            "speculative: \"draft\" needs the path of a model in draft_model",
        );
        refused(
            json!({ "speculative": { "type": "magic" } }),
            "speculative.type: unknown value \"magic\"; it is one of \"off\", \"ngram\", \"draft\"",
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
