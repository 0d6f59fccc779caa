//! Converts a request to the body of a `POST /completions`, with the server's names.

use serde_json::{Value, json};

use super::pool::PrefixHash;
use super::server_constraint::ServerConstraint;
use crate::api::{Guessing, LoraSwitch, Sampling, ServerKind, TokenOptions, shortest};

/// A request that is independent of the server.
#[derive(Debug, Clone)]
pub struct CompletionRequest {
    /// The maximum number of tokens to generate.
    pub max_tokens: usize,
    /// How tokens are sampled.
    pub sampling: Sampling,
    /// Stop strings.
    pub stop: Vec<String>,
    /// Whether to return log probabilities, and for how many alternatives per token.
    pub logprobs: Option<usize>,
    /// Whether the server may reuse a cached prefix.
    pub cache_prompt: bool,
    /// The server's adapters to use.
    pub lora: Option<LoraSwitch>,
    /// Whether the server may guess tokens.
    pub speculative: Guessing,
    /// Spellings of control tokens that the server must include in the text.
    pub visible: Vec<String>,
    /// What the reply must match.
    pub constraint: Option<ServerConstraint>,
}

/// A prompt in the form that a server accepts.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct PromptInput {
    /// A string or an array of token ids.
    pub(super) prompt: Value,
    /// Whether the server should prepend BOS.
    pub(super) add_special: bool,
}

/// A prompt of token ids, and how the reply is received.
#[derive(Debug, Clone, Copy)]
pub struct TokenExchange<'a> {
    /// The prompt.
    pub prompt: &'a [i32],
    /// The tokens that end a reply.
    pub end_tokens: &'a [i32],
    /// What the chat's options say.
    pub options: &'a TokenOptions,
    /// The beginning of the conversation, which the server may have cached.
    pub prefix: Option<PrefixHash>,
}

/// Adds the sampling parameters that vLLM and SGLang share. Returns the members of the request that
/// neither supports.
pub(super) fn add_shared_sampling(body: &mut Value, ask: &CompletionRequest) -> Vec<&'static str> {
    sampling(body, ask, ServerKind::Vllm)
}

/// The maximum number of log probabilities per token that vLLM returns by default.
const MAX_VLLM_LOGPROBS: usize = 20;

/// The sampling parameters that other servers have too. The rest have llama.cpp's names and
/// meaning.
const SHARED: [&str; 10] = [
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "typical_p",
    "repeat_penalty",
    "presence_penalty",
    "frequency_penalty",
    "seed",
    "logit_bias",
];

/// Returns the body, and the members of the request that this server does not support.
pub(super) fn body(
    ask: &CompletionRequest,
    kind: ServerKind,
    model: &str,
    input: &PromptInput,
) -> (Value, Vec<&'static str>) {
    let mut body = request_members(ask, model, input);
    let unsupported = sampling(&mut body, ask, kind);
    add_server_members(&mut body, ask, kind, input);
    (body, unsupported)
}

/// Returns the body of a `POST /completions` to vLLM with a prompt of token ids, which asks for the
/// reply as token ids, and the members of the request that vLLM does not support.
pub(super) fn completion_of_tokens(
    ask: &CompletionRequest,
    model: &str,
    exchange: &TokenExchange,
) -> (Value, Vec<&'static str>) {
    let input = PromptInput { prompt: json!(exchange.prompt), add_special: false };
    let (mut body, unsupported) = body(ask, ServerKind::Vllm, model, &input);
    body["return_token_ids"] = true.into();
    body["return_tokens_as_token_ids"] = true.into();
    if !exchange.end_tokens.is_empty() {
        body["stop_token_ids"] = json!(exchange.end_tokens);
    }
    if let Some(n_top) = ask.logprobs {
        body["logprobs"] = likeliest(n_top).into();
    }
    add_token_options(&mut body, exchange.options);
    (body, unsupported)
}

