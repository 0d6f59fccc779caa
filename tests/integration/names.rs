//! Tests names that the conventions fix (CONTRIBUTING.md).

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::layers::sources;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn files(folders: &[&str]) -> Vec<PathBuf> {
    let mut files = Vec::new();
    folders.iter().for_each(|folder| sources(&root().join(folder), &mut files));
    files
}

#[test]
fn limits_begin_with_max_or_min() {
    let words = ["MOST", "LEAST", "LONGEST", "SHORTEST"];
    let mut limits = 0;
    for file in files(&["src", "cli", "demo", "tests", "benches", "examples"]) {
        for line in fs::read_to_string(&file).unwrap().lines() {
            let Some((before, name)) = line.split_once("const ") else { continue };
            limits += usize::from(name.starts_with("MAX_") || name.starts_with("MIN_"));
            let other = words.iter().any(|word| name.starts_with(word));
            assert!(
                !other || before.contains("//"),
                "{}: {line}: call it MAX_ or MIN_",
                file.display()
            );
        }
    }
    assert!(limits > 100, "only {limits} limits were found");
}

#[test]
fn a_type_name_occurs_in_one_module() {
    let mut modules: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
    for file in files(&["src"]) {
        let is_test = |part: &std::ffi::OsStr| {
            let part = part.to_str().unwrap();
            part == "tests"
                || part == "test_support"
                || part.trim_end_matches(".rs").ends_with("tests")
        };
        // The API for Rust has its own view of the same things, and the names that its callers expect.
        if file.iter().any(is_test) || file.starts_with(root().join("src/typed")) {
            continue;
        }
        for line in fs::read_to_string(&file).unwrap().lines() {
            let item = match line.split_once(") ") {
                Some((visibility, item)) if visibility.starts_with("pub(") => item,
                _ => line.trim_start_matches("pub "),
            };
            let mut words = item.split_whitespace();
            if !["struct", "enum", "trait", "union"].contains(&words.next().unwrap_or_default()) {
                continue;
            }
            let name: String = words
                .next()
                .unwrap_or_default()
                .chars()
                .take_while(|c| c.is_alphanumeric() || *c == '_')
                .collect();
            let list = modules.entry(name).or_default();
            if list.last() != Some(&file) {
                list.push(file.clone());
            }
        }
    }
    assert!(modules.len() > 500, "only {} types were found", modules.len());
    for (name, files) in modules {
        assert!(files.len() == 1, "{name} occurs in several modules: {files:?}");
    }
}
