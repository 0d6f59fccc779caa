//! Access control: the API key, and protection against requests from web pages of other sites.

use std::net::SocketAddr;

use axum::http::{HeaderMap, StatusCode, header};

use super::cors::Cors;
use super::error::ApiError;

pub(crate) struct Access {
    key: Option<String>,
    pub(crate) cors: Cors,
    is_loopback: bool,
}

impl Access {
    pub(crate) fn new(key: Option<String>, cors: Cors, address: SocketAddr) -> Access {
        Access { key, cors, is_loopback: address.ip().is_loopback() }
    }

    /// Checks the key. It is sent as `Authorization: Bearer KEY`, or as `x-api-key` by Anthropic's
    /// clients.
    pub(crate) fn check_key(&self, headers: &HeaderMap) -> Result<(), ApiError> {
        let Some(key) = &self.key else { return Ok(()) };
        let text = |name| {
            headers.get(name).and_then(|value: &axum::http::HeaderValue| value.to_str().ok())
        };
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
    pub(crate) fn check_origin(&self, headers: &HeaderMap) -> Result<(), ApiError> {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let host = text("host").unwrap_or_default();
        if self.is_loopback && !host.is_empty() && !is_local(host) {
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
        || name.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
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
}
