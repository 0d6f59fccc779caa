//! SHA-256 on a thread of its own, beside the one that writes.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;

use sha2::{Digest, Sha256};

use super::buffer_pool::PooledBuffer;
use super::cancel::CancelToken;
use crate::error::{Code, Error, Result};

/// Pieces that may wait to be hashed.
const PIECES: usize = 8;

/// Bytes in order in, their hash out.
pub(super) struct HashThread {
    pieces: SyncSender<PooledBuffer>,
    thread: JoinHandle<Sha256>,
}

impl HashThread {
    pub(super) fn start() -> Result<HashThread> {
        let (pieces, queue) = sync_channel::<PooledBuffer>(PIECES);
        let thread = std::thread::Builder::new().name("llb-hash".into()).spawn(move || {
            let _quiet = crate::panic::Quiet::enter();
            let mut hash = Sha256::new();
            queue.iter().for_each(|piece| hash.update(&*piece));
            hash
        });
        let thread = thread.map_err(|error| {
            Error::new(Code::OutOfMemory, "cannot start a thread").caused_by(error)
        })?;
        Ok(HashThread { pieces, thread })
    }

    pub(super) fn add(&self, piece: PooledBuffer) {
        // Fails only when the thread is gone, which `finish` says.
        let _ = self.pieces.send(piece);
    }

    /// In hexadecimal digits.
    pub(super) fn finish(self) -> Result<String> {
        drop(self.pieces);
        let hash = self.thread.join().map_err(|payload| crate::panic::error(&*payload))?;
        Ok(hex(&hash.finalize()))
    }
}

/// The hash of a file, in hexadecimal digits.
pub(super) fn of_file(path: &Path, cancel: &CancelToken) -> Result<String> {
    let failed = |error: std::io::Error| {
        Error::new(Code::ModelNotFound, format!("{}: {error}", path.display()))
    };
    let mut file = File::open(path).map_err(failed)?;
    let (mut hash, mut bytes) = (Sha256::new(), vec![0; 256 << 10]);
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
