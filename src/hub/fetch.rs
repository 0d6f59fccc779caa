//! One fetch: interprets the request, refuses unsuitable models before the download, and builds the
//! reply.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::cache::{self, HubCache};
use super::fault::{self, MAX_TRIES};
use super::http::HubClient;
use super::listing::{self, ListedFile, Listing};
use super::refusal::RequestContext;
use super::remote_file::{BlobIdentity, RemoteFile};
use super::request::FetchRequest;
use super::running::{CancelToken, FetchProgress};
use super::settings::Settings;
use super::{file_selection, name, refusal, remote_header};
use crate::diagnostic::Diagnostic;
use crate::error::{Code, Error, Result};
use crate::gguf::ModelHeader;
use crate::profile::{self, ModelProfile};

pub(super) struct Fetch<'a> {
    pub(super) request: &'a FetchRequest,
    pub(super) settings: &'a Settings,
    pub(super) cancel: &'a CancelToken,
    pub(super) cache: HubCache,
    pub(super) client: HubClient<'a>,
    /// The web page of the model.
    pub(super) page: String,
    /// The URL of the model in the hub's API.
    pub(super) api: String,
}

/// The files of a request.
pub(super) struct FetchPlan {
    pub(super) commit: String,
    /// The parts of the model, and its projector.
    pub(super) files: Vec<ListedFile>,
    /// Whether the last file is a projector.
    pub(super) has_projector: bool,
    diagnostics: Vec<Diagnostic>,
}

/// A file in the cache.
pub(super) struct LocalFile {
    pub(super) path: PathBuf,
    pub(super) sha256: String,
    pub(super) size: u64,
    pub(super) cached: bool,
}

