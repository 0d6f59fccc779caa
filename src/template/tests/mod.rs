//! Templates against the shared conformance data.

mod caps;
mod fork;
mod jinja;
mod polyfill;
pub(crate) mod renders;
mod templates;
