//! Parses server-sent events: converts chunks of bytes of any size to the data of each event.
//!
//! Follows the WHATWG HTML standard, section 9.2.6: lines end with LF, CRLF or CR, several `data`
//! lines are joined by LF, and comments and other fields are ignored. An event that is incomplete
//! at the end of the stream is dropped.

/// The maximum number of bytes of one event. No server sends more, even with log probabilities.
const MAX_BYTES: usize = 1 << 20;

/// An event is longer than `MAX_BYTES`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TooLong;

/// Parses one stream.
#[derive(Debug, Default)]
pub(super) struct SseParser {
    line: Vec<u8>,
    data: Option<Vec<u8>>,
    /// Whether the last byte was CR. A following LF then does not end another line.
    after_cr: bool,
    began: bool,
}

impl SseParser {
    /// Parses bytes and appends the data of the completed events to `events`.
    pub(super) fn push(&mut self, bytes: &[u8], events: &mut Vec<Vec<u8>>) -> Result<(), TooLong> {
        for &byte in bytes {
            match byte {
                b'\n' if self.after_cr => self.after_cr = false,
                b'\n' | b'\r' => {
                    self.after_cr = byte == b'\r';
                    self.end_line(events);
                }
                _ => {
                    self.after_cr = false;
                    self.line.push(byte);
                    if self.line.len() + self.data.as_ref().map_or(0, Vec::len) > MAX_BYTES {
                        return Err(TooLong);
                    }
                }
            }
        }
        Ok(())
    }

    fn end_line(&mut self, events: &mut Vec<Vec<u8>>) {
        let line = std::mem::take(&mut self.line);
        // The stream may begin with a byte order mark.
        let line = if std::mem::replace(&mut self.began, true) {
            &*line
        } else {
            line.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(&line)
        };
        if line.is_empty() {
            events.extend(self.data.take());
            return;
        }
        let value = match line.strip_prefix(b"data") {
            Some([]) => &[],
            Some([b':', value @ ..]) => value.strip_prefix(b" ").unwrap_or(value),
            _ => return,
        };
        match &mut self.data {
            None => self.data = Some(value.to_vec()),
            Some(data) => {
                data.push(b'\n');
                data.extend_from_slice(value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(stream: &str, expected: &[&str]) {
        for size in [1, 2, 3, 7, usize::MAX] {
            let mut parser = SseParser::default();
            let mut events = Vec::new();
            for bytes in stream.as_bytes().chunks(size.min(stream.len().max(1))) {
                parser.push(bytes, &mut events).expect("short");
            }
            let events: Vec<_> =
                events.iter().map(|event| std::str::from_utf8(event).expect("UTF-8")).collect();
            assert_eq!(events, expected, "{stream:?} in chunks of {size}");
        }
    }

    #[test]
    fn events_do_not_depend_on_chunks() {
        check("data: a\n\ndata: gr\u{fc}n \u{1F600}\n\n", &["a", "gr\u{fc}n \u{1F600}"]);
        check("data: a\r\n\r\ndata:b\r\rdata\n\n", &["a", "b", ""]);
        check("data: one\ndata:  two\n\n", &["one\n two"]);
        check("\u{FEFF}data: a\n\n", &["a"]);
        check(": ping\n\nevent: x\nid: 3\ndata: a\nretry: 5\n\n\n\n", &["a"]);
        check("database: x\n dat\n\n", &[]);
        check("data: [DONE]\n\ndata: cut off", &["[DONE]"]);
    }

    #[test]
    fn an_endless_event_is_refused() {
        let chunk = [b'x'; 4096];
        for line in ["", ":", "data: y\ndata: "] {
            let mut parser = SseParser::default();
            let mut events = Vec::new();
            parser.push(line.as_bytes(), &mut events).expect("short");
            let pushed = (0..MAX_BYTES / chunk.len() + 1)
                .take_while(|_| parser.push(&chunk, &mut events).is_ok())
                .count();
            assert_eq!(
                (pushed, events.len()),
                (MAX_BYTES / chunk.len() - usize::from(!line.is_empty()), 0),
                "{line:?}"
            );
        }
    }
}
