//! A format, taken apart for reading: the tags to look out for, and what a call is made of behind
//! each of them.

use std::sync::{Arc, OnceLock};

use crate::output::families;
use crate::output::format::{CallPart, CallSyntax, Encoding, Format, FormatText, IdForm};
use crate::output::parser::call_object::{CallKeys, object_at};

/// A piece of a call, as it is read.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum PatternItem {
    /// Text without blanks in it; blanks on both sides are free.
    Tag(String),
    /// The function's name.
    Name,
    /// The call's id.
    Id(IdForm),
    /// The arguments.
    Arguments(Encoding),
    /// A JSON object with name and arguments in it.
    Object(Arc<CallKeys>),
}

/// One way to write a call.
#[derive(Debug, Clone)]
pub(super) struct CallPattern {
    /// All of a first call, the beginning of the section included.
    pub(super) items: Arc<[PatternItem]>,
    /// Where the call itself begins in `items`.
    pub(super) call: usize,
    /// Whether it is the model's own way, or one that is taken besides.
    pub(super) foreign: bool,
    /// Whether a tag stands behind the arguments.
    pub(super) closes: bool,
}

/// A tag that may begin a call, and where a reader of each shape goes on behind it.
#[derive(Debug)]
pub(super) struct OpeningTag {
    pub(super) tag: String,
    pub(super) starts: Vec<(usize, usize)>,
}

/// What there is to look out for.
#[derive(Debug, Default)]
pub(super) struct CallPatterns {
    pub(super) list: Vec<CallPattern>,
    pub(super) opening_tags: Vec<OpeningTag>,
    /// Tags that stand behind the arguments, between calls, or behind the last one.
    pub(super) closing_tags: Vec<String>,
    /// Whether a call has a tag behind its arguments: one without it is worth a word.
    pub(super) closes: bool,
    /// Calls begin with no tag: at a brace or a bracket, and only with the names of given tools.
    pub(super) bare: bool,
    /// Calls name their ids before their arguments.
    pub(super) ids: bool,
    /// The items of a call behind the header of a message, where calls are messages.
    pub(super) body: usize,
}

impl CallPatterns {
    /// The ways of other models are taken too where a tag of theirs begins like one of this format.
    pub(super) fn new(format: &Format) -> CallPatterns {
        let mut patterns = CallPatterns::default();
        let Some(own) = &format.calls else { return patterns };
        let header_end = format.channels.as_ref().map(|channels| &*channels.body);
        patterns.add(own, false, header_end);
        patterns.ids =
            patterns.list.iter().flat_map(|shape| &*shape.items).any(|item| {
                matches!(item, PatternItem::Id(IdForm::Free | IdForm::Alphanumeric(_)))
            });
        patterns.bare = patterns.opening_tags.is_empty() && format.channels.is_none();
        let own: Vec<String> =
            patterns.opening_tags.iter().map(|opener| opener.tag.clone()).collect();
        for (family, other) in family_patterns() {
            // Where calls have no tag, nobody's tag can be mistaken for one.
            let besides = format.accepted_families.iter().any(|(also, _)| also == family)
                || (patterns.bare && !other.opening_tags.is_empty());
            patterns.add_family(other, &own, besides);
        }
        if !patterns
            .list
            .iter()
            .any(|shape| shape.items.iter().any(|item| matches!(item, PatternItem::Object(_))))
        {
            patterns.add_object();
        }
        patterns.closing_tags.sort_by_key(|closer| std::cmp::Reverse(closer.len()));
        patterns.closing_tags.dedup();
        patterns
    }

    fn add(&mut self, calls: &CallSyntax, foreign: bool, header_end: Option<&str>) {
        let mut items = Vec::new();
        let section = pieces(&calls.open);
        items.extend(
            section.iter().filter(|piece| !is_bracket(piece)).cloned().map(PatternItem::Tag),
        );
        let call = items.len();
        items.extend(call_items(calls));
        let shape = self.list.len();
        let value = items
            .iter()
            .position(|item| !matches!(item, PatternItem::Tag(_)))
            .unwrap_or(items.len());
        let closing = pieces(&calls.close);
        for (at, item) in items[..value].iter().enumerate() {
            // A word that closes the section as well opens nothing by itself: `tools<|sep|>`.
            if let PatternItem::Tag(tag) = item
                && (at == 0 || is_marker(tag) && !closing.contains(tag))
            {
                self.open(tag, shape, at + 1);
            }
        }
        let behind = items
            .iter()
            .rposition(|item| !matches!(item, PatternItem::Tag(_)))
            .map_or(items.len(), |at| at + 1);
        let closes = items[behind..]
            .iter()
            .any(|item| matches!(item, PatternItem::Tag(tag) if is_marker(tag)));
        self.closes |= closes && !foreign;
        let after = items[behind..].iter().filter_map(|item| match item {
            PatternItem::Tag(tag) => Some(tag.clone()),
            _ => None,
        });
        self.closing_tags
            .extend(after.filter(|tag| is_marker(tag) || tag == ")" || tag.starts_with("```")));
        let section = pieces(&calls.close).into_iter().chain(pieces(&calls.separator));
        self.closing_tags.extend(section.filter(|piece| {
            (is_marker(piece) || is_fence(piece))
                && !self.opening_tags.iter().any(|o| o.tag == *piece)
        }));
        if let Some(header_end) = header_end {
            let body = |item: &PatternItem| matches!(item, PatternItem::Tag(tag) if tag.ends_with(header_end));
            let end = items
                .iter()
                .position(body)
                .or_else(|| items.iter().position(|item| *item == PatternItem::Name));
            self.body = end.map_or(value, |at| at + 1);
            // The header tells calls from text.
            self.opening_tags.clear();
        }
        self.list.push(CallPattern { items: items.into(), call, foreign, closes });
    }

