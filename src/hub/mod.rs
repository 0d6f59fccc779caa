//! From a model's id to a verified file: models of the Hugging Face hub.
//!
//! In: an id, and what the environment says. Out: the path of a file in the cache, whole and as the
//! hub has it, and its model profile. Nothing is downloaded of a model that will be
//! refused: its header is read first, by a range. What comes from the hub is a claim until it is
//! checked: names, sizes, hashes, redirects.

mod buffer_pool;
mod cache;
pub(crate) mod cancel;
mod disk_sync;
mod download;
mod environment;
mod fault;
mod file_selection;
mod hash;
mod http;
mod listing;
mod name;
mod progress;
mod proxy;
mod remote_file;
mod remote_header;
mod request;
mod url;

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::error::{Code, Error, Result};
use crate::gguf::ModelHeader;
use crate::profile;
use crate::profile::ModelProfile;

pub use cancel::cancel;
pub use environment::Environment;

use cache::HubCache;
use cancel::CancelToken;
use download::Download;
use environment::Settings;
use fault::{RequestContext, TRIES};
use http::HubClient;
use listing::{ListedFile, Listing};
use progress::FetchProgress;
use remote_file::{BlobIdentity, RemoteFile};
use request::FetchRequest;

/// Carries out an `llb_model_fetch` request (docs/hub.md) on the caller's thread, and answers with
/// its reply.
///
/// `on_event` gets `fetch_start`, `fetch_progress:<bytes>/<total>`, `fetch_verify`, and last
/// `fetch_success` or `fetch_failure:<code>`. [`cancel()`] ends it from any other thread.
///
/// # Errors
/// `INVALID_REQUEST`, the `HUB_*` codes, `OFFLINE`, `CANCELLED`, `MODEL_INVALID`,
/// `MODEL_NOT_TOOL_CAPABLE`, `TEMPLATE_ERROR`; `OUT_OF_MEMORY` where the disk has no room.
pub fn fetch(
    request: &str,
    environment: &Environment,
    on_event: &mut dyn FnMut(&str),
) -> Result<Value> {
    let mut progress = FetchProgress::new(on_event);
    let fetched = begin(request, environment, &mut progress);
    match &fetched {
        Ok(_) => progress.emit("fetch_success"),
        Err(error) => {
            progress.emit(&format!("fetch_failure:{}", error.code().as_str().to_ascii_lowercase()))
        }
    }
    fetched
}

fn begin(request: &str, environment: &Environment, progress: &mut FetchProgress) -> Result<Value> {
    let request = FetchRequest::parse(request)?;
    let settings = Settings::read(&request, environment)?;
    let cancel = CancelToken::enter(&request.id.text);
    progress.emit("fetch_start");
    let repository = &request.id.repository;
    let fetch = Fetch {
        page: format!("{}/{repository}", settings.endpoint),
        api: format!("{}/api/models/{repository}", settings.endpoint),
        cache: HubCache::new(&settings.cache, repository),
        client: HubClient::new(&settings),
        request: &request,
        settings: &settings,
        cancel: &cancel,
    };
    let mut reply = fetch.run(progress)?;
    if !request.ignored_keys.is_empty() {
        reply["ignored_keys"] = json!(request.ignored_keys);
    }
    Ok(reply)
}

struct Fetch<'a> {
    request: &'a FetchRequest,
    settings: &'a Settings,
    cancel: &'a CancelToken,
    cache: HubCache,
    client: HubClient<'a>,
    /// Of the model, for people and for programs.
    page: String,
    api: String,
}

/// What is to be had.
struct FetchPlan {
    commit: String,
    files: Vec<ListedFile>,
    diagnostics: Vec<Value>,
}

/// A file that is here.
struct LocalFile {
    path: PathBuf,
    sha256: String,
    size: u64,
    cached: bool,
}

