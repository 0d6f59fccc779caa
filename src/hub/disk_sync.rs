//! Writes data to the disk (`fsync`) on a thread during the download, so that the final sync is
//! short.

use std::fs::File;
use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};

use super::cancel::CancelToken;
use crate::error::{Code, Error, Result};
use crate::net::wait::{self, WaitEnd, WaitReceiver, WaitSender};

/// The number of bytes between two syncs.
const BATCH_BYTES: u64 = 32 << 20;

/// Syncs one file on a thread.
pub(super) struct DiskSync {
    /// Requests for a sync; true marks the last one.
    requests: Sender<bool>,
    result: WaitReceiver<io::Result<()>>,
    unsynced: u64,
}

impl DiskSync {
    pub(super) fn start(file: File) -> Result<DiskSync> {
        let (requests, received) = channel();
        let (sender, result) = wait::channel(1);
        crate::spawn::thread("llb-sync", move || run(&file, &received, &sender))?;
        Ok(DiskSync { requests, result, unsynced: 0 })
    }

    /// Counts bytes that were written, and requests a sync when a batch is complete.
    pub(super) fn add(&mut self, bytes: usize) {
        self.unsynced += bytes as u64;
        if self.unsynced >= BATCH_BYTES {
            self.unsynced = 0;
            // Sending fails only if the thread has ended, which `finish` reports.
            let _ = self.requests.send(false);
        }
    }

    /// Waits until all bytes are on the disk, or until the fetch is cancelled. The inner error is
    /// the disk's.
    pub(super) fn finish(self, cancel: &CancelToken) -> Result<io::Result<()>> {
        let _ = self.requests.send(true);
        match self.result.next(None, || cancel.is_cancelled()) {
            WaitEnd::Next(result) => Ok(result),
            WaitEnd::Cancelled => Err(cancel.error()),
            WaitEnd::Closed | WaitEnd::Late => Err(Error::new(
                Code::InternalBridgeError,
                "the thread that syncs the download to the disk has ended",
            )),
        }
    }
}

/// Syncs until the last request, or until the owner is dropped.
fn run(file: &File, requests: &Receiver<bool>, sender: &WaitSender<io::Result<()>>) {
    // The system reports a write error only once, so the first result counts.
    let mut result = Ok(());
    while let Ok(first) = requests.recv() {
        let is_last = requests.try_iter().fold(first, |last, more| last | more);
        result = result.and(if is_last { file.sync_all() } else { file.sync_data() });
        if is_last {
            sender.send(result);
            return;
        }
    }
}
