//! Who may use the server: clients with the API key, and pages of other sites if the operator names
//! their origins (CORS).
//!
//! Source: <https://fetch.spec.whatwg.org/#http-cors-protocol>.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, Method, Response, StatusCode, header};
use clap::Args;

use super::error::ApiError;
use crate::failure::{Failure, Result};
use crate::input;

const METHODS: HeaderValue = HeaderValue::from_static("GET, POST, DELETE");
/// How many seconds a browser may cache the response to a preflight request.
const MAX_AGE: HeaderValue = HeaderValue::from_static("600");
/// The response headers that pages may read, besides those that are always readable.
const EXPOSED: HeaderValue = HeaderValue::from_static("retry-after");

/// The arguments about the address and about access.
#[derive(Debug, Args)]
pub(super) struct AccessArguments {
    /// Address to listen on. The default accepts connections from this machine only
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    host: IpAddr,
    /// Port; 0 chooses a free one
    #[arg(long, default_value_t = 8080)]
    port: u16,
    /// File with the key that clients must send
    #[arg(long, value_name = "FILE")]
    api_key_file: Option<PathBuf>,
    /// The key itself; other users of the machine can read arguments, but not the environment
    #[arg(long, env = "LLB_API_KEY", hide_env_values = true, value_name = "KEY")]
    api_key: Option<String>,
    /// Origin of web pages that may use the server, such as https://example.org, or * for all; may
    /// be given more than once [default: none]
    #[arg(long, value_name = "ORIGIN", value_parser = origin)]
    cors_origin: Vec<String>,
}

impl AccessArguments {
    pub(super) fn address(&self) -> SocketAddr {
        SocketAddr::new(self.host, self.port)
    }

    pub(super) fn access(&self) -> Result<Access> {
        let key = match &self.api_key_file {
            Some(path) => Some(input::text(path)?.trim().to_owned()),
            None => self.api_key.clone(),
        };
        if key.as_ref().is_some_and(String::is_empty) {
            return Err(Failure::new("the API key is empty"));
        }
        let cors = Cors { origins: self.cors_origin.clone() };
        Ok(Access { key, cors, host: self.host })
    }
}

pub(crate) struct Access {
    key: Option<String>,
    pub(crate) cors: Cors,
    /// The address that the server listens on.
    host: IpAddr,
}

impl Access {
    /// Warns on stderr if programs or pages of others can use the models.
    pub(super) fn warn(&self) {
        if self.key.is_some() {
            return;
        }
        let is_for_all = self.cors.origins.iter().any(|origin| origin == "*");
        if !self.host.is_loopback() {
            say!("llb: any program that reaches {} can use the models", self.host);
        }
        if is_for_all {
            say!("llb: any web page in a browser on this machine can use the models");
        }
        if is_for_all || !self.host.is_loopback() {
            say!("next: set a key with --api-key-file or LLB_API_KEY");
        }
    }

    /// Checks the key. It is sent as `Authorization: Bearer KEY`, or as `x-api-key` by Anthropic's
    /// clients.
    pub(crate) fn check_key(&self, headers: &HeaderMap) -> std::result::Result<(), ApiError> {
        let Some(key) = &self.key else { return Ok(()) };
        let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
        let bearer = text(header::AUTHORIZATION.as_str()).and_then(|value| {
            let (scheme, token) = value.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
        });
        let given = bearer.or_else(|| text("x-api-key"));
        match given {
            Some(given) if are_equal(given.as_bytes(), key.as_bytes()) => Ok(()),
            Some(_) => Err(unauthorized("the API key is wrong").with_code("invalid_api_key")),
            None => {
                Err(unauthorized("the API key is missing; send it as `Authorization: Bearer KEY`"))
            }
        }
    }

    /// Prevents a page of another site from using this server through a browser: neither with a
    /// cross-origin request, nor through a host name of the attacker that resolves to this machine.
    pub(crate) fn check_origin(&self, headers: &HeaderMap) -> std::result::Result<(), ApiError> {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let host = text("host").unwrap_or_default();
        if self.host.is_loopback() && !host.is_empty() && !is_local(host) {
            return Err(forbidden("the header Host names another machine"));
        }
        let Some(origin) = text("origin") else { return Ok(()) };
        let of_origin = origin.split_once("://").map(|(_, host)| host);
        if of_origin.is_some_and(|origin| origin.eq_ignore_ascii_case(host))
            || self.cors.permitted(headers).is_some()
        {
            return Ok(());
        }
        Err(forbidden("pages of other sites may not use this server"))
    }
}

