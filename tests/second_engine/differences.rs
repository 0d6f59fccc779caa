//! differences.json: where minijinja and Jinja2 differ, and why.
//!
//! A rule has `rule` (its name), `what` (minijinja does), `why` (what Jinja2 does) and `groups` of
//! renders. A group selects renders by `how` they differ, `templates`, `contexts` and a part of the
//! `error`, and counts them exactly: a difference that goes away fails the test, as does one that
//! is not listed.

use std::collections::BTreeSet;
use std::fmt;

use serde_json::Value;

/// How minijinja's outcome differs from Jinja2's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum How {
    /// The template does not compile.
    Syntax,
    /// minijinja fails, Jinja2 renders.
    Fails,
    /// minijinja renders, Jinja2 fails.
    Renders,
    /// Both render, and the texts differ.
    Text,
    /// Both fail, and the messages of `raise_exception` differ.
    Message,
}

const ALL: [(How, &str); 5] = [
    (How::Syntax, "syntax"),
    (How::Fails, "fails"),
    (How::Renders, "renders"),
    (How::Text, "text"),
    (How::Message, "message"),
];

/// One render that differs.
pub(crate) struct Difference<'a> {
    pub(crate) how: How,
    pub(crate) template: &'a str,
    pub(crate) context: &'a str,
    /// The message of the side that fails; Jinja2's if both fail.
    pub(crate) error: &'a str,
    /// Both outcomes, for the test's output.
    pub(crate) shown: String,
}

impl fmt::Display for Difference<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {} x {}: {}", self.how, self.template, self.context, self.shown)
    }
}

/// The rules of differences.json.
pub(crate) struct Known(Vec<Rule>);

/// One rule of Jinja2 that minijinja does not follow.
struct Rule {
    rule: String,
    groups: Vec<Group>,
}

/// Some renders that a rule explains. An absent selector selects everything.
struct Group {
    how: How,
    templates: Option<BTreeSet<String>>,
    contexts: Option<BTreeSet<String>>,
    /// A part of the message.
    error: Option<String>,
    /// The number of renders, and of their templates.
    renders: usize,
    of_templates: usize,
    seen: Seen,
}

#[derive(Default)]
struct Seen {
    renders: usize,
    templates: BTreeSet<String>,
    contexts: BTreeSet<String>,
}

impl Known {
    pub(crate) fn read() -> Known {
        let rules: Value = serde_json::from_str(include_str!("differences.json")).unwrap();
        Known(rules.as_array().unwrap().iter().map(Rule::read).collect())
    }

    /// Counts a difference for the first rule that explains it, and returns that rule.
    pub(crate) fn explain(&mut self, difference: &Difference<'_>) -> Option<&str> {
        for Rule { rule, groups } in &mut self.0 {
            if let Some(group) = groups.iter_mut().find(|group| group.selects(difference)) {
                group.seen.renders += 1;
                group.seen.templates.insert(difference.template.to_owned());
                group.seen.contexts.insert(difference.context.to_owned());
                return Some(rule);
            }
        }
        None
    }

    /// The groups whose renders or names differ from what was counted.
    pub(crate) fn stale(&self) -> Vec<String> {
        let groups =
            self.0.iter().flat_map(|rule| rule.groups.iter().map(|group| (&rule.rule, group)));
        groups
            .filter_map(|(rule, group)| {
                Some(format!("{rule}: {:?}: {}", group.how, group.stale()?))
            })
            .collect()
    }

    /// Renders and templates of each rule.
    pub(crate) fn counts(&self) -> impl Iterator<Item = (&str, usize, usize)> {
        self.0.iter().map(|Rule { rule, groups }| {
            let templates: BTreeSet<&String> =
                groups.iter().flat_map(|group| &group.seen.templates).collect();
            (rule.as_str(), groups.iter().map(|group| group.seen.renders).sum(), templates.len())
        })
    }
}

impl Rule {
    #[track_caller]
    fn read(json: &Value) -> Rule {
        let text =
            |name: &str| json[name].as_str().filter(|text| !text.is_empty()).unwrap().to_owned();
        let (_what, _why) = (text("what"), text("why"));
        Rule {
            rule: text("rule"),
            groups: json["groups"].as_array().unwrap().iter().map(Group::read).collect(),
        }
    }
}

impl Group {
    #[track_caller]
    fn read(json: &Value) -> Group {
        let name = json["how"].as_str().unwrap();
        let how = ALL
            .iter()
            .find(|(_, known)| *known == name)
            .unwrap_or_else(|| panic!("unknown way {name:?}"))
            .0;
        let set = |member: &str| {
            let names = json.get(member)?.as_array().unwrap().iter();
            Some(names.map(|name| name.as_str().unwrap().to_owned()).collect())
        };
        let count = |member: &str| usize::try_from(json[member].as_u64().unwrap()).unwrap();
        Group {
            how,
            templates: set("templates"),
            contexts: set("contexts"),
            error: json.get("error").map(|error| error.as_str().unwrap().to_owned()),
            renders: count("renders"),
            of_templates: count("of_templates"),
            seen: Seen::default(),
        }
    }

    fn selects(&self, difference: &Difference<'_>) -> bool {
        let has = |names: &Option<BTreeSet<String>>, name| {
            names.as_ref().is_none_or(|names| names.contains(name))
        };
        self.how == difference.how
            && has(&self.templates, difference.template)
            && has(&self.contexts, difference.context)
            && self.error.as_ref().is_none_or(|error| difference.error.contains(error))
    }

    fn stale(&self) -> Option<String> {
        let unseen = |names: &Option<BTreeSet<String>>, seen: &BTreeSet<String>| -> Vec<String> {
            names.iter().flatten().filter(|name| !seen.contains(*name)).cloned().collect()
        };
        let unseen = [
            unseen(&self.templates, &self.seen.templates),
            unseen(&self.contexts, &self.seen.contexts),
        ]
        .concat();
        if !unseen.is_empty() {
            return Some(format!("nothing differs in {}", unseen.join(", ")));
        }
        let seen = (self.seen.renders, self.seen.templates.len());
        let listed = (self.renders, self.of_templates);
        let [seen, listed] = [seen, listed]
            .map(|(renders, templates)| format!("{renders} renders of {templates} templates"));
        (seen != listed).then(|| format!("{seen} differ, {listed} are listed"))
    }
}
