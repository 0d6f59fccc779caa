//! Selects the files of a repository that a request refers to.
//!
//! In: the names of all files. Out: the parts of one model, in order. Files that accompany a model
//! (projectors, importance matrices, draft models) are never taken for models, unless a request names
//! one as its file. The projector of a model is selected with it.

use super::listing::names;
use super::request::{FetchRequest, WantedProjector};
use crate::diagnostic::Diagnostic;
use crate::error::{Code, Error, Result};
use crate::gguf::{PartName, is_projector, preferred_projector};

/// The quantizations to look for if the request names none, in this order.
const DEFAULT_ORDER: [&str; 7] = ["Q4_K_M", "Q5_K_M", "Q4_0", "Q8_0", "Q6_K", "Q3_K_M", "Q2_K"];
/// Words in the names of files that accompany a model and are not models themselves.
const COMPANIONS: [&str; 3] = ["mmproj", "imatrix", "draft"];
/// The maximum number of parts of a split model.
const MAX_PARTS: u64 = 1000;

/// The files of the requested model: one, or all its parts.
///
/// # Errors
/// `HUB_NOT_FOUND` or `HUB_AMBIGUOUS`, with the candidates in `details.files`.
pub(super) fn select(request: &FetchRequest, files: &[&str]) -> Result<Vec<String>> {
    let repository = &request.id.repository;
    if let Some(filename) = &request.filename {
        if !files.contains(&&**filename) {
            return Err(not_found(format!("{repository} has no file {filename:?}"), &ggufs(files)));
        }
        return parts(repository, filename, files);
    }
    let ggufs = ggufs(files);
    let models: Vec<&str> =
        ggufs.iter().copied().filter(|name| !is_companion(name) && !is_later_part(name)).collect();
    let of_quant = |quant: &str| {
        models.iter().copied().filter(|name| has_quant(name, quant)).collect::<Vec<_>>()
    };
    let (found, requested) = match &request.quant {
        Some(quant) => (of_quant(quant), Some(quant)),
        None if models.len() == 1 => (models.clone(), None),
        None => (
            DEFAULT_ORDER
                .into_iter()
                .map(of_quant)
                .find(|found| !found.is_empty())
                .unwrap_or(models.clone()),
            None,
        ),
    };
    match (&found[..], requested) {
        ([one], _) => parts(repository, one, files),
        ([], Some(quant)) => {
            Err(not_found(format!("{repository} has no GGUF file of quantisation {quant}"), &ggufs))
        }
        ([], None) => Err(not_found(format!("{repository} has no GGUF model"), &ggufs)),
        (several, _) => {
            let message = format!(
                "{repository}: {} files match: {}; name one by `filename`, or add a quantisation \
                 to the id, as {repository}:Q8_0",
                several.len(),
                names(several.iter().copied())
            );
            Err(Error::new(Code::HubAmbiguous, message).with("files", several.to_vec()))
        }
    }
}

/// The projector that belongs to a model, and a diagnostic about the choice. It lies in the folder of
/// the model, or else at the top.
///
/// # Errors
/// `HUB_NOT_FOUND` if the request names a projector that does not exist.
pub(super) fn select_projector(
    request: &FetchRequest,
    model: &str,
    files: &[&str],
) -> Result<(Option<String>, Option<Diagnostic>)> {
    let repository = &request.id.repository;
    match &request.projector {
        WantedProjector::None => return Ok((None, None)),
        WantedProjector::Named(name) if files.contains(&&**name) => {
            return Ok((Some(name.clone()), None));
        }
        WantedProjector::Named(name) => {
            return Err(not_found(format!("{repository} has no file {name:?}"), &ggufs(files)));
        }
        WantedProjector::Auto => (),
    }
    if is_companion(model) {
        return Ok((None, None));
    }
    let folder = |name: &str| name.rsplit_once('/').map_or("", |(folder, _)| folder).to_owned();
    let base = |name: &str| name.rsplit('/').next().unwrap_or_default().to_owned();
    let inside = |wanted: &str| -> Vec<&str> {
        let found = files.iter().copied();
        found.filter(|name| folder(name) == wanted && is_projector(&base(name))).collect()
    };
    let mut found = inside(&folder(model));
    if found.is_empty() {
        found = inside("");
    }
    let chosen = preferred_projector(&found);
    let remark = match (chosen, found.len()) {
        (_, 0 | 1) => None,
        (Some(chosen), _) => Some(("projector_chosen", format!("{chosen} was fetched"))),
        (None, _) => Some(("projector_ambiguous", "none was fetched".to_owned())),
    };
    let remark = remark.map(|(code, what)| {
        let all = names(found.iter().copied());
        let message = format!(
            "{repository} has several projectors, of which {what}; name another by `projector`: {all}"
        );
        Diagnostic::new(code, message)
    });
    Ok((chosen.map(str::to_owned), remark))
}

