//! Text from servers with OpenAI's completions endpoint: llama.cpp's, vLLM and others.
//!
//! In: a prompt and how to sample. Out: events with text, as they arrive. This module knows nothing
//! about templates, tool calls or reasoning: `chat` passes finished prompts. The servers of one
//! [`Remote`] run the same program and serve the same model.

mod address_resolver;
mod addresses;
mod body;
mod completion;
mod constraint_probe;
mod event;
mod fault;
mod http;
mod pool;
mod prompt_input;
mod server_constraint;
mod sglang;
mod special_spellings;
mod sse;
mod token_route;

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::api::{BaseUrl, RemoteOptions, ServerKind, TokenProtocol};
use crate::error::{Code, Error, Result};
use crate::json;
use crate::net::secret::Redactor;
use crate::net::trust_store::TrustStore;

pub use body::{CompletionRequest, TokenExchange};
pub use completion::{CompletionStream, StreamItem};
pub use event::{CompletionEvent, EndReason, IdLogprob, SampledIds, TokenCounts};
pub use fault::CallError;
pub use http::CallLimits;
pub use server_constraint::{ConstraintForms, ServerConstraint, is_refusal};
pub use special_spellings::SpecialSpellings;
pub use token_route::TokenRoute;

use addresses::ServerAddresses;
use completion::RequestedReply;
use fault::RemoteFault;
use http::{HttpClient, read_key};
pub use pool::PrefixHash;
use pool::ServerLease;

/// The maximum number of bytes of a list of models.
const MAX_MODELS_BYTES: usize = 4 << 20;
/// How long to wait for busy servers if the request has no time limit.
const MAX_WAIT: Duration = Duration::from_secs(60);
/// The maximum number of attempts with a server that names a time to wait.
const MAX_ROUNDS: usize = 8;
/// The maximum number of notes to keep until they are fetched.
const MAX_NOTES: usize = 64;

/// What is known about the servers.
#[derive(Debug, Clone)]
pub struct ServerInfo {
    /// The program that the servers run.
    pub kind: ServerKind,
    /// The servers' name for the model.
    pub model: String,
    /// The tokens of context, if the servers report them.
    pub n_ctx: Option<usize>,
    /// The tokens that llama.cpp's server prepends to a text.
    bos: Vec<i64>,
    bos_text: Option<String>,
}

/// What a response of 404 means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Missing {
    /// The response is `null`, because the server need not have the path.
    IsNull,
    /// The request failed.
    Fails,
}

/// The servers of a chat.
pub struct Remote {
    servers: ServerAddresses,
    model: Option<String>,
    kind: Option<ServerKind>,
    /// The program whose events streams have. Servers that send text have vLLM's.
    protocol: TokenProtocol,
    bos_text: Option<String>,
    http: HttpClient,
    redactor: Redactor,
    specials: SpecialSpellings,
    known: Mutex<Option<Arc<ServerInfo>>>,
    /// The forms of constraints that the servers accept.
    forms: Mutex<Option<ConstraintForms>>,
    /// The ids of control tokens by spelling; `None` for text that is not a control token.
    controls: Mutex<HashMap<String, Option<i64>>>,
    notes: Mutex<Vec<String>>,
}

impl Remote {
    /// Reads the key and the trusted authorities. No server is contacted, because servers may start
    /// later. `bos_text` is the text of the model's BOS token.
    pub fn open(
        options: &RemoteOptions,
        specials: SpecialSpellings,
        bos_text: Option<String>,
    ) -> Result<Remote> {
        let key = options.api_key_env.as_deref().map(read_key).transpose()?;
        let is_encrypted = options.servers.iter().any(|server| server.root.starts_with("https:"));
        let trust = if is_encrypted {
            TrustStore::read(|name| std::env::var_os(name))?
        } else {
            TrustStore::default()
        };
        Ok(Remote {
            servers: ServerAddresses::new(
                options.servers.clone(),
                options.each_address,
                options.connect_timeout,
            ),
            model: options.model.clone(),
            kind: options.kind,
            protocol: options.tokens.as_ref().map(|tokens| tokens.protocol).unwrap_or_default(),
            bos_text: bos_text.filter(|bos| !bos.is_empty()),
            redactor: Redactor::new(&key),
            http: HttpClient {
                key,
                trust,
                connect_timeout: options.connect_timeout,
                read_timeout: options.read_timeout,
            },
            specials,
            known: Mutex::default(),
            forms: Mutex::default(),
            controls: Mutex::default(),
            notes: Mutex::default(),
        })
    }

