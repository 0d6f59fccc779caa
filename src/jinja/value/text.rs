//! Strings that record the origin of their bytes.
//!
//! A text is a view of a shared buffer, so slicing does not copy. Bytes from the caller's data
//! carry marks. Bytes without a mark belong to the template. Marks survive every operation that
//! keeps characters.

use std::fmt;
use std::ops::{Deref, Range};
use std::rc::Rc;

use crate::jinja::budget::{Budget, Charge};
use crate::jinja::error::{Result, limit_error};

/// The accounted size of a text without its bytes: the buffer, its counters and the allocator's
/// overhead.
const OVERHEAD: usize = size_of::<Buffer>() + 48;

/// A byte range with one origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mark {
    /// The first byte.
    pub(crate) start: u32,
    /// The byte after the last one.
    pub(crate) end: u32,
    /// A number that the caller of the render maps to a request member.
    pub(crate) origin: u32,
}

#[derive(Debug)]
struct Buffer {
    text: String,
    marks: Vec<Mark>,
    ascii: bool,
    _charge: Charge,
}

/// An immutable string.
#[derive(Clone)]
pub(crate) struct Text {
    buffer: Rc<Buffer>,
    start: u32,
    end: u32,
    /// Whether it is `Markup`, which needs no escaping.
    safe: bool,
}

impl Text {
    /// A text of the caller or of the template source, not accounted. Truncated at 4 GiB.
    pub(crate) fn uncharged(text: &str, marks: Vec<Mark>) -> Text {
        let mut end = text.len().min(u32::MAX as usize);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        Text::whole(text[..end].to_owned(), marks, Charge::none())
    }

    /// Like [`uncharged`](Self::uncharged), without a copy.
    pub(crate) fn uncharged_string(text: String, marks: Vec<Mark>) -> Text {
        if text.len() > u32::MAX as usize {
            Text::uncharged(&text, marks)
        } else {
            Text::whole(text, marks, Charge::none())
        }
    }

    fn whole(text: String, marks: Vec<Mark>, charge: Charge) -> Text {
        let (ascii, end) = (text.is_ascii(), u32::try_from(text.len()).unwrap_or(u32::MAX));
        Text {
            buffer: Rc::new(Buffer { text, marks, ascii, _charge: charge }),
            start: 0,
            end,
            safe: false,
        }
    }

    /// A text without marks.
    pub(crate) fn plain(budget: &Rc<Budget>, text: impl Into<String>) -> Result<Text> {
        let text: String = text.into();
        let charge = budget.charge(text.len() + OVERHEAD)?;
        budget.step_bytes(text.len())?;
        Ok(Text::whole(text, Vec::new(), charge))
    }

    /// A text with one origin, or with none.
    pub(crate) fn with_origin(
        budget: &Rc<Budget>,
        text: &str,
        origin: Option<u32>,
    ) -> Result<Text> {
        let mut out = TextBuilder::new(budget);
        out.push_from(text, origin)?;
        out.finish()
    }

    /// A repeated character.
    pub(crate) fn fill(budget: &Rc<Budget>, c: char, times: usize) -> Result<Text> {
        let mut out = TextBuilder::new(budget);
        out.push_fill(c, times)?;
        out.finish()
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.buffer.text[self.start as usize..self.end as usize]
    }

    /// Whether it equals a string. Cheaper than comparing [`as_str`](Self::as_str), which checks
    /// character boundaries.
    pub(crate) fn eq_str(&self, other: &str) -> bool {
        (self.end - self.start) as usize == other.len()
            && self.buffer.text.as_bytes()[self.start as usize..self.end as usize]
                == *other.as_bytes()
    }

    pub(crate) fn is_safe(&self) -> bool {
        self.safe
    }

    /// The same characters with or without `Markup`.
    pub(crate) fn with_safe(&self, safe: bool) -> Text {
        Text { safe, ..self.clone() }
    }

    /// Whether all characters are ASCII.
    pub(crate) fn is_ascii(&self) -> bool {
        self.buffer.ascii || self.as_str().is_ascii()
    }

    /// Whether both are the same range of the same buffer.
    pub(crate) fn is_same(&self, other: &Text) -> bool {
        Rc::ptr_eq(&self.buffer, &other.buffer)
            && (self.start, self.end) == (other.start, other.end)
    }

    /// The byte offset of a character, or the length if there are fewer characters.
    pub(crate) fn byte_of_char(&self, index: usize) -> usize {
        if self.buffer.ascii {
            return index.min(self.len());
        }
        self.char_indices().nth(index).map_or(self.len(), |(at, _)| at)
    }

    /// Python's `len`: the number of code points.
    pub(crate) fn char_count(&self) -> usize {
        if self.buffer.ascii { self.len() } else { self.as_str().chars().count() }
    }

