//! Lists, dicts, namespaces and ranges: how they are built, read and changed.

use std::cell::{Cell, OnceCell, Ref, RefCell};
use std::rc::Rc;

use super::access::Watch;
use super::compare;
use super::text::Text;
use super::types::{Dict, ITEM, Namespace, OVERHEAD, Range, Value, ValueList};
use crate::jinja::budget::{Budget, Charge};
use crate::jinja::error::Result;

impl ValueList {
    pub(super) fn charged(budget: &Rc<Budget>, items: Vec<Value>) -> Result<ValueList> {
        let charge = budget.charge(items.capacity() * ITEM + OVERHEAD)?;
        Ok(ValueList::new(items, Some(charge)))
    }

    pub(super) fn new(items: Vec<Value>, charge: Option<Charge>) -> ValueList {
        let (items, charge) = (RefCell::new(items), Cell::new(charge));
        ValueList {
            items,
            growable: true,
            watch: None,
            group: false,
            tracked: Cell::new(false),
            charge,
        }
    }

    pub(crate) fn items(&self) -> Ref<'_, Vec<Value>> {
        if let Some(watch) = &self.watch {
            watch.record_items(self.items.borrow().len());
        }
        self.items.borrow()
    }

    /// Whether reads are recorded.
    pub(crate) fn is_watched(&self) -> bool {
        self.watch.is_some()
    }

    /// The items, without a record.
    pub(crate) fn unlogged(&self) -> Ref<'_, Vec<Value>> {
        self.items.borrow()
    }

    pub(crate) fn len(&self) -> usize {
        self.items.borrow().len()
    }

    /// The item at an index.
    pub(crate) fn get(&self, index: usize) -> Option<Value> {
        let item = self.items.borrow().get(index).cloned()?;
        if let Some(watch) = &self.watch {
            watch.record_item(index);
        }
        Some(item)
    }

    /// Whether it is a group of `groupby`.
    pub(crate) fn is_group(&self) -> bool {
        self.group
    }

    /// Marks it as tracked. Returns whether it was tracked before.
    pub(crate) fn mark_tracked(&self) -> bool {
        self.tracked.replace(true)
    }

    /// Whether it may grow.
    pub(crate) fn is_growable(&self) -> bool {
        self.growable
    }

    /// Modifies the items of a list that may grow.
    pub(crate) fn change<T>(
        &self,
        budget: &Rc<Budget>,
        change: impl FnOnce(&mut Vec<Value>) -> T,
    ) -> Result<T> {
        let mut items = self.items.borrow_mut();
        let before = items.capacity();
        if items.len() == before {
            let capacity = (before * 2).max(4);
            let charge = budget.charge(capacity * ITEM + OVERHEAD)?;
            items.reserve_exact(capacity - before);
            self.charge.set(Some(charge));
        }
        Ok(change(&mut items))
    }
}

/// The size from which a dict has a hash index.
const INDEXED: usize = 12;

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

impl Namespace {
    /// Creates a namespace. Attribute names are distinct.
    pub(crate) fn new(budget: &Rc<Budget>, attributes: Vec<(Text, Value)>) -> Result<Namespace> {
        let charge = budget.charge(attributes.len() * 2 * ITEM + OVERHEAD)?;
        let tracked = Cell::new(false);
        Ok(Namespace { attributes: RefCell::new(attributes), tracked, _charge: charge })
    }

    /// Marks it as tracked. Returns whether it was tracked before.
    pub(crate) fn mark_tracked(&self) -> bool {
        self.tracked.replace(true)
    }

    pub(crate) fn len(&self) -> usize {
        self.attributes.borrow().len()
    }

    pub(crate) fn get(&self, budget: &Budget, name: &str) -> Result<Option<Value>> {
        let attributes = self.attributes.borrow();
        budget.step(attributes.len() as u64 / 16)?;
        for (known, value) in attributes.iter() {
            if known.len() == name.len() {
                budget.read(name.len())?;
                if known.eq_str(name) {
                    return Ok(Some(value.clone()));
                }
            }
        }
        Ok(None)
    }

    pub(crate) fn attributes(&self) -> Ref<'_, Vec<(Text, Value)>> {
        self.attributes.borrow()
    }
}

impl Range {
    pub(crate) fn len(&self) -> usize {
        let (start, stop, step) =
            (i128::from(self.start), i128::from(self.stop), i128::from(self.step));
        let span = if step > 0 { stop - start } else { start - stop };
        if span <= 0 {
            0
        } else {
            usize::try_from((span - 1) / step.abs() + 1).unwrap_or(usize::MAX)
        }
    }

    pub(crate) fn get(&self, index: usize) -> i64 {
        self.start.wrapping_add(self.step.wrapping_mul(i64::try_from(index).unwrap_or(i64::MAX)))
    }

    pub(crate) fn contains(&self, number: i64) -> bool {
        let offset = i128::from(number) - i128::from(self.start);
        let inside = if self.step > 0 {
            number >= self.start && number < self.stop
        } else {
            number <= self.start && number > self.stop
        };
        inside && offset % i128::from(self.step) == 0
    }
}
