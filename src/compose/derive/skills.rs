//! Derives skills: the form of a row, the joiner and wrapper of rows, and their position.

use std::ops::Range;

use serde_json::{Value, json};

use super::chat::ChatForm;
use super::placement;
use super::probes::{USER, probe_tools};
use super::system::SystemForm;
use super::tools::wrapper;
use super::wrapping::escaped;
use crate::probing::diff::split_at_needles;
use crate::probing::{Probe, ProbeRenderer};

const NAMES: [&str; 2] = ["qskillone", "qskilltwo"];
const DESCRIPTIONS: [&str; 2] = ["Qabilityone", "Qabilitytwo"];

/// How a template writes skills.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct SkillsForm {
    pub(super) row: String,
    pub(super) joiner: String,
    pub(super) template: String,
}

fn probe_skills() -> Vec<Value> {
    NAMES
        .iter()
        .zip(DESCRIPTIONS)
        .map(|(name, description)| json!({ "name": name, "description": description }))
        .collect()
}

/// Derives the form of skills. None if the template prints none, or does not print them as rows of
/// name and description.
pub(super) fn derive(
    foreign: &ProbeRenderer<'_>,
    chat: &ChatForm,
    system: &mut SystemForm,
) -> Option<SkillsForm> {
    let skills = probe_skills();
    let change = |conversation: Probe| conversation.skills(&skills);
    let (explicit, default) = placement::filled_turns(foreign, chat, system, &change, &find_rows);
    let shown = explicit.as_ref().or(default.as_ref()).filter(|shown| shown.items.is_some())?;
    let text = shown.text[shown.items.clone()?].to_owned();
    let [_, within, joiner, ..] =
        *split_at_needles(&text, [NAMES[0], DESCRIPTIONS[0], NAMES[1], DESCRIPTIONS[1]])?
    else {
        return None;
    };
    let row = format!("{{name}}{}{{description}}", escaped(within));
    let joiner = joiner.to_owned();
    let (block, items) = placement::place(system, "skills", explicit.as_ref(), default.as_ref())?;
    sort_slots(foreign, system, &skills);
    system.with_tools =
        system.with_tools || default.is_some_and(|default| !default.text.is_empty());
    let template = wrapper(&block, items, "skills").unwrap_or_else(|| "{skills}".to_owned());
    Some(SkillsForm { row, joiner, template })
}

fn find_rows(text: &str) -> Option<Range<usize>> {
    let end = text.find(DESCRIPTIONS[1])? + DESCRIPTIONS[1].len();
    let start = text.find(NAMES[0])?;
    (start < end).then_some(start..end)
}

/// Orders the slots at the same position, using a prompt with tools and skills.
fn sort_slots(foreign: &ProbeRenderer<'_>, system: &mut SystemForm, skills: &[Value]) {
    let both = Probe::from_user(USER).tools(&probe_tools()).skills(skills);
    let Some(prompt) = foreign.prompt(&both) else { return };
    let skills_first = matches!((prompt.find(NAMES[0]), prompt.find("qtoolone")), (Some(skill), Some(tool)) if skill < tool);
    for shape in [&mut system.turn, &mut system.default].into_iter().flatten() {
        shape.slots.sort_by_key(|(at, name)| (*at, (*name == "skills") != skills_first));
    }
}
