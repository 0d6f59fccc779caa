//! Model files with faults: none ends the process.
//!
//! Every architecture that llama.cpp knows has a tiny model (`architectures`). A mutant is one of
//! them with one fault (`mutants`). Each file goes through info, create with two threads, two turns
//! and destroy in a child process (`child`).
//!
//! `LLB_CORPUS_FILES` is the number of files (`make harden`), a fixed sample. For searches:
//! `LLB_CORPUS_KIND` takes one kind of fault. `LLB_CORPUS_ONLY` runs every file whose name,
//! `architecture: fault`, contains its text, without those that contain `LLB_CORPUS_NOT`.
//! `LLB_CORPUS_LIST` is a file for the outcome of each. With `LLB_CORPUS_THREADS=1`, failed
//! assertions are errors, which name their place.
#![allow(unsafe_code, reason = "calls the C ABI")]
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "the table is printed")]
#![allow(missing_docs, unreachable_pub, dead_code, reason = "a test program")]

#[path = "../integration/abi.rs"]
mod abi;
mod architectures;
mod child;
mod model_file;
mod mutants;
#[path = "../scripted/mod.rs"]
mod scripted;
mod vocabularies;

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::PathBuf;

use child::{Outcome, Runner};
use model_file::ModelFile;
use mutants::{KINDS, Kind};

/// KiB that a file may take more than twice its sibling's.
const SLACK: u64 = 32 * 1024;

struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % limit
    }
}

/// An architecture, and the kind and number of its fault.
type Choice = (usize, Option<(Kind, usize)>);

/// The files to try.
fn selection(models: &[ModelFile]) -> Vec<Choice> {
    if let Ok(only) = std::env::var("LLB_CORPUS_ONLY") {
        return selected(models, &only);
    }
    let count = setting("LLB_CORPUS_FILES").unwrap_or(500);
    let mut chosen: Vec<Choice> = (0..models.len()).map(|index| (index, None)).collect();
    let wanted = std::env::var("LLB_CORPUS_KIND").ok();
    let is_wanted = |kind: &Kind| wanted.as_ref().is_none_or(|name| format!("{kind:?}") == *name);
    let kinds: Vec<Kind> = KINDS.into_iter().filter(is_wanted).collect();
    let counts = |model| kinds.iter().map(|kind| mutants::names(model, *kind).len()).collect();
    let faults: Vec<Vec<usize>> = models.iter().map(counts).collect();
    let mut numbers = Numbers(7);
    while chosen.len() < count {
        let (index, kind) = (chosen.len() % models.len(), numbers.below(kinds.len()));
        chosen.push((index, Some((kinds[kind], numbers.below(faults[index][kind])))));
    }
    chosen
}

/// The files whose name has one of the texts in `only`, which `|` separates, and not that of
/// `LLB_CORPUS_NOT`. `$` is the end of a name.
fn selected(models: &[ModelFile], only: &str) -> Vec<Choice> {
    let not = std::env::var("LLB_CORPUS_NOT").ok();
    let is_chosen = |model: &ModelFile, name: &str| {
        let name = format!("{}: {name}$", model.architecture);
        only.split('|').any(|only| name.contains(only))
            && not.as_ref().is_none_or(|not| !name.contains(not.as_str()))
    };
    let mut chosen = Vec::new();
    for (index, model) in models.iter().enumerate() {
        if is_chosen(model, "good") {
            chosen.push((index, None));
        }
        for kind in KINDS {
            let names = mutants::names(model, kind).into_iter().enumerate();
            let names = names.filter(|(_, name)| is_chosen(model, name));
            chosen.extend(names.map(|(number, _)| (index, Some((kind, number)))));
        }
    }
    chosen
}

/// A number from the environment.
pub fn setting(name: &str) -> Option<usize> {
    std::env::var(name).ok().map(|number| number.parse().unwrap())
}

#[test]
fn no_model_file_ends_the_process() {
    let models = architectures::all();
    let folder = tempfile::tempdir().unwrap();
    let mut runner = Runner::start();
    let mut table: BTreeMap<String, usize> = BTreeMap::new();
    let mut list =
        std::env::var_os("LLB_CORPUS_LIST").map(|path| std::fs::File::create(path).unwrap());
    let mut problems = Vec::new();
    let mut memory: BTreeMap<usize, u64> = BTreeMap::new();
    for (number, (index, fault)) in selection(&models).into_iter().enumerate() {
        let model = &models[index];
        let (name, file) = match fault {
            None => ("good".to_owned(), model.clone()),
            Some((kind, number)) => (
                mutants::names(model, kind).swap_remove(number),
                mutants::make(model, kind, number),
            ),
        };
        let path: PathBuf = folder.path().join(format!("{}.gguf", number % 4));
        std::fs::write(&path, file.to_bytes()).unwrap();
        let (outcome, peak) = runner.run(&path);
        let name = format!("{}: {name}", model.architecture);
        let mut class = outcome.class();
        if fault.is_none() {
            memory.insert(index, peak);
            if !matches!(outcome, Outcome::Replied) {
                problems.push(format!("{name}: {outcome}"));
            }
        } else if memory.get(&index).is_some_and(|good| peak > 2 * good + SLACK) {
            class.push_str(", memory");
            problems.push(format!("{name}: {peak} KiB"));
        }
        if !outcome.is_survived() {
            problems.push(format!("{name}: {outcome}"));
        }
        if let Some(list) = &mut list {
            writeln!(list, "{class}\t{name}\t{outcome}").unwrap();
        }
        *table.entry(class).or_default() += 1;
    }
    for (class, count) in &table {
        println!("{count:7} {class}");
    }
    assert!(problems.is_empty(), "{} of the files:\n{}", problems.len(), problems.join("\n"));
}
