//! Derives from a format the patterns by which calls are read: the items of each way to write a
//! call, and the tags that begin and end calls.

use std::sync::Arc;

use super::call_object::CallKeys;
use crate::output::families;
use crate::output::format::{
    CallPart, CallSyntax, Encoding, FENCE, Format, FormatText, IdForm, object_at,
};
use crate::output::read::Followers;
use crate::process::Lazy;

/// An item of a call, in reading order.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum PatternItem {
    /// Text without whitespace. Any whitespace may surround it.
    Tag(String),
    /// The function's name.
    Name,
    /// The call's id.
    Id(IdForm),
    Arguments(Encoding),
    /// A JSON object that contains name and arguments.
    Object(Arc<CallKeys>),
}

impl PatternItem {
    pub(crate) fn tag(&self) -> Option<&str> {
        match self {
            PatternItem::Tag(tag) => Some(tag),
            _ => None,
        }
    }

    pub(crate) fn is_object(&self) -> bool {
        matches!(self, PatternItem::Object(_))
    }
}

/// One way to write a call.
#[derive(Debug, Clone)]
pub(crate) struct CallPattern {
    /// All items of a first call, including the start of the section.
    pub(crate) items: Arc<[PatternItem]>,
    /// The index in `items` where the call itself begins.
    pub(crate) call: usize,
    /// The name of the family.
    pub(crate) family: FormatText,
    /// Whether the pattern belongs to another family.
    pub(crate) foreign: bool,
    /// Whether a tag follows the arguments.
    pub(crate) has_closing_tag: bool,
}

impl CallPattern {
    /// The index of the first item that is not a tag.
    pub(crate) fn first_value(&self) -> Option<usize> {
        self.items.iter().position(|item| item.tag().is_none())
    }

    pub(crate) fn has_object(&self) -> bool {
        self.items.iter().any(PatternItem::is_object)
    }
}

/// A tag that may begin a call.
#[derive(Debug)]
pub(crate) struct OpeningTag {
    pub(crate) tag: String,
    /// The patterns that begin with the tag, each with the index of the item after it.
    pub(crate) starts: Vec<(usize, usize)>,
}

/// All patterns of a format.
#[derive(Debug, Default)]
pub(crate) struct CallPatterns {
    pub(crate) list: Vec<CallPattern>,
    pub(crate) opening_tags: Vec<OpeningTag>,
    /// Tags after the arguments, between calls, or after the last call.
    pub(crate) closing_tags: Vec<String>,
    /// The tags that may follow the last parameter in the format's own calls.
    pub(crate) own_followers: Followers,
    /// Whether a tag follows the arguments in the format's own calls. Its absence is reported.
    pub(crate) has_closing_tag: bool,
    /// Whether the format's calls begin with a brace or bracket instead of a tag. They then count
    /// only if they name given tools.
    pub(crate) untagged: bool,
    /// Whether the format's calls begin with the name of the function.
    pub(crate) begins_with_name: bool,
    /// Whether a call's id is a separate item. Its absence is reported.
    pub(crate) has_ids: bool,
    /// For calls that are messages: the index of the first item after the message's header.
    pub(crate) message_body: usize,
}

impl CallPatterns {
    /// The patterns of a format. They include the patterns of other families that begin with one of
    /// its tags.
    pub(crate) fn new(format: &Format) -> CallPatterns {
        match &format.calls {
            Some(own) => {
                let header_end = format.channels.as_ref().map(|channels| &*channels.body);
                CallPatterns::of_calls(own, &format.family, header_end)
            }
            None => CallPatterns::default(),
        }
    }

    /// Like [`new`](Self::new), for the calls of a family in the table.
    pub(crate) fn of_family(index: usize) -> CallPatterns {
        let (family, calls) = &families::calls()[index];
        CallPatterns::of_calls(calls, family, None)
    }

    fn of_calls(own: &CallSyntax, family: &FormatText, header_end: Option<&str>) -> CallPatterns {
        let mut patterns = CallPatterns::default();
        patterns.add(own, family, false, header_end);
        patterns.own_followers = patterns.followers();
        patterns.has_ids =
            patterns.list.iter().flat_map(|pattern| &*pattern.items).any(|item| {
                matches!(item, PatternItem::Id(IdForm::Free | IdForm::Alphanumeric(_)))
            });
        patterns.untagged = patterns.opening_tags.is_empty() && header_end.is_none();
        patterns.begins_with_name = patterns.untagged
            && patterns.list.iter().any(|own| own.items.first() == Some(&PatternItem::Name));
        for (_, other) in family_patterns() {
            patterns.add_family(other);
        }
        if !patterns.list.iter().any(CallPattern::has_object) {
            patterns.add_anywhere(object_items(), "json");
        }
        let is_python =
            |item: &PatternItem| matches!(item, PatternItem::Arguments(Encoding::Python(_)));
        if !patterns.list.iter().any(|pattern| pattern.items.iter().any(is_python)) {
            patterns.add_anywhere(python_items(), "python");
        }
        patterns.closing_tags.sort_by_key(|closing| std::cmp::Reverse(closing.len()));
        patterns.closing_tags.dedup();
        patterns
    }

