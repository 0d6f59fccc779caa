//! A stand-in for SGLang, which generates the tokens of a scripted model.
//!
//! It follows the sources of SGLang 0.5.23: names, defaults, limits, errors and the framing of
//! streams (srt/entrypoints/http_server.py, srt/managers/{io_struct,tokenizer_manager}.py,
//! srt/managers/schedule_batch.py, srt/sampling/sampling_params.py, srt/constrained). SGLang itself
//! is not run.

use std::io::Write;
use std::net::TcpStream;

use serde_json::{Value, json};

use crate::remote_server::{Request, Server, answer, chunk, head, json_answer};
use crate::vllm_server::{MAX_MODEL_LEN, Vllm, ids};

/// The members of `SamplingParams` that a request may have.
const SAMPLING_PARAMS: [&str; 27] = [
    "max_new_tokens",
    "stop",
    "stop_token_ids",
    "stop_regex",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "frequency_penalty",
    "presence_penalty",
    "repetition_penalty",
    "min_new_tokens",
    "n",
    "beam_width",
    "json_schema",
    "regex",
    "ebnf",
    "structural_tag",
    "ignore_eos",
    "skip_special_tokens",
    "spaces_between_special_tokens",
    "no_stop_trim",
    "stream_interval",
    "logit_bias",
    "sampling_seed",
    "custom_params",
    "watermark",
];
const GRAMMARS: [&str; 4] = ["json_schema", "regex", "ebnf", "structural_tag"];

/// What a stand-in does.
#[derive(Clone)]
pub struct Sglang {
    /// The script of the model, its vocabulary and its prefix cache.
    pub model: Vllm,
    /// `--incremental-streaming-output`.
    pub is_incremental: bool,
    /// `--grammar-backend`: whether it is llguidance, and not xgrammar.
    pub has_llguidance: bool,
    /// Whether xgrammar reads Lark, as since version 0.2.5.
    pub reads_lark: bool,
    /// The requests that are refused because the queue is full.
    pub is_full: bool,
}

impl Sglang {
    pub fn new(pieces: impl IntoIterator<Item = impl AsRef<[u8]>>) -> Sglang {
        Sglang {
            model: Vllm::new(pieces),
            is_incremental: false,
            has_llguidance: false,
            reads_lark: true,
            is_full: false,
        }
    }

    pub fn start(self) -> Server {
        Server::start(move |request, out| self.answer(request, out))
    }

    pub fn answer(&self, request: &Request, out: &mut TcpStream) {
        let body = &request.body;
        match &*request.path {
            "/v1/models" => {
                let model = json!({ "id": "served", "object": "model", "created": 1,
                    "owned_by": "sglang", "root": "served", "parent": null,
                    "max_model_len": MAX_MODEL_LEN });
                json_answer(out, &json!({ "object": "list", "data": [model] }));
            }
            "/tokenize" => {
                let tokens = self.model.tokenize(body["prompt"].as_str().unwrap());
                json_answer(
                    out,
                    &json!({ "tokens": tokens, "count": tokens.len(),
                    "max_model_len": MAX_MODEL_LEN }),
                );
            }
            "/generate" => self.generate(body, out),
            _ => answer(
                out,
                "404 Not Found",
                "Content-Type: application/json\r\n",
                r#"{"detail":"Not Found"}"#,
            ),
        }
    }

