//! Random numbers that are the same in every run.

/// Marsaglia's xorshift.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// A number from 0 to `n` - 1.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).unwrap() % n
    }

    pub(crate) fn pick<'a>(&mut self, list: &[&'a str]) -> &'a str {
        list[self.below(list.len())]
    }

    /// Cuts a text into pieces of 1 to 9 bytes, or of one longer character.
    pub(crate) fn pieces<'a>(&mut self, text: &'a str) -> Vec<&'a str> {
        let (mut pieces, mut rest) = (Vec::new(), text);
        while !rest.is_empty() {
            let mut at = 1 + self.below(rest.len().min(9));
            while !rest.is_char_boundary(at) {
                at += 1;
            }
            let (head, tail) = rest.split_at(at);
            pieces.push(head);
            rest = tail;
        }
        pieces
    }
}