    fn add(
        &mut self,
        calls: &CallSyntax,
        family: &FormatText,
        foreign: bool,
        header_end: Option<&str>,
    ) {
        let mut items: Vec<PatternItem> = tags(&calls.open).collect();
        let call = items.len();
        items.extend(call_items(calls));
        let pattern = self.list.len();
        let value = items.iter().position(|item| item.tag().is_none()).unwrap_or(items.len());
        let closing = pieces(&calls.close);
        for (at, item) in items[..value].iter().enumerate() {
            // A word that also closes the section does not open a call by itself: `tools<|sep|>`.
            if let PatternItem::Tag(tag) = item
                && (at == 0 || is_marker(tag) && !closing.contains(tag))
            {
                self.add_opening(tag, pattern, at + 1);
            }
        }
        let end = items.iter().rposition(|item| item.tag().is_none());
        let end = end.map_or(items.len(), |at| at + 1);
        let tags_after = || items[end..].iter().filter_map(PatternItem::tag);
        let has_closing_tag = tags_after().any(is_marker);
        self.has_closing_tag |= has_closing_tag && !foreign;
        let of_call =
            tags_after().filter(|tag| is_marker(tag) || *tag == ")" || tag.starts_with(FENCE));
        self.closing_tags.extend(of_call.map(str::to_owned));
        let of_section = closing.into_iter().chain(pieces(&calls.separator));
        self.closing_tags.extend(of_section.filter(|piece| {
            (is_marker(piece) || is_fence(piece))
                && !self.opening_tags.iter().any(|opening| opening.tag == *piece)
        }));
        if let Some(header_end) = header_end {
            let body = |item: &PatternItem| item.tag().is_some_and(|tag| tag.ends_with(header_end));
            let end = items
                .iter()
                .position(body)
                .or_else(|| items.iter().position(|item| *item == PatternItem::Name));
            self.message_body = end.map_or(value, |at| at + 1);
            // Headers distinguish calls from text, so no tag opens a call.
            self.opening_tags.clear();
        }
        let family = family.clone();
        self.list.push(CallPattern { items: items.into(), call, family, foreign, has_closing_tag });
    }

    /// Adds another family's pattern, if it begins with one of the tags.
    fn add_family(&mut self, other: &CallPatterns) {
        let pattern = self.list.len();
        let Some(theirs) = other.list.last() else { return };
        let shared =
            |opening: &&OpeningTag| self.opening_tags.iter().any(|own| own.tag == opening.tag);
        let openings: Vec<&OpeningTag> = other.opening_tags.iter().filter(shared).collect();
        if openings.is_empty() {
            return;
        }
        self.closing_tags.extend(other.closing_tags.iter().cloned());
        if self.list.iter().any(|ours| ours.items == theirs.items) {
            return;
        }
        for opening in openings {
            for (_, at) in &opening.starts {
                self.add_opening(&opening.tag, pattern, *at);
            }
        }
        self.list.push(theirs.clone());
    }

    /// Accepts calls with these items after any opening tag.
    fn add_anywhere(&mut self, items: Arc<[PatternItem]>, family: &'static str) {
        let pattern = self.list.len();
        for opening in &mut self.opening_tags {
            opening.starts.push((pattern, 0));
        }
        let (family, has_closing_tag) = (family.into(), self.has_closing_tag);
        self.list.push(CallPattern { items, call: 0, family, foreign: true, has_closing_tag });
    }

    fn add_opening(&mut self, tag: &str, pattern: usize, at: usize) {
        match self.opening_tags.iter_mut().find(|opening| opening.tag == tag) {
            Some(opening) => opening.starts.push((pattern, at)),
            None => self
                .opening_tags
                .push(OpeningTag { tag: tag.to_owned(), starts: vec![(pattern, at)] }),
        }
    }

    /// The tags that may follow the last parameter of a call of any pattern.
    pub(crate) fn followers(&self) -> Followers {
        let openings = self.opening_tags.iter().map(|opening| &opening.tag);
        let closings = self.closing_tags.iter();
        Followers {
            closing: closings.filter(|tag| is_marker(tag)).cloned().collect(),
            opening: openings.filter(|tag| is_marker(tag)).cloned().collect(),
        }
    }
}

/// A call that is an object with the usual keys.
pub(crate) fn object_items() -> Arc<[PatternItem]> {
    [PatternItem::Object(Arc::default())].into()
}

/// A call in Python's notation.
pub(crate) fn python_items() -> Arc<[PatternItem]> {
    let tag = |tag: &str| PatternItem::Tag(tag.to_owned());
    [PatternItem::Name, tag("("), PatternItem::Arguments(Encoding::python()), tag(")")].into()
}

/// The pattern of every family, computed once.
fn family_patterns() -> &'static [(FormatText, CallPatterns)] {
    static PATTERNS: Lazy<Vec<(FormatText, CallPatterns)>> = Lazy::new(|| {
        let pattern = |(family, calls): &(FormatText, CallSyntax)| {
            let mut patterns = CallPatterns::default();
            patterns.add(calls, family, true, None);
            (family.clone(), patterns)
        };
        families::calls().iter().map(pattern).collect()
    });
    &PATTERNS
}

