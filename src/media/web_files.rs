//! Files that a request names by http and https URLs.
//!
//! In: a URL of an untrusted client. Out: the bytes of the file, within limits of size, time and
//! redirects. Servers with private addresses are refused unless the host allows them. No proxy is
//! used, because it would resolve the names. Nothing of the machine is sent: no token, no cookie.

use std::time::{Duration, Instant};

use ureq::Agent;
use ureq::http::Uri;
use ureq::http::response::Parts;
use ureq::unversioned::transport::DefaultConnector;

use super::{MediaWait, too_long};
use crate::api::MediaUrls;
use crate::error::Result;
use crate::net::exchange::{
    Buffering, HttpExchange, HttpFailure, HttpStep, agent_config, connection_problem, header,
    is_compressed,
};
use crate::net::public_address::PublicResolver;
use crate::net::trust_store::TrustStore;
use crate::net::url::{UrlOrigin, follow};
use crate::net::wait::WaitEnd;

/// The maximum number of redirects of one file.
const MAX_REDIRECTS: usize = 5;
/// The longest time for one file, with its redirects.
const MAX_TIME: Duration = Duration::from_secs(60);
/// The longest time until a server is connected.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);
const BUFFERING: Buffering = Buffering { buffer_bytes: 64 << 10, most_waiting: 4 };

/// Fetches files.
pub(super) struct WebFiles {
    trust: TrustStore,
    allows_private: bool,
    max_time: Duration,
}

/// What ends one fetch.
struct FetchWait<'a> {
    /// When the file must be there.
    until: Instant,
    wait: MediaWait<'a>,
}

impl WebFiles {
    /// # Errors
    /// `INVALID_REQUEST` that names the environment variable with the trusted authorities.
    pub(super) fn new(urls: MediaUrls) -> Result<WebFiles> {
        Ok(WebFiles {
            trust: TrustStore::read(|name| std::env::var_os(name))?,
            allows_private: urls == MediaUrls::All,
            max_time: MAX_TIME,
        })
    }

    /// The bytes of the file at a URL, at most `most`.
    ///
    /// # Errors
    /// A message, also if the call is over before the file is there.
    pub(super) fn fetch(&self, url: &str, most: usize, wait: MediaWait) -> Result<Vec<u8>, String> {
        let wait = &FetchWait { until: Instant::now() + self.max_time, wait };
        let mut url = url.to_owned();
        for _ in 0..=MAX_REDIRECTS {
            let host = checked_host(&url)?;
            let about = |problem: &str| format!("{host}: {problem}");
            let exchange = self.start(&url)?;
            let head = match wait.next(&exchange).map_err(|problem| about(&problem))? {
                HttpStep::Head(head) => head,
                _ => return Err(about("sent no response")),
            };
            match head.status.as_u16() {
                200 => return body(&exchange, &head, most, wait).map_err(|it| it.about(&host)),
                300..=399 => {
                    let target = follow(&url, header(&head, "location"));
                    url = target.ok_or_else(|| about("redirects to something that is not a web URL, or out of an encrypted connection"))?;
                }
                status => return Err(about(&format!("answers with status {status}"))),
            }
        }
        Err(format!("redirects more than {MAX_REDIRECTS} times"))
    }

    fn start(&self, url: &str) -> Result<HttpExchange, String> {
        let config =
            agent_config(&self.trust).proxy(None).timeout_connect(Some(CONNECT_TIMEOUT)).build();
        let resolver = PublicResolver::new(self.allows_private);
        let agent = Agent::with_parts(config, DefaultConnector::default(), resolver);
        let request =
            agent.get(url).header("Accept", "image/*").header("Accept-Encoding", "identity");
        HttpExchange::start("llb-media", agent, &self.trust, BUFFERING, |_| request.call())
            .map_err(|error| error.message().to_owned())
    }
}

/// A problem with a body.
enum BodyFault {
    TooLong(usize),
    Other(String),
}

impl BodyFault {
    fn about(self, host: &str) -> String {
        match self {
            BodyFault::TooLong(most) => too_long(most),
            BodyFault::Other(problem) => format!("{host}: {problem}"),
        }
    }
}

fn body(
    exchange: &HttpExchange,
    head: &Parts,
    most: usize,
    wait: &FetchWait,
) -> Result<Vec<u8>, BodyFault> {
    if is_compressed(head) {
        let problem = "sent a compressed response, which was not requested";
        return Err(BodyFault::Other(problem.to_owned()));
    }
    let length = header(head, "content-length").parse::<u64>();
    if length.is_ok_and(|length| length > most as u64) {
        return Err(BodyFault::TooLong(most));
    }
    let mut body = Vec::new();
    while let HttpStep::Bytes(bytes) = wait.next(exchange).map_err(BodyFault::Other)? {
        if body.len() + bytes.len() > most {
            return Err(BodyFault::TooLong(most));
        }
        body.extend_from_slice(&bytes);
    }
    Ok(body)
}

impl FetchWait<'_> {
    /// The next step of an exchange.
    fn next(&self, exchange: &HttpExchange) -> Result<HttpStep, String> {
        let deadline = self.wait.deadline.map_or(self.until, |deadline| deadline.min(self.until));
        let problem = match exchange.next(Some(deadline), self.wait.is_over) {
            WaitEnd::Next(HttpStep::Failed(HttpFailure::Untrusted(problem))) => problem,
            WaitEnd::Next(HttpStep::Failed(HttpFailure::Connection(error))) => {
                connection_problem(&error)
            }
            WaitEnd::Next(step) => return Ok(step),
            WaitEnd::Closed => "the connection was lost".to_owned(),
            WaitEnd::Late => "the response takes too long".to_owned(),
            WaitEnd::Cancelled => "the call was cancelled".to_owned(),
        };
        Err(problem)
    }
}

/// The host of a URL for messages.
fn checked_host(url: &str) -> Result<String, String> {
    let authority = url.parse::<Uri>().ok().and_then(|uri| uri.authority().cloned());
    if authority.is_some_and(|authority| authority.as_str().contains('@')) {
        return Err("a URL with a user name; leave it out".to_owned());
    }
    let origin = UrlOrigin::of(url).ok_or(
        "not a URL of a file on a server; other characters than those of URLs are written as %XX",
    )?;
    Ok(origin.shown())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_fetch_has_a_longest_time() {
        // Connections wait here, and are never answered.
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = silent.local_addr().unwrap();
        let files = WebFiles {
            trust: TrustStore::default(),
            allows_private: true,
            max_time: Duration::from_millis(20),
        };
        let wait = MediaWait { deadline: None, is_over: &|| false };
        let problem = files.fetch(&format!("http://{address}/a.png"), 9, wait).unwrap_err();
        assert_eq!(problem, format!("{address}: the response takes too long"));
    }
}
