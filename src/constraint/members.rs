//! Sequences of named values: which value may come next, the separators, and the text after the
//! last value.

use super::lark::{Lark, Symbol, merged};

/// A named value.
pub(super) struct Member {
    /// The alternatives for writing the member, including its name. Empty if no value is possible.
    pub(super) ways: Vec<Vec<Symbol>>,
    pub(super) required: bool,
}

/// The maximum number of members that may come in any order. Each further member doubles the number
/// of states.
const ANY_ORDER: usize = 4;

/// The rule for these members, followed by `tail`. With `any_order` the members may come in any
/// order, otherwise in the order of their declaration.
pub(super) fn rule(
    lark: &mut Lark,
    members: &[Member],
    any_order: bool,
    separator: &[Symbol],
    tail: &[Symbol],
) -> Symbol {
    if any_order && members.len() <= ANY_ORDER {
        unordered(lark, members, separator, tail)
    } else {
        ordered(lark, members, separator, tail)
    }
}

fn ordered(lark: &mut Lark, members: &[Member], separator: &[Symbol], tail: &[Symbol]) -> Symbol {
    let written: Vec<Vec<Vec<Symbol>>> =
        members.iter().map(|member| after_separator(separator, &member.ways)).collect();
    let clash = written.iter().flatten().any(|way| clash(way, tail));
    // States are built from the last member to the first. Only the first member has no separator
    // before it.
    let mut after = vec![lark.choice_rule(vec![tail.to_vec()])];
    for start in (1..members.len()).rev() {
        let state = if clash {
            lark.choice_rule(next(&members[start..], &written[start..], &after, tail))
        } else {
            // A reference to the next state keeps the grammar small if there are hundreds of
            // members.
            let next = &after[members.len() - start - 1];
            let mut ways = each_followed_by(&written[start], next);
            if !members[start].required {
                ways.push(vec![next.clone()]);
            }
            lark.choice_rule(ways)
        };
        after.push(state);
    }
    let bare: Vec<_> = members.iter().map(|member| member.ways.clone()).collect();
    lark.choice_rule(next(members, &bare, &after, tail))
}

/// The alternatives when these members are left. `after` has the state after each member, beginning
/// with the last member.
fn next(
    members: &[Member],
    written: &[Vec<Vec<Symbol>>],
    after: &[Symbol],
    tail: &[Symbol],
) -> Vec<Vec<Symbol>> {
    let mut alternatives = Vec::new();
    for (index, (member, ways)) in members.iter().zip(written).enumerate() {
        alternatives.extend(each_followed_by(ways, &after[members.len() - index - 1]));
        if member.required {
            return alternatives;
        }
    }
    alternatives.push(tail.to_vec());
    alternatives
}

fn after_separator(separator: &[Symbol], ways: &[Vec<Symbol>]) -> Vec<Vec<Symbol>> {
    ways.iter().map(|way| merged([separator, way].concat())).collect()
}

fn each_followed_by(ways: &[Vec<Symbol>], next: &Symbol) -> Vec<Vec<Symbol>> {
    ways.iter().map(|way| [way.as_slice(), std::slice::from_ref(next)].concat()).collect()
}

/// Whether one text is a prefix of the other. Both must then be alternatives of one choice.
fn clash(way: &[Symbol], tail: &[Symbol]) -> bool {
    match (way.first(), merged(tail.to_vec()).first()) {
        (Some(Symbol::Text(a)), Some(Symbol::Text(b))) => {
            a.starts_with(b.as_str()) || b.starts_with(a.as_str())
        }
        _ => false,
    }
}

fn unordered(lark: &mut Lark, members: &[Member], separator: &[Symbol], tail: &[Symbol]) -> Symbol {
    let all = (1usize << members.len()) - 1;
    let required = members
        .iter()
        .enumerate()
        .filter(|(_, member)| member.required)
        .map(|(index, _)| 1 << index);
    let required: usize = required.sum();
    // States are indexed by the set of members already written. Every superset has a greater index.
    let mut states: Vec<Option<Symbol>> = vec![None; all + 1];
    for written in (0..=all).rev() {
        let separator: &[Symbol] = if written == 0 { &[] } else { separator };
        let mut alternatives = Vec::new();
        for (index, member) in
            members.iter().enumerate().filter(|(index, _)| written & (1 << index) == 0)
        {
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
