//! Replacements in a text, and how they move the offsets of its bytes.

use std::ops::Range;

/// Replacements in order. They do not overlap.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Edits(Vec<Edit>);

/// A range of the old text, and the range in the new text that replaces it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Edit {
    before: Range<usize>,
    after: Range<usize>,
}

impl Edits {
    /// Records the next replacement: its range in the old text, and its range in the new text.
    pub(crate) fn push(&mut self, before: Range<usize>, after: Range<usize>) {
        self.0.push(Edit { before, after });
    }

    /// The range in the new text. A range that contains a replaced piece contains its replacement.
    /// If the border of two ranges cuts a piece, the piece belongs to the first range. A range
    /// inside a piece becomes empty.
    pub(crate) fn shift(&self, range: &Range<usize>) -> Range<usize> {
        let start = self.map_offset(range.start);
        start..self.map_offset(range.end).max(start)
    }

    fn map_offset(&self, offset: usize) -> usize {
        // The last piece that starts before the offset. An insertion is before its own offset.
        let begun =
            self.0.partition_point(|edit| edit.before.start < offset || edit.before.end <= offset);
        match self.0[..begun].last() {
            Some(edit) if offset < edit.before.end => edit.after.end,
            Some(edit) => edit.after.end + (offset - edit.before.end),
            None => offset,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_move_with_the_text() {
        // "ab<>cd<>ef": an insertion of 2 bytes at 0, and both marks become 5 bytes.
        let mut edits = Edits::default();
        edits.push(0..0, 0..2);
        edits.push(2..4, 4..9);
        edits.push(6..8, 11..16);
        for (before, after) in [
            (0..2, 2..4),
            (0..10, 2..18),
            (2..4, 4..9),
            (4..6, 9..11),
            (2..8, 4..16),
            // The range ends inside the first mark, so it gets all of it.
            (0..3, 2..9),
            (3..6, 9..11),
            // Inside a mark.
            (3..3, 9..9),
            (8..10, 16..18),
            (10..10, 18..18),
        ] {
            assert_eq!(edits.shift(&before), after, "{before:?}");
        }
        assert_eq!(Edits::default().shift(&(3..5)), 3..5);
    }
}
