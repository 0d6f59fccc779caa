//! Composed templates against the shared conformance data.

mod conformance;
pub(crate) mod examples;
