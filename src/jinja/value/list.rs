//! Lists and tuples.

use std::cell::{Cell, Ref, RefCell};
use std::rc::Rc;

use super::access::Watch;
use super::{ITEM, OVERHEAD, Value, drop_iteratively};
use crate::jinja::budget::{Budget, Charge};
use crate::jinja::error::Result;

/// The items of a list or tuple.
pub(crate) struct ValueList {
    pub(super) items: RefCell<Vec<Value>>,
    /// Lists of the template may grow. Lists of the caller may not.
    pub(super) growable: bool,
    pub(super) watch: Option<Watch>,
    /// Whether it is a group of `groupby`, whose items have names.
    pub(super) group: bool,
    /// Whether the interpreter tracks it as a possible cycle.
    pub(super) tracked: Cell<bool>,
    pub(super) charge: Cell<Option<Charge>>,
}

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

    /// Removes the items, which breaks reference cycles.
    pub(crate) fn clear(&self) {
        let items = std::mem::take(&mut *self.items.borrow_mut());
        drop_iteratively(items);
    }
}
