//! One GET at a time, on a thread of its own, so that its caller can leave at any moment.
//!
//! In: an address, a range. Out: the head of the answer behind all redirects, then its bytes as
//! they come. The token goes to the endpoint's own scheme, host and port, whatever a redirect says.
//! Sizes of heads, the number of redirects and the time that the other side may be silent are
//! bounded; packed answers are not asked for, and not taken.

use std::io::Read;
use std::time::{Duration, Instant};

use ureq::Agent;

use super::buffer_pool::{BUFFER_BYTES, BufferPool, PooledBuffer};
use super::cancel::CancelToken;
use super::environment::{AccessToken, Settings};
use super::fault::{HubFault, network};
use super::name::shown;
use super::proxy::Proxies;
use super::url::{self, UrlOrigin};
use crate::error::{Code, Error, Result};
use crate::net::retry_after::retry_after;
use crate::net::trust_store::TrustStore;
use crate::net::wait::{self, WaitEnd, WaitReceiver, WaitSender};

/// Redirects of one request.
const MOST_REDIRECTS: usize = 10;
/// Bytes of an answer's head.
const MOST_OF_HEAD: usize = 64 << 10;
/// Pieces that may wait for their reader.
const PIECES: usize = 8;
const CONNECT: Duration = Duration::from_secs(10);

/// Asks the hub, and whom it sends us to.
pub(super) struct HubClient<'a> {
    origin: UrlOrigin,
    token: Option<AccessToken>,
    silence: Duration,
    proxies: &'a Proxies,
    trust: &'a TrustStore,
}

/// What is asked for.
#[derive(Default)]
pub(super) struct GetRequest<'a> {
    pub(super) url: &'a str,
    /// `bytes=0-9`, and the etag it must still have.
    pub(super) range: Option<String>,
    pub(super) if_range: Option<&'a str>,
    /// Until when the whole answer must be there.
    pub(super) until: Option<Instant>,
}

/// What an answer begins with; texts are empty where it says nothing.
#[derive(Debug, Clone, Default)]
pub(super) struct HubHead {
    pub(super) status: u16,
    /// Who answers, for messages.
    pub(super) host: String,
    /// Whether that is the endpoint itself.
    pub(super) at_hub: bool,
    pub(super) length: Option<u64>,
    /// First byte and size of the whole, of a 206.
    pub(super) content_range: Option<(u64, u64)>,
    pub(super) etag: String,
    pub(super) retry_after: Option<Duration>,
    pub(super) error_code: String,
    pub(super) error_message: String,
    /// What the endpoint itself said on the way, `X-Linked-Etag`, `X-Linked-Size` and its own
    /// `ETag`.
    pub(super) linked_etag: String,
    pub(super) linked_size: Option<u64>,
    pub(super) hub_etag: String,
    /// Where a redirect leads.
    pub(super) location: Option<String>,
    /// Whether its bytes are compressed.
    pub(super) packed: bool,
}

enum HubStep {
    Head(Box<HubHead>),
    Bytes(PooledBuffer),
    End,
    /// The connection failed; what happened, without the address.
    Failed(String),
    /// The other side is not who it should be: no other try will help.
    Untrusted(String),
}

/// An answer whose head is there.
pub(super) struct HubResponse {
    pub(super) head: HubHead,
    exchange: HubExchange,
    until: Option<Instant>,
}

struct HubExchange {
    steps: WaitReceiver<HubStep>,
    agent: Agent,
}

