//! Code that the tests of several modules share.

pub(crate) mod conformance;
pub(crate) mod conformance_folder;
pub(crate) mod cpu_time;
pub(crate) mod growth;
pub(crate) mod random;
pub(crate) mod replies;
