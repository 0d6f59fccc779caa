//! Writes the scripted test models (tests/scripted) to the directory in the first argument, and
//! prints their file names, one per line. Tests in other languages use it. `expected.json` in the
//! same directory contains the reply of each model, and `adapter.gguf` is for `text.gguf`. Each folder
//! in `pictures` and `sounds`, named by a type of projector, has a model that takes such media, and its
//! projector. Those in `both` take both.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use llb::api::Modality;
use llb::gguf::ProjectorType;

#[path = "../tests/scripted/mod.rs"]
mod scripted;

use scripted::projector::{ProjectorFile, embedding, projector};

fn write(dir: &Path) -> std::io::Result<Vec<PathBuf>> {
    let paths = scripted::write_all(dir)?;
    let expected = serde_json::json!({
        "text": scripted::TEXT,
        "tool_call": scripted::TOOL_CALL,
        "long": scripted::long_text(),
    });
    std::fs::write(dir.join("expected.json"), expected.to_string())?;
    // Leaves out some pieces of `text.gguf`.
    std::fs::write(dir.join("adapter.gguf"), scripted::text_model().adapter(3, 8).to_bytes())?;
    for kind in ProjectorType::ALL {
        let media = match kind.modality() {
            Modality::Image => "pictures",
            Modality::Audio => "sounds",
        };
        let folder = dir.join(media).join(kind.as_str());
        std::fs::create_dir_all(&folder)?;
        std::fs::write(folder.join("model.gguf"), scripted::projector::model(kind))?;
        std::fs::write(folder.join("mmproj-model.gguf"), projector(kind))?;
    }
    for (sight, hearing) in [
        (ProjectorType::Qwen25Vl, ProjectorType::Qwen2Audio),
        (ProjectorType::Gemma4V, ProjectorType::Gemma4Audio),
        (ProjectorType::Gemma4UnifiedV, ProjectorType::Gemma4UnifiedAudio),
    ] {
        let folder = dir.join("both").join(sight.as_str());
        std::fs::create_dir_all(&folder)?;
        std::fs::write(folder.join("model.gguf"), scripted::projector::model(sight))?;
        let file = ProjectorFile::of_both(sight, hearing, embedding(sight));
        std::fs::write(folder.join("mmproj-model.gguf"), file.to_bytes())?;
    }
    Ok(paths)
}

#[allow(clippy::print_stdout, clippy::print_stderr, reason = "a program for a shell")]
fn main() -> ExitCode {
    let Some(dir) = std::env::args_os().nth(1) else {
        eprintln!("usage: scripted_models DIRECTORY");
        return ExitCode::from(2);
    };
    match write(Path::new(&dir)) {
        Ok(paths) => {
            paths
                .iter()
                .filter_map(|path| path.file_name())
                .for_each(|name| println!("{}", name.display()));
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{}: {error}", Path::new(&dir).display());
            ExitCode::FAILURE
        }
    }
}
