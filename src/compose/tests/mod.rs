//! Compares composed templates with the shared conformance data.

mod conformance;
pub(crate) mod examples;
