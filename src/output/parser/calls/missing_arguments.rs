//! A call whose arguments are missing: which tags end it there, and how its text matches them.

use super::call_patterns::PatternItem;
use crate::output::format::{Encoding, FormatText};
use crate::output::read::{Followers, MarkMatch, ReadStep};

/// The text after the point at which the arguments of a call were expected.
#[derive(Debug)]
pub(super) struct MissingArguments {
    /// The possible start of one of `ends`.
    held: String,
    ends: Vec<String>,
}

impl MissingArguments {
    /// `items[at]` are the arguments. A closing tag ends the call. If it may be missing too, the
    /// tag of another call or one of `turn_ends` does.
    pub(super) fn new(
        items: &[PatternItem],
        at: usize,
        followers: &Followers,
        turn_ends: Option<&[FormatText]>,
    ) -> MissingArguments {
        let own = items[at..].iter().find_map(PatternItem::tag).map(str::to_owned);
        let mut ends: Vec<String> = own.into_iter().chain(followers.closing.clone()).collect();
        if let Some(turn_ends) = turn_ends {
            ends.extend(next_call_tags(items, at, followers));
            ends.extend(turn_ends.iter().map(|end| end.to_string()));
        }
        MissingArguments { held: String::new(), ends }
    }

    /// Reads text. It breaks the call unless a tag that ends it comes first.
    pub(super) fn read(&mut self, text: &str) -> ReadStep {
        self.held.push_str(text);
        match MarkMatch::of_any(self.held.trim_start(), &self.ends) {
            MarkMatch::Full(_) => ReadStep::Ended(std::mem::take(&mut self.held)),
            MarkMatch::Part => ReadStep::More,
            MarkMatch::No => ReadStep::Broken(self.held.len()),
        }
    }
}

/// The tags that begin another call. A tag that also begins the parameters is followed by what
/// follows it in a call: `<|open|>call`.
fn next_call_tags(items: &[PatternItem], at: usize, followers: &Followers) -> Vec<String> {
    let parameter = match &items[at] {
        PatternItem::Arguments(Encoding::Tagged(tagged)) => &*tagged.open,
        _ => "",
    };
    let longer = |tag: &str| {
        items.windows(2).find_map(|two| {
            let (first, second) = (two[0].tag()?, two[1].tag()?);
            (first == tag).then(|| format!("{first}{second}"))
        })
    };
    let tags = followers.opening.iter().filter_map(|tag| match parameter.starts_with(tag) {
        true => longer(tag),
        false => Some(tag.clone()),
    });
    tags.collect()
}
