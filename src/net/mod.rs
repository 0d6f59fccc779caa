//! What both HTTP clients, `hub` and `remote`, have in common: how they wait, whom they trust, when
//! they come again.
//!
//! Sends nothing itself.

pub(crate) mod retry_after;
pub(crate) mod trust_store;
pub(crate) mod wait;
