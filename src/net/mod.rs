//! What both HTTP clients, `hub` and `remote`, have in common: how they wait, whom they trust, when
//! they come again.
//!
//! Sends nothing itself.

pub(crate) mod later;
pub(crate) mod trust;
pub(crate) mod wait;
