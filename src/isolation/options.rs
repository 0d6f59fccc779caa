//! The options of an isolated chat: the JSON that the helper receives, and the files that it may
//! read.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde_json::Value;

use crate::api::{CreateOptions, ProjectorChoice, Speculative};
use crate::error::{Error, Result};
use crate::gguf::{self, projector_beside};

/// Options of the host, which alone opens and fetches these files.
const OF_HOST: [&str; 4] = ["isolation", "media_folders", "media_urls", "state_file"];

/// The options as the helper receives them.
pub(super) struct HelperOptions {
    /// Paths are absolute, because the helper has its own working directory.
    pub(super) json: String,
    pub(super) key: HelperKey,
    /// The state file, which only the host opens.
    pub(super) state_file: Option<PathBuf>,
    /// The size of the projector.
    pub(super) projector_gigabytes: Option<f64>,
}

/// Identifies a helper: chats with equal keys share one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HelperKey {
    /// All files that the helper may read.
    pub(super) files: Vec<AllowedFile>,
    /// The option `backend`.
    pub(super) backend: Option<String>,
}

/// A file that a helper may read, as it was when the chat was created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct AllowedFile {
    pub(super) path: String,
    pub(super) size: u64,
    device_and_inode: (u64, u64),
    modified: Option<SystemTime>,
}

impl HelperOptions {
    /// `json` is the text that `options` was parsed from.
    pub(super) fn new(options: &CreateOptions, json: &Value) -> Result<HelperOptions> {
        let mut json = json.clone();
        let mut paths = Vec::new();
        if let Some(model) = &options.model {
            let model = absolute(model, "model")?;
            paths.extend(gguf::part_paths(Path::new(&model)));
            json["model"] = model.into();
        }
        for (index, lora) in options.loading.lora.iter().enumerate() {
            let path = absolute(&lora.path, &format!("lora[{index}].path"))?;
            paths.push(path.clone().into());
            match &mut json["lora"][index] {
                Value::Object(members) => drop(members.insert("path".to_owned(), path.into())),
                text => *text = path.into(),
            }
        }
        if let Speculative::Draft { model, .. } = &options.loading.speculative {
            let model = absolute(model, "draft_model")?;
            paths.extend(gguf::part_paths(Path::new(&model)));
            json["draft_model"] = model.into();
        }
        let mut projector_gigabytes = None;
        if let Some(path) = projector(options.loading.projector.as_ref(), &json["model"])? {
            let file = AllowedFile::new(Path::new(&path));
            projector_gigabytes = file.map(|file| file.size as f64 / 1e9);
            paths.push(PathBuf::from(&path));
            json["projector"] = path.into();
        } else if let Value::Object(members) = &mut json {
            members.remove("projector");
        }
        let state_file = options.storage.state_file.as_ref();
        let state_file = state_file.map(|path| absolute(path, "state_file")).transpose()?;
        json["n_gpu_layers"] = 0.into();
        if let Value::Object(members) = &mut json {
            members.retain(|name, _| !OF_HOST.contains(&name.as_str()));
        }
        paths.sort_unstable();
        paths.dedup();
        Ok(HelperOptions {
            json: json.to_string(),
            key: HelperKey {
                files: paths.iter().filter_map(|path| AllowedFile::new(path)).collect(),
                backend: options.loading.backend.clone(),
            },
            state_file: state_file.map(PathBuf::from),
            projector_gigabytes,
        })
    }
}

impl HelperKey {
    /// The key of a chat with these files and no other options. `model` is an absolute path.
    pub(super) fn of_files(model: &str, projector: Option<&str>) -> HelperKey {
        let mut paths = gguf::part_paths(Path::new(model));
        paths.extend(projector.map(PathBuf::from));
        paths.sort_unstable();
        paths.dedup();
        let files = paths.iter().filter_map(|path| AllowedFile::new(path)).collect();
        HelperKey { files, backend: None }
    }

    /// The size of all files.
    pub(super) fn gigabytes(&self) -> f64 {
        self.files.iter().map(|file| file.size).sum::<u64>() as f64 / 1e9
    }
}

impl AllowedFile {
    /// Whether both are the same file, under any name.
    pub(super) fn is_same_file(&self, other: &AllowedFile) -> bool {
        self.device_and_inode == other.device_and_inode
    }