/// Returns the body of a `POST /inference/v1/generate`, and the members of the request that vLLM
/// does not support.
///
/// vLLM's `GenerateRequest` and `SamplingParams` (vllm/entrypoints/scale_out/token_in_token_out/
/// protocol.py and vllm/sampling_params.py, vLLM 0.33).
pub(super) fn generate(
    ask: &CompletionRequest,
    model: &str,
    exchange: &TokenExchange,
) -> (Value, Vec<&'static str>) {
    let mut parameters = json!({
        "max_tokens": ask.max_tokens, "skip_special_tokens": false, "detokenize": false,
        "stop_token_ids": exchange.end_tokens,
    });
    if let Some(n_top) = ask.logprobs {
        parameters["logprobs"] = likeliest(n_top).into();
    }
    if let Some(constraint) = &ask.constraint {
        parameters["structured_outputs"] = constraint.structured_outputs();
    }
    let unsupported = sampling(&mut parameters, ask, ServerKind::Vllm);
    let mut body = json!({
        "model": model, "token_ids": exchange.prompt, "sampling_params": parameters, "stream": true,
        "stream_options": { "include_usage": true },
    });
    add_token_options(&mut body, exchange.options);
    (body, unsupported)
}

fn add_token_options(body: &mut Value, options: &TokenOptions) {
    if let Some(salt) = &options.cache_salt {
        body["cache_salt"] = salt.as_str().into();
    }
    if options.priority != 0 {
        body["priority"] = options.priority.into();
    }
}

/// The number of log probabilities to ask vLLM for. It returns that of the sampled token first, and
/// counts it.
fn likeliest(n_top: usize) -> usize {
    match n_top {
        0 => 0,
        n_top => (n_top + 1).min(MAX_VLLM_LOGPROBS),
    }
}

/// Adds the sampling parameters. Returns the members of the request that this server does not
/// support.
fn sampling(body: &mut Value, ask: &CompletionRequest, kind: ServerKind) -> Vec<&'static str> {
    let Sampling {
        temperature,
        top_k,
        top_p,
        min_p,
        typical_p,
        repeat_penalty,
        presence_penalty,
        frequency_penalty,
        repeat_last_n,
        seed,
        ref logit_bias,
        ref set_by,
        ..
    } = ask.sampling;
    let (values, usual) = (ask.sampling.to_json(), Sampling::default().to_json());
    let others = set_by.keys().copied().filter(|name| !SHARED.contains(name));
    body["temperature"] = shortest(temperature);
    body["top_p"] = shortest(top_p);
    body["presence_penalty"] = shortest(presence_penalty);
    body["frequency_penalty"] = shortest(frequency_penalty);
    if let Some(seed) = seed {
        body["seed"] = seed.into();
    }
    if !logit_bias.is_empty() {
        let biases = logit_bias.iter().map(|(token, bias)| (token.to_string(), shortest(*bias)));
        body["logit_bias"] = Value::Object(biases.collect());
    }
    let mut unsupported = Vec::new();
    let mut require_neutral = |is_neutral: bool, name: &'static str| {
        if !is_neutral {
            unsupported.push(name);
        }
    };
    match kind {
        ServerKind::Llama => {
            body["top_k"] = top_k.into();
            body["min_p"] = shortest(min_p);
            body["typical_p"] = shortest(typical_p);
            body["repeat_penalty"] = shortest(repeat_penalty);
            body["repeat_last_n"] = repeat_last_n.into();
            others.for_each(|name| body[name] = values[name].clone());
        }
        ServerKind::Vllm => {
            body["top_k"] = top_k.into();
            body["min_p"] = shortest(min_p);
            body["repetition_penalty"] = shortest(repeat_penalty);
            require_neutral(typical_p == 1.0, "typical_p");
            others.for_each(|name| require_neutral(values[name] == usual[name], name));
        }
        ServerKind::OpenAi => {
            require_neutral(top_k == 0, "top_k");
            require_neutral(min_p == 0.0, "min_p");
            require_neutral(typical_p == 1.0, "typical_p");
            require_neutral(repeat_penalty == 1.0, "repeat_penalty");
            others.for_each(|name| require_neutral(values[name] == usual[name], name));
        }
    }
    require_neutral(ask.speculative == Guessing::Auto, "speculative");
    if kind != ServerKind::Llama {
        require_neutral(ask.cache_prompt, "cache_prompt");
        require_neutral(ask.lora.is_none(), "lora");
    }
    if kind == ServerKind::OpenAi {
        require_neutral(ask.constraint.is_none(), "grammar");
    }
    unsupported
}

