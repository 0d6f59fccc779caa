//! Downloads the missing files of a plan, and verifies the files in the cache.

use serde_json::Value;

use super::cache;
use super::download::Download;
use super::fetch::{Fetch, FetchPlan, LocalFile};
use super::hash;
use super::listing::ListedFile;
use super::remote_file::BlobIdentity;
use super::running::FetchProgress;
use crate::error::{Code, Error, Result};
use crate::gguf::ModelHeader;
use crate::profile;

impl Fetch<'_> {
    /// Downloads missing files, verifies all files, and returns the reply. `first` is the identity
    /// of the first file, if it is known.
    pub(super) fn obtain(
        &self,
        plan: &FetchPlan,
        hint: Value,
        first: Option<BlobIdentity>,
        progress: &mut FetchProgress,
    ) -> Result<Value> {
        let missing = self.missing(plan, first)?;
        let size_of = |(file, identity): (&ListedFile, &Option<BlobIdentity>)| match identity {
            Some(identity) => identity.size,
            None => self
                .find(&plan.commit, file)
                .and_then(|path| std::fs::metadata(path).ok())
                .map_or(0, |file| file.len()),
        };
        let sizes: Vec<u64> = plan.files.iter().zip(&missing).map(size_of).collect();
        self.check_disk_space(&missing)?;
        progress.set_total(sizes.iter().copied().fold(0, u64::saturating_add));
        let mut local = Vec::new();
        let mut done = 0;
        for ((file, identity), size) in plan.files.iter().zip(&missing).zip(sizes) {
            local.push(match identity {
                Some(identity) => self.download(&plan.commit, file, identity, done, progress)?,
                None => self.cached_file(&plan.commit, file)?,
            });
            done = done.saturating_add(size);
            progress.update(done);
        }
        if !self.settings.offline {
            self.cache.set_commit(self.request.revision(), &plan.commit);
        }
        progress.report(done);
        progress.emit("fetch_verify");
        let info = self.verify(plan, &missing, &local)?;
        Ok(self.reply(plan, &local, done, hint, info))
    }

    /// The identity of each file that must be downloaded; `None` for a cached file.
    fn missing(
        &self,
        plan: &FetchPlan,
        mut first: Option<BlobIdentity>,
    ) -> Result<Vec<Option<BlobIdentity>>> {
        let mut missing = Vec::new();
        for file in &plan.files {
            let known = first.take();
            if self.find(&plan.commit, file).is_some() {
                missing.push(None);
                continue;
            }
            if self.settings.offline {
                let message = format!(
                    "{}: {} was just removed from the cache; fetch it once while online",
                    self.request.id.repository, file.name
                );
                return Err(Error::new(Code::Offline, message));
            }
            missing.push(Some(match known.or_else(|| BlobIdentity::of_listed(file)) {
                Some(identity) => identity,
                None => self.remote_file(&plan.commit, &file.name).read(file, 0, 1)?.0,
            }));
        }
        Ok(missing)
    }

    /// Checks that the disk has enough space for the missing bytes.
    fn check_disk_space(&self, missing: &[Option<BlobIdentity>]) -> Result<()> {
        let missing_bytes = |identity: &BlobIdentity| {
            if cache::is_complete(&self.cache.blob(&identity.blob), Some(identity.size)) {
                return 0;
            }
            let part = std::fs::metadata(self.cache.incomplete(&identity.blob))
                .map_or(0, |part| part.len());
            identity.size.saturating_sub(part)
        };
        let needed = missing.iter().flatten().map(missing_bytes).fold(0, u64::saturating_add);
        match self.cache.free_bytes() {
            Some(free) if needed > free => {
                let message = format!(
                    "{}: the download needs {needed} bytes, but the disk of {} has {free}; free some space, or set `cache_dir` \
                     to another disk",
                    self.request.id.repository,
                    self.settings.cache.display()
                );
                let error = Error::new(Code::OutOfMemory, message).with("resource", "disk");
                Err(error.with("needed_bytes", needed).with("available_bytes", free))
            }
            _ => Ok(()),
        }
    }

    /// Downloads one file. `done` counts the bytes of the files before it.
    fn download(
        &self,
        commit: &str,
        file: &ListedFile,
        identity: &BlobIdentity,
        done: u64,
        progress: &mut FetchProgress,
    ) -> Result<LocalFile> {
        let etag = &identity.blob;
        self.cache.prepare(etag)?;
        let lock = self.cache.lock(etag, self.cancel)?;
        let blob = self.cache.blob(etag);
        if cache::is_complete(&blob, Some(identity.size)) {
            self.cache.link(etag, commit, &file.name)?;
            return self.cached_file(commit, file);
        }
        // Without locks, another process may write to the shared file. A private file is used then,
        // and never resumed.
        let incomplete = if lock.is_held() {
            self.cache.incomplete(etag)
        } else {
            self.cache.private_incomplete(etag)
        };
        let source = self.remote_file(commit, &file.name);
        let download = Download {
            source: &source,
            identity,
            name: &file.name,
            incomplete: &incomplete,
            done_before: done,
        };
        let downloaded = download.run(&blob, progress);
        if !lock.is_held() {
            let _ = std::fs::remove_file(&incomplete);
        }
        let sha256 = downloaded?;
        let path = self.cache.link(etag, commit, &file.name)?;
        Ok(LocalFile { path, sha256, size: identity.size, cached: false })
    }

    /// Describes a file that is already in the cache.
    fn cached_file(&self, commit: &str, file: &ListedFile) -> Result<LocalFile> {
        let path = self.cache.pointer(commit, &file.name);
        let unreadable = |error: std::io::Error| {
            Error::new(Code::ModelNotFound, format!("{}: {error}", path.display())).caused_by(error)
        };
        let size = std::fs::metadata(&path).map_err(unreadable)?.len();
        let sha256 = match self.cache.sha256(&path) {
            Some(sha256) => sha256,
            // The cache has a copy instead of a link, or the etag is not a hash.
            None => hash::of_file(&path, self.cancel)?,
        };
        if let Some(listed) = file.sha256.as_ref().filter(|listed| **listed != sha256) {
            let message = format!(
                "{}: its sha256 is {sha256}, but the hub lists {listed}; remove it and try again",
                path.display()
            );
            return Err(Error::new(Code::HubVerify, message).with("file", &*file.name));
        }
        Ok(LocalFile { path, sha256, size, cached: true })
    }

    /// Checks the model on the disk. If tools are required, new files that fail are quarantined.
    fn verify(
        &self,
        plan: &FetchPlan,
        missing: &[Option<BlobIdentity>],
        local: &[LocalFile],
    ) -> Result<Value> {
        let checked = ModelHeader::read_file(&local[0].path).and_then(|header| {
            let mut info = self.check_model(&header, "the model was not accepted")?;
            if info["error"].is_null() {
                profile::add_modalities(&mut info, &local[0].path, &header);
            }
            Ok(info)
        });
        let error = match checked {
            // The error is redacted here too, because a file in the cache quotes it.
            Err(error) if self.request.require_tools => self.settings.redactor.error(error),
            other => return other,
        };
        // An unreadable file or a lack of memory is not the model's fault.
        if !matches!(
            error.code(),
            Code::ModelInvalid
                | Code::ModelNotToolCapable
                | Code::TemplateError
                | Code::TemplateLimit
        ) {
            return Err(error);
        }
        let new = plan.files.iter().zip(missing).zip(local).filter(|(_, local)| !local.cached);
        let quarantined: Vec<String> = new
            .filter_map(|((file, identity), _)| {
                let blob = &identity.as_ref()?.blob;
                let path = self.cache.quarantine(blob, &plan.commit, &file.name, &error)?;
                Some(path.to_string_lossy().into_owned())
            })
            .collect();
        Err(if quarantined.is_empty() { error } else { error.with("quarantine", quarantined) })
    }
}
