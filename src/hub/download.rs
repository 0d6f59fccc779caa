//! Downloads one blob: hashes the bytes of an earlier attempt, fetches the rest, compares hash and
//! size, and then renames the file.
//!
//! A download that is killed leaves `<etag>.incomplete`, the beginning of the file, and the next
//! download resumes it. The blob gets its final name only once its bytes are on the disk, so a
//! power loss leaves no blob with holes. It may leave holes in an incomplete file, which the hash
//! detects. A file for which the hub has no hash is therefore always downloaded from the start.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Instant;

use super::cache::{open_private, unwritable};
use super::fault::{HubFault, MAX_TRIES, network, retry_delay};
use super::hash::HashThread;
use super::http::{BUFFER_BYTES, GetRequest};
use super::pace::{MIN_SPEED, Pace};
use super::refusal::refused;
use super::remote_file::{BlobIdentity, RemoteFile, size, strong};
use super::running::{CancelToken, FetchProgress};
use crate::error::{Code, Error, Result};
use crate::net::exchange::BufferPool;
use crate::net::wait::{self, WaitEnd, WaitReceiver, WaitSender};

/// An attempt that gains fewer bytes counts as failed.
const MIN_GAIN: u64 = 64 << 10;
/// The number of bytes between two syncs.
const BATCH_BYTES: u64 = 32 << 20;

pub(super) struct Download<'a> {
    pub(super) source: &'a RemoteFile<'a>,
    pub(super) identity: &'a BlobIdentity,
    pub(super) name: &'a str,
    pub(super) incomplete: &'a Path,
    /// The number of bytes in the files before this one.
    pub(super) done_before: u64,
}

/// The incomplete file, and what is known about its bytes.
struct OpenDownload {
    file: File,
    /// The number of bytes in the file.
    length: u64,
    hash: HashThread,
    disk_sync: DiskSync,
    /// Whether an earlier attempt wrote the beginning of the file.
    resumed: bool,
    /// The etag of the server that stores the bytes, once it is known.
    validator: Option<String>,
}

