//! A pool of buffers that carry bytes from a socket to their readers. Buffers are reused, because
//! mapping a new one for each read costs as much as copying the bytes.

use std::fmt;
use std::ops::Deref;
use std::sync::mpsc::{Receiver, Sender, channel};

/// Buffers of one size.
pub(crate) struct BufferPool {
    buffer_bytes: usize,
    free: Receiver<Vec<u8>>,
    give_back: Sender<Vec<u8>>,
}

/// Bytes in a buffer of the pool. Dropping it returns the buffer.
pub(crate) struct PooledBuffer {
    buffer: Vec<u8>,
    length: usize,
    give_back: Sender<Vec<u8>>,
}

impl BufferPool {
    pub(crate) fn new(buffer_bytes: usize) -> BufferPool {
        let (give_back, free) = channel();
        BufferPool { buffer_bytes, free, give_back }
    }

    /// Passes an empty buffer to `read`, which fills it and returns the number of bytes.
    pub(crate) fn fill<E>(
        &self,
        read: impl FnOnce(&mut [u8]) -> Result<usize, E>,
    ) -> Result<PooledBuffer, E> {
        let mut buffer = self.free.try_recv().unwrap_or_else(|_| vec![0; self.buffer_bytes]);
        match read(&mut buffer) {
            Ok(length) => Ok(PooledBuffer {
                length: length.min(buffer.len()),
                buffer,
                give_back: self.give_back.clone(),
            }),
            Err(error) => {
                let _ = self.give_back.send(buffer);
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
        // If the pool is gone, sending fails and the buffer is freed.
        let _ = self.give_back.send(std::mem::take(&mut self.buffer));
    }
}

impl fmt::Debug for PooledBuffer {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        write!(formatter, "{} bytes", self.length)
    }
}
