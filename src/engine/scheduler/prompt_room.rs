//! How many prompt tokens a decode takes, so that no job waits long for another one's prompt.
//!
//! On a processor, a full batch of a prompt may take seconds. All other jobs wait for it: those that
//! decode for their next tokens, new ones for their turn. The times of earlier decodes say how long
//! a token takes. On a fast device, or if a job is and was alone, batches are full.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// How long another job is expected to come after there were several.
const RECENT: Duration = Duration::from_secs(10);
/// The seconds that prompts take in a decode, if there are several jobs or were just now.
const STEP: f64 = 1.0;
/// The seconds that parts of long prompts take in a decode that also computes tokens of replies,
/// and the same as a multiple of the time of a decode without prompts. The longer one counts.
const BESIDE_REPLIES: f64 = 0.5;
const BESIDE_REPLIES_FACTOR: f64 = 3.0;
/// The numbers of tokens for which these times do not count. Batches of fewer tokens are less
/// efficient: `docs/performance.md` has the figures.
const MIN_STEP: usize = 128;
const MIN_BESIDE_REPLIES: usize = 64;
/// The tokens of long prompts beside a shorter whole one, at least.
pub(super) const MIN_BESIDE: usize = 32;
/// How many earlier decodes count. The fastest of them says the most: others may have waited for a
/// processor or for weights from the disk.
const MAX_MEASURED: usize = 4;
/// The time of a decode with fewer prompt tokens says little about the time of one.
const MIN_MEASURED: usize = 16;

/// The number of tokens for prompts in a decode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PromptRoom {
    /// For prompts that are computed to their ends.
    pub(super) whole: usize,
    /// For parts of longer ones, beside them.
    pub(super) parts: usize,
}

/// The times of earlier decodes, and when there were several jobs.
#[derive(Debug, Default)]
pub(super) struct PromptPace {
    several: Option<Instant>,
    /// For a prompt token.
    token: Fastest,
    /// For a decode without prompts.
    reply_step: Fastest,
}

impl PromptPace {
    /// Records a decode that had this many prompt tokens, and may have had tokens of replies.
    pub(super) fn record(&mut self, prompt_tokens: usize, has_replies: bool, wall: Duration) {
        let wall = wall.as_secs_f64();
        if prompt_tokens == 0 {
            self.reply_step.add(wall);
        } else if prompt_tokens >= MIN_MEASURED {
            let replies = self.reply_step.get().filter(|_| has_replies).unwrap_or_default();
            self.token.add((wall - replies).max(0.0) / prompt_tokens as f64);
        }
    }

    /// Records how many jobs there are, those that wait included.
    pub(super) fn see(&mut self, jobs: usize, now: Instant) {
        let is_recent = |before: &Instant| now.duration_since(*before) < RECENT;
        self.several = if jobs > 1 { Some(now) } else { self.several.filter(is_recent) };
    }

    /// The room in a decode with at most `n_free` prompt tokens, beside tokens of replies or not.
    pub(super) fn room(&self, n_free: usize, has_replies: bool) -> PromptRoom {
        let Some(token) = self.token.get().filter(|_| self.several.is_some()) else {
            return PromptRoom { whole: n_free, parts: n_free };
        };
        let tokens = |seconds: f64, least| ((seconds / token) as usize).max(least).min(n_free);
        let whole = tokens(STEP, MIN_STEP);
        if !has_replies {
            return PromptRoom { whole, parts: whole };
        }
        let beside = self.reply_step.get().unwrap_or_default() * BESIDE_REPLIES_FACTOR;
        PromptRoom { whole, parts: tokens(BESIDE_REPLIES.max(beside), MIN_BESIDE_REPLIES) }
    }
}

/// The last times, in seconds.
#[derive(Debug, Default)]
struct Fastest(VecDeque<f64>);

impl Fastest {
    fn add(&mut self, seconds: f64) {
        self.0.truncate(MAX_MEASURED - 1);
        self.0.push_front(seconds);
    }

    /// `None` before the first one.
    fn get(&self) -> Option<f64> {
        self.0.iter().copied().reduce(f64::min)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The pace of several jobs.
    fn pace(token: f64, reply_step: f64) -> PromptPace {
        let mut pace = PromptPace::default();
        pace.see(2, Instant::now());
        pace.record(0, true, Duration::from_secs_f64(reply_step));
        pace.record(500, false, Duration::from_secs_f64(token * 500.0));
        pace
    }

    #[test]
    fn a_job_alone_and_an_unknown_pace_have_full_batches() {
        let full = PromptRoom { whole: 512, parts: 512 };
        let mut pace = PromptPace::default();
        let start = Instant::now();
        pace.see(2, start);
        assert_eq!(pace.room(512, true), full);
        pace.record(500, false, Duration::from_secs(5));
        assert_ne!(pace.room(512, true), full);
        // Others may come again.
        pace.see(1, start + RECENT / 2);
        assert_ne!(pace.room(512, true), full);
        pace.see(1, start + RECENT);
        assert_eq!(pace.room(512, true), full);
    }

    #[test]
    fn several_jobs_wait_for_a_bounded_time() {
        // A small model on two cores.
        let small = pace(1.0 / 256.0, 0.03);
        assert_eq!(small.room(512, false), PromptRoom { whole: 256, parts: 256 });
        assert_eq!(small.room(512, true), PromptRoom { whole: 256, parts: 128 });
        // Large ones: the fewest tokens, or four times as long as without prompts.
        let large = pace(1.0 / 25.0, 0.2);
        let fewest = PromptRoom { whole: MIN_STEP, parts: MIN_BESIDE_REPLIES };
        assert_eq!(large.room(512, true), fewest);
        let large = pace(1.0 / 128.0, 0.25);
        assert_eq!(large.room(512, true), PromptRoom { whole: 128, parts: 96 });
        // A device.
        assert_eq!(pace(0.00005, 0.01).room(512, true), PromptRoom { whole: 512, parts: 512 });
    }

    #[test]
    fn the_time_of_replies_in_a_decode_is_not_that_of_its_prompts() {
        let mut pace = pace(0.005, 0.5);
        pace.record(50, true, Duration::from_secs_f64(0.5 + 50.0 * 0.002));
        let token = pace.token.get().expect("recorded");
        assert!((token - 0.002).abs() < 1e-9, "{token}");
        // Too few tokens.
        pace.record(3, true, Duration::ZERO);
        assert_eq!(pace.token.get(), Some(token));
    }

    #[test]
    fn a_slow_decode_counts_only_if_all_are() {
        let mut pace = pace(0.001, 0.01);
        for _ in 0..3 {
            pace.record(500, false, Duration::from_secs(5));
            assert_eq!(pace.room(512, false).whole, 512);
        }
        pace.record(500, false, Duration::from_secs(5));
        assert_eq!(pace.room(512, false).whole, MIN_STEP);
    }
}
