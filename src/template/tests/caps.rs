//! Compares `template_caps` and minja's own algorithm with minja's flags, on the shared conformance
//! data.
//!
//! Each difference is explained by a rule or a list below. Each was checked against a render by
//! transformers' environment.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use serde_json::Value;

use super::renders::{data, say, templates};
use crate::template::{Evidence, Traits, TraitsReport};

/// A flag of a template for which our value and minja's differ.
struct Difference<'a> {
    flag: &'a str,
    ours: &'a Value,
    theirs: &'a Value,
    traits: &'a Traits,
    evidence: &'a Evidence,
}

impl Difference<'_> {
    fn is(&self, flags: &[&str], ours: bool) -> bool {
        flags.contains(&self.flag) && *self.ours == ours && *self.theirs == !ours
    }

    /// Whether it is a reasoning flag that only our probes set.
    fn is_reasoning_found(&self) -> bool {
        let format = self.flag == "reasoning_format" && self.ours != "NONE";
        format || self.is(REASONING, true) || self.flag == "reasoning_requires_tools"
    }
}

const REASONING: &[&str] = &[
    "supports_reasoning",
    "supports_reasoning_without_content",
    "supports_reasoning_with_content",
];
const CALLS: &[&str] = &[
    "supports_tool_calls",
    "supports_tool_responses",
    "supports_parallel_tool_calls",
    "requires_object_arguments",
];

/// A reason for differences, and a predicate for those that it explains.
type DifferenceRule = (&'static str, fn(&Difference<'_>) -> bool);

/// Reasons that follow from the two algorithms, for any template.
const RULES: &[DifferenceRule] = &[
    ("minja prints text joined with None, Python fails, or the template loses the message", |d| {
        let python_fails = d.evidence.error.as_ref().is_none_or(|failure| !failure.is_refusal());
        d.is(&["requires_non_null_content"], true) && python_fails
    }),
    (
        "minja asks whether reasoning disappears from a turn; the switch may as well act on the rest of the prompt",
        |d| d.is(&["respects_enable_reasoning"], true),
    ),
    ("minja has no control: what always shows is no effect of clear_thinking", |d| {
        d.is(&["supports_clear_thinking"], false) && d.traits.caps.supports_reasoning
    }),
    ("a part of any type is printed, so that its type is no format of reasoning", |d| {
        let denied = d.is(REASONING, false) && d.traits.caps.reasoning_format.as_str() == "NONE";
        d.flag == "reasoning_format" && d.theirs == "THOUGHTS_CONTENT_BLOCK" || denied
    }),
    ("minja tries no switch that the reasoning needs", |d| {
        d.is_reasoning_found() && d.traits.details.reasoning.needs.is_some()
    }),
    ("minja does not know the format", |d| {
        d.is_reasoning_found()
            && ["REASONING_FIELD", "BLOCKS_MAPPING"]
                .contains(&d.traits.caps.reasoning_format.as_str())
    }),
    ("minja measures turns without tool calls, where the reasoning does not show", |d| {
        d.is(&REASONING[1..], true) && d.traits.caps.reasoning_requires_tools
    }),
    ("the template needs variables that no client gives", |d| {
        *d.ours == true && !d.evidence.assumed.is_empty()
    }),
];

/// Reasons that follow from minja's engine or its needles: the reason, the flags, the templates.
type KnownDifference = (&'static str, &'static [&'static [&'static str]], &'static [&'static str]);

const ENGINE: KnownDifference = (
    "minja's engine fails in the template's own code, so that everything or what follows it is false",
    &[
        CALLS,
        REASONING,
        &[
            "supports_system_role",
            "supports_tools",
            "reasoning_format",
            "supports_clear_thinking",
            "requires_non_null_content",
        ],
    ],
    &[
        "lcp.tencent-Hy3",
        "trl.qwen3_8",
        "trl.qwen3_8_training",
        "vllm.tool_chat_template_gemma3_pythonic",
        "xinf.qwen3.8-max",
    ],
);
const UNDEFINED: KnownDifference = (
    "minja takes an undefined member for None: the template raises for want of a tool call",
    &[&["supports_tool_responses"]],
    &["lcp.Spark2.5", "xinf.MiniMax-M2", "xinf.MiniMax-M2.5", "xinf.MiniMax-M2.7"],
);
const MEMBERS: KnownDifference = (
    "minja's engine loses the text of a system message",
    &[&["supports_system_role"]],
    &["lcp.muse-glimmer", "trl.muse_glimmer_training"],
);

/// Differences of the product's flags that no rule explains.
const PRODUCT: &[KnownDifference] = &[
    ENGINE,
    UNDEFINED,
    MEMBERS,
    (
        "minja's needles do not know the syntax of the arguments",
        &[CALLS],
        &[
            "gh.olmo-3.1-32b-instruct",
            "lcp.MiniMax-M3",
            "vllm.tool_chat_template_hunyuan_a13b",
            "vllm.tool_chat_template_llama3.2_pythonic",
            "vllm.tool_chat_template_llama4_pythonic",
            "vllm.tool_chat_template_toolace",
        ],
    ),
];