impl<'a> HubClient<'a> {
    pub(super) fn new(settings: &'a Settings) -> HubClient<'a> {
        HubClient {
            origin: settings.origin.clone(),
            token: settings.token.clone(),
            silence: settings.silence,
            proxies: &settings.proxies,
            trust: &settings.trust,
        }
    }

    pub(super) fn token(&self) -> Option<&AccessToken> {
        self.token.as_ref()
    }

    /// The answer behind all redirects, whatever its status.
    pub(super) fn get(
        &self,
        get: &GetRequest,
        cancel: &CancelToken,
    ) -> Result<HubResponse, HubFault> {
        let mut url = get.url.to_owned();
        let mut linked = HubHead::default();
        for _ in 0..=MOST_REDIRECTS {
            let Some(origin) = UrlOrigin::of(&url) else {
                return Err(network("the hub", "has no usable address").into());
            };
            let at_hub = origin == self.origin;
            let host = origin.shown();
            let exchange = self.start(&url, &origin, get, at_hub)?;
            let mut head = match exchange.next(cancel, get.until)? {
                Some(HubStep::Head(head)) => *head,
                Some(HubStep::Failed(problem)) => {
                    return Err(HubFault::Again { error: network(&host, problem), after: None });
                }
                Some(HubStep::Untrusted(problem)) => return Err(network(&host, problem).into()),
                _ => {
                    return Err(HubFault::Again {
                        error: network(&host, "answers nothing"),
                        after: None,
                    });
                }
            };
            if at_hub {
                // The answer that has the file's own etag wins: a hub redirects renamed models to
                // itself first.
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
                if head.packed {
                    return Err(
                        network(&host, "sends its answer packed, which was not asked for").into()
                    );
                }
                return Ok(HubResponse { head, exchange, until: get.until });
            }
            let to = head.location.as_deref().and_then(|location| url::follow(&url, location));
            url = to.ok_or_else(|| {
                network(
                    &host,
                    "redirects to what is not a web address, or out of an encrypted connection",
                )
            })?;
        }
        Err(network(
            &self.origin.shown(),
            format_args!("redirects more than {MOST_REDIRECTS} times"),
        )
        .into())
    }

    fn start(
        &self,
        url: &str,
        origin: &UrlOrigin,
        get: &GetRequest,
        with_token: bool,
    ) -> Result<HubExchange> {
        let (secure, host, port) = origin.parts();
        // An agent for each exchange: shutting it down ends this one and no other.
        let agent: Agent = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .proxy(self.proxies.of(secure, host, port))
            .tls_config(self.trust.config())
            .timeout_connect(Some(CONNECT.min(self.silence)))
            .timeout_recv_response(Some(self.silence * 2))
            .timeout_per_read(Some(self.silence))
            .timeout_per_write(Some(self.silence))
            .max_response_header_size(MOST_OF_HEAD)
            .input_buffer_size(BUFFER_BYTES)
            .user_agent(concat!("llb/", env!("CARGO_PKG_VERSION")))
            .build()
            .into();
        let mut request = agent.get(url).header("Accept-Encoding", "identity");
        if let Some(token) = self.token.as_ref().filter(|_| with_token) {
            request = request.header("Authorization", token.bearer());
        }
        if let Some(range) = &get.range {
            request = request.header("Range", range);
        }
        if let Some(etag) = get.if_range {
            request = request.header("If-Range", etag);
        }
        let (outlet, steps) = wait::channel(PIECES);
        let trust = self.trust.clone();
        std::thread::Builder::new()
            .name("llb-hub".into())
            .spawn(move || {
                let _quiet = crate::panic::Quiet::enter();
                run(request, &trust, &outlet);
            })
            .map_err(|error| {
                Error::new(Code::OutOfMemory, "cannot start a thread for the request")
                    .caused_by(error)
            })?;
        Ok(HubExchange { steps, agent })
    }
}

impl HubExchange {
    /// The next step; None when the connection is gone.
    fn next(
        &self,
        cancel: &CancelToken,
        until: Option<Instant>,
    ) -> Result<Option<HubStep>, HubFault> {
        match self.steps.next(until, || cancel.is_over()) {
            WaitEnd::Next(step) => Ok(Some(step)),
            WaitEnd::Gone => Ok(None),
            WaitEnd::Late => Ok(Some(HubStep::Failed("the answer takes too long".into()))),
            WaitEnd::Over => cancel.check().map(|()| None).map_err(HubFault::from),
        }
    }
}

impl Drop for HubExchange {
    fn drop(&mut self) {
        self.agent.clone().shutdown();
    }
}

impl HubResponse {
    /// The next bytes; None at the end.
    pub(super) fn next(&self, cancel: &CancelToken) -> Result<Option<PooledBuffer>, HubFault> {
        let broken = |problem: String| HubFault::Again {
            error: network(&self.head.host, problem),
            after: None,
        };
        match self.exchange.next(cancel, self.until)? {
            Some(HubStep::Bytes(bytes)) => Ok(Some(bytes)),
            Some(HubStep::End) => Ok(None),
            Some(HubStep::Failed(problem) | HubStep::Untrusted(problem)) => Err(broken(problem)),
            Some(HubStep::Head(_)) | None => Err(broken("the connection was lost".into())),
        }
    }

