//! Jobs with different adapters take turns, because a decode has one set of adapters.

use std::collections::VecDeque;

use crate::api::AdapterScales;
use crate::engine::active_job::ActiveJob;

/// The maximum number of decodes in a turn. After each change of adapters llama.cpp plans the
/// memory of a decode again, which takes a part of the time of a decode.
pub(super) const MAX_DECODES: usize = 4;

/// The sets of adapters of the running jobs, and whose turn it is.
#[derive(Default)]
pub(super) struct Turns {
    /// The sets in the order of their turns. The first one has the turn.
    sets: VecDeque<AdapterScales>,
    /// The number of decodes in the current turn.
    decodes: usize,
}

impl Turns {
    /// Chooses the adapters of the next decode; `None` without jobs. A turn that computes a prompt
    /// ends earlier, because a prompt takes longer than a token.
    pub(super) fn next(&mut self, active: &[&ActiveJob]) -> Option<AdapterScales> {
        let had_turn = self.sets.front().cloned();
        self.sets.retain(|set| active.iter().any(|active| active.job.adapters == *set));
        for active in active {
            if !self.sets.contains(&active.job.adapters) {
                self.sets.push_back(active.job.adapters.clone());
            }
        }
        if self.sets.front() != had_turn.as_ref() {
            self.decodes = 0;
        }
        let computes_prompt = |set: &AdapterScales| {
            active.iter().any(|active| active.next.is_none() && active.job.adapters == *set)
        };
        let is_over = self.decodes >= MAX_DECODES
            || self.decodes > 0 && self.sets.front().is_some_and(computes_prompt);
        if is_over && self.sets.len() > 1 {
            self.sets.rotate_left(1);
            self.decodes = 0;
        }
        self.decodes += 1;
        self.sets.front().cloned()
    }
}
