//! Which format is found for each template of the corpus.

use crate::conformance;
use crate::verdict;

#[test]
fn formats_of_the_corpus() {
    let Some(folder) = conformance::folder("output formats") else { return };
    let mut found = std::collections::BTreeMap::<String, Vec<String>>::new();
    let only = std::env::var("ONLY").ok();
    for (name, sources) in conformance::templates(&folder) {
        if only.as_ref().is_some_and(|only| *only != name) {
            continue;
        }
        let verdict = verdict::Verdict::of(&sources).unwrap();
        if !verdict.templates.caps().caps.supports_tool_calls {
            continue;
        }
        let format = verdict.format().unwrap();
        let mut title = format!("{} {}", format.family, if format.verified { "verified" } else { "unverified" });
        if format.verified && !format.calls.as_ref().unwrap().parallel {
            title += " single";
        }
        found.entry(title).or_default().push(name);
    }
    for (title, names) in &found {
        conformance::say(&format!("{:4} {title}: {}", names.len(), names.join(" ")));
    }
}
