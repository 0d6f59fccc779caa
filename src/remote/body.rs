//! A request of ours -> the body of a `POST /completions`, in the names of the server it goes to.

use serde_json::{Map, Value, json};

use crate::api::{Sampling, ServerKind};

/// Tokens that `repeat_penalty` looks back over, as in this process.
const REPEAT_LAST_N: u32 = 64;

/// What is asked for, whatever the server.
#[derive(Debug, Clone)]
pub struct CompletionRequest {
    /// Most tokens to generate.
    pub max_tokens: usize,
    /// How they are chosen.
    pub sampling: Sampling,
    /// Texts that end the reply.
    pub stop: Vec<String>,
    /// Log probabilities, and of how many likely tokens beside each.
    pub logprobs: Option<usize>,
    /// Whether the server may use a prefix that it has in its cache.
    pub cache_prompt: bool,
    /// Spellings of control tokens that must come out as text.
    pub visible: Vec<String>,
    /// A Lark grammar.
    pub grammar: Option<String>,
}

/// A prompt as a server takes it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct PromptInput {
    /// A string or an array of token numbers.
    pub(super) prompt: Value,
    /// Whether the server should put its own BOS in front.
    pub(super) add_special: bool,
}

/// The body, and the members of the request that this server has no field for.
pub(super) fn body(
    ask: &CompletionRequest,
    kind: ServerKind,
    model: &str,
    fed: &PromptInput,
) -> (Value, Vec<&'static str>) {
    let CompletionRequest { sampling, .. } = ask;
    let mut body = Map::new();
    let mut set = |name: &str, value: Value| {
        body.insert(name.to_owned(), value);
    };
    set("model", model.into());
    set("prompt", fed.prompt.clone());
    set("stream", true.into());
    set("stream_options", json!({ "include_usage": true }));
    set("max_tokens", ask.max_tokens.into());
    set("temperature", number(sampling.temperature));
    set("top_p", number(sampling.top_p));
    set("presence_penalty", number(sampling.presence_penalty));
    set("frequency_penalty", number(sampling.frequency_penalty));
    if let Some(seed) = sampling.seed {
        set("seed", seed.into());
    }
    if !ask.stop.is_empty() {
        set("stop", json!(ask.stop));
    }
    if !sampling.logit_bias.is_empty() {
        let biases =
            sampling.logit_bias.iter().map(|(token, bias)| (token.to_string(), number(*bias)));
        set("logit_bias", Value::Object(biases.collect()));
    }
    if let Some(n_top) = ask.logprobs {
        // llama.cpp's server takes 0 for none at all; what is too many is cut off when it comes.
        set("logprobs", n_top.max(1).into());
    }
    let mut left = Vec::new();
    let mut unless = |neutral: bool, name: &'static str| {
        if !neutral {
            left.push(name);
        }
    };
    match kind {
        ServerKind::Llama => {
            set("top_k", sampling.top_k.into());
            set("min_p", number(sampling.min_p));
            set("typical_p", number(sampling.typical_p));
            set("repeat_penalty", number(sampling.repeat_penalty));
            set("repeat_last_n", REPEAT_LAST_N.into());
            set("cache_prompt", ask.cache_prompt.into());
            if !ask.visible.is_empty() {
                set("preserved_tokens", json!(ask.visible));
            }
            if let Some(grammar) = &ask.grammar {
                set("grammar", prefixed(grammar).into());
            }
        }
        ServerKind::Vllm => {
            set("top_k", sampling.top_k.into());
            set("min_p", number(sampling.min_p));
            set("repetition_penalty", number(sampling.repeat_penalty));
            set("skip_special_tokens", false.into());
            set("spaces_between_special_tokens", false.into());
            set("add_special_tokens", fed.add_special.into());
            if let Some(grammar) = &ask.grammar {
                set("structured_outputs", json!({ "grammar": grammar }));
            }
            unless(sampling.typical_p == 1.0, "typical_p");
            unless(ask.cache_prompt, "cache_prompt");
        }
        ServerKind::OpenAi => {
            unless(sampling.top_k == 0, "top_k");
            unless(sampling.min_p == 0.0, "min_p");
            unless(sampling.typical_p == 1.0, "typical_p");
            unless(sampling.repeat_penalty == 1.0, "repeat_penalty");
            unless(ask.cache_prompt, "cache_prompt");
            unless(ask.grammar.is_none(), "grammar");
        }
    }
    (Value::Object(body), left)
}

