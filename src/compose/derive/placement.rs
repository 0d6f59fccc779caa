//! Derives the position of a block of tools or skills in the system turn, and the text around its
//! items.

use std::ops::Range;

use super::chat::ChatForm;
use super::probes::{SYSTEM, USER};
use super::system::{SystemForm, TurnShape, date_header};
use crate::probing::diff::{Insertion, insertions};
use crate::probing::{Probe, ProbeRenderer};

/// A system turn that contains a block, and the byte range of the items.
pub(super) struct FilledTurn {
    pub(super) text: String,
    pub(super) items: Option<Range<usize>>,
}

/// The system turn of a prompt: the text between the prefix and the first user turn.
pub(super) fn turn<'a>(prompt: &'a str, system: &SystemForm, chat: &ChatForm) -> Option<&'a str> {
    let (head, _) = prompt.split_once(USER)?;
    system.strip(head, chat)
}

/// The turn without its date header.
pub(super) fn undated(turn: &str, system: &SystemForm) -> String {
    system
        .cutoff
        .as_deref()
        .map_or_else(|| turn.to_owned(), |cutoff| turn.replacen(&date_header(cutoff), "", 1))
}

/// The system turns of a changed conversation, with and without a system message. `find` finds the
/// items in a turn.
pub(super) fn filled_turns(
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
    let explicit =
        system.turn.is_some().then(|| of(Probe::from_system(SYSTEM).user(USER))).flatten();
    (explicit, of(Probe::from_user(USER)))
}

/// Where a block is inserted in the system turn.
struct BlockPosition {
    /// The byte offset in the turn with a system message.
    at: usize,
    /// The byte range of the block in the filled turn.
    block: Range<usize>,
    /// The turn without a system message, if it changes with the block.
    default: Option<TurnShape>,
}

/// Inserts the slot into the system turns at the position where the block must be to give the
/// rendered turns. Returns the block, and the byte range of the items in it. None if no position
/// fits.
pub(super) fn place(
    system: &mut SystemForm,
    slot: &'static str,
    explicit: Option<&FilledTurn>,
    default: Option<&FilledTurn>,
) -> Option<(String, Option<Range<usize>>)> {
    let Some(explicit) = explicit else { return place_in_default(system, slot, default?) };
    let mut shape = system.turn.clone()?;
    let start = shape.text.find(SYSTEM)?;
    let end = start + SYSTEM.len();
    let mut ways = insertions(&shape.text, &explicit.text, explicit.items.as_ref());
    ways.retain(|way| way.at <= start || way.at >= end);
    // All positions render this turn alike. The usual one is after the system text, where a
    // separator can also follow.
    ways.sort_by_key(|way| (way.at != end, way.at != start, way.at));
    let first = ways.first()?;
    let position = match default {
        Some(default) => {
            let fit = BlockFit { slot, explicit, default };
            if let Some(position) = fit.whole(system, &ways) {
                if position.default.is_none() && !system.always && default.text.is_empty() {
                    system.with_tools = false;
                }
                Some(position)
            } else if let Some(position) = fit.without_start(system, first, end) {
                explicit.text[first.block.start..position.block.start]
                    .clone_into(&mut system.separators.before_tools);
                Some(position)
            } else if let Some((position, way)) = fit.without_end(system, &ways, start) {
                explicit.text[position.block.end..way.block.end]
                    .clone_into(&mut system.separators.after_tools);
                Some(position)
            } else {
                system.residual.push(match slot {
                    "tools" => "tools change the system turn differently without a system message",
                    _ => "skills change the system turn differently without a system message",
                });
                None
            }
        }
        None => None,
    };
    let position = position.unwrap_or_else(|| BlockPosition {
        at: first.at,
        block: first.block.clone(),
        default: None,
    });
    shape.insert(position.at, slot);
    system.turn = Some(shape);
    if position.default.is_some() {
        system.default = position.default;
    }
    let items = relative(explicit.items.as_ref(), &position.block);
    Some((explicit.text[position.block].to_owned(), items))
}

/// Converts a range of the filled turn to a range of the block.
fn relative(items: Option<&Range<usize>>, block: &Range<usize>) -> Option<Range<usize>> {
    items.map(|items| items.start - block.start..items.end - block.start)
}

/// Searches for a block that fits the turns with and without a system message.
struct BlockFit<'a> {
    slot: &'static str,
    explicit: &'a FilledTurn,
    default: &'a FilledTurn,
}

impl BlockFit<'_> {
    /// The most natural position at which the same block fits both turns.
    fn whole(&self, system: &SystemForm, ways: &[Insertion]) -> Option<BlockPosition> {
        let mut best: Option<(u8, BlockPosition)> = None;
        for way in ways {
            if let Some((rank, position)) = self.position(system, way.at, way.block.clone())
                && best.as_ref().is_none_or(|(known, _)| rank < *known)
            {
                best = Some((rank, position));
            }
        }
        best.map(|(_, position)| position)
    }

    /// The block without the text at its start that only appears after a system text.
    fn without_start(
        &self,
        system: &SystemForm,
        way: &Insertion,
        end: usize,
    ) -> Option<BlockPosition> {
        if way.at != end {
            return None;
        }
        let Range { start, end } = way.block;
        let last = self.explicit.items.as_ref().map_or(end, |items| items.start);
        (start + 1..=last)
            .filter(|cut| self.explicit.text.is_char_boundary(*cut))
            .find_map(|cut| self.position(system, way.at, cut..end))
            .map(|(_, position)| position)
    }

    /// The block without the text at its end that only appears before a system text.
    fn without_end<'w>(
        &self,
        system: &SystemForm,
        ways: &'w [Insertion],
        start: usize,
    ) -> Option<(BlockPosition, &'w Insertion)> {
        ways.iter().filter(|way| way.at == start).find_map(|way| {
            let least = self.explicit.items.as_ref().map_or(way.block.start, |items| items.end);
            (least..way.block.end)
                .rev()
                .filter(|cut| self.explicit.text.is_char_boundary(*cut))
                .find_map(|cut| self.position(system, way.at, way.block.start..cut))
                .map(|(_, position)| (position, way))
        })
    }

    /// The position and rank of this block, if it fits the turn without a system message.
    fn position(
        &self,
        system: &SystemForm,
        at: usize,
        block: Range<usize>,
    ) -> Option<(u8, BlockPosition)> {
        let text = &self.explicit.text[block.clone()];
        let (rank, default) = fit(system, self.slot, at, text, &self.default.text)?;
        Some((rank, BlockPosition { at, block, default }))
    }
}

/// Whether the turn without a system message becomes `text` when this block is inserted. Returns a
/// rank, of which a lower one is more natural, and the turn if it is a separate one.
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
        // The turn is not known yet: it is the text around the block.
        let place = text.find(block)?;
        let mut shape =
            TurnShape::new(&format!("{}{}", &text[..place], &text[place + block.len()..]));
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

/// Handles a template that ignores system messages, so that the turn is the same with and without
/// one.
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
    let items = relative(default.items.as_ref(), &way.block);
    Some((default.text[way.block].to_owned(), items))
}
