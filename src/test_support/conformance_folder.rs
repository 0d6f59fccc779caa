//! Finds the conformance set: real chat templates and their renders by transformers. The other tests
//! and the benchmarks include this file by its path, so it uses nothing of the crate.

use std::env;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Once;

static SAID: Once = Once::new();

/// The set for `what`: that of `LLB_CONFORMANCE` if it is set, else `../shared/conformance`, else
/// what `make conformance` built. Says once which one it is. Without a set, says that `what` is
/// skipped; with `LLB_REQUIRE_ALL` it panics.
pub(crate) fn folder(what: &str) -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folders = match env::var_os("LLB_CONFORMANCE").filter(|folder| !folder.is_empty()) {
        Some(folder) => vec![PathBuf::from(folder)],
        None => vec![root.join("../shared/conformance"), root.join("target/conformance")],
    };
    // The renders are the last file of a set that is written.
    if let Some(found) = folders.iter().find(|folder| folder.join("goldens.jsonl.gz").is_file()) {
        SAID.call_once(|| {
            let table = fs::read_to_string(found.join("templates.tsv")).unwrap_or_default();
            let count = table.lines().count().saturating_sub(1);
            say(&format!("conformance: {count} templates of {}", found.display()));
        });
        return Some(found.clone());
    }
    let places: Vec<_> = folders.iter().map(|folder| folder.display().to_string()).collect();
    let problem = format!("no conformance set in {}; run: make conformance", places.join(" or "));
    assert!(env::var_os("LLB_REQUIRE_ALL").is_none(), "{what}: {problem}");
    say(&format!("skipped: {what}: {problem}"));
    None
}

/// Prints a line for the person who runs the tests. The lint against printing concerns the library.
pub(crate) fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}
