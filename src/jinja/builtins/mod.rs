//! What a template can call: filters, tests, global functions and methods.

pub(crate) mod filters;
pub(crate) mod format;
pub(crate) mod globals;
pub(crate) mod is_tests;
pub(crate) mod methods;
mod pprint;
mod tojson;

use crate::jinja::syntax::ast::BuiltinNames;

/// Lets the parser recognise builtins.
pub(crate) const NAMES: BuiltinNames = BuiltinNames {
    filter: filters::id,
    test: is_tests::id,
    is_global: |name| globals::find(name).is_some(),
    is_member: methods::is_member,
};