    /// The known spellings of control tokens.
    pub fn specials(&self) -> &SpecialSpellings {
        &self.specials
    }

    /// Failed attempts and their reasons. Each is returned once.
    pub fn take_notes(&self) -> Vec<String> {
        std::mem::take(&mut self.notes.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns what is known about the servers. The first call queries one of them.
    pub fn known(&self, limits: &CallLimits) -> Result<Arc<ServerInfo>, CallError> {
        if let Some(known) = self.known.lock().unwrap_or_else(PoisonError::into_inner).clone() {
            return Ok(known);
        }
        let known = Arc::new(self.query_info(limits)?);
        *self.known.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&known));
        Ok(known)
    }

    /// Sends a prompt and waits for the first event. Also returns the members of the request that
    /// the server does not support. `plain` is described at [`Remote::count_tokens`].
    pub fn complete(
        &self,
        prompt: &str,
        plain: &[Range<usize>],
        ask: &CompletionRequest,
        limits: &CallLimits,
    ) -> Result<(CompletionStream, Vec<&'static str>), CallError> {
        let known = self.known(limits)?;
        let input = self.prompt_input(prompt, plain, limits)?;
        let (body, unsupported) = body::body(ask, known.kind, &known.model, &input);
        let text = body.to_string();
        let completion = self.attempt(None, limits, |lease| {
            let exchange = self.http.start(
                &lease.server,
                endpoint(&lease.server, "/completions"),
                Some(text.clone()),
            )?;
            let requested = self.requested(ask.max_tokens, ask.logprobs);
            CompletionStream::begin(exchange, lease, self.redactor.clone(), requested, limits)
        })?;
        Ok((completion, unsupported))
    }

    fn requested(&self, max_tokens: usize, logprobs: Option<usize>) -> RequestedReply {
        RequestedReply { protocol: self.protocol, max_tokens, n_top: logprobs.unwrap_or(0) }
    }

    fn forms(&self) -> MutexGuard<'_, Option<ConstraintForms>> {
        self.forms.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn query_info(&self, limits: &CallLimits) -> Result<ServerInfo, CallError> {
        let (kind, model, n_ctx) = match (self.kind, &self.model) {
            (Some(kind), Some(model)) => (kind, model.clone(), None),
            (kind, model) => {
                let (models, server) =
                    self.ask("/models", None, MAX_MODELS_BYTES, Missing::IsNull, limits)?;
                let models = models["data"].as_array().map(Vec::as_slice).unwrap_or_default();
                let id = |model: &Value| model["id"].as_str().map(str::to_owned);
                let listed = match model {
                    Some(wanted) => {
                        models.iter().find(|model| model["id"] == **wanted).or(models.first())
                    }
                    None => models.first().filter(|_| models.len() == 1),
                };
                let kind =
                    kind.unwrap_or(match listed.and_then(|model| model["owned_by"].as_str()) {
                        Some("llamacpp") => ServerKind::Llama,
                        Some("vllm") => ServerKind::Vllm,
                        _ => ServerKind::OpenAi,
                    });
                let Some(model) = model.clone().or_else(|| listed.and_then(id)) else {
                    let problem = format!(
                        "missing: {} serves {} models; name one of them",
                        server.host,
                        models.len()
                    );
                    return Err(Error::invalid("engine.model", problem).into());
                };
                let n_ctx = listed.and_then(|model| {
                    model["max_model_len"].as_u64().or(model["meta"]["n_ctx"].as_u64())
                });
                (kind, model, n_ctx.and_then(|n_ctx| usize::try_from(n_ctx).ok()))
            }
        };
        let (mut bos, mut bos_text) = (Vec::new(), self.bos_text.clone());
        if kind == ServerKind::Llama {
            let empty =
                serde_json::json!({ "content": "", "add_special": true, "with_pieces": true });
            let (answer, _) =
                self.ask("/tokenize", Some(empty), MAX_MODELS_BYTES, Missing::Fails, limits)?;
            let first = &answer["tokens"][0];
            bos.extend(first["id"].as_i64());
            bos_text = first["piece"]
                .as_str()
                .filter(|piece| !piece.is_empty())
                .map(str::to_owned)
                .or(bos_text);
        }
        Ok(ServerInfo { kind, model, n_ctx, bos, bos_text })
    }

