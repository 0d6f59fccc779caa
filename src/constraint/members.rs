//! Named values one after another: which may come next, what stands between two, and what follows the last.

use super::lark::{Lark, Piece};

/// One of them, written in full.
pub(super) struct Member {
    /// Its ways to be written; none where no value is possible.
    pub(super) ways: Vec<Vec<Piece>>,
    /// Whether it must be there.
    pub(super) required: bool,
}

/// Up to this many members may come in any order; the number of states doubles with each.
const ANY_ORDER: usize = 4;

/// The rule for these members and what follows them. `any_order` where the format has no order of its own; else as declared.
pub(super) fn rule(lark: &mut Lark, members: &[Member], any_order: bool, separator: &[Piece], tail: &[Piece]) -> Piece {
    if any_order && members.len() <= ANY_ORDER {
        unordered(lark, members, separator, tail)
    } else {
        ordered(lark, members, separator, tail)
    }
}

fn ordered(lark: &mut Lark, members: &[Member], separator: &[Piece], tail: &[Piece]) -> Piece {
    // States from the last to the first; the first one alone has no separator before its members.
    let mut after: Vec<Piece> = Vec::new();
    for start in (0..=members.len()).rev() {
        let separator: &[Piece] = if start == 0 { &[] } else { separator };
        let mut alternatives = Vec::new();
        let mut optional = true;
        for (index, member) in members.iter().enumerate().skip(start) {
            let next = &after[members.len() - index - 1];
            alternatives.extend(member.ways.iter().map(|way| [separator, way, std::slice::from_ref(next)].concat()));
            if member.required {
                optional = false;
                break;
            }
        }
        if optional {
            alternatives.push(tail.to_vec());
        }
        after.push(lark.choice_rule(alternatives));
    }
    after.pop().expect("there is a state before the first member")
}

fn unordered(lark: &mut Lark, members: &[Member], separator: &[Piece], tail: &[Piece]) -> Piece {
    let all = (1usize << members.len()) - 1;
    let required = members.iter().enumerate().filter(|(_, member)| member.required).map(|(index, _)| 1 << index);
    let required: usize = required.sum();
    // By the set of those already written; a set is smaller as a number than any that contains it.
    let mut states: Vec<Option<Piece>> = vec![None; all + 1];
    for written in (0..=all).rev() {
        let separator: &[Piece] = if written == 0 { &[] } else { separator };
        let mut alternatives = Vec::new();
        for (index, member) in members.iter().enumerate().filter(|(index, _)| written & (1 << index) == 0) {
            let next = states[written | (1 << index)].as_slice();
            alternatives.extend(member.ways.iter().map(|way| [separator, way, next].concat()));
        }
        if written & required == required {
            alternatives.push(tail.to_vec());
        }
        states[written] = Some(lark.choice_rule(alternatives));
    }
    states.swap_remove(0).expect("every state was written")
}