    fn generate(&self, body: &Value, out: &mut TcpStream) {
        assert_eq!(body["stream"], true);
        let parameters = &body["sampling_params"];
        let prompt = match &body["text"] {
            Value::String(text) => self.model.tokenize(text),
            _ => ids(&body["input_ids"]),
        };
        // Faults are events of a stream whose status is 200.
        head(out);
        let max_tokens = parameters["max_new_tokens"].as_u64().unwrap_or(128) as usize;
        if let Some(problem) = problem(parameters, prompt.len() + max_tokens) {
            let error = json!({ "error": { "message": problem, "type": "invalid_request_error",
                "code": 400, "retryable": false } });
            return finish(out, &error);
        }
        let abort = if self.is_full {
            Some(("The request queue is full.", 503, "ServiceUnavailable"))
        } else if self.refuses(parameters) {
            Some(("Failed to compile the grammar: EBNF lexer error", 400, "BadRequestError"))
        } else {
            None
        };
        if let Some((message, status, kind)) = abort {
            let reason = json!({ "type": "abort", "message": message, "status_code": status,
                "err_type": kind });
            let meta = json!({ "id": "0", "finish_reason": reason, "prompt_tokens": prompt.len(),
                "completion_tokens": 0, "cached_tokens": 0 });
            return finish(out, &json!({ "text": "", "output_ids": [], "meta_info": meta }));
        }
        let script = self.model.script();
        let last = script[..script.len() - 1].iter().position(|id| Some(id) == prompt.last());
        let reply = &script[last.map_or(0, |index| index + 1)..];
        let reply = &reply[..reply.len().min(max_tokens)];
        let ended = if reply.last() == script.last() {
            json!({ "type": "stop", "matched": script.last() })
        } else {
            json!({ "type": "length", "length": max_tokens })
        };
        let cached = self.model.cached(&prompt);
        for (begin, tokens) in reply.chunks(self.model.tokens_per_event).enumerate() {
            let begin = begin * self.model.tokens_per_event;
            let end = begin + tokens.len();
            let shown = if self.is_incremental { begin..end } else { 0..end };
            let reason = if end == reply.len() { ended.clone() } else { Value::Null };
            let mut meta = json!({ "id": "0", "finish_reason": reason,
                "prompt_tokens": prompt.len(), "weight_version": "default",
                "num_retractions": 0, "completion_tokens": end, "cached_tokens": cached });
            if body["return_logprob"] == true {
                let one = |id: &i64| json!([0.0, id, null]);
                let top = |id: &i64| match body["top_logprobs_num"].as_u64() {
                    None | Some(0) => Value::Null,
                    _ => json!([[0.0, id, null]]),
                };
                let all = &reply[shown.clone()];
                meta["output_token_logprobs"] = all.iter().map(one).collect();
                meta["output_top_logprobs"] = all.iter().map(top).collect();
            }
            let event =
                json!({ "text": "not read", "output_ids": reply[shown], "meta_info": meta });
            if !chunk(out, format!("data: {event}\n\n").as_bytes()) {
                return;
            }
        }
        chunk(out, b"data: [DONE]\n\n");
        let _ = out.write_all(b"0\r\n\r\n");
    }

    /// Whether the grammar is one that the backend cannot compile. Only its form is checked.
    fn refuses(&self, parameters: &Value) -> bool {
        let ebnf = parameters["ebnf"].as_str();
        let tag = parameters["structural_tag"].as_str();
        match (self.has_llguidance, ebnf, tag) {
            // Text without `::=` is Lark.
            (true, Some(_), _) => false,
            // Only tags with `triggers` are known.
            (true, _, Some(tag)) => !tag.contains("triggers"),
            (false, Some(text), _) => !text.contains("root ::="),
            (false, _, Some(tag)) => {
                let tag: Value = serde_json::from_str(tag).unwrap();
                let is_tag = tag["type"] == "structural_tag" && tag["format"]["type"].is_string();
                let text = tag.to_string();
                !is_tag || !self.reads_lark || text.contains("(?") || text.contains("[lazy]")
            }
            _ => false,
        }
    }
}

/// What SGLang refuses before it generates.
fn problem(parameters: &Value, tokens: usize) -> Option<String> {
    let unknown =
        parameters.as_object().unwrap().keys().find(|it| !SAMPLING_PARAMS.contains(&&***it));
    if let Some(unknown) = unknown {
        return Some(format!("Unexpected keyword argument '{unknown}'"));
    }
    if parameters["top_k"].as_i64().is_some_and(|top_k| top_k < 1 && top_k != -1) {
        return Some("top_k must be -1 (disable) or at least 1".into());
    }
    if GRAMMARS.iter().filter(|name| parameters[**name].is_string()).count() > 1 {
        return Some("Only one of json_schema, regex, ebnf, or structural_tag can be set.".into());
    }
    (tokens > MAX_MODEL_LEN).then(|| {
        format!(
            "Requested token count exceeds the model's maximum context length of {MAX_MODEL_LEN} \
             tokens. You requested a total of {tokens} tokens"
        )
    })
}

/// Sends the only event of a stream.
fn finish(out: &mut TcpStream, event: &Value) {
    chunk(out, format!("data: {event}\n\ndata: [DONE]\n\n").as_bytes());
    let _ = out.write_all(b"0\r\n\r\n");
}