fn ggufs<'a>(files: &[&'a str]) -> Vec<&'a str> {
    files.iter().copied().filter(|name| name.to_ascii_lowercase().ends_with(".gguf")).collect()
}

fn not_found(problem: String, ggufs: &[&str]) -> Error {
    let message = match ggufs {
        [] => format!(
            "{problem}; it has no GGUF file at all: search the hub for a GGUF conversion of the model"
        ),
        some => format!("{problem}; it has {}", names(some.iter().copied())),
    };
    Error::new(Code::HubNotFound, message).with("files", ggufs.to_vec())
}

/// All parts of the model that a file belongs to.
fn parts(repository: &str, file: &str, files: &[&str]) -> Result<Vec<String>> {
    let (folder, base) = file.rsplit_once('/').map_or(("", file), |(folder, base)| (folder, base));
    let Some(name) = PartName::parse(base).filter(|name| (1..=name.count).contains(&name.number))
    else {
        return Ok(vec![file.to_owned()]);
    };
    let slash = if folder.is_empty() { "" } else { "/" };
    if name.count > MAX_PARTS {
        let message = format!(
            "{repository}: {file:?} is named as one of {} parts; at most {MAX_PARTS} are supported",
            name.count
        );
        return Err(Error::new(Code::HubVerify, message));
    }
    let parts: Vec<String> =
        (1..=name.count).map(|number| format!("{folder}{slash}{}", name.of_part(number))).collect();
    let missing: Vec<&str> =
        parts.iter().map(String::as_str).filter(|part| !files.contains(part)).collect();
    match missing.is_empty() {
        true => Ok(parts),
        false => {
            let message = format!(
                "{repository}: parts of {file:?} are missing: {}",
                names(missing.iter().copied())
            );
            Err(Error::new(Code::HubNotFound, message).with("files", missing))
        }
    }
}

fn is_later_part(name: &str) -> bool {
    let base = name.rsplit('/').next().unwrap_or(name);
    PartName::parse(base).is_some_and(|name| name.number != 1)
}

fn is_companion(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    COMPANIONS.iter().any(|word| {
        name.match_indices(word)
            .any(|(at, _)| !name[..at].ends_with(|c: char| c.is_ascii_alphanumeric()))
    })
}

