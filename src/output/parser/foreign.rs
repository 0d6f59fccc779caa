//! Calls in the form of a family other than the model's own. Models fall back to forms that they
//! saw in training, whatever their template shows.
//!
//! Such a call counts if its opening tag is a special token of the vocabulary, or if it names a
//! given tool. A tag that is only spelled in text does not count in code or inside JSON. While the
//! call is read, the parser works with the patterns and markers of the family; outside of it, with
//! its own.

use std::sync::Arc;

use super::call_patterns::{CallPatterns, family_patterns};
use super::marker_set::{Marker, MarkerSet};
use super::{ParserState, ReplyParser};
use crate::output::format::FormatText;
use crate::process::Lazy;

/// A tag that may begin a call of some family.
pub(super) struct ForeignOpening {
    pub(super) tag: String,
    /// The index in [`family_patterns`] of a family whose calls begin with it.
    family: usize,
}

/// The tags that may begin a call of a family, each listed once.
pub(super) fn openings() -> &'static [ForeignOpening] {
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

/// What a parser needs to read the calls of another family.
#[derive(Debug, Clone)]
pub(super) struct ForeignForm {
    /// The index of the opening tag in [`openings`].
    opening: usize,
    patterns: Arc<CallPatterns>,
    followers: Arc<[FormatText]>,
    markers: Arc<MarkerSet>,
}

/// A call of another family that is being read, and the parser's own patterns meanwhile.
#[derive(Debug)]
pub(super) struct ForeignCall {
    own: ForeignForm,
    /// Whether the opening tag is a special token of the vocabulary. If so, the call counts even if
    /// its tool is unknown.
    pub(super) special: bool,
    /// For a call between the model's own tags: the number of calls before it.
    inner: Option<usize>,
}

impl ReplyParser {
    /// Treats calls in the forms of other families as text, so that a render can confirm only this
    /// format.
    pub(crate) fn read_own_calls_only(&mut self) {
        self.own_calls_only = true;
    }

    /// Sets the special tokens of the vocabulary that may begin a call. A call that begins with one
    /// of them counts in the form of any family, and for any tool.
    pub fn set_special_openings(&mut self, tokens: Arc<[String]>) {
        self.special_openings = tokens;
    }

    /// Starts a call at an opening tag of another family, or treats the tag as text.
    pub(super) fn open_foreign(&mut self, opening: usize, tag: &str) {
        let special = self.is_special(tag);
        let in_json = self.json && !self.parsed.content.is_empty();
        let is_text = !special && (self.code.is_open() || in_json);
        if !self.calls_allowed || self.own_calls_only || is_text {
            return match self.markers.is_shadowed_end(tag) {
                true => self.on_marker(Marker::End, tag),
                false => self.push_text(tag),
            };
        }
        let held = std::mem::take(&mut self.whitespace);
        self.open_form(opening, &held, tag, None);
    }

    /// Starts a call of another family after the model's own opening tag, which is held.
    pub(super) fn open_inner_foreign(&mut self, opening: usize, held: &str, tag: &str) {
        self.open_form(opening, held, tag, Some(self.parsed.tool_calls.len()));
    }

    fn open_form(&mut self, opening: usize, held: &str, tag: &str, inner: Option<usize>) {
        let special = self.is_special(tag);
        let form = self.foreign_form(opening);
        let own = ForeignForm {
            opening,
            patterns: std::mem::replace(&mut self.patterns, form.patterns),
            followers: std::mem::replace(&mut self.followers, form.followers),
            markers: std::mem::replace(&mut self.markers, form.markers),
        };
        self.foreign = Some(Box::new(ForeignCall { own, special, inner }));
        let index = self.patterns.opening_tags.iter().position(|opening| opening.tag == tag);
        self.open_call_after(held, index.unwrap_or_default(), tag);
    }

    /// The text after the opening tag, if the tag also ends turns. The tag is then removed as the
    /// end of a turn.
    pub(super) fn drop_shown_end(&mut self, held: &str) -> Option<String> {
        let own = &self.foreign.as_ref()?.own;
        let tag = &openings()[own.opening].tag;
        let (before, rest) =
            held.split_once(&**tag).filter(|_| own.markers.is_shadowed_end(tag))?;
        self.push_text(before);
        self.on_marker(Marker::End, tag);
        Some(rest.to_owned())
    }

    fn is_special(&self, tag: &str) -> bool {
        self.special_openings.iter().any(|token| tag.starts_with(&**token))
    }

    fn foreign_form(&mut self, opening: usize) -> ForeignForm {
        if let Some(known) = self.foreign_forms.iter().find(|form| form.opening == opening) {
            return known.clone();
        }
        let patterns = CallPatterns::of_family(openings()[opening].family);
        let form = ForeignForm {
            opening,
            followers: patterns.followers().into(),
            markers: Arc::new(self.markers.with_calls_of(&patterns)),
            patterns: Arc::new(patterns),
        };
        self.foreign_forms.push(form.clone());
        form
    }

    /// Returns to the model's own format once the call of another family is over.
    pub(super) fn leave_foreign(&mut self) {
        let in_call = matches!(
            self.state,
            ParserState::Candidate(_) | ParserState::Committed(_) | ParserState::AfterCall(_)
        );
        if in_call {
            return;
        }
        if let Some(foreign) = self.foreign.take() {
            self.pending_close |=
                foreign.inner.is_some_and(|before| before < self.parsed.tool_calls.len());
            let ForeignForm { patterns, followers, markers, .. } = foreign.own;
            (self.patterns, self.followers, self.markers) = (patterns, followers, markers);
        }
    }

    /// Whether the opening tag that is being read may be a mere mention: it belongs to another
    /// family and is not a special token.
    pub(super) fn is_spelled(&self) -> bool {
        self.foreign.as_ref().is_some_and(|foreign| !foreign.special)
    }

    /// Reports a call in the form of another family.
    pub(super) fn note_foreign(&mut self, pattern: Option<usize>) {
        let (Some(foreign), Some(pattern)) = (&self.foreign, pattern) else { return };
        let tag = &openings()[foreign.own.opening].tag;
        if foreign.own.markers.is_shadowed_end(tag) {
            return self.note("eog_text_removed", &format!("`{tag}` ends a turn and was removed"));
        }
        let family = &self.patterns.list[pattern].family;
        let message = format!(
            "the call begins with `{tag}`, in the form of the family `{family}`, which is not the \
             model's own"
        );
        self.note("call_in_foreign_format", &message);
    }
}

/// Finds code in the content: fenced blocks, and text between backticks.
#[derive(Debug, Default)]
pub(super) struct CodeScanner {
    /// The number of consecutive backticks read last.
    backticks: usize,
    /// Whether they began a line.
    at_line_start: bool,
    fenced: bool,
}

impl CodeScanner {
    /// Reads a character of the text.
    pub(super) fn step(&mut self, c: char, line_start: bool) {
        if c != '`' {
            self.backticks = 0;
            return;
        }
        if self.backticks == 0 {
            self.at_line_start = line_start;
        }
        self.backticks += 1;
        if self.backticks == 3 && self.at_line_start {
            self.fenced = !self.fenced;
        }
    }

    pub(super) fn follows_backtick(&self) -> bool {
        self.backticks > 0
    }

    /// Whether the next character is part of code.
    fn is_open(&self) -> bool {
        self.fenced || self.backticks > 0
    }
}
