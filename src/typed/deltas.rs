//! The deltas of a reply as an iterator.

use std::fmt;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::JoinHandle;

use super::reply::Reply;
use crate::chat::DeltaSink;
use crate::engine::Interrupt;
use crate::error::Result;
use crate::output::Delta;
use crate::spawn;

/// How far the reply may be ahead of its reader.
const MAX_AHEAD: usize = 32;

/// The deltas of a reply that a thread of its own generates ([`Chat::deltas`](super::Chat::deltas)).
///
/// The reply waits while 32 deltas are not taken. Iteration ends with the reply, also if it has
/// failed: [`Deltas::reply`] tells. Dropping the iterator ends this reply, and no other one of the
/// chat; it does not wait for the end.
pub struct Deltas {
    deltas: Receiver<Delta>,
    reply: JoinHandle<Result<Reply>>,
    cancel: CancelOnDrop,
}

struct CancelOnDrop(Arc<AtomicBool>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Deltas {
    /// Starts a thread that generates the reply.
    pub(super) fn start(
        generate: impl FnOnce(Interrupt, DeltaSink) -> Result<Reply> + Send + 'static,
    ) -> Result<Deltas> {
        let interrupt = Interrupt::default();
        let cancel = CancelOnDrop(Arc::clone(&interrupt.cancel));
        let (sender, deltas) = sync_channel(MAX_AHEAD);
        // Without a reader, the reply is cancelled or only its whole is wanted.
        let mut pass = move |delta| drop(sender.send(delta));
        let run = move || generate(interrupt, &mut pass);
        Ok(Deltas { deltas, reply: spawn::thread("llb-deltas", run)?, cancel })
    }

    /// Waits for the end of the reply and returns it. Deltas that were not taken are skipped.
    ///
    /// # Errors
    /// Those of [`Chat::reply`](super::Chat::reply).
    pub fn reply(self) -> Result<Reply> {
        let Deltas { deltas, reply, cancel: _not_before_the_end } = self;
        drop(deltas);
        reply.join().unwrap_or_else(|payload| resume_unwind(payload))
    }
}

impl Iterator for Deltas {
    type Item = Delta;

    /// Waits for the next delta.
    fn next(&mut self) -> Option<Delta> {
        self.deltas.recv().ok()
    }
}

impl fmt::Debug for Deltas {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Deltas").finish_non_exhaustive()
    }
}