/// Whether a path contains the name of a quantization: `x-Q4_K_M.gguf`,
/// `x_q4_k_m-00001-of-00002.gguf`, `Q4_K_M/x.gguf`.
fn has_quant(path: &str, quant: &str) -> bool {
    let (path, quant) = (path.to_ascii_lowercase(), quant.to_ascii_lowercase());
    path.match_indices(&*quant).any(|(at, _)| {
        let before = path[..at].ends_with(|c: char| c.is_ascii_alphanumeric());
        // `Q4_K` must not match `Q4_K_M`.
        let after =
            path[at + quant.len()..].starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
        !before && !after
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `rest` contains further members of the request. `expected` is the names, or the code of the
    /// error.
    #[track_caller]
    fn check(files: &[&str], rest: &str, expected: &str) {
        let id = if rest.starts_with(':') { format!("o/n{rest}") } else { "o/n".to_owned() };
        let rest = if rest.starts_with(':') { "" } else { rest };
        let request =
            FetchRequest::parse(&format!(r#"{{"id": "{id}"{rest}}}"#)).expect("a request");
        let picked = match select(&request, files) {
            Ok(names) => names.join(" "),
            Err(error) => error.code().as_str().to_owned(),
        };
        assert_eq!(picked, expected, "{files:?} {rest}");
    }

    #[test]
    fn one_file_is_selected() {
        let many = [
            "README.md",
            "m-Q2_K.gguf",
            "m-Q4_K_S.gguf",
            "m-q4_k_m.gguf",
            "m-Q8_0.gguf",
            "m-IQ4_XS.gguf",
            "m-f16.gguf",
        ];
        check(&many, "", "m-q4_k_m.gguf");
        check(&many, ":q8_0", "m-Q8_0.gguf");
        check(&many, ":F16", "m-f16.gguf");
        check(&many, r#", "quant": "iq4_xs""#, "m-IQ4_XS.gguf");
        check(&many, ":Q4_K", "HUB_NOT_FOUND");
        check(&many, r#", "filename": "m-Q2_K.gguf""#, "m-Q2_K.gguf");
        check(&many, r#", "filename": "M-Q2_K.gguf""#, "HUB_NOT_FOUND");
        check(&["m.Q8_0.gguf", "m.Q5_K_M.gguf", "m.Q4_0.gguf"], "", "m.Q5_K_M.gguf");
        check(&["m-Q2_K.gguf", "m-Q6_K.gguf", "m-Q3_K_M.gguf"], "", "m-Q6_K.gguf");
        check(&["Q8_0/m.gguf", "Q4_K_M/m.gguf"], "", "Q4_K_M/m.gguf");
        check(&["model.safetensors"], "", "HUB_NOT_FOUND");
        check(&[], "", "HUB_NOT_FOUND");
        check(&["anything.GGUF", "x.bin"], "", "anything.GGUF");
        check(&["a-Q4_K_M.gguf", "b_q4_k_m.gguf", "c-Q8_0.gguf"], "", "HUB_AMBIGUOUS");
        check(&["a.gguf", "b.gguf"], "", "HUB_AMBIGUOUS");
        check(&["a-MXFP4.gguf", "b-BF16.gguf"], "", "HUB_AMBIGUOUS");
    }

    #[test]
    fn companions_are_not_selected_as_models() {
        let files = [
            "mmproj-m-Q4_K_M.gguf",
            "m-Q8_0.gguf",
            "m.imatrix.gguf",
            "draft/m-Q4_K_M.gguf",
            "m-draft-Q4_0.gguf",
        ];
        check(&files, "", "m-Q8_0.gguf");
        check(&files, ":Q4_K_M", "HUB_NOT_FOUND");
        check(&files, r#", "filename": "mmproj-m-Q4_K_M.gguf""#, "mmproj-m-Q4_K_M.gguf");
        check(&["mmproj-f16.gguf"], "", "HUB_NOT_FOUND");
        check(&["overdraft-Q4_K_M.gguf", "x-Q8_0.gguf"], "", "overdraft-Q4_K_M.gguf");
    }

    /// `expected` is the projector of a model, and the code of the diagnostic.
    #[track_caller]
    fn check_projector(files: &[&str], model: &str, rest: &str, expected: [&str; 2]) {
        let request = FetchRequest::parse(&format!(r#"{{"id": "o/n"{rest}}}"#)).expect("a request");
        let selected = select_projector(&request, model, files);
        let (name, remark) = match selected {
            Ok(selected) => selected,
            Err(error) => (Some(error.code().as_str().to_owned()), None),
        };
        let code = remark.map_or("", |remark| remark.code);
        assert_eq!([name.as_deref().unwrap_or_default(), code], expected, "{files:?} {rest}");
    }

    #[test]
    fn the_projector_of_a_model_is_selected() {
        let many = ["m-Q8_0.gguf", "mmproj-m-BF16.gguf", "mmproj-m-F16.gguf", "q/m-Q4_0.gguf"];
        check_projector(&many, "m-Q8_0.gguf", "", ["mmproj-m-F16.gguf", "projector_chosen"]);
        check_projector(&many, "q/m-Q4_0.gguf", "", ["mmproj-m-F16.gguf", "projector_chosen"]);
        check_projector(&many, "mmproj-m-F16.gguf", "", ["", ""]);
        let rest = r#", "projector": "mmproj-m-BF16.gguf""#;
        check_projector(&many, "m-Q8_0.gguf", rest, ["mmproj-m-BF16.gguf", ""]);
        check_projector(&many, "m-Q8_0.gguf", r#", "projector": "none""#, ["", ""]);
        let rest = r#", "projector": "mmproj.gguf""#;
        check_projector(&many, "m-Q8_0.gguf", rest, ["HUB_NOT_FOUND", ""]);
        check_projector(&many[..2], "m-Q8_0.gguf", "", ["mmproj-m-BF16.gguf", ""]);
        check_projector(&many[..1], "m-Q8_0.gguf", "", ["", ""]);
        // That of the folder comes before that at the top.
        let folders = ["q/m.gguf", "q/mmproj.gguf", "mmproj.gguf", "r/mmproj.gguf"];
        check_projector(&folders, "q/m.gguf", "", ["q/mmproj.gguf", ""]);
        check_projector(&folders, "s/m.gguf", "", ["mmproj.gguf", ""]);
        let two = ["m.gguf", "mmproj-a-f16.gguf", "mmproj-b-f16.gguf"];
        check_projector(&two, "m.gguf", "", ["", "projector_ambiguous"]);
    }

    #[test]
    fn a_split_model_is_selected_with_all_parts() {
        let part = |number: usize| format!("q/m-Q4_K_M-{number:05}-of-00003.gguf");
        let (one, two, three) = (part(1), part(2), part(3));
        let all = format!("{one} {two} {three}");
        let files = [&*three, &*one, "m-Q8_0.gguf", &*two];
        check(&files, "", &all);
        check(&files, &format!(r#", "filename": "{two}""#), &all);
        check(&files[1..], "", "HUB_NOT_FOUND");
        check(&[&*two, &*three, "m-Q8_0.gguf"], "", "m-Q8_0.gguf");
        check(&["m-00001-of-99999.gguf"], "", "HUB_VERIFY");
        check(
            &["m-00009-of-00003.gguf", "m-Q4_0.gguf"],
            r#", "filename": "m-00009-of-00003.gguf""#,
            "m-00009-of-00003.gguf",
        );
    }
}
