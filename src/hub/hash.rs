//! SHA-256, of a download on a separate thread and of a file in the cache.

use std::io::Read;
use std::path::Path;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;

use sha2::{Digest, Sha256};

use super::http::BUFFER_BYTES;
use super::running::CancelToken;
use crate::error::{Code, Error, Result};
use crate::net::exchange::PooledBuffer;
use crate::regular_file;

/// The maximum number of buffers that wait to be hashed.
const MAX_WAITING: usize = 8;

/// Hashes bytes in the order in which they are added.
pub(super) struct HashThread {
    buffers: SyncSender<PooledBuffer>,
    thread: JoinHandle<Sha256>,
}

impl HashThread {
    pub(super) fn start() -> Result<HashThread> {
        let (buffers, received) = sync_channel::<PooledBuffer>(MAX_WAITING);
        let thread = crate::spawn::thread("llb-hash", move || {
            let mut hash = Sha256::new();
            received.iter().for_each(|bytes| hash.update(&*bytes));
            hash
        })?;
        Ok(HashThread { buffers, thread })
    }

    pub(super) fn add(&self, bytes: PooledBuffer) {
        // Sending fails only if the thread has ended, which `finish` reports.
        let _ = self.buffers.send(bytes);
    }

    /// The hash in hexadecimal digits.
    pub(super) fn finish(self) -> Result<String> {
        drop(self.buffers);
        let hash = self.thread.join().map_err(|payload| crate::panic::error(&*payload))?;
        Ok(hex(&hash.finalize()))
    }
}

/// The hash of a file in hexadecimal digits.
pub(super) fn of_file(path: &Path, cancel: &CancelToken) -> Result<String> {
    let failed = |error: std::io::Error| {
        Error::new(Code::ModelNotFound, format!("{}: {error}", path.display()))
    };
    let (mut file, _) = regular_file::open(path).map_err(failed)?;
    let (mut hash, mut bytes) = (Sha256::new(), vec![0; BUFFER_BYTES]);
    loop {
        cancel.check()?;
        match file.read(&mut bytes) {
            Ok(0) => return Ok(hex(&hash.finalize())),
            Ok(length) => hash.update(&bytes[..length]),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(failed(error)),
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
