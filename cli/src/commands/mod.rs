//! One module per command, with its arguments and `run`. `run` returns the exit status if success
//! has more than one.

pub(crate) mod bench;
pub(crate) mod chat;
pub(crate) mod compose;
pub(crate) mod doctor;
pub(crate) mod explain;
pub(crate) mod fetch;
pub(crate) mod info;
pub(crate) mod launch;
pub(crate) mod manual;
pub(crate) mod models;
pub(crate) mod parse;
pub(crate) mod ps;
pub(crate) mod render;
pub(crate) mod rpc;
pub(crate) mod run;
pub(crate) mod template_check;
pub(crate) mod template_diff;
