//! One HTTP exchange at a time, on a thread of its own, so that its caller can leave at any moment.
//!
//! In: a URL and a body. Out: the head of the answer, then its bytes as they come. Dropping an
//! [`RemoteExchange`] shuts its connection down, which is how a server learns that nobody waits.
//! Redirects are not followed, proxies of the environment not used, packed answers not asked for:
//! what is sent, the key above all, goes to the host of the URL and nowhere else.

use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ureq::Agent;

use crate::error::{Code, Error, Result};
use crate::net::retry_after::retry_after;
use crate::net::trust_store::TrustStore;
use crate::net::wait::{self, WaitEnd, WaitReceiver, WaitSender};

/// Bytes that are passed on at once, and how many such pieces may wait for their reader.
const PIECE_BYTES: usize = 8192;
const PIECES: usize = 32;

/// When a call ends although the server has not.
#[derive(Debug, Clone, Default)]
pub struct CallLimits {
    /// Set by anyone, who then calls [`wake`](super::wake).
    pub cancel: Arc<AtomicBool>,
    /// By itself.
    pub deadline: Option<Instant>,
}

impl CallLimits {
    /// Whether it is time.
    pub fn is_over(&self) -> bool {
        self.cancel.load(Ordering::Relaxed)
            || self.deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }

    /// Waits for a time; false if the call ended meanwhile.
    pub(super) fn wait(&self, time: Duration) -> bool {
        let left = self
            .deadline
            .map_or(time, |deadline| deadline.saturating_duration_since(Instant::now()));
        wait::pause(time.min(left), || self.is_over()) && !self.is_over()
    }
}

/// A key, which no message and no debug output shows.
#[derive(Clone)]
pub(super) struct ApiKey(String);

impl ApiKey {
    /// From the environment.
    pub(super) fn read(variable: &str) -> Result<ApiKey> {
        let invalid = |problem: String| Error::invalid("engine.api_key_env", problem);
        match std::env::var(variable) {
            Ok(key) if key.trim().is_empty() => {
                Err(invalid(format!("the environment variable {variable:?} is empty")))
            }
            Ok(key) if !key.trim().bytes().all(|byte| byte.is_ascii_graphic()) => {
                Err(invalid(format!(
                    "the environment variable {variable:?} holds what no HTTP header can carry"
                )))
            }
            Ok(key) => Ok(ApiKey(key.trim().to_owned())),
            Err(_) => Err(invalid(format!("the environment variable {variable:?} is not set"))),
        }
    }

    /// A text of the server without the key, should it have sent it back.
    pub(super) fn hide(&self, text: &str) -> String {
        text.replace(&self.0, "[key]")
    }
}

impl std::fmt::Debug for ApiKey {
    fn fmt(&self, formatter: &mut std::fmt::Formatter) -> std::fmt::Result {
        formatter.write_str("Key")
    }
}

/// Makes exchanges.
#[derive(Debug, Clone)]
pub(super) struct HttpClient {
    pub(super) key: Option<ApiKey>,
    pub(super) trust: TrustStore,
    pub(super) connect_timeout: Duration,
    pub(super) read_timeout: Duration,
}

/// What an answer begins with.
#[derive(Debug, Clone)]
pub(super) struct RemoteHead {
    pub(super) status: u16,
    pub(super) content_type: String,
    pub(super) retry_after: Option<Duration>,
}

/// What comes of an exchange, in this order.
#[derive(Debug)]
pub(super) enum RemoteStep {
    Head(RemoteHead),
    Bytes(Vec<u8>),
    End,
    /// The connection failed; what happened, without the URL.
    Failed(String),
}

/// A request under way.
pub(super) struct RemoteExchange {
    steps: WaitReceiver<RemoteStep>,
    agent: Agent,
}

