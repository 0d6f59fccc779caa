//! Resolves the argument MODEL to a file. MODEL is a file, a name that `llb models` prints or the
//! beginning of one, `hf:ORG/NAME[:QUANT]`, or the URL of a page on the hub.

use std::env;
use std::path::Path;

use serde_json::{Value, json};

use crate::abi;
use crate::cached_models;
use crate::failure::{Failure, Result};
use crate::interrupt;
use crate::terminal;

/// The help text of the argument, shared by all commands.
pub(crate) const HELP: &str = "A GGUF file, a name from `llb models` or its beginning, hf:ORG/NAME[:QUANT] for a model on the \
     Hugging Face hub, or its URL there";

/// Where a model is.
#[derive(Debug, PartialEq)]
pub(crate) enum ModelSource {
    /// A file on this machine: its path, or a name that `llb models` prints.
    File(String),
    /// A model on the hub, as a request for `llb_model_fetch`.
    Hub(Value),
}

impl ModelSource {
    /// Reads the argument.
    pub(crate) fn read(model: &str) -> Result<ModelSource> {
        if let Some(id) = model.strip_prefix("hf:") {
            return Ok(ModelSource::Hub(json!({ "id": id })));
        }
        let Some((scheme, rest)) = model.split_once("://") else {
            return Ok(ModelSource::File(model.to_owned()));
        };
        let endpoint = env::var("HF_ENDPOINT").ok().filter(|endpoint| !endpoint.is_empty());
        let endpoint = endpoint.as_deref().unwrap_or("https://huggingface.co");
        let hosts = [endpoint.trim_end_matches('/'), "https://huggingface.co", "https://hf.co"];
        let page = hosts.iter().find_map(|host| model.strip_prefix(host)?.strip_prefix('/'));
        match page {
            Some(page) => of_page(page)
                .map(ModelSource::Hub)
                .ok_or_else(|| Failure::new(format!("{model}: not the page of a model"))),
            None => {
                let host = rest.split('/').next().unwrap_or(scheme);
                Err(Failure::new(format!("{model}: {host} is not the Hugging Face hub"))
                    .next("download the file, or set HF_ENDPOINT if this host mirrors the hub"))
            }
        }
    }

    /// The file's path. A model on the hub is downloaded first.
    pub(crate) fn file(self) -> Result<String> {
        match self {
            ModelSource::File(name) => existing(name),
            ModelSource::Hub(mut request) => {
                request["require_tools"] = false.into();
                let fetched = fetch(&request)?;
                fetched["path"]
                    .as_str()
                    .map(str::to_owned)
                    .ok_or_else(|| Failure::new("the reply of a fetch has no path"))
            }
        }
    }

    /// The model information, and the path of a file with the model's header. For a model on the
    /// hub, both come from the file's first megabytes: the header is copied to `folder`.
    pub(crate) fn info(self, folder: Option<&Path>) -> Result<(Value, Option<String>)> {
        match self {
            ModelSource::File(name) => {
                let path = existing(name)?;
                Ok((abi::model_info(&path)?, Some(path)))
            }
            ModelSource::Hub(mut request) => {
                request["require_tools"] = false.into();
                request["dry_run"] = true.into();
                request["header_dir"] = folder.map(|folder| folder.to_string_lossy()).into();
                let mut fetched = fetch(&request)?;
                let path = fetched["path"].as_str().or(fetched["header_path"].as_str());
                let path = path.map(str::to_owned);
                Ok((fetched["model_info"].take(), path))
            }
        }
    }
}

/// The file for a MODEL argument.
pub(crate) fn model_file(model: &str) -> Result<String> {
    ModelSource::read(model)?.file()
}

/// Runs a fetch with a progress bar. Ctrl-C cancels it.
pub(crate) fn fetch(request: &Value) -> Result<Value> {
    let id = request["id"].as_str().unwrap_or_default().to_owned();
    let progress = terminal::progress(&id);
    interrupt::cancellable(
        move || abi::model_fetch_cancel(&id),
        || abi::model_fetch(request, progress),
    )
}

/// The path of a file, or of the cached model with this name.
fn existing(name: String) -> Result<String> {
    if Path::new(&name).exists() {
        return Ok(name);
    }
    match cached_models::find(&cached_models::models(None), &name)? {
        Some(model) => Ok(model.path.to_string_lossy().into_owned()),
        None => Err(not_found(&name)),
    }
}

/// No file and no cached model has this name.
fn not_found(path: &str) -> Failure {
    let message = format!("{path}: no such file");
    let error = json!({ "code": "MODEL_NOT_FOUND", "message": message });
    let looks_like_id = path.split('/').count() == 2 && !path.ends_with(".gguf");
    if looks_like_id {
        return Failure::of_library(&error)
            .next(format!("for a model of the Hugging Face hub, write hf:{path}"));
    }
    Failure::of_library(&error)
}

/// Converts `org/name`, `org/name/tree/REV` or `org/name/resolve/REV/FILE` to a request.
fn of_page(page: &str) -> Option<Value> {
    let page = page.split(['?', '#']).next()?.trim_end_matches('/');
    let mut parts = page.splitn(5, '/');
    let (org, name) = (parts.next()?, parts.next()?);
    let mut request = json!({ "id": format!("{org}/{name}") });
    match (parts.next(), parts.next(), parts.next()) {
        (None, ..) => {}
        (Some("tree" | "resolve" | "blob"), Some(revision), file) => {
            request["revision"] = revision.into();
            if let Some(file) = file {
                request["filename"] = file.into();
            }
        }
        _ => return None,
    }
    Some(request)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(model: &str, expected: ModelSource) {
        assert_eq!(ModelSource::read(model).unwrap(), expected);
    }

    #[test]
    fn arguments_are_files_ids_or_pages() {
        check("a/b.gguf", ModelSource::File("a/b.gguf".into()));
        check("hf:a/b:Q8_0", ModelSource::Hub(json!({ "id": "a/b:Q8_0" })));
        check("https://huggingface.co/a/b", ModelSource::Hub(json!({ "id": "a/b" })));
        check(
            "https://huggingface.co/a/b/resolve/main/x/c.gguf?download=true",
            ModelSource::Hub(json!({ "id": "a/b", "revision": "main", "filename": "x/c.gguf" })),
        );
        let other = ModelSource::read("https://example.org/a/b").unwrap_err();
        assert!(other.next.unwrap().contains("HF_ENDPOINT"));
    }
}
