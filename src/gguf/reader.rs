//! A little-endian cursor over a file, with its own buffer.
//!
//! In: a source that reads and seeks, and its size. Out: numbers and strings. Each is checked
//! against the remaining bytes before anything is allocated. A skip inside the buffer moves an
//! index; a longer skip becomes a seek at the next read.

use std::io::{ErrorKind, Read, Seek, SeekFrom};

use crate::error::{Code, Error, Result};

/// Large enough to read a 6 MB header in fewer than a hundred reads.
const BUFFER_BYTES: usize = 64 * 1024;

/// The error `MODEL_INVALID` at a byte offset.
pub(crate) fn invalid(offset: u64, problem: impl std::fmt::Display) -> Error {
    Error::new(Code::ModelInvalid, format!("{problem} (at byte {offset})")).with("offset", offset)
}

pub(crate) struct Cursor<R> {
    source: R,
    /// The position of the source. It differs from `end` after a long skip.
    source_at: u64,
    size: u64,
    buffer: Box<[u8]>,
    /// The unread bytes are `buffer[head..tail]`.
    head: usize,
    tail: usize,
    /// The file offset of the byte after `buffer[tail - 1]`.
    end: u64,
}

impl<R: Read + Seek> Cursor<R> {
    /// Creates a cursor at byte 0 of a source of `size` bytes, regardless of the current position
    /// of the source.
    pub(crate) fn new(source: R, size: u64) -> Self {
        Cursor {
            source,
            source_at: u64::MAX,
            size,
            buffer: vec![0; BUFFER_BYTES].into_boxed_slice(),
            head: 0,
            tail: 0,
            end: 0,
        }
    }

    /// The file offset of the next byte.
    pub(crate) fn offset(&self) -> u64 {
        self.end - (self.tail - self.head) as u64
    }

    /// The number of bytes from the next one to the end of the file.
    pub(crate) fn remaining(&self) -> u64 {
        self.size.saturating_sub(self.offset())
    }

    /// Seeks to an offset that was read before.
    pub(crate) fn seek_to(&mut self, offset: u64) {
        self.head = 0;
        self.tail = 0;
        self.end = offset;
    }

    /// Fails if fewer than `n` bytes remain. `what` names the missing data in the message.
    fn require(&self, n: u64, what: &str) -> Result<()> {
        if n > self.remaining() {
            return Err(invalid(
                self.offset(),
                format_args!(
                    "{what} needs {n} bytes, but {} remain in the file, which may be cut off",
                    self.remaining()
                ),
            ));
        }
        Ok(())
    }

