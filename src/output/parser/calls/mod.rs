//! What calls are read with: the patterns, markers and tools, and the readers of one call.
//!
//! Models fall back to forms of calls that they saw in training, whatever their template shows.
//! While a call of another family is read, its form is in use; outside of it, the model's own.

mod call_arguments;
pub(super) mod call_object;
pub(super) mod call_patterns;
pub(super) mod call_reader;
pub(super) mod envelope;
pub(super) mod marker_set;
mod missing_arguments;
pub(super) mod request_tools;

use std::sync::Arc;

use crate::output::format::{Format, FormatText};
use crate::output::read::Followers;
use call_patterns::{CallPattern, CallPatterns, PatternItem, foreign_openings};
use call_reader::CallReader;
use marker_set::MarkerSet;
use request_tools::RequestTools;

/// The code of the diagnostic about calls without tags that stayed text.
pub(super) const CALL_LIKE: &str = "call_like_content";
/// The code of the diagnostic about tags of a call without a call between them.
pub(super) const MALFORMED: &str = "malformed_call";

/// What the calls of a format or a family are read with.
#[derive(Debug, Clone)]
pub(super) struct CallForm {
    pub(super) patterns: Arc<CallPatterns>,
    /// The tags that may follow the last parameter of a call, and of the form's own calls.
    pub(super) followers: Arc<Followers>,
    pub(super) own_followers: Arc<Followers>,
    /// The ends of turns.
    pub(super) ends: Arc<[FormatText]>,
    pub(super) markers: Arc<MarkerSet>,
}

impl Default for CallForm {
    /// For replies without a format.
    fn default() -> CallForm {
        let markers = Arc::new(MarkerSet::foreign());
        let (followers, own_followers) = (Arc::default(), Arc::default());
        let ends = Arc::new([]);
        CallForm { patterns: Arc::default(), followers, own_followers, ends, markers }
    }
}

impl CallForm {
    /// The form of a format, for replies whose reasoning is separated.
    pub(super) fn new(format: &Format) -> CallForm {
        let patterns = CallPatterns::new(format);
        let markers = MarkerSet::new(format, &patterns, true);
        CallForm::from_patterns(patterns, format.ends.clone().into(), markers)
    }

    fn from_patterns(
        patterns: CallPatterns,
        ends: Arc<[FormatText]>,
        markers: MarkerSet,
    ) -> CallForm {
        CallForm {
            followers: patterns.followers().into(),
            own_followers: patterns.own_followers.clone().into(),
            ends,
            markers: Arc::new(markers),
            patterns: Arc::new(patterns),
        }
    }
}

/// A call of another family that is being read.
#[derive(Debug)]
struct ForeignCall {
    /// The index of its opening tag in [`foreign_openings`].
    opening: usize,
    /// Whether the opening tag is a special token of the vocabulary. If so, the call counts even if
    /// its tool is unknown.
    special: bool,
    /// For a call between the model's own tags: the number of calls before it.
    inner: Option<usize>,
    /// The model's own form.
    own: CallForm,
}

/// The form of calls in use, and the model's own.
#[derive(Debug)]
pub(super) struct CallForms {
    pub(super) current: CallForm,
    foreign: Option<Box<ForeignCall>>,
    /// The forms of other families that occurred, by the index of the opening tag.
    known: Vec<(usize, CallForm)>,
}

impl CallForms {
    pub(super) fn new(own: CallForm) -> CallForms {
        CallForms { current: own, foreign: None, known: Vec::new() }
    }

    /// Whether a call of another family is being read.
    pub(super) fn is_foreign(&self) -> bool {
        self.foreign.is_some()
    }

    /// Whether it begins with a special token.
    pub(super) fn is_special(&self) -> bool {
        self.foreign.as_ref().is_some_and(|foreign| foreign.special)
    }

    /// Whether the opening tag that is being read may be a mere mention: it belongs to another
    /// family and is not a special token.
    pub(super) fn is_spelled(&self) -> bool {
        self.foreign.as_ref().is_some_and(|foreign| !foreign.special)
    }

    /// Takes the form of the family whose calls begin with this tag into use. For a call between
    /// the model's own tags, `inner` is the number of calls before it.
    pub(super) fn enter(&mut self, opening: usize, special: bool, inner: Option<usize>) {
        let form = match self.known.iter().find(|(known, _)| *known == opening) {
            Some((_, form)) => form.clone(),
            None => {
                let patterns = CallPatterns::of_family(foreign_openings()[opening].family);
                let markers = self.current.markers.with_calls_of(&patterns);
                let ends = Arc::clone(&self.current.ends);
                let form = CallForm::from_patterns(patterns, ends, markers);
                self.known.push((opening, form.clone()));
                form
            }
        };
        let own = std::mem::replace(&mut self.current, form);
        self.foreign = Some(Box::new(ForeignCall { opening, special, inner, own }));
    }

    /// Returns to the model's own form. The result says whether a call was read between the model's
    /// own tags; `calls` is the number of calls so far.
    pub(super) fn leave(&mut self, calls: usize) -> bool {
        let Some(foreign) = self.foreign.take() else { return false };
        self.current = foreign.own;
        foreign.inner.is_some_and(|before| before < calls)
    }

