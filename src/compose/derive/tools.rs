//! Derives the tool catalogue: its formatter, its wrapper and its position.

use std::ops::Range;

use serde_json::Value;

use super::catalogue::{self, Catalogue};
use super::chat::ChatForm;
use super::placement::{self, FilledTurn};
use super::probes::{ANSWER, Compose, SYSTEM, USER, USER_2, contains_needle, probe_tools};
use super::system::SystemForm;
use super::wrapping::{escaped, with_slot};
use crate::probing::diff::split_at_needles;
use crate::probing::{Probe, ProbeRenderer};

const UNKNOWN_FORM: &str = "tools are listed in a form that no formatter writes";

/// How a template writes declared tools.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct ToolsForm {
    pub(super) formatter: Option<Value>,
    pub(super) picks: bool,
    /// The value of `tools_template`, if there is text around the catalogue.
    pub(super) template: Option<String>,
    /// The value of `single_tool_template`, if there is text around each tool.
    pub(super) single: Option<String>,
    /// The placement, and the value of `user_template_with_tools`.
    pub(super) user: Option<(&'static str, String)>,
    /// Whether an empty list is written like a list of tools.
    pub(super) empty_list: bool,
    pub(super) residual: Vec<&'static str>,
}

/// Derives the form of tools. None if the template does not print them.
pub(super) fn derive(
    foreign: &ProbeRenderer<'_>,
    chat: &ChatForm,
    system: &mut SystemForm,
    compose: &Compose<'_>,
) -> Option<ToolsForm> {
    let unchanged = system.clone();
    let (mut found, joins) = find_catalogue(foreign, chat, system, compose)?;
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
    match split_rows(template, &joiner, row.as_deref(), empty.as_deref()) {
        Some((around, single)) => {
            *template = around;
            found.single = Some(single);
        }
        None if row.is_some() => {
            *system = unchanged;
            found = ToolsForm {
                empty_list: found.empty_list,
                residual: vec![UNKNOWN_FORM],
                ..ToolsForm::default()
            };
        }
        None => {}
    }
    Some(found)
}

/// The text between two tools. Also the row of one tool, if a formatter alone does not write it.
#[derive(Default)]
struct ToolJoins {
    joiner: Option<String>,
    row: Option<String>,
}

/// Splits the text around the catalogue into the text around all tools and the text around each.
/// This requires that the text between two tools is the end of one row and the start of the next.
/// `empty` is a prompt with an empty list, which shows the text around all tools. Returns no row if
/// that prompt has the whole text.
fn split_rows(
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
        let (end, begin) = (escaped(&joiner[..at]), escaped(&joiner[at..]));
        let (before, after) = (before.strip_suffix(&*begin)?, after.strip_prefix(&*end)?);
        let around = format!("{before}{{tools}}{after}");
        shows(&format!("{before}{after}"))
            .then(|| (around, format!("{begin}{}{end}", row.unwrap_or("{tool}"))))
    })
}

/// Finds the catalogue, its wrapper, its position, and the text between tools.
fn find_catalogue(
    foreign: &ProbeRenderer<'_>,
    chat: &ChatForm,
    system: &mut SystemForm,
    compose: &Compose<'_>,
) -> Option<(ToolsForm, ToolJoins)> {
    let tools = probe_tools();
    let two_users = || {
        let start = if system.turn.is_some() && system.inside.is_none() {
            Probe::from_system(SYSTEM)
        } else {
            Probe::default()
        };
        start.user(USER).assistant(ANSWER).user(USER_2)
    };
    let user = Probe::from_user(USER);
    let base = foreign.prompt(&two_users())?;
    let full = foreign
        .prompt(&two_users().tools(&tools))
        .or_else(|| foreign.prompt(&user.clone().tools(&tools)))?;
    if base == full {
        system.with_tools = foreign.prompt(&user) != foreign.prompt(&user.clone().tools(&tools));
        return None;
    }
    let empty_list = foreign.prompt(&user) != foreign.prompt(&user.clone().tools(&[]));
    let mut found = ToolsForm { empty_list, ..ToolsForm::default() };
    let Some(catalogue) = catalogue::find(&full, &tools, compose) else {
        let words = if catalogue::contains_name(&full, &tools) {
            UNKNOWN_FORM
        } else {
            "tools change the prompt without being listed"
        };
        found.residual.push(words);
        return Some((found, ToolJoins::default()));
    };
    let written = &full[catalogue.range.clone()];
    let Catalogue { formatter, picks, joiner, row, .. } = catalogue;
    found.formatter = formatter;
    if found.formatter.as_ref().is_some_and(|formatter| formatter["kind"] == "XmlFormatter") {
        let render = |tools: &[Value]| foreign.prompt(&Probe::from_user(USER).tools(tools));
        found.formatter = catalogue::xml_order(&render, compose).or(found.formatter);
    }
    found.picks = picks;
    let position = CataloguePosition { foreign, chat, tools: &tools, written };
    if !position.inside_user(system, &mut found) {
        if let Some(user) = user_template(chat, &base, &full, written) {
            found.user = Some(user);
            position.notice(system, &mut found);
        } else {
            position.in_system(system, &mut found);
        }
    }
    Some((found, ToolJoins { joiner, row }))
}

/// Searches for the position of a catalogue.
struct CataloguePosition<'a> {
    foreign: &'a ProbeRenderer<'a>,
    chat: &'a ChatForm,
    tools: &'a [Value],
    /// The catalogue as the template writes it.
    written: &'a str,
}

