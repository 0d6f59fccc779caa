//! Who may use the server: clients with the API key, and pages of other sites if the operator names
//! their origins (CORS).
//!
//! Source: <https://fetch.spec.whatwg.org/#http-cors-protocol>.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use axum::body::Body;
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Version, header};
use clap::Args;

use super::error::ApiError;
use crate::failure::{Failure, Result};
use crate::input;

/// The default port.
pub(crate) const PORT: u16 = 8080;

const METHODS: HeaderValue = HeaderValue::from_static("GET, POST, DELETE");
/// How many seconds a browser may cache the response to a preflight request.
const MAX_AGE: HeaderValue = HeaderValue::from_static("600");
/// The response headers that pages may read, besides those that are always readable.
const EXPOSED: HeaderValue = HeaderValue::from_static("retry-after, x-llb-diagnostics");
/// The most characters of a header in an error.
const MAX_NAMED: usize = 200;
/// The word for the origins of this machine.
const LOCAL: &str = "local";
/// The schemes of pages in editors and desktop apps: Electron, VS Code, Tauri, Capacitor.
const APP_SCHEMES: [&str; 5] = ["app", "vscode-webview", "vscode-file", "tauri", "capacitor"];

/// The arguments about the address and about access.
#[derive(Debug, Args)]
pub(super) struct AccessArguments {
    /// Address to listen on. The default accepts connections from this machine only
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    host: IpAddr,
    /// Port; 0 chooses a free one
    #[arg(long, default_value_t = PORT)]
    port: u16,
    /// File with the key that clients must send
    #[arg(long, value_name = "FILE")]
    api_key_file: Option<PathBuf>,
    /// The key itself; other users of the machine can read arguments, but not the environment
    #[arg(long, env = "LLB_API_KEY", hide_env_values = true, value_name = "KEY")]
    api_key: Option<String>,
    /// Origin of web pages that may use the server, such as https://example.org; "local" for pages
    /// of this machine, of editors and of desktop apps; * for all; may be given more than once
    /// [default: none]
    #[arg(long, alias = "cors-origin", value_name = "ORIGIN", value_parser = origin)]
    allow_origin: Vec<String>,
    /// Another name that clients may send as Host, such as that of a proxy, or * for all; may be
    /// given more than once [default: names of this machine, with --host of a loopback address]
    #[arg(long, value_name = "NAME", value_parser = host_name)]
    allow_host: Vec<String>,
}

impl AccessArguments {
    pub(super) fn address(&self) -> SocketAddr {
        SocketAddr::new(self.host, self.port)
    }

    /// The key that clients must send.
    pub(super) fn key(&self) -> Result<Option<String>> {
        let key = match &self.api_key_file {
            Some(path) => Some(input::text(path)?.trim().to_owned()),
            None => self.api_key.clone(),
        };
        if key.as_ref().is_some_and(String::is_empty) {
            return Err(Failure::new("the API key is empty"));
        }
        Ok(key)
    }

    pub(super) fn access(&self) -> Result<Access> {
        let key = self.key()?;
        let cors = Cors { origins: self.allow_origin.clone() };
        Ok(Access { key, cors, host: self.host, hosts: self.allow_host.clone() })
    }
}