    /// Fills the buffer with at least `n` bytes. `n` must not exceed the size of the buffer.
    #[cold]
    fn fill(&mut self, n: usize, what: &str) -> Result<()> {
        self.require(n as u64, what)?;
        self.buffer.copy_within(self.head..self.tail, 0);
        self.tail -= self.head;
        self.head = 0;
        if self.source_at != self.end {
            self.source.seek(SeekFrom::Start(self.end)).map_err(|e| self.unreadable(e))?;
            self.source_at = self.end;
        }
        while self.tail < n {
            let remaining = usize::try_from(self.size - self.end).unwrap_or(usize::MAX);
            let room = (self.buffer.len() - self.tail).min(remaining);
            match self.source.read(&mut self.buffer[self.tail..self.tail + room]) {
                Ok(0) => {
                    return Err(invalid(
                        self.end,
                        format_args!("the file ended early, inside {what}"),
                    ));
                }
                Ok(read) => {
                    let read = read.min(room);
                    self.tail += read;
                    self.end += read as u64;
                    self.source_at = self.end;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(self.unreadable(error)),
            }
        }
        Ok(())
    }

    fn unreadable(&self, error: std::io::Error) -> Error {
        invalid(self.end, format_args!("the file cannot be read: {error}")).caused_by(error)
    }

    #[inline]
    fn bytes<const N: usize>(&mut self, what: &str) -> Result<[u8; N]> {
        if self.tail - self.head < N {
            self.fill(N, what)?;
        }
        let mut bytes = [0; N];
        bytes.copy_from_slice(&self.buffer[self.head..self.head + N]);
        self.head += N;
        Ok(bytes)
    }

    pub(crate) fn magic(&mut self) -> Result<[u8; 4]> {
        self.bytes("the magic")
    }

    pub(crate) fn u8(&mut self, what: &str) -> Result<u8> {
        Ok(u8::from_le_bytes(self.bytes(what)?))
    }

    pub(crate) fn u16(&mut self, what: &str) -> Result<u16> {
        Ok(u16::from_le_bytes(self.bytes(what)?))
    }

    pub(crate) fn u32(&mut self, what: &str) -> Result<u32> {
        Ok(u32::from_le_bytes(self.bytes(what)?))
    }

    #[inline]
    pub(crate) fn u64(&mut self, what: &str) -> Result<u64> {
        Ok(u64::from_le_bytes(self.bytes(what)?))
    }

    /// Skips `n` bytes without reading them.
    #[inline]
    pub(crate) fn skip(&mut self, n: u64, what: &str) -> Result<()> {
        if n <= (self.tail - self.head) as u64 {
            self.head += n as usize;
            return Ok(());
        }
        self.require(n, what)?;
        self.seek_to(self.offset() + n);
        Ok(())
    }

    /// Reads the length of a string to keep. Fails if it exceeds `cap` or the remaining bytes.
    pub(crate) fn length(&mut self, cap: u64, what: &str) -> Result<u64> {
        let at = self.offset();
        let length = self.u64(what)?;
        self.require(length, what)?;
        if length > cap {
            return Err(invalid(
                at,
                format_args!("{what} is {length} bytes long, more than the limit of {cap}"),
            ));
        }
        Ok(length)
    }

    /// Reads `length` bytes. The caller has limited `length`.
    pub(crate) fn byte_string(&mut self, length: u64, what: &str) -> Result<Vec<u8>> {
        self.require(length, what)?;
        let at = self.offset();
        let length =
            usize::try_from(length).map_err(|_| invalid(at, format_args!("{what} is too long")))?;
        let mut bytes = Vec::with_capacity(length);
        while bytes.len() < length {
            if self.head == self.tail {
                self.fill(1, what)?;
            }
            let n = (self.tail - self.head).min(length - bytes.len());
            bytes.extend_from_slice(&self.buffer[self.head..self.head + n]);
            self.head += n;
        }
        Ok(bytes)
    }

    /// Reads a text that llama.cpp compares as a C string, up to its first NUL, so it must have none.
    pub(crate) fn name(&mut self, length: u64, what: &str) -> Result<String> {
        let at = self.offset();
        let name = self.text(length, what)?;
        match name.find('\0') {
            None => Ok(name),
            Some(nul) => {
                Err(invalid(at + nul as u64, format_args!("{what} contains a NUL character")))
            }
        }
    }

    /// Reads a text of `length` bytes. The caller has limited `length`.
    pub(crate) fn text(&mut self, length: u64, what: &str) -> Result<String> {
        let at = self.offset();
        String::from_utf8(self.byte_string(length, what)?).map_err(|error| {
            let offset = at + error.utf8_error().valid_up_to() as u64;
            invalid(offset, format_args!("{what} is not valid UTF-8"))
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::io::Cursor as Bytes;

    use super::*;

    #[test]
    fn reads_across_the_buffer_and_after_long_skips() {
        let mut data: Vec<u8> = (0..3 * BUFFER_BYTES + 11).map(|i| (i % 251) as u8).collect();
        let at = 2 * BUFFER_BYTES - 3;
        data[at..at + 8].copy_from_slice(&0x0102_0304_0506_0708_u64.to_le_bytes());
        let size = data.len() as u64;
        let mut cursor = Cursor::new(Bytes::new(data), size);
        assert_eq!(cursor.u8("x").unwrap(), 0);
        cursor.skip(at as u64 - 1, "x").unwrap();
        assert_eq!(cursor.offset(), at as u64);
        assert_eq!(cursor.u64("x").unwrap(), 0x0102_0304_0506_0708);
        cursor.seek_to(at as u64);
        assert_eq!(cursor.u64("x").unwrap(), 0x0102_0304_0506_0708);
        assert!(cursor.skip(cursor.remaining() + 1, "x").is_err());
        cursor.skip(cursor.remaining(), "x").unwrap();
        assert_eq!(cursor.u8("the next byte").unwrap_err().code(), Code::ModelInvalid);
    }

    #[test]
    fn a_source_shorter_than_its_size_is_an_error() {
        let mut cursor = Cursor::new(Bytes::new(vec![0; 6]), 100);
        let error = cursor.u64("a count").unwrap_err();
        assert!(error.message().contains("ended early"), "{error}");
    }

    #[test]
    fn a_nul_in_a_name_has_its_offset() {
        let mut cursor = Cursor::new(Bytes::new(b"abc\0d".to_vec()), 5);
        assert_eq!(cursor.name(2, "the key").unwrap(), "ab");
        assert_eq!(
            cursor.name(3, "the key").unwrap_err().message(),
            "the key contains a NUL character (at byte 3)"
        );
    }

    #[test]
    fn invalid_utf8_has_its_offset() {
        let mut cursor = Cursor::new(Bytes::new(b"ab\xFFd".to_vec()), 4);
        assert_eq!(
            cursor.text(4, "the key").unwrap_err().message(),
            "the key is not valid UTF-8 (at byte 2)"
        );
    }
}
