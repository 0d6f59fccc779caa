//! Where a block of tools or skills stands in the system turn, and what stands round the items in
//! it.

use std::ops::Range;

use super::chat::ChatForm;
use super::needles::{SYSTEM, USER};
use super::system::{SystemForm, TurnShape, header};
use crate::probing::diff::{Insertion, insertions};
use crate::probing::{Probe, ProbeRenderer};

/// A system turn with a block in it, and the items' bytes, when they stand in it.
pub(super) struct FilledTurn {
    pub(super) text: String,
    pub(super) items: Option<Range<usize>>,
}

/// The system turn in a prompt: what stands between the prefix and the first user's turn.
pub(super) fn turn<'a>(prompt: &'a str, system: &SystemForm, chat: &ChatForm) -> Option<&'a str> {
    let (head, _) = prompt.split_once(USER)?;
    system.strip(head, chat)
}

/// The same without a date header.
pub(super) fn undated(turn: &str, system: &SystemForm) -> String {
    system
        .cutoff
        .as_deref()
        .map_or_else(|| turn.to_owned(), |cutoff| turn.replacen(&header(cutoff), "", 1))
}

/// The system turns that this change to a conversation makes, with and without a system message,
/// where `find` finds the items.
pub(super) fn filled(
    foreign: &ProbeRenderer<'_>,
    chat: &ChatForm,
    system: &SystemForm,
    change: &dyn Fn(Probe) -> Probe,
    find: &dyn Fn(&str) -> Option<Range<usize>>,
) -> (Option<FilledTurn>, Option<FilledTurn>) {
    let of = |conversation: Probe| {
        let prompt = foreign.prompt(&change(conversation))?;
        let text = undated(turn(&prompt, system, chat)?, system);
        let items = find(&text);
        Some(FilledTurn { text, items })
    };
    let given = system.turn.is_some().then(|| of(Probe::from_system(SYSTEM).user(USER))).flatten();
    (given, of(Probe::from_user(USER)))
}

/// Puts the slot into the system's turns, so that a block makes of them what was rendered. The
/// block, with the items' bytes in it; None when no place does.
pub(super) fn place(
    system: &mut SystemForm,
    slot: &'static str,
    given: Option<&FilledTurn>,
    default: Option<&FilledTurn>,
) -> Option<(String, Option<Range<usize>>)> {
    let Some(given) = given else { return place_in_default(system, slot, default?) };
    let mut shape = system.turn.clone()?;
    let start = shape.text.find(SYSTEM)?;
    let end = start + SYSTEM.len();
    let mut ways = insertions(&shape.text, &given.text, given.items.as_ref());
    ways.retain(|way| way.at <= start || way.at >= end);
    // All ways render this turn alike. Behind the system text is where people put it, and where
    // text may come between.
    ways.sort_by_key(|way| (way.at != end, way.at != start, way.at));
    let block = |way: &Insertion| given.text[way.block.clone()].to_owned();
    let items = |way: &Insertion, skip: usize| {
        given
            .items
            .as_ref()
            .map(|items| items.start - way.block.start - skip..items.end - way.block.start - skip)
    };
    let Some(default) = default else {
        let way = ways.first()?;
        shape.insert(way.at, slot);
        system.turn = Some(shape);
        return Some((block(way), items(way, 0)));
    };
    // The same block fits the turn without a system message,
    let mut best: Option<(u8, usize, Option<TurnShape>)> = None;
    for (index, way) in ways.iter().enumerate() {
        if let Some((rank, turn)) = fit(system, slot, way.at, &block(way), &default.text)
            && best.as_ref().is_none_or(|(known, ..)| rank < *known)
        {
            best = Some((rank, index, turn));
        }
    }
    if let Some((_, index, turn)) = best {
        let way = &ways[index];
        shape.insert(way.at, slot);
        system.turn = Some(shape);
        if turn.is_some() {
            system.default = turn;
        } else if !system.always && default.text.is_empty() {
            system.with_tools = false;
        }
        return Some((block(way), items(way, 0)));
    }
    // or all but text at its begin, which only follows a system text,
    let way = ways.first()?.clone();
    let whole = block(&way);
    let most = given.items.as_ref().map_or(whole.len(), |items| items.start - way.block.start);
    let most = if way.at == end { most } else { 0 };
    for cut in (1..=most).filter(|cut| whole.is_char_boundary(*cut)) {
        if let Some((_, turn)) = fit(system, slot, way.at, &whole[cut..], &default.text) {
            shape.insert(way.at, slot);
            system.turn = Some(shape);
            system.before_tools = whole[..cut].to_owned();
            if turn.is_some() {
                system.default = turn;
            }
            return Some((whole[cut..].to_owned(), items(&way, cut)));
        }
    }
    // or all but text at its end, which only comes before one,
    for way in ways.iter().filter(|way| way.at == start) {
        let whole = block(way);
        let least = given.items.as_ref().map_or(0, |items| items.end - way.block.start);
        for cut in (least..whole.len()).rev().filter(|cut| whole.is_char_boundary(*cut)) {
            if let Some((_, turn)) = fit(system, slot, way.at, &whole[..cut], &default.text) {
                shape.insert(way.at, slot);
                system.turn = Some(shape);
                system.behind_tools = whole[cut..].to_owned();
                if turn.is_some() {
                    system.default = turn;
                }
                return Some((whole[..cut].to_owned(), items(way, 0)));
            }
        }
    }
    // or the turn with a system message has to do.
    shape.insert(way.at, slot);
    system.turn = Some(shape);
    system.residual.push(format!(
        "{slot} change the system turn in another way when there is no system message"
    ));
    Some((whole, items(&way, 0)))
}

