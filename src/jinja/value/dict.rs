//! Dicts.

use std::cell::OnceCell;
use std::rc::Rc;

use super::access::Watch;
use super::{ITEM, OVERHEAD, Value, compare, drop_iteratively, may_nest};
use crate::jinja::budget::{Budget, Charge};
use crate::jinja::error::Result;

/// The size from which a dict has a hash index.
const INDEXED: usize = 12;

/// An immutable mapping in insertion order.
pub(crate) struct Dict {
    entries: Vec<(Value, Value)>,
    /// Sorted hashes of the keys, with the positions of their entries.
    index: OnceCell<Vec<(u64, u32)>>,
    watch: Option<Watch>,
    _charge: Charge,
}

impl Dict {
    /// Creates a dict of the template. A later entry replaces an earlier one with the same key.
    pub(crate) fn charged(budget: &Rc<Budget>, entries: Vec<(Value, Value)>) -> Result<Dict> {
        let charge =
            budget.charge(entries.len() * (2 * ITEM + size_of::<(u64, u32)>()) + OVERHEAD)?;
        let index = index(budget, &entries)?;
        let mut entries: Vec<Option<(Value, Value)>> = entries.into_iter().map(Some).collect();
        let mut repeated = false;
        // Positions of the distinct keys with the current hash.
        let mut kept: Vec<usize> = Vec::new();
        let mut last_hash = None;
        for (hash, position) in &index {
            if last_hash.replace(hash) != Some(hash) {
                kept.clear();
            }
            let Some((key, value)) = entries[*position as usize].take() else { continue };
            let mut first = None;
            for known in &kept {
                if let Some((other, _)) = &entries[*known]
                    && compare::equal(budget, other, &key)?
                {
                    first = entries[*known].as_mut();
                    break;
                }
            }
            // The first key keeps its position and takes the last value.
            match first {
                Some((_, old)) => {
                    *old = value;
                    repeated = true;
                }
                None => {
                    entries[*position as usize] = Some((key, value));
                    kept.push(*position as usize);
                }
            }
        }
        let entries: Vec<(Value, Value)> = entries.into_iter().flatten().collect();
        let known = if repeated { OnceCell::new() } else { OnceCell::from(index) };
        Ok(Dict { entries, index: known, watch: None, _charge: charge })
    }

    /// Creates a dict of the caller. Keys are distinct strings.
    pub(crate) fn from_caller(entries: Vec<(Value, Value)>, watch: Option<Watch>) -> Dict {
        Dict { entries, index: OnceCell::new(), watch, _charge: Charge::none() }
    }

    /// Removes and returns all keys and values.
    pub(crate) fn take_values(&mut self) -> impl Iterator<Item = Value> + use<> {
        std::mem::take(&mut self.entries).into_iter().flat_map(|(key, value)| [key, value])
    }

    /// Whether dropping the dict may drop other containers.
    pub(crate) fn may_nest(&self) -> bool {
        self.entries.iter().any(|(key, value)| may_nest(key) || may_nest(value))
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether reads are recorded.
    pub(crate) fn is_watched(&self) -> bool {
        self.watch.is_some()
    }

    /// All entries, recorded as read.
    pub(crate) fn entries(&self) -> &[(Value, Value)] {
        if let Some(watch) = &self.watch {
            watch.record_iteration();
            for name in self.entries.iter().filter_map(|(key, _)| key.as_str()) {
                watch.record_member(name);
            }
        }
        &self.entries
    }

    /// All entries, without a record.
    pub(crate) fn unlogged(&self) -> &[(Value, Value)] {
        &self.entries
    }

    /// The keys, recorded as an iteration.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &Value> {
        if let Some(watch) = &self.watch {
            watch.record_iteration();
        }
        self.entries.iter().map(|(key, _)| key)
    }

    /// The value of a key.
    pub(crate) fn get(&self, budget: &Rc<Budget>, key: &Value) -> Result<Option<&Value>> {
        if let Value::Text(name) = key {
            budget.step_bytes(name.len())?;
            return Ok(self.get_name(name));
        }
        let hash = compare::hash(budget, key)?;
        for position in self.positions(hash) {
            if compare::equal(budget, &self.entries[position].0, key)? {
                return Ok(Some(&self.entries[position].1));
            }
        }
        Ok(None)
    }

    /// The value of a string key. The caller must already have accounted for reading `name`.
    pub(crate) fn get_name(&self, name: &str) -> Option<&Value> {
        let found = if self.entries.len() < INDEXED {
            self.entries.iter().find(|(key, _)| key.is_text(name))
        } else {
            self.positions(compare::hash_str(name))
                .map(|position| &self.entries[position])
                .find(|(key, _)| key.is_text(name))
        };
        let (_, value) = found?;
        if let Some(watch) = &self.watch {
            watch.record_member(name);
        }
        Some(value)
    }

    /// The positions of keys with this hash.
    fn positions(&self, hash: u64) -> impl Iterator<Item = usize> + '_ {
        let index = self.index.get_or_init(|| {
            // The cost is bounded: a dict without an index either belongs to the caller or had its
            // keys hashed before.
            let hashes = self.entries.iter().map(|(key, _)| compare::known_hash(key));
            ordered(hashes)
        });
        let first = index.partition_point(|(other, _)| *other < hash);
        index[first..]
            .iter()
            .take_while(move |(other, _)| *other == hash)
            .map(|(_, position)| *position as usize)
    }
}

/// The sorted hashes of keys with their positions.
fn index(budget: &Rc<Budget>, entries: &[(Value, Value)]) -> Result<Vec<(u64, u32)>> {
    let mut hashes = Vec::with_capacity(entries.len());
    for (key, _) in entries {
        hashes.push(compare::hash(budget, key)?);
    }
    Ok(ordered(hashes.into_iter()))
}

fn ordered(hashes: impl Iterator<Item = u64>) -> Vec<(u64, u32)> {
    let mut index: Vec<(u64, u32)> = hashes.zip(0..).collect();
    index.sort_unstable();
    index
}

impl Drop for Dict {
    fn drop(&mut self) {
        if self.may_nest() {
            drop_iteratively(self.take_values().collect());
        }
    }
}