    /// A byte range, which must lie on character boundaries.
    pub(crate) fn slice(&self, range: Range<usize>) -> Text {
        debug_assert!(
            self.as_str().get(range.clone()).is_some(),
            "a slice is on character boundaries"
        );
        let cut = |at: usize| self.start + u32::try_from(at).unwrap_or(u32::MAX);
        Text { start: cut(range.start), end: cut(range.end), ..self.clone() }
    }

    /// The view of a subslice of [`Text::as_str`].
    pub(crate) fn part(&self, part: &str) -> Text {
        let start = (part.as_ptr() as usize).wrapping_sub(self.as_str().as_ptr() as usize);
        debug_assert!(start <= self.len(), "the part is of this text");
        self.slice(start..start + part.len())
    }

    /// The marks in this view, relative to its start.
    pub(crate) fn marks(&self) -> impl Iterator<Item = Mark> + '_ {
        let (start, end) = (self.start, self.end);
        let first = self.buffer.marks.partition_point(|mark| mark.end <= start);
        self.buffer.marks[first..].iter().take_while(move |mark| mark.start < end).map(
            move |mark| Mark {
                start: mark.start.max(start) - start,
                end: mark.end.min(end) - start,
                origin: mark.origin,
            },
        )
    }

    /// The origin of a byte.
    pub(crate) fn origin_at(&self, at: usize) -> Option<u32> {
        if self.buffer.marks.is_empty() {
            return None;
        }
        let at = self.start + u32::try_from(at).ok()?;
        let mark =
            self.buffer.marks.get(self.buffer.marks.partition_point(|mark| mark.end <= at))?;
        (mark.start <= at).then_some(mark.origin)
    }

    /// The origin of the first byte that has one.
    pub(crate) fn first_origin(&self) -> Option<u32> {
        if self.buffer.marks.is_empty() {
            return None;
        }
        self.marks().next().map(|mark| mark.origin)
    }

    /// Whether any byte has an origin.
    pub(crate) fn is_marked(&self) -> bool {
        self.first_origin().is_some()
    }

    /// Replaces each character by a text. The replacement keeps the origin of the character.
    pub(crate) fn map_chars(
        &self,
        budget: &Rc<Budget>,
        mut map: impl FnMut(usize, char, &mut String),
    ) -> Result<Text> {
        let mut out = TextBuilder::new(budget);
        let mut mapped = String::new();
        if self.is_marked() {
            for (at, c) in self.as_str().char_indices() {
                mapped.clear();
                map(at, c, &mut mapped);
                out.push_from(&mapped, self.origin_at(at))?;
            }
        } else {
            for (at, c) in self.as_str().char_indices() {
                map(at, c, &mut mapped);
                if mapped.len() > 4096 {
                    out.push(&mapped)?;
                    mapped.clear();
                }
            }
            out.push(&mapped)?;
        }
        Ok(out.finish()?.with_safe(self.safe))
    }
}

impl Deref for Text {
    type Target = str;

