//! The families, one file of data each.

pub(super) mod hermes;
pub(super) mod polyfilled;

use super::Format;

/// Every family, in the order in which detection tries them.
pub(super) fn all() -> Vec<Format> {
    vec![hermes::format()]
}
