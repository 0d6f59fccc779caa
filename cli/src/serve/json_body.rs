//! Reads the body of a request into a JSON object, with limits for size, time, values and depth.

use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use http_body_util::{BodyExt, Limited};
use serde_json::Value;

use super::error::ApiError;

/// The most JSON values, as in the library. A value takes about a hundred bytes of memory.
const MAX_VALUES: usize = 1_000_000;

/// Refuses a compressed body, which may become much larger than `--max-body`.
pub(crate) fn check_encoding(headers: &HeaderMap) -> Result<(), ApiError> {
    let encoding = headers.get(header::CONTENT_ENCODING).map(HeaderValue::as_bytes);
    if encoding.is_none_or(|encoding| encoding.eq_ignore_ascii_case(b"identity")) {
        return Ok(());
    }
    let message = "the body is compressed; send it without Content-Encoding";
    Err(ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, message))
}

/// Reads a JSON object, which must arrive within `time`.
pub(crate) async fn read(body: Body, max_bytes: usize, time: Duration) -> Result<Value, ApiError> {
    let too_large = || {
        let message = format!("the body has more than {max_bytes} bytes");
        ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, message)
    };
    // Checked against `Content-Length` before the body is read.
    if body.size_hint().lower() > max_bytes as u64 {
        return Err(too_large());
    }
    let bytes = tokio::time::timeout(time, Limited::new(body, max_bytes).collect()).await;
    let bytes = match bytes {
        Err(_) => {
            return Err(ApiError::new(StatusCode::REQUEST_TIMEOUT, "the body comes too slowly"));
        }
        Ok(Err(error)) if error.is::<http_body_util::LengthLimitError>() => {
            return Err(too_large());
        }
        Ok(Err(error)) => return Err(bad(format!("the body cannot be read: {error}"))),
        Ok(Ok(collected)) => collected.to_bytes(),
    };
    parse(&bytes)
}

fn parse(bytes: &[u8]) -> Result<Value, ApiError> {
    let text = std::str::from_utf8(bytes).map_err(|error| {
        bad(format!("the body is not UTF-8: byte {} is invalid", error.valid_up_to()))
    })?;
    if text.trim().is_empty() {
        return Err(bad("the body is empty; expected a JSON object".to_owned()));
    }
    if values(bytes) > MAX_VALUES {
        return Err(bad(format!("the body has more than {MAX_VALUES} values")));
    }
    let value: Value = serde_json::from_str(text)
        .map_err(|error| bad(format!("the body is not JSON: {error}")))?;
    if value.is_object() { Ok(value) } else { Err(bad("the body is not a JSON object".to_owned())) }
}

/// A lower bound for the number of values: commas and brackets outside of strings.
fn values(bytes: &[u8]) -> usize {
    let (mut count, mut in_string, mut is_escaped) = (0, false, false);
    for byte in bytes {
        match (in_string, byte) {
            (true, _) if is_escaped => is_escaped = false,
            (true, b'\\') => is_escaped = true,
            (_, b'"') => in_string = !in_string,
            (false, b',' | b'[' | b'{') => count += 1,
            _ => {}
        }
    }
    count
}

fn bad(message: String) -> ApiError {
    ApiError::new(StatusCode::BAD_REQUEST, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(body: &[u8], message: &str) {
        let error = parse(body).unwrap_err();
        assert_eq!(error.status, StatusCode::BAD_REQUEST);
        assert!(error.message.contains(message), "{}", error.message);
    }

    #[test]
    fn wrong_bodies_are_refused() {
        check(b"", "empty");
        check(b"{", "not JSON");
        check(b"[]", "not a JSON object");
        check(b"{\"a\": \"\xff\"}", "not UTF-8: byte 7");
        check("[".repeat(100_000).as_bytes(), "not JSON");
        check(format!("[{}0]", "0,".repeat(MAX_VALUES)).as_bytes(), "more than 1000000 values");
    }

    #[test]
    fn commas_in_strings_are_not_values() {
        assert_eq!(values(br#"{"a,\",b": [1, 2]}"#), 3);
    }
}
