//! A draft of one job, and how long the job's next drafts may be.

use super::pace::{DraftCounts, DraftPace};
use crate::engine::backend::TokenId;

/// The lengths of a job's drafts, for each source.
#[derive(Debug)]
pub(crate) struct DraftPaces {
    pub(crate) grammar: DraftPace,
    /// `None` without a drafter.
    pub(crate) drafter: Option<DraftPace>,
}

/// Tokens that may follow the next token of a job.
#[derive(Debug, Default)]
pub(crate) struct Draft {
    pub(crate) tokens: Vec<TokenId>,
    /// Whether the grammar has forced the text of these tokens.
    is_forced: bool,
}

impl Draft {
    pub(crate) fn forced(tokens: Vec<TokenId>) -> Self {
        Draft { tokens, is_forced: true }
    }
}

impl DraftPaces {
    /// `n_max` is that of the drafter, if there is one.
    pub(crate) fn new(forced_n_max: usize, n_max: Option<usize>) -> Self {
        DraftPaces { grammar: DraftPace::new(forced_n_max), drafter: n_max.map(DraftPace::new) }
    }

    /// Records how many tokens of a draft were accepted.
    pub(crate) fn verified(&mut self, draft: &Draft, accepted: usize) {
        let pace = if draft.is_forced { Some(&mut self.grammar) } else { self.drafter.as_mut() };
        if let Some(pace) = pace {
            pace.verified(draft.tokens.len(), accepted);
        }
    }

    /// The counts so far, over all sources. `None` without a drafter, if nothing was drafted.
    pub(crate) fn drafted(&self) -> Option<DraftCounts> {
        let forced = self.grammar.drafted();
        match &self.drafter {
            Some(pace) => Some(forced + pace.drafted()),
            None => (forced.tokens > 0).then_some(forced),
        }
    }
}
