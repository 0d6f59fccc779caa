//! Bytes brought onto the disk on a thread of its own, beside the one that writes, so that little
//! is left to wait for at the end.

use std::fs::File;
use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};

use super::cancel::CancelToken;
use crate::error::{Code, Error, Result};
use crate::net::wait::{self, WaitEnd, WaitReceiver, WaitSender};

/// Bytes that are written before the disk is asked to take them.
const BATCH: u64 = 32 << 20;

/// A file whose bytes are on their way to the disk.
pub(super) struct DiskSync {
    /// True for the last time.
    wanted: Sender<bool>,
    settled: WaitReceiver<io::Result<()>>,
    waiting: u64,
}

impl DiskSync {
    pub(super) fn start(file: File) -> Result<DiskSync> {
        let (wanted, wishes) = channel();
        let (outlet, settled) = wait::channel(1);
        let thread = std::thread::Builder::new().name("llb-sync".into()).spawn(move || {
            let _quiet = crate::panic::Quiet::enter();
            run(&file, &wishes, &outlet);
        });
        thread.map_err(|error| {
            Error::new(Code::OutOfMemory, "cannot start a thread").caused_by(error)
        })?;
        Ok(DiskSync { wanted, settled, waiting: 0 })
    }

    /// So many bytes more were written.
    pub(super) fn wrote(&mut self, bytes: usize) {
        self.waiting += bytes as u64;
        if self.waiting >= BATCH {
            self.waiting = 0;
            // Fails only when the thread is gone, which `finish` says.
            let _ = self.wanted.send(false);
        }
    }

    /// Waits until all bytes are on the disk; a cancel does not wait for that. The inner error is
    /// the disk's.
    pub(super) fn finish(self, cancel: &CancelToken) -> Result<io::Result<()>> {
        let _ = self.wanted.send(true);
        match self.settled.next(None, || cancel.is_over()) {
            WaitEnd::Next(settled) => Ok(settled),
            WaitEnd::Over => cancel.check().map(Ok),
            WaitEnd::Gone | WaitEnd::Late => Err(Error::new(
                Code::InternalBridgeError,
                "the thread that waits for the disk is gone",
            )),
        }
    }
}

/// Until the last time, or until nobody wants it any more.
fn run(file: &File, wishes: &Receiver<bool>, outlet: &WaitSender<io::Result<()>>) {
    // The system tells an error once: the first one counts.
    let mut settled = Ok(());
    while let Ok(first) = wishes.recv() {
        let is_last = wishes.try_iter().fold(first, |last, more| last | more);
        settled = settled.and(if is_last { file.sync_all() } else { file.sync_data() });
        if is_last {
            outlet.send(settled);
            return;
        }
    }
}
