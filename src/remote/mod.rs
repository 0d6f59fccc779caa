//! Text from servers that have OpenAI's completions endpoint: llama.cpp's, vLLM and others.
//!
//! In: a prompt and how to sample. Out: events with text, as they come. Knows no templates, calls
//! or reasoning, and no engine: `chat` gives it finished prompts. The servers of one [`Remote`]
//! serve the same model by the same program.

mod body;
mod completion;
mod event;
mod fault;
mod http;
mod pool;
mod prompt_input;
mod special_spellings;
mod sse;

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::api::{BaseUrl, RemoteOptions, ServerKind};
use crate::error::{Code, Error, Result};
use crate::net::trust_store::TrustStore;

pub use body::CompletionRequest;
pub use completion::{CompletionStream, StreamItem};
pub use event::{CompletionEvent, EndReason, TokenCounts};
pub use fault::CallError;
pub use http::CallLimits;
pub use special_spellings::SpecialSpellings;

use fault::RemoteFault;
use http::{ApiKey, HttpClient, RemoteStep};
use pool::ServerLease;

/// Bytes of an answer about a server's models.
const MOST_OF_MODELS: usize = 4 << 20;
/// How long servers that are busy are waited for where the request has no time limit.
const MOST_WAIT: Duration = Duration::from_secs(60);
/// How often a server that says when to come again is asked.
const MOST_ROUNDS: usize = 8;
/// Notes that nobody fetched.
const MOST_NOTES: usize = 64;

/// What is known of the servers.
#[derive(Debug, Clone)]
pub struct ServerInfo {
    /// Which program they run.
    pub kind: ServerKind,
    /// Their name of the model.
    pub model: String,
    /// Tokens of context, where they say.
    pub n_ctx: Option<usize>,
    /// What llama.cpp's server puts in front of a text.
    bos: Vec<i64>,
    /// The text of BOS.
    bos_text: Option<String>,
}

/// A chat's servers.
pub struct Remote {
    servers: Vec<BaseUrl>,
    model: Option<String>,
    kind: Option<ServerKind>,
    bos_text: Option<String>,
    http: HttpClient,
    specials: SpecialSpellings,
    known: Mutex<Option<Arc<ServerInfo>>>,
    /// Control tokens by their spelling; None for spellings that are none.
    controls: Mutex<HashMap<String, Option<i64>>>,
    notes: Mutex<Vec<String>>,
}

impl Remote {
    /// Reads the key and the list of trusted authorities, and asks nobody anything: servers may
    /// start later. `bos_text` is how the model's BOS is spelt.
    pub fn open(
        options: &RemoteOptions,
        specials: SpecialSpellings,
        bos_text: Option<String>,
    ) -> Result<Remote> {
        let key = options.api_key_env.as_deref().map(ApiKey::read).transpose()?;
        let is_safe = options.servers.iter().any(|server| server.root.starts_with("https:"));
        let trust = if is_safe {
            TrustStore::read(|name| std::env::var_os(name))?
        } else {
            TrustStore::default()
        };
        Ok(Remote {
            servers: options.servers.clone(),
            model: options.model.clone(),
            kind: options.kind,
            bos_text: bos_text.filter(|bos| !bos.is_empty()),
            http: HttpClient {
                key,
                trust,
                connect_timeout: options.connect_timeout,
                read_timeout: options.read_timeout,
            },
            specials,
            known: Mutex::default(),
            controls: Mutex::default(),
            notes: Mutex::default(),
        })
    }

    /// The spellings of control tokens that are known.
    pub fn specials(&self) -> &SpecialSpellings {
        &self.specials
    }

    /// Servers that were passed over, and why; each once.
    pub fn notes(&self) -> Vec<String> {
        std::mem::take(&mut self.notes.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// What is known of the servers; asks one of them the first time.
    pub fn known(&self, until: &CallLimits) -> Result<Arc<ServerInfo>, CallError> {
        if let Some(known) = self.known.lock().unwrap_or_else(PoisonError::into_inner).clone() {
            return Ok(known);
        }
        let known = Arc::new(self.find_out(until)?);
        *self.known.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&known));
        Ok(known)
    }

    /// Sends a prompt and waits for the first event. `plain` is as in [`Remote::count`]. Gives the
    /// fields of the request that the server has none for, too.
    pub fn complete(
        &self,
        prompt: &str,
        plain: &[Range<usize>],
        ask: &CompletionRequest,
        until: &CallLimits,
    ) -> Result<(CompletionStream, Vec<&'static str>), CallError> {
        let known = self.known(until)?;
        let fed = self.feed(prompt, plain, until)?;
        let (body, left) = body::body(ask, known.kind, &known.model, &fed);
        let text = body.to_string();
        let limits = (ask.max_tokens, ask.logprobs.unwrap_or(0));
        let completion = self.attempt(until, |lease| {
            let exchange =
                self.http.start(endpoint(&lease.server, "/completions"), Some(text.clone()))?;
            CompletionStream::begin(exchange, lease, self.http.key.clone(), limits, until)
        })?;
        Ok((completion, left))
    }