/// Whether this block, put into the turn without a system message, makes this text of it; with the
/// turn, if it is one of its own, and a rank: lower is plainer.
fn fit(
    system: &SystemForm,
    slot: &'static str,
    at: usize,
    block: &str,
    text: &str,
) -> Option<(u8, Option<TurnShape>)> {
    let with = |shape: &TurnShape, message: &str, at: usize| {
        let mut filled = shape.filled(message);
        filled.is_char_boundary(at).then(|| {
            filled.insert_str(at, block);
            filled
        })
    };
    let turn = system.turn.as_ref()?;
    if !system.always && text.is_empty() {
        return Some((0, None));
    }
    if system.default.is_none() {
        let start = turn.text.find(SYSTEM)?;
        let same = if at > start { at + system.message.len() - SYSTEM.len() } else { at };
        if with(turn, &system.message, same).as_deref() == Some(text) {
            return Some((0, None));
        }
    }
    let Some(own) = system.default.clone().or_else(|| system.always.then(|| turn.clone())) else {
        // No turn is known yet: whatever stands round the block is one.
        let place = text.find(block)?;
        let mut shape =
            TurnShape::of(&format!("{}{}", &text[..place], &text[place + block.len()..]));
        shape.insert(place, slot);
        return Some((2, Some(shape)));
    };
    let base = own.filled(&system.message);
    let way =
        insertions(&base, text, None).into_iter().find(|way| text[way.block.clone()] == *block)?;
    let mut shape = own.clone();
    shape.insert(own.at(way.at, &system.message)?, slot);
    Some((1, Some(shape)))
}

/// For a template that leaves system messages out: the turn is the same with and without one.
fn place_in_default(
    system: &mut SystemForm,
    slot: &'static str,
    default: &FilledTurn,
) -> Option<(String, Option<Range<usize>>)> {
    let base = system.default_turn().cloned().unwrap_or_default();
    let way = insertions(&base.text, &default.text, default.items.as_ref()).into_iter().next()?;
    let mut shape = base;
    shape.insert(way.at, slot);
    system.default = Some(shape);
    let items = default
        .items
        .as_ref()
        .map(|items| items.start - way.block.start..items.end - way.block.start);
    Some((default.text[way.block].to_owned(), items))
}