pub(crate) struct Access {
    key: Option<String>,
    pub(crate) cors: Cors,
    /// The address that the server listens on.
    host: IpAddr,
    /// Further names of the server, or `*` for any.
    hosts: Vec<String>,
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
    pub(crate) fn check_origin<B>(
        &self,
        request: &Request<B>,
    ) -> std::result::Result<(), ApiError> {
        let headers = request.headers();
        let named = host(request)?;
        // A client of a proxy sends a URL.
        let target = request.uri().authority().map(Authority::as_str);
        let mut hosts = named.into_iter().chain(target);
        if self.host.is_loopback()
            && let Some(other) = hosts.clone().find(|host| !is_local(host) && !self.is_named(host))
        {
            let name: String = without_port(other).chars().take(MAX_NAMED).collect();
            return Err(forbidden(&format!(
                "the header Host names another machine; if {name:?} is a name of this server, start \
                 it with --allow-host {name}"
            )));
        }
        let mut origins = headers.get_all(header::ORIGIN).iter();
        let (Some(origin), second) = (origins.next(), origins.next()) else { return Ok(()) };
        let of_origin = origin.to_str().ok().and_then(|origin| Some(origin.split_once("://")?.1));
        let is_own = of_origin.is_some_and(|origin| {
            hosts.clone().count() > 0 && hosts.all(|host| host.eq_ignore_ascii_case(origin))
        });
        if second.is_none() && (is_own || self.cors.permitted(headers).is_some()) {
            return Ok(());
        }
        let name = origin.to_str().unwrap_or("ORIGIN").chars().take(MAX_NAMED).collect::<String>();
        Err(forbidden(&format!(
            "pages of other sites may not use this server; to allow this one, start the server with \
             --allow-origin {name}"
        )))
    }

    /// Whether `--allow-host` permits a host.
    fn is_named(&self, host: &str) -> bool {
        let name = without_port(host);
        self.hosts.iter().any(|each| each == "*" || each.eq_ignore_ascii_case(name))
    }
}

/// The value of `Host`, which HTTP/1.1 requires. Source: RFC 9112, section 3.2.
fn host<B>(request: &Request<B>) -> std::result::Result<Option<&str>, ApiError> {
    let bad = |message| Err(ApiError::new(StatusCode::BAD_REQUEST, message));
    let mut values = request.headers().get_all(header::HOST).iter();
    match (values.next(), values.next()) {
        (None, _) if request.version() <= Version::HTTP_10 => Ok(None),
        (None, _) => bad("the header Host is missing"),
        (Some(_), Some(_)) => bad("there are several headers Host"),
        (Some(host), None) => match host.to_str() {
            Ok(host) if is_authority(host) => Ok(Some(host)),
            _ => bad("the header Host is not the name of a host"),
        },
    }
}

/// Whether a text has only characters of a host and a port. Source: RFC 3986, section 3.2.
fn is_authority(host: &str) -> bool {
    let is_permitted =
        |byte: u8| byte.is_ascii_alphanumeric() || b"-._~%!$&'()*+,;=:[]".contains(&byte);
    !host.is_empty() && host.bytes().all(is_permitted)
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    }
}

fn is_local(host: &str) -> bool {
    let name = without_port(host).trim_start_matches('[').trim_end_matches(']');
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
    /// The permitted origins: `SCHEME://HOST[:PORT]`, [`LOCAL`], or `*` for all.
    origins: Vec<String>,
}

impl Cors {
    /// The origin of a request, if it is permitted.
    pub(crate) fn permitted(&self, headers: &HeaderMap) -> Option<HeaderValue> {
        let origin = headers.get(header::ORIGIN)?;
        let text = origin.to_str().ok()?;
        let is_named = |each: &String| match each.as_str() {
            "*" => true,
            LOCAL => is_local_origin(text),
            each => each.eq_ignore_ascii_case(text),
        };
        self.origins.iter().any(is_named).then(|| origin.clone())
    }
}

