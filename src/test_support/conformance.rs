//! Access to the conformance set.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// CPU time of the thread, for limits on work. Other load on the machine does not count.
pub(crate) use crate::jinja::thread_time;
use crate::template::Sources;
pub(crate) use crate::test_support::conformance_folder::{folder, say};

/// Whether all differences are printed.
pub(crate) fn shows() -> bool {
    std::env::var_os("LLB_CONFORMANCE_SHOW").is_some()
}

/// The corpus of chat templates by name, with their tokens.
pub(crate) fn templates(root: &Path) -> BTreeMap<String, Sources> {
    let table = fs::read_to_string(root.join("templates.tsv")).unwrap_or_default();
    let mut lines = table.lines().map(|line| line.split('\t').collect::<Vec<_>>());
    let header = lines.next().unwrap_or_default();
    let column = |name: &str| header.iter().position(|title| *title == name).unwrap_or_default();
    let (name, bos, eos) = (column("name"), column("bos_token"), column("eos_token"));
    let sources = lines.map(|fields| {
        let text =
            fs::read_to_string(root.join("templates").join(format!("{}.jinja", fields[name])));
        let (bos_token, eos_token) = (fields[bos].to_owned(), fields[eos].to_owned());
        (
            fields[name].to_owned(),
            Sources { default: text.ok(), bos_token, eos_token, ..Sources::default() },
        )
    });
    sources.collect()
}
