//! Finds model files in the hub's cache, in the folder LLB_MODELS, and in the caches of llama.cpp
//! and Ollama. Reads only folders and Ollama's manifests.

use std::path::{Path, PathBuf};
use std::{env, fs};

use crate::failure::{Failure, Result};

/// A model file.
#[derive(Debug)]
pub(crate) struct CachedModel {
    /// `org/name/file.gguf`, `name:tag`, or the name of the file.
    pub(crate) name: String,
    pub(crate) path: PathBuf,
    pub(crate) size: u64,
    /// The cache or folder that contains it.
    pub(crate) place: &'static str,
    /// The hash, if the cache records it.
    pub(crate) sha256: Option<String>,
    /// `org/name`, in the cache of the hub.
    pub(crate) repository: Option<String>,
}

impl CachedModel {
    /// Whether this is its name, or that of its repository.
    pub(crate) fn is_named(&self, name: &str) -> bool {
        self.name == name || self.repository.as_deref() == Some(name)
    }

    /// Whether its name, or that of its file, begins with a text in lower case.
    fn begins_with(&self, lower: &str) -> bool {
        let name = self.name.to_lowercase();
        name.starts_with(lower) || name.rsplit('/').next().is_some_and(|it| it.starts_with(lower))
    }

    /// Whether this is the second or a later file of a split model, which opens with its first.
    fn is_later_part(&self) -> bool {
        let stem = self.name.strip_suffix(".gguf").unwrap_or(&self.name);
        let digits = |text: &&str| text.len() == 5 && text.bytes().all(|it| it.is_ascii_digit());
        stem.rsplit_once("-of-")
            .filter(|(_, count)| digits(count))
            .and_then(|(before, _)| before.rsplit_once('-'))
            .is_some_and(|(_, number)| digits(&number) && number != "00001")
    }

    /// The file that the links lead to.
    pub(crate) fn content(&self) -> PathBuf {
        self.path.canonicalize().unwrap_or_else(|_| self.path.clone())
    }

    /// Removes the folders of the snapshot and the model if they are empty.
    pub(crate) fn remove_empty_folders(&self) {
        let snapshot = self.path.parent();
        let snapshots = snapshot.and_then(Path::parent);
        for folder in [snapshot, snapshots].into_iter().flatten() {
            // A folder that is not empty is kept.
            let _ = fs::remove_dir(folder);
        }
    }
}

/// All models, sorted by place and name.
pub(crate) fn models(hub_cache: Option<&Path>) -> Vec<CachedModel> {
    let mut models = Vec::new();
    if let Some(folder) = hub_cache.map(PathBuf::from).or_else(self::hub_cache) {
        of_hub(&folder, &mut models);
    }
    if let Some(folder) = llb_models() {
        of_folder(&folder, "llb", &mut models);
    }
    if let Some(folder) = variable("LLAMA_CACHE").or_else(|| Some(cache()?.join("llama.cpp"))) {
        of_folder(&folder, "llama.cpp", &mut models);
    }
    let ollama =
        variable("OLLAMA_MODELS").or_else(|| Some(env::home_dir()?.join(".ollama/models")));
    if let Some(folder) = ollama {
        of_ollama(&folder, &mut models);
    }
    models
}

/// The model with a name that `llb models` prints, or whose name alone begins with this text. Upper
/// and lower case are equal. `None` if there is no such model.
///
/// Fails if there are several.
pub(crate) fn find<'a>(models: &'a [CachedModel], name: &str) -> Result<Option<&'a CachedModel>> {
    let openable = || models.iter().filter(|model| !model.is_later_part());
    let lower = name.to_lowercase();
    let mut found: Vec<&CachedModel> = openable().filter(|model| model.is_named(name)).collect();
    if found.is_empty() && !name.is_empty() {
        found = openable().filter(|model| model.begins_with(&lower)).collect();
    }
    // One file may have several names.
    let same = |model: &CachedModel| found.iter().all(|other| other.content() == model.content());
    match found.as_slice() {
        [] => Ok(None),
        [first, ..] if same(first) => Ok(Some(*first)),
        [..] => {
            let mut names: Vec<String> = found.iter().map(|model| model.name.clone()).collect();
            names.dedup();
            if names.len() < found.len() {
                names = found.iter().map(|model| model.path.display().to_string()).collect();
            }
            let message = format!("{name}: {} models have such a name", found.len());
            Err(Failure::new(message).next(format!("write one of {}", names.join(", "))))
        }
    }
}

/// The cache folder of huggingface_hub, according to its environment variables.
pub(crate) fn hub_cache() -> Option<PathBuf> {
    variable("HF_HUB_CACHE")
        .or_else(|| Some(variable("HF_HOME")?.join("hub")))
        .or_else(|| Some(cache()?.join("huggingface/hub")))
}

fn llb_models() -> Option<PathBuf> {
    variable("LLB_MODELS").or_else(|| Some(cache()?.join("llb/models")))
}

fn cache() -> Option<PathBuf> {
    variable("XDG_CACHE_HOME").or_else(|| Some(env::home_dir()?.join(".cache")))
}