/// A tag that may begin a call of some family.
pub(crate) struct ForeignOpening {
    pub(crate) tag: String,
    /// The index in [`families::calls`] of a family whose calls begin with it.
    pub(crate) family: usize,
}

/// The tags that may begin a call of a family, each listed once.
pub(crate) fn foreign_openings() -> &'static [ForeignOpening] {
    static OPENINGS: Lazy<Vec<ForeignOpening>> = Lazy::new(|| {
        let mut openings: Vec<ForeignOpening> = Vec::new();
        // A family whose calls begin with the tag takes precedence over one in whose sections it is
        // the second tag.
        for first in [true, false] {
            for (family, (_, patterns)) in family_patterns().iter().enumerate() {
                let (head, rest) =
                    patterns.opening_tags.split_at(patterns.opening_tags.len().min(1));
                for opening in if first { head } else { rest } {
                    // A word in the middle of a section, or a part of another tag.
                    let inner = !first && !opening.tag.starts_with('<');
                    if !inner && !openings.iter().any(|known| known.tag == opening.tag) {
                        openings.push(ForeignOpening { tag: opening.tag.clone(), family });
                    }
                }
            }
        }
        openings
    });
    &OPENINGS
}

fn call_items(calls: &CallSyntax) -> Vec<PatternItem> {
    let keys = CallKeys::of(&calls.call).map(Arc::new);
    let mut items: Vec<PatternItem> = Vec::new();
    let mut in_object = false;
    for part in &calls.call {
        match part {
            CallPart::Text(text) if in_object => {
                items.extend(tags(text.rsplit_once('}').map_or("", |(_, after)| after)));
            }
            CallPart::Text(text) => {
                let object = keys.as_ref().and_then(|keys| Some((object_at(text)?, keys)));
                items.extend(tags(object.map_or(&**text, |(at, _)| &text[..at])));
                items.extend(object.map(|(_, keys)| PatternItem::Object(Arc::clone(keys))));
                in_object = object.is_some();
            }
            _ if in_object => {}
            CallPart::Name => items.push(PatternItem::Name),
            CallPart::Id(form) => items.push(PatternItem::Id(form.clone())),
            CallPart::Arguments(encoding) => items.push(PatternItem::Arguments(encoding.clone())),
        }
    }
    items
}

/// The tags in a text of the format, without the brackets of lists.
fn tags(text: &str) -> impl Iterator<Item = PatternItem> {
    pieces(text).into_iter().filter(|piece| !is_bracket(piece)).map(PatternItem::Tag)
}

/// Splits a text of the format at whitespace and after tags.
fn pieces(text: &str) -> Vec<String> {
    text.split_whitespace().flat_map(split_tags).map(str::to_owned).collect()
}

fn split_tags(word: &str) -> Vec<&str> {
    let mut tags = Vec::new();
    let mut rest = word;
    // A bracket that closes a list before a tag. It may also be part of a tag.
    if (word.starts_with("]<") && !word.contains('['))
        || word.strip_prefix(']').is_some_and(is_fence)
    {
        (tags, rest) = (vec!["]"], &word[1..]);
    }
    while let Some(end) = end_of_tag(rest) {
        tags.push(&rest[..end]);
        rest = &rest[end..];
    }
    if !rest.is_empty() {
        tags.push(rest);
    }
    tags
}

/// The position after the last `>`, or after the closing brackets of `[TAG]`. In a tag that begins
/// with a closing bracket, a tag follows the opening one: `]<]x[>[<a>`.
fn end_of_tag(text: &str) -> Option<usize> {
    let last = |c: char, least: usize| {
        let is_last = |at: &usize| {
            let rest = &text[at + 1..];
            let is_prefix = text.starts_with(']') && rest.starts_with('[');
            *at >= least && !rest.starts_with(c) && !is_prefix && !names_next_tag(rest)
        };
        text.match_indices(c).map(|(at, _)| at).find(is_last)
    };
    let square = if text.starts_with('[') { last(']', 2) } else { None };
    last('>', 1).into_iter().chain(square).min().map(|at| at + 1)
}

/// Whether the word before the next tag belongs to the tag before it: `<|open|>tools<|sep|>`.
fn names_next_tag(rest: &str) -> bool {
    let word = rest.find(|c: char| !c.is_alphanumeric()).unwrap_or(rest.len());
    word > 0 && rest[word..].starts_with('<') && rest[word..].ends_with('>')
}

/// Whether a piece is unlikely to occur in prose.
fn is_marker(piece: &str) -> bool {
    piece.len() > 2
        && piece.contains(['<', '>', '[', ']'])
        && piece.contains(|c: char| c.is_alphanumeric())
}

fn is_fence(piece: &str) -> bool {
    piece == FENCE
}

fn is_bracket(piece: &str) -> bool {
    matches!(piece, "[" | "]" | "," | ";")
}