/// Adds the members other than sampling parameters that only one kind of server has.
fn add_server_members(
    body: &mut Value,
    ask: &CompletionRequest,
    kind: ServerKind,
    input: &PromptInput,
) {
    match kind {
        ServerKind::Llama => {
            body["cache_prompt"] = ask.cache_prompt.into();
            // With the times of each event come counts, which a reply needs that ends early.
            body["timings_per_token"] = true.into();
            if !ask.visible.is_empty() {
                body["preserved_tokens"] = json!(ask.visible);
            }
            if let Some(lora) = &ask.lora {
                body["lora"] = lora.to_json();
            }
            if let Some(ServerConstraint::Lark(grammar)) = &ask.constraint {
                body["grammar"] = prefixed(grammar).into();
            }
        }
        ServerKind::Vllm => {
            body["skip_special_tokens"] = false.into();
            body["spaces_between_special_tokens"] = false.into();
            body["add_special_tokens"] = input.add_special.into();
            body["stream_options"]["continuous_usage_stats"] = true.into();
            if let Some(constraint) = &ask.constraint {
                body["structured_outputs"] = constraint.structured_outputs();
            }
        }
        ServerKind::OpenAi => {}
    }
}

/// The members other than sampling parameters that all servers share.
fn request_members(ask: &CompletionRequest, model: &str, input: &PromptInput) -> Value {
    let mut body = json!({
        "model": model, "prompt": input.prompt, "stream": true,
        "stream_options": { "include_usage": true }, "max_tokens": ask.max_tokens,
    });
    if !ask.stop.is_empty() {
        body["stop"] = json!(ask.stop);
    }
    if let Some(n_top) = ask.logprobs {
        // llama.cpp's server treats 0 as no log probabilities, so one is requested and dropped on
        // arrival.
        body["logprobs"] = n_top.max(1).into();
    }
    body
}