    /// `None` unless it is a regular file.
    pub(super) fn new(path: &Path) -> Option<AllowedFile> {
        use std::os::unix::fs::MetadataExt;
        let metadata = std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file)?;
        Some(AllowedFile {
            path: path.to_str()?.to_owned(),
            size: metadata.len(),
            device_and_inode: (metadata.dev(), metadata.ino()),
            modified: metadata.modified().ok(),
        })
    }
}

/// The absolute path of the projector, also of the one that "auto" stands for. The helper cannot
/// look for it, because it may not list folders.
pub(super) fn projector(choice: Option<&ProjectorChoice>, model: &Value) -> Result<Option<String>> {
    let found = match (choice, model.as_str()) {
        (Some(ProjectorChoice::Path(path)), _) => Some(path.clone()),
        (Some(ProjectorChoice::Auto), Some(model)) => {
            projector_beside(Path::new(model))?.map(|path| path.to_string_lossy().into_owned())
        }
        (Some(ProjectorChoice::Auto), None) | (None, _) => None,
    };
    found.map(|path| absolute(&path, "projector")).transpose()
}

/// An empty path stays empty, so that the error is the same as without isolation.
pub(super) fn absolute(path: &str, name: &str) -> Result<String> {
    if path.is_empty() {
        return Ok(String::new());
    }
    let problem = |problem: String| Error::invalid(name, problem);
    let absolute = std::path::absolute(path).map_err(|error| problem(error.to_string()))?;
    let text = absolute.into_os_string().into_string();
    text.map_err(|_| {
        problem("the working directory is not valid UTF-8; use an absolute path".into())
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;
    use serde_json::json;

    #[test]
    fn the_helper_gets_absolute_paths_and_may_read_these_files() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        let names =
            ["m-00001-of-00003.gguf", "m-00003-of-00003.gguf", "a.gguf", "b.gguf", "d.gguf"];
        names.iter().for_each(|name| std::fs::write(path(name), "x").unwrap());
        let json = json!({
            "model": path(names[0]), "lora": [path("a.gguf"), { "path": path("b.gguf") }, "no.gguf"],
            "draft_model": path("d.gguf"), "state_file": "s", "isolation": "process", "log": "warn",
            "media_folders": ["m"], "media_urls": "public",
        });
        let options = CreateOptions::read(&json).unwrap();
        let helper = HelperOptions::new(&options, &json).unwrap();
        let mut allowed: Vec<&str> =
            helper.key.files.iter().map(|file| file.path.as_str()).collect();
        let mut expected = names.map(path).to_vec();
        expected.sort_unstable();
        allowed.sort_unstable();
        assert_eq!(allowed, expected);
        let here = |name: &str| std::env::current_dir().unwrap().join(name);
        assert_eq!(helper.state_file, Some(here("s")));
        let sent: Value = serde_json::from_str(&helper.json).unwrap();
        let expected = json!({
            "model": path(names[0]),
            "lora": [path("a.gguf"), { "path": path("b.gguf") }, here("no.gguf")],
            "draft_model": path("d.gguf"), "log": "warn", "n_gpu_layers": 0,
        });
        assert_eq!(sent, expected);
    }

    #[test]
    fn the_helper_gets_the_path_of_the_projector() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        std::fs::write(path("m.gguf"), "x").unwrap();
        let files = |projector: &str| {
            let json = json!({ "model": path("m.gguf"), "projector": projector });
            let helper = HelperOptions::new(&CreateOptions::read(&json).unwrap(), &json).unwrap();
            let sent: Value = serde_json::from_str(&helper.json).unwrap();
            let files: Vec<String> = helper.key.files.into_iter().map(|file| file.path).collect();
            (sent["projector"].clone(), files)
        };
        assert_eq!(files("auto"), (Value::Null, vec![path("m.gguf")]));
        std::fs::write(path("mmproj.gguf"), "x").unwrap();
        let both = (json!(path("mmproj.gguf")), vec![path("m.gguf"), path("mmproj.gguf")]);
        assert_eq!(files("auto"), both);
        assert_eq!(files(&path("mmproj.gguf")), both);
    }
}
