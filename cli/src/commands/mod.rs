//! A module for each command: its arguments, and `run`, which returns the exit status if it has
//! more than one.

pub(crate) mod bench;
pub(crate) mod chat;
pub(crate) mod compose;
pub(crate) mod doctor;
pub(crate) mod explain;
pub(crate) mod fetch;
pub(crate) mod info;
pub(crate) mod manual;
pub(crate) mod models;
pub(crate) mod parse;
pub(crate) mod render;
pub(crate) mod run;
pub(crate) mod template_check;
pub(crate) mod template_diff;
