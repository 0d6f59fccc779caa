//! What the probes of one template have used together. In: the cost of each probe. Out: whether the
//! template may be rendered again. More than a hundred probes may run when a file is loaded, and a
//! hostile template may use all that each of them has.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use crate::template::environment::RenderCost;
use crate::template::failure::Failure;

/// The number of exceeded limits after which the template is not rendered again.
pub(super) const MAX_EXCEEDED: u32 = 2;
/// Maximum steps of all probes. The probes of the largest real template take 400,000.
const MAX_STEPS: u64 = 10_000_000;
/// Maximum processor time of all probes, for steps that are slow. Real templates need 20 ms.
const MAX_TIME: Duration = Duration::from_secs(2);

/// The total of all probes, over all probers of the template.
#[derive(Debug, Default)]
pub(crate) struct ProbeUsage {
    exceeded: AtomicU32,
    steps: AtomicU64,
    nanoseconds: AtomicU64,
}

impl ProbeUsage {
    /// An error of kind `limit` if the template used too much.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        let why = if self.exceeded.load(Ordering::Relaxed) >= MAX_EXCEEDED {
            "exceeded its limits repeatedly".to_owned()
        } else if self.steps.load(Ordering::Relaxed) > MAX_STEPS {
            format!("took more than {MAX_STEPS} steps for all probes")
        } else if self.nanoseconds.load(Ordering::Relaxed) > nanoseconds(MAX_TIME) {
            format!("ran longer than {} ms for all probes", MAX_TIME.as_millis())
        } else {
            return Ok(());
        };
        let message = format!("probing stopped: the template {why}");
        Err(Failure::limit(message))
    }

    /// Adds a probe.
    pub(crate) fn record<T>(&self, ended: &Result<T, Failure>, cost: RenderCost) {
        if ended.as_ref().is_err_and(|failure| failure.is_limit()) {
            self.exceeded.fetch_add(1, Ordering::Relaxed);
        }
        self.steps.fetch_add(cost.steps, Ordering::Relaxed);
        self.nanoseconds.fetch_add(nanoseconds(cost.time), Ordering::Relaxed);
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(usage: &ProbeUsage) -> String {
        usage.check().map_or_else(|failure| failure.message, |()| String::new())
    }

    /// Records the same cost repeatedly.
    fn used(times: u64, steps: u64, time: Duration) -> ProbeUsage {
        let usage = ProbeUsage::default();
        for _ in 0..times {
            usage.record(&Ok(()), RenderCost { steps, time });
        }
        usage
    }

    #[test]
    fn all_probes_share_steps_and_time() {
        let short = Duration::from_millis(20);
        assert_eq!(message(&used(100, MAX_STEPS / 100, short)), "");
        let steps = message(&used(101, MAX_STEPS / 100, short));
        assert!(steps.contains("more than 10000000 steps for all probes"), "{steps}");
        assert_eq!(message(&used(20, 1, MAX_TIME / 20)), "");
        let time = message(&used(21, 1, MAX_TIME / 20));
        assert!(time.contains("longer than 2000 ms for all probes"), "{time}");
        assert!(used(21, 1, MAX_TIME).check().is_err_and(|failure| failure.is_limit()));
    }
}
