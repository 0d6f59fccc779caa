//! The option `isolation`: a model runs in a helper process, behind the functions of this one.
//!
//! ```text
//! host                              helper
//! IsolatedChat  -- request JSON --> server -- Chat of that process
//!    callbacks  <-- log, pieces --
//!    the caller <-- reply JSON ---
//! ```
//!
//! In: options and requests as JSON texts. Out: replies as JSON texts. The host keeps the request
//! queue, the deadlines and the events of a call; everything that reads the model file or depends
//! on its content runs in the helper, whose messages are checked and not trusted. `ffi` starts the
//! processes. docs/isolation.md describes the life of a helper.

mod chat;
mod connection;
mod file_calls;
mod helper;
mod helper_call;
#[cfg(test)]
mod helper_tests;
mod lent_state;
mod message;
mod options;
mod sandbox;
mod server;
mod session;
mod worker_use;

pub(crate) use chat::{IsolatedChat, IsolatedReply};
pub(crate) use file_calls::{run_tokens, unload};
pub(crate) use helper::{HelperDescriptors, StartedHelper};
pub(crate) use server::serve;
