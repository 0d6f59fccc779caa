//! GET requests to the hub, one at a time.
//!
//! In: a URL and a range. Out: the head of the response after all redirects, then its bytes as they
//! arrive. The token is sent only to the scheme, host and port of the endpoint, even if a redirect
//! leads elsewhere. The size of heads, the number of redirects and the time without data are
//! limited. Compressed responses are neither requested nor accepted.

use std::time::{Duration, Instant};

use ureq::Agent;
use ureq::http::response::Parts;

use super::fault::{HubFault, network};
use super::running::CancelToken;
use super::settings::Settings;
use crate::error::{Code, Result};
use crate::net::exchange::{
    Buffering, HttpExchange, HttpFailure, HttpStep, PooledBuffer, SILENT, agent_config,
    connection_problem, header, is_compressed, retry_delay,
};
use crate::net::one_line;
use crate::net::url::{self, UrlOrigin};
use crate::net::wait::WaitEnd;

/// The maximum number of redirects of one request.
const MAX_REDIRECTS: usize = 10;
/// The number of bytes that are read, hashed and written at once.
pub(super) const BUFFER_BYTES: usize = 256 << 10;
const BUFFERING: Buffering = Buffering { buffer_bytes: BUFFER_BYTES, most_waiting: 8 };
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum number of characters of a server's text that a message quotes.
const MAX_QUOTED: usize = 200;

/// Sends requests to the hub, and to the servers that it redirects to.
pub(super) struct HubClient<'a> {
    pub(super) settings: &'a Settings,
}

#[derive(Default)]
pub(super) struct GetRequest<'a> {
    pub(super) url: &'a str,
    /// The byte range, for example `bytes=0-9`.
    pub(super) range: Option<String>,
    /// The etag that the file must still have.
    pub(super) if_range: Option<&'a str>,
    /// When the whole response must have arrived.
    pub(super) deadline: Option<Instant>,
}

/// The head of a response. A text is empty if its header is absent.
#[derive(Debug, Clone, Default)]
pub(super) struct HubHead {
    pub(super) status: u16,
    /// The host that answered, for messages.
    pub(super) host: String,
    /// Whether the endpoint itself answered.
    pub(super) at_hub: bool,
    pub(super) length: Option<u64>,
    /// The first byte and the size of the whole file, from a response with status 206.
    pub(super) content_range: Option<(u64, u64)>,
    pub(super) etag: String,
    pub(super) retry_after: Option<Duration>,
    pub(super) error_code: String,
    pub(super) error_message: String,
    /// `X-Linked-Etag`, `X-Linked-Size` and `ETag` of the endpoint's own response, which may be a
    /// redirect.
    pub(super) linked_etag: String,
    pub(super) linked_size: Option<u64>,
    pub(super) hub_etag: String,
    /// The target of a redirect.
    pub(super) location: Option<String>,
    pub(super) is_compressed: bool,
}

impl HubHead {
    fn of(head: &Parts) -> HubHead {
        let header = |name| header(head, name);
        let owned = |name| header(name).to_owned();
        HubHead {
            status: head.status.as_u16(),
            length: header("content-length").parse().ok(),
            content_range: content_range(header("content-range")),
            etag: owned("etag"),
            retry_after: retry_delay(head),
            error_code: owned("x-error-code"),
            error_message: owned("x-error-message"),
            linked_etag: owned("x-linked-etag"),
            linked_size: header("x-linked-size").parse().ok(),
            location: head.headers.contains_key("location").then(|| owned("location")),
            is_compressed: is_compressed(head),
            ..HubHead::default()
        }
    }
}

/// A response whose head has arrived.
pub(super) struct HubResponse {
    pub(super) head: HubHead,
    exchange: HttpExchange,
    deadline: Option<Instant>,
    read_timeout: Duration,
}

impl HubClient<'_> {
    /// Sends a request and follows redirects. Returns the final response with any status.
    pub(super) fn get(
        &self,
        request: &GetRequest,
        cancel: &CancelToken,
    ) -> Result<HubResponse, HubFault> {
        let mut url = request.url.to_owned();
        let mut linked = HubHead::default();
        for _ in 0..=MAX_REDIRECTS {
            let Some(origin) = UrlOrigin::of(&url) else {
                return Err(network("the hub", "has no usable URL").into());
            };
            let at_hub = origin == self.settings.origin;
            let host = origin.shown();
            let exchange = self.start(&url, &origin, request, at_hub)?;
            // The time to resolve the name, connect, send the request, and receive the head of the
            // response.
            let head_wait = CONNECT_TIMEOUT * 2 + self.settings.read_timeout * 3;
            let mut head = match next_step(&exchange, &host, cancel, request.deadline, head_wait)? {
                HttpStep::Head(head) => HubHead::of(&head),
                _ => return Err(HubFault::again(network(&host, "sent no response"))),
            };
            if at_hub {
                // A hub first redirects a renamed model to itself. The response with the file's own
                // etag counts.
                if !head.linked_etag.is_empty() {
                    linked.linked_etag.clone_from(&head.linked_etag);
                    linked.linked_size = head.linked_size;
                }
                linked.hub_etag.clone_from(&head.etag);
            }
            head.linked_etag.clone_from(&linked.linked_etag);
            head.linked_size = linked.linked_size;
            head.hub_etag.clone_from(&linked.hub_etag);
            head.host.clone_from(&host);
            head.at_hub = at_hub;
            if !matches!(head.status, 300..=399) {
                if head.is_compressed {
                    let problem = "sent a compressed response, which was not requested";
                    return Err(network(&host, problem).into());
                }
                return Ok(HubResponse {
                    head,
                    exchange,
                    deadline: request.deadline,
                    read_timeout: self.settings.read_timeout,
                });
            }
            let target = head.location.as_deref().and_then(|location| url::follow(&url, location));
            url = target.ok_or_else(|| {
                let problem = "redirects to something that is not a web URL, or out of an \
                               encrypted connection";
                network(&host, problem)
            })?;
        }
        let problem = format!("redirects more than {MAX_REDIRECTS} times");
        Err(network(&self.settings.origin.shown(), problem).into())
    }

    fn start(
        &self,
        url: &str,
        origin: &UrlOrigin,
        get: &GetRequest,
        with_token: bool,
    ) -> Result<HttpExchange> {
        let (secure, host, port) = origin.parts();
        let agent: Agent = agent_config(&self.settings.trust)
            .proxy(self.settings.proxies.of(secure, host, port))
            .timeout_connect(Some(CONNECT_TIMEOUT.min(self.settings.read_timeout)))
            .timeout_recv_response(Some(self.settings.read_timeout * 2))
            .timeout_per_read(Some(self.settings.read_timeout))
            .timeout_per_write(Some(self.settings.read_timeout))
            .input_buffer_size(BUFFER_BYTES)
            .build()
            .into();
        let mut request = agent.get(url).header("Accept-Encoding", "identity");
        if let Some(token) = self.settings.token.as_ref().filter(|_| with_token) {
            request = request.header("Authorization", token.bearer());
        }
        if let Some(range) = &get.range {
            request = request.header("Range", range);
        }
        if let Some(etag) = get.if_range {
            request = request.header("If-Range", etag);
        }
        HttpExchange::start("llb-hub", agent, &self.settings.trust, BUFFERING, |_| request.call())
    }
}

