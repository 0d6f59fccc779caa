//! Which of several projectors belongs to a model: by the names of the files.

use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// The quantizations of projectors, the first one preferred: F16 is half as long as F32 and equal in
/// effect, and not every processor computes BF16 fast.
const ORDER: [&str; 4] = ["f16", "bf16", "q8_0", "f32"];

/// Whether a file name is that of a projector.
pub fn is_projector(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name.contains("mmproj") && name.ends_with(".gguf")
}

/// The projector of these that is preferred. `None` if they differ in more than their quantization,
/// or if there are none.
pub fn preferred_projector<'a>(names: &[&'a str]) -> Option<&'a str> {
    if let [one] = names {
        return Some(one);
    }
    let mut known: Vec<(usize, &str, String)> = names
        .iter()
        .map(|name| {
            let (rank, rest) = without_quantization(name)?;
            Some((rank, *name, rest))
        })
        .collect::<Option<_>>()?;
    known.sort_unstable();
    let (_, first, rest) = known.first()?;
    known.iter().all(|(_, _, other)| other == rest).then_some(*first)
}

/// The place of a name's quantization in the order, and the name without it.
fn without_quantization(name: &str) -> Option<(usize, String)> {
    let name = name.to_ascii_lowercase();
    let is_end = |text: Option<char>| text.is_none_or(|c| !c.is_ascii_alphanumeric() && c != '_');
    ORDER.iter().enumerate().find_map(|(rank, quantization)| {
        let at = |at: &usize| {
            let (before, after) = (&name[..*at], &name[at + quantization.len()..]);
            is_end(before.chars().last()) && is_end(after.chars().next())
        };
        let at = name.match_indices(quantization).map(|(at, _)| at).find(at)?;
        Some((rank, format!("{}{}", &name[..at], &name[at + quantization.len()..])))
    })
}

/// The projector files in the folder of a model file, by name.
fn projectors_beside(model: &Path) -> Vec<PathBuf> {
    let folder = model.parent().filter(|folder| !folder.as_os_str().is_empty());
    let Ok(entries) = std::fs::read_dir(folder.unwrap_or(Path::new("."))) else {
        return Vec::new();
    };
    let is_named =
        |path: &PathBuf| path.file_name().and_then(|name| name.to_str()).is_some_and(is_projector);
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let mut found: Vec<PathBuf> =
        paths.filter(|path| is_named(path) && path.as_path() != model).collect();
    found.sort();
    found
}

/// The projector that `projector` "auto" stands for: the file beside a model file. Of several that
/// differ only in their quantization, one is preferred.
///
/// # Errors
/// `INVALID_REQUEST` with the names of the files, if there are several others.
pub fn projector_beside(model: &Path) -> Result<Option<PathBuf>> {
    let found = projectors_beside(model);
    let names: Vec<&str> =
        found.iter().filter_map(|path| path.file_name().and_then(|name| name.to_str())).collect();
    if names.is_empty() {
        return Ok(None);
    }
    if let Some(name) = preferred_projector(&names) {
        return Ok(Some(model.with_file_name(name)));
    }
    let problem = format!(
        "there are {} projectors beside the model; name the path of one of them: {}",
        names.len(),
        names.join(", ")
    );
    Err(Error::invalid("projector", problem))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    #[track_caller]
    fn check(names: &[&str], expected: Option<&str>) {
        assert_eq!(preferred_projector(names), expected, "{names:?}");
        let backwards: Vec<&str> = names.iter().rev().copied().collect();
        assert_eq!(preferred_projector(&backwards), expected, "{backwards:?}");
    }

    #[test]
    fn one_quantization_is_preferred() {
        check(&[], None);
        check(&["mmproj.gguf"], Some("mmproj.gguf"));
        check(&["mmproj-BF16.gguf", "mmproj-F16.gguf", "mmproj-F32.gguf"], Some("mmproj-F16.gguf"));
        check(&["mmproj-m-Q8_0.gguf", "mmproj-m-f16.gguf"], Some("mmproj-m-f16.gguf"));
        check(&["mmproj-m-F32.gguf", "mmproj-m-Q8_0.gguf"], Some("mmproj-m-Q8_0.gguf"));
        check(&["m.mmproj-f32.gguf", "m.mmproj-bf16.gguf"], Some("m.mmproj-bf16.gguf"));
        // Projectors of several models, or of an unknown kind.
        check(&["mmproj-a-f16.gguf", "mmproj-b-f16.gguf"], None);
        check(&["mmproj-a-f16.gguf", "mmproj-b-f32.gguf"], None);
        check(&["mmproj-f16.gguf", "mmproj.gguf"], None);
        check(&["mmproj-f16.gguf", "mmproj-xf16.gguf"], None);
    }

    #[test]
    fn projectors_are_found_beside_a_model() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str| std::fs::write(folder.path().join(name), b"").unwrap();
        let beside = || projector_beside(&folder.path().join("model.gguf"));
        ["model.gguf", "mmproj.txt"].into_iter().for_each(write);
        assert_eq!(beside().unwrap(), None);
        write("MMPROJ-F32.GGUF");
        assert_eq!(beside().unwrap(), Some(folder.path().join("MMPROJ-F32.GGUF")));
        write("mmproj-f16.gguf");
        assert_eq!(beside().unwrap(), Some(folder.path().join("mmproj-f16.gguf")));
        write("b-mmproj-f16.gguf");
        let message = beside().unwrap_err().message().to_owned();
        let names = "MMPROJ-F32.GGUF, b-mmproj-f16.gguf, mmproj-f16.gguf";
        assert!(message.ends_with(names), "{message}");
        assert_eq!(projector_beside(Path::new("/nonexistent/model.gguf")).unwrap(), None);
    }
}
