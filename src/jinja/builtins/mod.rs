//! What a template can call: filters, tests, global functions, and the methods of Python's types.

pub(crate) mod filters;
pub(crate) mod format;
pub(crate) mod globals;
pub(crate) mod is_tests;
pub(crate) mod methods;
mod pprint;
mod tojson;
