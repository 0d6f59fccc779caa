//! A file in memory whose reader fails once the call is over, which ends what decodes it.

use std::io::{self, BufRead, Cursor, Read, Seek, SeekFrom};

use super::OverCheck;

/// The bytes that are read between two checks. Of a picture that compresses best, they are about four
/// million pixels.
const PIECE: usize = 4096;

/// The bytes of a file.
pub(super) struct InterruptibleFile<'a> {
    file: Cursor<&'a [u8]>,
    is_over: OverCheck<'a>,
    /// The bytes that are read before the next check.
    left: usize,
}

impl<'a> InterruptibleFile<'a> {
    pub(super) fn new(file: &'a [u8], is_over: OverCheck<'a>) -> InterruptibleFile<'a> {
        InterruptibleFile { file: Cursor::new(file), is_over, left: 0 }
    }

    /// The number of bytes that may be read now, at least 1.
    fn allowed(&mut self) -> io::Result<usize> {
        if self.left == 0 {
            if (self.is_over)() {
                return Err(io::Error::other("the call is over"));
            }
            self.left = PIECE;
        }
        Ok(self.left)
    }
}

impl Read for InterruptibleFile<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = buffer.len().min(self.allowed()?);
        let count = self.file.read(&mut buffer[..most])?;
        self.left -= count;
        Ok(count)
    }
}

impl BufRead for InterruptibleFile<'_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        let most = self.allowed()?;
        let rest = self.file.fill_buf()?;
        Ok(&rest[..rest.len().min(most)])
    }

    fn consume(&mut self, count: usize) {
        self.file.consume(count);
        self.left = self.left.saturating_sub(count);
    }
}

impl Seek for InterruptibleFile<'_> {
    fn seek(&mut self, place: SeekFrom) -> io::Result<u64> {
        self.file.seek(place)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn reading_ends_when_the_call_is_over() {
        let bytes: Vec<u8> = (0..5 * PIECE as u32 + 7).map(|index| index as u8).collect();
        let mut whole = Vec::new();
        InterruptibleFile::new(&bytes, &|| false).read_to_end(&mut whole).unwrap();
        assert_eq!(whole, bytes);
        for after in 0..5 {
            let checks = AtomicUsize::new(0);
            let is_over = || checks.fetch_add(1, Ordering::Relaxed) >= after;
            let mut read = Vec::new();
            let mut file = InterruptibleFile::new(&bytes, &is_over);
            assert!(file.read_to_end(&mut read).is_err());
            assert_eq!(read, bytes[..after * PIECE]);
            // By single bytes, and by lines, it is the same.
            checks.store(0, Ordering::Relaxed);
            let file = InterruptibleFile::new(&bytes, &is_over);
            assert_eq!(file.bytes().map_while(Result::ok).count(), after * PIECE);
            checks.store(0, Ordering::Relaxed);
            let file = InterruptibleFile::new(&bytes, &is_over);
            let lines = file.split(b'\n').map_while(Result::ok);
            assert_eq!(lines.count(), after * PIECE / 256);
        }
    }
}
