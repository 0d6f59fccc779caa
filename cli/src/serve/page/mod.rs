//! The page at `/`: one file of HTML, CSS and JavaScript, with a policy that prevents a browser
//! from running anything else.

use std::sync::LazyLock;

use axum::body::Body;
use axum::http::{HeaderValue, Response, header};
use sha2::{Digest, Sha256};

/// The page as a browser hashes it: HTML parsers convert CRLF to LF.
static PAGE: LazyLock<String> = LazyLock::new(|| include_str!("page.html").replace("\r\n", "\n"));

static POLICY: LazyLock<HeaderValue> = LazyLock::new(|| {
    let policy = policy(&PAGE);
    HeaderValue::from_str(&policy).expect("a policy has only characters of base64 and fixed words")
});

/// Needs no key, because the page contains nothing about the models.
pub(super) async fn show() -> Response<Body> {
    let mut response = Response::new(Body::from(PAGE.as_str()));
    let headers = response.headers_mut();
    let html = HeaderValue::from_static("text/html; charset=utf-8");
    headers.insert(header::CONTENT_TYPE, html);
    headers.insert(header::CONTENT_SECURITY_POLICY, POLICY.clone());
    // Another version of the program has a different page.
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    response
}

/// Source: <https://www.w3.org/TR/CSP3/>.
fn policy(page: &str) -> String {
    let script = source(element(page, "<script>", "</script>"));
    let style = source(element(page, "<style>", "</style>"));
    format!(
        "default-src 'none'; script-src {script}; style-src {style}; connect-src 'self'; \
         img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
}

/// The content of the only element with this tag. No comment in the page contains the tag.
fn element<'a>(page: &'a str, start: &str, end: &str) -> &'a str {
    let after = page.split_once(start).map_or("", |(_, after)| after);
    after.split_once(end).map_or("", |(content, _)| content)
}

/// The hash of an inline element, as a source of a policy.
fn source(content: &str) -> String {
    format!("'sha256-{}'", base64(&Sha256::digest(content.as_bytes())))
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for group in bytes.chunks(3) {
        let byte = |index: usize| u32::from(group.get(index).copied().unwrap_or_default());
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for index in 0..4 {
            let digit = DIGITS[(bits >> (18 - 6 * index)) as usize % 64];
            text.push(if index <= group.len() { char::from(digit) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The test vectors of RFC 4648, section 10.
    #[test]
    fn base64_is_that_of_the_rfc() {
        let vectors = [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ];
        for (bytes, text) in vectors {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
    }
}
