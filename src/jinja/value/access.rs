//! What a template reads of the caller's data, noted for probes.
//!
//! Containers that are watched note members, indices and iterations under paths such as
//! `messages[1].tool_calls`. Printing notes nothing; `tojson` and `string` note everything below.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

/// The notes of one render.
#[derive(Debug, Default)]
pub(crate) struct AccessLog {
    read: RefCell<BTreeSet<String>>,
    missing: RefCell<Vec<String>>,
}

impl AccessLog {
    /// Whether this path was read.
    pub(crate) fn has(&self, path: &str) -> bool {
        self.read.borrow().contains(path)
    }

    /// Variables that were looked up and not found, in order of their first look-up.
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
        let mut missing = self.missing.borrow_mut();
        if !missing.iter().any(|known| known == name) {
            missing.push(name.to_owned());
        }
    }
}

/// Where a watched container is.
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