impl HttpClient {
    /// Sends a GET, or a POST of JSON.
    pub(super) fn start(&self, url: String, body: Option<String>) -> Result<RemoteExchange> {
        // An agent for each exchange: shutting it down ends this one and no other.
        let agent: Agent = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .proxy(None)
            .tls_config(self.trust.config())
            .timeout_connect(Some(self.connect_timeout))
            .timeout_per_read(Some(self.read_timeout))
            .timeout_per_write(Some(self.read_timeout))
            .max_response_header_size(64 * 1024)
            .user_agent(concat!("llb/", env!("CARGO_PKG_VERSION")))
            .build()
            .into();
        let (outlet, steps) = wait::channel(PIECES);
        let (theirs, key, trust) = (agent.clone(), self.key.clone(), self.trust.clone());
        std::thread::Builder::new()
            .name("llb-remote".into())
            .spawn(move || {
                let _quiet = crate::panic::Quiet::enter();
                run(&theirs, &url, body, key.as_ref(), &trust, &outlet);
            })
            .map_err(|error| {
                Error::new(Code::OutOfMemory, "cannot start a thread for the request")
                    .caused_by(error)
            })?;
        Ok(RemoteExchange { steps, agent })
    }
}

impl RemoteExchange {
    /// The next step; None when the call is over.
    pub(super) fn next(&self, until: &CallLimits) -> Option<RemoteStep> {
        match self.steps.next(until.deadline, || until.is_over()) {
            WaitEnd::Next(step) => Some(step),
            WaitEnd::Gone => Some(RemoteStep::Failed("the connection was lost".into())),
            WaitEnd::Over | WaitEnd::Late => None,
        }
    }

    /// The whole body of an answer that should be short, as far as `most` bytes; None when the call
    /// is over.
    pub(super) fn body(&self, most: usize, until: &CallLimits) -> Option<Result<Vec<u8>, String>> {
        let mut body = Vec::new();
        loop {
            match self.next(until)? {
                RemoteStep::Bytes(bytes) if body.len() + bytes.len() > most => {
                    return Some(Err(format!("the answer is longer than {most} bytes")));
                }
                RemoteStep::Bytes(bytes) => body.extend_from_slice(&bytes),
                RemoteStep::End => return Some(Ok(body)),
                RemoteStep::Failed(problem) => return Some(Err(problem)),
                RemoteStep::Head(_) => {}
            }
        }
    }
}

impl Drop for RemoteExchange {
    fn drop(&mut self) {
        self.agent.clone().shutdown();
    }
}

fn run(
    agent: &Agent,
    url: &str,
    body: Option<String>,
    key: Option<&ApiKey>,
    trust: &TrustStore,
    steps: &WaitSender<RemoteStep>,
) {
    let answer = match body {
        Some(body) => {
            let request = agent.post(url).header("Content-Type", "application/json");
            let request = request.header("Accept", "text/event-stream, application/json");
            with_key(request, key).send(body)
        }
        None => with_key(agent.get(url).header("Accept", "application/json"), key).call(),
    };
    let answer = match answer {
        Ok(answer) => answer,
        Err(error) => {
            let problem = trust.problem(&error).unwrap_or_else(|| problem(&error));
            steps.send(RemoteStep::Failed(problem));
            return;
        }
    };
    let header = |name: &str| {
        answer
            .headers()
            .get(name)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
            .to_owned()
    };
    let head = RemoteHead {
        status: answer.status().as_u16(),
        content_type: header("content-type"),
        retry_after: retry_after(&header("retry-after"), &header("date")),
    };
    if !steps.send(RemoteStep::Head(head)) {
        return;
    }
    let mut reader = answer.into_body().into_reader();
    let mut bytes = vec![0; PIECE_BYTES];
    loop {
        let step = match reader.read(&mut bytes) {
            Ok(0) => RemoteStep::End,
            Ok(length) => RemoteStep::Bytes(bytes[..length].to_vec()),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(error) => RemoteStep::Failed(problem(&ureq::Error::from(error))),
        };
        let last = !matches!(step, RemoteStep::Bytes(_));
        if !steps.send(step) || last {
            return;
        }
    }
}

fn with_key<B>(request: ureq::RequestBuilder<B>, key: Option<&ApiKey>) -> ureq::RequestBuilder<B> {
    match key {
        Some(ApiKey(key)) => request.header("Authorization", format!("Bearer {key}")),
        None => request,
    }
}

/// What happened. ureq's own texts may quote the URL's host, never a header.
fn problem(error: &ureq::Error) -> String {
    match error {
        ureq::Error::Timeout(ureq::Timeout::PerRead) => {
            "it was silent for too long (`read_timeout_ms`)".into()
        }
        ureq::Error::Timeout(ureq::Timeout::Connect | ureq::Timeout::Resolve) => {
            "no connection in time (`connect_timeout_ms`)".into()
        }
        ureq::Error::HostNotFound => "no such host".into(),
        other => other.to_string(),
    }
}
