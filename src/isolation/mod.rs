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

mod call_watch;
mod chat;
mod connection;
mod helper;
mod helper_end;
#[cfg(test)]
mod helper_tests;
mod lent_state;
mod message;
mod options;
mod reasoning_end;
mod sandbox;
mod server;
mod state_size;
mod tokens;
mod unload;
mod worker_use;

pub(crate) use chat::{IsolatedChat, IsolatedReply};
pub(crate) use helper::{HelperDescriptors, StartedHelper};
pub(crate) use server::serve;
pub(crate) use tokens::run_tokens;
pub(crate) use unload::unload;
