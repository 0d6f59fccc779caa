//! A blob under way: what is there of it is hashed again, the rest is fetched, the whole is
//! compared, then it gets its name.
//!
//! Killed at any moment it leaves `<etag>.incomplete`, a beginning of the file, which the next one
//! goes on with. The name comes when the bytes are on the disk: a loss of power leaves no blob with
//! holes. What it may leave in a part its hash tells; a file of which the hub has no hash is
//! therefore begun anew.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;

use super::buffer_pool::BufferPool;
use super::cache::{open_own, unwritable};
use super::disk_sync::DiskSync;
use super::fault::{HubFault, TRIES, network, pause, refused};
use super::hash::HashThread;
use super::http::GetRequest;
use super::progress::FetchProgress;
use super::remote_file::{BlobIdentity, RemoteFile, size, strong};
use crate::error::{Code, Error, Result};

/// A file that is being made.
pub(super) struct Download<'a> {
    pub(super) source: &'a RemoteFile<'a>,
    pub(super) identity: &'a BlobIdentity,
    pub(super) name: &'a str,
    pub(super) incomplete: &'a Path,
    /// Bytes of the files before this one.
    pub(super) before: u64,
}

/// The file and how far it is.
struct OpenDownload {
    file: File,
    at: u64,
    hasher: HashThread,
    settler: DiskSync,
    /// Whether an earlier call wrote the beginning.
    inherited: bool,
    /// The etag of whoever serves the bytes, once it is known.
    validator: Option<String>,
}

