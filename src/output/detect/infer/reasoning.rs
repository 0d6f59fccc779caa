//! Finds the tags around reasoning from renders.

use super::history_prober::{CONTENT, ControlRenders, HistoryProber, REASONING, REASONING_MEMBERS};
use super::markers::{leading_marker, snap_left, snap_right, trailing_marker};
use crate::output::format::ReasoningTags;
use crate::probing::diff::{common_prefix, common_suffix};

/// The tags around reasoning; `None` if the template writes none. `open` is the text that opens the
/// calls of an answer.
pub(super) fn find_tags(
    prober: &HistoryProber<'_>,
    controls: &ControlRenders,
    head: &str,
    open: &str,
) -> Option<ReasoningTags> {
    let list = prober.strings(1);
    let shown = REASONING_MEMBERS.iter().find_map(|key| {
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
    // Text that ends every turn does not end reasoning.
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
    Some(ReasoningTags { close_only, ..ReasoningTags::new(open.into(), close.into()) })
}

fn opening(before: &str, prompt: Option<&str>, control: &str) -> Option<String> {
    let after_prompt =
        prompt.and_then(|prompt| before.strip_prefix(prompt.trim_end())).map(str::trim);
    if let Some(rest) = after_prompt.filter(|rest| !rest.is_empty()) {
        return Some(rest.to_owned());
    }
    let rest = before[snap_left(before, common_prefix(before, control))..].trim();
    if after_prompt.is_none()
        && !rest.is_empty()
        && !rest.starts_with(|c: char| c.is_alphanumeric())
    {
        return Some(rest.to_owned());
    }
    // Either the prompt or every answer opens reasoning.
    let tag = trailing_marker(before.trim_end()).map(str::trim_end);
    let turn = |tag: &str| control.trim_end().ends_with(tag) && control.trim() == before.trim();
    match tag {
        Some(tag) if !turn(tag) => Some(tag.to_owned()),
        Some(_) => Some(String::new()),
        None => None,
    }
}

fn closing(after: &str, control: &str, turn_end: Option<&str>) -> Option<String> {
    let trimmed = after.trim();
    if leading_marker(trimmed) == Some(trimmed)
        || leading_marker(trimmed).is_some_and(|marker| turn_end == Some(marker))
    {
        return leading_marker(trimmed).map(str::to_owned);
    }
    let shared = after.len() - common_suffix(after, control);
    let rest = after[..snap_right(after, shared)].trim();
    if rest.is_empty() { leading_marker(trimmed).map(str::to_owned) } else { Some(rest.to_owned()) }
}
