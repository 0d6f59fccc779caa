//! HTTP exchanges with completions servers.
//!
//! In: a URL and a body. Out: the head of the response, then its bytes as they arrive. Proxies from
//! the environment are not used and redirects are not followed, so the data, above all the key, is
//! sent only to the host of the URL.

use std::env::VarError;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ureq::Agent;
use ureq::unversioned::transport::DefaultConnector;

use super::address_resolver::AddressResolver;
use crate::api::BaseUrl;
use crate::error::{Error, Result};
use crate::net::exchange::{
    Buffering, HttpExchange, HttpFailure, HttpStep, PooledBuffer, agent_config, header,
    is_compressed, retry_delay,
};
use crate::net::one_line;
use crate::net::secret::Secret;
use crate::net::trust_store::TrustStore;
use crate::net::wait::{self, WaitEnd};

const BUFFERING: Buffering = Buffering { buffer_bytes: 8192, most_waiting: 32 };

/// How long sending a request may take if `read_timeout_ms` is shorter.
const SEND_TIMEOUT: Duration = Duration::from_secs(60);
const SILENT: &str = "the server was silent for too long (`read_timeout_ms`)";
/// The maximum number of characters of an error of the connection that a message quotes.
const MAX_PROBLEM: usize = 400;

/// The conditions that end a call before its reply is complete.
#[derive(Debug, Clone, Default)]
pub struct CallLimits {
    /// Set by any thread, which then calls `net::wait::wake`.
    pub cancel: Arc<AtomicBool>,
    /// When the call times out.
    pub deadline: Option<Instant>,
}

impl CallLimits {
    /// Whether the call was cancelled or passed its deadline.
    pub fn is_over(&self) -> bool {
        self.cancel.load(Ordering::Relaxed)
            || self.deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }

    /// Waits for this long. Returns false if the call ended before.
    pub(super) fn wait(&self, time: Duration) -> bool {
        let remaining = self
            .deadline
            .map_or(time, |deadline| deadline.saturating_duration_since(Instant::now()));
        wait::pause(time.min(remaining), || self.is_over()) && !self.is_over()
    }
}

/// Reads an API key from an environment variable.
pub(super) fn read_key(variable: &str) -> Result<Secret> {
    // The name is not quoted in messages, because the user may have put the key in its place.
    let invalid = |problem: &str| {
        let message = format!("the environment variable that it names {problem}");
        Err(Error::invalid("engine.api_key_env", message))
    };
    match std::env::var(variable) {
        Ok(key) if key.trim().is_empty() => invalid("is empty"),
        Ok(key) => Secret::new(&key, "[key]")
            .map_or_else(|| invalid("has characters that an HTTP header cannot carry"), Ok),
        Err(VarError::NotUnicode(_)) => invalid("is not UTF-8"),
        Err(VarError::NotPresent) => invalid("is not set"),
    }
}

/// Starts exchanges.
#[derive(Debug, Clone)]
pub(super) struct HttpClient {
    pub(super) key: Option<Secret>,
    pub(super) trust: TrustStore,
    pub(super) connect_timeout: Duration,
    pub(super) read_timeout: Duration,
}

/// The head of a response.
#[derive(Debug, Clone)]
pub(super) struct RemoteHead {
    pub(super) status: u16,
    pub(super) content_type: String,
    pub(super) is_compressed: bool,
    pub(super) retry_after: Option<Duration>,
}

/// A request that was sent. Methods return `None` if the call is over, and a message if the
/// connection failed or the server was too slow.
pub(super) struct RemoteExchange {
    exchange: HttpExchange,
    /// The deadline for the head of the response.
    head_until: Option<Instant>,
    read_timeout: Duration,
}

