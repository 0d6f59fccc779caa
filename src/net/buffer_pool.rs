//! Bytes on their way from the socket to the disk and the hash, in buffers that are used again: to
//! have the system map a new one for each piece costs as much as to copy it.

use std::ops::Deref;
use std::sync::mpsc::{Receiver, Sender, channel};

/// Bytes of a buffer.
pub(super) const BUFFER_BYTES: usize = 256 << 10;

/// Buffers that came back.
pub(super) struct BufferPool {
    free: Receiver<Vec<u8>>,
    home: Sender<Vec<u8>>,
}

/// Some bytes; its buffer goes back to its pool.
pub(super) struct PooledBuffer {
    buffer: Vec<u8>,
    length: usize,
    home: Sender<Vec<u8>>,
}

impl BufferPool {
    pub(super) fn new() -> BufferPool {
        let (home, free) = channel();
        BufferPool { free, home }
    }

    /// A piece with what `read` puts into a whole buffer.
    pub(super) fn fill<E>(
        &self,
        read: impl FnOnce(&mut [u8]) -> Result<usize, E>,
    ) -> Result<PooledBuffer, E> {
        let mut buffer = self.free.try_recv().unwrap_or_else(|_| vec![0; BUFFER_BYTES]);
        match read(&mut buffer) {
            Ok(length) => Ok(PooledBuffer {
                length: length.min(buffer.len()),
                buffer,
                home: self.home.clone(),
            }),
            Err(error) => {
                let _ = self.home.send(buffer);
                Err(error)
            }
        }
    }
}

impl Deref for PooledBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.buffer[..self.length]
    }
}

impl Drop for PooledBuffer {
    fn drop(&mut self) {
        // Nobody may be left to use it.
        let _ = self.home.send(std::mem::take(&mut self.buffer));
    }
}
