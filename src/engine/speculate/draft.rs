//! A draft of one job, and how long the job's next drafts may be.

use super::account::DraftAccount;
use super::pace::{DraftCounts, DraftPace};
use crate::engine::backend::TokenId;

/// The lengths of a job's drafts, for each source.
#[derive(Debug)]
pub(crate) struct DraftPaces {
    pub(crate) grammar: DraftPace,
    pub(crate) call_texts: DraftPace,
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
    /// How many of the first tokens the grammar has forced.
    forced: usize,
    /// Whether the other tokens are the rest of a text of a call. If not, a drafter has made them.
    is_call_text: bool,
}

impl Draft {
    /// Text that a grammar forces, and the rest of a text of a call.
    pub(crate) fn of_call(forced: Vec<TokenId>, likely: Vec<TokenId>) -> Self {
        let count = forced.len();
        let tokens = [forced, likely].concat();
        Draft { tokens, forced: count, is_call_text: true }
    }
}

impl DraftPaces {
    /// `n_max` is that of the drafter, if there is one. If `is_paid`, it drafts only as much as its
    /// earlier drafts have saved.
    pub(crate) fn new(forced_n_max: usize, n_max: Option<usize>, is_paid: bool) -> Self {
        DraftPaces {
            grammar: DraftPace::new(forced_n_max),
            call_texts: DraftPace::new(forced_n_max),
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
        let forced = draft.forced.min(draft.tokens.len());
        self.grammar.verified(forced, accepted.min(forced));
        let guessed = draft.tokens.len() - forced;
        let accepted = accepted.saturating_sub(forced);
        if draft.is_call_text {
            return self.call_texts.verified(guessed, accepted);
        }
        if let Some(drafter) = &mut self.drafter {
            drafter.verified(guessed, accepted);
        }
        if let Some(account) = &mut self.account {
            account.verified(guessed, accepted, self.cost);
        }
    }

    /// The counts so far, over all sources. `None` if nothing was drafted, unless the caller has
    /// chosen a drafter.
    pub(crate) fn drafted(&self) -> Option<DraftCounts> {
        let counts = self.drafter.as_ref().map(DraftPace::drafted).unwrap_or_default();
        let counts = counts + self.grammar.drafted() + self.call_texts.drafted();
        let is_chosen = self.drafter.is_some() && self.account.is_none();
        (is_chosen || counts.tokens > 0).then_some(counts)
    }
}