    /// A short exchange of JSON. `path` is below the API version, except `/tokenize`, which is at
    /// the root.
    fn ask(
        &self,
        path: &str,
        body: Option<Value>,
        most: usize,
        missing: Missing,
        limits: &CallLimits,
    ) -> Result<(Value, BaseUrl), CallError> {
        let text = body.map(|body| body.to_string());
        self.attempt(None, limits, |lease| {
            let over = || RemoteFault::Stop(CallError::Over);
            let server = &lease.server;
            let url = if path == "/tokenize" {
                format!("{}{path}", server.root)
            } else {
                endpoint(server, path)
            };
            let exchange = self.http.start(server, url, text.clone())?;
            let broken = |problem| fault::broken(server, problem);
            let head = exchange.head(limits).ok_or_else(over)?.map_err(broken)?;
            let body = exchange.body(most, limits).ok_or_else(over)?.map_err(broken)?;
            if missing == Missing::IsNull && head.status == 404 {
                return Ok((Value::Null, server.clone()));
            }
            if head.status != 200 {
                return Err(fault::refused(server, &head, &body));
            }
            if head.is_compressed {
                return Err(fault::failed(server, fault::COMPRESSED).into());
            }
            match json::value(&body) {
                Ok(json) => Ok((json, server.clone())),
                Err(error) => Err(fault::failed(
                    server,
                    format_args!("the response of {path} is not JSON: {error}"),
                )
                .into()),
            }
        })
    }

    /// Tries the servers. Every exchange goes through this function, which removes the key from
    /// errors.
    fn attempt<T>(
        &self,
        prefix: Option<PrefixHash>,
        limits: &CallLimits,
        attempt: impl FnMut(ServerLease) -> Result<T, RemoteFault>,
    ) -> Result<T, CallError> {
        self.try_servers(prefix, limits, attempt).map_err(|error| match error {
            CallError::Failed(error) => CallError::Failed(self.redactor.error(error)),
            CallError::Over => CallError::Over,
        })
    }

    /// Tries each server once, in the order of [`ServerLease::take`]. Then retries servers that named a time to
    /// wait, after that time.
    fn try_servers<T>(
        &self,
        prefix: Option<PrefixHash>,
        limits: &CallLimits,
        mut attempt: impl FnMut(ServerLease) -> Result<T, RemoteFault>,
    ) -> Result<T, CallError> {
        let began = Instant::now();
        for _ in 0..MAX_ROUNDS {
            let mut untried = self.servers.now(limits)?;
            let mut again: Option<Instant> = None;
            let mut last = None;
            while let Some(lease) = ServerLease::take(untried.iter(), prefix) {
                if limits.is_over() {
                    return Err(CallError::Over);
                }
                let server = lease.server.clone();
                match attempt(lease) {
                    Ok(done) => return Ok(done),
                    Err(RemoteFault::Stop(stopped)) => return Err(stopped),
                    Err(RemoteFault::NoRoute(error)) => return Err(error.into()),
                    Err(RemoteFault::Next { error, after }) => {
                        pool::rest(&server, after.unwrap_or(pool::REST));
                        self.servers.has_failed();
                        self.note(error.message());
                        let at = after.and_then(|after| Instant::now().checked_add(after));
                        again = again.into_iter().chain(at).min();
                        untried.retain(|other| *other != server);
                        last = Some(error);
                    }
                }
            }
            let last = last.unwrap_or_else(|| Error::invalid("engine.base_url", "no server"));
            let end = limits.deadline.unwrap_or(began + MAX_WAIT);
            // The wait must not exceed the time of the call.
            let Some(at) = again.filter(|at| *at < end) else { return Err(last.into()) };
            if !limits.wait(at.saturating_duration_since(Instant::now())) {
                return Err(CallError::Over);
            }
        }
        Err(Error::new(Code::InferenceFailed, "all servers are busy; try again later").into())
    }

    fn note(&self, note: &str) {
        let mut notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        if notes.len() < MAX_NOTES {
            notes.push(self.redactor.text(note));
        }
    }
}

/// The URL of a path below the API version.
fn endpoint(server: &BaseUrl, path: &str) -> String {
    format!("{}/{}{path}", server.root, server.version)
}