    /// Another family's calls, if they begin with a tag of this format, or are taken besides.
    fn add_family(&mut self, other: &CallPatterns, own: &[String], besides: bool) {
        if !besides && !other.opening_tags.iter().any(|theirs| own.contains(&theirs.tag)) {
            return;
        }
        let shape = self.list.len();
        let Some(theirs) = other.list.last() else { return };
        if self.list.iter().any(|ours| ours.items == theirs.items) {
            return;
        }
        for opener in &other.opening_tags {
            for (_, at) in &opener.starts {
                self.open(&opener.tag, shape, *at);
            }
        }
        self.closing_tags.extend(other.closing_tags.iter().cloned());
        self.list.push(theirs.clone());
    }

    /// Behind any tag a JSON object with a name in it is a call.
    fn add_object(&mut self) {
        let shape = self.list.len();
        for opener in &mut self.opening_tags {
            opener.starts.push((shape, 0));
        }
        self.list.push(CallPattern {
            items: [PatternItem::Object(Arc::new(CallKeys::default()))].into(),
            call: 0,
            foreign: true,
            closes: self.closes,
        });
    }

    fn open(&mut self, tag: &str, shape: usize, at: usize) {
        match self.opening_tags.iter_mut().find(|opener| opener.tag == tag) {
            Some(opener) => opener.starts.push((shape, at)),
            None => self
                .opening_tags
                .push(OpeningTag { tag: tag.to_owned(), starts: vec![(shape, at)] }),
        }
    }

    /// Tags that may follow the last parameter of a call.
    pub(super) fn followers(&self) -> Vec<FormatText> {
        let opening_tags = self.opening_tags.iter().map(|opener| &opener.tag);
        self.closing_tags
            .iter()
            .chain(opening_tags)
            .filter(|tag| is_marker(tag))
            .cloned()
            .map(FormatText::from)
            .collect()
    }
}

/// How every family writes calls, taken apart once.
fn family_patterns() -> &'static [(FormatText, CallPatterns)] {
    static PATTERNS: OnceLock<Vec<(FormatText, CallPatterns)>> = OnceLock::new();
    PATTERNS.get_or_init(|| {
        let patterns = |(family, calls): &(FormatText, CallSyntax)| {
            let mut patterns = CallPatterns::default();
            patterns.add(calls, true, None);
            (family.clone(), patterns)
        };
        families::calls().iter().map(patterns).collect()
    })
}

/// The items of one call.
fn call_items(calls: &CallSyntax) -> Vec<PatternItem> {
    let keys = CallKeys::of(&calls.call).map(Arc::new);
    let mut items: Vec<PatternItem> = Vec::new();
    let mut in_object = false;
    for part in &calls.call {
        match part {
            CallPart::Text(text) => {
                let (before, rest) = match (&keys, in_object) {
                    (Some(_), false) => match object_at(text) {
                        Some(at) => (&text[..at], ""),
                        None => (&**text, ""),
                    },
                    (Some(_), true) => ("", text.rsplit_once('}').map_or("", |(_, after)| after)),
                    (None, _) => (&**text, ""),
                };
                let opens = keys.is_some() && !in_object && before.len() < text.len();
                items.extend(
                    pieces(before)
                        .into_iter()
                        .filter(|piece| !is_bracket(piece))
                        .map(PatternItem::Tag),
                );
                if opens {
                    in_object = true;
                    items.extend(keys.clone().map(PatternItem::Object));
                }
                items.extend(
                    pieces(rest)
                        .into_iter()
                        .filter(|piece| !is_bracket(piece))
                        .map(PatternItem::Tag),
                );
            }
            _ if in_object => {}
            CallPart::Name => items.push(PatternItem::Name),
            CallPart::Id(form) => items.push(PatternItem::Id(form.clone())),
            CallPart::Arguments(encoding) => items.push(PatternItem::Arguments(encoding.clone())),
        }
    }
    items
}

/// Splits the text of a format at its blanks and behind its tags.
fn pieces(text: &str) -> Vec<String> {
    text.split_whitespace().flat_map(tags_of).map(str::to_owned).collect()
}

fn tags_of(word: &str) -> Vec<&str> {
    let mut tags = Vec::new();
    let mut rest = word;
    // The bracket that closes a list before a tag. Some tags have brackets of their own.
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

/// Behind the last of `>`, or of the brackets that close `[TAG]`.
fn end_of_tag(text: &str) -> Option<usize> {
    let last = |c: char, least: usize| {
        let is_last = |at: &usize| {
            *at >= least && !text[at + 1..].starts_with(c) && !names_what_follows(&text[at + 1..])
        };
        text.match_indices(c).map(|(at, _)| at).find(is_last)
    };
    let square = if text.starts_with('[') { last(']', 2) } else { None };
    last('>', 1).into_iter().chain(square).min().map(|at| at + 1)
}

/// Whether a word up to the next tag belongs to the tag before it: `<|open|>tools<|sep|>`.
fn names_what_follows(rest: &str) -> bool {
    let word = rest.find(|c: char| !c.is_alphanumeric()).unwrap_or(rest.len());
    word > 0 && rest[word..].starts_with('<') && rest[word..].ends_with('>')
}

/// Whether a piece is something a model would not write as prose.
fn is_marker(piece: &str) -> bool {
    piece.len() > 2
        && piece.contains(['<', '>', '[', ']'])
        && piece.contains(|c: char| c.is_alphanumeric())
}

fn is_fence(piece: &str) -> bool {
    piece == "```"
}

fn is_bracket(piece: &str) -> bool {
    matches!(piece, "[" | "]" | "," | ";")
}