    /// The opening tag of the other family's call, and whether it also ends turns.
    pub(super) fn foreign_tag(&self) -> Option<(&'static str, bool)> {
        let foreign = self.foreign.as_ref()?;
        let tag = &*foreign_openings()[foreign.opening].tag;
        Some((tag, foreign.own.markers.is_shadowed_end(tag)))
    }

    /// A reader of this pattern, from this item on.
    pub(super) fn reader(&self, index: usize, at: usize) -> CallReader {
        let pattern = &self.current.patterns.list[index];
        let form = &self.current;
        let followers = if pattern.foreign { &form.followers } else { &form.own_followers };
        let mut reader = CallReader::new(&pattern.items, at, followers, &form.ends);
        reader.foreign = pattern.foreign || self.is_foreign();
        reader.has_closing_tag = pattern.has_closing_tag;
        reader.pattern = Some(index);
        reader
    }

    /// A reader of a call with these items, which need not be those of a pattern.
    pub(super) fn reader_of(&self, items: &Arc<[PatternItem]>) -> CallReader {
        CallReader::new(items, 0, &self.current.followers, &self.current.ends)
    }

    pub(super) fn readers_after_tag(&self, opening: usize) -> Vec<CallReader> {
        let starts = self.current.patterns.opening_tags[opening].starts.iter();
        starts.map(|(pattern, at)| self.reader(*pattern, *at)).collect()
    }

    /// Readers of the format's own calls without their opening tag. The text after the tag must begin
    /// with this letter, as `call:` or the name of a tool does.
    pub(super) fn readers_without_tag(&self, c: char, tools: &RequestTools) -> Vec<CallReader> {
        let patterns = &self.current.patterns;
        let begins = |(pattern, at): &&(usize, usize)| {
            let CallPattern { items, foreign, .. } = &patterns.list[*pattern];
            !foreign
                && match items.get(*at) {
                    Some(PatternItem::Tag(tag)) => c.is_alphabetic() && tag.starts_with(c),
                    Some(PatternItem::Name) => tools.is_begun(c.encode_utf8(&mut [0; 4])),
                    _ => false,
                }
        };
        let starts = patterns.opening_tags.iter().flat_map(|opening| &opening.starts);
        starts.filter(begins).map(|(pattern, at)| self.reader(*pattern, *at)).collect()
    }

    /// Readers for a call without an opening tag that begins with this character. `last` is the
    /// pattern of the previous call, `first` says whether nothing precedes the call.
    pub(super) fn readers_of_next_call(
        &self,
        c: char,
        last: Option<usize>,
        first: bool,
    ) -> Vec<CallReader> {
        let patterns = &self.current.patterns;
        let own = patterns.list.iter().any(|pattern| !pattern.foreign && pattern.has_object());
        let first = patterns.untagged && last.is_none() && first && c == '[';
        let mut readers = Vec::new();
        for (index, pattern) in patterns.list.iter().enumerate() {
            // Another family's pattern may repeat. If the format has no objects, any call may be
            // followed by a call that is a single object.
            let of_any = pattern.has_object() && !own && pattern.items.len() == 1;
            let is_list = first && pattern.items.first() == Some(&PatternItem::Name);
            if pattern.foreign && last != Some(index) && !of_any && !is_list {
                continue;
            }
            let value = pattern.first_value().unwrap_or_default();
            match (&pattern.items[value], &pattern.items[pattern.call]) {
                (PatternItem::Object(_), _) if matches!(c, '{' | '[') => {
                    readers.push(self.reader(index, value))
                }
                (_, PatternItem::Name) if c.is_alphabetic() || matches!(c, '_' | '[') => {
                    readers.push(self.reader(index, pattern.call))
                }
                _ => {}
            }
            // A call may follow in the same block, from any tag of the call on.
            let tags = pattern.items.iter().enumerate().take(value).skip(1);
            let starts_here = |item: &PatternItem| item.tag().is_some_and(|tag| tag.starts_with(c));
            if last == Some(index) {
                let starts = tags.filter(|(_, item)| starts_here(item));
                readers.extend(starts.map(|(at, _)| self.reader(index, at)));
            }
        }
        readers
    }

    /// The items of a call that is one object, with the format's own keys if it has such calls.
    pub(super) fn object_items(&self) -> Arc<[PatternItem]> {
        let mut own = self.current.patterns.list.iter().filter(|pattern| !pattern.foreign);
        let object = own.find_map(|pattern| pattern.items.iter().find(|item| item.is_object()));
        object.map_or_else(call_patterns::object_items, |object| [object.clone()].into())
    }

    /// A reader of the first pattern with an object.
    pub(super) fn object_reader(&self) -> Option<CallReader> {
        let object = |pattern: &CallPattern| pattern.items.iter().position(PatternItem::is_object);
        let mut patterns = self.current.patterns.list.iter().enumerate();
        let (pattern, at) =
            patterns.find_map(|(index, pattern)| Some((index, object(pattern)?)))?;
        Some(self.reader(pattern, at))
    }
}
