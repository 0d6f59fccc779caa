//! Chat templates in a second engine. minijinja renders what llb and transformers render, except
//! for the differences that differences.json lists with their reasons.
//!
//! In: the shared conformance set, and the built-in composed templates. Needs no feature and no
//! engine. `LLB_CONFORMANCE_SHOW=1` prints every render that differs.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
#![allow(clippy::print_stderr, reason = "a test says what it compared and what it skipped")]

mod composed;
#[path = "../../src/test_support/conformance_folder.rs"]
mod conformance_folder;
mod differences;
mod dumps;
mod engine;
mod shared;

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::Path;

use conformance_folder::folder as conformance;
use flate2::read::GzDecoder;
use serde_json::Value;

/// The objects of a file with one JSON object a line.
fn json_lines(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The objects of such a file, compressed, one at a time.
fn compressed_json_lines(path: &Path) -> impl Iterator<Item = Value> {
    let lines = BufReader::new(GzDecoder::new(File::open(path).unwrap())).lines();
    lines.map(|line| serde_json::from_str(&line.unwrap()).unwrap())
}

fn shows_all() -> bool {
    std::env::var_os("LLB_CONFORMANCE_SHOW").is_some()
}
