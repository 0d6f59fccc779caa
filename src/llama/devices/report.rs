//! The content of `llb_backends`.

use serde_json::{Value, json};

use super::device_file;
use crate::llama::kernels::{
    CHOSEN, FoundKernels, Places, Problem, Survey, can_run_built_in, present_features,
};

/// The reply of `llb_backends` (docs/backends.md). Does not choose any kernels.
pub(crate) fn backends() -> Value {
    // Locked, so that no create changes ggml's registry meanwhile.
    let chosen = CHOSEN.lock();
    let survey = Survey::of(&Places::now());
    let first = survey.usable().next();
    let (name, file, reason) = match *chosen {
        Some(chosen) if chosen.is_forced => {
            (Some(chosen.name), chosen.file.as_deref(), "the first create named it")
        }
        Some(chosen) => (Some(chosen.name), chosen.file.as_deref(), FASTEST),
        None => match first {
            Some(first) => (first.name, first.file.as_deref(), FASTEST),
            None => (None, None, "this processor can run none of those found"),
        },
    };
    let backends: Vec<Value> = survey
        .found
        .iter()
        .map(|found| {
            let mut unloadable = chosen.iter().flat_map(|chosen| &chosen.unloadable);
            if let Some((_, problem)) = unloadable.find(|it| found.file.as_ref() == Some(&it.0)) {
                return entry(found, Some(problem.clone()), None);
            }
            let is_chosen = found.problem.is_none() && found.name == name;
            entry(found, None, if is_chosen { None } else { name })
        })
        .collect();
    let folders: Vec<Value> = survey
        .folders
        .iter()
        .map(
            |folder| json!({ "path": folder.path.display().to_string(), "reason": folder.problem }),
        )
        .collect();
    // Until kernels are chosen, ggml lists its devices with this library's own kernels.
    let can_list = chosen.is_some() || can_run_built_in();
    let devices = if can_list { super::report() } else { Vec::new() };
    json!({
        "type": "backends",
        "processor": {
            "architecture": std::env::consts::ARCH,
            "name": processor_name(),
            "features": present_features(),
        },
        "backend": {
            "name": name,
            "file": file.map(|file| file.display().to_string()),
            "reason": reason,
            "in_use": chosen.is_some(),
        },
        "backends": backends,
        "folders": folders,
        "devices": devices,
        "device_files": device_file::report(),
    })
}

const FASTEST: &str = "the fastest found that this processor can run";

/// One entry of the reply. `failed` is the reason why the file could not be loaded. `instead` is
/// the name of the chosen variant if that is another one.
fn entry(found: &FoundKernels, failed: Option<String>, instead: Option<&str>) -> Value {
    let problem = found.problem.as_ref().map(Problem::text).or(failed);
    let usable = problem.is_none();
    let reason = problem.or_else(|| instead.map(|instead| format!("{instead} is used")));
    json!({
        "name": found.name,
        "file": found.file.as_ref().map(|file| file.display().to_string()),
        "usable": usable,
        "reason": reason,
    })
}

fn processor_name() -> Option<String> {
    let info = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = info.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}
