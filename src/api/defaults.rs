//! Default values for members of a request: the option `defaults` of `llb_chat_create_with`.

use super::fields::Fields;
use super::output_control::{OutputControl, read_max_tokens, read_n_keep};
use super::sampling::{Sampling, SamplingSource};
use crate::error::Result;

/// The values of members that a request leaves out.
#[derive(Debug, Clone, PartialEq)]
pub struct RequestDefaults {
    /// The sampler's parameters.
    pub sampling: Sampling,
    /// The maximum number of tokens to generate, at least 1; None is what fits the context.
    pub max_tokens: Option<usize>,
    /// The number of first tokens that a context shift keeps. None keeps the whole prompt.
    pub n_keep: Option<usize>,
}

impl Default for RequestDefaults {
    /// llb's own defaults.
    fn default() -> RequestDefaults {
        let OutputControl { max_tokens, n_keep, .. } = OutputControl::default();
        RequestDefaults { sampling: Sampling::default(), max_tokens, n_keep }
    }
}

impl RequestDefaults {
    /// Reads the option. An unknown member is an error.
    pub(crate) fn read(fields: &mut Fields) -> Result<RequestDefaults> {
        let ours = RequestDefaults::default();
        let Some(value) = fields.get("defaults") else { return Ok(ours) };
        let own = &mut Fields::new("defaults", value)?;
        let read = RequestDefaults {
            sampling: Sampling::read(own, SamplingSource::Defaults, &ours.sampling)?,
            max_tokens: read_max_tokens(own)?,
            n_keep: read_n_keep(own)?.unwrap_or(ours.n_keep),
        };
        own.refuse_ignored("unknown option")?;
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, Value, json};

    use super::*;
    use crate::api::{ChatRequest, CreateOptions, ReplyShape};

    fn defaults(value: Value) -> Result<RequestDefaults> {
        CreateOptions::read(&json!({ "model": "m", "defaults": value })).map(|read| read.defaults)
    }

    /// The sampling parameters of a request to a chat with these defaults and this model file.
    fn sampled(request: &str, defaults_of_chat: Value, file: Value) -> ChatRequest {
        let chat = defaults(defaults_of_chat).expect("valid");
        let file: Map<_, _> = file.as_object().expect("an object").clone();
        let sampling = chat.sampling.over_recommended(&file).expect("valid");
        let chat = RequestDefaults { sampling, ..chat };
        let text = format!(r#"{{"messages":[{{"role":"user","content":"hi"}}]{request}}}"#);
        ChatRequest::parse(&text, ReplyShape::Current, &chat).expect("valid")
    }

    #[test]
    fn a_request_precedes_defaults_and_defaults_precede_the_file() {
        let request = sampled(
            r#","temperature":0.1,"top_p":null,"seed":-1"#,
            json!({"temperature": 0.2, "top_k": 5, "seed": 7, "logit_bias": {"3": -1}, "max_tokens": 9}),
            json!({"temperature": 0.3, "top_k": 6, "min_p": 0.25}),
        );
        let sampling = &request.sampling;
        assert_eq!(
            (sampling.temperature, sampling.top_k, sampling.min_p, sampling.top_p),
            (0.1, 5, 0.25, 0.95)
        );
        assert_eq!((sampling.seed, &*sampling.logit_bias), (None, &[(3, -1.0)][..]));
        assert_eq!(request.output.max_tokens, Some(9));
        let set_by: Vec<_> =
            sampling.set_by.iter().map(|(name, source)| (*name, source.as_str())).collect();
        let expected = [
            ("logit_bias", "defaults"),
            ("min_p", "model"),
            ("seed", "request"),
            ("temperature", "request"),
            ("top_k", "defaults"),
        ];
        assert_eq!(set_by, expected);
    }

    #[test]
    fn a_silent_request_has_llbs_defaults() {
        let request = sampled("", json!({}), json!({}));
        assert_eq!(request.sampling, Sampling::default());
        assert_eq!(request.output.max_tokens, None);
        let request = sampled(r#","logit_bias":{}"#, json!({"logit_bias": {"3": -1}}), json!({}));
        assert_eq!(request.sampling.logit_bias, []);
    }

    #[test]
    fn errors_name_the_member() {
        for (value, message) in [
            (json!(7), "defaults: expected an object, got 7"),
            (
                json!({"temprature": 1}),
                "defaults.temprature: unknown option; did you mean `temperature`?",
            ),
            (json!({"messages": []}), "defaults.messages: unknown option"),
            (
                json!({"temperature": "hot"}),
                r#"defaults.temperature: expected a number, got "hot""#,
            ),
            (json!({"temperature": -1}), "defaults.temperature: must be from 0 to 100, got -1"),
            (json!({"top_k": -2}), "defaults.top_k: must be from -1 to 2147483647, got -2"),
            (json!({"seed": 1.5}), "defaults.seed: expected a whole number, got 1.5"),
            (json!({"logit_bias": {"x": 1}}), "defaults.logit_bias.x: expected a token id as key"),
            (json!({"n_keep": -2}), "defaults.n_keep: must be from -1 to 2147483647, got -2"),
            (json!({"max_tokens": 0}), "defaults.max_tokens: must be from 1 to 2147483647, got 0"),
        ] {
            assert_eq!(defaults(value).expect_err(message).message(), message);
        }
        assert_eq!(defaults(Value::Null).expect("absent"), RequestDefaults::default());
    }

    #[test]
    fn a_recommended_value_is_checked_as_that_of_a_request() {
        let message = |name: &str, value: Value| {
            Sampling::check_recommended(name, &value).map_err(|error| error.message().to_owned())
        };
        assert_eq!(message("top_p", json!(0.9)), Ok(()));
        assert_eq!(message("top_p", json!(1.5)), Err("top_p: must be from 0 to 1, got 1.5".into()));
    }
}