    fn find_out(&self, until: &CallLimits) -> Result<ServerInfo, CallError> {
        let (kind, model, n_ctx) = match (self.kind, &self.model) {
            (Some(kind), Some(model)) => (kind, model.clone(), None),
            (kind, model) => {
                let (models, server) = self.ask("/models", None, MOST_OF_MODELS, until)?;
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
                        "missing: {} serves {} models, so one must be named",
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
            let (answer, _) = self.ask("/tokenize", Some(empty), MOST_OF_MODELS, until)?;
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

    /// A short question: JSON in and out. `path` is below the version, but `/tokenize`, which no
    /// server has there.
    fn ask(
        &self,
        path: &str,
        body: Option<Value>,
        most: usize,
        until: &CallLimits,
    ) -> Result<(Value, BaseUrl), CallError> {
        let text = body.map(|body| body.to_string());
        self.attempt(until, |lease| {
            let over = || RemoteFault::Stop(CallError::Over);
            let server = &lease.server;
            let url = if path == "/tokenize" {
                format!("{}{path}", server.root)
            } else {
                endpoint(server, path)
            };
            let exchange = self.http.start(url, text.clone())?;
            let head = match exchange.next(until).ok_or_else(over)? {
                RemoteStep::Head(head) => head,
                RemoteStep::Failed(problem) => return Err(fault::broken(server, problem)),
                RemoteStep::Bytes(_) | RemoteStep::End => {
                    return Err(fault::broken(server, "answers nothing"));
                }
            };
            let answer = exchange.body(most, until).ok_or_else(over)?;
            let answer = answer.map_err(|problem| fault::broken(server, problem))?;
            if path == "/models" && head.status == 404 {
                return Ok((Value::Null, server.clone()));
            }
            if head.status != 200 {
                return Err(fault::refused(server, &head, &answer, self.http.key.as_ref()));
            }
            match serde_json::from_slice(&answer) {
                Ok(json) => Ok((json, server.clone())),
                Err(error) => Err(fault::failed(
                    server,
                    format_args!("{path} is not answered with JSON: {error}"),
                )
                .into()),
            }
        })
    }

    /// Tries the servers, the least loaded first, each once; those that said when to come again,
    /// then.
    fn attempt<T>(
        &self,
        until: &CallLimits,
        mut attempt: impl FnMut(ServerLease) -> Result<T, RemoteFault>,
    ) -> Result<T, CallError> {
        let began = Instant::now();
        for _ in 0..MOST_ROUNDS {
            let mut untried: Vec<&BaseUrl> = self.servers.iter().collect();
            let mut again: Option<Instant> = None;
            let mut last = None;
            while let Some(lease) = ServerLease::take(untried.iter().copied()) {
                if until.is_over() {
                    return Err(CallError::Over);
                }
                let server = lease.server.clone();
                match attempt(lease) {
                    Ok(done) => return Ok(done),
                    Err(RemoteFault::Stop(stopped)) => return Err(stopped),
                    Err(RemoteFault::Next { error, after }) => {
                        pool::rest(&server, after.unwrap_or(pool::REST));
                        self.note(error.message());
                        let at = after.and_then(|after| Instant::now().checked_add(after));
                        again = again.into_iter().chain(at).min();
                        untried.retain(|other| **other != server);
                        last = Some(error);
                    }
                }
            }
            let last = last.unwrap_or_else(|| Error::invalid("engine.base_url", "no server"));
            let end = until.deadline.unwrap_or(began + MOST_WAIT);
            // To wait for what comes too late is of no use to anyone.
            let Some(at) = again.filter(|at| *at < end) else { return Err(last.into()) };
            if !until.wait(at.saturating_duration_since(Instant::now())) {
                return Err(CallError::Over);
            }
        }
        Err(Error::new(Code::InferenceFailed, "the servers stay busy; try again later").into())
    }

    fn note(&self, note: &str) {
        let mut notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        if notes.len() < MOST_NOTES {
            notes.push(note.to_owned());
        }
    }
}

/// Lets calls that wait for a server ask again whether they are over: to be called after the flag
/// of an [`CallLimits`] was set. Any thread.
pub fn wake() {
    crate::net::wait::wake();
}

/// Where a path below the version is.
fn endpoint(server: &BaseUrl, path: &str) -> String {
    format!("{}/{}{path}", server.root, server.version)
}
