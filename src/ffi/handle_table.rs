//! A table of open objects. Its keys are not pointers, so a stale or invented key is detected.
//!
//! A key combines a slot index with the generation of that slot. A removal increments the
//! generation, so old keys no longer match. The table grows only to the largest number of objects
//! that were open at once.

use crate::process::{self, Shared};

/// The low half of a key is the slot index, and the high half the generation.
const INDEX_BITS: u32 = usize::BITS / 2;
const INDEX_MASK: usize = (1 << INDEX_BITS) - 1;

/// The all-ones generation is never used, so that no key is `usize::MAX`.
const LAST_GENERATION: usize = INDEX_MASK - 1;

struct Slot<T> {
    generation: usize,
    /// The number of forks when the value was inserted. A forked child leaves its parent's values
    /// in their slots, because their engines cannot be stopped there.
    forks: usize,
    value: Option<T>,
}

impl<T> Slot<T> {
    /// Whether a key of this generation refers to the slot in this process.
    fn is(&self, generation: usize) -> bool {
        self.generation == generation && self.forks == process::forks()
    }
}

/// The table. It may be used from any thread.
pub(super) struct HandleTable<T>(Shared<Vec<Slot<T>>>);

impl<T: Clone> HandleTable<T> {
    pub(super) const fn new() -> Self {
        HandleTable(Shared::new(Vec::new()))
    }

    /// Adds a value and returns its key, which is never 0.
    pub(super) fn insert(&self, value: T) -> usize {
        let value = Some(value);
        let forks = process::forks();
        let mut table = self.0.lock();
        let index = match table.iter().position(|slot| slot.value.is_none()) {
            Some(index) => {
                table[index].value = value;
                table[index].forks = forks;
                index
            }
            None => {
                table.push(Slot { generation: 1, forks, value });
                table.len() - 1
            }
        };
        // Generations start at 1, so no key is 0.
        table[index].generation << INDEX_BITS | index
    }

    /// The value of an open key.
    pub(super) fn get(&self, key: usize) -> Option<T> {
        let table = self.0.lock();
        let slot = table.get(key & INDEX_MASK).filter(|slot| slot.is(key >> INDEX_BITS));
        slot?.value.clone()
    }

    /// Removes the value of a key if `is_wanted` returns true. The key is stale afterwards.
    pub(super) fn remove(&self, key: usize, is_wanted: impl Fn(&T) -> bool) -> Option<T> {
        let mut table = self.0.lock();
        let slot = table.get_mut(key & INDEX_MASK).filter(|slot| slot.is(key >> INDEX_BITS))?;
        let value = slot.value.take_if(|value| is_wanted(value))?;
        slot.generation = if slot.generation == LAST_GENERATION { 1 } else { slot.generation + 1 };
        Some(value)
    }
}