impl Fetch<'_> {
    pub(super) fn run(&self, progress: &mut FetchProgress) -> Result<Value> {
        let cached = self.plan_from_cache();
        if self.settings.offline {
            return self.obtain(&cached?, Value::Null, None, progress);
        }
        // With a cached copy, an unreachable hub is not retried.
        let tries = if cached.is_ok() { 1 } else { MAX_TRIES };
        let context = self.context(format!("revision {:?}", self.request.revision()));
        let revision = self.request.revision.as_deref();
        let list = || {
            let listing =
                listing::request(&self.client, &self.api, revision, &context, self.cancel)?;
            Ok(listing.without(&self.settings.redactor)?)
        };
        let listing = match (fault::retry(self.cancel, tries, list), cached) {
            (Ok(listing), _) => listing,
            (Err(error), Ok(mut plan)) if error.code() == Code::HubNetwork => {
                let message = format!("using the cached copy: {}", error.message());
                plan.diagnostics.push(Diagnostic::new("hub_unreachable", message));
                return self.obtain(&plan, Value::Null, None, progress);
            }
            (Err(error), _) => return Err(error),
        };
        self.check_commit(&listing)?;
        let plan = self.plan(&listing)?;
        if plan.files.iter().all(|file| self.is_cached(&plan.commit, file)) {
            return self.obtain(&plan, Value::Null, None, progress);
        }
        self.check_access(&listing)?;
        let hint = listing::hint(&self.client, &self.api, self.cancel)?;
        let file = &plan.files[0];
        let copies = self.header_copies(&plan);
        let copy = copies.first().map(PathBuf::as_path);
        let (first, header) =
            remote_header::read(&self.remote_file(&plan.commit, &file.name), file, copy)?;
        let checked = self.check_model(&header, "the model was refused before it was downloaded");
        let info = checked.inspect_err(|_| {
            copy.into_iter().for_each(|copy| drop(std::fs::remove_file(copy)));
        })?;
        if self.request.dry_run {
            for (file, copy) in plan.files.iter().zip(&copies).skip(1) {
                let remote = self.remote_file(&plan.commit, &file.name);
                remote_header::copy_part(&remote, file, copy)?;
            }
            let mut reply = self.dry_run_reply(&plan, &first, hint, info);
            if let Some(copy) = copy {
                reply["header_path"] = json!(copy.to_string_lossy());
            }
            return Ok(reply);
        }
        self.obtain(&plan, hint, Some(first), progress)
    }

    fn context(&self, what: String) -> RequestContext<'_> {
        RequestContext {
            repository: &self.request.id.repository,
            page: &self.page,
            what,
            has_token: self.settings.token.is_some(),
        }
    }

    pub(super) fn remote_file(&self, commit: &str, file: &str) -> RemoteFile<'_> {
        RemoteFile {
            client: &self.client,
            cancel: self.cancel,
            context: self.context(format!("file {file:?}")),
            url: format!("{}/resolve/{commit}/{}", self.page, name::encoded(file, true)),
        }
    }

    /// The files of the request in a repository.
    fn plan(&self, listing: &Listing) -> Result<FetchPlan> {
        let names: Vec<&str> = listing.files.iter().map(|file| &*file.name).collect();
        let selected =
            file_selection::select(self.request, &names).map_err(|error| match error.code() {
                Code::HubNotFound if !listing.refused.is_empty() => {
                    listing::refused_names(&self.request.id.repository, listing)
                }
                _ => error,
            })?;
        let file = |name: &String| listing.files.iter().find(|file| file.name == *name).cloned();
        self.with_projector(&listing.commit, selected, &names, |name| file(&name))
    }

    /// The plan for the selected parts of a model, with its projector.
    fn with_projector(
        &self,
        commit: &str,
        selected: Vec<String>,
        names: &[&str],
        file: impl Fn(String) -> Option<ListedFile>,
    ) -> Result<FetchPlan> {
        let model = selected.first().map_or("", String::as_str);
        let (projector, remark) = file_selection::select_projector(self.request, model, names)?;
        Ok(FetchPlan {
            commit: commit.to_owned(),
            has_projector: projector.is_some(),
            files: selected.into_iter().chain(projector).filter_map(file).collect(),
            diagnostics: remark.into_iter().collect(),
        })
    }

    /// The files of the request in the cache.
    fn plan_from_cache(&self) -> Result<FetchPlan> {
        let (repository, revision) = (&self.request.id.repository, self.request.revision());
        let offline = |problem: &str| {
            let message = format!(
                "{problem}, and the hub may not be used; fetch it once while online, or set `cache_dir` to the cache that \
                 has it (searched in {})",
                self.settings.cache.display()
            );
            Error::new(Code::Offline, message)
        };
        let Some(commit) = self.cache.commit(revision) else {
            let problem = format!("revision {revision:?} of {repository} is not in the cache");
            return Err(offline(&problem));
        };
        let names = self.cache.files(&commit);
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let missing = |error: Error| match error.code() {
            Code::HubNotFound => offline(&format!("not in the cache: {}", error.message())),
            _ => error,
        };
        let selected = file_selection::select(self.request, &names).map_err(missing)?;
        let file = |name| Some(ListedFile { name, ..ListedFile::default() });
        self.with_projector(&commit, selected, &names, file).map_err(missing)
    }

    /// Whether a file is already in the cache.
    fn is_cached(&self, commit: &str, file: &ListedFile) -> bool {
        self.find(commit, file).is_some()
            || file
                .sha256
                .as_ref()
                .is_some_and(|hash| cache::is_complete(&self.cache.blob(hash), file.size))
    }

    /// The path of a file in a commit, if the cache has the bytes that the hub lists.
    pub(super) fn find(&self, commit: &str, file: &ListedFile) -> Option<PathBuf> {
        let path = self.cache.find(commit, &file.name, file.size)?;
        match (self.cache.sha256(&path), &file.sha256) {
            (Some(cached), Some(listed)) if cached != *listed => None,
            _ => Some(path),
        }
    }

    /// If the request names a commit, the hub must answer with that commit.
    fn check_commit(&self, listing: &Listing) -> Result<()> {
        match &self.request.revision {
            Some(requested) if name::is_commit(requested) && *requested != listing.commit => {
                let message = format!(
                    "{}: commit {requested} was requested, but the hub answered with {}",
                    self.request.id.repository, listing.commit
                );
                Err(Error::new(Code::HubVerify, message))
            }
            _ => Ok(()),
        }
    }

    fn check_access(&self, listing: &Listing) -> Result<()> {
        let repository = &self.request.id.repository;
        let refusal = match self.settings.token.is_some() {
            true => return Ok(()),
            false if listing.private => Error::new(
                Code::HubUnauthorized,
                format!(
                    "{repository} is private: set {} to a token that may read it",
                    self.request.token_env
                ),
            ),
            false if listing.gated => {
                Error::new(Code::HubGated, refusal::gated_message(repository, &self.page, false))
            }
            false => return Ok(()),
        };
        Err(refusal.with("page", &*self.page))
    }

    /// The reply of `llb_model_info` for this model. Fails if the file is truncated, or if tools
    /// are required and the template does not support them.
    pub(super) fn check_model(&self, header: &ModelHeader, consequence: &str) -> Result<Value> {
        let repository = &self.request.id.repository;
        if let Some(truncated) =
            header.diagnostics().iter().find(|problem| problem.code == "file_truncated")
        {
            let message = format!("{repository}: {}; {consequence}", truncated.message);
            return Err(Error::new(Code::ModelInvalid, message)
                .with("next", "remove the file and fetch it again, or fetch another one"));
        }
        let has_template = header.chat_template().or(header.tool_use_template()).is_some();
        match ModelProfile::of(&ModelProfile::sources(header, None)) {
            Ok(profile) if self.request.require_tools && !profile.is_tool_capable() => {
                let refusal = profile.refusal(has_template);
                let reason = refusal.message().split(';').next().unwrap_or_default();
                let message = format!("{repository}: {reason}; {consequence}");
                let details =
                    refusal.details().into_iter().flatten().filter(|(key, _)| *key != "next");
                let error = details
                    .fold(Error::new(refusal.code(), message), |error, (key, value)| {
                        error.with(key, value.clone())
                    });
                Err(error.with(
                    "next",
                    "fetch a model whose chat template supports tools, or this one with \
                     \"require_tools\": false",
                ))
            }
            Ok(profile) => Ok(profile.info(header)),
            Err(error) if self.request.require_tools => Err(error.about(repository)),
            Err(error) => Ok(profile::failed_info("chat_template", error.message())),
        }
    }

    /// The paths of the copies of the headers, one for each file; empty without `header_dir`.
    fn header_copies(&self, plan: &FetchPlan) -> Vec<PathBuf> {
        let Some(folder) = self.request.header_dir.as_deref().map(Path::new) else {
            return Vec::new();
        };
        let last = |name: &str| name.rsplit('/').next().unwrap_or_default().to_owned();
        plan.files.iter().map(|file| folder.join(last(&file.name))).collect()
    }

    /// The reply of a dry run for a model that is not cached.
    fn dry_run_reply(
        &self,
        plan: &FetchPlan,
        first: &BlobIdentity,
        hint: Value,
        info: Value,
    ) -> Value {
        let files: Vec<Value> = plan
            .files
            .iter()
            .enumerate()
            .map(|(index, file)| {
                let identity = Some(first).filter(|_| index == 0);
                let size = file.size.or(identity.map(|identity| identity.size));
                let sha256 =
                    file.sha256.clone().or(identity.and_then(|identity| identity.sha256.clone()));
                let cached = self.is_cached(&plan.commit, file);
                json!({ "name": file.name, "size": size, "sha256": sha256, "cached": cached })
            })
            .collect();
        json!({
            "type": "model_fetched", "id": self.request.id.text, "dry_run": true, "path": null, "paths": [], "projector": null,
            "revision": plan.commit, "sha256": files[0]["sha256"], "from_cache": false,
            "total_bytes": files.iter().try_fold(0_u64, |total, file| total.checked_add(file["size"].as_u64()?)),
            "files": files, "hub": hint, "diagnostics": plan.diagnostics, "model_info": info,
        })
    }

    /// The reply for a model that is in the cache.
    pub(super) fn reply(
        &self,
        plan: &FetchPlan,
        local: &[LocalFile],
        total_bytes: u64,
        hint: Value,
        info: Value,
    ) -> Value {
        let text = |path: &Path| path.to_string_lossy().into_owned();
        let (model, projector) = local.split_at(local.len() - usize::from(plan.has_projector));
        let files: Vec<Value> = plan
            .files
            .iter()
            .zip(local)
            .map(|(file, local)| json!({ "name": file.name, "size": local.size, "sha256": local.sha256, "cached": local.cached }))
            .collect();
        let mut reply = json!({
            "type": "model_fetched", "id": self.request.id.text, "path": text(&local[0].path),
            "paths": model.iter().map(|local| text(&local.path)).collect::<Vec<_>>(),
            "projector": projector.first().map(|local| text(&local.path)),
            "revision": plan.commit, "sha256": local[0].sha256, "from_cache": local.iter().all(|local| local.cached),
            "total_bytes": total_bytes, "files": files, "hub": hint, "diagnostics": plan.diagnostics, "model_info": info,
        });
        if self.request.dry_run {
            reply["dry_run"] = true.into();
        }
        reply
    }
}