impl CataloguePosition<'_> {
    /// The system turns with tools, with and without a system message.
    fn filled_turns(&self, system: &SystemForm) -> [Option<FilledTurn>; 2] {
        let find =
            |text: &str| text.find(self.written).map(|start| start..start + self.written.len());
        let change = |probe: Probe| probe.tools(self.tools);
        placement::filled_turns(self.foreign, self.chat, system, &change, &find).into()
    }

    /// Places the catalogue in a system turn inside a user turn.
    fn inside_user(&self, system: &mut SystemForm, found: &mut ToolsForm) -> bool {
        if system.inside.is_none() {
            return false;
        }
        let [explicit, default] = self.filled_turns(system);
        if [&explicit, &default].iter().any(|turn| !contains_items(turn)) {
            return false;
        }
        let mut placed = system.clone();
        let block = placement::place(&mut placed, "tools", explicit.as_ref(), default.as_ref());
        let Some((block, items)) = block.filter(|_| placed.residual == system.residual) else {
            return false;
        };
        found.template = wrapper(&block, items, "tools");
        *system = placed;
        self.find_also_empty(system, explicit.as_ref());
        true
    }

    /// Places the catalogue in the system turn.
    fn in_system(&self, system: &mut SystemForm, found: &mut ToolsForm) {
        let [explicit, default] = self.filled_turns(system);
        let lacks = explicit.as_ref().is_some_and(|explicit| explicit.items.is_none());
        let placed = placement::place(system, "tools", explicit.as_ref(), default.as_ref());
        self.find_also_empty(system, explicit.as_ref());
        let Some((block, items)) = placed.filter(|_| !lacks) else {
            found.residual.push(
                "the text around the catalogue is not an addition to the prompt without tools",
            );
            return;
        };
        found.template = wrapper(&block, items, "tools");
        if found.template.as_deref().is_some_and(contains_needle) {
            found.template = Some("{tools}".to_owned());
            found.residual.push(
                "the text around the catalogue contains names of tools, which components \
                 cannot express",
            );
        }
    }

    /// Checks whether the text between the system text and the tools is also written after an empty
    /// system text.
    fn find_also_empty(&self, system: &mut SystemForm, explicit: Option<&FilledTurn>) {
        if system.separators.before_tools.is_empty() && system.separators.after_tools.is_empty() {
            return;
        }
        let empty = Probe::from_system("").user(USER).tools(self.tools);
        let empty = self.foreign.prompt(&empty);
        let turn = empty
            .as_deref()
            .and_then(|empty| placement::turn(empty, system, self.chat))
            .map(|turn| placement::undated(turn, system));
        system.separators.also_empty =
            turn.is_some() && turn == explicit.map(|explicit| explicit.text.replace(SYSTEM, ""));
    }

    /// Finds the text about tools in the system turn of a template that lists the tools in a user
    /// turn.
    fn notice(&self, system: &mut SystemForm, found: &mut ToolsForm) {
        let Some(turn) = system.turn.clone() else { return };
        let explicit = Probe::from_system(SYSTEM).user(USER);
        let opening = self.foreign.prompt(&explicit);
        let opening = opening
            .as_deref()
            .and_then(|prompt| prompt.split_once(USER)?.0.strip_suffix(&*self.chat.user.before));
        let explicit = opening.and_then(|opening| self.turn_before(system, explicit, opening));
        let default = self.turn_before(system, Probe::from_user(USER), &self.chat.opening);
        if explicit.as_ref().is_none_or(|explicit| explicit.text == turn.text) {
            // Without such a text, tools do not cause a system turn.
            system.with_tools = default.is_none_or(|default| !default.text.is_empty());
            return;
        }
        match placement::place(system, "tools", explicit.as_ref(), default.as_ref()) {
            Some((block, _)) => found.template = Some(escaped(&block)),
            None => {
                found.residual.push("tools change the system turn in a way that is not an addition")
            }
        }
    }

    /// The system turn with tools, before the user turn. `opening` is the text before the user turn
    /// without tools.
    fn turn_before(&self, system: &SystemForm, probe: Probe, opening: &str) -> Option<FilledTurn> {
        let prompt = self.foreign.prompt(&probe.tools(self.tools))?;
        let (head, _) = prompt.split_once(USER)?;
        let start = user_start(self.chat, opening, head)?;
        let text = placement::undated(head[..start].strip_prefix(&*system.prefix)?, system);
        Some(FilledTurn { text, items: None })
    }
}

fn contains_items(turn: &Option<FilledTurn>) -> bool {
    turn.as_ref().is_some_and(|turn| turn.items.is_some())
}

/// The text around the items of a block, with a slot in place of the items. None if there is no
/// text around them.
pub(super) fn wrapper(block: &str, items: Option<Range<usize>>, slot: &str) -> Option<String> {
    let Some(items) = items else { return Some(escaped(block)) };
    if items == (0..block.len()) {
        return None;
    }
    Some(with_slot(&block[..items.start], slot, &block[items.end..]))
}

/// The placement, and the template of the user turn with tools. None if tools do not change a user
/// turn.
fn user_template(
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
            let filled = escaped(written);
            escaped(text).replacen(&filled, "{tools}", 1)
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

/// Finds the start of the first user turn in `full`, the text before its message when there are
/// tools. `opening` is the text before that turn without tools. If the system turn has changed too,
/// the user turn starts with its own first line.
fn user_start(chat: &ChatForm, opening: &str, full: &str) -> Option<usize> {
    if full.starts_with(opening) {
        Some(opening.len())
    } else {
        full.rfind(shared_opener(&chat.user.before))
    }
}

/// The start of a turn that all its variants share: its first line, or all of it.
fn shared_opener(before: &str) -> &str {
    before.split_inclusive('\n').next().filter(|line| !line.trim().is_empty()).unwrap_or(before)
}
