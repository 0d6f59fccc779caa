//! One HTTP exchange on its own thread, so that the caller can leave at any time.
//!
//! In: an agent and a closure that sends the request. Out: the head of the response, then its body
//! in buffers, as the bytes arrive. Dropping an [`HttpExchange`] shuts its connection down, so the
//! server sees that the caller has left. Redirects are not followed.

use std::io::{ErrorKind, Read};
use std::time::{Duration, Instant};

use ureq::config::ConfigBuilder;
use ureq::http::Response;
use ureq::http::response::Parts;
use ureq::typestate::AgentScope;
use ureq::{Agent, Body};

use super::buffer_pool::{BufferPool, PooledBuffer};
use super::retry_after::retry_after;
use super::trust_store::TrustStore;
use super::wait::{self, WaitEnd, WaitReceiver, WaitSender};
use crate::error::Result;
use crate::process;

/// The maximum number of bytes in a response's head.
const MAX_HEAD_BYTES: usize = 64 << 10;

/// The agent settings that all clients share.
pub(crate) fn agent_config(trust: &TrustStore) -> ConfigBuilder<AgentScope> {
    Agent::config_builder()
        .http_status_as_error(false)
        .max_redirects(0)
        .max_redirects_will_error(false)
        .tls_config(trust.config())
        .max_response_header_size(MAX_HEAD_BYTES)
        .user_agent(concat!("llb/", env!("CARGO_PKG_VERSION")))
}

/// How the body's bytes are buffered between the connection and the reader.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Buffering {
    /// The size of a buffer.
    pub(crate) buffer_bytes: usize,
    /// The maximum number of filled buffers that wait for the reader. The connection is not read
    /// further until one is taken.
    pub(crate) most_waiting: usize,
}

/// The steps of an exchange, in the order of arrival.
#[derive(Debug)]
pub(crate) enum HttpStep {
    Head(Box<Parts>),
    Bytes(PooledBuffer),
    End,
    Failed(HttpFailure),
}

/// Why an exchange failed.
#[derive(Debug)]
pub(crate) enum HttpFailure {
    /// The server's certificate was refused. Retrying does not help.
    Untrusted(String),
    /// The connection failed.
    Connection(ureq::Error),
}

/// A request that has been sent, and its response.
pub(crate) struct HttpExchange {
    steps: WaitReceiver<HttpStep>,
    agent: Agent,
    /// The process that owns the thread.
    forks: usize,
}

impl HttpExchange {
    /// Runs `send` on a new thread. Each exchange needs its own agent: dropping the exchange shuts
    /// the agent down.
    pub(crate) fn start<S>(
        thread_name: &str,
        agent: Agent,
        trust: &TrustStore,
        buffering: Buffering,
        send: S,
    ) -> Result<HttpExchange>
    where
        S: FnOnce(&Agent) -> Result<Response<Body>, ureq::Error> + Send + 'static,
    {
        let (sender, steps) = wait::channel(buffering.most_waiting);
        let (own_agent, trust) = (agent.clone(), trust.clone());
        crate::spawn::thread(thread_name, move || match send(&own_agent) {
            Ok(response) => pass_on(response, buffering.buffer_bytes, &sender),
            Err(error) => {
                let failure = match trust.certificate_problem(&error) {
                    Some(problem) => HttpFailure::Untrusted(problem),
                    None => HttpFailure::Connection(error),
                };
                sender.send(HttpStep::Failed(failure));
            }
        })?;
        Ok(HttpExchange { steps, agent, forks: process::forks() })
    }

    /// Waits for the next step.
    pub(crate) fn next(
        &self,
        deadline: Option<Instant>,
        is_cancelled: impl Fn() -> bool,
    ) -> WaitEnd<HttpStep> {
        self.steps.next(deadline, is_cancelled)
    }
}

impl Drop for HttpExchange {
    fn drop(&mut self) {
        // A forked child shares the connection with its parent, so it must not shut it down.
        if self.forks == process::forks() {
            self.agent.clone().shutdown();
        }
    }
}

fn pass_on(response: Response<Body>, buffer_bytes: usize, steps: &WaitSender<HttpStep>) {
    let (head, body) = response.into_parts();
    if !steps.send(HttpStep::Head(Box::new(head))) {
        return;
    }
    let mut reader = body.into_reader();
    let pool = BufferPool::new(buffer_bytes);
    loop {
        let step = match pool.fill(|buffer| reader.read(buffer)) {
            Ok(bytes) if bytes.is_empty() => HttpStep::End,
            Ok(bytes) => HttpStep::Bytes(bytes),
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => HttpStep::Failed(HttpFailure::Connection(ureq::Error::from(error))),
        };
        let is_last = !matches!(step, HttpStep::Bytes(_));
        if !steps.send(step) || is_last {
            return;
        }
    }
}

/// A header's value without surrounding whitespace; empty if it is absent or not ASCII.
pub(crate) fn header<'a>(head: &'a Parts, name: &str) -> &'a str {
    head.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().trim()
}

/// Whether the body is compressed. No client requests that.
pub(crate) fn is_compressed(head: &Parts) -> bool {
    let encoding = header(head, "content-encoding");
    !encoding.is_empty() && !encoding.eq_ignore_ascii_case("identity")
}

/// The delay that the server asks for.
pub(crate) fn retry_delay(head: &Parts) -> Option<Duration> {
    retry_after(header(head, "retry-after"), header(head, "date"))
}
