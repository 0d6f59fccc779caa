//! Finds the available files of kernels and checks which of them can be used. Loads nothing.
//!
//! Two folders are searched: the one that `LLB_BACKENDS` names, and the folder of this library.
//! Both must be absolute, and only users that the process trusts may be able to write there.

use std::path::{Path, PathBuf};

use super::kernel_file::{check_file, check_writers, owners};
use super::variant::{self, BUILT_IN};
use crate::process;

/// The most files to check in a folder.
const MAX_FILES: usize = 64;

/// Where to look for files.
#[derive(Debug, Default)]
pub(crate) struct Places {
    /// The value of `LLB_BACKENDS`.
    pub(crate) named: Option<PathBuf>,
    /// The file of this library, or of the program that contains it.
    pub(crate) library: Option<PathBuf>,
}

/// A folder, and the reason if it is not used.
#[derive(Debug)]
pub(crate) struct Folder {
    pub(crate) path: PathBuf,
    pub(crate) problem: Option<String>,
}

/// A variant that was found.
#[derive(Debug)]
pub(crate) struct FoundKernels {
    /// The variant's name; `None` if the file does not contain it.
    pub(crate) name: Option<&'static str>,
    /// `None` for this library's own kernels.
    pub(crate) file: Option<PathBuf>,
    /// Why the kernels cannot be used.
    pub(crate) problem: Option<Problem>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Problem {
    /// The CPU lacks these features.
    Processor(Vec<&'static str>),
    /// The file was refused, for this reason.
    File(String),
}

impl Problem {
    pub(crate) fn text(&self) -> String {
        match self {
            Problem::Processor(missing) => format!("this processor lacks {}", missing.join(", ")),
            Problem::File(problem) => problem.clone(),
        }
    }
}

/// The result of the search.
#[derive(Debug)]
pub(crate) struct Survey {
    pub(crate) folders: Vec<Folder>,
    /// Usable kernels, fastest first, then the others.
    pub(crate) found: Vec<FoundKernels>,
}

impl Places {
    /// The places for this process.
    pub(crate) fn now() -> Places {
        // A program with more rights than its caller must not trust the caller's environment.
        let named = std::env::var_os("LLB_BACKENDS").filter(|value| !value.is_empty());
        let library = process::mapped_file(Places::now as *const () as usize);
        Places { named: named.filter(|_| !process::has_more_rights()).map(PathBuf::from), library }
    }
}

impl Survey {
    pub(crate) fn of(places: &Places) -> Survey {
        let owners = owners(places.library.as_deref());
        let folders = folders(places, &owners);
        let files = folders.iter().filter(|folder| folder.problem.is_none());
        let mut found = vec![built_in()];
        for file in files.flat_map(|folder| files_in(&folder.path)) {
            let entry = entry(file, &owners, &found);
            found.push(entry);
        }
        // The sort is stable: of two files with the same variant, the first was kept.
        found.sort_by_key(|entry| {
            let rank = entry.name.map_or(0, variant::rank);
            (entry.problem.is_some(), std::cmp::Reverse(rank))
        });
        Survey { folders, found }
    }

    /// Usable kernels, fastest first.
    pub(crate) fn usable(&self) -> impl Iterator<Item = &FoundKernels> {
        self.found.iter().filter(|found| found.problem.is_none())
    }
}

/// The folders to search, in this order.
pub(crate) fn folders(places: &Places, owners: &[u32]) -> Vec<Folder> {
    let beside = places.library.as_deref().and_then(Path::parent).map(Path::to_owned);
    let mut paths: Vec<PathBuf> = places.named.clone().into_iter().chain(beside).collect();
    paths.dedup();
    let folder = |path: PathBuf| Folder { problem: check_folder(&path, owners).err(), path };
    paths.into_iter().map(folder).collect()
}

fn built_in() -> FoundKernels {
    let missing = variant::missing(BUILT_IN).unwrap_or_default();
    let problem = (!missing.is_empty()).then_some(Problem::Processor(missing));
    FoundKernels { name: Some(BUILT_IN), file: None, problem }
}

fn check_folder(path: &Path, owners: &[u32]) -> Result<(), String> {
    if !path.is_absolute() {
        return Err("is not absolute".to_owned());
    }
    let metadata = std::fs::metadata(path).map_err(|error| error.to_string())?;
    if !metadata.is_dir() {
        return Err("is no folder".to_owned());
    }
    check_writers(&metadata, owners, true)
}

/// The files with the name of a file of kernels, sorted.
fn files_in(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let is_ours = |name: &str| name.starts_with("libllb-cpu-") && name.ends_with(".so");
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let mut names: Vec<String> = names.filter(|name| is_ours(name)).collect();
    names.sort_unstable();
    names.truncate(MAX_FILES);
    names.into_iter().map(|name| folder.join(name)).collect()
}

/// Checks a file. `before` are the files found earlier: a variant that they contain is a duplicate.
fn entry(file: PathBuf, owners: &[u32], before: &[FoundKernels]) -> FoundKernels {
    let refused = |name, problem| FoundKernels { name, file: None, problem: Some(problem) };
    let checked = check_file(&file, owners).and_then(|name| {
        let known = variant::all().into_iter().find(|variant| variant.name == name);
        known.map(|variant| variant.name).ok_or_else(|| format!("has unknown kernels, {name:?}"))
    });
    let found = match checked {
        Err(problem) => refused(None, Problem::File(problem)),
        Ok(name) => match variant::missing(name) {
            Some(missing) if missing.is_empty() => {
                let same =
                    |other: &&FoundKernels| other.name == Some(name) && other.problem.is_none();
                match before.iter().find(same) {
                    None => FoundKernels { name: Some(name), file: None, problem: None },
                    Some(FoundKernels { file: None, .. }) => {
                        refused(Some(name), Problem::File("is in this library too".to_owned()))
                    }
                    Some(FoundKernels { file: Some(first), .. }) => {
                        let problem = format!("is the same as {}", first.display());
                        refused(Some(name), Problem::File(problem))
                    }
                }
            }
            missing => refused(Some(name), Problem::Processor(missing.unwrap_or_default())),
        },
    };
    FoundKernels { file: Some(file), ..found }
}

#[cfg(all(test, target_os = "linux", target_arch = "x86_64"))]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::super::kernel_file::{IDENTITY, written};
    use super::*;

    /// Creates a folder with files of these names and texts.
    fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            std::fs::write(folder.path().join(name), written(text)).unwrap();
        }
        folder
    }

    /// Each expected item: the variant, the file name without its folder, and why it is not used.
    #[track_caller]
    fn check(places: &Places, expected: &[(Option<&str>, &str, &str)]) {
        let survey = Survey::of(places);
        let found: Vec<_> = survey
            .found
            .iter()
            .map(|found| {
                let file = found.file.as_ref().map(|file| file.file_name().unwrap());
                let file = file.map_or("", |file| file.to_str().unwrap()).to_owned();
                (found.name, file, found.problem.as_ref().map_or(String::new(), Problem::text))
            })
            .collect();
        let found: Vec<_> =
            found.iter().map(|(name, file, text)| (*name, file.as_str(), text.as_str())).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn files_of_both_folders_are_found() {
        if BUILT_IN != "haswell" || !variant::missing(BUILT_IN).unwrap().is_empty() {
            return;
        }
        let text = |name: &str| format!("{name} {IDENTITY}");
        let named = folder(&[
            ("libllb-cpu-sse42.so", &text("sse42")),
            ("libllb-cpu-unknown.so", &text("unknown")),
            ("other.so", &text("ivybridge")),
        ]);
        let beside = folder(&[
            ("libllb-cpu-haswell.so", &text("haswell")),
            ("libllb-cpu-sandybridge.so", &text("sandybridge")),
            ("libllb-cpu-sse42.so", &text("sse42")),
        ]);
        let library = Some(beside.path().join("libllb.so"));
        check(
            &Places { named: None, library: library.clone() },
            &[
                (Some("haswell"), "", ""),
                (Some("sandybridge"), "libllb-cpu-sandybridge.so", ""),
                (Some("sse42"), "libllb-cpu-sse42.so", ""),
                (Some("haswell"), "libllb-cpu-haswell.so", "is in this library too"),
            ],
        );
        let same = format!("is the same as {}", named.path().join("libllb-cpu-sse42.so").display());
        check(
            &Places { named: Some(named.path().to_owned()), library },
            &[
                (Some("haswell"), "", ""),
                (Some("sandybridge"), "libllb-cpu-sandybridge.so", ""),
                (Some("sse42"), "libllb-cpu-sse42.so", ""),
                (Some("haswell"), "libllb-cpu-haswell.so", "is in this library too"),
                (Some("sse42"), "libllb-cpu-sse42.so", &same),
                (None, "libllb-cpu-unknown.so", "has unknown kernels, \"unknown\""),
            ],
        );
    }

    #[test]
    fn only_absolute_folders_are_used() {
        let problem = |path: &str| {
            let places = Places { named: Some(path.into()), library: None };
            let survey = Survey::of(&places);
            assert_eq!(survey.found.len(), 1);
            survey.folders[0].problem.clone().unwrap()
        };
        assert_eq!(problem("."), "is not absolute");
        assert_eq!(problem("target"), "is not absolute");
        assert_eq!(problem("/proc/self/exe"), "is no folder");
        assert!(problem("/no/such/folder").starts_with("No such file"));
    }
}
