//! The request of `llb_embed`.

use std::time::Duration;

use serde_json::Value;

use super::fields::{Fields, expected};
use super::output_control::read_timeout;
use crate::error::Result;

named_enum! {
    /// How vectors are written.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum VectorEncoding {
        /// Vectors are arrays of numbers.
        Float = "float",
        /// Vectors are base64 text of little-endian 32-bit floats.
        Base64 = "base64",
    }
}

/// A checked request with its defaults filled in.
#[derive(Debug)]
pub struct EmbedRequest {
    /// The texts to embed; at least one.
    pub input: Vec<String>,
    /// Text that is put before each text.
    pub prefix: String,
    /// Whether to cut a text that is too long. Otherwise such a text is an error.
    pub truncate: bool,
    /// Whether to scale vectors to length 1. `None` scales the vectors of texts and not those of
    /// tokens.
    pub normalize: Option<bool>,
    /// How many numbers of each vector to keep. `None` keeps all.
    pub dimensions: Option<usize>,
    /// How vectors are written.
    pub encoding: VectorEncoding,
    /// When to end the call without a reply.
    pub timeout: Option<Duration>,
    /// The unknown members, by path.
    pub ignored_keys: Vec<String>,
}

impl EmbedRequest {
    /// Reads a request from its JSON text.
    pub fn parse(request: &str) -> Result<EmbedRequest> {
        EmbedRequest::read(&super::parse(request, "request_json")?)
    }

    /// Reads a request. Errors name the JSON path of the member.
    pub fn read(request: &Value) -> Result<EmbedRequest> {
        let mut fields = Fields::new("", request)?;
        let input = read_texts(&mut fields, "input", true)?;
        let dimensions = fields.integer("dimensions", 1..=i64::from(i32::MAX))?;
        Ok(EmbedRequest {
            input,
            prefix: fields.string("prefix")?.unwrap_or_default().to_owned(),
            truncate: fields.boolean("truncate")?.unwrap_or(false),
            normalize: fields.boolean("normalize")?,
            dimensions: dimensions.map(|number| number as usize),
            encoding: fields
                .one_of("encoding_format", VectorEncoding::NAMES)?
                .unwrap_or(VectorEncoding::Float),
            timeout: read_timeout(&mut fields)?,
            // Members of OpenAI's API that have no meaning here are accepted and reported as
            // ignored.
            ignored_keys: fields.ignored(),
        })
    }
}

/// Reads a list of at least one text. With `or_one`, it may be a single text.
pub(super) fn read_texts(
    fields: &mut Fields,
    key: &'static str,
    or_one: bool,
) -> Result<Vec<String>> {
    let what = if or_one { "a string or an array of strings" } else { "an array of strings" };
    match fields.get(key) {
        None => Err(fields.invalid(key, format!("missing; expected {what}"))),
        Some(Value::String(text)) if or_one => Ok(vec![text.clone()]),
        Some(Value::Array(items)) if items.is_empty() => {
            Err(fields.invalid(key, "is empty; expected at least one text"))
        }
        Some(Value::Array(items)) => fields.strings(key, items),
        Some(other) => Err(fields.invalid(key, expected(what, other))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn refused(request: &str, message: &str) {
        assert_eq!(EmbedRequest::parse(request).expect_err("refused").message(), message);
    }

    #[test]
    fn errors_name_the_member() {
        refused("{}", "input: missing; expected a string or an array of strings");
        refused(r#"{"input":7}"#, "input: expected a string or an array of strings, got 7");
        refused(r#"{"input":[]}"#, "input: is empty; expected at least one text");
        refused(r#"{"input":["a",null]}"#, "input[1]: expected a string, got null");
        refused(
            r#"{"input":"a","dimensions":0}"#,
            "dimensions: must be from 1 to 2147483647, got 0",
        );
        refused(
            r#"{"input":"a","encoding_format":"hex"}"#,
            r#"encoding_format: unknown value "hex"; expected one of "float", "base64""#,
        );
        refused(r#"{"input":"a","truncate":1}"#, "truncate: expected true or false, got 1");
        refused("[]", "request: expected an object, got []");
    }

    #[test]
    fn unknown_members_are_listed() {
        let request = EmbedRequest::parse(r#"{"input":"a","model":"m","inputs":[]}"#);
        let request = request.expect("valid");
        assert_eq!(request.input, ["a"]);
        assert_eq!(request.ignored_keys, ["model", "inputs"]);
    }
}
