//! llama.cpp's positions of the places of a sequence.
//!
//! The position of a place is how many places are before it, except in models with M-RoPE: there all
//! places of a picture have the position of the first one, and the token after it has the position
//! that the picture's longer side leads to. llama.cpp removes cells by position, so a picture can only
//! be removed as a whole.

use std::sync::Arc;

use llama_cpp_sys_2::llama_pos;

use crate::engine::{EmbeddingBatch, PieceRotations};

/// The positions of one sequence.
#[derive(Default)]
pub(crate) struct Positions {
    /// In their order.
    pieces: Vec<Piece>,
}

/// A piece of media with positions of its own.
struct Piece {
    /// Its first place, and the position of that.
    start: usize,
    position: usize,
    /// How many of its places have cells.
    computed: usize,
    rotations: Arc<PieceRotations>,
}

impl Piece {
    /// The place after the piece.
    fn end(&self) -> usize {
        self.start + self.rotations.offsets.len()
    }
}

impl Positions {
    /// The position of a token at this place, or of the place in a piece.
    pub(crate) fn of(&self, place: usize) -> llama_pos {
        let before = self.pieces.iter().rfind(|piece| piece.start <= place);
        let position = match before {
            None => place,
            Some(piece) => match piece.rotations.offsets.get(place - piece.start) {
                Some(offsets) => piece.position + offsets[0] as usize,
                None => piece.position + piece.rotations.count + place - piece.end(),
            },
        };
        position as llama_pos
    }

    /// The position of the last place of a sequence of this length, which is not empty.
    pub(crate) fn last(&self, length: usize) -> llama_pos {
        self.of(length - 1)
    }

    /// The position from which on to remove, so that this length is left. `None` if the end would be
    /// inside of a piece of which more is computed.
    pub(crate) fn cut(&self, length: usize) -> Option<llama_pos> {
        let inside = self.pieces.iter().find(|piece| piece.start < length && length < piece.end());
        match inside {
            None => Some(self.of(length)),
            Some(piece) if piece.start + piece.computed == length => Some(self.last(length) + 1),
            Some(_) => None,
        }
    }

    /// The shortest length whose next token has this position or a later one.
    pub(crate) fn length_at(&self, position: usize) -> usize {
        let mut length = position;
        for piece in &self.pieces {
            if piece.position >= position {
                break;
            }
            let after = position.saturating_sub(piece.position + piece.rotations.count);
            length = piece.end() + after;
        }
        length
    }

    /// The position of each embedding of a batch in each dimension of M-RoPE. As in mtmd, the fourth
    /// one of pictures is 0.
    pub(crate) fn of_batch(&self, batch: &EmbeddingBatch) -> Vec<[llama_pos; 4]> {
        let Some(rotations) = batch.rotations else {
            let position = |index| [self.of(batch.position + index); 4];
            return (0..batch.count).map(position).collect();
        };
        // Before its first batch, the piece is not known yet.
        let first = self.of(batch.position - batch.start);
        let position = |offsets: &[u32; 3]| {
            let [time, row, column] = offsets.map(|offset| first + offset as llama_pos);
            [time, row, column, 0]
        };
        rotations.offsets[batch.start..batch.start + batch.count].iter().map(position).collect()
    }

    /// Notes a batch that was computed.
    pub(crate) fn push(&mut self, batch: &EmbeddingBatch) {
        let Some(rotations) = batch.rotations else { return };
        let start = batch.position - batch.start;
        let computed = batch.start + batch.count;
        match self.pieces.last_mut().filter(|piece| piece.start == start) {
            Some(piece) => piece.computed = computed,
            None => {
                let position = self.of(start) as usize;
                let rotations = Arc::clone(rotations);
                self.pieces.push(Piece { start, position, computed, rotations });
            }
        }
    }

    /// Removes everything from this length on.
    pub(crate) fn truncate(&mut self, length: usize) {
        self.pieces.retain(|piece| piece.start < length);
    }

    /// A copy of the first `length` places.
    pub(crate) fn copied(&self, length: usize) -> Positions {
        let copy = |piece: &Piece| Piece { rotations: Arc::clone(&piece.rotations), ..*piece };
        let before = self.pieces.iter().filter(|piece| piece.start < length);
        Positions { pieces: before.map(copy).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A picture of so many columns and rows, as Qwen2-VL's.
    fn picture(columns: u32, rows: u32) -> Arc<PieceRotations> {
        let offsets = (0..columns * rows).map(|place| [0, place / columns, place % columns]);
        let count = columns.max(rows) as usize;
        Arc::new(PieceRotations { offsets: offsets.collect(), count })
    }

    fn batch(
        rotations: &Arc<PieceRotations>,
        position: usize,
        start: usize,
        count: usize,
    ) -> EmbeddingBatch<'_> {
        let rotations = Some(rotations);
        EmbeddingBatch {
            rows: &[],
            start,
            count,
            sequence: 0,
            position,
            is_causal: true,
            rotations,
        }
    }

    #[test]
    fn a_text_has_the_positions_of_its_places() {
        let positions = Positions::default();
        assert_eq!((positions.of(0), positions.of(9), positions.last(9)), (0, 9, 8));
        assert_eq!((positions.cut(3), positions.length_at(4)), (Some(3), 4));
    }

    #[test]
    fn a_picture_takes_the_positions_of_its_longer_side() {
        let (wide, tall) = (picture(4, 2), picture(1, 3));
        let mut positions = Positions::default();
        // Five tokens, eight places, two tokens, three places.
        assert_eq!(positions.of_batch(&batch(&wide, 5, 0, 5))[3..], [[5, 5, 8, 0], [5, 6, 5, 0]]);
        positions.push(&batch(&wide, 5, 0, 5));
        assert_eq!((positions.cut(10), positions.cut(9)), (Some(6), None));
        assert_eq!(positions.of_batch(&batch(&wide, 10, 5, 3))[2], [5, 6, 8, 0]);
        positions.push(&batch(&wide, 10, 5, 3));
        assert_eq!((positions.last(13), positions.of(13), positions.of(14)), (5, 9, 10));
        assert_eq!(positions.of_batch(&batch(&tall, 15, 0, 3))[2], [11, 13, 11, 0]);
        positions.push(&batch(&tall, 15, 0, 3));
        assert_eq!((positions.of(17), positions.of(18), positions.of(20)), (11, 14, 16));
        assert_eq!(positions.cut(18), Some(14));
        // Only whole pictures are cut.
        let cuts = [5, 6, 12, 13, 14].map(|length| positions.cut(length));
        assert_eq!(cuts, [Some(5), None, None, Some(9), Some(10)]);
        // A window that begins within a picture begins after it.
        let lengths = [3, 5, 6, 9, 10, 11, 12, 14, 15].map(|at| positions.length_at(at));
        assert_eq!(lengths, [3, 5, 13, 13, 14, 15, 18, 18, 19]);
        let copied = positions.copied(15);
        assert_eq!((copied.of(14), copied.of(15), copied.of(16)), (10, 11, 12));
        positions.truncate(5);
        assert_eq!(positions.of(8), 8);
    }
}