    /// The whole body of an answer that should be short.
    pub(super) fn whole(&self, most: usize, cancel: &CancelToken) -> Result<Vec<u8>, HubFault> {
        let mut body = Vec::new();
        while let Some(bytes) = self.next(cancel)? {
            if body.len() + bytes.len() > most {
                return Err(network(
                    &self.head.host,
                    format_args!("answers with more than {most} bytes"),
                )
                .into());
            }
            body.extend_from_slice(&bytes);
        }
        Ok(body)
    }

    /// As much of the body of an error as a message could quote.
    pub(super) fn complaint(&self, cancel: &CancelToken) -> Result<Vec<u8>, HubFault> {
        const MOST: usize = 16 << 10;
        match self.whole(MOST, cancel) {
            Err(HubFault::Stop(error)) if error.code() == Code::Cancelled => Err(error.into()),
            read => Ok(read.unwrap_or_default()),
        }
    }
}

fn run(
    request: ureq::RequestBuilder<ureq::typestate::WithoutBody>,
    trust: &TrustStore,
    steps: &WaitSender<HubStep>,
) {
    let answer = match request.call() {
        Ok(answer) => answer,
        Err(error) => {
            let step = trust
                .problem(&error)
                .map_or_else(|| HubStep::Failed(problem(&error)), HubStep::Untrusted);
            steps.send(step);
            return;
        }
    };
    let header = |name: &str| {
        answer
            .headers()
            .get(name)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
            .trim()
            .to_owned()
    };
    let head = HubHead {
        status: answer.status().as_u16(),
        length: header("content-length").parse().ok(),
        content_range: content_range(&header("content-range")),
        etag: header("etag"),
        retry_after: retry_after(&header("retry-after"), &header("date")),
        error_code: header("x-error-code"),
        error_message: header("x-error-message"),
        linked_etag: header("x-linked-etag"),
        linked_size: header("x-linked-size").parse().ok(),
        location: answer
            .headers()
            .get("location")
            .and_then(|value| value.to_str().ok())
            .map(|location| location.trim().to_owned()),
        packed: !matches!(&*header("content-encoding").to_ascii_lowercase(), "" | "identity"),
        ..HubHead::default()
    };
    if !steps.send(HubStep::Head(Box::new(head))) {
        return;
    }
    let mut reader = answer.into_body().into_reader();
    let pool = BufferPool::new();
    loop {
        let step = match pool.fill(|buffer| reader.read(buffer)) {
            Ok(piece) if piece.is_empty() => HubStep::End,
            Ok(piece) => HubStep::Bytes(piece),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(error) => HubStep::Failed(problem(&ureq::Error::from(error))),
        };
        let last = !matches!(step, HubStep::Bytes(_));
        if !steps.send(step) || last {
            return;
        }
    }
}

/// `bytes 5-9/100`: the first byte and the size of the whole.
fn content_range(value: &str) -> Option<(u64, u64)> {
    let (range, size) = value.strip_prefix("bytes ")?.split_once('/')?;
    Some((range.split_once('-')?.0.trim().parse().ok()?, size.trim().parse().ok()?))
}

/// What happened. ureq's own texts may quote the host, never a header or a path.
fn problem(error: &ureq::Error) -> String {
    match error {
        ureq::Error::Timeout(ureq::Timeout::Connect | ureq::Timeout::Resolve) => {
            "no connection in time".into()
        }
        ureq::Error::Timeout(_) => "it was silent for too long".into(),
        ureq::Error::HostNotFound => "no such host".into(),
        other => shown(&other.to_string()),
    }
}