fn variable(name: &str) -> Option<PathBuf> {
    env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

/// Finds models in the hub's layout: `models--org--name/snapshots/COMMIT/file.gguf` is a link to
/// `blobs/SHA256`.
fn of_hub(folder: &Path, models: &mut Vec<CachedModel>) {
    for repository in entries(folder) {
        let name = repository.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let Some(name) = name.strip_prefix("models--") else { continue };
        let name = name.replacen("--", "/", 1);
        for snapshot in entries(&repository.join("snapshots")) {
            for path in gguf_files(&snapshot) {
                let file = path.strip_prefix(&snapshot).unwrap_or(&path).display().to_string();
                let blob = fs::read_link(&path).ok();
                let blob = blob.as_deref().and_then(Path::file_name);
                let hash = blob.map(|name| name.to_string_lossy().into_owned());
                let is_hash = |text: &String| {
                    text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
                };
                models.extend(model(
                    format!("{name}/{file}"),
                    path,
                    "hub",
                    hash.filter(is_hash),
                    Some(name.clone()),
                ));
            }
        }
    }
}

fn of_folder(folder: &Path, place: &'static str, models: &mut Vec<CachedModel>) {
    for path in gguf_files(folder) {
        let name = path.strip_prefix(folder).unwrap_or(&path).display().to_string();
        models.extend(model(name, path, place, None, None));
    }
}

/// Finds models in Ollama's layout: `manifests/HOST/NAMESPACE/NAME/TAG` names the blob of the model
/// layer.
fn of_ollama(folder: &Path, models: &mut Vec<CachedModel>) {
    let manifests = folder.join("manifests");
    let mut files = Vec::new();
    walk(&manifests, 5, &mut files);
    for manifest in files {
        let Ok(text) = fs::read_to_string(&manifest) else { continue };
        let value = crate::json::value(&text).unwrap_or_default();
        let layers = value["layers"].as_array().into_iter().flatten();
        let digest = layers
            .filter(|layer| layer["mediaType"] == "application/vnd.ollama.image.model")
            .find_map(|layer| layer["digest"].as_str()?.strip_prefix("sha256:"));
        let Some(hash) = digest.filter(|hash| hash.bytes().all(|b| b.is_ascii_hexdigit())) else {
            continue;
        };
        let path = manifest.strip_prefix(&manifests).unwrap_or(&manifest);
        let parts: Vec<String> =
            path.iter().skip(1).map(|part| part.to_string_lossy().into_owned()).collect();
        let Some((tag, name)) = parts.split_last() else { continue };
        let name = name.join("/");
        let name = format!("{}:{tag}", name.strip_prefix("library/").unwrap_or(&name));
        let blob = folder.join("blobs").join(format!("sha256-{hash}"));
        models.extend(model(name, blob, "ollama", Some(hash.to_owned()), None));
    }
}

fn model(
    name: String,
    path: PathBuf,
    place: &'static str,
    sha256: Option<String>,
    repository: Option<String>,
) -> Option<CachedModel> {
    let size = fs::metadata(&path).ok()?.len();
    Some(CachedModel { name, path, size, place, sha256, repository })
}

fn gguf_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    walk(folder, 3, &mut files);
    files.retain(|path| path.extension().is_some_and(|extension| extension == "gguf"));
    files
}

/// Collects the files in a folder and its subfolders, sorted. Links to folders are not followed.
fn walk(folder: &Path, depth: usize, files: &mut Vec<PathBuf>) {
    for path in entries(folder) {
        let is_folder = fs::symlink_metadata(&path).is_ok_and(|entry| entry.is_dir());
        if !is_folder {
            files.push(path);
        } else if depth > 0 {
            walk(&path, depth - 1, files);
        }
    }
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    let mut paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort();
    paths
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cached(name: &str, repository: Option<&str>) -> CachedModel {
        CachedModel {
            name: name.to_owned(),
            path: PathBuf::from("/models").join(name),
            size: 1,
            place: "hub",
            sha256: None,
            repository: repository.map(str::to_owned),
        }
    }

    #[test]
    fn a_name_or_a_beginning_that_only_one_model_has_is_enough() {
        let models = [
            cached("Org/Qwen-GGUF/qwen-q4.gguf", Some("Org/Qwen-GGUF")),
            cached("Org/Qwen-GGUF/qwen-q8.gguf", Some("Org/Qwen-GGUF")),
            cached("big/large-00001-of-00002.gguf", None),
            cached("big/large-00002-of-00002.gguf", None),
            cached("tiny:latest", None),
        ];
        let name = |text: &str| find(&models, text).map(|model| model.map(|it| it.name.as_str()));
        for (text, expected) in [
            ("Org/Qwen-GGUF/qwen-q4.gguf", Some("Org/Qwen-GGUF/qwen-q4.gguf")),
            ("QWEN-Q8", Some("Org/Qwen-GGUF/qwen-q8.gguf")),
            ("org/qwen-gguf/qwen-q8", Some("Org/Qwen-GGUF/qwen-q8.gguf")),
            ("large", Some("big/large-00001-of-00002.gguf")),
            ("tiny", Some("tiny:latest")),
            ("q8", None),
            ("", None),
        ] {
            assert_eq!(name(text).unwrap(), expected, "{text}");
        }
        for text in ["qwen", "Org/Qwen-GGUF"] {
            let failure = name(text).unwrap_err();
            assert!(failure.to_string().contains("2 models"), "{failure}");
            assert!(failure.next.unwrap().contains("qwen-q4.gguf, Org/"));
        }
    }
}
