//! Where raw values end, as data for a grammar.

use super::marks::{CDATA, ParameterMarks, pieces_at, without_whitespace};
use crate::output::format::Tagged;
use crate::output::read::arguments::{Followers, MarkMatch};

/// Where raw values end: what the reader of tagged arguments takes for the end of a text, and what
/// a text therefore cannot contain. Spaces, tabs and
/// line breaks may separate the pieces of a tag and the tags.
#[derive(Debug)]
pub(crate) struct ValueEnds {
    marks: ParameterMarks,
}

impl ValueEnds {
    /// `followers` are the tags that may follow the last parameter.
    pub(crate) fn new(tagged: &Tagged, followers: &Followers) -> ValueEnds {
        ValueEnds { marks: ParameterMarks::new(tagged, followers) }
    }

    /// The pieces of the end tag. It ends a text if one of [`after`](Self::after) follows.
    pub(crate) fn close(&self) -> &[String] {
        &self.marks.close
    }

    /// What may follow the end tag. Each is a list of pieces.
    pub(crate) fn after(&self) -> Vec<Vec<&str>> {
        let marks = [self.marks.opening(), &self.marks.separator].into_iter();
        let marks = marks.filter(|pieces| !pieces.is_empty());
        let marks = marks.map(|pieces| pieces.iter().map(String::as_str).collect());
        marks.chain(self.marks.followers().all().map(|tag| vec![tag])).collect()
    }

    /// The tags that end a text without an end tag, if another tag of a call follows: first those
    /// that may end it, then those that may follow.
    pub(crate) fn call_ends(&self) -> (Vec<&str>, Vec<&str>) {
        let followers = self.marks.followers();
        (followers.closing.iter().map(String::as_str).collect(), followers.all().collect())
    }

    /// What no text begins with.
    pub(crate) fn never_first(&self) -> &'static str {
        CDATA
    }

    /// The length of the shortest start of a text that confirms an end tag before it. 0 if there is
    /// none.
    pub(crate) fn confirming(&self, next: &str) -> usize {
        let rest = without_whitespace(next);
        let marks = [self.marks.opening(), &self.marks.separator].into_iter();
        let marks = marks.filter(|pieces| !pieces.is_empty()).map(|pieces| pieces_at(rest, pieces));
        let tags = self.marks.followers().all().map(|tag| MarkMatch::of(rest, tag));
        let lengths = marks.chain(tags).filter_map(|found| match found {
            MarkMatch::Full(length) => Some(length),
            _ => None,
        });
        lengths.min().map_or(0, |length| next.len() - rest.len() + length)
    }
}