impl Download<'_> {
    /// Fetches what is missing, and gives the blob its name. Gives the sha256.
    ///
    /// # Errors
    /// `HUB_VERIFY` when the bytes are not what the hub said; then nothing of them is left.
    /// `CANCELLED` and network errors leave what the next call goes on with.
    pub(super) fn complete(&self, blob: &Path, progress: &mut FetchProgress) -> Result<String> {
        let mut open = self.open()?;
        loop {
            self.fill(&mut open, progress)?;
            let inherited = open.inherited;
            match self.compare(open) {
                Ok((sha256, settler)) => {
                    let settled = settler.finish(self.source.cancel)?;
                    settled.map_err(|error| unwritable(self.incomplete, &error))?;
                    fs::rename(self.incomplete, blob).map_err(|error| unwritable(blob, &error))?;
                    return Ok(sha256);
                }
                Err(error) => {
                    let _ = fs::remove_file(self.incomplete);
                    // What an earlier call left may be what was wrong: once more, all of it.
                    if error.code() != Code::HubVerify || !inherited {
                        return Err(error);
                    }
                    open = self.open()?;
                    progress.stand(self.before);
                }
            }
        }
    }

    /// Opens what is there, and hashes it.
    fn open(&self) -> Result<OpenDownload> {
        let failed = |error: std::io::Error| unwritable(self.incomplete, &error);
        let mut file = open_own(self.incomplete).map_err(failed)?;
        let length = file.metadata().map_err(failed)?.len();
        if length > self.identity.size || self.identity.sha256.is_none() {
            file.set_len(0).map_err(failed)?;
        }
        let hasher = HashThread::start()?;
        let (pool, mut at) = (BufferPool::new(), 0);
        loop {
            self.source.cancel.check()?;
            match pool.fill(|buffer| file.read(buffer)) {
                Ok(piece) if piece.is_empty() => break,
                Ok(piece) => {
                    at += piece.len() as u64;
                    hasher.add(piece);
                }
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(failed(error)),
            }
        }
        let settler = DiskSync::start(file.try_clone().map_err(failed)?)?;
        Ok(OpenDownload {
            file,
            at,
            hasher,
            settler,
            inherited: at > 0,
            validator: self.identity.validator.clone(),
        })
    }

    /// Gets bytes until they are all there, over as many connections as that takes.
    fn fill(&self, open: &mut OpenDownload, progress: &mut FetchProgress) -> Result<()> {
        let (mut failed, mut best) = (0, open.at);
        progress.stand(self.before + open.at);
        while open.at < self.identity.size {
            match self.pull(open, progress) {
                Ok(()) => {}
                Err(HubFault::Stop(error)) => {
                    if error.code() == Code::HubVerify {
                        let _ = fs::remove_file(self.incomplete);
                    }
                    return Err(error);
                }
                Err(HubFault::Again { error, after }) => {
                    // A server that begins anew and breaks off each time gains nothing.
                    failed = if open.at > best { 0 } else { failed + 1 };
                    best = best.max(open.at);
                    if failed >= TRIES {
                        let message = format!(
                            "{}; {} of {} bytes are kept",
                            error.message(),
                            open.at,
                            self.identity.size
                        );
                        return Err(Error::new(error.code(), message)
                            .with("bytes", open.at)
                            .with("total", self.identity.size));
                    }
                    self.source.cancel.wait(pause(failed, &error, after)?)?;
                }
            }
        }
        progress.at(self.before + open.at);
        Ok(())
    }

    /// One connection.
    fn pull(&self, open: &mut OpenDownload, progress: &mut FetchProgress) -> Result<(), HubFault> {
        let RemoteFile { client, cancel, asked, url } = self.source;
        let is_hashed = self.identity.sha256.is_some();
        if !is_hashed && open.validator.is_none() {
            // Nothing would tell that the rest is of another file.
            self.restart(open)?;
        }
        let resumes = open.at > 0;
        let range = resumes.then(|| format!("bytes={}-", open.at));
        let if_range = open.validator.as_deref().filter(|_| resumes);
        let answer = client.get(&GetRequest { url, range, if_range, until: None }, cancel)?;
        let head = &answer.head;
        let etag = strong(&head.etag);
        let has_changed = !is_hashed && etag.is_some() && etag != open.validator;
        match (head.status, head.content_range) {
            (206, Some((first, _))) if resumes && first == open.at && !has_changed => {}
            // As of a server that knows no `If-Range`.
            (206, _) if resumes && has_changed => {
                self.restart(open)?;
                return Err(HubFault::Again {
                    error: network(&head.host, "has another file than before"),
                    after: None,
                });
            }
            (200, _) => self.restart(open)?,
            (206, _) => {
                return Err(
                    network(&head.host, "answers with another range than was asked for").into()
                );
            }
            // Nothing there from here on, so that what is here cannot be its beginning.
            (416, _) if resumes => {
                self.restart(open)?;
                return Err(HubFault::Again {
                    error: network(&head.host, "has fewer bytes than are here"),
                    after: None,
                });
            }
            _ => return Err(refused(head, &answer.complaint(cancel)?, asked)),
        }
        open.validator = etag;
        if let Some(served) = size(head)
            && served != self.identity.size
        {
            return Err(self
                .mismatch(format!(
                    "{served} bytes are served where the hub says {}",
                    self.identity.size
                ))
                .into());
        }
        while let Some(bytes) = answer.next(cancel)? {
            if open.at + bytes.len() as u64 > self.identity.size {
                return Err(self
                    .mismatch(format!(
                        "more than the {} bytes that the hub says come",
                        self.identity.size
                    ))
                    .into());
            }
            open.file.write_all(&bytes).map_err(|error| unwritable(self.incomplete, &error))?;
            open.at += bytes.len() as u64;
            open.settler.wrote(bytes.len());
            open.hasher.add(bytes);
            progress.at(self.before + open.at);
        }
        if open.at < self.identity.size {
            return Err(HubFault::Again {
                error: network(&head.host, "ended the file early"),
                after: None,
            });
        }
        Ok(())
    }

    fn restart(&self, open: &mut OpenDownload) -> Result<()> {
        if open.at > 0 {
            let begun = open.file.set_len(0).and_then(|()| open.file.seek(SeekFrom::Start(0)));
            begun.map_err(|error| unwritable(self.incomplete, &error))?;
            open.hasher = HashThread::start()?;
            (open.at, open.inherited) = (0, false);
        }
        Ok(())
    }

    /// The bytes against what the hub said of them.
    fn compare(&self, open: OpenDownload) -> Result<(String, DiskSync)> {
        let found =
            open.file.metadata().map_err(|error| unwritable(self.incomplete, &error))?.len();
        if found != self.identity.size {
            return Err(self.mismatch(format!(
                "{found} bytes are on the disk, and {} were fetched",
                self.identity.size
            )));
        }
        let sha256 = open.hasher.finish()?;
        match &self.identity.sha256 {
            Some(expected) if *expected != sha256 => {
                let problem = format!("its sha256 is {sha256}, the hub says {expected}");
                Err(self.mismatch(problem).with("expected", &**expected).with("sha256", sha256))
            }
            _ => Ok((sha256, open.settler)),
        }
    }

    fn mismatch(&self, problem: String) -> Error {
        let message = format!(
            "{}: {}: {problem}; it was removed, try again",
            self.source.asked.repository, self.name
        );
        Error::new(Code::HubVerify, message).with("file", self.name)
    }
}