impl HttpClient {
    /// Sends a GET, or a POST of JSON, to a URL of this server.
    pub(super) fn start(
        &self,
        server: &BaseUrl,
        url: String,
        body: Option<String>,
    ) -> Result<RemoteExchange> {
        let config = agent_config(&self.trust)
            .proxy(None)
            .timeout_connect(Some(self.connect_timeout))
            .timeout_recv_response(Some(self.read_timeout))
            .timeout_per_read(Some(self.read_timeout))
            .timeout_per_write(Some(self.read_timeout))
            .build();
        let resolver = AddressResolver(server.address);
        let agent = Agent::with_parts(config, DefaultConnector::default(), resolver);
        let key = self.key.clone();
        let send = move |agent: &Agent| match body {
            Some(body) => {
                let request = agent.post(&url).header("Content-Type", "application/json");
                let request = request.header("Accept", "text/event-stream, application/json");
                with_key(request, key.as_ref()).send(body)
            }
            None => {
                let request = agent.get(&url).header("Accept", "application/json");
                with_key(request, key.as_ref()).call()
            }
        };
        let exchange = HttpExchange::start("llb-remote", agent, &self.trust, BUFFERING, send)?;
        // The name is resolved before the connection timeout starts.
        let connecting = self.connect_timeout * 2;
        let sending = self.read_timeout.max(SEND_TIMEOUT);
        let head_until = Instant::now().checked_add(connecting + sending + self.read_timeout);
        Ok(RemoteExchange { exchange, head_until, read_timeout: self.read_timeout })
    }
}

impl RemoteExchange {
    /// The next step, if it arrives before `until`.
    fn next(
        &self,
        limits: &CallLimits,
        until: Option<Instant>,
    ) -> Option<Result<HttpStep, String>> {
        let deadline = [limits.deadline, until].into_iter().flatten().min();
        match self.exchange.next(deadline, || limits.is_over()) {
            WaitEnd::Next(HttpStep::Failed(HttpFailure::Untrusted(problem))) => Some(Err(problem)),
            WaitEnd::Next(HttpStep::Failed(HttpFailure::Connection(error))) => {
                Some(Err(problem(&error)))
            }
            WaitEnd::Next(step) => Some(Ok(step)),
            WaitEnd::Closed => Some(Err("the connection was lost".into())),
            WaitEnd::Late if !limits.is_over() => Some(Err(SILENT.into())),
            WaitEnd::Cancelled | WaitEnd::Late => None,
        }
    }

    pub(super) fn read_timeout(&self) -> Duration {
        self.read_timeout
    }

    /// The head of the response. It must be read first.
    pub(super) fn head(&self, limits: &CallLimits) -> Option<Result<RemoteHead, String>> {
        Some(self.next(limits, self.head_until)?.and_then(|step| match step {
            HttpStep::Head(head) => Ok(RemoteHead {
                status: head.status.as_u16(),
                content_type: header(&head, "content-type").to_owned(),
                is_compressed: is_compressed(&head),
                retry_after: retry_delay(&head),
            }),
            _ => Err("sent no response".into()),
        }))
    }

    /// The next bytes of the body, if they arrive before `until`. The inner `None` is the end.
    pub(super) fn bytes(
        &self,
        limits: &CallLimits,
        until: Option<Instant>,
    ) -> Option<Result<Option<PooledBuffer>, String>> {
        Some(self.next(limits, until)?.map(|step| match step {
            HttpStep::Bytes(bytes) => Some(bytes),
            _ => None,
        }))
    }

    /// The whole body of a response that should be short and arrive soon.
    pub(super) fn body(&self, most: usize, limits: &CallLimits) -> Option<Result<Vec<u8>, String>> {
        let until = Instant::now().checked_add(self.read_timeout);
        let mut body = Vec::new();
        loop {
            match self.bytes(limits, until)? {
                Ok(Some(bytes)) if body.len() + bytes.len() > most => {
                    return Some(Err(format!("the response is longer than {most} bytes")));
                }
                Ok(Some(bytes)) => body.extend_from_slice(&bytes),
                Ok(None) => return Some(Ok(body)),
                Err(problem) => return Some(Err(problem)),
            }
        }
    }
}

fn with_key<B>(request: ureq::RequestBuilder<B>, key: Option<&Secret>) -> ureq::RequestBuilder<B> {
    match key {
        Some(key) => request.header("Authorization", key.bearer()),
        None => request,
    }
}

/// A description of the error. ureq's messages may quote the URL's host, but no header.
fn problem(error: &ureq::Error) -> String {
    match error {
        ureq::Error::Timeout(ureq::Timeout::PerRead | ureq::Timeout::RecvResponse) => SILENT.into(),
        ureq::Error::Timeout(ureq::Timeout::Connect | ureq::Timeout::Resolve) => {
            "cannot connect in time (`connect_timeout_ms`)".into()
        }
        ureq::Error::HostNotFound => "no such host".into(),
        other => one_line(&other.to_string(), MAX_PROBLEM),
    }
}
