//! A draft of one job, and how long the job's next drafts may be.

use super::account::DraftAccount;
use super::pace::{DraftCounts, DraftPace};
use crate::engine::backend::TokenId;

/// The lengths of a job's drafts, for each source.
#[derive(Debug)]
pub(crate) struct DraftPaces {
    pub(crate) grammar: DraftPace,
    /// `None` without a drafter.
    drafter: Option<DraftPace>,
    /// What the drafter's drafts have saved; `None` if they need not save anything.
    account: Option<DraftAccount>,
    /// The cost of each token of the drafter's current draft.
    cost: f64,
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
    /// `n_max` is that of the drafter, if there is one. If `is_paid`, it drafts only as much as its
    /// earlier drafts have saved.
    pub(crate) fn new(forced_n_max: usize, n_max: Option<usize>, is_paid: bool) -> Self {
        DraftPaces {
            grammar: DraftPace::new(forced_n_max),
            drafter: n_max.map(DraftPace::new),
            account: is_paid.then(DraftAccount::default),
            cost: 0.0,
        }
    }

    /// How many tokens the drafter may draft now, if each costs `cost`.
    pub(crate) fn most(&mut self, cost: f64) -> usize {
        let most = self.drafter.as_mut().map_or(0, DraftPace::most);
        self.cost = cost;
        self.account.as_ref().map_or(most, |account| most.min(account.affords(cost)))
    }

    /// Records how many tokens of a draft were accepted.
    pub(crate) fn verified(&mut self, draft: &Draft, accepted: usize) {
        let pace = if draft.is_forced { Some(&mut self.grammar) } else { self.drafter.as_mut() };
        if let Some(pace) = pace {
            pace.verified(draft.tokens.len(), accepted);
        }
        if let Some(account) = self.account.as_mut().filter(|_| !draft.is_forced) {
            account.verified(draft.tokens.len(), accepted, self.cost);
        }
    }

    /// The counts so far, over all sources. `None` if nothing was drafted, unless the caller has
    /// chosen a drafter.
    pub(crate) fn drafted(&self) -> Option<DraftCounts> {
        let counts = self.drafter.as_ref().map(DraftPace::drafted).unwrap_or_default();
        let counts = counts + self.grammar.drafted();
        let is_chosen = self.drafter.is_some() && self.account.is_none();
        (is_chosen || counts.tokens > 0).then_some(counts)
    }
}