fn is_local(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let name = name.trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost")
        || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Compares in constant time.
fn are_equal(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |different, (a, b)| different | (a ^ b)) == 0
}

fn unauthorized(message: &str) -> ApiError {
    ApiError::new(StatusCode::UNAUTHORIZED, message)
}

fn forbidden(message: &str) -> ApiError {
    ApiError::new(StatusCode::FORBIDDEN, message)
}

#[derive(Debug, Default)]
pub(crate) struct Cors {
    /// The permitted origins: `SCHEME://HOST[:PORT]`, or `*` for all.
    origins: Vec<String>,
}

impl Cors {
    /// The origin of a request, if it is permitted.
    pub(crate) fn permitted(&self, headers: &HeaderMap) -> Option<HeaderValue> {
        let origin = headers.get(header::ORIGIN)?;
        let text = origin.to_str().ok()?;
        let is_named = |each: &String| each == "*" || each.eq_ignore_ascii_case(text);
        self.origins.iter().any(is_named).then(|| origin.clone())
    }
}

/// The response to a preflight request, with which a browser asks whether a page may send the real
/// request. `None` for other requests.
pub(crate) fn preflight(method: &Method, headers: &HeaderMap) -> Option<Response<Body>> {
    if method != Method::OPTIONS || !headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD) {
        return None;
    }
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    let answer = response.headers_mut();
    answer.insert(header::ACCESS_CONTROL_ALLOW_METHODS, METHODS);
    answer.insert(header::ACCESS_CONTROL_MAX_AGE, MAX_AGE);
    // Either of two headers can carry the key, and clients add further headers.
    if let Some(wanted) = headers.get(header::ACCESS_CONTROL_REQUEST_HEADERS) {
        answer.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, wanted.clone());
    }
    Some(response)
}

/// Lets the page of a permitted origin read a response.
pub(crate) fn permit_origin(response: &mut HeaderMap, origin: HeaderValue) {
    response.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    response.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED);
    response.insert(header::VARY, HeaderValue::from_static("origin"));
}

/// Parses an origin given on the command line.
fn origin(text: &str) -> std::result::Result<String, String> {
    let host = text.split_once("://").map(|(_, host)| host);
    let is_origin = host.is_some_and(|host| !host.is_empty() && !host.contains(['/', '?', '#']));
    if text == "*" || is_origin {
        return Ok(text.to_owned());
    }
    Err("expected an origin such as https://example.org, or *".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_names_are_known() {
        for host in
            ["localhost", "LOCALHOST:80", "127.0.0.1:8080", "127.9.9.9", "[::1]", "[::1]:80"]
        {
            assert!(is_local(host), "{host}");
        }
        for host in ["example.org", "localhost.example.org:80", "10.0.0.1", "127.0.0.1.example.org"]
        {
            assert!(!is_local(host), "{host}");
        }
    }

    #[test]
    fn only_named_origins_are_permitted() {
        let permits = |named: &[&str], text: &'static str| {
            let named: Vec<String> = named.iter().map(|&name| name.to_owned()).collect();
            let headers = [(header::ORIGIN, HeaderValue::from_static(text))];
            Cors { origins: named }.permitted(&headers.into_iter().collect()).is_some()
        };
        assert!(!permits(&[], "https://a.org"));
        assert!(permits(&["https://b.org", "https://a.org"], "https://A.org"));
        assert!(!permits(&["https://a.org"], "https://a.org.evil.org"));
        assert!(!permits(&["https://a.org"], "http://a.org"));
        assert!(permits(&["*"], "null"));
    }

    #[test]
    fn an_origin_has_no_path() {
        for good in ["*", "https://a.org", "http://localhost:3000", "app://bundle"] {
            assert_eq!(origin(good).as_deref(), Ok(good));
        }
        for bad in ["", "a.org", "https://", "https://a.org/", "https://a.org/x"] {
            assert!(origin(bad).is_err(), "{bad}");
        }
    }
}