    fn deref(&self) -> &str {
        self.as_str()
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

/// A text under construction, limited by the memory that is left.
pub(crate) struct TextBuilder {
    text: String,
    marks: Vec<Mark>,
    budget: Rc<Budget>,
    /// Accounts for the capacity.
    charge: Charge,
    marks_charge: Charge,
    limit: usize,
    /// The initial capacity.
    least: usize,
}

/// The initial capacity of most texts.
const SMALL: usize = 64;

/// The initial capacity of a result, with a proportional number of marks.
const RESULT: usize = 4096;

impl TextBuilder {
    pub(crate) fn new(budget: &Rc<Budget>) -> TextBuilder {
        TextBuilder::sized(budget, u32::MAX as usize, SMALL)
    }

    /// Builds the result of a render of at most `limit` bytes.
    pub(crate) fn limited(budget: &Rc<Budget>, limit: usize) -> TextBuilder {
        TextBuilder::sized(budget, limit.min(u32::MAX as usize), RESULT)
    }

    fn sized(budget: &Rc<Budget>, limit: usize, least: usize) -> TextBuilder {
        TextBuilder {
            text: String::new(),
            marks: Vec::new(),
            budget: Rc::clone(budget),
            charge: Charge::none(),
            marks_charge: Charge::none(),
            limit,
            least,
        }
    }

    /// Grows the capacity for this many more bytes.
    fn grow(&mut self, bytes: usize) -> Result<()> {
        let needed = self.text.len().saturating_add(bytes);
        if needed > self.limit {
            return limit_error(format!("the text is longer than {} bytes", self.limit));
        }
        self.budget.step_bytes(bytes)?;
        if needed > self.text.capacity() {
            // Doubles the capacity if the memory allows it.
            let remaining = self.budget.memory_remaining();
            let wanted = needed.max(self.text.capacity() * 2).max(self.least);
            let capacity = if wanted > remaining && needed <= remaining { needed } else { wanted };
            // The old and the new buffer coexist while the bytes move.
            let charge = self.budget.charge(capacity)?;
            self.text.reserve_exact(capacity - self.text.len());
            self.charge = charge;
        }
        Ok(())
    }

    /// Reserves capacity, so that the text moves at most once.
    pub(crate) fn reserve(&mut self, bytes: usize) -> Result<()> {
        self.grow(bytes)
    }

    /// Appends text of the template.
    pub(crate) fn push(&mut self, text: &str) -> Result<()> {
        self.grow(text.len())?;
        self.text.push_str(text);
        Ok(())
    }

    /// Appends a character repeatedly.
    pub(crate) fn push_fill(&mut self, c: char, times: usize) -> Result<()> {
        self.push_fill_from(c, times, None)
    }

    /// Appends a character with an origin repeatedly.
    pub(crate) fn push_fill_from(
        &mut self,
        c: char,
        times: usize,
        origin: Option<u32>,
    ) -> Result<()> {
        let start = self.text.len();
        self.grow(c.len_utf8().saturating_mul(times))?;
        self.text.extend(std::iter::repeat_n(c, times));
        origin.map_or(Ok(()), |origin| self.mark(start, self.text.len(), origin))
    }

    /// Appends a text repeatedly.
    pub(crate) fn push_repeated(&mut self, text: &Text, times: usize) -> Result<()> {
        self.grow(text.len().saturating_mul(times))?;
        if text.is_marked() {
            return (0..times).try_for_each(|_| self.push_text(text));
        }
        // Doubles the copied range, because copying a short text many times is slow.
        let start = self.text.len();
        let end = start + text.len() * times;
        if times > 0 {
            self.text.push_str(text);
        }
        while self.text.len() < end {
            let copied = (self.text.len() - start).min(end - self.text.len());
            self.text.extend_from_within(start..start + copied);
        }
        Ok(())
    }

    /// Appends characters with an origin.
    pub(crate) fn push_from(&mut self, text: &str, origin: Option<u32>) -> Result<()> {
        let start = self.text.len();
        self.push(text)?;
        if let Some(origin) = origin {
            self.mark(start, self.text.len(), origin)?;
        }
        Ok(())
    }

    /// Appends a text with its marks.
    pub(crate) fn push_text(&mut self, text: &Text) -> Result<()> {
        let offset = self.text.len();
        self.push(text.as_str())?;
        if !text.buffer.marks.is_empty() {
            for mark in text.marks() {
                self.mark(offset + mark.start as usize, offset + mark.end as usize, mark.origin)?;
            }
        }
        Ok(())
    }

    fn mark(&mut self, start: usize, end: usize, origin: u32) -> Result<()> {
        if start == end {
            return Ok(());
        }
        let at = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
        let (start, end) = (at(start), at(end));
        match self.marks.last_mut() {
            Some(last) if last.end == start && last.origin == origin => last.end = end,
            _ => {
                if self.marks.len() == self.marks.capacity() {
                    let capacity = (self.marks.len() * 2).max(self.least / 16);
                    let charge = self.budget.charge(capacity * size_of::<Mark>())?;
                    self.marks.reserve_exact(capacity - self.marks.len());
                    self.marks_charge = charge;
                }
                self.marks.push(Mark { start, end, origin });
            }
        }
        Ok(())
    }

    pub(crate) fn len(&self) -> usize {
        self.text.len()
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }

    /// Removes and returns the text from a byte on.
    pub(crate) fn split_off(&mut self, at: usize) -> Result<Text> {
        let mut taken = TextBuilder::new(&self.budget);
        taken.push(&self.text[at..])?;
        self.text.truncate(at);
        let at = u32::try_from(at).unwrap_or(u32::MAX);
        let first = self.marks.partition_point(|mark| mark.end <= at);
        for mark in self.marks.split_off(first) {
            if mark.start < at {
                self.marks.push(Mark { end: at, ..mark });
            }
            taken.mark(
                (mark.start.max(at) - at) as usize,
                (mark.end - at) as usize,
                mark.origin,
            )?;
        }
        taken.finish()
    }

    pub(crate) fn finish(self) -> Result<Text> {
        drop((self.charge, self.marks_charge));
        let mut text = self.text;
        // Some unused capacity is cheaper than moving the text.
        if text.capacity() > 2 * text.len() + 64 {
            text.shrink_to_fit();
        }
        let charge = self
            .budget
            .charge(text.capacity() + self.marks.len() * size_of::<Mark>() + OVERHEAD)?;
        Ok(Text::whole(text, self.marks, charge))
    }

    /// The finished text and its marks.
    pub(crate) fn into_parts(self) -> (String, Vec<Mark>) {
        (self.text, self.marks)
    }
}
