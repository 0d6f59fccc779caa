//! The state of writing a template, and the expressions that several parts of it use.

use super::text::{Joined, TemplateLines, filled, quoted, text, value};
use crate::compose::spec::ComponentSpec;
use crate::compose::spec::policy::DATE_FORMAT;
use crate::compose::spec::processor::{IfTools, Processor};
use crate::compose::spec::slots::SlotPattern;

pub(super) struct TemplateWriter<'a> {
    pub(super) spec: &'a ComponentSpec,
    pub(super) marked: bool,
    pub(super) lines: &'a mut TemplateLines,
}

/// The role of the message that a content belongs to. It decides which parts are allowed.
pub(super) const SYSTEM: &str = "system";
pub(super) const USER: &str = "user";
pub(super) const ASSISTANT: &str = "assistant";
pub(super) const TOOL: &str = "tool";

pub(super) fn parts(content: &str, role: &str) -> String {
    format!("parts({content}, {})", quoted(role))
}

/// Writes a turn. The first turn of a conversation omits `first_turn_without`.
pub(super) fn turn(
    spec: &ComponentSpec,
    pattern: &SlotPattern,
    fill: impl Fn(&str) -> Joined,
) -> Joined {
    let (omitted, system_policy) = (&spec.turns.first_turn_without, &spec.system_policy);
    let rest = Some(omitted)
        .filter(|omitted| !omitted.is_empty())
        .and_then(|omitted| pattern.without_prefix(omitted));
    // If there is always a system turn, no other turn can be the first.
    let Some(rest) = rest.filter(|_| !(system_policy.use_system && system_policy.without_message))
    else {
        return filled(pattern, fill);
    };
    let skills = if spec.skills_template.is_some() { " and not skills" } else { "" };
    let alone = if system_policy.use_system && system_policy.with_tools {
        format!(" and not ({}){skills}", spec.tool_policy.has_tools())
    } else {
        String::new()
    };
    let head = format!("(\"\" if loop.first{alone} else {})", quoted(omitted));
    value(&head).append(filled(&rest, fill))
}

/// The variable `name`, changed by a processor of a system text or an answer.
pub(super) fn processed(processor: &Processor, name: &str) -> Joined {
    let text_or = |added: Joined| format!("({} if {name} else \"\")", added.expression());
    match processor {
        Processor::DateHeader { cutoff } => text("Cutting Knowledge Date: ")
            .text(cutoff)
            .text("\nToday Date: ")
            .value(&date(DATE_FORMAT))
            .text("\n\n")
            .value(name),
        Processor::Prepend(added) => text(added).value(name),
        Processor::Append(added) => value(name).text(added),
        Processor::AppendIfTools(added) => value(name).value(&separator(added, Some(name))),
        Processor::PrependIfTools(added) => value(&separator(added, Some(name))).value(name),
        Processor::PrependIfNonempty(added) => value(&text_or(text(added).value(name))),
        Processor::NewlineIfNonempty => value(&text_or(text("\n").value(name))),
        Processor::Strip => value(&format!("{name} | trim")),
        Processor::Json => value(&format!("{name} | tojson")),
        Processor::PickFunction
        | Processor::ObjectArguments
        | Processor::KimiCall
        | Processor::DsmlCall => value(name),
    }
}

/// An expression for today's date in this format.
pub(super) fn date(format: &str) -> String {
    format!("(date_string if date_string is defined else strftime_now({}))", quoted(format))
}

/// The text between a system text and tools, if both are present. With None for the name of the
/// system text, tools alone are enough.
pub(super) fn separator(added: &IfTools, name: Option<&str>) -> String {
    let has_text = name.map(|name| format!("{name} and ")).unwrap_or_default();
    format!("({} if {has_text}tools_block else \"\")", quoted(&added.text))
}
