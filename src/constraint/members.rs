//! Sequences of named values: which value may come next, the separators, and the text after the
//! last value.

use super::lark::{Lark, Symbol, each_followed_by, merged};

/// A named value.
pub(super) struct Member {
    /// The alternatives for writing the member, including its name. Empty if no value is possible.
    pub(super) ways: Vec<Vec<Symbol>>,
    pub(super) required: bool,
}

/// Returns the ways to write the member with this index, each to the end of a continuation.
type MemberRules<'m> = dyn FnMut(&mut Lark, usize, &[Continuation]) -> Vec<Vec<Symbol>> + 'm;

/// The maximum number of members that may come in any order. Each further member doubles the number
/// of states.
const ANY_ORDER: usize = 4;

/// The rule for these members in the order of their declaration, followed by `tail`.
pub(super) fn rule(
    lark: &mut Lark,
    members: &[Member],
    separator: &[Symbol],
    tail: &[Symbol],
) -> Symbol {
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

/// Whether one text is a prefix of the other. Both must then be alternatives of one choice.
fn clash(way: &[Symbol], tail: &[Symbol]) -> bool {
    match (way.first(), merged(tail.to_vec()).first()) {
        (Some(Symbol::Text(a)), Some(Symbol::Text(b))) => {
            a.starts_with(b.as_str()) || b.starts_with(a.as_str())
        }
        _ => false,
    }
}

/// Members whose values end only together with the text after them.
pub(super) struct ChainedMembers<'a> {
    /// For each member, whether it is required.
    pub(super) required: &'a [bool],
    /// The text from a value to the next key.
    pub(super) between: Vec<Symbol>,
    /// The text from the last value on.
    pub(super) tail: Vec<Symbol>,
}

/// What follows a value: the text, and the rule of the next key. None after the last value.
pub(super) struct Continuation {
    pub(super) text: Vec<Symbol>,
    pub(super) key: Option<Symbol>,
}

impl ChainedMembers<'_> {
    /// The rule for the members, followed by the tail. A few members may come in any order.
    /// `open` is the text before the first key. `member` writes a member from its key to the end of
    /// each continuation.
    pub(super) fn rule(
        &self,
        lark: &mut Lark,
        open: &[Symbol],
        member: &mut MemberRules<'_>,
    ) -> Symbol {
        let first = if self.required.len() <= ANY_ORDER {
            self.unordered(lark, member)
        } else {
            self.ordered(lark, member)
        };
        let mut ways: Vec<_> =
            first.into_iter().map(|key| [open.to_vec(), vec![key]].concat()).collect();
        if !self.required.contains(&true) {
            ways.push(self.tail.clone());
        }
        lark.choice_rule(ways)
    }

    fn continuations(&self, key: Option<Symbol>, may_end: bool) -> Vec<Continuation> {
        let next = key.map(|key| Continuation { text: self.between.clone(), key: Some(key) });
        let end = may_end.then(|| Continuation { text: self.tail.clone(), key: None });
        next.into_iter().chain(end).collect()
    }

    /// The rule of the first key. Built from the last member to the first; a reference to the next
    /// rule keeps the grammar small if there are hundreds of members.
    fn ordered(&self, lark: &mut Lark, member: &mut MemberRules<'_>) -> Option<Symbol> {
        let mut key = None;
        let mut may_end = true;
        for (index, required) in self.required.iter().enumerate().rev() {
            let mut ways = member(lark, index, &self.continuations(key.clone(), may_end));
            if !required {
                ways.extend(key.take().map(|key| vec![key]));
            }
            key = (!ways.is_empty()).then(|| lark.choice_rule(ways));
            may_end &= !required;
        }
        key
    }

    fn unordered(&self, lark: &mut Lark, member: &mut MemberRules<'_>) -> Option<Symbol> {
        let count = self.required.len();
        let all = (1usize << count) - 1;
        let is_required = |index: &usize| self.required[*index];
        let required: usize = (0..count).filter(is_required).map(|index| 1 << index).sum();
        // States are indexed by the set of members already written. Every superset has a greater
        // index.
        let mut keys: Vec<Option<Symbol>> = vec![None; all + 1];
        for written in (0..all).rev() {
            let mut ways = Vec::new();
            for index in (0..count).filter(|index| written & (1 << index) == 0) {
                let then = written | (1 << index);
                let may_end = then & required == required;
                ways.extend(member(lark, index, &self.continuations(keys[then].clone(), may_end)));
            }
            keys[written] = (!ways.is_empty()).then(|| lark.choice_rule(ways));
        }
        keys.swap_remove(0)
    }
}