impl Fetch<'_> {
    fn run(&self, progress: &mut FetchProgress) -> Result<Value> {
        let cached = self.plan_of_cache();
        if self.settings.offline {
            return self.use_cache(cached?, progress);
        }
        // Who has the model waits for no hub that cannot be reached.
        let tries = if cached.is_ok() { 1 } else { TRIES };
        let what = format!("revision {:?}", self.request.revision());
        let ask = || {
            listing::ask(
                &self.client,
                &self.api,
                self.request.revision.as_deref(),
                &self.asked(&what),
                self.cancel,
            )
        };
        let listing = match (fault::retry(self.cancel, tries, ask), cached) {
            (Ok(listing), _) => listing,
            (Err(error), Ok(mut plan)) if error.code() == Code::HubNetwork => {
                let message = format!("the cache is used as it is: {}", error.message());
                plan.diagnostics.push(json!({ "code": "hub_unreachable", "message": message }));
                return self.use_cache(plan, progress);
            }
            (Err(error), _) => return Err(error),
        };
        self.check_commit(&listing)?;
        let plan = self.plan(&listing)?;
        if plan.files.iter().all(|file| self.is_here(&plan.commit, file)) {
            return self.obtain(&plan, Value::Null, None, progress);
        }
        self.check_access(&listing)?;
        let hint = listing::hint(&self.client, &self.api, self.cancel)?;
        let (first, info) = self.look(&plan)?;
        if self.request.dry_run {
            return Ok(self.dry(&plan, Some(&first), hint, info));
        }
        self.obtain(&plan, hint, Some(first), progress)
    }

    fn asked<'a>(&'a self, what: &'a str) -> RequestContext<'a> {
        RequestContext {
            repository: &self.request.id.repository,
            page: &self.page,
            what,
            token: self.client.token(),
        }
    }

    /// What the request means in a repository.
    fn plan(&self, listing: &Listing) -> Result<FetchPlan> {
        let names: Vec<&str> = listing.files.iter().map(|file| &*file.name).collect();
        let picked =
            file_selection::pick(self.request, &names).map_err(|error| match error.code() {
                Code::HubNotFound if !listing.refused.is_empty() => {
                    listing::refused_names(&self.request.id.repository, listing)
                }
                _ => error,
            })?;
        let file = |name: &String| listing.files.iter().find(|file| file.name == *name).cloned();
        let files = picked.iter().filter_map(file).collect();
        Ok(FetchPlan { commit: listing.commit.clone(), files, diagnostics: Vec::new() })
    }

    /// What the request means among the files that are here.
    fn plan_of_cache(&self) -> Result<FetchPlan> {
        let (repository, revision) = (&self.request.id.repository, self.request.revision());
        let offline = |problem: &str| {
            let message = format!(
                "{problem}, and the hub is not asked; fetch it once with the network, or give the `cache_dir` that has it \
                 (it was looked for in {})",
                self.settings.cache.display()
            );
            Error::new(Code::Offline, message)
        };
        let Some(commit) = self.cache.commit(revision) else {
            return Err(offline(&format!(
                "revision {revision:?} of {repository} is not in the cache"
            )));
        };
        let names = self.cache.files(&commit);
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let picked =
            file_selection::pick(self.request, &names).map_err(|error| match error.code() {
                Code::HubNotFound => offline(&format!("not in the cache: {}", error.message())),
                _ => error,
            })?;
        let files =
            picked.into_iter().map(|name| ListedFile { name, ..ListedFile::default() }).collect();
        Ok(FetchPlan { commit, files, diagnostics: Vec::new() })
    }

    fn use_cache(&self, plan: FetchPlan, progress: &mut FetchProgress) -> Result<Value> {
        self.obtain(&plan, Value::Null, None, progress)
    }

    /// Whether a file need not be downloaded.
    fn is_here(&self, commit: &str, file: &ListedFile) -> bool {
        self.found(commit, file).is_some()
            || file
                .sha256
                .as_ref()
                .is_some_and(|hash| cache::is_whole(&self.cache.blob(hash), file.size))
    }

    /// Where a file of a commit is, if it leads to what the hub lists.
    fn found(&self, commit: &str, file: &ListedFile) -> Option<PathBuf> {
        let path = self.cache.find(commit, &file.name, file.size)?;
        match (self.cache.sha256(&path), &file.sha256) {
            (Some(here), Some(listed)) if here != *listed => None,
            _ => Some(path),
        }
    }

    /// Who names a commit gets that one, whatever the hub answers.
    fn check_commit(&self, listing: &Listing) -> Result<()> {
        match &self.request.revision {
            Some(wanted) if name::is_commit(wanted) && *wanted != listing.commit => {
                let message = format!(
                    "{}: commit {wanted} was asked for, the hub answers with {}",
                    self.request.id.repository, listing.commit
                );
                Err(Error::new(Code::HubVerify, message))
            }
            _ => Ok(()),
        }
    }

    fn check_access(&self, listing: &Listing) -> Result<()> {
        if self.client.token().is_some() {
            return Ok(());
        }
        let repository = &self.request.id.repository;
        if listing.private {
            let message = format!(
                "{repository} is private: set {} to a token that may read it",
                self.request.token_env
            );
            return Err(Error::new(Code::HubUnauthorized, message).with("page", &*self.page));
        }
        if listing.gated {
            return Err(Error::new(
                Code::HubGated,
                fault::gated_message(repository, &self.page, false),
            )
            .with("page", &*self.page));
        }
        Ok(())
    }

    fn url(&self, commit: &str, file: &str) -> String {
        format!("{}/resolve/{commit}/{}", self.page, name::encoded(file, true))
    }

    /// Reads the header at the hub and judges it.
    fn look(&self, plan: &FetchPlan) -> Result<(BlobIdentity, Value)> {
        let file = &plan.files[0];
        let (what, url) = (format!("file {:?}", file.name), self.url(&plan.commit, &file.name));
        let source = RemoteFile {
            client: &self.client,
            cancel: self.cancel,
            asked: self.asked(&what),
            url: &url,
        };
        let (identity, header) = remote_header::read(&source, file)?;
        let info = self.judge(&header, "the model was refused before it was downloaded")?;
        Ok((identity, info))
    }

    /// The reply of `llb_model_info`; an error where bytes of tensors are missing, or where tools
    /// are required and the template cannot carry them.
    fn judge(&self, header: &ModelHeader, when: &str) -> Result<Value> {
        if let Some(cut) =
            header.diagnostics().iter().find(|problem| problem.code == "file_truncated")
        {
            let message = format!("{}: {}; {when}", self.request.id.repository, cut.message);
            return Err(Error::new(Code::ModelInvalid, message)
                .with("next", "remove the file and fetch it again, or another one"));
        }
        let has_template = header.chat_template().or(header.tool_use_template()).is_some();
        match ModelProfile::of(&ModelProfile::sources(header, None)) {
            Ok(profile) if self.request.require_tools && !profile.is_tool_capable() => {
                let refusal = profile.refusal(has_template);
                let reason = refusal.message().split(';').next().unwrap_or_default();
                let refused = Error::new(
                    refusal.code(),
                    format!("{}: {reason}; {when}", self.request.id.repository),
                );
                let details =
                    refusal.details().into_iter().flatten().filter(|(key, _)| *key != "next");
                let refused =
                    details.fold(refused, |error, (key, value)| error.with(key, value.clone()));
                Err(refused.with(
                    "next",
                    "fetch a model whose chat template supports tools, or this one with \"require_tools\": false",
                ))
            }
            Ok(profile) => Ok(profile.info(header)),
            Err(error) if self.request.require_tools => {
                Err(error.about(&self.request.id.repository))
            }
            Err(error) => Ok(profile::failed_info("chat_template", error.message())),
        }
    }

    /// The reply of a dry run on a model that is not here.
    fn dry(
        &self,
        plan: &FetchPlan,
        first: Option<&BlobIdentity>,
        hint: Value,
        info: Value,
    ) -> Value {
        let files: Vec<Value> = plan
            .files
            .iter()
            .enumerate()
            .map(|(index, file)| {
                let known = first.filter(|_| index == 0);
                let size = file.size.or(known.map(|known| known.size));
                let sha256 = file.sha256.clone().or(known.and_then(|known| known.sha256.clone()));
                json!({ "name": file.name, "size": size, "sha256": sha256, "cached": self.is_here(&plan.commit, file) })
            })
            .collect();
        json!({
            "type": "model_fetched", "id": self.request.id.text, "dry_run": true, "path": null, "paths": [],
            "revision": plan.commit, "sha256": files[0]["sha256"], "from_cache": false,
            "total_bytes": files.iter().try_fold(0_u64, |total, file| total.checked_add(file["size"].as_u64()?)),
            "files": files, "hub": hint, "diagnostics": plan.diagnostics, "model_info": info,
        })
    }

    /// Downloads what is missing, checks the whole, and makes the reply.
    fn obtain(
        &self,
        plan: &FetchPlan,
        hint: Value,
        first: Option<BlobIdentity>,
        progress: &mut FetchProgress,
    ) -> Result<Value> {
        let identities = self.identities(plan, first)?;
        let size_of = |(file, identity): (&ListedFile, &Option<BlobIdentity>)| match identity {
            Some(identity) => identity.size,
            None => self
                .found(&plan.commit, file)
                .and_then(|path| std::fs::metadata(path).ok())
                .map_or(0, |file| file.len()),
        };
        let sizes: Vec<u64> = plan.files.iter().zip(&identities).map(size_of).collect();
        self.check_room(&identities)?;
        progress.expect(sizes.iter().copied().fold(0, u64::saturating_add));
        let mut here = Vec::new();
        let mut before = 0;
        for ((file, identity), size) in plan.files.iter().zip(&identities).zip(sizes) {
            here.push(match identity {
                Some(identity) => self.download(&plan.commit, file, identity, before, progress)?,
                None => self.take(&plan.commit, file)?,
            });
            before = before.saturating_add(size);
            progress.at(before);
        }
        if !self.settings.offline {
            self.cache.note(self.request.revision(), &plan.commit);
        }
        progress.stand(before);
        progress.emit("fetch_verify");
        let info = self.verify(plan, &identities, &here)?;
        let text = |path: &Path| path.to_string_lossy().into_owned();
        let files: Vec<Value> = plan
            .files
            .iter()
            .zip(&here)
            .map(|(file, here)| json!({ "name": file.name, "size": here.size, "sha256": here.sha256, "cached": here.cached }))
            .collect();
        let dry = self.request.dry_run;
        let mut reply = json!({
            "type": "model_fetched", "id": self.request.id.text, "path": text(&here[0].path),
            "paths": here.iter().map(|here| text(&here.path)).collect::<Vec<_>>(),
            "revision": plan.commit, "sha256": here[0].sha256, "from_cache": here.iter().all(|here| here.cached),
            "total_bytes": before, "files": files, "hub": hint, "diagnostics": plan.diagnostics, "model_info": info,
        });
        if dry {
            reply["dry_run"] = true.into();
        }
        Ok(reply)
    }

    /// What the bytes of each file that is missing must be; None for a file that is here.
    fn identities(
        &self,
        plan: &FetchPlan,
        mut first: Option<BlobIdentity>,
    ) -> Result<Vec<Option<BlobIdentity>>> {
        let mut identities = Vec::new();
        for file in &plan.files {
            let probed = first.take();
            if self.found(&plan.commit, file).is_some() {
                identities.push(None);
                continue;
            }
            if self.settings.offline {
                let message = format!(
                    "{}: {} has just gone from the cache",
                    self.request.id.repository, file.name
                );
                return Err(Error::new(Code::Offline, message));
            }
            identities.push(Some(match probed.or_else(|| BlobIdentity::of_listed(file)) {
                Some(known) => known,
                None => {
                    let (what, url) =
                        (format!("file {:?}", file.name), self.url(&plan.commit, &file.name));
                    let source = RemoteFile {
                        client: &self.client,
                        cancel: self.cancel,
                        asked: self.asked(&what),
                        url: &url,
                    };
                    source.read(file, 0, 1)?.0
                }
            }));
        }
        Ok(identities)
    }

    /// Whether the disk has room for what is missing.
    fn check_room(&self, identities: &[Option<BlobIdentity>]) -> Result<()> {
        let missing = |identity: &BlobIdentity| {
            if cache::is_whole(&self.cache.blob(&identity.blob), Some(identity.size)) {
                return 0;
            }
            let part = std::fs::metadata(self.cache.incomplete(&identity.blob))
                .map_or(0, |part| part.len());
            identity.size.saturating_sub(part)
        };
        let needed = identities.iter().flatten().map(missing).fold(0, u64::saturating_add);
        match self.cache.room() {
            Some(room) if needed > room => {
                let folder = self.settings.cache.display();
                let message = format!(
                    "{}: {needed} bytes are to be downloaded, the disk of {folder} has {room}; make room, or give another `cache_dir`",
                    self.request.id.repository
                );
                let error = Error::new(Code::OutOfMemory, message).with("resource", "disk");
                Err(error.with("needed_bytes", needed).with("available_bytes", room))
            }
            _ => Ok(()),
        }
    }

    fn download(
        &self,
        commit: &str,
        file: &ListedFile,
        identity: &BlobIdentity,
        before: u64,
        progress: &mut FetchProgress,
    ) -> Result<LocalFile> {
        let etag = &identity.blob;
        self.cache.prepare(etag)?;
        let lock = self.cache.lock(etag, self.cancel)?;
        let blob = self.cache.blob(etag);
        if cache::is_whole(&blob, Some(identity.size)) {
            self.cache.link(etag, commit, &file.name)?;
            return self.take(commit, file);
        }
        let (what, url) = (format!("file {:?}", file.name), self.url(commit, &file.name));
        let source = RemoteFile {
            client: &self.client,
            cancel: self.cancel,
            asked: self.asked(&what),
            url: &url,
        };
        // Without locks somebody else may write there: then the part is nobody else's, and nobody
        // goes on with it.
        let incomplete = if lock.is_held() {
            self.cache.incomplete(etag)
        } else {
            self.cache.own_incomplete(etag)
        };
        let part = Download {
            source: &source,
            identity,
            name: &file.name,
            incomplete: &incomplete,
            before,
        };
        let made = part.complete(&blob, progress);
        if !lock.is_held() {
            let _ = std::fs::remove_file(&incomplete);
        }
        let sha256 = made?;
        let path = self.cache.link(etag, commit, &file.name)?;
        Ok(LocalFile { path, sha256, size: identity.size, cached: false })
    }

    /// A file that is here already.
    fn take(&self, commit: &str, file: &ListedFile) -> Result<LocalFile> {
        let path = self.cache.pointer(commit, &file.name);
        let unreadable = |error: std::io::Error| {
            Error::new(Code::ModelNotFound, format!("{}: {error}", path.display())).caused_by(error)
        };
        let size = std::fs::metadata(&path).map_err(unreadable)?.len();
        let sha256 = match self.cache.sha256(&path) {
            Some(sha256) => sha256,
            // A copy, in a cache without links, or a file whose etag is no hash.
            None => hash::of_file(&path, self.cancel)?,
        };
        if let Some(listed) = file.sha256.as_ref().filter(|listed| **listed != sha256) {
            let message = format!(
                "{}: its sha256 is {sha256}, the hub says {listed}; remove it and try again",
                path.display()
            );
            return Err(Error::new(Code::HubVerify, message).with("file", &*file.name));
        }
        Ok(LocalFile { path, sha256, size, cached: true })
    }

    /// Judges the file as it is on the disk. What was downloaded just now and fails where tools are
    /// required is put aside.
    fn verify(
        &self,
        plan: &FetchPlan,
        identities: &[Option<BlobIdentity>],
        here: &[LocalFile],
    ) -> Result<Value> {
        let judged = ModelHeader::read_file(&here[0].path)
            .and_then(|header| self.judge(&header, "the model was not taken"));
        let error = match judged {
            Err(error) if self.request.require_tools => error,
            other => return other,
        };
        // A file that cannot be read just now, or memory that is short, says nothing about the
        // model.
        if !matches!(
            error.code(),
            Code::ModelInvalid
                | Code::ModelNotToolCapable
                | Code::TemplateError
                | Code::TemplateLimit
        ) {
            return Err(error);
        }
        let fresh = plan.files.iter().zip(identities).zip(here).filter(|(_, here)| !here.cached);
        let kept: Vec<String> = fresh
            .filter_map(|((file, identity), _)| {
                let kept = self.cache.quarantine(
                    &identity.as_ref()?.blob,
                    &plan.commit,
                    &file.name,
                    &error,
                )?;
                Some(kept.to_string_lossy().into_owned())
            })
            .collect();
        Err(if kept.is_empty() { error } else { error.with("quarantine", kept) })
    }
}