impl Download<'_> {
    /// Fetches the missing bytes, renames the file to the blob, and returns its sha256.
    ///
    /// # Errors
    /// `HUB_VERIFY` if the bytes are not those that the hub lists; the incomplete file is then
    /// removed. `CANCELLED` and network errors keep it, and the next call resumes.
    pub(super) fn run(&self, blob: &Path, progress: &mut FetchProgress) -> Result<String> {
        let mut open = self.open()?;
        loop {
            self.fetch(&mut open, progress)?;
            let resumed = open.resumed;
            match self.verify(open) {
                Ok((sha256, disk_sync)) => {
                    let synced = disk_sync.finish(self.source.cancel)?;
                    synced.map_err(|error| unwritable(self.incomplete, &error))?;
                    fs::rename(self.incomplete, blob).map_err(|error| unwritable(blob, &error))?;
                    return Ok(sha256);
                }
                Err(error) => {
                    let _ = fs::remove_file(self.incomplete);
                    // The bytes of the earlier attempt may be wrong: start over once.
                    if error.code() != Code::HubVerify || !resumed {
                        return Err(error);
                    }
                    open = self.open()?;
                    progress.report(self.done_before);
                }
            }
        }
    }

    /// Opens the incomplete file and hashes its bytes.
    fn open(&self) -> Result<OpenDownload> {
        let failed = |error: std::io::Error| unwritable(self.incomplete, &error);
        let mut file = open_private(self.incomplete).map_err(failed)?;
        let found = file.metadata().map_err(failed)?.len();
        if found > self.identity.size || self.identity.sha256.is_none() {
            file.set_len(0).map_err(failed)?;
        }
        let hash = HashThread::start()?;
        let (pool, mut length) = (BufferPool::new(BUFFER_BYTES), 0);
        loop {
            self.source.cancel.check()?;
            match pool.fill(|buffer| file.read(buffer)) {
                Ok(bytes) if bytes.is_empty() => break,
                Ok(bytes) => {
                    length += bytes.len() as u64;
                    hash.add(bytes);
                }
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(failed(error)),
            }
        }
        let disk_sync = DiskSync::start(file.try_clone().map_err(failed)?)?;
        Ok(OpenDownload {
            file,
            length,
            hash,
            disk_sync,
            resumed: length > 0,
            validator: self.identity.validator.clone(),
        })
    }

    /// Fetches the rest, over as many connections as needed.
    fn fetch(&self, open: &mut OpenDownload, progress: &mut FetchProgress) -> Result<()> {
        let (mut failed, mut reached) = (0, open.length);
        let mut pace = Pace::new(self.source.client.settings.read_timeout, Instant::now());
        progress.report(self.done_before + open.length);
        while open.length < self.identity.size {
            pace.skip(Instant::now());
            let fetched = self.fetch_once(open, progress, &mut pace);
            pace.count(0, Instant::now());
            match fetched {
                Ok(()) => {}
                Err(HubFault::Stop(error)) => {
                    if error.code() == Code::HubVerify {
                        let _ = fs::remove_file(self.incomplete);
                    }
                    return Err(error);
                }
                Err(HubFault::Again { error, after }) => {
                    // A server that starts over and then breaks off makes no progress, and neither
                    // does one that sends a few bytes each time.
                    if open.length >= reached + MIN_GAIN {
                        (failed, reached) = (0, open.length);
                    } else {
                        failed += 1;
                    }
                    if failed >= MAX_TRIES || pace.is_too_slow() {
                        let message = format!(
                            "{}; {} of {} bytes are kept, fetch it again to resume",
                            error.message(),
                            open.length,
                            self.identity.size
                        );
                        return Err(Error::new(error.code(), message)
                            .with("bytes", open.length)
                            .with("total", self.identity.size));
                    }
                    self.source.cancel.wait(retry_delay(failed, &error, after)?)?;
                }
            }
        }
        progress.update(self.done_before + open.length);
        Ok(())
    }

    /// Fetches the rest over one connection.
    fn fetch_once(
        &self,
        open: &mut OpenDownload,
        progress: &mut FetchProgress,
        pace: &mut Pace,
    ) -> Result<(), HubFault> {
        let RemoteFile { client, cancel, context, url } = self.source;
        let has_hash = self.identity.sha256.is_some();
        if !has_hash && open.validator.is_none() {
            // Without a validator, the rest could belong to another file.
            self.restart(open)?;
        }
        let resumes = open.length > 0;
        let range = resumes.then(|| format!("bytes={}-", open.length));
        let if_range = open.validator.as_deref().filter(|_| resumes);
        let response = client.get(&GetRequest { url, range, if_range, deadline: None }, cancel)?;
        let head = &response.head;
        let again = |problem: &str| Err(HubFault::again(network(&head.host, problem)));
        let etag = strong(&head.etag);
        let has_changed = !has_hash && etag.is_some() && etag != open.validator;
        match (head.status, head.content_range) {
            (206, Some((first, _))) if resumes && first == open.length && !has_changed => {}
            // The server has ignored `If-Range`.
            (206, _) if resumes && has_changed => {
                self.restart(open)?;
                return again("the file changed at the hub");
            }
            (200, _) => self.restart(open)?,
            (206, _) => {
                return Err(network(&head.host, "sent a range that was not requested").into());
            }
            // The file ends before the range, so the local bytes are not its beginning.
            (416, _) if resumes => {
                self.restart(open)?;
                return again("has fewer bytes than were downloaded");
            }
            _ => return Err(refused(head, &response.error_body(cancel)?, context)),
        }
        open.validator = etag;
        let listed = self.identity.size;
        if let Some(served) = size(head)
            && served != listed
        {
            let problem = format!("the hub lists {listed} bytes, but serves {served}");
            return Err(self.mismatch(problem).into());
        }
        while let Some(bytes) = response.next(cancel)? {
            if open.length + bytes.len() as u64 > listed {
                let problem = format!("the hub lists {listed} bytes, but serves more");
                return Err(self.mismatch(problem).into());
            }
            open.file.write_all(&bytes).map_err(|error| unwritable(self.incomplete, &error))?;
            open.length += bytes.len() as u64;
            open.disk_sync.add(bytes.len());
            let is_fast_enough = pace.count(bytes.len(), Instant::now());
            open.hash.add(bytes);
            progress.update(self.done_before + open.length);
            if !is_fast_enough && open.length < listed {
                return again(&format!("sends less than {MIN_SPEED} bytes per second"));
            }
        }
        if open.length < listed { again("ended the file early") } else { Ok(()) }
    }

    fn restart(&self, open: &mut OpenDownload) -> Result<()> {
        if open.length > 0 {
            let emptied = open.file.set_len(0).and_then(|()| open.file.seek(SeekFrom::Start(0)));
            emptied.map_err(|error| unwritable(self.incomplete, &error))?;
            open.hash = HashThread::start()?;
            (open.length, open.resumed) = (0, false);
        }
        Ok(())
    }

    /// Compares size and hash with what the hub lists. Returns the hash.
    fn verify(&self, open: OpenDownload) -> Result<(String, DiskSync)> {
        let found =
            open.file.metadata().map_err(|error| unwritable(self.incomplete, &error))?.len();
        if found != self.identity.size {
            return Err(self.mismatch(format!(
                "{} bytes were downloaded, but {found} are on the disk",
                self.identity.size
            )));
        }
        let sha256 = open.hash.finish()?;
        match &self.identity.sha256 {
            Some(expected) if *expected != sha256 => {
                let problem = format!("its sha256 is {sha256}, but the hub lists {expected}");
                Err(self.mismatch(problem).with("expected", &**expected).with("sha256", sha256))
            }
            _ => Ok((sha256, open.disk_sync)),
        }
    }

    fn mismatch(&self, problem: String) -> Error {
        let message = format!(
            "{}: {}: {problem}; it was removed, try again",
            self.source.context.repository, self.name
        );
        Error::new(Code::HubVerify, message).with("file", self.name)
    }
}

/// Writes one file to the disk (`fsync`) on a thread during the download, so that the final sync is
/// short.
struct DiskSync {
    /// Requests for a sync; true marks the last one.
    requests: Sender<bool>,
    result: WaitReceiver<io::Result<()>>,
    unsynced: u64,
}

impl DiskSync {
    fn start(file: File) -> Result<DiskSync> {
        let (requests, received) = channel();
        let (sender, result) = wait::channel(1);
        crate::spawn::thread("llb-sync", move || sync(&file, &received, &sender))?;
        Ok(DiskSync { requests, result, unsynced: 0 })
    }

    /// Counts bytes that were written, and requests a sync when a batch is complete.
    fn add(&mut self, bytes: usize) {
        self.unsynced += bytes as u64;
        if self.unsynced >= BATCH_BYTES {
            self.unsynced = 0;
            // Sending fails only if the thread has ended, which `finish` reports.
            let _ = self.requests.send(false);
        }
    }

    /// Waits until all bytes are on the disk, or until the fetch is cancelled. The inner error is
    /// the disk's.
    fn finish(self, cancel: &CancelToken) -> Result<io::Result<()>> {
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
fn sync(file: &File, requests: &Receiver<bool>, sender: &WaitSender<io::Result<()>>) {
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
