//! What a job may spend on drafts that are only guesses: what its earlier drafts have saved.
//!
//! A decode of several tokens takes longer than one of a single token, so a wrong draft costs time.
//! The costs are fixed. If they were measured, the lengths of drafts would depend on time, and with
//! them the rounding of logits: a seed would not always give the same reply.

use crate::engine::backend::ThreadPolicy;

/// The cost of a drafted token, as a part of a decode without drafts. With two threads and a model of
/// 0.5B, it was 0.25 for the first token, 0.35 of each of eight and 0.29 of each of sixteen.
const COST: f64 = 0.3;
const COST_ON_DEVICE: f64 = 0.05;
/// What a job may lose on drafts: this part of a decode at first, and this part of each token.
const FIRST_LOSS: f64 = 0.6;
const LOSS: f64 = 0.005;
/// The maximum that a job keeps of what its drafts have saved, in tokens. Where a repetition ends,
/// no more than this is lost.
const MAX_SAVED: f64 = 6.0;

/// The cost of a drafted token among `jobs` jobs, in tokens that could be generated meanwhile.
pub(crate) fn cost(policy: ThreadPolicy, jobs: usize) -> f64 {
    let one = if policy == ThreadPolicy::Device { COST_ON_DEVICE } else { COST };
    one * jobs.max(1) as f64
}

/// What the drafts of a job have saved and cost, in tokens.
#[derive(Debug)]
pub(crate) struct DraftAccount {
    saved: f64,
}

impl Default for DraftAccount {
    fn default() -> Self {
        DraftAccount { saved: FIRST_LOSS }
    }
}

impl DraftAccount {
    /// How many tokens of this cost the job can pay for.
    pub(crate) fn affords(&self, cost: f64) -> usize {
        (self.saved / cost).max(0.0) as usize
    }

    /// Records a decode with a draft of `tokens` tokens of this cost, which may be none.
    pub(crate) fn verified(&mut self, tokens: usize, accepted: usize, cost: f64) {
        let change = LOSS + accepted as f64 - cost * tokens as f64;
        self.saved = (self.saved + change).min(MAX_SAVED);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_drafts_cost_little_and_right_ones_pay_for_long_ones() {
        let cost = cost(ThreadPolicy::Adaptive, 1);
        let mut account = DraftAccount::default();
        let mut lost = 0.0;
        for _ in 0..1_000 {
            let most = account.affords(cost).min(8);
            lost += cost * most as f64;
            account.verified(most, 0, cost);
        }
        assert!(lost > 1.0 && lost <= 1_000.0 * LOSS + FIRST_LOSS, "{lost}");
        let mut lengths = Vec::new();
        for _ in 0..200 {
            let most = account.affords(cost).min(8);
            account.verified(most, most, cost);
            lengths.push(most);
        }
        assert!(lengths.iter().rev().take(20).all(|length| *length == 8), "{lengths:?}");
        // What was saved is not spent on wrong ones for long.
        let mut wrong = 0;
        for _ in 0..100 {
            let most = account.affords(cost).min(8);
            account.verified(most, 0, cost);
            wrong += most;
        }
        assert!(wrong as f64 * cost <= MAX_SAVED + 100.0 * LOSS, "{wrong}");
    }

    #[test]
    fn many_jobs_leave_no_time_for_guesses() {
        let account = DraftAccount::default();
        assert_eq!(account.affords(cost(ThreadPolicy::Pinned, 1)), 2);
        assert_eq!(account.affords(cost(ThreadPolicy::Pinned, 4)), 0);
        assert_eq!(account.affords(cost(ThreadPolicy::Device, 5)), 2);
    }
}
