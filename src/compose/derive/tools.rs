//! The tool catalogue: its formatter, its wrapper and its place.

use std::ops::Range;

use serde_json::{Value, json};

use super::Compose;
use super::catalogue::{self, Catalogue};
use super::chat::ChatForm;
use super::needles::{ANSWER, SYSTEM, USER, USER_2, contains_needle};
use super::placement::{self, FilledTurn};
use super::system::SystemForm;
use super::wrapping::escape;
use crate::probing::diff::split_at_needles;
use crate::probing::{Probe, ProbeRenderer, tool};

const UNKNOWN_FORM: &str = "tools are listed in a form that no formatter writes";

/// What a template does with declared tools.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct ToolsForm {
    pub(super) formatter: Option<Value>,
    pub(super) picks: bool,
    /// `tools_template`, when there is more than the catalogue.
    pub(super) template: Option<String>,
    /// `single_tool_template`, when text stands round each tool.
    pub(super) single: Option<String>,
    /// `user_template_with_tools`, with the placement.
    pub(super) user: Option<(&'static str, String)>,
    /// An empty list is written as one with tools is.
    pub(super) empty_list: bool,
    pub(super) residual: Vec<String>,
}

/// The tools of the probes: keys out of order, text that is not ASCII, an empty object, lists.
pub(super) fn probes() -> Vec<Value> {
    vec![
        tool(
            "qtoolone",
            "Ein \"erstes\" Wörkzeug",
            &json!({ "type": "object", "properties": { "place": { "type": "string" } } }),
        ),
        tool(
            "qtooltwo",
            "数 & <b>",
            &json!({ "type": "object", "properties": {}, "required": ["x", "a"] }),
        ),
    ]
}

/// Finds it; None when there is none.
pub(super) fn derive(
    foreign: &ProbeRenderer<'_>,
    chat: &ChatForm,
    system: &mut SystemForm,
    compose: &Compose<'_>,
) -> Option<ToolsForm> {
    let before = system.clone();
    let (mut found, joins) = catalogue(foreign, chat, system, compose)?;
    let ToolJoins { joiner: Some(joiner), row } = joins else { return Some(found) };
    let empty = foreign.prompt(&Probe::from_user(USER).tools(&[])).filter(|_| found.empty_list);
    if row.is_none() && (empty.is_none() || joiner.is_empty()) {
        return Some(found);
    }
    let user = found.user.as_mut().map(|(_, user)| user);
    let template = match user {
        Some(user) => user,
        None => found.template.get_or_insert_with(|| "{tools}".to_owned()),
    };
    match each(template, &joiner, row.as_deref(), empty.as_deref()) {
        Some((around, single)) => {
            *template = around;
            found.single = Some(single);
        }
        None if row.is_some() => {
            *system = before;
            found = ToolsForm {
                empty_list: found.empty_list,
                residual: vec![UNKNOWN_FORM.to_owned()],
                ..ToolsForm::default()
            };
        }
        None => {}
    }
    Some(found)
}

/// What stands between two tools, and the row of one where it is more than a formatter writes.
#[derive(Default)]
struct ToolJoins {
    joiner: Option<String>,
    row: Option<String>,
}

/// The text round all tools and that round each, when the text between two is the end and the begin
/// of one. `empty` is a prompt with an empty list, which shows which; None without a row when that
/// prompt has the text as it is.
fn each(
    template: &str,
    joiner: &str,
    row: Option<&str>,
    empty: Option<&str>,
) -> Option<(String, String)> {
    let (before, after) = template.split_once("{tools}")?;
    let shows = |text: &str| {
        empty.is_none_or(|empty| {
            empty.contains(&text.replace("{content}", USER).replace("{{", "{").replace("}}", "}"))
        })
    };
    if row.is_none() && shows(&format!("{before}{after}")) {
        return None;
    }
    let cuts = (0..=joiner.len()).filter(|at| joiner.is_char_boundary(*at));
    cuts.rev().find_map(|at| {
        let (end, begin) = (escape(&joiner[..at]), escape(&joiner[at..]));
        let (before, after) = (before.strip_suffix(&*begin)?, after.strip_prefix(&*end)?);
        let around = format!("{before}{{tools}}{after}");
        shows(&format!("{before}{after}"))
            .then(|| (around, format!("{begin}{}{end}", row.unwrap_or("{tool}"))))
    })
}