/// Waits for the next step of an exchange with a host, at most for `most` and until the deadline of
/// the exchange.
fn next_step(
    exchange: &HttpExchange,
    host: &str,
    cancel: &CancelToken,
    deadline: Option<Instant>,
    most: Duration,
) -> Result<HttpStep, HubFault> {
    let until = Instant::now().checked_add(most);
    let is_silent = deadline.is_none() || until < deadline;
    let deadline = [deadline, until].into_iter().flatten().min();
    let again = |problem: &str| Err(HubFault::again(network(host, problem)));
    match exchange.next(deadline, || cancel.is_cancelled()) {
        WaitEnd::Next(HttpStep::Failed(HttpFailure::Untrusted(problem))) => {
            Err(network(host, problem).into())
        }
        WaitEnd::Next(HttpStep::Failed(HttpFailure::Connection(error))) => {
            again(&connection_problem(&error))
        }
        WaitEnd::Next(step) => Ok(step),
        WaitEnd::Closed => again("the connection was lost"),
        WaitEnd::Late if is_silent => again(SILENT),
        WaitEnd::Late => again("the response takes too long"),
        WaitEnd::Cancelled => Err(cancel.error().into()),
    }
}

impl HubResponse {
    /// Receives the next bytes; `None` at the end.
    pub(super) fn next(&self, cancel: &CancelToken) -> Result<Option<PooledBuffer>, HubFault> {
        self.next_until(self.deadline, cancel)
    }

    fn next_until(
        &self,
        deadline: Option<Instant>,
        cancel: &CancelToken,
    ) -> Result<Option<PooledBuffer>, HubFault> {
        // Bytes that are not part of the body, such as extensions of chunks, do not count as data.
        let most = self.read_timeout;
        match next_step(&self.exchange, &self.head.host, cancel, deadline, most)? {
            HttpStep::Bytes(bytes) => Ok(Some(bytes)),
            _ => Ok(None),
        }
    }

    /// Receives the whole body of a response that should be short.
    pub(super) fn body(&self, most: usize, cancel: &CancelToken) -> Result<Vec<u8>, HubFault> {
        self.body_until(self.deadline, most, cancel)
    }

    fn body_until(
        &self,
        deadline: Option<Instant>,
        most: usize,
        cancel: &CancelToken,
    ) -> Result<Vec<u8>, HubFault> {
        let mut body = Vec::new();
        while let Some(bytes) = self.next_until(deadline, cancel)? {
            if body.len() + bytes.len() > most {
                let problem = format!("sent a response of more than {most} bytes");
                return Err(network(&self.head.host, problem).into());
            }
            body.extend_from_slice(&bytes);
        }
        Ok(body)
    }

    /// Receives the body of an error response. Empty if it is long, takes longer than the read
    /// time-out, or cannot be read.
    pub(super) fn error_body(&self, cancel: &CancelToken) -> Result<Vec<u8>, HubFault> {
        const MAX: usize = 16 << 10;
        let soon = Instant::now() + self.read_timeout;
        let deadline = self.deadline.map_or(soon, |deadline| deadline.min(soon));
        match self.body_until(Some(deadline), MAX, cancel) {
            Err(HubFault::Stop(error)) if error.code() == Code::Cancelled => Err(error.into()),
            body => Ok(body.unwrap_or_default()),
        }
    }
}

/// Parses `bytes 5-9/100` to the first byte and the size of the whole file.
fn content_range(value: &str) -> Option<(u64, u64)> {
    let (range, size) = value.strip_prefix("bytes ")?.split_once('/')?;
    Some((range.split_once('-')?.0.trim().parse().ok()?, size.trim().parse().ok()?))
}

/// Quotes text of a server or of the user in a message.
pub(super) fn quoted(text: &str) -> String {
    one_line(text, MAX_QUOTED)
}
