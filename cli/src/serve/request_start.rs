//! Remembers the first bytes of the request that a connection is reading. If an error occurs before
//! the request is complete, its shape is that of the path's protocol, if the path has already
//! arrived.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::error::Protocol;

/// Enough for a method, a host name and any path that determines a protocol.
const MAX_BYTES: usize = 1024;

#[derive(Clone, Default)]
pub(super) struct RequestStart(Arc<Mutex<Start>>);

#[derive(Default)]
struct Start {
    bytes: Vec<u8>,
    /// Whether the headers are complete.
    is_parsed: bool,
    /// Whether the next byte belongs to another request.
    is_answered: bool,
}

impl RequestStart {
    /// Records bytes from the client.
    pub(super) fn read(&self, bytes: &[u8]) {
        let mut start = self.start();
        if std::mem::take(&mut start.is_answered) {
            start.bytes.clear();
            start.is_parsed = false;
        }
        let room = MAX_BYTES.saturating_sub(start.bytes.len());
        let is_first = start.bytes.is_empty();
        // hyper ignores empty lines before a request.
        let bytes = bytes.iter().skip_while(|byte| is_first && matches!(byte, b'\r' | b'\n'));
        start.bytes.extend(bytes.take(room));
    }

    /// Records that hyper has read the headers.
    pub(super) fn parsed(&self) {
        self.start().is_parsed = true;
    }

    /// Whether hyper has read the headers.
    pub(super) fn is_parsed(&self) -> bool {
        self.start().is_parsed
    }

    /// Whether nothing of a request has arrived since the last response.
    pub(super) fn is_empty(&self) -> bool {
        let start = self.start();
        start.is_answered || start.bytes.is_empty()
    }

    /// Records that the server has sent something.
    pub(super) fn answered(&self) {
        self.start().is_answered = true;
    }

    /// The protocol of the path.
    pub(super) fn protocol(&self) -> Protocol {
        Protocol::of(path(&String::from_utf8_lossy(&self.start().bytes)))
    }

    fn start(&self) -> MutexGuard<'_, Start> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The path in the request line, which may be incomplete or malformed. Empty without a path.
fn path(request: &str) -> &str {
    let line = request.split(['\r', '\n']).next().unwrap_or_default();
    let target = line.split([' ', '\t']).find(|word| word.starts_with('/') || word.contains("://"));
    let target = target.unwrap_or_default();
    // A client of a proxy sends a URL.
    let path = match target.split_once("://") {
        Some((scheme, rest)) if !scheme.contains('/') => {
            rest.find('/').map_or("", |start| &rest[start..])
        }
        _ => target,
    };
    // No other characters are permitted in a path.
    let end = path.find(|c: char| !c.is_ascii_graphic() || matches!(c, '?' | '#'));
    &path[..end.unwrap_or(path.len())]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_of_the_last_request_counts() {
        let start = RequestStart::default();
        assert_eq!(start.protocol(), Protocol::OpenAi);
        assert!(start.is_empty());
        start.read(b"POST /v1/mess");
        assert!(!start.is_empty());
        start.read(b"ages?a=b HTTP/1.1\r\n");
        assert_eq!(start.protocol(), Protocol::Anthropic);
        start.answered();
        assert!(start.is_empty());
        start.read(b"GET /health HTTP/1.1\r\n");
        assert!(!start.is_empty());
        assert_eq!(start.protocol(), Protocol::OpenAi);
        start.answered();
        start.read(b"POST /v1/messages/count_tokens\xff");
        assert_eq!(start.protocol(), Protocol::Anthropic);
    }

    #[track_caller]
    fn check(request: &[u8], protocol: Protocol) {
        let start = RequestStart::default();
        start.read(request);
        assert_eq!(start.protocol(), protocol, "{}", String::from_utf8_lossy(request));
        let slow = RequestStart::default();
        request.iter().for_each(|byte| slow.read(&[*byte]));
        assert_eq!(slow.protocol(), protocol, "{}", String::from_utf8_lossy(request));
    }

    #[test]
    fn the_path_is_found_in_wrong_request_lines() {
        for request in [
            &b"POST /v1/messages"[..],
            b"POST /v1/messages\r\n\r\n",
            b"POST /v1/messages\n",
            b"\r\n\r\nPOST /v1/messages HTTP/1.1\r\n",
            b"POST  /v1/messages HTTP/1.1\r\n",
            b"POST\t/v1/messages\tHTTP/1.1\r\n",
            b"/v1/messages HTTP/1.1\r\n",
            b"POST http://localhost:80/v1/messages HTTP/1.1\r\n",
            b"POST http://localhost/v1/messages/x?a=/b HTTP/1.1\r\n",
            b"POST /v1/messages#a HTTP/1.1\r\n",
            b"POST /v1/messages\0 HTTP/1.1\r\n",
            b"POST /v1/messages/\xff HTTP/1.1\r\n",
            b"POST /v1/messages?a=http://b/c HTTP/1.1\r\n",
            format!("{} /v1/messages HTTP/1.1\r\n", "M".repeat(200)).as_bytes(),
        ] {
            check(request, Protocol::Anthropic);
        }
        for request in [
            &b""[..],
            b"POST",
            b"GARBAGE\r\n/v1/messages",
            b"POST /v1/messagess HTTP/1.1\r\n",
            b"POST /v1/models HTTP/1.1\r\nreferer: http://a/v1/messages\r\n",
            b"POST /x?a=http://b/v1/messages HTTP/1.1\r\n",
            b"POST http://localhost HTTP/1.1\r\n",
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        ] {
            check(request, Protocol::OpenAi);
        }
    }
}
