//! A stand-in for vLLM, which generates the tokens of a scripted model.
//!
//! It follows the protocol of vLLM 0.33 as its sources describe it: names, defaults, errors and the
//! framing of streams (vllm/entrypoints/scale_out/token_in_token_out/{protocol,serving}.py,
//! vllm/entrypoints/openai/completion/protocol.py, vllm/entrypoints/serve/tokenize/protocol.py,
//! vllm/sampling_params.py). vLLM itself is not run.

use std::io::Write;
use std::net::TcpStream;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::remote_server::{Request, Server, answer, chunk, head, json_answer};
use crate::scripted::MARKERS;

/// The context size that the stand-in states.
pub const MAX_MODEL_LEN: usize = 2048;

/// The tokens of a block of the prefix cache.
const BLOCK: usize = 16;

/// The fields of `SamplingParams` that a request may have.
const SAMPLING_PARAMS: [&str; 17] = [
    "n",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "seed",
    "stop",
    "stop_token_ids",
    "max_tokens",
    "logprobs",
    "detokenize",
    "skip_special_tokens",
    "structured_outputs",
    "logit_bias",
];

/// What a stand-in does.
#[derive(Clone)]
pub struct Vllm {
    /// The script of the model.
    pub pieces: Vec<Vec<u8>>,
    /// Whether it has `/inference/v1/generate`.
    pub has_generate: bool,
    /// Whether `/v1/completions` knows `return_token_ids`.
    pub returns_ids: bool,
    /// Whether it has `/tokenize`.
    pub tokenizes: bool,
    /// The number that it adds to the ids of special tokens.
    pub shift: i64,
    /// How many tokens an event has.
    pub tokens_per_event: usize,
    /// `--structured-outputs-config.backend`.
    pub backend: Backend,
    /// The prompts whose blocks are cached.
    pub cache: Arc<Mutex<Vec<Vec<i64>>>>,
}

/// What checks structured outputs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Backend {
    /// xgrammar, and guidance for what xgrammar refuses.
    Auto,
    Guidance,
    Xgrammar,
    /// xgrammar before 0.2.5, which reads no Lark.
    OldXgrammar,
    Outlines,
}

impl Backend {
    /// The status with which constraints are refused. Only their form is checked, and nothing is
    /// enforced.
    fn refusal(self, outputs: &Value) -> Option<&'static str> {
        const REFUSED: &str = "400 Bad Request";
        let is_text = |name: &str| outputs[name].is_string();
        match self {
            Backend::Auto => {
                let of_xgrammar = Backend::Xgrammar.refusal(outputs)?;
                Backend::Guidance.refusal(outputs).map(|_| of_xgrammar)
            }
            // Lark is validated without a tokenizer, so it cannot have special tokens. A structural
            // tag without `triggers` is a `KeyError`.
            Backend::Guidance if is_text("grammar") => {
                outputs["grammar"].as_str().unwrap().contains("<[").then_some(REFUSED)
            }
            Backend::Guidance if is_text("structural_tag") => Some("500 Internal Server Error"),
            // Lark is converted to EBNF, which fails at regular expressions with flags.
            Backend::Xgrammar if is_text("grammar") => Some(REFUSED),
            Backend::Xgrammar if is_text("structural_tag") => {
                let tag: Value =
                    serde_json::from_str(outputs["structural_tag"].as_str().unwrap()).unwrap();
                let is_tag = tag["type"] == "structural_tag" && tag["format"]["type"].is_string();
                let text = tag.to_string();
                (!is_tag || text.contains("(?") || text.contains("[lazy]")).then_some(REFUSED)
            }
            Backend::OldXgrammar if is_text("grammar") => {
                (!outputs["grammar"].as_str().unwrap().starts_with("root ::= ")).then_some(REFUSED)
            }
            Backend::Outlines if !outputs["json"].is_object() => Some(REFUSED),
            _ => outputs["json"].is_null().then_some(REFUSED),
        }
    }
}

impl Vllm {
    pub fn new(pieces: impl IntoIterator<Item = impl AsRef<[u8]>>) -> Vllm {
        Vllm {
            pieces: pieces.into_iter().map(|piece| piece.as_ref().to_vec()).collect(),
            has_generate: true,
            returns_ids: true,
            tokenizes: true,
            shift: 0,
            tokens_per_event: 1,
            backend: Backend::Auto,
            cache: Arc::default(),
        }
    }

    pub fn start(self) -> Server {
        Server::start(move |request, out| self.answer(request, out))
    }