/// Whether an origin is a page of this machine, or of an app on it. A page of the web never has such
/// a scheme.
fn is_local_origin(origin: &str) -> bool {
    let Some((scheme, host)) = origin.split_once("://") else { return false };
    match scheme {
        "http" | "https" => is_local(host),
        scheme => APP_SCHEMES.contains(&scheme),
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
    if ["*", LOCAL].contains(&text) || is_origin {
        return Ok(text.to_owned());
    }
    Err("expected an origin such as https://example.org, \"local\" or *".to_owned())
}

/// Parses a host given on the command line.
fn host_name(text: &str) -> std::result::Result<String, String> {
    if text == "*" || is_authority(text) && without_port(text) == text {
        return Ok(text.to_owned());
    }
    Err("expected a name such as llb.example.org, without a port, or *".to_owned())
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

    /// Checks the status of a request with these headers, 200 if it is permitted.
    #[track_caller]
    fn check_host(target: &str, version: Version, headers: &[(&str, &[u8])], expected: u16) {
        check_host_with(&[], target, version, headers, expected);
    }

    #[track_caller]
    fn check_host_with(
        hosts: &[&str],
        target: &str,
        version: Version,
        headers: &[(&str, &[u8])],
        expected: u16,
    ) {
        let (key, cors) = (None, Cors::default());
        let hosts = hosts.iter().map(|&name| name.to_owned()).collect();
        let access = Access { key, cors, host: [127, 0, 0, 1].into(), hosts };
        let mut request = Request::builder().uri(target).version(version);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let checked = access.check_origin(&request.body(()).unwrap());
        let status = checked.map_or_else(|error| error.status, |()| StatusCode::OK);
        assert_eq!(status, expected, "{target} {version:?} {headers:?}");
    }

    #[test]
    fn a_request_names_one_host_and_one_origin() {
        let check = |headers: &[(&str, &[u8])], expected| {
            check_host("/", Version::HTTP_11, headers, expected);
        };
        check(&[("host", b"localhost")], 200);
        check(&[], 400);
        check_host("/", Version::HTTP_10, &[], 200);
        check_host("/", Version::HTTP_10, &[("host", b"example.org")], 403);
        check(&[("host", b"localhost"), ("host", b"localhost")], 400);
        check(&[("host", b"localhost"), ("host", b"example.org")], 400);
        for bad in [&b""[..], b"\xe9", b"localhost\xff", b"local host", b"a@localhost", b"a/b"] {
            check(&[("host", bad)], 400);
        }
        let url = "http://example.org/";
        check_host(url, Version::HTTP_11, &[("host", b"localhost")], 403);
        check_host("http://localhost/", Version::HTTP_11, &[("host", b"localhost")], 200);
        let host = ("host", &b"localhost:80"[..]);
        check(&[host, ("origin", b"http://localhost:80")], 200);
        for bad in [
            &b"null"[..],
            b"",
            b"http://localhost",
            b"\xe9",
            b"http://\xe9.org",
            b"http://localhost:80\xff",
        ] {
            check(&[host, ("origin", bad)], 403);
        }
        let own = ("origin", &b"http://localhost:80"[..]);
        check(&[host, own, own], 403);
        check(&[host, own, ("origin", b"http://example.org")], 403);
        check_host("/", Version::HTTP_10, &[("origin", b"http://")], 403);
    }

    #[test]
    fn named_hosts_are_permitted() {
        for (named, host, expected) in [
            ("a.org", "a.org", 200),
            ("a.org", "A.org:8080", 200),
            ("a.org", "b.a.org", 403),
            ("a.org", "localhost", 200),
            ("*", "b.org", 200),
        ] {
            let headers = [("host", host.as_bytes())];
            check_host_with(&[named], "/", Version::HTTP_11, &headers, expected);
        }
        for bad in ["", "a.org:80", "https://a.org", "a b"] {
            assert!(host_name(bad).is_err(), "{bad}");
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
        for own in [
            "http://localhost:3000",
            "https://localhost",
            "http://127.0.0.1:5173",
            "app://obsidian.md",
            "vscode-webview://1abc",
        ] {
            assert!(permits(&["local"], own), "{own}");
        }
        for other in ["http://localhost.evil.org", "https://a.org", "null", "file://", "x://app"] {
            assert!(!permits(&["local"], other), "{other}");
        }
    }

    #[test]
    fn an_origin_has_no_path() {
        for good in ["*", "local", "https://a.org", "http://localhost:3000", "app://bundle"] {
            assert_eq!(origin(good).as_deref(), Ok(good));
        }
        for bad in ["", "a.org", "https://", "https://a.org/", "https://a.org/x"] {
            assert!(origin(bad).is_err(), "{bad}");
        }
    }
}
