//! Records which of the caller's data a template reads, for probes.
//!
//! Watched containers record members, indices and iterations under paths such as
//! `messages[1].tool_calls`. Printing records nothing. `tojson` and `string` record everything
//! inside the container.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashSet};
use std::rc::Rc;

/// The reads of one render.
#[derive(Debug, Default)]
pub(crate) struct AccessLog {
    read: RefCell<BTreeSet<String>>,
    missing: RefCell<Vec<String>>,
    /// The names in `missing`.
    missing_names: RefCell<HashSet<String>>,
}

impl AccessLog {
    /// Whether this path was read.
    pub(crate) fn has(&self, path: &str) -> bool {
        self.read.borrow().contains(path)
    }

    /// Variables that were not found, in the order of their first lookup.
    pub(crate) fn missing(&self) -> Vec<String> {
        self.missing.borrow().clone()
    }

    pub(crate) fn record(&self, path: &str) {
        let mut read = self.read.borrow_mut();
        if !read.contains(path) {
            read.insert(path.to_owned());
        }
    }

    pub(crate) fn record_missing(&self, name: &str) {
        let mut names = self.missing_names.borrow_mut();
        if !names.contains(name) {
            names.insert(name.to_owned());
            self.missing.borrow_mut().push(name.to_owned());
        }
    }
}

/// The log and path of a watched container.
#[derive(Debug, Clone)]
pub(crate) struct Watch {
    log: Rc<AccessLog>,
    path: Rc<str>,
}

impl Watch {
    pub(crate) fn new(log: &Rc<AccessLog>, path: &str) -> Watch {
        Watch { log: Rc::clone(log), path: path.into() }
    }

    pub(crate) fn record_member(&self, name: &str) {
        self.log.record(&format!("{}.{name}", self.path));
    }

    pub(crate) fn record_item(&self, index: usize) {
        self.log.record(&format!("{}[{index}]", self.path));
    }

    pub(crate) fn record_iteration(&self) {
        self.log.record(&format!("{}#iter", self.path));
    }

    pub(crate) fn record_items(&self, count: usize) {
        self.record_iteration();
        for index in 0..count {
            self.record_item(index);
        }
    }
}