/// Differences of minja's algorithm on our engine, because minja's engine is more lenient or less
/// capable than Python's.
const COMPAT: &[KnownDifference] = &[
    ENGINE,
    UNDEFINED,
    MEMBERS,
    (
        "the template fails in Python when `tools` is undefined",
        &[&["supports_system_role"]],
        &["gh.olmo-3.1-32b-instruct"],
    ),
    (
        "the template fails in Python when an assistant message has no content",
        &[&["reasoning_requires_tools"]],
        &["lcp.Qwen-Qwen3-0.6B", "unsloth.qwen-3", "xinf.Baichuan-M2"],
    ),
    (
        "minja's engine does not show parts of content here, Python does",
        &[REASONING, &["reasoning_format"]],
        &["axolotl.llama3"],
    ),
    (
        "minja's engine drops the older reasoning, Python shows it",
        &[&["supports_clear_thinking"]],
        &["ctp-hf.froggeric-Qwen-Fixed-Chat-Templates-qwen36-e1eb965"],
    ),
];

fn listed(known: &[KnownDifference], flag: &str, template: &str) -> Option<&'static str> {
    known
        .iter()
        .find(|(_, flags, templates)| {
            flags.iter().any(|flags| flags.contains(&flag)) && templates.contains(&template)
        })
        .map(|(reason, ..)| *reason)
}

#[derive(Default)]
struct CapsTally {
    equal: u32,
    differ: BTreeMap<(&'static str, String), Vec<String>>,
    unexplained: Vec<String>,
    used: BTreeSet<(&'static str, String)>,
    seen: BTreeSet<String>,
}

impl CapsTally {
    fn add(
        &mut self,
        flag: &str,
        template: &str,
        ours: &Value,
        theirs: &Value,
        reason: Option<&'static str>,
    ) {
        self.seen.insert(template.to_owned());
        if ours == theirs {
            self.equal += 1;
        } else if let Some(reason) = reason {
            self.used.insert((reason, template.to_owned()));
            self.differ.entry((reason, flag.to_owned())).or_default().push(template.to_owned());
        } else {
            self.unexplained.push(format!("{flag} of {template}: ours {ours}, minja's {theirs}"));
        }
    }

    fn report(&self, what: &str, known: &[KnownDifference]) {
        let differ: usize = self.differ.values().map(Vec::len).sum();
        say(&format!(
            "conformance: {what}: {} flags as minja, {differ} differ for a reason:",
            self.equal
        ));
        for ((reason, flag), templates) in &self.differ {
            say(&format!("  {flag} of {}: {reason}", templates.len()));
        }
        let of = |(reason, _, templates): &KnownDifference| {
            templates.iter().map(|name| (*reason, (*name).to_owned())).collect::<Vec<_>>()
        };
        // A listed difference of a template of this set must still exist.
        let exists =
            |entry: &(_, String)| self.used.contains(entry) || !self.seen.contains(&entry.1);
        let stale: Vec<_> = known.iter().flat_map(of).filter(|entry| !exists(entry)).collect();
        assert!(
            self.unexplained.is_empty() && stale.is_empty(),
            "{what}: {:#?}, stale: {stale:#?}",
            self.unexplained
        );
    }
}

#[test]
fn template_caps_match_minja() {
    let Some(root) = data("template_caps against minja") else { return };
    let templates = templates(&root);
    let expected = fs::read_to_string(root.join("caps.minja.jsonl")).unwrap();
    let (mut product, mut compat) = (CapsTally::default(), CapsTally::default());
    let mut unreadable = 0;
    for line in expected.lines() {
        let expected: Value = serde_json::from_str(line).unwrap();
        let template = expected["template"].as_str().unwrap();
        if expected["caps"]["error"].is_string() {
            unreadable += 1;
            continue;
        }
        let TraitsReport { traits, evidence } = templates[template].traits_report();
        let (flags, minja) = (traits.caps.to_json(), templates[template].minja_caps());
        assert_eq!((flags.as_object().unwrap().len(), minja.len(), evidence.len()), (16, 16, 16));
        for (flag, evidence) in evidence {
            // The data uses the name from minja's last commit.
            let name = if *flag == "respects_enable_reasoning" {
                "supports_enable_thinking"
            } else {
                flag
            };
            let theirs = &expected["caps"][name];
            assert!(!theirs.is_null(), "{name} of {template}");
            let difference = Difference { flag, ours: &flags[*flag], theirs, traits, evidence };
            let rule =
                RULES.iter().find(|(_, explains)| explains(&difference)).map(|(reason, _)| *reason);
            product.add(
                flag,
                template,
                &flags[*flag],
                theirs,
                rule.or_else(|| listed(PRODUCT, flag, template)),
            );
            if !minja[*flag].is_null() {
                compat.add(flag, template, &minja[*flag], theirs, listed(COMPAT, flag, template));
            }
        }
    }
    say(&format!("conformance: {unreadable} templates that minja cannot read left out"));
    compat.report("minja's algorithm", COMPAT);
    product.report("template_caps", PRODUCT);
}

/// Probing is cheap, and every template that shows text can carry tools.
#[test]
fn probing_is_cheap_and_every_template_carries_tools() {
    let Some(root) = data("the cost of probing") else { return };
    let templates = templates(&root);
    let mut support: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let (mut most, mut sum) = ((0, ""), 0);
    let start = std::time::Instant::now();
    for (name, templates) in &templates {
        let renders = templates.count_probes();
        sum += renders;
        most = most.max((renders, name.as_str()));
        support.entry(templates.traits().tool_support().0.as_str()).or_default().push(name);
    }
    let mean = f64::from(sum) / templates.len() as f64;
    say(&format!(
        "conformance: {mean:.0} renders a template, at most {} ({}), {:?} in all",
        most.0,
        most.1,
        start.elapsed()
    ));
    assert!(most.0 <= 140 && mean < 50.0, "{most:?}, {mean}");
    for (support, names) in &support {
        say(&format!(
            "  {support}: {} {:?}",
            names.len(),
            if *support == "none" { &names[..] } else { &[] }
        ));
    }
}