    /// Answers one request.
    pub fn answer(&self, request: &Request, out: &mut TcpStream) {
        let body = &request.body;
        match &*request.path {
            "/v1/models" => {
                let model = json!({ "id": "served", "object": "model", "created": 1, "owned_by": "vllm",
                    "root": "served", "parent": null, "max_model_len": MAX_MODEL_LEN, "permission": [] });
                json_answer(out, &json!({ "object": "list", "data": [model] }));
            }
            "/tokenize" if self.tokenizes => {
                let tokens = self.tokenize(body["prompt"].as_str().unwrap());
                let count = tokens.len();
                json_answer(
                    out,
                    &json!({ "count": count, "max_model_len": MAX_MODEL_LEN,
                    "tokens": tokens, "token_strs": null }),
                );
            }
            "/inference/v1/generate" if self.has_generate => {
                let parameters = body["sampling_params"].as_object().unwrap();
                let unknown = parameters.keys().find(|key| !SAMPLING_PARAMS.contains(&&***key));
                if let Some(key) = unknown {
                    return refuse(out, &format!("unknown sampling parameter {key}"));
                }
                self.generate(out, &ids(&body["token_ids"]), &body["sampling_params"], body, true);
            }
            "/v1/completions" => match &body["prompt"] {
                Value::Array(_) => {
                    self.generate(out, &ids(&body["prompt"]), body, body, false);
                }
                prompt => {
                    let prompt = self.tokenize(prompt.as_str().unwrap());
                    self.generate(out, &prompt, body, body, false);
                }
            },
            _ => answer(
                out,
                "404 Not Found",
                "Content-Type: application/json\r\n",
                r#"{"detail":"Not Found"}"#,
            ),
        }
    }

    /// The tokens of a text. Special tokens are read as such, and other text byte by byte.
    pub fn tokenize(&self, text: &str) -> Vec<i64> {
        let (mut tokens, mut rest) = (Vec::new(), text);
        while let Some(first) = rest.chars().next() {
            match MARKERS.iter().position(|(marker, _)| rest.starts_with(marker)) {
                Some(index) => {
                    tokens.push(256 + index as i64 + self.shift);
                    rest = &rest[MARKERS[index].0.len()..];
                }
                None => {
                    let (bytes, after) = rest.split_at(first.len_utf8());
                    tokens.extend(bytes.bytes().map(i64::from));
                    rest = after;
                }
            }
        }
        tokens
    }

    /// The ids of the script, then that of the end of the turn.
    pub fn script(&self) -> Vec<i64> {
        let mut next = 256 + MARKERS.len() as i64;
        let marker = |text: &[u8]| MARKERS.iter().position(|(marker, _)| marker.as_bytes() == text);
        let mut ids: Vec<i64> = self
            .pieces
            .iter()
            .map(|piece| {
                marker(piece).map_or_else(
                    || {
                        next += 1;
                        next - 1
                    },
                    |index| 256 + index as i64,
                )
            })
            .collect();
        ids.extend(marker(b"<|im_end|>").map(|index| 256 + index as i64));
        ids
    }

    /// The text of a token without `skip_special_tokens`.
    fn text_of(&self, token: i64) -> Vec<u8> {
        let script = self.script();
        match script[..script.len() - 1].iter().position(|id| *id == token) {
            Some(index) => self.pieces[index].clone(),
            None if token < 256 => vec![token as u8],
            None => MARKERS[token as usize - 256].0.as_bytes().to_vec(),
        }
    }

    /// How many tokens of a prompt are cached: whole blocks that an earlier prompt begins with. The
    /// prompt is then cached.
    pub fn cached(&self, prompt: &[i64]) -> usize {
        let mut cache = self.cache.lock().unwrap();
        let common =
            |other: &Vec<i64>| prompt.iter().zip(other).take_while(|(a, b)| a == b).count();
        let longest = cache.iter().map(common).max().unwrap_or(0);
        cache.push(prompt.to_vec());
        // The last token is always computed.
        longest.min(prompt.len() - 1) / BLOCK * BLOCK
    }

