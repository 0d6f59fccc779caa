//! Allows pages of other sites to use the server from a browser, if the operator names their
//! origins.
//!
//! Source: <https://fetch.spec.whatwg.org/#http-cors-protocol>.

use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, Method, Response, StatusCode, header};

const METHODS: HeaderValue = HeaderValue::from_static("GET, POST, DELETE");
/// How many seconds a browser may cache the response to a preflight request.
const MAX_AGE: HeaderValue = HeaderValue::from_static("600");
/// The response headers that pages may read, besides those that are always readable.
const EXPOSED: HeaderValue = HeaderValue::from_static("retry-after");

#[derive(Debug, Default)]
pub(crate) struct Cors {
    /// The permitted origins: `SCHEME://HOST[:PORT]`, or `*` for all.
    origins: Vec<String>,
}

impl Cors {
    pub(crate) fn new(origins: &[String]) -> Cors {
        Cors { origins: origins.to_vec() }
    }

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
pub(crate) fn permit(response: &mut HeaderMap, origin: HeaderValue) {
    response.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    response.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED);
    response.insert(header::VARY, HeaderValue::from_static("origin"));
}

/// Parses an origin given on the command line.
pub(crate) fn origin(text: &str) -> Result<String, String> {
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
    fn only_named_origins_are_permitted() {
        let permits = |named: &[&str], text: &'static str| {
            let named: Vec<String> = named.iter().map(|&name| name.to_owned()).collect();
            let headers = [(header::ORIGIN, HeaderValue::from_static(text))];
            Cors::new(&named).permitted(&headers.into_iter().collect()).is_some()
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
