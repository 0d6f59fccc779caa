//! `llb models`: the model files on this machine.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::abi;
use crate::cached_models::{self, CachedModel};
use crate::failure::{FOUND, Failure, OK, Result};
use crate::input::{print, print_json};
use crate::terminal::{Look, Style, bytes_bar, columns, counted, grouped, megabytes, printable};

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    action: Option<Action>,
    /// Print the list as JSON
    #[arg(long)]
    json: bool,
    /// Cache folder of the hub [default: that of huggingface_hub]
    #[arg(long, value_name = "FOLDER", global = true)]
    cache_dir: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List the models in the hub's cache, in LLB_MODELS, and in the caches of llama.cpp and Ollama
    #[command(visible_alias = "ls")]
    List,
    /// Compare model files with their hashes
    Verify {
        /// Names from the list [default: all with a known hash]
        names: Vec<String>,
    },
    /// Remove models from the hub's cache
    #[command(visible_alias = "rm")]
    Remove {
        /// Names from the list: ORG/NAME, or ORG/NAME/FILE
        #[arg(required = true)]
        names: Vec<String>,
        /// Print what would be removed, without removing it
        #[arg(long)]
        dry_run: bool,
    },
}

pub(crate) fn run(arguments: &Arguments) -> Result<u8> {
    let models = cached_models::models(arguments.cache_dir.as_deref());
    match &arguments.action {
        None | Some(Action::List) => {
            list(&models, arguments.json);
            Ok(OK)
        }
        Some(Action::Verify { names }) => verify(&models, names),
        Some(Action::Remove { names, dry_run }) => {
            remove(&models, names, *dry_run)?;
            Ok(OK)
        }
    }
}

fn list(models: &[CachedModel], as_json: bool) {
    if as_json {
        return print_json(&models.iter().map(entry).collect());
    }
    if models.is_empty() {
        say!("llb: no models; `llb fetch ORG/NAME` downloads one");
        return;
    }
    let heading = ["NAME", "ARCHITECTURE", "CONTEXT", "TOOLS", "SIZE", "PLACE"];
    let heading = heading.map(str::to_owned).to_vec();
    let rows: Vec<Vec<String>> = [heading].into_iter().chain(models.iter().map(row)).collect();
    print(&columns(&rows));
    // A file that has two names counts once.
    let mut files = BTreeSet::new();
    let of_new = |model: &&CachedModel| files.insert(model.content());
    let total: u64 = models.iter().filter(of_new).map(|model| model.size).sum();
    say!("{}, {}", counted(models.len(), "model"), megabytes(total));
}

/// The row of a model. Its header has the architecture, the context length and the support of tools.
fn row(model: &CachedModel) -> Vec<String> {
    let info = abi::model_info(&model.path.to_string_lossy());
    let [architecture, context, tools] = match &info {
        Ok(info) => {
            let text = |name: &str| printable(info[name].as_str().unwrap_or("unknown"));
            let context = info["context_length"].as_u64();
            let context = context.map_or_else(|| "unknown".to_owned(), grouped);
            [text("architecture"), context, text("tool_support")]
        }
        Err(_) => ["unreadable", "", ""].map(str::to_owned),
    };
    let (name, size) = (printable(&model.name), megabytes(model.size));
    vec![name, architecture, context, tools, size, model.place.to_owned()]
}

fn entry(model: &CachedModel) -> Value {
    json!({
        "name": model.name, "path": model.path.to_string_lossy(), "size": model.size, "place": model.place,
        "sha256": model.sha256,
    })
}

fn verify(models: &[CachedModel], names: &[String]) -> Result<u8> {
    let chosen = chosen(models, names)?;
    let style = Style::stdout();
    let mut status = OK;
    let (mut checked, mut without_hash) = (0, 0);
    for model in chosen {
        let Some(expected) = &model.sha256 else {
            without_hash += 1;
            if !names.is_empty() {
                print(&format!("{}: unknown: its place keeps no hash\n", model.name));
            }
            continue;
        };
        checked += 1;
        if *expected == hash(model)? {
            let size = megabytes(model.size);
            let short: String = expected.chars().take(12).collect();
            let what = format!("{size} have the SHA-256 of the {}, {short}…", model.place);
            print(&format!("{}: {}, {what}\n", model.name, style.paint(Look::Green, "ok")));
        } else {
            status = FOUND;
            print(&format!("{}: {}\n", model.name, style.paint(Look::Red, "damaged")));
            say!("llb: remove it (`llb models remove {}`) and fetch it again", model.name);
        }
    }
    let skipped = match without_hash {
        0 => String::new(),
        count => format!("; {} in places that keep no hash", counted(count, "model")),
    };
    say!("{} checked{skipped}", counted(checked, "model"));
    Ok(status)
}

fn hash(model: &CachedModel) -> Result<String> {
    let about = |error| Failure::new(format!("{}: {error}", model.path.display()));
    let mut file = File::open(&model.path).map_err(about)?;
    let bar = bytes_bar(model.size, &model.name);
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        let count = file.read(&mut buffer).map_err(about)?;
        if count == 0 {
            break;
        }
        hash.update(&buffer[..count]);
        bar.inc(count as u64);
    }
    bar.finish_and_clear();
    Ok(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Removes the links in snapshots, then the blobs that no other snapshot uses.
fn remove(models: &[CachedModel], names: &[String], dry_run: bool) -> Result<()> {
    let chosen = chosen(models, names)?;
    if let Some(other) = chosen.iter().find(|model| model.repository.is_none()) {
        let message = format!("{}: not in the cache of the hub", other.name);
        return Err(Failure::new(message)
            .next(format!("remove {} with the program that made it", other.path.display())));
    }
    let mut freed = 0;
    // Files that several of the models lead to count once.
    let mut removed = BTreeSet::new();
    for model in &chosen {
        let blob = model.content();
        let is_shared = models.iter().any(|other| {
            other.content() == blob && !chosen.iter().any(|each| each.path == other.path)
        });
        print(&format!("{}\n", model.path.display()));
        let is_last = !is_shared && removed.insert(blob.clone());
        if is_last {
            freed += model.size;
        }
        if dry_run {
            continue;
        }
        let about = |error| Failure::new(format!("{}: {error}", model.path.display()));
        fs::remove_file(&model.path).map_err(about)?;
        if is_last && blob.exists() {
            fs::remove_file(&blob).map_err(about)?;
        }
        model.remove_empty_folders();
    }
    say!("{} {}", megabytes(freed), if dry_run { "would be freed" } else { "freed" });
    Ok(())
}

/// The models with these names, or all models.
fn chosen<'a>(models: &'a [CachedModel], names: &[String]) -> Result<Vec<&'a CachedModel>> {
    let mut chosen: Vec<&CachedModel> = Vec::new();
    for name in names {
        let before = chosen.len();
        let is_named = |model: &&CachedModel| model.is_named(name) || model.path == Path::new(name);
        chosen.extend(models.iter().filter(is_named));
        if chosen.len() == before {
            return Err(Failure::new(format!("{name}: no such model on this machine"))
                .next("`llb models` lists the names"));
        }
    }
    Ok(if names.is_empty() { models.iter().collect() } else { chosen })
}