/// The catalogue with its wrapper, and what joins tools.
fn catalogue(
    foreign: &ProbeRenderer<'_>,
    chat: &ChatForm,
    system: &mut SystemForm,
    compose: &Compose<'_>,
) -> Option<(ToolsForm, ToolJoins)> {
    let tools = probes();
    let two_users = || {
        let start = if system.turn.is_some() && system.inside.is_none() {
            Probe::from_system(SYSTEM)
        } else {
            Probe::default()
        };
        start.user(USER).assistant(ANSWER).user(USER_2)
    };
    let base = foreign.prompt(&two_users())?;
    let full = foreign
        .prompt(&two_users().tools(&tools))
        .or_else(|| foreign.prompt(&Probe::from_user(USER).tools(&tools)))?;
    if base == full {
        let asked = Probe::from_user(USER);
        system.with_tools = foreign.prompt(&asked) != foreign.prompt(&asked.clone().tools(&tools));
        return None;
    }
    let asked = Probe::from_user(USER);
    let empty_list = foreign.prompt(&asked) != foreign.prompt(&asked.clone().tools(&[]));
    let mut found = ToolsForm { empty_list, ..ToolsForm::default() };
    let Some(catalogue) = catalogue::find(&full, &tools, compose) else {
        let words = if catalogue::names(&full, &tools) {
            UNKNOWN_FORM
        } else {
            "tools change the prompt without being listed"
        };
        found.residual.push(words.to_owned());
        return Some((found, ToolJoins::default()));
    };
    let written = full[catalogue.range.clone()].to_owned();
    let Catalogue { formatter, picks, joiner, row, .. } = catalogue;
    let joins = ToolJoins { joiner, row };
    found.formatter = formatter;
    if found.formatter.as_ref().is_some_and(|formatter| formatter["kind"] == "XmlFormatter") {
        let render = |tools: &[Value]| foreign.prompt(&Probe::from_user(USER).tools(tools));
        found.formatter = catalogue::xml_order(&render, compose).or(found.formatter);
    }
    found.picks = picks;
    let find = |text: &str| text.find(&written).map(|start| start..start + written.len());
    let change = |conversation: Probe| conversation.tools(&tools);
    if system.inside.is_some() {
        let (given, default) = placement::filled(foreign, chat, system, &change, &find);
        let shows = |filled: &Option<FilledTurn>| {
            filled.as_ref().is_some_and(|filled| filled.items.is_some())
        };
        let mut placed = system.clone();
        let block = placement::place(&mut placed, "tools", given.as_ref(), default.as_ref());
        if let Some((block, items)) =
            block.filter(|_| shows(&given) && shows(&default) && placed.residual == system.residual)
        {
            found.template = wrapper(&block, items, "tools");
            *system = placed;
            also_empty(foreign, chat, system, &change, given.as_ref());
            return Some((found, joins));
        }
    }
    if let Some((placement, user)) = user_place(chat, &base, &full, &written) {
        found.user = Some((placement, user));
        notice(foreign, chat, system, &change, &mut found);
        return Some((found, joins));
    }
    let (given, default) = placement::filled(foreign, chat, system, &change, &find);
    let lacks = given.as_ref().is_some_and(|given| given.items.is_none());
    let placed =
        placement::place(system, "tools", given.as_ref(), default.as_ref()).filter(|_| !lacks);
    also_empty(foreign, chat, system, &change, given.as_ref());
    match placed {
        Some((block, items)) => {
            found.template = wrapper(&block, items, "tools");
            if found.template.as_deref().is_some_and(contains_needle) {
                found.template = Some("{tools}".to_owned());
                found.residual.push(
                    "names of tools stand round the catalogue, which building blocks cannot say"
                        .to_owned(),
                );
            }
        }
        None => found.residual.push(
            "the text round the catalogue is not an addition to the prompt without tools"
                .to_owned(),
        ),
    }
    Some((found, joins))
}

