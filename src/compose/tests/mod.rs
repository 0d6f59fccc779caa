//! Composed templates, compared with the shared conformance data.

mod conformance;
pub(crate) mod examples;
