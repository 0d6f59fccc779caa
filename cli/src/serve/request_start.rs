//! Remembers the first bytes of the request that a connection is reading. If an error occurs before
//! the request is complete, its shape is that of the path's protocol, if the path has already
//! arrived.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::error::Protocol;

/// Enough for a method and any path that determines a protocol.
const MAX_BYTES: usize = 64;

#[derive(Clone, Default)]
pub(super) struct RequestStart(Arc<Mutex<Start>>);

#[derive(Default)]
struct Start {
    bytes: Vec<u8>,
    /// Whether the next byte belongs to another request.
    is_answered: bool,
}

impl RequestStart {
    /// Records bytes from the client.
    pub(super) fn read(&self, bytes: &[u8]) {
        let mut start = self.start();
        if std::mem::take(&mut start.is_answered) {
            start.bytes.clear();
        }
        let room = MAX_BYTES.saturating_sub(start.bytes.len());
        start.bytes.extend(bytes.iter().take(room));
    }

    /// Records that the server has sent something.
    pub(super) fn answered(&self) {
        self.start().is_answered = true;
    }

    /// The protocol of the path.
    pub(super) fn protocol(&self) -> Protocol {
        let start = self.start();
        let mut words = start.bytes.split(|byte| *byte == b' ');
        let path = words.nth(1).unwrap_or_default();
        let path = path.split(|byte| *byte == b'?').next().unwrap_or_default();
        Protocol::of(&String::from_utf8_lossy(path))
    }

    fn start(&self) -> MutexGuard<'_, Start> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_of_the_last_request_counts() {
        let start = RequestStart::default();
        assert_eq!(start.protocol(), Protocol::OpenAi);
        start.read(b"POST /v1/mess");
        start.read(b"ages?a=b HTTP/1.1\r\n");
        assert_eq!(start.protocol(), Protocol::Anthropic);
        start.answered();
        start.read(b"GET /health HTTP/1.1\r\n");
        assert_eq!(start.protocol(), Protocol::OpenAi);
        start.answered();
        start.read(b"POST /v1/messages/count_tokens\xff");
        assert_eq!(start.protocol(), Protocol::Anthropic);
    }
}
