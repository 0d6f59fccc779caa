//! Opens model files with faults. None of them may end the process.
//!
//! Nearly every architecture that llama.cpp supports has a tiny model, and some have more, with other
//! layers (`architectures`). A mutant is one of these models with one fault, two or three
//! (`mutants`). Each file goes through the functions that read a file without its weights, then
//! through create with two threads, two turns and destroy, in a child process (`child`). If the model
//! generates no text, two requests for vectors or scores take the place of the turns. Adapters and
//! draft models with faults are opened with a valid model (`roles`), and models with a layer that
//! predicts a further token use it (`predicting`). A projector with faults is opened with a valid
//! model, which then sees or hears (`projectors`).
//!
//! `LLB_CORPUS_FILES` is the number of files with faults (500; 250 adapters and drafts; 100
//! projectors; 40 models with further layers), which are a fixed sample. With `LLB_CORPUS_SECONDS`
//! (`make harden`) it is as many as that time allows, at most 20,000. The following are for
//! searches:
//!
//! - `LLB_CORPUS_SEED`, a number, selects another sample, and `LLB_CORPUS_KIND` the kinds of faults,
//!   separated by `|`.
//! - `LLB_CORPUS_ONLY` runs every file whose name, `architecture: fault` or `architecture variant:
//!   fault`, contains one of its texts, separated by `|`, except names that contain one of
//!   `LLB_CORPUS_NOT`.
//! - `LLB_CORPUS_LIST` is a file to which the outcomes are written, `LLB_CORPUS_KEEP` a folder in
//!   which the files stay, by the number of their outcome.
//! - With `LLB_CORPUS_THREADS=1`, failed assertions become errors that contain their location.
//! - `LLB_CORPUS_OPTIONS` is a JSON object of further options of create, for example
//!   `{"flash_attn": "on", "cache_type_k": "q8_0"}`. With `LLB_CORPUS_VECTORS`, every model computes
//!   vectors. Not every valid file can do that, or has every option, so these two report valid files
//!   that are refused.
#![allow(unsafe_code, reason = "calls the C ABI")]
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "the table is printed")]
#![allow(missing_docs, unreachable_pub, dead_code, reason = "a test program")]

#[path = "../integration/abi.rs"]
mod abi;
mod architectures;
mod child;
mod combinations;
mod context_shift;
mod crafted;
mod model_file;
mod mutants;
mod numbers;
mod predicting;
mod projectors;
mod roles;
#[path = "../integration/run_folder.rs"]
mod run_folder;
#[path = "../scripted/mod.rs"]
mod scripted;
mod vocabularies;

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use child::{Outcome, Runner};
use model_file::ModelFile;
use mutants::{KINDS, Kind};
use numbers::Numbers;
use roles::Role;

/// A mutant may take twice the memory of its sibling, plus this many KiB.
const SLACK: u64 = 32 * 1024;
/// A mutant may additionally take this multiple of its file size, because a list of a million texts
/// is larger as a table.
const COPIES: u64 = 16;

/// The architecture whose models llb refuses, even without a fault.
const ENCODER_AND_DECODER: &str = "t5";

/// An architecture, and the kind and the number of its fault.
type Choice = (usize, Option<(Kind, usize)>);

/// The files to try: all valid ones, and files with faults. `most` is the number of the latter unless
/// the environment has another.
fn selection(models: &[ModelFile], role: Role, most: usize) -> Vec<Choice> {
    if let Ok(only) = std::env::var("LLB_CORPUS_ONLY") {
        return selected(models, &only);
    }
    let most = if setting("LLB_CORPUS_SECONDS").is_some() { 20_000 } else { most };
    let count = setting("LLB_CORPUS_FILES").unwrap_or(most);
    let mut chosen: Vec<Choice> = (0..models.len()).map(|index| (index, None)).collect();
    let kinds: Vec<Kind> = role.kinds().into_iter().filter(is_wanted).collect();
    let counts = |model| kinds.iter().map(|kind| mutants::count(model, *kind)).collect();
    let faults: Vec<Vec<usize>> = models.iter().map(counts).collect();
    let mut numbers = Numbers(setting("LLB_CORPUS_SEED").unwrap_or(7) as u64);
    while chosen.len() < models.len() + count {
        let (index, kind) = (chosen.len() % models.len(), numbers.below(kinds.len()));
        chosen.push((index, Some((kinds[kind], numbers.below(faults[index][kind])))));
    }
    chosen
}

/// Whether `LLB_CORPUS_KIND` names this kind, or no kind.
fn is_wanted(kind: &Kind) -> bool {
    let is_named = |names: String| names.split('|').any(|name| format!("{kind:?}") == name);
    std::env::var("LLB_CORPUS_KIND").ok().is_none_or(is_named)
}

