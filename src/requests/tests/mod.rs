//! The requests against the shared conformance data.

mod composed;
mod conformance;
