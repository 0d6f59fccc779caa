//! Findings of whole templates: each code both ways, and over the shared conformance data.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::time::Instant;

use super::{Finding, MOST};
use crate::template::conformance::{data, say, templates};
use crate::template::{Sources, Templates};

#[allow(dead_code, reason = "x")]
fn review(default: &str) -> Vec<Finding> {
    let sources = Sources { default: Some(default.to_owned()), ..Sources::default() };
    Templates::compile(&sources).unwrap().findings().to_vec()
}

#[test]
fn the_corpus() {
    let Some(root) = data("findings of the corpus") else { return };
    let show = std::env::var("LLB_FINDINGS_SHOW").unwrap_or_default();
    let mut codes: BTreeMap<&str, u32> = BTreeMap::new();
    let (mut slowest, mut longest) = ((0, String::new()), 0);
    for (name, templates) in templates(&root) {
        templates.traits();
        let started = Instant::now();
        let findings = templates.findings();
        slowest = slowest.max((started.elapsed().as_millis(), name.clone()));
        longest = longest.max(findings.len());
        assert!(findings.len() <= MOST, "{name}");
        for finding in findings {
            *codes.entry(finding.code).or_default() += 1;
            assert_eq!(finding.template, "default");
            assert!(!finding.message.is_empty());
            if !show.is_empty() && finding.code.contains(&show) {
                say(&format!("{name}:{:?}: {} {}", finding.line, finding.code, finding.message));
            }
        }
    }
    for (code, count) in &codes {
        say(&format!("{count:5} {code}"));
    }
    say(&format!("findings: the most {longest}, the slowest {} ms ({})", slowest.0, slowest.1));
    if !cfg!(debug_assertions) {
        assert!(slowest.0 < 2000, "{slowest:?}");
    }
}
