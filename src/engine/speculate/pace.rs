//! Adapts the length of a job's drafts: longer while they are accepted, shorter while they are
//! rejected.

use std::ops::Add;

/// The number of decodes without a draft after a draft of a single token was rejected.
const REST: usize = 16;

/// The number of drafted and accepted tokens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DraftCounts {
    /// Draft tokens that were decoded.
    pub tokens: usize,
    /// Draft tokens that equal the sampled ones.
    pub accepted: usize,
}

impl Add for DraftCounts {
    type Output = DraftCounts;

    fn add(self, other: DraftCounts) -> DraftCounts {
        DraftCounts { tokens: self.tokens + other.tokens, accepted: self.accepted + other.accepted }
    }
}

/// The lengths of one job's drafts from one source.
#[derive(Debug)]
pub(crate) struct DraftPace {
    n_max: usize,
    /// The length of the next draft.
    length: usize,
    /// Decodes until the next draft.
    rest: usize,
    drafted: DraftCounts,
}

impl DraftPace {
    /// Drafts have at most `n_max` tokens; at least 1.
    pub(crate) fn new(n_max: usize) -> Self {
        DraftPace { n_max, length: n_max, rest: 0, drafted: DraftCounts::default() }
    }

    /// The maximum number of tokens to draft now. Must be called once for each decode that could
    /// have a draft.
    pub(crate) fn most(&mut self) -> usize {
        if self.rest > 0 {
            self.rest -= 1;
            return 0;
        }
        self.length
    }

    /// Records the result of a draft. If all of it was accepted, the length doubles. If nothing was
    /// accepted, the length halves, and after a draft of a single token there is a pause.
    pub(crate) fn verified(&mut self, tokens: usize, accepted: usize) {
        if tokens == 0 {
            return;
        }
        self.drafted.tokens += tokens;
        self.drafted.accepted += accepted;
        self.length = match accepted {
            0 if self.length <= 1 => {
                self.rest = REST;
                1
            }
            0 => self.length / 2,
            all if all == tokens => (self.length * 2).min(self.n_max),
            _ => self.length,
        };
    }

    /// The counts so far.
    pub(crate) fn drafted(&self) -> DraftCounts {
        self.drafted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_guesses_get_shorter_and_rare_and_right_ones_longer() {
        let mut pace = DraftPace::new(8);
        for length in [8, 4, 2, 1] {
            assert_eq!(pace.most(), length);
            pace.verified(length, 0);
        }
        assert_eq!((0..REST).map(|_| pace.most()).sum::<usize>(), 0);
        for length in [1, 2, 4, 8, 8] {
            assert_eq!(pace.most(), length);
            pace.verified(length, length);
        }
        pace.verified(8, 3);
        pace.verified(0, 0);
        assert_eq!(
            pace.most(),
            8,
            "half right is no reason for less, and no guess no reason at all"
        );
        assert_eq!(pace.drafted(), DraftCounts { tokens: 15 + 23 + 8, accepted: 23 + 3 });
    }
}