/// llama.cpp's server takes Lark for what begins so, and GBNF for all else.
fn prefixed(grammar: &str) -> String {
    if grammar.starts_with("%llguidance") {
        grammar.to_owned()
    } else {
        format!("%llguidance {{}}\n{grammar}")
    }
}

/// With the digits that it was written with: 0.7, not 0.699999988079071.
fn number(value: f32) -> Value {
    value.to_string().parse::<f64>().map_or(Value::Null, Value::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::ChatRequest;

    fn ask(members: Value) -> CompletionRequest {
        let mut request = json!({"messages": [{"role": "user", "content": "hi"}]});
        request
            .as_object_mut()
            .expect("an object")
            .extend(members.as_object().expect("an object").clone());
        let request = ChatRequest::read(request).expect("valid");
        CompletionRequest {
            max_tokens: request.max_tokens,
            sampling: request.sampling,
            stop: request.stop,
            logprobs: request.logprobs,
            cache_prompt: request.cache_prompt,
            visible: vec!["<call>".into()],
            grammar: request.grammar,
        }
    }

    #[test]
    fn each_server_has_its_names() {
        let all = ask(json!({
            "temperature": 0.3, "top_p": 0.5, "top_k": 7, "min_p": 0.1, "typical_p": 0.9, "repeat_penalty": 1.1,
            "presence_penalty": 0.2, "frequency_penalty": -0.2, "seed": 5, "stop": ["x"], "logit_bias": {"3": -1.5},
            "logprobs": true, "cache_prompt": false, "grammar": "start: \"a\"", "max_tokens": 9,
        }));
        let fed = PromptInput { prompt: json!([1, 2]), add_special: false };
        let common = json!({
            "model": "m", "prompt": [1, 2], "stream": true, "stream_options": {"include_usage": true}, "max_tokens": 9,
            "temperature": 0.3, "top_p": 0.5, "presence_penalty": 0.2, "frequency_penalty": -0.2, "seed": 5, "stop": ["x"],
            "logit_bias": {"3": -1.5}, "logprobs": 1,
        });
        let llama = json!({
            "top_k": 7, "min_p": 0.1, "typical_p": 0.9, "repeat_penalty": 1.1, "repeat_last_n": 64, "cache_prompt": false,
            "preserved_tokens": ["<call>"], "grammar": "%llguidance {}\nstart: \"a\"",
        });
        let vllm = json!({
            "top_k": 7, "min_p": 0.1, "repetition_penalty": 1.1, "skip_special_tokens": false,
            "spaces_between_special_tokens": false, "add_special_tokens": false, "structured_outputs": {"grammar": "start: \"a\""},
        });
        let cases = [
            (ServerKind::Llama, llama, vec![]),
            (ServerKind::Vllm, vllm, vec!["typical_p", "cache_prompt"]),
            (
                ServerKind::OpenAi,
                json!({}),
                vec!["top_k", "min_p", "typical_p", "repeat_penalty", "cache_prompt", "grammar"],
            ),
        ];
        for (kind, own, left) in cases {
            let mut expected = common.clone();
            expected
                .as_object_mut()
                .expect("an object")
                .extend(own.as_object().expect("an object").clone());
            assert_eq!(body(&all, kind, "m", &fed), (expected, left), "{kind:?}");
        }
    }

    #[test]
    fn what_changes_nothing_is_not_missed() {
        let neutral = ask(json!({"top_k": 0, "min_p": 0}));
        let fed = PromptInput { prompt: "hi".into(), add_special: true };
        let (body, left) = body(&neutral, ServerKind::OpenAi, "m", &fed);
        assert!(left.is_empty());
        for absent in ["seed", "stop", "logit_bias", "logprobs", "grammar"] {
            assert!(body.get(absent).is_none(), "{absent}");
        }
    }
}
