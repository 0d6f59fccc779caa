//! Tests templates against the shared conformance data.

mod caps;
mod fork;
mod jinja;
mod origins;
mod polyfill;
pub(crate) mod renders;
mod spelt_tokens;
mod templates;
