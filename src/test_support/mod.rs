//! What tests of several modules share.

pub(crate) mod conformance;
pub(crate) mod replies;
