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
//! queue, the deadlines and the events of a call; everything that reads the model file or depends on
//! its content runs in the helper, whose messages are checked and not trusted. Starting a process is
//! the business of `ffi`. docs/isolation.md has the life of a helper.

mod chat;
mod connection;
mod helper;
mod helper_end;
mod lent_state;
mod message;
mod options;
mod sandbox;
mod server;

pub(crate) use chat::{IsolatedChat, IsolatedReply};
pub(crate) use helper::{HelperDescriptors, StartedHelper};
pub(crate) use server::serve;