/// The files whose name contains one of the texts in `only`, which are separated by `|`, and none of
/// those in `LLB_CORPUS_NOT`. `^` and `$` match the ends of a name.
fn selected(models: &[ModelFile], only: &str) -> Vec<Choice> {
    let not = std::env::var("LLB_CORPUS_NOT").ok();
    let is_chosen = |model: &ModelFile, name: &str| {
        let name = format!("^{}: {name}$", model.name);
        let contains_one = |texts: &str| texts.split('|').any(|text| name.contains(text));
        contains_one(only) && !not.as_deref().is_some_and(contains_one)
    };
    let mut chosen = Vec::new();
    for (index, model) in models.iter().enumerate() {
        if is_chosen(model, "good") {
            chosen.push((index, None));
        }
        for kind in KINDS.into_iter().filter(is_wanted) {
            let names = mutants::names(model, kind).into_iter().enumerate();
            let names = names.filter(|(_, name)| is_chosen(model, name));
            chosen.extend(names.map(|(number, _)| (index, Some((kind, number)))));
        }
    }
    chosen
}

/// Counts of outcomes, for the table of `make harden`.
#[derive(Default)]
struct Counts {
    inputs: usize,
    faults: usize,
    crashes: usize,
    hangs: usize,
    /// The number of files that took too much memory.
    leaks: usize,
    /// The number of valid files that did not reply.
    wrong: usize,
}

impl Counts {
    fn add(&mut self, outcome: &Outcome, is_fault: bool) {
        self.inputs += 1;
        self.faults += usize::from(is_fault);
        self.crashes += usize::from(matches!(outcome, Outcome::Died(_)));
        self.hangs += usize::from(matches!(outcome, Outcome::Hung));
    }
}

/// Reads a number from an environment variable.
pub fn setting(name: &str) -> Option<usize> {
    std::env::var(name).ok().map(|number| number.parse().unwrap())
}

#[test]
fn no_model_file_ends_the_process() {
    try_role(Role::Model, 500);
}

#[test]
fn no_adapter_ends_the_process() {
    try_role(Role::Adapter, 250);
}

#[test]
fn no_draft_model_ends_the_process() {
    try_role(Role::Draft, 250);
}

#[test]
fn no_projector_ends_the_process() {
    try_role(Role::Projector, 100);
}

#[test]
fn no_layer_that_predicts_ends_the_process() {
    try_role(Role::Predicting, 40);
}

fn try_role(role: Role, most: usize) {
    // Two threads that wait for each other need two processors.
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let models = architectures::all();
    let files = role.files(&models);
    let folder = tempfile::tempdir().unwrap();
    let keep = std::env::var_os("LLB_CORPUS_KEEP").map(PathBuf::from);
    let mut runner = Runner::start();
    let mut table: BTreeMap<String, usize> = BTreeMap::new();
    let mut list =
        std::env::var_os("LLB_CORPUS_LIST").map(|path| std::fs::File::create(path).unwrap());
    let mut problems = Vec::new();
    let mut memory: BTreeMap<usize, u64> = BTreeMap::new();
    let end = setting("LLB_CORPUS_SECONDS")
        .map(|seconds| Instant::now() + Duration::from_secs(seconds as u64));
    let mut counts = Counts::default();
    for (number, (index, fault)) in selection(&files, role, most).into_iter().enumerate() {
        // The models without a fault come first, and all of them are tried.
        if fault.is_some() && end.is_some_and(|end| Instant::now() >= end) {
            break;
        }
        let model = &files[index];
        let (name, file) = match fault {
            None => ("good".to_owned(), model.clone()),
            Some((kind, number)) => mutants::make(model, kind, number),
        };
        let path = match &keep {
            Some(keep) => keep.join(format!("{number}.gguf")),
            None => folder.path().join(format!("{}.gguf", number % 4)),
        };
        let bytes = file.to_bytes();
        std::fs::write(&path, &bytes).unwrap();
        let (outcome, peak) = runner.run(&role.options(&path, &models, index, folder.path()));
        let name = format!("{}: {name}", model.name);
        let mut class = outcome.class();
        counts.add(&outcome, fault.is_some());
        if fault.is_none() {
            memory.insert(index, peak);
            let is_right = match &outcome {
                // Not every model can have an adapter for all matrices, or be a draft.
                Outcome::Refused(_) if [Role::Adapter, Role::Draft].contains(&role) => true,
                Outcome::Refused(message) if model.architecture == ENCODER_AND_DECODER => {
                    message.contains("an encoder and a decoder")
                }
                outcome => matches!(outcome, Outcome::Replied),
            };
            if !is_right {
                counts.wrong += 1;
                problems.push(format!("{name}: {outcome}"));
            }
        } else if memory
            .get(&index)
            .is_some_and(|good| peak > 2 * good + SLACK + COPIES * (bytes.len() as u64 / 1024))
        {
            class.push_str(", memory");
            counts.leaks += 1;
            problems.push(format!("{name}: {peak} KiB"));
        }
        if !outcome.is_survived() || role == Role::Projector && projectors::is_late(&outcome) {
            problems.push(format!("{name}: {outcome}"));
        }
        if let Some(list) = &mut list {
            writeln!(list, "{class}\t{name}\t{outcome}\t{peak} KiB").unwrap();
        }
        *table.entry(class).or_default() += 1;
    }
    for (class, count) in &table {
        println!("{count:7} {class}");
    }
    let Counts { inputs, faults, crashes, hangs, leaks, wrong } = counts;
    println!(
        "harden: inputs={inputs} faults={faults} crashes={crashes} hangs={hangs} leaks={leaks} wrong={wrong}"
    );
    assert!(problems.is_empty(), "{} of the files:\n{}", problems.len(), problems.join("\n"));
}
