//! Adapts the length of a job's drafts: longer while they are accepted, shorter while they are
//! rejected.

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

/// The draft lengths of one job.
#[derive(Debug, Default)]
pub(crate) struct DraftPace {
    /// The length of the next draft; `None` before the first.
    length: Option<usize>,
    /// Decodes until the next draft.
    rest: usize,
    drafted: DraftCounts,
}

impl DraftPace {
    /// The maximum number of tokens to draft now. Must be called once for each decode.
    pub(crate) fn most(&mut self, n_max: usize) -> usize {
        if self.rest > 0 {
            self.rest -= 1;
            return 0;
        }
        self.length.unwrap_or(n_max)
    }

    /// Records the result of a draft. If all of it was accepted, the length doubles. If nothing was
    /// accepted, the length halves, and after a draft of a single token there is a pause.
    pub(crate) fn verified(&mut self, tokens: usize, accepted: usize, n_max: usize) {
        if tokens == 0 {
            return;
        }
        self.drafted.tokens += tokens;
        self.drafted.accepted += accepted;
        let length = self.length.unwrap_or(n_max);
        self.length = Some(match accepted {
            0 if length <= 1 => {
                self.rest = REST;
                1
            }
            0 => length / 2,
            all if all == tokens => (length * 2).min(n_max),
            _ => length,
        });
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
        let mut pace = DraftPace::default();
        for length in [8, 4, 2, 1] {
            assert_eq!(pace.most(8), length);
            pace.verified(length, 0, 8);
        }
        assert_eq!((0..REST).map(|_| pace.most(8)).sum::<usize>(), 0);
        for length in [1, 2, 4, 8, 8] {
            assert_eq!(pace.most(8), length);
            pace.verified(length, length, 8);
        }
        pace.verified(8, 3, 8);
        pace.verified(0, 0, 8);
        assert_eq!(
            pace.most(8),
            8,
            "half right is no reason for less, and no guess no reason at all"
        );
        assert_eq!(pace.drafted(), DraftCounts { tokens: 15 + 23 + 8, accepted: 23 + 3 });
    }
}