/// Whether the text between the system text and tools is there when the system text is empty, too.
fn also_empty(
    foreign: &ProbeRenderer<'_>,
    chat: &ChatForm,
    system: &mut SystemForm,
    change: &dyn Fn(Probe) -> Probe,
    given: Option<&FilledTurn>,
) {
    if system.before_tools.is_empty() && system.behind_tools.is_empty() {
        return;
    }
    let empty = foreign.prompt(&change(Probe::from_system("").user(USER)));
    let turn = empty
        .as_deref()
        .and_then(|empty| placement::turn(empty, system, chat))
        .map(|turn| placement::undated(turn, system));
    system.also_empty = turn.is_some() && turn == given.map(|given| given.text.replace(SYSTEM, ""));
}

/// What stands round the items of a block, with a slot for them; None when nothing does.
pub(super) fn wrapper(block: &str, items: Option<Range<usize>>, slot: &str) -> Option<String> {
    let Some(items) = items else { return Some(escape(block)) };
    if items == (0..block.len()) {
        return None;
    }
    Some(format!("{}{{{slot}}}{}", escape(&block[..items.start]), escape(&block[items.end..])))
}

/// The user's turn with tools, when it is one of the users' turns that changes.
fn user_place(
    chat: &ChatForm,
    base: &str,
    full: &str,
    written: &str,
) -> Option<(&'static str, String)> {
    let (base, full) = (
        split_at_needles(base, [USER, ANSWER, USER_2])?,
        split_at_needles(full, [USER, ANSWER, USER_2])?,
    );
    let template = |before: &str, after: &str| {
        let slot = |text: &str| {
            let filled = escape(written);
            escape(text).replacen(&filled, "{tools}", 1)
        };
        (before.contains(written) || after.contains(written))
            .then(|| format!("{}{{content}}{}", slot(before), slot(after)))
    };
    if base[2] != full[2] || base[3] != full[3] {
        return template(full[2].strip_prefix(&*chat.assistant.after)?, full[3])
            .map(|template| ("LAST_USER", template));
    }
    let own = !full[0].ends_with(&chat.user.before) || base[1] != full[1];
    if !own {
        return None;
    }
    let after = full[1].strip_suffix(&*chat.assistant.before)?;
    let start = user_start(chat, base[0].strip_suffix(&*chat.user.before)?, full[0])?;
    template(&full[0][start..], after).map(|template| ("FIRST_USER", template))
}

/// Where the first user turn begins in what stands before its text with tools; `opening` is what
/// stands before that turn without them. The system turn may have changed, too: then the turn
/// begins where its first line is.
fn user_start(chat: &ChatForm, opening: &str, full: &str) -> Option<usize> {
    if full.starts_with(opening) {
        Some(opening.len())
    } else {
        full.rfind(shared_opener(&chat.user.before))
    }
}

/// The begin of a turn as it is in all forms of it: its first line, or all of it.
fn shared_opener(before: &str) -> &str {
    before.split_inclusive('\n').next().filter(|line| !line.trim().is_empty()).unwrap_or(before)
}

/// A template that lists tools in a user's turn may have a word on them in the system turn.
fn notice(
    foreign: &ProbeRenderer<'_>,
    chat: &ChatForm,
    system: &mut SystemForm,
    change: &dyn Fn(Probe) -> Probe,
    found: &mut ToolsForm,
) {
    let Some(turn) = system.turn.clone() else { return };
    let filled = |conversation: Probe, opening: &str| {
        let prompt = foreign.prompt(&change(conversation))?;
        let (head, _) = prompt.split_once(USER)?;
        let start = user_start(chat, opening, head)?;
        let text = placement::undated(head[..start].strip_prefix(&*system.prefix)?, system);
        Some(FilledTurn { text, items: None })
    };
    let opening = foreign.prompt(&Probe::from_system(SYSTEM).user(USER));
    let opening = opening
        .as_deref()
        .and_then(|prompt| prompt.split_once(USER)?.0.strip_suffix(&*chat.user.before));
    let given = opening.and_then(|opening| filled(Probe::from_system(SYSTEM).user(USER), opening));
    let default = filled(Probe::from_user(USER), &chat.opening);
    if given.as_ref().is_none_or(|given| given.text == turn.text) {
        // Without a word on them there is no reason for a turn.
        system.with_tools = default.is_none_or(|default| !default.text.is_empty());
        return;
    }
    match placement::place(system, "tools", given.as_ref(), default.as_ref()) {
        Some((block, _)) => found.template = Some(escape(&block)),
        None => found
            .residual
            .push("tools change the system turn in a way that is not an addition".to_owned()),
    }
}