    fn generate(
        &self,
        out: &mut TcpStream,
        prompt: &[i64],
        parameters: &Value,
        body: &Value,
        is_generate: bool,
    ) {
        let max_tokens = parameters["max_tokens"].as_u64().unwrap_or(16) as usize;
        if prompt.is_empty() || max_tokens == 0 {
            return refuse(out, "token_ids must not be empty and max_tokens must be at least 1");
        }
        if parameters["logprobs"].as_u64().is_some_and(|logprobs| logprobs > 20) {
            return refuse(out, "Requested sample logprobs which is greater than max allowed: 20");
        }
        if !is_generate && prompt.len() + max_tokens > MAX_MODEL_LEN {
            return refuse(
                out,
                &format!("This model's maximum context length is {MAX_MODEL_LEN} tokens."),
            );
        }
        let outputs = &parameters["structured_outputs"];
        if let Some(status) = self.backend.refusal(outputs).filter(|_| !outputs.is_null()) {
            let error = json!({ "error": { "message": "Invalid grammar specification.",
                "type": "BadRequestError", "param": null, "code": 400 } });
            return answer(out, status, "Content-Type: application/json\r\n", &error.to_string());
        }
        let script = self.script();
        let last = script[..script.len() - 1].iter().position(|id| id == &prompt[prompt.len() - 1]);
        let reply = &script[last.map_or(0, |index| index + 1)..];
        let reply = &reply[..reply.len().min(max_tokens)];
        let ended = if reply.last() == script.last() { "stop" } else { "length" };
        head(out);
        let cached = self.cached(prompt);
        let with_ids = is_generate || self.returns_ids && body["return_token_ids"] == true;
        let usage = |generated: usize| {
            json!({ "prompt_tokens": prompt.len(), "total_tokens": prompt.len() + generated,
                "completion_tokens": generated, "prompt_tokens_details": { "cached_tokens": cached } })
        };
        let mut generated = 0;
        for tokens in reply.chunks(self.tokens_per_event) {
            generated += tokens.len();
            let finish = if generated == reply.len() { json!(ended) } else { Value::Null };
            let mut choice = json!({ "index": 0, "finish_reason": finish, "stop_reason": null });
            if with_ids {
                choice["token_ids"] = json!(tokens);
            }
            choice["logprobs"] = logprobs(tokens, parameters, is_generate);
            let mut event = json!({ "choices": [choice], "usage": null });
            if is_generate {
                event["request_id"] = json!("generate-tokens-1");
            } else {
                let bytes: Vec<u8> = tokens.iter().flat_map(|token| self.text_of(*token)).collect();
                let is_end = tokens.last() == script.last();
                let text = String::from_utf8_lossy(&bytes).into_owned();
                let text = if is_end { text.replace("<|im_end|>", "") } else { text };
                event["choices"][0]["text"] = json!(text);
                event["object"] = json!("text_completion");
                if body["stream_options"]["continuous_usage_stats"] == true {
                    event["usage"] = usage(generated);
                }
            }
            if !chunk(out, format!("data: {event}\n\n").as_bytes()) {
                return;
            }
        }
        if body["stream_options"]["include_usage"] == true {
            let event = json!({ "choices": [], "usage": usage(generated) });
            chunk(out, format!("data: {event}\n\n").as_bytes());
        }
        chunk(out, b"data: [DONE]\n\n");
        let _ = out.write_all(b"0\r\n\r\n");
    }
}

/// The log probabilities of tokens that are certain.
fn logprobs(tokens: &[i64], parameters: &Value, is_generate: bool) -> Value {
    if parameters["logprobs"].is_null() {
        return Value::Null;
    }
    if is_generate {
        let entry = |token: &i64| {
            let one = json!({ "token_id": token, "logprob": 0.0, "rank": 1 });
            json!({ "token_id": token, "logprob": 0.0, "rank": 1, "top_logprobs": [one] })
        };
        return json!({ "content": tokens.iter().map(entry).collect::<Vec<_>>() });
    }
    let names: Vec<String> = tokens.iter().map(|token| format!("token_id:{token}")).collect();
    let top: Vec<Value> = names.iter().map(|name| json!({ name: 0.0 })).collect();
    json!({ "tokens": names, "token_logprobs": vec![0.0; tokens.len()], "top_logprobs": top,
        "text_offset": vec![0; tokens.len()] })
}

/// The ids of a request.
pub fn ids(value: &Value) -> Vec<i64> {
    value.as_array().unwrap().iter().map(|id| id.as_i64().unwrap()).collect()
}

/// An error in vLLM's shape.
pub fn refuse(out: &mut TcpStream, message: &str) {
    let error = json!({ "error": { "message": message, "type": "BadRequestError", "param": null,
        "code": 400 } });
    answer(out, "400 Bad Request", "Content-Type: application/json\r\n", &error.to_string());
}
