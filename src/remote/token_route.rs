//! Exchanges of token ids with vLLM and SGLang.
//!
//! In: a prompt as token ids. Out: a stream whose events have token ids. vLLM has two routes for
//! this: `/inference/v1/generate`, which some versions have only with
//! `VLLM_ENABLE_SCALE_OUT_ENDPOINTS`, and `/v1/completions` with `return_token_ids`.

use serde_json::{Value, json};

use super::body::{self, CompletionRequest, TokenExchange};
use super::completion::{CompletionStream, StreamItem};
use super::fault::{self, CallError, RemoteFault};
use super::http::CallLimits;
use super::{Missing, Remote, endpoint, sglang};
use crate::api::{Guessing, Sampling, TokenProtocol};
use crate::error::{Code, Error};

/// The maximum number of bytes of a response with the tokens of a text.
const MAX_BYTES: usize = 1 << 20;

/// The route by which a server takes and returns token ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenRoute {
    /// `/inference/v1/generate`.
    Generate,
    /// `/v1/completions` with `return_token_ids`.
    Completions,
    /// `/generate` of SGLang.
    Sglang,
}

impl Remote {
    /// The tokens of a text according to the server. Special tokens in the text are read as such.
    /// `None` if the server has no `/tokenize`.
    pub fn server_tokens(
        &self,
        text: &str,
        limits: &CallLimits,
    ) -> Result<Option<Vec<i64>>, CallError> {
        let known = self.known(limits)?;
        let body = json!({ "model": known.model, "prompt": text, "add_special_tokens": false });
        let (answer, server) =
            self.ask("/tokenize", Some(body), MAX_BYTES, Missing::IsNull, limits)?;
        if answer.is_null() {
            return Ok(None);
        }
        let tokens = answer["tokens"].as_array();
        let tokens = tokens.and_then(|tokens| tokens.iter().map(Value::as_i64).collect());
        let missing = || fault::failed(&server, "its /tokenize response has no `tokens`").into();
        tokens.map(Some).ok_or_else(missing)
    }

    /// Finds the route by letting the server generate one token. `None` if it returns only text.
    pub fn token_route(
        &self,
        exchange: &TokenExchange,
        limits: &CallLimits,
    ) -> Result<Option<TokenRoute>, CallError> {
        let ask = CompletionRequest {
            max_tokens: 1,
            sampling: Sampling::default(),
            stop: Vec::new(),
            logprobs: None,
            cache_prompt: true,
            lora: None,
            speculative: Guessing::Auto,
            visible: Vec::new(),
            constraint: None,
        };
        let routes: &[TokenRoute] = match exchange.options.protocol {
            TokenProtocol::Vllm => &[TokenRoute::Generate, TokenRoute::Completions],
            TokenProtocol::Sglang => &[TokenRoute::Sglang],
        };
        for &route in routes {
            let Some(mut stream) = self.begin_tokens(route, exchange, &ask, limits)?.0 else {
                continue;
            };
            while let StreamItem::Event(event) = stream.next(limits, "")? {
                if event.tokens.is_some() {
                    return Ok(Some(route));
                }
            }
        }
        Ok(None)
    }

    /// Sends a prompt of token ids and waits for the first event. Also returns the members of the
    /// request that the server does not support.
    pub fn generate(
        &self,
        route: TokenRoute,
        exchange: &TokenExchange,
        ask: &CompletionRequest,
        limits: &CallLimits,
    ) -> Result<(CompletionStream, Vec<&'static str>), CallError> {
        let (stream, unsupported) = self.begin_tokens(route, exchange, ask, limits)?;
        let gone = || {
            let problem = format!("the servers no longer have the route {}", path(route));
            CallError::from(Error::new(Code::InferenceFailed, problem))
        };
        Ok((stream.ok_or_else(gone)?, unsupported))
    }

    /// `None` if the server does not have the route.
    fn begin_tokens(
        &self,
        route: TokenRoute,
        exchange: &TokenExchange,
        ask: &CompletionRequest,
        limits: &CallLimits,
    ) -> Result<(Option<CompletionStream>, Vec<&'static str>), CallError> {
        let known = self.known(limits)?;
        let (body, unsupported) = match route {
            TokenRoute::Generate => body::generate(ask, &known.model, exchange),
            TokenRoute::Completions => body::completion_of_tokens(ask, &known.model, exchange),
            TokenRoute::Sglang => sglang::generate(ask, exchange),
        };
        let text = body.to_string();
        let stream = self.attempt(exchange.prefix, limits, |lease| {
            let url = match route {
                TokenRoute::Generate | TokenRoute::Sglang => {
                    format!("{}{}", lease.server.root, path(route))
                }
                TokenRoute::Completions => endpoint(&lease.server, path(route)),
            };
            let exchange = self.http.start(&lease.server, url, Some(text.clone()))?;
            let requested = self.requested(ask.max_tokens, ask.logprobs);
            let redactor = self.redactor.clone();
            match CompletionStream::begin(exchange, lease, redactor, requested, limits) {
                Err(RemoteFault::NoRoute(_)) => Ok(None),
                begun => begun.map(Some),
            }
        })?;
        Ok((stream, unsupported))
    }
}

/// The path at the server's root, or below the version for `/completions`.
fn path(route: TokenRoute) -> &'static str {
    match route {
        TokenRoute::Generate => "/inference/v1/generate",
        TokenRoute::Completions => "/completions",
        TokenRoute::Sglang => sglang::PATH,
    }
}
