//! The items of an array, one element after another.

use super::lark::{Lark, Symbol, each_followed_by};
use super::schema::SchemaReport;
use super::shape::ArrayShape;
use crate::error::Result;

/// The maximum number of array items that a grammar can count.
const MAX_COUNTED: usize = 64;

/// The rule for the items and the text after them. `first` has the ways to write each of the first
/// items, `rest` those of each further item. None if too few items are possible.
pub(super) fn rule(
    lark: &mut Lark,
    array: &ArrayShape,
    first: &[Vec<Vec<Symbol>>],
    rest: &[Vec<Symbol>],
    tail: &[Symbol],
    report: &mut SchemaReport,
) -> Result<Option<Symbol>> {
    let taken = first.len();
    let mut least = array.least.saturating_sub(taken);
    let mut most = array.most.map(|most| most.saturating_sub(taken));
    if rest.is_empty() {
        if least > 0 {
            return Ok(None);
        }
        most = Some(0);
    }
    if least > MAX_COUNTED || most.is_some_and(|most| most > MAX_COUNTED) {
        let at = array.rest.as_ref().map_or("", |(at, _)| at.trim_end_matches("/items"));
        let reason = format!("more than {MAX_COUNTED} items cannot be counted");
        report.refuse(at, "maxItems", &reason)?;
        (least, most) = (least.min(MAX_COUNTED), None);
    }
    // Built from the end: the rule after each number of items.
    let mut next = match most {
        None => lark.repeated(rest, tail),
        Some(_) => lark.choice_rule(vec![tail.to_vec()]),
    };
    for written in (0..most.unwrap_or(least)).rev() {
        let mut ways = each_followed_by(rest, &next);
        if written >= least {
            ways.push(tail.to_vec());
        }
        next = lark.choice_rule(ways);
    }
    for ways in first.iter().rev() {
        next = lark.choice_rule(each_followed_by(ways, &next));
    }
    Ok(Some(next))
}