/// llama.cpp's server treats a grammar with this prefix as Lark, and any other as GBNF.
fn prefixed(grammar: &str) -> String {
    if grammar.starts_with("%llguidance") {
        grammar.to_owned()
    } else {
        format!("%llguidance {{}}\n{grammar}")
    }
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
            max_tokens: request.output.max_tokens.unwrap_or(256),
            sampling: request.sampling,
            stop: request.output.stop,
            logprobs: request.output.logprobs,
            cache_prompt: request.prompt.cache_prompt,
            lora: request.output.lora,
            speculative: request.output.speculative,
            visible: vec!["<call>".into()],
            constraint: request.output.grammar.map(ServerConstraint::Lark),
        }
    }

    #[test]
    fn each_server_gets_its_own_names() {
        let all = ask(json!({
            "temperature": 0.3, "top_p": 0.5, "top_k": 7, "min_p": 0.1, "typical_p": 0.9, "repeat_penalty": 1.1,
            "presence_penalty": 0.2, "frequency_penalty": -0.2, "seed": 5, "stop": ["x"], "logit_bias": {"3": -1.5},
            "logprobs": true, "cache_prompt": false, "lora": [{"id": 1, "scale": 0.3}], "grammar": "start: \"a\"", "max_tokens": 9, "speculative": "off",
        }));
        let input = PromptInput { prompt: json!([1, 2]), add_special: false };
        let common = json!({
            "model": "m", "prompt": [1, 2], "stream": true, "max_tokens": 9,
            "temperature": 0.3, "top_p": 0.5, "presence_penalty": 0.2, "frequency_penalty": -0.2, "seed": 5, "stop": ["x"],
            "logit_bias": {"3": -1.5}, "logprobs": 1,
        });
        let llama = json!({
            "top_k": 7, "min_p": 0.1, "typical_p": 0.9, "repeat_penalty": 1.1, "repeat_last_n": 64, "cache_prompt": false,
            "lora": [{"id": 1, "scale": 0.3}], "preserved_tokens": ["<call>"], "grammar": "%llguidance {}\nstart: \"a\"",
            "stream_options": {"include_usage": true}, "timings_per_token": true,
        });
        let vllm = json!({
            "top_k": 7, "min_p": 0.1, "repetition_penalty": 1.1, "skip_special_tokens": false,
            "spaces_between_special_tokens": false, "add_special_tokens": false, "structured_outputs": {"grammar": "start: \"a\""},
            "stream_options": {"include_usage": true, "continuous_usage_stats": true},
        });
        let cases = [
            (ServerKind::Llama, llama, vec!["speculative"]),
            (ServerKind::Vllm, vllm, vec!["typical_p", "speculative", "cache_prompt", "lora"]),
            (
                ServerKind::OpenAi,
                json!({"stream_options": {"include_usage": true}}),
                vec![
                    "top_k",
                    "min_p",
                    "typical_p",
                    "repeat_penalty",
                    "speculative",
                    "cache_prompt",
                    "lora",
                    "grammar",
                ],
            ),
        ];
        for (kind, own, unsupported) in cases {
            let mut expected = common.clone();
            expected
                .as_object_mut()
                .expect("an object")
                .extend(own.as_object().expect("an object").clone());
            assert_eq!(body(&all, kind, "m", &input), (expected, unsupported), "{kind:?}");
        }
    }

    #[test]
    fn token_ids_are_sent_with_the_names_of_both_routes() {
        let ask = ask(json!({
            "temperature": 0.3, "top_p": 1, "top_k": 0, "min_p": 0, "seed": 5, "stop": ["x"],
            "stop_scope": "all", "logprobs": true, "top_logprobs": 2, "max_tokens": 9,
            "logit_bias": {"3": -1.5},
        }));
        let options = TokenOptions {
            cache_salt: Some("salt".into()),
            priority: 2,
            ..TokenOptions::default()
        };
        let exchange =
            TokenExchange { prompt: &[1, 2], end_tokens: &[7], options: &options, prefix: None };
        let parameters = json!({
            "temperature": 0.3, "top_p": 1.0, "top_k": 0, "min_p": 0.0, "seed": 5,
            "presence_penalty": 0.0, "frequency_penalty": 0.0, "repetition_penalty": 1.0,
            "logit_bias": {"3": -1.5}, "logprobs": 3, "max_tokens": 9, "stop_token_ids": [7],
            "skip_special_tokens": false, "detokenize": false,
        });
        let expected = json!({
            "model": "m", "token_ids": [1, 2], "sampling_params": parameters, "stream": true,
            "stream_options": {"include_usage": true}, "cache_salt": "salt", "priority": 2,
        });
        let generate = super::generate(&ask, "m", &exchange);
        assert_eq!(generate, (expected, vec![]));
        let (completion, _) = completion_of_tokens(&ask, "m", &exchange);
        for (name, value) in [
            ("prompt", json!([1, 2])),
            ("return_token_ids", json!(true)),
            ("return_tokens_as_token_ids", json!(true)),
            ("stop_token_ids", json!([7])),
            ("logprobs", json!(3)),
            ("add_special_tokens", json!(false)),
            ("cache_salt", json!("salt")),
            ("priority", json!(2)),
        ] {
            assert_eq!(completion[name], value, "{name}");
        }
        assert_eq!([0, 1, 20].map(likeliest), [0, 2, MAX_VLLM_LOGPROBS]);
    }

    #[test]
    fn samplers_of_llama_cpp_are_sent_to_its_server_only() {
        let members = json!({
            "dry_multiplier": 0.8, "dry_sequence_breakers": ["x"], "xtc_probability": 0.5, "mirostat": 2,
            "samplers": ["top-k", "temp"], "repeat_last_n": -1, "top_n_sigma": -1,
            "top_k": 0, "min_p": 0,
        });
        let ask = ask(members);
        let input = PromptInput { prompt: "hi".into(), add_special: true };
        let (sent, unsupported) = body(&ask, ServerKind::Llama, "m", &input);
        assert!(unsupported.is_empty());
        for (name, value) in [
            ("dry_multiplier", json!(0.8)),
            ("dry_sequence_breakers", json!(["x"])),
            ("xtc_probability", json!(0.5)),
            ("mirostat", json!(2)),
            ("samplers", json!(["top_k", "temperature"])),
            ("repeat_last_n", json!(-1)),
        ] {
            assert_eq!(sent[name], value, "{name}");
        }
        for kind in [ServerKind::Vllm, ServerKind::OpenAi] {
            let (sent, unsupported) = body(&ask, kind, "m", &input);
            let expected = [
                "dry_multiplier",
                "dry_sequence_breakers",
                "mirostat",
                "repeat_last_n",
                "samplers",
                "xtc_probability",
            ];
            assert_eq!(unsupported, expected);
            assert!(expected.iter().all(|name| sent.get(*name).is_none()));
        }
    }

    #[test]
    fn neutral_members_are_not_reported() {
        let neutral = ask(json!({"top_k": 0, "min_p": 0, "repeat_penalty": 1}));
        let input = PromptInput { prompt: "hi".into(), add_special: true };
        let (body, unsupported) = body(&neutral, ServerKind::OpenAi, "m", &input);
        assert!(unsupported.is_empty());
        for absent in ["seed", "stop", "logit_bias", "logprobs", "grammar"] {
            assert!(body.get(absent).is_none(), "{absent}");
        }
    }
}
