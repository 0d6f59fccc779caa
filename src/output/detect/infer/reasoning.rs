//! Renders with reasoning -> the tags around it.

use super::markers::{common_prefix, common_suffix, first, last, snap_left, snap_right};
use super::probe::{CONTENT, Prober, REASONING};
use super::section::Controls;
use crate::output::format::ReasoningTags;

/// The members in which histories carry reasoning.
const KEYS: [&str; 3] = ["reasoning_content", "reasoning", "thinking"];

/// The tags around reasoning; None where the template writes none. `open` is how the calls of an
/// answer begin.
pub(super) fn reasoning(
    prober: &Prober<'_>,
    controls: &Controls,
    head: &str,
    open: &str,
) -> Option<ReasoningTags> {
    let list = prober.strings(1);
    let shown = KEYS.iter().find_map(|key| {
        let with_content = prober.reasoning(key, &[]).ok().filter(|text| text.contains(REASONING));
        with_content
            .or_else(|| prober.reasoning(key, &list).ok().filter(|text| text.contains(REASONING)))
    })?;
    let (before, after) = shown.split_once(REASONING)?;
    let end = if let Some(at) = after.find(CONTENT) {
        at
    } else if open.is_empty() {
        after.find(&*list[0].name)?
    } else {
        after.find(open)?
    };
    let control = controls.content.as_ref().map_or(head, |(head, _)| head);
    let tags = (
        opening(before, controls.prompt.as_deref(), control),
        closing(&after[..end], control, controls.turn_end.as_deref()),
    );
    let (open, close) = (tags.0?, tags.1?);
    // What ends every turn says nothing of reasoning.
    let turn_end = controls
        .content
        .as_ref()
        .map(|(_, end)| &**end)
        .into_iter()
        .chain(controls.turn_end.as_deref());
    let ends_turn = turn_end.into_iter().any(|end| end.contains(&close));
    let alone = |text: &str| {
        !ends_turn && text.contains(&close) && (open.is_empty() || !text.contains(&open))
    };
    let prompt = controls.prompt.as_deref().unwrap_or_default();
    let close_only =
        [control, head].iter().any(|text| alone(text)) || (alone(prompt) && open.is_empty());
    Some(ReasoningTags {
        open: open.into(),
        close: close.into(),
        closed_by_call: false,
        close_only,
    })
}

fn opening(before: &str, prompt: Option<&str>, control: &str) -> Option<String> {
    let behind_prompt =
        prompt.and_then(|prompt| before.strip_prefix(prompt.trim_end())).map(str::trim);
    if let Some(rest) = behind_prompt.filter(|rest| !rest.is_empty()) {
        return Some(rest.to_owned());
    }
    let rest = before[snap_left(before, common_prefix(before, control))..].trim();
    if behind_prompt.is_none()
        && !rest.is_empty()
        && !rest.starts_with(|c: char| c.is_alphanumeric())
    {
        return Some(rest.to_owned());
    }
    // The prompt opens it, or every answer does.
    let tag = last(before.trim_end()).map(str::trim_end);
    let turn = |tag: &str| control.trim_end().ends_with(tag) && control.trim() == before.trim();
    match tag {
        Some(tag) if !turn(tag) => Some(tag.to_owned()),
        Some(_) => Some(String::new()),
        None => None,
    }
}

fn closing(after: &str, control: &str, turn_end: Option<&str>) -> Option<String> {
    let trimmed = after.trim();
    if first(trimmed) == Some(trimmed)
        || first(trimmed).is_some_and(|marker| turn_end == Some(marker))
    {
        return first(trimmed).map(str::to_owned);
    }
    let alike = after.len() - common_suffix(after, control);
    let rest = after[..snap_right(after, alike)].trim();
    if rest.is_empty() { first(trimmed).map(str::to_owned) } else { Some(rest.to_owned()) }
}
