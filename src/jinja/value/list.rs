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
    /// Lists that the template made may grow; the caller's data may not.
    pub(super) growable: bool,
    pub(super) watch: Option<Watch>,
    /// Whether it is a group of `groupby`, whose items have names.
    pub(super) group: bool,
    /// Whether the render remembers it, as something that may hold itself.
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

    /// Whether reads of it are noted.
    pub(crate) fn is_watched(&self) -> bool {
        self.watch.is_some()
    }

    /// The items, without a note that they were read.
    pub(crate) fn unlogged(&self) -> Ref<'_, Vec<Value>> {
        self.items.borrow()
    }

    pub(crate) fn len(&self) -> usize {
        self.items.borrow().len()
    }

    /// The item at a place that exists.
    pub(crate) fn get(&self, index: usize) -> Option<Value> {
        let item = self.items.borrow().get(index).cloned()?;
        if let Some(watch) = &self.watch {
            watch.record_item(index);
        }
        Some(item)
    }

    /// Whether its items have the names of a group.
    pub(crate) fn is_group(&self) -> bool {
        self.group
    }

    /// Notes that the render remembers it; whether it did before.
    pub(crate) fn mark_tracked(&self) -> bool {
        self.tracked.replace(true)
    }

    /// Whether it may grow.
    pub(crate) fn is_growable(&self) -> bool {
        self.growable
    }

    /// Changes the items of a list that may grow.
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

    /// Forgets the items; ends whatever circles there were.
    pub(crate) fn clear(&self) {
        let items = std::mem::take(&mut *self.items.borrow_mut());
        drop_iteratively(items);
    }
}
