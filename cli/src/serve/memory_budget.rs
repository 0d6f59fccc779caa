//! The memory that all requests of the server may take together. A request waits for its share, so
//! many large requests do not end the process. It waits only for requests of about its size.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use llb::llama::MachineMemory;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The bytes that must be available beside those of a request that begins.
const MIN_AVAILABLE: u64 = 64 << 20;
/// How often to look for available memory.
const LOOK: Duration = Duration::from_millis(50);

/// The unit in which memory is counted, in bytes.
const UNIT: u64 = 1024;
/// How many requests of one lane are parsed at the same time.
const READERS: usize = 4;
/// For each lane: its name, its largest request, and its part of the budget, both as divisors of the
/// budget.
const LANES: [(&str, u64, u64); 3] = [("small", 256, 4), ("medium", 32, 4), ("large", 2, 2)];

/// Lanes for small, medium and large requests.
pub(super) struct MemoryBudget([Arc<Lane>; LANES.len()]);

struct Lane {
    name: &'static str,
    /// The size of its largest request, in units.
    max_request: u64,
    memory: Arc<Semaphore>,
    readers: Arc<Semaphore>,
    /// The units of all requests that have ended.
    freed: AtomicU64,
}

impl MemoryBudget {
    /// A budget of this many bytes.
    pub(super) fn new(bytes: u64) -> MemoryBudget {
        MemoryBudget(LANES.map(|(name, largest, part)| {
            // An operation of a semaphore counts to `u32::MAX`.
            let units = |divisor: u64| (bytes / divisor / UNIT).clamp(1, u32::MAX.into());
            let memory = Semaphore::new(usize::try_from(units(part)).unwrap_or(usize::MAX));
            Arc::new(Lane {
                name,
                max_request: units(largest),
                memory: Arc::new(memory),
                readers: Arc::new(Semaphore::new(READERS)),
                freed: AtomicU64::new(0),
            })
        }))
    }

    /// The bytes of the largest request.
    pub(super) fn max_request(&self) -> u64 {
        self.0.iter().map(|lane| lane.max_request).max().unwrap_or_default() * UNIT
    }

    /// The bytes of all requests that have ended.
    pub(super) fn freed(&self) -> u64 {
        self.0.iter().map(|lane| lane.freed.load(Ordering::Relaxed)).sum::<u64>() * UNIT
    }

    /// Waits for a share of this many bytes, at most `max_request`, in order of arrival.
    pub(super) async fn share(&self, bytes: u64) -> MemoryShare {
        let units = bytes.div_ceil(UNIT).min(self.max_request() / UNIT);
        let fits = |lane: &&Arc<Lane>| units <= lane.max_request;
        let lane = self.0.iter().find(fits).expect("`units` fits into the last lane");
        let units = u32::try_from(units).expect("a lane has at most `u32::MAX` units");
        let memory = Arc::clone(&lane.memory).acquire_many_owned(units).await;
        let memory = memory.expect("the semaphore is never closed");
        MemoryShare { lane: Arc::clone(lane), memory }
    }
}

/// The memory of one request, until it is dropped.
pub(crate) struct MemoryShare {
    lane: Arc<Lane>,
    memory: OwnedSemaphorePermit,
}

impl MemoryShare {
    /// Gives back what exceeds this many bytes.
    pub(super) fn shrink(&mut self, bytes: u64) {
        let units = usize::try_from(bytes.div_ceil(UNIT)).unwrap_or(usize::MAX);
        drop(self.memory.split(self.memory.num_permits().saturating_sub(units)));
    }

    /// Whether the request is small, medium or large.
    pub(super) fn size(&self) -> &'static str {
        self.lane.name
    }

    /// Waits until few other requests of about this size are parsed.
    pub(super) async fn turn(&self) -> OwnedSemaphorePermit {
        let turn = Arc::clone(&self.lane.readers).acquire_owned().await;
        turn.expect("the semaphore is never closed")
    }
}

impl Drop for MemoryShare {
    fn drop(&mut self) {
        self.lane.freed.fetch_add(self.memory.num_permits() as u64, Ordering::Relaxed);
    }
}

/// Waits until the process can get this many bytes for a request, whoever uses the memory.
pub(super) async fn available(bytes: u64) {
    let is_short = || {
        let available = MachineMemory::read().available;
        available.is_some_and(|available| available < bytes.saturating_add(MIN_AVAILABLE))
    };
    while is_short() {
        tokio::time::sleep(LOOK).await;
    }
}

/// What a request holds until it has ended.
#[derive(Default)]
pub(crate) struct RequestMemory {
    /// For the bytes of its body, or texts of about their length.
    pub(super) _body: Option<MemoryShare>,
    /// For what it takes while it is parsed and runs.
    pub(super) run: Option<MemoryShare>,
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll, Waker};

    use super::*;

    const MIB: u64 = 1 << 20;

    /// The share, if it is available.
    fn share(budget: &MemoryBudget, bytes: u64) -> Option<MemoryShare> {
        let share = std::pin::pin!(budget.share(bytes));
        match share.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(share) => Some(share),
            Poll::Pending => None,
        }
    }

    #[test]
    fn large_requests_do_not_hold_up_small_ones() {
        let budget = MemoryBudget::new(256 * MIB);
        let large = share(&budget, 128 * MIB).expect("half of the budget");
        assert!(share(&budget, 10 * MIB).is_none());
        assert_eq!(budget.freed(), 0);
        let medium: Vec<_> = (0..8).map(|_| share(&budget, 8 * MIB).expect("a lane")).collect();
        assert!(share(&budget, 2 * MIB).is_none());
        let small: Vec<_> = (0..64).map(|_| share(&budget, MIB).expect("a lane")).collect();
        assert!(share(&budget, 1).is_none());
        drop((large, medium, small));
        assert_eq!(budget.freed(), 256 * MIB);
        for bytes in [128 * MIB, 8 * MIB, 1] {
            assert!(share(&budget, bytes).is_some(), "{bytes}");
        }
    }

    #[test]
    fn the_shares_of_all_requests_fit_into_the_budget() {
        for bytes in [1 << 20, 256 * MIB, u64::MAX] {
            let budget = MemoryBudget::new(bytes);
            let units: usize = budget.0.iter().map(|lane| lane.memory.available_permits()).sum();
            assert!(units as u64 <= bytes / UNIT, "{bytes}");
            // A larger request gets the largest share.
            assert!(share(&budget, u64::MAX).is_some(), "{bytes}");
        }
    }

    #[test]
    fn what_a_share_gives_back_can_be_used() {
        let budget = MemoryBudget::new(256 * MIB);
        let mut first = share(&budget, 128 * MIB).expect("half of the budget");
        first.shrink(28 * MIB);
        let second = share(&budget, 100 * MIB).expect("the rest of the lane");
        assert!(share(&budget, 9 * MIB).is_none());
        drop((first, second));
        assert!(share(&budget, 128 * MIB).is_some());
    }
}
