//! One HTTP exchange on its own thread, so that the caller can leave at any time.
//!
//! In: an agent and a closure that sends the request. Out: the head of the response, then its body
//! in buffers, as the bytes arrive. Dropping an [`HttpExchange`] shuts its connection down, so the
//! server sees that the caller has left. Redirects are not followed.

use std::fmt;
use std::io::{ErrorKind, Read};
use std::ops::Deref;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant, SystemTime};

use ureq::config::ConfigBuilder;
use ureq::http::Response;
use ureq::http::response::Parts;
use ureq::typestate::AgentScope;
use ureq::{Agent, Body};

use super::trust_store::TrustStore;
use super::wait::{self, WaitEnd, WaitReceiver, WaitSender};
use crate::error::Result;
use crate::process;

/// The maximum number of bytes in a response's head.
const MAX_HEAD_BYTES: usize = 64 << 10;

/// The maximum number of characters of an error of the connection that a message quotes.
#[cfg(feature = "hub")]
const MAX_QUOTED: usize = 200;

/// What a message says about a server that sends nothing.
#[cfg(feature = "hub")]
pub(crate) const SILENT: &str = "the server was silent for too long";

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

/// Describes the error. Messages of ureq may quote the host, but never a header or a path.
#[cfg(feature = "hub")]
pub(crate) fn connection_problem(error: &ureq::Error) -> String {
    match error {
        ureq::Error::Timeout(ureq::Timeout::Connect | ureq::Timeout::Resolve) => {
            "cannot connect in time".into()
        }
        ureq::Error::Timeout(_) => SILENT.into(),
        ureq::Error::HostNotFound => "no such host".into(),
        // One of a resolver here.
        ureq::Error::Other(error) => error.to_string(),
        other => super::one_line(&other.to_string(), MAX_QUOTED),
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

/// Reads `Retry-After`: seconds or a date (RFC 9110, 10.2.3). `date` is the response's `Date`
/// header. A date is relative to the server's clock if the server sends one, else to the local
/// clock.
fn retry_after(value: &str, date: &str) -> Option<Duration> {
    let value = value.trim();
    if let Ok(seconds) = value.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let at = httpdate::parse_http_date(value).ok()?;
    let now = httpdate::parse_http_date(date.trim()).unwrap_or_else(|_| SystemTime::now());
    Some(at.duration_since(now).unwrap_or_default())
}

/// Buffers of one size, which carry bytes to their readers. Buffers are reused, because mapping a
/// new one for each read costs as much as copying the bytes.
pub(crate) struct BufferPool {
    buffer_bytes: usize,
    free: Receiver<Vec<u8>>,
    give_back: Sender<Vec<u8>>,
}

/// Bytes in a buffer of the pool. Dropping it returns the buffer.
pub(crate) struct PooledBuffer {
    buffer: Vec<u8>,
    length: usize,
    give_back: Sender<Vec<u8>>,
}

impl BufferPool {
    pub(crate) fn new(buffer_bytes: usize) -> BufferPool {
        let (give_back, free) = channel();
        BufferPool { buffer_bytes, free, give_back }
    }

    /// Passes an empty buffer to `read`, which fills it and returns the number of bytes.
    pub(crate) fn fill<E>(
        &self,
        read: impl FnOnce(&mut [u8]) -> Result<usize, E>,
    ) -> Result<PooledBuffer, E> {
        let mut buffer = self.free.try_recv().unwrap_or_else(|_| vec![0; self.buffer_bytes]);
        match read(&mut buffer) {
            Ok(length) => Ok(PooledBuffer {
                length: length.min(buffer.len()),
                buffer,
                give_back: self.give_back.clone(),
            }),
            Err(error) => {
                let _ = self.give_back.send(buffer);
                Err(error)
            }
        }
    }
}

impl Deref for PooledBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.buffer[..self.length]
    }
}

impl Drop for PooledBuffer {
    fn drop(&mut self) {
        // If the pool is gone, sending fails and the buffer is freed.
        let _ = self.give_back.send(std::mem::take(&mut self.buffer));
    }
}

impl fmt::Debug for PooledBuffer {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        write!(formatter, "{} bytes", self.length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_and_dates() {
        let date = "Sun, 06 Nov 1994 08:49:37 GMT";
        let cases = [
            ("7", Some(7)),
            (" 0 ", Some(0)),
            ("Sun, 06 Nov 1994 08:50:07 GMT", Some(30)),
            // The obsolete format of RFC 850.
            ("Sunday, 06-Nov-94 08:50:07 GMT", Some(30)),
            ("Sun, 06 Nov 1994 08:49:00 GMT", Some(0)),
            ("-1", None),
            ("1.5", None),
            ("soon", None),
            ("", None),
        ];
        for (value, expected) in cases {
            assert_eq!(retry_after(value, date), expected.map(Duration::from_secs), "{value}");
        }
        // Without the server's clock the local clock is used, and the date is long past.
        assert_eq!(retry_after(date, ""), Some(Duration::ZERO));
    }
}
